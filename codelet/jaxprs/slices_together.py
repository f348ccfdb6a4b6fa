"""Slices together: an array, and slices of it, as one linear equation, for the sake of its transpose.

JAX transposes a slice into zeros of the whole array with the cotangent of the slice among them, and adds these up. For
small slices, that is work in proportion to the array and not to the slices. In the transpose of this primitive the
cotangents of the slices are added in place to that of the array, which is the first of its results. The array goes on
as that result: later slices are taken from it.

On anything but a CPU the transpose is as JAX's own, whose sums have one order.

Source: "How JAX primitives work" in JAX's documentation.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core
from jax.interpreters import ad, batching, mlir

from codelet.jaxprs.equations import Atomic, starts_of, variables, with_inner
from codelet.jaxprs.primitives import CUSTOM, is_understood
from codelet.jaxprs.rebuild import Builder, each_once


class Places:
    """Which elements of an array a jaxpr of slices and reshapes takes, asked for where it is transposed.

    Args:
        jaxpr: from the array to itself and the slices.
    """

    def __init__(self, jaxpr: jax_core.Jaxpr):
        self._jaxpr = jaxpr

    def __repr__(self) -> str:
        return f"of {len(self._jaxpr.outvars) - 1} slices"

    @functools.cached_property
    def flat(self) -> np.ndarray:
        """Where they lie in the flat array, those of one result after another."""
        (array,) = self._jaxpr.invars
        shape = array.aval.shape  # type: ignore[attr-defined]
        known: dict[Any, np.ndarray] = {array: np.arange(math.prod(shape), dtype=np.int32).reshape(shape)}
        for eqn in self._jaxpr.eqns:
            own = known[eqn.invars[0]]
            if eqn.primitive.name == "slice":
                steps = eqn.params["strides"] or (1,) * own.ndim
                ends = zip(eqn.params["start_indices"], eqn.params["limit_indices"], steps, strict=True)
                known[eqn.outvars[0]] = own[tuple(slice(*one) for one in ends)]
            else:
                known[eqn.outvars[0]] = own.reshape(eqn.params["new_sizes"])
        return np.concatenate([known[var].reshape(-1) for var in self._jaxpr.outvars[1:]])


slices_together_p = jax_core.Primitive("slices_together")
slices_together_p.multiple_results = True


@slices_together_p.def_impl
def _run(array: Any, *, jaxpr: jax_core.ClosedJaxpr, places: Places, batch: int) -> list[Any]:
    return list(jax_core.jaxpr_as_fun(jaxpr)(array))


@slices_together_p.def_abstract_eval
def _types(array: Any, *, jaxpr: jax_core.ClosedJaxpr, places: Places, batch: int) -> list[Any]:
    if array == jaxpr.in_avals[0]:
        return jaxpr.out_avals
    return jax.make_jaxpr(jax_core.jaxpr_as_fun(jaxpr))(array).out_avals  # it varies over devices


def _added_in_place(places: Places, batch: int, whole: jax.Array, parts: Sequence[jax.Array]) -> jax.Array:
    """The cotangents of all slices, added to that of the array where they lie."""
    values = jnp.concatenate([lax.reshape(part, (batch, part.size // batch)) for part in parts], 1)
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=(0,), inserted_window_dims=(1,), scatter_dims_to_operand_dims=(1,)
    )
    flat = lax.reshape(whole, (batch, whole.size // batch))
    made = lax.scatter_add(flat, places.flat[:, None], values, numbers, mode="promise_in_bounds")
    return lax.reshape(made, whole.shape)


def _padded(jaxpr: jax_core.Jaxpr, parts: Sequence[jax.Array]) -> jax.Array:
    """The cotangents of all slices, each among zeros, and added up."""
    slopes = dict(zip(jaxpr.outvars[1:], parts, strict=True))
    for eqn in reversed(jaxpr.eqns):
        (source,), slope = eqn.invars, slopes.pop(eqn.outvars[0])
        shape = source.aval.shape  # type: ignore[attr-defined]
        if eqn.primitive.name == "slice":
            steps = eqn.params["strides"] or (1,) * len(shape)
            starts = eqn.params["start_indices"]
            ends = [start + (n - 1) * step + 1 for start, n, step in zip(starts, slope.shape, steps, strict=True)]
            around = [(a, n - z, step - 1) for a, z, n, step in zip(starts, ends, shape, steps, strict=True)]
            made = lax.pad(slope, jnp.zeros((), slope.dtype), around)
        else:
            made = lax.reshape(slope, shape)
        slopes[source] = slopes[source] + made if source in slopes else made
    return slopes[jaxpr.invars[0]]


def _transposed(
    cotangents: Sequence[Any], array: Any, *, jaxpr: jax_core.ClosedJaxpr, places: Places, batch: int
) -> list[Any]:
    whole, *parts = cotangents
    if all(isinstance(part, ad.Zero) for part in parts):
        return [whole]
    given = [
        jnp.zeros(aval.shape, aval.dtype) if isinstance(part, ad.Zero) else part
        for part, aval in zip(parts, jaxpr.out_avals[1:], strict=True)
    ]
    if isinstance(whole, ad.Zero):
        return [_padded(jaxpr.jaxpr, given)]

    def in_place(whole: Any, *given: Any) -> Any:
        return _added_in_place(places, batch, whole, given)

    def as_jax_does(whole: Any, *given: Any) -> Any:
        return whole + _padded(jaxpr.jaxpr, given)

    return [lax.platform_dependent(whole, *given, cpu=in_place, default=as_jax_does)]


def _batched(
    operands: Sequence[Any], axes: Sequence[int], *, jaxpr: jax_core.ClosedJaxpr, places: Places, batch: int
) -> tuple[list[Any], list[int]]:
    (array,), (axis,) = operands, axes
    array = jnp.moveaxis(array, axis, 0)
    own = jax.make_jaxpr(jax.vmap(jax_core.jaxpr_as_fun(jaxpr)))(jax.ShapeDtypeStruct(array.shape, array.dtype))
    results = slices_together_p.bind(array, jaxpr=own, places=places, batch=batch * array.shape[0])
    return results, [0] * len(results)


ad.deflinear2(slices_together_p, _transposed)
batching.primitive_batchers[slices_together_p] = _batched
mlir.register_lowering(slices_together_p, mlir.lower_fun(_run, multiple_results=True))


_SHARE = 8
"""Slices are joined where they have less than this part of the array's elements: the rest is what is saved."""

_MOST = 2**15
"""Elements of all slices of an array: their places are a table."""

_UPDATES = ("scatter", "scatter-add", "custom_jvp_call")

Uses = Mapping[Any, Sequence[jax_core.JaxprEqn | None]]
"""The equations that take a variable, and None for each result of the jaxpr that it is."""


def _uses(eqns: Sequence[jax_core.JaxprEqn], results: Sequence[Atomic]) -> Uses:
    found: dict[Any, list[jax_core.JaxprEqn | None]] = {}
    for eqn in eqns:
        for var in dict.fromkeys(variables(eqn.invars)):
            found.setdefault(var, []).append(eqn)
    for var in variables(results):
        found.setdefault(var, []).append(None)
    return found


def _apart(eqn: jax_core.JaxprEqn, uses: Uses) -> list[jax_core.JaxprEqn]:
    """A split as the slices that are used; any other equation as it is."""
    if not is_understood(eqn, "split"):
        return [eqn]
    made = []
    for var in eqn.outvars:
        starts, shape = starts_of(eqn, var), var.aval.shape  # type: ignore[attr-defined]
        if uses.get(var) and starts is not None:
            stops = tuple(start + n for start, n in zip(starts, shape, strict=True))
            parameters = {"start_indices": starts, "limit_indices": stops, "strides": None}
            made.append(eqn.replace(primitive=lax.slice_p, outvars=[var], params=parameters))
    return made


def _chain(first: jax_core.JaxprEqn, uses: Uses) -> list[jax_core.JaxprEqn]:
    """A slice, and the slices and reshapes of it that are the only uses of one another."""
    chain = [first]
    while True:
        following = uses.get(chain[-1].outvars[0], ())
        if len(following) != 1 or following[0] is None or not is_understood(following[0], "slice", "reshape"):
            return chain
        chain.append(following[0])


def _goes_on(array: Any, eqn: jax_core.JaxprEqn | None) -> bool:
    """Whether the array's cotangent passes through one of its uses, all but those replaced: where it is updated.

    An update that adds may have a rule for its tangents.
    """
    if eqn is None:
        return True
    if not is_understood(eqn, "dynamic_update_slice") and eqn.primitive.name not in _UPDATES:
        return False
    same = eqn.outvars[0].aval.shape == array.aval.shape  # type: ignore[attr-defined]
    return same and eqn.invars[0] is array and array not in eqn.invars[1:]


def _small_slices(array: Any, uses: Uses) -> list[list[jax_core.JaxprEqn]]:
    """Equations that take little of an array that goes on otherwise; none where that is not so.

    Where larger parts are taken too, or it is computed with, its cotangent is made in one pass with theirs among zeros.
    """
    if not jnp.issubdtype(array.aval.dtype, jnp.inexact):
        return []
    own = uses.get(array, ())
    most = min(math.prod(array.aval.shape) // _SHARE, _MOST)
    chains = [_chain(eqn, uses) for eqn in own if eqn is not None and is_understood(eqn, "slice")]
    rest = [eqn for eqn in own if eqn is None or not is_understood(eqn, "slice")]
    total = sum(math.prod(chain[-1].outvars[0].aval.shape) for chain in chains)  # type: ignore[attr-defined]
    return chains if total <= most and rest and all(_goes_on(array, eqn) for eqn in rest) else []


def _joined(array: Any, chains: Sequence[Sequence[jax_core.JaxprEqn]]) -> tuple[jax_core.JaxprEqn, Any]:
    """The equation that makes all slices, and the array as which it goes on."""
    builder, results = Builder([array]), []
    for chain in chains:
        atoms: list[Atomic] = list(builder.invars)
        for eqn in chain:
            atoms = builder.equation(eqn, atoms)
        results += atoms
    closed, after = builder.closed([*builder.invars, *results]), jax_core.Var(array.aval)
    made = chains[0][0].replace(
        primitive=slices_together_p,
        invars=[array],
        outvars=[after, *(chain[-1].outvars[0] for chain in chains)],
        params={"jaxpr": closed, "places": Places(closed.jaxpr), "batch": 1},
    )
    return made, after


def with_slices_together(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr in which slices that take little of an array are made together, in all that it calls as well.

    Functions with derivative rules stay as they are, and so do programs of several devices.
    """

    @each_once
    def changed(own: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
        jaxpr = own.jaxpr
        before = _uses(jaxpr.eqns, jaxpr.outvars)
        apart = [(part, eqn) for eqn in jaxpr.eqns for part in _apart(eqn, before)]
        uses = _uses([part for part, _ in apart], jaxpr.outvars)
        arrays = [*jaxpr.invars, *(var for eqn in jaxpr.eqns for var in eqn.outvars)]
        found = {array: chains for array in arrays if (chains := _small_slices(array, uses))}
        joined = {id(eqn) for chains in found.values() for chain in chains for eqn in chain}
        gone = {id(eqn) for part, eqn in apart if id(part) in joined}
        now: dict[Any, Any] = {}
        eqns = []
        for eqn in jaxpr.eqns:
            for var in variables(eqn.invars):
                if var in found and var not in now:
                    first, now[var] = _joined(var, found[var])
                    eqns.append(first)
            if id(eqn) in gone:
                continue
            if eqn.primitive.name not in (*CUSTOM, "shard_map"):
                eqn = with_inner(eqn, lambda _, body: changed(body))
            if any(var in now for var in variables(eqn.invars)):
                eqn = eqn.replace(invars=[now.get(a, a) if isinstance(a, jax_core.Var) else a for a in eqn.invars])
            eqns.append(eqn)
        if all(a is b for a, b in zip(eqns, jaxpr.eqns, strict=False)) and len(eqns) == len(jaxpr.eqns):
            return own
        results = [now.get(a, a) if isinstance(a, jax_core.Var) else a for a in jaxpr.outvars]
        return jax_core.ClosedJaxpr(jaxpr.replace(eqns=eqns, outvars=results), own.consts)

    return changed(closed)
