"""Unmap: a jaxpr that does the same at every position of some dimensions, as a jaxpr of one position.

It is the inverse of `vmap`. In comes what a vertex computes of blocks: the product of a block of rows and a block of
columns, a convolution of a patch of an image, a function of a stretch of elements. Out comes what it computes of a
row and a column, a window, an element; and of each dimension of the inputs and results, along which of the *axes*
it moves, the dimensions that are gone.

Dimensions that equations take through unchanged are one class (union and find). A class is an axis where every result
has it once, and nothing reduces it or looks across it. The spatial dimensions of a convolution's image are
windows: along an axis of the result they move by the stride, and what is left is as long as the kernel; slices of one
array are windows as well, of its elements up to the last slice. What is not understood keeps all of its dimensions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, bind, evaluate, variables
from codelet.jaxprs.primitives import CUSTOM, ELEMENTWISE, POOLINGS, REDUCTIONS, is_understood
from codelet.jaxprs.rebuild import Builder, inline, rebuild, struct
from lowering.arrays import reshape
from lowering.jaxprs.dimension_classes import Classes, Spot, WindowSteps, extent_of, spots_of
from lowering.jaxprs.dimension_rules import (
    equation_left,
    left_by_element,
    left_moved,
    left_reduced,
    link_by_element,
    link_moved,
    link_ones,
    link_reduced,
)
from lowering.jaxprs.left_dimensions import Left, Place
from lowering.jaxprs.slices_unmapped import keep_slice, late_slice, link_late, link_slice, sliced
from lowering.jaxprs.traced_once import parameters_of, traced_once

# --- what comes out ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Unmapped:
    """A jaxpr of one position along some axes.

    Attributes:
        extents: of the axes.
        inputs: what becomes of each dimension of each input.
        outputs: the same of the results, where no dimension moves that is not gone.
        jaxpr: of what is left.
        convolves: whether windows of an input move.
        has_rules: whether the jaxpr has derivative rules of its own, which are left out of what is left.
    """

    extents: tuple[int, ...]
    inputs: tuple[tuple[Place, ...], ...]
    outputs: tuple[tuple[Place, ...], ...]
    jaxpr: jax_core.ClosedJaxpr
    convolves: bool
    has_rules: bool


# --- what equations take through --------------------------------------------------------------------------


def _link_reduced(classes: Classes, eqn: jax_core.JaxprEqn) -> None:
    own = spots_of(eqn.invars[0])
    classes.keep([own[int(axis)] for axis in eqn.params["axes"]])
    link_reduced(classes, eqn)


def _line_of(eqn: jax_core.JaxprEqn) -> int:
    """The dimension along which an equation orders elements."""
    return int(eqn.params["dimension" if eqn.primitive.name == "sort" else "axis"])


def _link_ordered(classes: Classes, eqn: jax_core.JaxprEqn) -> None:
    along, first = _line_of(eqn), spots_of(eqn.outvars[0])
    for own in map(spots_of, (*eqn.invars, *eqn.outvars)):
        classes.keep([own[along]])
        for d, (spot, made) in enumerate(zip(own, first, strict=True)):
            if d != along:
                classes.unite(spot, made)


def _link_product(classes: Classes, eqn: jax_core.JaxprEqn) -> None:
    (left_inner, right_inner), (left_batch, right_batch) = eqn.params["dimension_numbers"]
    left, right = map(spots_of, eqn.invars)
    made = iter(spots_of(eqn.outvars[0]))
    for a, b in zip(left_batch, right_batch, strict=True):
        classes.unite(left[a], right[b])
        classes.unite(left[a], next(made))
    for own, gone in ((left, (*left_inner, *left_batch)), (right, (*right_inner, *right_batch))):
        for spot in (spot for d, spot in enumerate(own) if d not in gone):
            classes.unite(spot, next(made))
    classes.keep([*(left[d] for d in left_inner), *(right[d] for d in right_inner)])


def _link_convolution(classes: Classes, eqn: jax_core.JaxprEqn) -> None:
    params = eqn.params
    left, right, result = params["dimension_numbers"]
    image, kernel, made = (spots_of(atom) for atom in (*eqn.invars, *eqn.outvars))
    classes.unite(image[left[0]], made[result[0]])
    classes.unite(kernel[right[0]], made[result[1]])
    classes.keep([image[left[1]], *(kernel[d] for d in right[1:])])
    sizes = eqn.invars[1].aval.shape  # type: ignore[attr-defined]
    for a, b, c, stride, spread in zip(
        left[2:], right[2:], result[2:], params["window_strides"], params["rhs_dilation"], strict=True
    ):
        classes.move(image[a], WindowSteps(made[c], stride, sizes[b], spread))


def _beside(eqn: jax_core.JaxprEqn) -> Iterator[tuple[int, int]]:
    """The dimensions of the indices of a gather, but for the last, and which of the result they are."""
    offset = set(map(int, eqn.params["dimension_numbers"].offset_dims))
    made = (d for d in range(len(eqn.outvars[0].aval.shape)) if d not in offset)  # type: ignore[attr-defined]
    return enumerate(made)


def _link_gather(classes: Classes, eqn: jax_core.JaxprEqn) -> None:
    numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    operand, indices, made = (spots_of(atom) for atom in (*eqn.invars, *eqn.outvars))
    batch = list(map(int, numbers.operand_batching_dims))
    for k, d in _beside(eqn):
        classes.unite(indices[k], made[d])
    for d, k in zip(batch, numbers.start_indices_batching_dims, strict=True):
        classes.unite(operand[d], indices[int(k)])
    gone, indexed = {*map(int, numbers.collapsed_slice_dims), *batch}, set(map(int, numbers.start_index_map))
    in_slices = (d for d in range(len(operand)) if d not in gone)
    for d, k in zip(in_slices, sorted(map(int, numbers.offset_dims)), strict=True):
        if d not in indexed and sizes[d] == eqn.invars[0].aval.shape[d]:  # type: ignore[attr-defined]
            classes.unite(operand[d], made[k])
        else:
            classes.keep([operand[d], made[k]])
    classes.keep([indices[-1], *(operand[d] for d in map(int, numbers.collapsed_slice_dims))])


def _link_pooling(classes: Classes, eqn: jax_core.JaxprEqn) -> None:
    params = eqn.params
    sizes = zip(params["window_dimensions"], params["window_strides"], params["window_dilation"], strict=True)
    for spot, made, (length, stride, spread) in zip(
        spots_of(eqn.invars[0]), spots_of(eqn.outvars[0]), sizes, strict=True
    ):
        if length == stride == 1:
            classes.unite(spot, made)
        else:
            classes.move(spot, WindowSteps(made, stride, length, spread))


_ALONG = {"concatenate": "dimension", "split": "axis", "stack": "axis"}
"""Of arrays that are put together, or taken apart: the parameter that says along which dimension."""


def _whole(eqn: jax_core.JaxprEqn) -> Atomic:
    """The array that parts are put together to, or taken of."""
    return eqn.invars[0] if eqn.primitive.name == "split" else eqn.outvars[0]


def _link_parts(classes: Classes, eqn: jax_core.JaxprEqn) -> None:
    along, whole = int(eqn.params[_ALONG[eqn.primitive.name]]), spots_of(_whole(eqn))
    classes.keep([whole[along]])
    for part in map(spots_of, eqn.outvars if eqn.primitive.name == "split" else eqn.invars):
        if eqn.primitive.name == "stack":  # its parts have no such dimension
            part.insert(along, whole[along])
        classes.keep([part[along]])
        for d, spot in enumerate(part):
            if d != along:
                classes.unite(spot, whole[d])


def _link_padded(classes: Classes, eqn: jax_core.JaxprEqn) -> None:
    pairs = zip(spots_of(eqn.invars[0]), spots_of(eqn.outvars[0]), strict=True)
    for (spot, result), widths in zip(pairs, eqn.params["padding_config"], strict=True):
        if any(widths):
            classes.keep([spot, result])
        else:
            classes.unite(spot, result)


def _link_unknown(classes: Classes, eqn: jax_core.JaxprEqn) -> None:
    classes.keep([spot for atom in (*eqn.invars, *eqn.outvars) for spot in spots_of(atom)])


# --- what is left of them ---------------------------------------------------------------------------------


def _as_it_is(left: Left, eqn: jax_core.JaxprEqn, operands: Sequence[Any]) -> list[Any]:
    return bind(eqn, operands)


def _ordered(left: Left, eqn: jax_core.JaxprEqn, operands: Sequence[Any]) -> list[Any]:
    (along,) = left.numbers(eqn.invars[0], (_line_of(eqn),))
    name = "dimension" if eqn.primitive.name == "sort" else "axis"
    return bind(eqn.replace(params={**eqn.params, name: along}), operands)


def _dot(eqn: jax_core.JaxprEqn, operands: Sequence[Any], inner: Any, batch: Any) -> list[Any]:
    """The product of what is left of operands, as precise as an equation says."""
    first, second = operands
    precision, kind = eqn.params["precision"], eqn.params["preferred_element_type"]
    return [lax.dot_general(first, second, (inner, batch), precision=precision, preferred_element_type=kind)]


def _product(left: Left, eqn: jax_core.JaxprEqn, operands: Sequence[Any]) -> list[Any]:
    numbers = (tuple(map(left.numbers, eqn.invars, own)) for own in eqn.params["dimension_numbers"])
    return _dot(eqn, operands, *numbers)


def _inner_product(left: Left, eqn: jax_core.JaxprEqn, operands: Sequence[Any]) -> list[Any]:
    specs = eqn.params["dimension_numbers"][:2]
    return _dot(
        eqn, operands, tuple(left.numbers(a, spec[1:]) for a, spec in zip(eqn.invars, specs, strict=True)), ((), ())
    )


def _gathered(left: Left, eqn: jax_core.JaxprEqn, operands: Sequence[Any]) -> list[Any]:
    numbers, (operand, indices), (made,) = eqn.params["dimension_numbers"], eqn.invars, eqn.outvars
    own = lax.GatherDimensionNumbers(
        left.numbers(made, numbers.offset_dims),
        left.numbers(operand, numbers.collapsed_slice_dims),
        left.numbers(operand, numbers.start_index_map),
        left.numbers(operand, numbers.operand_batching_dims),
        left.numbers(indices, numbers.start_indices_batching_dims),
    )
    pairs = zip(eqn.params["slice_sizes"], left.places(operand), strict=True)
    sizes = tuple(min(size, place.left) for size, place in pairs if place.left is not None)  # less along windows
    return [eqn.primitive.bind(*operands, **{**eqn.params, "dimension_numbers": own, "slice_sizes": sizes})]


def _pooled(left: Left, eqn: jax_core.JaxprEqn, operands: Sequence[Any]) -> list[Any]:
    """One window, of which no more is left than its elements."""
    (array,) = operands
    if not array.ndim:
        return [array]
    plain = (1,) * array.ndim
    kept = [d for d, place in enumerate(left.places(eqn.invars[0])) if place.left is not None]
    params = {
        **eqn.params,
        "window_dimensions": tuple(eqn.params["window_dimensions"][d] for d in kept),
        "window_strides": plain,
        "window_dilation": plain,
        "base_dilation": plain,
        "padding": ((0, 0),) * array.ndim,
    }
    return [reshape(own, left.shape(eqn.outvars[0])) for own in bind(eqn.replace(params=params), operands)]


def _padded(left: Left, eqn: jax_core.JaxprEqn, operands: Sequence[Any]) -> list[Any]:
    array, value = operands
    places = left.places(eqn.invars[0])
    config = [own for own, place in zip(eqn.params["padding_config"], places, strict=True) if place.left is not None]
    return [lax.pad(array, value, config)]


def _in_parts(left: Left, eqn: jax_core.JaxprEqn, operands: Sequence[Any]) -> list[Any]:
    name = _ALONG[eqn.primitive.name]
    (along,) = left.numbers(_whole(eqn), (eqn.params[name],))
    return bind(eqn.replace(params={**eqn.params, name: along}), operands)


class _UnmapRule(NamedTuple):
    """Of equations: which dimensions they take through, and what is left of them."""

    link: Any
    run: Any


_UNKNOWN = _UnmapRule(_link_unknown, _as_it_is)

_RULES = (
    ((*ELEMENTWISE, "threefry2x32", "bitcast_convert_type"), _UnmapRule(link_by_element, left_by_element)),
    (tuple(REDUCTIONS), _UnmapRule(_link_reduced, left_reduced)),
    (("sort", "top_k"), _UnmapRule(_link_ordered, _ordered)),
    (("transpose", "reshape", "squeeze", "broadcast_in_dim"), _UnmapRule(link_moved, left_moved)),
    (("dot_general",), _UnmapRule(_link_product, _product)),
    (("gather",), _UnmapRule(_link_gather, _gathered)),
    (("conv_general_dilated",), _UnmapRule(_link_convolution, _inner_product)),
    (POOLINGS, _UnmapRule(_link_pooling, _pooled)),
    (("slice",), _UnmapRule(link_slice, sliced)),
    (("pad",), _UnmapRule(_link_padded, _padded)),
    (tuple(_ALONG), _UnmapRule(_link_parts, _in_parts)),
    (("dynamic_slice", "dynamic_update_slice"), _UnmapRule(link_late, late_slice)),
)


def _rule(eqn: jax_core.JaxprEqn) -> _UnmapRule:
    """What is known of an equation."""
    if eqn.primitive.name == "reshape" and eqn.params["dimensions"] is not None:
        return _UNKNOWN  # in another order
    if eqn.primitive.name == "bitcast_convert_type" and eqn.invars[0].aval.shape != eqn.outvars[0].aval.shape:  # type: ignore[attr-defined]
        return _UNKNOWN  # of numbers of another width
    if any(isinstance(atom, jax_core.Literal) and atom.aval.shape for atom in eqn.invars):  # type: ignore[attr-defined]
        return _UNKNOWN
    return next((rule for names, rule in _RULES if is_understood(eqn, *names)), _UNKNOWN)


# --- all of it --------------------------------------------------------------------------------------------


def without_rules(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr without calls, functions with derivative rules among them."""

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> Sequence[Atomic]:
        if not is_understood(eqn, *CUSTOM):
            return builder.equation(eqn, operands)
        return builder.inlined(without_rules(eqn.params["call_jaxpr"]), operands)

    closed = inline(closed)
    return rebuild(closed, run) if any(eqn.primitive.name in CUSTOM for eqn in closed.jaxpr.eqns) else closed


_LARGEST = 1 << 16
"""A constant of more elements is not looked at."""


def _number(value: Any) -> np.ndarray | None:
    """The number that all elements of a constant are; None where they differ, or nobody looks at so many."""
    if isinstance(value, Tracer) or not np.shape(value) or not 1 <= np.size(value) <= _LARGEST:
        return None
    array = np.asarray(value)
    return array.reshape(-1)[0] if (array == array.reshape(-1)[0]).all() else None


_Links = Mapping[Callable[..., None], Callable[..., None]]
"""Links in the place of others."""

_OTHER_LINKS: Sequence[_Links] = ({link_slice: keep_slice}, {link_moved: link_ones})
"""What is tried where nothing is found: slices keep the dimensions of which they are parts, and are no windows;
dimensions of one element are told apart, too."""


def _find(jaxpr: jax_core.Jaxpr, variables: Sequence[Any], consts: Sequence[Any], others: _Links) -> Left | None:
    """What becomes of the dimensions of all variables of a jaxpr; None where none is gone, or as no place tells."""
    classes = Classes()
    for var, value in zip(jaxpr.constvars, consts, strict=True):
        classes.keep(spots_of(var) if _number(value) is None else [])
    for eqn in jaxpr.eqns:
        link = _rule(eqn).link
        others.get(link, link)(classes, eqn)
    roots = {var: list(map(classes.root, spots_of(var))) for var in variables}
    windows, kept = classes.windows, classes.kept
    # Along two dimensions of one variable at once only its diagonal would be read.
    kept.update(root for own in roots.values() for root in own if own.count(root) > 1)
    results = [roots[var] for var in jaxpr.outvars]
    shared = set(results[0]).intersection(*results[1:]) - kept - windows.keys()
    axes: dict[Spot, int | None] = {root: k for k, root in enumerate(r for r in results[0] if r in shared)}
    # What is of extent 1 and nowhere in the results was put there for an equation to have it.
    single = {root for own in roots.values() for root in own if extent_of(root) == 1}
    axes.update(dict.fromkeys(single - kept.union(*results) - windows.keys()))
    if any(len(own) > 1 for own in windows.values()) or windows.keys() & kept.union(*results):
        return None
    convolved = [eqn.outvars[0] for eqn in jaxpr.eqns if _rule(eqn).run is _inner_product]
    moved = {root for var in convolved for root in roots[var]} | {w.result for own in windows.values() for w in own}
    if not moved <= axes.keys() or not any(axis is not None for axis in axes.values()):
        return None
    return Left(classes, axes, {root: window for root, (window,) in windows.items()})


def _left_of(closed: jax_core.ClosedJaxpr, left: Left) -> jax_core.ClosedJaxpr:
    """What is left of a jaxpr without constants."""

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> Sequence[Atomic]:
        rule = _rule(eqn).run
        own = equation_left(builder, left, eqn, operands) if rule is left_by_element else None
        if own is not None:
            return own
        atoms = variables([*eqn.invars, *eqn.outvars])
        key = rule, parameters_of(eqn), tuple((atom.aval.shape, left.places(atom)) for atom in atoms)
        return traced_once(builder, key, lambda *given: rule(left, eqn, given), operands)

    builder = Builder([jax_core.Var(var.aval.update(shape=tuple(left.shape(var)))) for var in closed.jaxpr.invars])  # type: ignore[attr-defined]
    return builder.closed(builder.inlined(closed, builder.invars, run))


def _left_with_constants(closed: jax_core.ClosedJaxpr, left: Left) -> jax_core.ClosedJaxpr:
    """What is left of a jaxpr whose constants are each one number, along the dimensions that are gone."""
    jaxpr = closed.jaxpr
    kinds = [struct(var).update(shape=tuple(left.shape(var))) for var in jaxpr.invars]
    run = lambda eqn, operands: _rule(eqn).run(left, eqn, operands)  # noqa: E731
    numbers = zip(jaxpr.constvars, closed.consts, map(_number, closed.consts), strict=True)
    consts = [value if own is None else np.full(left.shape(var), own) for var, value, own in numbers]
    within = jax_core.ClosedJaxpr(jaxpr, consts)
    return jax.make_jaxpr(lambda *inputs: evaluate(within, inputs, run))(*kinds)


@functools.lru_cache(maxsize=2048)
def unmap(closed: jax_core.ClosedJaxpr) -> Unmapped | None:
    """A jaxpr of one position along as many axes as there are; None where there are none, or it cannot be told.

    >>> import jax, jax.numpy as jnp
    >>> block = jax.make_jaxpr(lambda a, b: a @ b)(jnp.ones((4, 3)), jnp.ones((3, 5)))
    >>> found = unmap(block)
    >>> found.extents, [var.aval.shape for var in found.jaxpr.jaxpr.invars]
    ((4, 5), [(3,), (3,)])
    """
    plain = without_rules(closed)
    jaxpr = plain.jaxpr
    variables = [*jaxpr.invars, *jaxpr.constvars, *(var for eqn in jaxpr.eqns for var in eqn.outvars)]
    known = not jaxpr.effects and all(0 not in getattr(var.aval, "shape", (0,)) for var in variables)
    if not known or not jaxpr.outvars or any(isinstance(atom, jax_core.Literal) for atom in jaxpr.outvars):
        return None
    links = {_rule(eqn).link for eqn in jaxpr.eqns}
    tried = ({}, *(own for own in _OTHER_LINKS if not links.isdisjoint(own)))
    left = next((found for own in tried if (found := _find(jaxpr, variables, plain.consts, own)) is not None), None)
    if left is None:
        return None
    plainly = not jaxpr.constvars and not any(
        isinstance(v, jax_core.DropVar) for eqn in jaxpr.eqns for v in eqn.outvars
    )
    made = _left_of(plain, left) if plainly else _left_with_constants(plain, left)
    first = jaxpr.outvars[0]
    extents = [n for n, place in zip(first.aval.shape, left.places(first), strict=True) if place.left is None]  # type: ignore[attr-defined]
    return Unmapped(
        tuple(extents),
        tuple(map(left.places, jaxpr.invars)),
        tuple(map(left.places, jaxpr.outvars)),
        made,
        bool(left.windows),
        any(eqn.primitive.name in CUSTOM for eqn in inline(closed).jaxpr.eqns),
    )
