"""Maps, reshapes, transposes and pads around one another, and dimensions of one element."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import inner_jaxprs, widths_of
from tests.patterns.pattern import Closed, Drawn, Pattern, Program

# --- maps ----------------------------------------------------------------------------------------------------------


def with_repeats(function: Any, *arguments: Any) -> Closed:
    """The jaxpr of a function without its broadcasts to shapes of as many dimensions, which equations repeat."""
    closed = jax.make_jaxpr(function)(*arguments)
    spread, kept = {}, []
    for eqn in closed.jaxpr.eqns:
        if eqn.primitive.name == "broadcast_in_dim" and eqn.invars[0].aval.ndim == eqn.outvars[0].aval.ndim:
            spread[eqn.outvars[0]] = eqn.invars[0]
        else:
            own = [atom if isinstance(atom, jax_core.Literal) else spread.get(atom, atom) for atom in eqn.invars]
            kept.append(eqn.replace(invars=own))
    return jax_core.ClosedJaxpr(closed.jaxpr.replace(eqns=kept), closed.consts)


@st.composite
def maps_among_moves(draw: Any, kinds: Any = None) -> Program:
    """A function that maps, reshapes and transposes two arrays in turn, in a loop or not.

    Where two elements are as great, the slope of both counts a half, in every form.
    """
    shape = draw(st.sampled_from([(2, 6), (3, 4), (12,), (7, 1), (1, 1), (0, 3), (2, 3, 2)]))
    kind = draw(st.sampled_from(kinds or (np.float32, jnp.bfloat16, np.int8, np.uint8, np.int32, np.bool_)))
    steps: list[tuple[str, int, Any]] = []
    shapes = [shape, shape]
    for _ in range(draw(st.integers(1, 8))):
        at = draw(st.integers(0, len(shapes) - 1))
        own = shapes[at]
        name = draw(
            st.sampled_from(("two", "two", "choice", "one", "reshape", "reshape", "transpose", "greatest", "less"))
        )
        if name == "reshape":
            size = math.prod(own)
            to = draw(st.sampled_from([(size,), (1, size), (size, 1), *([(2, size // 2)] if size % 2 == 0 else [])]))
            steps.append((name, at, to))
            shapes.append(to)
        elif name == "transpose":
            order = tuple(draw(st.permutations(range(len(own)))))
            steps.append((name, at, order))
            shapes.append(tuple(own[d] for d in order))
        elif name in ("greatest", "less"):
            axes = tuple(d for d in range(len(own)) if draw(st.booleans()))
            steps.append((name, at, axes))
            shapes.append(own if name == "less" else tuple(n for d, n in enumerate(own) if d not in axes))
        else:
            alike = [k for k, shape in enumerate(shapes) if shape == own]
            steps.append((name, at, draw(st.sampled_from(alike))))
            shapes.append(own)
    looped = draw(st.booleans())

    def apply(values: Any, name: str, at: int, how: Any) -> Any:
        a = values[at]
        match name:
            case "reshape":
                return a.reshape(how)
            case "transpose":
                return a.transpose(how)
            case "two":
                return lax.max(a, values[how])
            case "choice":
                return lax.select_n(lax.lt(a, values[how]), values[how], a)
            case "one":
                return lax.convert_element_type(lax.ne(a, lax.full_like(a, 1)), a.dtype)
            case "less":  # than the greatest of its row
                return lax.convert_element_type(a < a.max(how, keepdims=True, initial=0), a.dtype)
        return a.max(how, initial=0)

    def function(*given: Any) -> Any:
        values = list(map(jnp.asarray, given))
        for own in steps:
            values.append(apply(values, *own))
        return values[2:]

    def in_a_loop(*given: Any) -> Any:
        return lax.scan(lambda held, _: (held, function(*held)), given, length=2)[1]

    arrays = tuple((np.arange(math.prod(shape)).reshape(shape) % n).astype(kind) for n in (5, 7))
    if looped:
        return Program(in_a_loop, arrays)
    repeated = with_repeats(function, *arrays) if draw(st.booleans()) else None
    return Program(jax_core.jaxpr_as_fun(repeated) if repeated else function, arrays)


# --- moves ---------------------------------------------------------------------------------------------------------


@st.composite
def moves_in_a_row(draw: Any) -> Program:
    """A function that transposes and reshapes an array again and again, and reads all that comes of it."""
    moves = draw(st.lists(st.sampled_from(("transpose", "reshape")), min_size=1, max_size=6))
    seed = draw(st.integers(0, 99))

    def function(x: Any) -> Any:
        random, made = np.random.default_rng(seed), [x]
        for move in moves:
            own = made[-1]
            shape = tuple(random.permutation([2, 3, 4]).tolist())
            made.append(own.transpose(random.permutation(3).tolist()) if move == "transpose" else own.reshape(shape))
        return [own + 1 for own in made[1:]]

    return Program(function, (jnp.arange(24.0).reshape(2, 3, 4),))


def moves_are_one(closed: Closed, program: Program) -> None:
    """No array is moved twice in the same way, nor what was moved in the same way before."""
    makers = {eqn.outvars[0]: eqn.primitive.name for eqn in closed.jaxpr.eqns}
    done = set()
    for eqn in closed.jaxpr.eqns:
        if eqn.primitive.name in ("transpose", "reshape"):
            assert makers.get(eqn.invars[0]) != eqn.primitive.name
            own = eqn.invars[0], eqn.params.get("permutation"), eqn.outvars[0].aval.shape
            assert own not in done
            done.add(own)


@st.composite
def single_dimensions(draw: Any) -> Program:
    """A function that gives an array dimensions of one element, maps, slices and reduces it, and drops them."""
    shape = tuple(draw(st.lists(st.integers(2, 4), min_size=1, max_size=3)))
    places = sorted(draw(st.sets(st.integers(0, len(shape)), min_size=1, max_size=2)))
    kinds = ("map", "repeat", "turn", "sum", "slice", "row", "put", "sort")
    steps = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=4))
    looped, number = draw(st.booleans()), draw(st.integers(0, 9))

    def wide(x: Any) -> Any:
        x = jnp.expand_dims(x, [at + k for k, at in enumerate(places)])
        ones = [d for d, n in enumerate(x.shape) if n == 1]
        for step in steps:
            d = number % x.ndim
            match step:
                case "map":
                    x = jnp.sin(x) * 0.5 + x
                case "repeat":
                    x = lax.broadcast_in_dim(
                        lax.squeeze(x, [ones[0]]), x.shape, [k for k in range(x.ndim) if k != ones[0]]
                    )
                case "turn":
                    x = x.swapaxes(ones[0], d).swapaxes(ones[0], d)
                case "sum":
                    x = x - jnp.max(x, tuple({ones[-1], d}), keepdims=True)
                case "slice":
                    x = jnp.concatenate(
                        [lax.slice_in_dim(x, 1, x.shape[d], axis=d), lax.slice_in_dim(x, 0, 1, axis=d)], d
                    )
                case "row":
                    x = x + lax.dynamic_slice_in_dim(x, jnp.int32(jnp.sum(x) > 0), 1, d)
                case "put":
                    row = lax.slice_in_dim(x, 0, 1, axis=d) * 2
                    x = lax.dynamic_update_slice_in_dim(x, row, jnp.int32(jnp.sum(x) > 0), d)
                case "sort":
                    x = lax.sort(x, dimension=d)
        return lax.squeeze(x, ones)

    def function(x: Any) -> Any:
        return lax.fori_loop(0, 2, lambda _, own: wide(own), x) if looped else wide(x)

    return Program(function, (np.random.default_rng(number).normal(size=shape).astype(np.float32),))


# --- pad_in_common -------------------------------------------------------------------------------------------------

BELOW, ABOVE = (0, 1, 0), (1, 0, 0)


def padded(x: Any, *widths: Any, value: Any = 0.0) -> Any:
    """An array padded by widths below, above and between."""
    return lax.pad(x, jnp.asarray(value, x.dtype), widths)


def _moved(x: Any, moves: Any) -> Any:
    for kind, how in moves:
        if kind == "transpose":
            x = x.transpose(how)
        elif kind == "split":
            n = x.shape[how]
            outer = 2 if n % 2 == 0 else 1
            x = x.reshape(*x.shape[:how], outer, n // outer, *x.shape[how + 1 :])
        else:
            x = x.reshape(*x.shape[:how], -1, *x.shape[how + 2 :])
    return x


@st.composite
def pads_of_moved(draw: Any) -> Program:
    """Pads of what is made of an array by moves, with whether something else reads it."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    moves: list[tuple[str, Any]] = []
    rank = len(shape)
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["transpose", "split", "merge"]))
        if kind == "transpose":
            moves.append((kind, draw(st.permutations(range(rank)))))
        elif kind == "split":
            moves.append((kind, draw(st.integers(0, rank - 1))))
            rank += 1
        elif rank > 1:
            moves.append((kind, draw(st.integers(0, rank - 2))))
            rank -= 1
    sides = st.sampled_from([(0, 0, 0), (0, 0, 0), BELOW, ABOVE, (1, 2, 0), (0, 0, 1), (-1, 1, 0)])
    first = draw(st.lists(sides, min_size=rank, max_size=rank))
    each = [first]
    for _ in range(draw(st.integers(1, 2))):
        own = list(first)
        own[draw(st.integers(0, rank - 1))] = draw(sides)
        each.append(own)
    is_read = draw(st.booleans())
    kind, value = draw(st.sampled_from(["float32", "float32", "int32", "bool"])), draw(st.sampled_from([0, 0, 1]))

    def function(x: Any) -> Any:
        moved = _moved(jnp.sin(x).astype(kind), moves)
        pads = [padded(moved, *own, value=value) for own in each]
        return (*pads, moved) if is_read else tuple(pads)

    return Program(function, (np.random.default_rng(rank).normal(size=shape).astype(np.float32),))


@st.composite
def pads_in_common(draw: Any) -> Program:
    """Pads of a transposed array that are the same along one dimension, and differ along another."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=2, max_size=3)))
    order = draw(st.permutations(range(len(shape))))
    common, differs = draw(st.permutations(range(len(shape))))[:2]
    width = draw(st.sampled_from([BELOW, ABOVE, (1, 2, 0), (2, 1, 0)]))
    count, kind, value = draw(st.integers(2, 3)), draw(st.sampled_from(["float32", "int32"])), draw(st.integers(0, 1))
    merged = draw(st.booleans()) and len(shape) == 3

    def function(x: Any) -> Any:
        moved = jnp.sin(x).astype(kind).transpose(order)
        widths = [[(0, 0, 0)] * len(shape) for _ in range(count)]
        for k, own in enumerate(widths):
            own[common], own[differs] = width, (k, count - k, 0)
        if merged and 0 not in (common, differs):
            moved, widths = moved.reshape(moved.shape[0], *moved.shape[1:], 1), [[*own, (0, 0, 0)] for own in widths]
        return tuple(padded(moved, *own, value=value) for own in widths)

    return Program(function, (np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32),))


# --- pad_widely ----------------------------------------------------------------------------------------------------


@st.composite
def pads_at_places(draw: Any) -> Program:
    """An array that is computed, or moved, and padded to places of larger ones, negated now and then, and summed up."""
    rank = draw(st.integers(1, 3))
    shape = tuple(draw(st.lists(st.integers(0, 4), min_size=rank, max_size=rank)))
    room = draw(st.integers(1, 2))
    sides = st.sampled_from([(k, room - k, 0) for k in range(room + 1)] * 3 + [(-1, room + 1, 0)])
    places = draw(st.lists(st.lists(sides, min_size=rank, max_size=rank), min_size=2, max_size=6))
    if draw(st.integers(0, 3)) == 0:
        places[0] = [(low, high + 1, draw(st.integers(0, 1))) for low, high, _ in places[0]]
    signs = draw(st.lists(st.booleans(), min_size=len(places), max_size=len(places)))
    kind, value = draw(st.sampled_from(["float32", "float32", "int32"])), draw(st.sampled_from([0, 0, 1]))
    moved, looped = draw(st.booleans()), draw(st.booleans())

    def pads(x: Any) -> list[Any]:
        made = jnp.cos(x).astype(kind)
        made = made * made + made if not moved else made.reshape(-1)[::-1].reshape(shape)
        found: dict[Any, Any] = {}
        for own, is_negated in zip(places, signs, strict=True):
            one = padded(-made if is_negated else made, *own, value=value)
            found[one.shape] = found[one.shape] + one if one.shape in found else one
        return list(found.values())

    def function(x: Any) -> Any:
        if not looped:
            return pads(x)
        return lax.fori_loop(0, 2, lambda _, own: (own[0] * 2, pads(own[0])), (x, pads(x)))[1]

    return Program(function, (np.random.default_rng(rank).normal(size=shape).astype(np.float32),))


def padded_once(closed: Closed, program: Program) -> None:
    """What is computed by element is padded to two places of one shape at most."""
    for jaxpr in (closed.jaxpr, *(own for eqn in closed.jaxpr.eqns for own in inner_jaxprs(eqn))):
        makers = {var: eqn.primitive.name for eqn in jaxpr.eqns for var in eqn.outvars}
        places: dict[Any, set[Any]] = {}
        for eqn in jaxpr.eqns:
            if eqn.primitive.name == "pad" and makers.get(eqn.invars[0]) in ("add", "neg"):
                widths = widths_of(eqn)
                shape = eqn.outvars[0].aval.shape  # type: ignore[attr-defined]
                if all(min(own) >= 0 and own[2] == 0 for own in widths) and 0 not in shape:
                    places.setdefault((eqn.invars[0], shape), set()).add(widths)
        assert all(len(own) < 3 for own in places.values()), places


PATTERN = Pattern(
    "shapes",
    "Maps are made in the shape of most of what is around them, so that fewer reshapes, transposes and pads are left.",
    {
        "maps_among_moves": Drawn(
            maps_among_moves(),
            ("make_in_shape", "reshape_once", "broadcast_positions"),
            quick=20,
            slow=300,
            slopes=3,
            floats=maps_among_moves((np.float32,)),
            moves_no_more=False,
        ),
        "moves_in_a_row": Drawn(
            moves_in_a_row(),
            ("reshape_once",),
            quick=10,
            forms={"reshape_once": moves_are_one},
            moves_no_more=False,
        ),
        "single_dimensions": Drawn(
            single_dimensions(),
            ("drop_single_dimensions", "broadcast_positions"),
            quick=10,
            tolerance=1e-5,
            moves_no_more=False,
        ),
        "pads_in_common": Drawn(pads_in_common(), ("pad_in_common",), quick=10),
        "pads_of_moved": Drawn(pads_of_moved(), ("pad_in_common",), quick=65),
        "pads_at_places": Drawn(
            pads_at_places(), ("pad_widely",), quick=30, forms={"pad_widely": padded_once}, moves_no_more=False
        ),
    },
    ("adjoint_heat", "ops_embedding", "ops_pool/resnet50/last", "ops_reduce/var", "ops_norm/batch"),
)
