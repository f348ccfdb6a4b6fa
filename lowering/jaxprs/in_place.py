"""In place: updates that XLA would miscompile are made in another way.

In comes a jaxpr, out comes one without the `dynamic_update_slice`s that are in danger. XLA's CPU backend runs an
update in place, fused with what computes the new values. Where the array to be updated is another array's elements
in another shape, and the new values are computed from that other array, the fusion holds both, and reads what it has
overwritten (jax 0.10.2, and 0.12.0 as reported; `tests/test_in_place.py` has it in five lines). XLA checks this where
the array is updated in its own shape, and compiles that rightly. So an update is in danger just if, on the way back
from the updated array through whatever may leave its elements as they are, something changes its shape, and its
new values depend on what stands there or before. XLA does not look through loops, and so what they carry is no other
array. Functions of the graph are inlined, and what they are given may be anything.

Known weaknesses: of what is given to the whole, two arrays count as one only where they could be each other's
reshapes, so that whoever jits it together with reshapes and slices of their own may still meet XLA's mistake, as in
plain JAX; and updates inside derivative rules of a codelet's own are left as they are.

In danger, what is an eighth of the array or more is padded to its whole and chosen by a mask, what is less is
scattered to known positions. Measured with jax 0.10.2 on two cores of a CPU, in ms for 20 updates in a loop of
float32, 2048 x 2048 or 2^22, in which new values are computed from old ones (and, in brackets, from others):

                   in place     pad, select   concatenate   scatter, flat   scatter, by dimension
    [:, 1::2]      62 (7)         22 (20)        30 (23)         60 (40)         490 (450)
    [1::2, ::2]    51 (4)         24 (25)        20 (24)         18 (15)          17 (18)
    [1::4]         58 (5)         27 (22)        41 (28)         22 (15)
    [1::8]         64 (4)         27 (27)        29 (26)         13 (9)
    [1::128]       57 (2)         42 (24)        22 (15)          4 (3)

Values computed from others are not in danger, and stay in place. In the gradient a scatter takes about twice as
long as the others (4.4 to 1.7 for [1::2], 1.8 to 1.0 for [1::8]), and it runs on one core alone: so it is
chosen only where little is written.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import bodies_of, evaluate, inner_jaxprs, is_function, scan_counts
from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import rewrite
from codelet.views.digits import row_major_strides
from lowering.arrays import Array

Item = TypeVar("Item")

MOST_SCATTERED = 1 / 8
"""The part of an array from which on an update is padded and chosen by a mask rather than scattered."""

_RESHAPING = ("reshape", "squeeze", "expand_dims", "broadcast_in_dim", "transpose")
"""The primitives whose result may be its operand in another shape, without a copy."""

# --- what is in danger ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Value:
    """A value that XLA sees, after it has inlined what it inlines.

    Attributes:
        sources: what it is computed from.
        same: those of them whose very elements it may hold; and whether it may hold them in another shape.
        changed: whether it may hold those of any value before it in another shape. It is known here since most
            hold none, and would be searched in vain.
    """

    sources: tuple[_Value, ...] = ()
    same: tuple[tuple[_Value, bool], ...] = ()
    changed: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "changed", any(changes or source.changed for source, changes in self.same))


def _reached(first: Item, following: Callable[[Item], Iterable[Item]]) -> Iterator[Item]:
    """What is reached from something, itself first, each once."""
    found, left = {first}, [first]
    while left:
        yield (own := left.pop())
        fresh = set(following(own)) - found
        found |= fresh
        left.extend(fresh)


def _other_shapes(value: _Value) -> set[_Value]:
    """The values whose elements a value may hold in another shape."""

    def held_by(own: tuple[_Value, bool]) -> list[tuple[_Value, bool]]:
        held, changed = own
        return [(source, changed or changes) for source, changes in held.same]

    return {held for held, changed in _reached((value, False), held_by) if changed}


def _is_in_danger(array: _Value, value: _Value) -> bool:
    """Whether an update of an array with a value may run where it still reads what it overwrites."""
    if not array.changed:
        return False
    overwritten = _other_shapes(array)
    return any(own in overwritten for own in _reached(value, lambda own: own.sources))


class _Search:
    """Looks for updates in danger, through the jaxprs within a jaxpr."""

    def __init__(self) -> None:
        self.found: set[jax_core.JaxprEqn] = set()

    def run(self, jaxpr: jax_core.ClosedJaxpr, inputs: Iterable[_Value]) -> list[_Value]:
        """What a jaxpr makes of its inputs."""
        return evaluate(jaxpr, list(inputs), self.results, known=lambda _: _Value())

    def results(self, eqn: jax_core.JaxprEqn, inputs: Sequence[_Value]) -> list[_Value]:
        name, bodies = eqn.primitive.name, bodies_of(eqn)
        if is_function(eqn):
            return _Search().run(eqn.params["jaxpr"], inputs)  # its own updates were looked at when it was made
        if name == "while" or (name == "scan" and eqn.params["length"] // eqn.params["unroll"] > 1):
            return self.loop(eqn, inputs)
        if name == "cond":
            made = [self.run(body, inputs[1:]) for body in bodies]
            return [_Value(own, tuple((value, False) for value in own)) for own in zip(*made, strict=True)]
        if is_understood(eqn, "dynamic_update_slice") and _is_in_danger(*inputs[:2]):
            self.found.add(eqn)
            return [_Value(tuple(inputs))]  # made another way, it is a new array
        # Of a short loop's body, of which XLA makes none, it is only known that all comes from its inputs.
        inner = [self.anything(eqn, inputs, var.aval) for body in bodies for var in body.jaxpr.invars]
        for body in bodies:
            self.run(body, inner)
        return [self.anything(eqn, inputs, var.aval) for var in eqn.outvars]

    def anything(self, eqn: jax_core.JaxprEqn, inputs: Sequence[_Value], kind: Any) -> _Value:
        """What an equation may have made of its inputs."""
        size, dtype = _size(kind), getattr(kind, "dtype", None)
        reshapes = eqn.primitive.name in _RESHAPING or bool(inner_jaxprs(eqn))
        alike = [
            (value, reshapes)
            for atom, value in zip(eqn.invars, inputs, strict=True)
            if (_size(atom.aval), getattr(atom.aval, "dtype", None)) == (size, dtype)
        ]
        return _Value(tuple(inputs), tuple(alike))

    def loop(self, eqn: jax_core.JaxprEqn, inputs: Sequence[_Value]) -> list[_Value]:
        """What comes of a loop that XLA keeps. What never changes in it is what it was before."""
        params = eqn.params
        if eqn.primitive.name == "scan":
            (body,), (kept, num_carried) = bodies_of(eqn), scan_counts(eqn)
            carried = range(kept, kept + num_carried)
            outside = list(inputs)
        else:
            _, body = bodies_of(eqn)
            outside, kept = list(inputs[params["cond_nconsts"] :]), params["body_nconsts"]
            carried = range(kept, len(outside))
        jaxpr = body.jaxpr
        for k in range(kept, len(outside)):
            if k not in carried or jaxpr.outvars[k - kept] is not jaxpr.invars[k]:
                outside[k] = _Value()
        self.run(body, outside)
        return [_Value() for _ in eqn.outvars]


def _size(kind: Any) -> int | None:
    return math.prod(kind.shape) if hasattr(kind, "shape") else None


def _given(jaxpr: jax_core.Jaxpr, inlined: bool) -> list[_Value]:
    """The inputs of a jaxpr: where it is inlined they may all come from one array, else one may be another reshaped."""
    types = [var.aval for var in jaxpr.invars]
    kinds = [None if inlined else (_size(kind), getattr(kind, "dtype", None)) for kind in types]
    shaped = set(zip(kinds, (getattr(kind, "shape", ()) for kind in types), strict=True))
    shapes, origins = Counter(kind for kind, _ in shaped), {kind: _Value() for kind in kinds}
    return [
        _Value((origins[kind],), ((origins[kind], True),)) if inlined or shapes[kind] > 1 else _Value()
        for kind in kinds
    ]


def updates_in_danger(closed: jax_core.ClosedJaxpr, *, inlined: bool = False) -> set[jax_core.JaxprEqn]:
    """The equations of a jaxpr, and of those within it, that update an array as XLA would miscompile it.

    Args:
        closed: what is to run.
        inlined: whether it will stand in another one of ours, so that its inputs may be computed from each other.
    """
    search = _Search()
    search.run(closed, _given(closed.jaxpr, inlined))
    return search.found


# --- another way ----------------------------------------------------------------------------------------


def _scattered(array: Array, value: Array, starts: Sequence[int]) -> Array:
    """An array with a value at known positions."""
    dtype = np.int32 if array.size < 2**31 else np.int64
    places = np.zeros((), dtype)
    for d, (start, weight) in enumerate(zip(starts, row_major_strides(array.shape), strict=True)):
        if value.shape[d] == 1:
            places = places + np.asarray(start * weight, dtype)
        else:
            along = lax.broadcasted_iota(dtype, value.shape, d)
            places = (along + np.asarray(start, dtype)) * np.asarray(weight, dtype) + places
    flat = lax.reshape(array, (array.size,)).at[jnp.broadcast_to(places, value.shape).reshape(-1)]
    made = flat.set(
        lax.reshape(value, (value.size,)),
        mode="promise_in_bounds",
        unique_indices=True,
        indices_are_sorted=True,
        wrap_negative_indices=False,
    )
    return lax.reshape(made, array.shape)


def _chosen(array: Array, value: Array, starts: Sequence[int]) -> Array:
    """An array with a value padded to its shape where a mask says so."""
    sides = zip(array.shape, value.shape, starts, strict=True)
    widths = [(start, extent - start - length, 0) for extent, length, start in sides]
    padded = lax.pad(value, jnp.zeros((), value.dtype), widths)
    return lax.select(lax.pad(jnp.ones(value.shape, bool), np.bool_(False), widths), padded, array)


def _updated(eqn: jax_core.JaxprEqn, inputs: Sequence[Any]) -> Array:
    """What an equation that updates an array gives, not in place."""
    array, value, *starts = (jnp.asarray(operand) for operand in inputs)
    if not all(isinstance(atom, jax_core.Literal) for atom in eqn.invars[2:]):
        # What is updated here is new, and so no other array.
        # Its starts are the equation's, which only clamps them.
        zeros, no, yes = jnp.zeros_like(array), jnp.zeros(array.shape, bool), jnp.ones(value.shape, bool)
        padded = lax.dynamic_update_slice(zeros, value, starts, allow_negative_indices=False)
        mask = lax.dynamic_update_slice(no, yes, starts, allow_negative_indices=False)
        return lax.select(mask, padded, array)
    spans = zip(eqn.invars[2:], array.shape, value.shape, strict=True)
    known = [min(max(0, int(atom.val)), extent - length) for atom, extent, length in spans]  # type: ignore[union-attr]
    return (_scattered if value.size < MOST_SCATTERED * array.size else _chosen)(array, value, known)


def update_safely(closed: jax_core.ClosedJaxpr, *, inlined: bool = False) -> jax_core.ClosedJaxpr:
    """A jaxpr with the updates that XLA would miscompile made in another way, in the bodies of loops as well.

    Args:
        closed: what is to run.
        inlined: whether it will stand in another one of ours, so that its inputs may be computed from each other.
    """
    found = updates_in_danger(closed, inlined=inlined)
    rule = lambda eqn: (lambda *operands: [_updated(eqn, operands)]) if eqn in found else None  # noqa: E731
    return rewrite(closed, rule)
