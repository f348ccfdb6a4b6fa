"""Vmapped: a family that runs as its codelet under `vmap`, one for each axis of its grid.

Operands are mapped as they lie in memory, so that XLA sees matrix products where there are some. Small windows are
taken apart into their elements where the codelet allows it, and random numbers are drawn ahead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jax.extend import core as jax_core

from codelet.graphs.family import Family, Field
from codelet.views.grids import Axis, Key
from lowering.arrays import Arrays
from lowering.fast.draws import Draws, plan_draws
from lowering.fast.inputs import Input, Inputs, plan_input
from lowering.fast.over_grid import Operand, mapped_axes, over_grid
from lowering.fast.reduced_as_it_lies import Reducing, reduced_as_it_lies
from lowering.fast.result_order import only_looks, order_of_results, viewed_in_order
from lowering.fast.small_windows import elements_of, is_small_window, take_jaxpr_apart
from lowering.fast.sources import Viewed
from lowering.fast.window_reductions import ReducedWindows


def _text(inputs: Sequence[Input | ReducedWindows]) -> str:
    """How a field is read, in words."""
    if len(inputs) == 1 or not all(isinstance(own, Viewed) for own in inputs):
        return "; ".join(map(str, inputs))
    return f"{inputs[0]} for each of {len(inputs)} elements"


@dataclass(frozen=True, eq=False)
class Vmapped:
    """A family under `vmap`.

    Attributes:
        family: what runs.
        inputs: of each input of the codelet; several, where that is taken apart.
        jaxpr: what one vertex computes of them, and of the numbers drawn ahead.
        axes: that results depend on, outermost first.
        draws: what is drawn ahead; None where nothing is.
        reducing: how maps are reduced as they lie, and the axes of the result; None where `vmap` does it.
        windows: what becomes of windows that are not read as such, in words.
    """

    family: Family
    inputs: tuple[tuple[Input | ReducedWindows, ...], ...]
    jaxpr: jax_core.ClosedJaxpr
    axes: tuple[Axis, ...]
    draws: Draws | None
    reducing: tuple[Reducing, tuple[Key, ...]] | None
    windows: str = ""

    def run(self, arrays: Arrays) -> dict[str, Operand]:
        """What every output computes, from the arrays before the compute set, with the keys of its dimensions."""
        operands = [(each.of(arrays), each.keys) for inputs in self.inputs for each in inputs]
        if self.reducing is not None:
            (name,), (run, keys) = self.family.codelet.outputs, self.reducing
            return {name: (run([array for array, _ in operands]), keys)}
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
        return {name: _text(own) for name, own in zip(self.family.codelet.inputs, self.inputs, strict=True) if own}

    def text(self, names: Mapping[Axis, str]) -> str:
        """How the family runs, in words."""
        over = ", ".join(names[axis] for axis in self.axes)
        drawn = "" if self.draws is None else f"; {self.draws}"
        windows = f", windows {self.windows}" if self.windows else ""
        way = "reduced as it lies over" if self.reducing is not None else "under vmap over"
        return (f"{way} {over}" if over else "once") + windows + drawn


def vmapped(
    family: Family,
    inputs: tuple[tuple[Input | ReducedWindows, ...], ...],
    jaxpr: jax_core.ClosedJaxpr,
    windows: str = "",
) -> Vmapped:
    """A family under `vmap`, from the inputs of a jaxpr for each of its codelet's, which may be several or none."""
    keys = [each.keys for own in inputs for each in own]
    draws = plan_draws(jaxpr, keys, family.axes)
    rest = jaxpr if draws is None else draws.split.rest
    is_plain = draws is None and jaxpr is family.codelet.jaxpr
    reducing = reduced_as_it_lies(family, keys) if is_plain else None
    return Vmapped(family, inputs, rest, mapped_axes(keys, family.axes), draws, reducing, windows)


def _input(family: Family, field: Field, inputs: Inputs) -> Input:
    """How a field is read: in the order of the results, where that is free to choose."""
    order = None if inputs.is_piece(field) else order_of_results(family, field)
    if order is None or not only_looks(family.codelet):
        return inputs.of(field, family.axes)
    assert field.tensor is not None
    return viewed_in_order(field.tensor, order)


def as_vmapped(family: Family, inputs: Inputs) -> Vmapped:
    """A family under `vmap`, as any can run whose fields are of one size."""
    each = tuple((_input(family, field, inputs),) for field in family.inputs)
    return vmapped(family, each, family.codelet.jaxpr)


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
            order = order_of_results(family, field)
            elements = elements_of(field.tensor)
            each.append(tuple(plan_input(own) if order is None else viewed_in_order(own, order) for own in elements))
        else:
            each.append((inputs.of(field, family.axes),))
    return vmapped(family, tuple(each), jaxpr, "element by element")
