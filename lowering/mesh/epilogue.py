"""Epilogue: what all devices compute alike behind the last sum over them, outside of `jax.shard_map`.

There JAX knows that all devices have the same: the derivative of the sum is then each device's own business, and so
are those of what is added to it, where inside of `jax.shard_map` each would be a sum over the devices once more.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from jax import lax
from jax.sharding import Mesh, NamedSharding

from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import whole_view
from lowering.arrays import Array, Arrays
from lowering.fast.execution import Execution
from lowering.fast.steps import emit
from lowering.mesh.dealing import vertex_devices
from lowering.mesh.device_fused import DeviceFused
from lowering.mesh.each_device import EVERYWHERE
from lowering.mesh.homes import Homes
from lowering.plan.plan import Plan
from lowering.plan.steps import AddUpStep, ExecuteStep, Step


class Parted(NamedTuple):
    """A plan in two.

    Attributes:
        first: what runs on each device. Behind those outputs that it makes come the variables that the rest reads.
        rest: what all devices do alike.
        given: the inputs of the plan that the rest reads as they are given; it reads outputs of the first besides.
        is_first: of each output of the plan, whether the first makes it.
    """

    first: Plan
    rest: Plan
    given: tuple[Variable, ...]
    is_first: tuple[bool, ...]


def _is_alike(step: Step, homes: Homes) -> bool:
    """Whether all devices do the same in a step, of what they all have."""
    if isinstance(step, AddUpStep):
        return homes[step.destination].is_everywhere
    if not isinstance(step, ExecuteStep) or not homes.are_everywhere((*step.reads, *step.writes)):
        return False
    return all(devices is None for devices in vertex_devices(step, homes, homes.count).values())


def _apart(steps: Sequence[Step], homes: Homes) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """What runs on each device, and from a sum on what all do alike and what nothing else that comes later touches."""
    read: set[Variable] = set()
    written: set[Variable] = set()
    alike: list[int] = []
    for k, step in reversed(list(enumerate(steps))):
        is_free = read.isdisjoint(step.writes) and written.isdisjoint((*step.reads, *step.writes))
        if is_free and _is_alike(step, homes):
            alike.insert(0, k)
        else:
            read.update(step.reads)
            written.update(step.writes)
    rest = list(itertools.dropwhile(lambda k: not isinstance(steps[k], AddUpStep), alike))
    return tuple(own for k, own in enumerate(steps) if k not in rest), tuple(steps[k] for k in rest)


def part(plan: Plan, homes: Homes) -> Parted | None:
    """A plan with its epilogue apart; None where it has none."""
    first, rest = _apart(plan.steps, homes)
    if not rest:
        return None
    made_first, made = ({own for step in some for own in step.writes} for some in (first, rest))
    is_first = tuple(made.isdisjoint(source_variables(tensor.source)) for tensor in plan.outputs)
    behind = [tensor for tensor, own in zip(plan.outputs, is_first, strict=True) if not own]
    assert homes.are_everywhere(own for tensor in behind for own in source_variables(tensor.source)), behind
    needed = dict.fromkeys(own for step in rest for own in (*step.reads, *step.writes))
    needed.update(dict.fromkeys(own for tensor in behind for own in source_variables(tensor.source)))
    passed = tuple(own for own in needed if own in made_first)
    given = tuple(own for own in needed if own in plan.inputs and own not in made_first)
    ahead = [tensor for tensor, own in zip(plan.outputs, is_first, strict=True) if own]
    return Parted(
        replace(plan, steps=first, outputs=(*ahead, *map(whole_view, passed))),
        replace(plan, steps=rest, inputs=(*given, *passed), outputs=tuple(behind), streams=(), abort=None),
        given,
        is_first,
    )


class _Alike(DeviceFused):
    """What all devices have of variables, and of those that are added up all that each device has."""

    def __init__(self, inner: DeviceFused, mesh: Mesh):
        super().__init__(inner.homes, inner.devices)
        self.inner, self.mesh = inner, mesh

    def add_up(self, arrays: Arrays, step: AddUpStep) -> None:
        self.inner.summing(step)
        Execution.add_up(self, arrays, step)
        whole = lax.with_sharding_constraint(arrays[step.destination], NamedSharding(self.mesh, EVERYWHERE))
        arrays[step.destination] = whole


def finished(
    run: Callable[..., list[Array]], parted: Parted, inner: DeviceFused, mesh: Mesh
) -> Callable[..., list[Array]]:
    """What runs a plan, of what runs the first part of it."""
    rest = emit(parted.rest, _Alike(inner, mesh))
    places = {variable: k for k, variable in enumerate(parted.first.inputs)}
    count = len(parted.first.outputs)
    ahead = sum(parted.is_first)

    def whole(*arrays: Array) -> list[Array]:
        found = run(*arrays)
        passed: Sequence[Array] = found[ahead:count]
        own, others = iter(found[:ahead]), iter(rest(*(arrays[places[v]] for v in parted.given), *passed))
        return [*(next(own if is_first else others) for is_first in parted.is_first), *found[count:]]

    return whole
