"""Slices of slices, of parts of what is joined, and of rearranged arrays."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

from lowering.jaxprs.slice_roots import SLICES
from tests.patterns.pattern import Drawn, Pattern, Program

# --- slices of slices ----------------------------------------------------------------------------------------------

EXTENTS = (0, 1, 2, 5, 7)


def ends(draw: Any, extent: int) -> tuple[int, int, int]:
    """Where a slice of a dimension starts, ends, and its stride; empty ones too."""
    low, high = sorted((draw(st.integers(0, extent)), draw(st.integers(0, extent))))
    return low, high, draw(st.integers(1, 3))


@st.composite
def slices_of_slices(draw: Any) -> Program:
    """A function of two arrays that slices, joins and reverses what it has in turn."""
    rank, kind = draw(st.integers(1, 2)), draw(st.sampled_from((np.float32, jnp.bfloat16, np.int8, np.uint8, bool)))
    shapes = [tuple(draw(st.sampled_from(EXTENTS)) for _ in range(rank)) for _ in range(2)]
    count, looped = draw(st.integers(1, 5)), draw(st.booleans())
    arrays = [np.arange(np.prod(shape)).reshape(shape).astype(kind) for shape in shapes]
    steps: list[tuple[str, Any, Any]] = []
    for _ in range(count):
        which = draw(st.sampled_from(range(len(shapes))))
        shape = shapes[-1] if draw(st.booleans()) else shapes[which]
        at = len(shapes) - 1 if shape is shapes[-1] else which
        axis = draw(st.integers(0, rank - 1))
        if draw(st.integers(0, 3)):
            own = [ends(draw, n) for n in shape]
            steps.append(("slice", at, own))
            shapes.append(tuple(-(-(b - a) // s) for a, b, s in own))
        else:
            alike = [k for k, s in enumerate(shapes) if s[:axis] + s[axis + 1 :] == shape[:axis] + shape[axis + 1 :]]
            parts = [draw(st.sampled_from(alike)) for _ in range(2)]
            parts.insert(draw(st.integers(0, 2)), at)
            steps.append(("join", parts, axis))
            extent = sum(shapes[k][axis] for k in parts)
            shapes.append((*shape[:axis], extent, *shape[axis + 1 :]))

    def function(*given: Any) -> Any:
        values = list(map(jnp.asarray, given))
        for name, which, how in steps:
            if name == "slice":
                values.append(lax.slice(values[which], *zip(*how, strict=True)))
            else:
                values.append(lax.concatenate([values[k] for k in which], how))
        return values[2:]

    def in_a_loop(*given: Any) -> Any:
        return lax.scan(lambda held, _: (held, function(*held)), given, length=2)[1]

    return Program(in_a_loop if looped else function, tuple(arrays))


# --- slice_roots ---------------------------------------------------------------------------------------------------

SHAPES = ((), (1,), (7,), (2, 3), (3, 1, 2), (2, 3, 4), (5, 6), (0, 3), (200,))


@st.composite
def _rearranged(draw: Any, shape: tuple[int, ...]) -> Any:
    """Reshapes, transposes and broadcasts, and the shape after them."""
    steps = []
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(("transpose", "reshape", "ones", "repeat")))
        if kind == "transpose":
            order = tuple(draw(st.permutations(range(len(shape)))))
            steps.append(functools.partial(lax.transpose, permutation=order))
            shape = tuple(shape[d] for d in order)
        elif kind == "repeat":
            shape = (*shape[:1], 2, *shape[1:])
            places = tuple(d for d in range(len(shape)) if d != min(1, len(shape) - 1))
            steps.append(functools.partial(lax.broadcast_in_dim, shape=shape, broadcast_dimensions=places))
        else:
            size = math.prod(shape)
            cuts = [n for n in (1, 2, 3, 4, 6, 12) if size % n == 0]
            first = draw(st.sampled_from(cuts))
            own = [first, size // first] if kind == "reshape" else list(shape)
            own.insert(draw(st.integers(0, len(own))), 1)
            shape = tuple(own)
            steps.append(functools.partial(lax.reshape, new_sizes=shape))
    return steps, shape


@st.composite
def _stages(draw: Any, shape: tuple[int, ...], place: Any) -> Any:
    """A function that rearranges an array and slices it, or puts a slice there; the result's shape; its arguments."""
    steps, made = draw(_rearranged(shape))
    sizes = tuple(n if draw(st.booleans()) else draw(st.integers(0 if n < 2 else 1, n)) for n in made)
    starts = [np.asarray(draw(st.integers(-3, 9)) % 256).astype(place) for _ in made]
    name, literal = draw(st.sampled_from(("slice", *SLICES))), draw(st.booleans())
    strides = [draw(st.integers(1, 2)) for _ in made]
    update = (np.arange(math.prod(sizes)) - 99).reshape(sizes).astype(np.int8)  # which wraps
    begins = [min(abs(int(a)), n - size) for a, n, size in zip(starts, made, sizes, strict=True)]
    stops = [begin + size for begin, size in zip(begins, sizes, strict=True)]

    def function(array: Any, update: Any, *places: Any) -> Any:
        for own in steps:
            array = own(array)
        where: Any = starts if literal else places
        if name == "slice":
            return lax.slice(array, begins, stops, strides)
        if name == "dynamic_slice":
            return lax.dynamic_slice(array, where, sizes, allow_negative_indices=False)
        if array.size and max(array.shape, default=0) > np.iinfo(place).max:
            # XLA limits an update's place in the place's dtype: beyond its end it writes where nothing of the array is.
            where = [own.astype(np.int32) for own in where]
        return lax.dynamic_update_slice(array, update, where, allow_negative_indices=False)

    taken = tuple(-(-n // step) for n, step in zip(sizes, strides, strict=True)) if name == "slice" else sizes
    return function, made if name == "dynamic_update_slice" else taken, (update, *starts)


@st.composite
def slices_of_rearranged(draw: Any, kinds: Any = (np.float32, jnp.bfloat16, np.int8, bool)) -> Program:
    """A function that slices rearranged arrays, or puts slices there, up to three times."""
    shape, kind = draw(st.sampled_from(SHAPES)), draw(st.sampled_from(kinds))
    place, looped = np.dtype(draw(st.sampled_from((np.int8, np.uint8, np.int32)))), draw(st.booleans())
    array = np.arange(math.prod(shape)).reshape(shape).astype(kind)
    stages = []
    for _ in range(draw(st.integers(1, 3))):
        own, shape, (update, *starts) = draw(_stages(shape, place))
        stages.append((own, (update.astype(kind), *starts)))

    def function(array: Any, *given: Any) -> Any:
        left = iter(given)
        for own, arguments in stages:
            array = own(array, *(next(left) for _ in arguments))
        return array

    def in_a_loop(*given: Any) -> Any:
        return lax.fori_loop(0, 2, lambda k, held: (held[0], function(*given)), (0, function(*given)))

    arguments = (array, *(own for _, arguments in stages for own in arguments))
    return Program(in_a_loop if looped else function, arguments)


PATTERN = Pattern(
    "slices",
    "A slice at a place of a rearranged array is one of the array itself, and what is taken alone is rearranged.",
    {
        "slices_of_slices": Drawn(
            slices_of_slices(),
            (),
            quick=40,
            slow=300,
            slopes=3,
            floats=slices_of_slices().map(Program.in_floats),
        ),
        "slices_of_rearranged": Drawn(
            slices_of_rearranged(),
            ("as_one_slice",),
            quick=50,
            slow=300,
            slopes=3,
            floats=slices_of_rearranged(kinds=(np.float32,)),
            moves_no_more=False,
        ),
    },
    ("npbench/vadv/trace_of_grad",),
)
