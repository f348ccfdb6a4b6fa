"""Sums of products, and products of parts: contractions, however their operands are laid out and cut."""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

from tests.patterns.pattern import Closed, Drawn, Pattern, Program
from tests.rearrangements import summed_products
from tests.same_jaxprs import equations, primitives


def whole_numbers(*shapes: Any) -> tuple[np.ndarray, ...]:
    """Arrays of small integers, whose products are summed alike in any order."""
    return tuple(np.random.default_rng(k).integers(-4, 5, shape).astype(np.float32) for k, shape in enumerate(shapes))


def of_product(drawn: Any) -> Program:
    """A function of two arrays as a program."""
    function, shapes = drawn
    return Program(function, whole_numbers(*shapes))


# --- dots, in memory's order ---------------------------------------------------------------------------------------

PRECISIONS = (lax.Precision.HIGH, lax.Precision.HIGHEST)


@st.composite
def dots_laid_out(draw: Any) -> Program:
    """A dot of matrices (summed, left) and (summed, right) of which each dimension is split, in drawn orders."""
    summed, left, right = (tuple(draw(st.lists(st.integers(1, 3), max_size=2))) for _ in range(3))
    of_left, of_right = (tuple(draw(st.permutations(range(len(summed) + len(own))))) for own in (left, right))
    pairs = [(of_left.index(k), of_right.index(k)) for k in draw(st.permutations(range(len(summed))))]
    numbers: Any = (tuple(tuple(pair[k] for pair in pairs) for k in (0, 1)), ((), ()))
    kept = [(side, d) for side, own in enumerate((of_left, of_right)) for d in own if d >= len(summed)]
    is_turned = draw(st.booleans())
    order = sorted(range(len(kept)), key=lambda k: (kept[k][0] ^ is_turned, kept[k]))

    def function(a: Any, b: Any) -> Any:
        a = a.reshape(*summed, *left).transpose(of_left)
        b = b.reshape(*summed, *right).transpose(of_right)
        return lax.dot_general(a, b, numbers, precision=PRECISIONS).transpose(order)

    shapes = [(math.prod(summed), math.prod(own)) for own in (left, right)]
    return Program(function, whole_numbers(*shapes), facts=is_turned)


def is_one_of_matrices(closed: Closed, program: Program) -> None:
    """However its operands are laid out, the dot is one of the matrices as they lie."""
    (summed, left), (_, right) = (own.shape for own in program.arguments)
    if summed == 1 or left == right == 1:
        return
    turn = -1 if program.facts and min(left, right) > 1 else 1
    (eqn,) = (eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name == "dot_general")
    numbers = tuple(tuple(tuple(map(int, own)) for own in pair) for pair in eqn.params["dimension_numbers"])
    assert "transpose" not in primitives(closed)
    assert [atom.aval.shape for atom in eqn.invars] == [(summed, n)[: 1 + (n > 1)] for n in (left, right)[::turn]]
    assert eqn.params["precision"] == PRECISIONS[::turn]
    assert numbers == (((0,), (0,)), ((), ()))


# --- sums of rows --------------------------------------------------------------------------------------------------


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Random numbers of a shape."""
    return np.random.default_rng(len(shape)).normal(size=shape).astype(dtype)


@st.composite
def sums_of_rows(draw: Any) -> Program:
    """A function of a matrix and a vector: sums of rows of products, cut, put together and summed again."""
    rows, row = draw(st.integers(1, 6)), draw(st.sampled_from([(4,), (2, 3), (1,), ()]))
    steps = draw(st.lists(st.sampled_from(["cut", "join", "groups", "reshape", "scale"]), max_size=5))
    numbers = [draw(st.integers(1, 3)) for _ in steps]
    is_summed, size = draw(st.booleans()), int(np.prod(row))

    def function(a: Any, b: Any) -> Any:
        value = a.reshape(rows, -1, *row) * b.reshape(1, -1, *[1] * len(row))
        value = value.sum(1) if is_summed else value.reshape(-1, *row)
        for step, number in zip(steps, numbers, strict=True):
            if step == "cut":
                value = value[min(number, len(value) - 1) :]
            elif step == "join":
                value = jnp.concatenate([value[:number], 2 * value, value[number:]])
            elif step == "groups" and len(value) % number == 0:
                value = value.reshape(-1, number, *row).sum(1)
            elif step == "reshape":
                value = value.reshape(1, len(value), 1, *row).reshape(len(value), *row)
            elif step == "scale":
                value = value * 1.5
        return value.sum(0)

    return Program(function, (normal(rows * 3 * size), normal(3)), name=", ".join(steps))


@st.composite
def partial_dots(draw: Any) -> Program:
    """Dots in chunks of what is summed, of which partial results are summed in another layout, or transposed."""
    chunks, summed, rows, columns = (draw(st.integers(1, 4)) for _ in range(4))
    order = tuple(draw(st.permutations(range(3))))
    halves, cut = draw(st.booleans()), draw(st.integers(1, 4))

    def function(a: Any, b: Any) -> Any:
        parts = jnp.einsum("pkm,pkn->pmn", a, b)  # sums over chunks are left
        turned = parts.transpose(order)
        axis = order.index(0)
        if not halves:
            return turned.sum(axis)
        first, last = lax.split(turned, (min(cut, chunks), chunks - min(cut, chunks)), axis)
        return first.sum(axis) + last.sum(axis)

    return Program(function, whole_numbers((chunks, summed, rows), (chunks, summed, columns)))


@st.composite
def parts_of_repeated(draw: Any) -> Program:
    """A product with parts of what is repeated, as the gradient of a sum of partial products has them."""
    times, rows, columns = draw(st.integers(2, 5)), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    order, cut = tuple(draw(st.permutations(range(3)))), draw(st.integers(1, 4))
    how, merged = draw(st.sampled_from(("slice", "split", "of both"))), draw(st.booleans())
    joined = draw(st.sampled_from(("", "", "of the same", "of others", "along others")))

    def function(a: Any, b: Any) -> Any:
        wide = lax.broadcast_in_dim(a, (times, rows, columns), (1, 2)).transpose(order)
        axis, first = order.index(0), min(cut, times - 1)
        if joined:
            more = lax.broadcast_in_dim(a + 1 if joined == "of others" else a, (cut, rows, columns), (1, 2))
            every = wide if joined == "along others" else more.transpose(order)
            along = order.index(1) if joined == "along others" else axis
            wide = lax.slice_in_dim(lax.concatenate([every, wide], along), 0, wide.shape[along], axis=along)
        parts = lax.split(wide, (first, times - first), axis)
        if how == "slice":
            parts = [lax.slice_in_dim(wide, first, times, axis=axis)]
        if how == "of both":
            kept = order.index(1)
            parts = [lax.slice_in_dim(own, 0, 1, axis=kept) for own in parts]
        own = [part.transpose([order.index(d) for d in range(3)]) for part in parts]
        if merged:
            own = [part.reshape(-1, columns) for part in own]
        return [jnp.einsum("...c,cn->...n", part, b) for part in own]

    return Program(function, whole_numbers((rows, columns), (columns, 3)), name=f"{how} of {times}")


# --- parts of products ---------------------------------------------------------------------------------------------


def _cuts(draw: Any, extent: int) -> list[tuple[int, int]]:
    """All of a dimension as stretches."""
    cuts = sorted(draw(st.sets(st.integers(1, extent - 1), max_size=3)))
    return list(itertools.pairwise([0, *cuts, extent]))


def updated(pieces: Any, shape: Any, starts: Any) -> Any:
    """Pieces written one after another to where they start."""
    out = jnp.zeros(shape)
    for piece, start in zip(pieces, starts, strict=True):
        out = lax.dynamic_update_slice(out, piece, start)
    return out


@st.composite
def products_side_by_side(draw: Any) -> Program:
    """Products of stretches of the left or right operand, put together in either way, perhaps in a drawn order."""
    extent, axis = draw(st.integers(2, 6)), draw(st.sampled_from([0, 1]))
    stretches = _cuts(draw, extent)
    order = draw(st.permutations(stretches)) if draw(st.booleans()) else stretches
    updates = draw(st.booleans())

    def function(a: Any, b: Any) -> Any:
        made = [a[i:j] @ b if axis == 0 else a @ b[:, i:j] for i, j in order]
        if not updates:
            return jnp.concatenate(made, axis)
        starts = [(i, 0) if axis == 0 else (0, i) for i, _ in order]
        return updated(made, (a.shape[0], b.shape[1]), starts)

    shapes = [(extent, 3), (3, 4)] if axis == 0 else [(4, 3), (3, extent)]
    return Program(function, whole_numbers(*shapes), facts=updates or order == stretches)


def is_one_product(closed: Closed, program: Program) -> None:
    """All parts are one product, where they are put together in their order."""
    assert sum(eqn.primitive.name == "dot_general" for eqn in equations(closed)) == 1 or not program.facts


PATTERN = Pattern(
    "products",
    "A sum of products, and products of all parts of a value, are one product of matrices as they lie in memory.",
    {
        "summed_products": Drawn(
            summed_products().map(of_product),
            ("contract", "dots_in_memory_order"),
            quick=32,
            moves_no_more=False,
        ),
        "dots_laid_out": Drawn(
            dots_laid_out(),
            ("dots_in_memory_order",),
            quick=48,
            forms={"dots_in_memory_order": is_one_of_matrices},
            moves_no_more=False,
        ),
        "sums_of_rows": Drawn(sums_of_rows(), ("contract",), quick=15, tolerance=1e-4, moves_no_more=False),
        "parts_of_repeated": Drawn(parts_of_repeated(), ("repeat_less",), quick=6, moves_no_more=False),
        "partial_dots": Drawn(partial_dots(), ("contract_in_order",), quick=8, moves_no_more=False),
        "products_side_by_side": Drawn(
            products_side_by_side(), ("join_side_by_side",), quick=24, forms={"join_side_by_side": is_one_product}
        ),
    },
    (
        "ops_attention/gradient_operation",
        "adjoint_messages",
        "npbench/mlp/odd/adjoint",
        "npbench/mlp/adjoint",
        "npbench/scattering_self_energies/adjoint",
    ),
)
