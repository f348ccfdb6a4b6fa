"""Rules for elementwise primitives: the loop that each is, by the tables of the machine."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.extend import core as jax_core

from ipu_backend.model.costs import FREE, Cost, Mode
from ipu_backend.model.cycle_rules import rule
from ipu_backend.model.equations import Equation
from ipu_backend.model.poplibs import CONVERT_CYCLES, kind_of, loop_of
from ipu_backend.model.tables import Loop, elementwise_loops


def _is_zero(atom: Any) -> bool:
    return isinstance(atom, jax_core.Literal) and not np.any(atom.val)


@rule(*elementwise_loops.keys() - {"cast", "select", "relu", "max"})
def _elementwise(eqn: Equation, mode: Mode) -> Loop:
    return loop_of(eqn.primitive, eqn.dtype, mode.machine.tables)


@rule("max")
def _maximum(eqn: Equation, mode: Mode) -> Loop:
    rectifies = kind_of(eqn.dtype) in ("half", "float") and any(map(_is_zero, eqn.operands))
    return loop_of("relu" if rectifies else "max", eqn.dtype, mode.machine.tables)


@rule("select_n")
def _select(eqn: Equation, mode: Mode) -> Loop:
    return loop_of("select", eqn.results[0].aval.dtype, mode.machine.tables)


@rule("clamp")
def _clamp(eqn: Equation, mode: Mode) -> Loop:
    once = loop_of("max", eqn.results[0].aval.dtype, mode.machine.tables)
    return once._replace(cycles=2 * once.cycles)


@rule("integer_pow")
def _integer_pow(eqn: Equation, mode: Mode) -> Loop:
    """Products by squaring: one for each binary digit after the first, and one for each that is set."""
    power, once = abs(eqn.params["y"]), loop_of("mul", eqn.dtype, mode.machine.tables)
    products = max(1, power.bit_length() - 1 + power.bit_count() - 1)
    reciprocal = loop_of("div", eqn.dtype, mode.machine.tables).cycles if eqn.params["y"] < 0 else 0
    return once._replace(cycles=products * once.cycles + reciprocal)


@rule("convert_element_type")
def _convert(eqn: Equation, mode: Mode) -> Cost | Loop:
    before, after = eqn.operands[0].aval.dtype, eqn.results[0].aval.dtype
    if eqn.converted and before != after:
        return loop_of("cast", np.int32, mode.machine.tables)._replace(cycles=CONVERT_CYCLES)
    if before == after:  # only its weakness changes
        return FREE
    floats = {"half", "float"} >= {kind_of(before), kind_of(after)}
    return loop_of("cast", before if floats else np.int32, mode.machine.tables)
