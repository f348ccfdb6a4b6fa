"""Reduce in shape: what is reduced in a shape is reduced in that which the array has for all else that reads it.

Vertices that reduce rows read a table of rows, and others read the array as it is. XLA's CPU backend fuses what makes
the array with one of these, and goes by its shape: the gradient of softmax took 1.6 times as long with an array of four
dimensions of which the rows were summed as two. In comes a jaxpr, out comes one whose reductions of a reshaped array
are of the array itself, where dimensions stay together that are reduced, and where something else reads the array as it
is, or all that reads the result reads it in the shape that it has then; and those of a transposed array of what lies in
memory, as gradients of biases are: in float16 they are converted in between.

Reductions that are concatenated, with single elements perhaps, and reduced in the same way along that dimension, are
reduced apart, and the results combined: blocks, and what is left over of them, write partial sums so. XLA makes one
reduction of two in a row, but not through a concatenation.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, Makers, variables
from codelet.jaxprs.primitives import REDUCTIONS, is_understood
from codelet.views.digits import Digit, chains
from lowering.arrays import reshape, transpose
from lowering.jaxprs.rearrangement import rearrangement
from lowering.jaxprs.reduced_maps import is_rounded
from lowering.jaxprs.remade import Remade, with_remade
from lowering.jaxprs.reshape_once import is_reshape, stretches


def reduces_along(reduction: jax_core.JaxprEqn, was: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes of an array along which a reduction of it reshaped reduces; None where these are not whole."""
    axes, found = set(map(int, reduction.params["axes"])), list[int]()
    if 0 in shape:
        return None
    for before, after in stretches(was, shape):
        inside = set(range(after.start, after.stop))
        if inside <= axes:
            found += range(before.start, before.stop)
        elif any(shape[d] > 1 for d in inside & axes):
            return None
    return tuple(found) or None


def _reduced(eqn: jax_core.JaxprEqn, root: Any, axes: tuple[int, ...]) -> Remade:
    """A reduction of an array along other axes."""

    def run(array: Any) -> list[Any]:
        primitive: Any = eqn.primitive
        made = primitive.bind(array, **{**eqn.params, "axes": axes})
        return [reshape(made, eqn.outvars[0].aval.shape)]  # type: ignore[attr-defined]

    return Remade([root], run)


def _as_it_lies(eqn: jax_core.JaxprEqn, makers: Makers) -> Remade | None:
    """A reduction of what is transposed, and perhaps converted, as one of what lies in memory.

    None where nothing is transposed, or it is repeated.
    """
    maker = makers.of(eqn.invars[0])
    converted = maker if maker is not None and is_understood(maker, "convert_element_type") else None
    view = rearrangement(eqn.invars[0] if converted is None else converted.invars[0], makers, stop=lambda _: False)
    if view.is_in_order or not all(digit.step for digit in view.digits):
        return None
    axes = set(map(int, eqn.params["axes"]))
    left = [digit for d, dim in enumerate(view.dims) if d not in axes for digit in dim]

    def goes_on(group: list[Digit], digit: Digit) -> bool:
        if group[-1] not in left or digit not in left:
            return (group[-1] in left) == (digit in left)
        return left.index(digit) == left.index(group[-1]) + 1

    groups = chains(view.memory, goes_on)
    kept = [group[0] for group in groups if group[0] in left]
    along = tuple(k for k, group in enumerate(groups) if group[0] not in left)

    def run(root: Any) -> list[Any]:
        primitive: Any = eqn.primitive
        array = reshape(root, [math.prod(digit.extent for digit in group) for group in groups])
        array = array if converted is None else lax.convert_element_type(array, converted.params["new_dtype"])
        made = primitive.bind(array, **{**eqn.params, "axes": along})
        order = sorted(range(len(kept)), key=lambda k: left.index(kept[k]))
        return [reshape(transpose(made, order), eqn.outvars[0].aval.shape)]  # type: ignore[attr-defined]

    return Remade([view.root], run)


def _by_parts(eqn: jax_core.JaxprEqn, makers: Makers) -> Remade | None:
    """A reduction of a concatenation along its dimension as that of each part, where these are such reductions."""
    joined = makers.of(eqn.invars[0])
    dtype, name = eqn.outvars[0].aval.dtype, eqn.primitive.name  # type: ignore[attr-defined]
    if joined is None or not is_understood(joined, "concatenate") or is_rounded(name, dtype):
        return None
    along = joined.params["dimension"]
    several = [atom for atom in joined.invars if atom.aval.shape[along] > 1]  # type: ignore[attr-defined]
    before = [makers.of(rearrangement(atom, makers, stop=lambda _: False).root) for atom in several]
    is_alike = all(maker is not None and is_understood(maker, name) for maker in before)
    if along not in eqn.params["axes"] or not several or not is_alike:
        return None

    def run(*parts: Any) -> list[Any]:
        primitive: Any = eqn.primitive
        return [functools.reduce(REDUCTIONS[name], [primitive.bind(part, **eqn.params) for part in parts])]

    return Remade(joined.invars, run)


def _found(eqns: Sequence[jax_core.JaxprEqn], results: Sequence[Atomic]) -> dict[jax_core.JaxprEqn, Remade]:
    """The reductions that are to be made in another shape."""
    roots: dict[Any, Any] = {}
    for eqn in eqns:
        if is_reshape(eqn):
            roots[eqn.outvars[0]] = roots.get(eqn.invars[0], eqn.invars[0])
    reductions = [eqn for eqn in eqns if is_understood(eqn, *REDUCTIONS) and eqn.invars[0] in roots]
    if not reductions:
        return {}
    read = {
        (roots.get(var, var), var.aval.shape)
        for eqn in eqns
        if not is_reshape(eqn)
        for var in variables(eqn.invars)
        if hasattr(var.aval, "shape")
    }
    as_read: dict[Any, set[tuple[int, ...]]] = {var: {var.aval.shape} for var in variables(results)}
    for eqn in eqns:
        for var in variables(eqn.invars):
            made: Any = eqn.outvars[0] if is_reshape(eqn) else var
            as_read.setdefault(var, set()).add(getattr(made.aval, "shape", ()))
    found = {}
    for eqn in reductions:
        root: Any = roots[eqn.invars[0]]  # type: ignore[index]
        shape: Any = eqn.invars[0].aval.shape  # type: ignore[attr-defined]
        axes = reduces_along(eqn, root.aval.shape, shape) if root.aval.shape != shape else None
        if axes is None:
            continue
        left = tuple(n for d, n in enumerate(root.aval.shape) if d not in axes)
        if (root, root.aval.shape) in read or as_read.get(eqn.outvars[0], set()) == {left}:
            found[eqn] = _reduced(eqn, root, axes)
    return found


def reduce_in_shape(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr whose reductions are of arrays in the shapes that these have, in the bodies of loops as well."""
    eqns = closed.jaxpr.eqns
    makers = Makers(eqns)
    reductions = [eqn for eqn in eqns if is_understood(eqn, *REDUCTIONS)]
    lying = {eqn: own for eqn in reductions if (own := _as_it_lies(eqn, makers)) is not None}
    made = with_remade(closed, _found(eqns, closed.jaxpr.outvars) | lying, reduce_in_shape)
    if not any(is_understood(eqn, "concatenate") for eqn in made.jaxpr.eqns):
        return made
    makers = Makers(made.jaxpr.eqns)
    reductions = [eqn for eqn in made.jaxpr.eqns if is_understood(eqn, *REDUCTIONS)]
    parts = {eqn: own for eqn in reductions if (own := _by_parts(eqn, makers)) is not None}
    return with_remade(made, parts, lambda body: body) if parts else made
