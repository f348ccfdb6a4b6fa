"""Vmapped: a family that runs as its codelet under `vmap`, one for each axis of its grid.

Operands are mapped as they lie in memory, so that XLA sees matrix products where there are some. Small windows are
taken apart into their elements where the codelet allows it, and random numbers are drawn ahead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jax.extend import core as jax_core

from codelet.graphs.family import Family
from codelet.views.grids import Axis
from lowering.arrays import Arrays
from lowering.fast.draws import Draws, plan_draws
from lowering.fast.inputs import Input, Inputs, plan_input
from lowering.fast.over_grid import Operand, mapped_axes, over_grid
from lowering.fast.small_windows import elements_of, is_small_window, take_jaxpr_apart


@dataclass(frozen=True, eq=False)
class Vmapped:
    """A family under `vmap`.

    Attributes:
        family: what runs.
        inputs: of each input of the codelet; several, where that is taken apart.
        jaxpr: what one vertex computes of them, and of the numbers drawn ahead.
        axes: that results depend on, outermost first.
        draws: what is drawn ahead; None where nothing is.
    """

    family: Family
    inputs: tuple[tuple[Input, ...], ...]
    jaxpr: jax_core.ClosedJaxpr
    axes: tuple[Axis, ...]
    draws: Draws | None

    def run(self, arrays: Arrays) -> dict[str, Operand]:
        """What every output computes, from the arrays before the compute set, with the keys of its dimensions."""
        operands = [(each.of(arrays), each.keys) for inputs in self.inputs for each in inputs]
        if self.draws is not None:
            operands += self.draws.ahead(operands)
        results = over_grid(self.jaxpr, operands, self.axes)
        return {
            name: (result, (*self.axes, *range(len(kind.shape))))
            for (name, kind), result in zip(self.family.codelet.outputs.items(), results, strict=True)
        }

    @property
    def reads(self) -> dict[str, str]:
        """How each field is read, in words."""
        return {
            name: str(inputs[0]) + (f" for each of {len(inputs)} elements" if len(inputs) > 1 else "")
            for name, inputs in zip(self.family.codelet.inputs, self.inputs, strict=True)
        }

    def text(self, names: Mapping[Axis, str]) -> str:
        """How the family runs, in words."""
        over = ", ".join(names[axis] for axis in self.axes)
        drawn = "" if self.draws is None else f"; {self.draws}"
        apart = any(len(inputs) > 1 for inputs in self.inputs)
        return (
            (f"under vmap over {over}" if over else "once") + (", windows element by element" if apart else "") + drawn
        )


def _vmapped(family: Family, inputs: tuple[tuple[Input, ...], ...], jaxpr: jax_core.ClosedJaxpr) -> Vmapped:
    keys = [each.keys for own in inputs for each in own]
    draws = plan_draws(jaxpr, keys, family.axes)
    rest = jaxpr if draws is None else draws.split.rest
    return Vmapped(family, inputs, rest, mapped_axes(keys, family.axes), draws)


def as_vmapped(family: Family, inputs: Inputs) -> Vmapped:
    """A family under `vmap`, as any can run whose fields are of one size."""
    each = tuple((inputs.of(field, family.axes),) for field in family.inputs)
    return _vmapped(family, each, family.codelet.jaxpr)


def as_windows_apart(family: Family, inputs: Inputs) -> Vmapped | str:
    """A family under `vmap` on the elements of its small windows; or why it cannot be, where it has some."""
    windows = [is_small_window(field) and not inputs.is_piece(field) for field in family.inputs]
    if not any(windows):
        return ""
    jaxpr = take_jaxpr_apart(family.codelet.jaxpr, windows)
    if jaxpr is None:
        return "the codelet does more with its windows than pick, compute by element and reduce"
    each: list[tuple[Input, ...]] = []
    for field, is_window in zip(family.inputs, windows, strict=True):
        if is_window:
            assert field.tensor is not None
            each.append(tuple(map(plan_input, elements_of(field.tensor))))
        else:
            each.append((inputs.of(field, family.axes),))
    return _vmapped(family, tuple(each), jaxpr)
