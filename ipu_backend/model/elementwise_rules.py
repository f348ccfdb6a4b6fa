"""Rules for elementwise primitives: the loop that each is, by the tables of the machine."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.extend import core as jax_core

from ipu_backend.model.costs import FREE, Cost, Mode
from ipu_backend.model.cycle_rules import rule
from ipu_backend.model.dtypes import OTHER_COLUMNS, column_of, computed_in, kind_of, software_factor, vector_width
from ipu_backend.model.equations import Equation, itemsize_of
from ipu_backend.model.rows import CastRow, Loop, Row, Rows
from ipu_backend.model.tables import elementwise_loops


def loop_with(rows: Rows, dtype: Any, mode: Mode) -> Loop:
    """The loop of an operation whose rows are known, for the dtype it computes in."""
    vector_bytes = mode.machine.vector_bytes
    width = 1 if dtype == np.bool_ else max(1, vector_bytes // itemsize_of(dtype))
    return Loop(rows, width, 0 if dtype == np.bool_ else vector_width(dtype, vector_bytes))


def rows_of(operation: str, dtype: Any, mode: Mode) -> Rows:
    """What an elementwise operation takes for a dtype.

    Where the machine's tables do not have the operation, or not for the dtype, it is a guess: what PopLibs takes, or
    what the next dtype does.
    """
    own = mode.machine.tables.elementwise
    columns, known = own.get(operation) or elementwise_loops[operation], operation in own
    column = column_of(dtype)
    found = next(other for other in (column, *OTHER_COLUMNS[column], *columns) if other in columns)
    rows, is_guess = columns[found], not known or found != column
    factor = software_factor(dtype) if found not in ("long", "ulong") else 1
    if factor == 1:
        return rows._replace(is_vertex=False, is_guess=True) if is_guess else rows
    cycles, arithmetic = rows.plain.cycles * factor, rows.plain.arithmetic * factor
    plain = Row(cycles, rows.plain.elements, rows.plain.overhead, arithmetic, rows.plain.base, rows.plain.supervisor)
    return Rows(plain, is_vertex=False, is_guess=True)


def loop_of(operation: str, dtype: Any, mode: Mode) -> Loop:
    """The loop of an elementwise operation for a dtype."""
    return loop_with(rows_of(operation, dtype, mode), dtype, mode)


def _is_zero(atom: Any) -> bool:
    return isinstance(atom, jax_core.Literal) and not np.any(atom.val)


@rule(*elementwise_loops.keys() - {"relu", "max", "ne", "inverse", "is_nan", "is_inf", "gelu_erf", "trunc"})
def _elementwise(eqn: Equation, mode: Mode) -> Loop:
    return loop_of(eqn.primitive, eqn.dtype, mode)


@rule("max")
def _maximum(eqn: Equation, mode: Mode) -> Loop:
    rectifies = kind_of(eqn.dtype) in ("half", "float") and any(map(_is_zero, eqn.operands))
    return loop_of("relu" if rectifies else "max", eqn.dtype, mode)


@rule("ne")
def _not_equal(eqn: Equation, mode: Mode) -> Loop:
    asks_for_nan = kind_of(eqn.dtype) in ("half", "float") and eqn.operands[0] is eqn.operands[1]
    return loop_of("is_nan" if asks_for_nan else "ne", eqn.dtype, mode)


@rule("select_n")
def _select(eqn: Equation, mode: Mode) -> Loop:
    """Of two cases (popopsCycleEstimators.cpp @ 82cd24e5, Select, BroadcastSelect, BroadcastSelectorSelect).

    Each further case is a guess: one instruction that moves it if it is the one.
    """
    dtype = eqn.results[0].aval.dtype
    num_bytes = itemsize_of(dtype)
    if not eqn.operands[0].aval.shape and eqn.results[0].aval.shape:
        copy = Row(1, max(1, 4 // num_bytes), base=47, arithmetic=0, supervisor=11)
        return loop_with(Rows(copy, is_guess=num_bytes > 4), dtype, mode)
    of_numbers = {
        1: Row(17, 4, base=76, supervisor=11),
        2: Row(4, 1, base=40, supervisor=11),  # 33 of an odd number of elements
        4: Row(4, 1, base=18, supervisor=11),
    }
    cases = len(eqn.operands) - 1
    picked = Row(5 + 2 * (cases - 2), 1, arithmetic=cases - 1, base=11, supervisor=11)
    return loop_with(Rows(picked, by_scalar=of_numbers.get(num_bytes), is_guess=cases > 2), dtype, mode)


@rule("clamp")
def _clamp(eqn: Equation, mode: Mode) -> Loop:
    """Between two numbers, or two tensors (popopsCycleEstimators.cpp @ 82cd24e5, Clamp)."""
    dtype = computed_in(eqn.results[0].aval.dtype)
    width = vector_width(dtype, mode.machine.vector_bytes)
    is_float = kind_of(dtype) in ("half", "float")
    row = Row(2 if is_float else 7, width, arithmetic=2, base=11, supervisor=11, rounds_once=True)
    return loop_with(Rows(row, is_guess=software_factor(dtype) > 1), dtype, mode)


@rule("integer_pow")
def _integer_pow(eqn: Equation, mode: Mode) -> Loop:
    """Products by squaring: one for each binary digit after the first, and one for each that is set."""
    exponent = eqn.params["y"]
    if exponent in (2, -1):
        return loop_of("square" if exponent == 2 else "inverse", eqn.dtype, mode)
    power = abs(exponent)
    products = max(1, power.bit_length() - 1 + power.bit_count() - 1)
    once, inverse = rows_of("mul", eqn.dtype, mode), rows_of("inverse", eqn.dtype, mode)
    loop = loop_with(once, eqn.dtype, mode)
    elements = once.plain.elements or loop.width
    turn = products * once.plain.arithmetic
    if exponent < 0:
        turn += -(-inverse.plain.arithmetic * elements // (inverse.plain.elements or loop.width))
    row = Row(turn, elements, arithmetic=turn, base=inverse.plain.base, supervisor=20)
    return loop._replace(rows=Rows(row, is_vertex=False, is_guess=once.is_guess))


@rule("polynomial")
def _polynomial(eqn: Equation, mode: Mode) -> Loop:
    """Horner's rule: a product and a sum for each coefficient after the first. A guess, as no vertex does it."""
    once = rows_of("mul", eqn.dtype, mode)
    loop = loop_with(once, eqn.dtype, mode)
    turn = max(1, 2 * (len(eqn.operands) - 2)) * once.plain.arithmetic
    row = Row(turn, once.plain.elements or loop.width, arithmetic=turn, base=once.plain.base, supervisor=20)
    return loop._replace(rows=Rows(row, is_vertex=False, is_guess=True))


@rule("convert_element_type")
def _convert(eqn: Equation, mode: Mode) -> Cost | Loop:
    """A cast: two and four elements an iteration between floats, else one, which PopLibs calls an inaccurate guess."""
    before, after = eqn.operands[0].aval.dtype, eqn.results[0].aval.dtype
    own, new = computed_in(before), computed_in(after)
    if before == after:  # only its weakness changes
        return FREE
    if own == new:  # which is converted where it is loaded and stored
        if own == np.float16 and own in (before, after) and not mode.machine.tables.float8.is_guess:
            row = CastRow(0, 8 if own == before else 4, arithmetic=0, base=17, supervisor=12)
            return loop_with(Rows(row), own, mode)
        return loop_with(Rows(Row(0, 1, arithmetic=0, base=17, supervisor=12), is_vertex=False), own, mode)
    kinds = kind_of(own), kind_of(new)
    cycles, elements = {("float", "half"): (2, 4), ("half", "float"): (1, 2)}.get(kinds, (2, 1))
    row = CastRow(cycles, elements, arithmetic=cycles, base=17, supervisor=12)
    guess = software_factor(own) > 1 or software_factor(new) > 1
    return loop_with(Rows(row, is_vertex=not guess, is_guess=guess), max(own, new, key=itemsize_of), mode)
