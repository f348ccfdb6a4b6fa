"""Choosing homes: where the variables of a plan live on the devices of a mesh.

From the graph's tiles, dealt to the devices in order, where it gives them. What it leaves open is cut in blocks along
a dimension, or lives everywhere if it is small, as costs least: what a device in the middle computes, and what it has
to be sent. One variable after another is tried otherwise, in the order in which they were made, from several
beginnings; variables that are rotated live alike.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from codelet.graphs.family import Family
from codelet.views.sources import Variable, source_variables
from lowering.machine.hypergraph import is_irregular
from lowering.machine.irregular import element_devices
from lowering.mesh.dealing import by_tiles, chosen, family_devices, variables_of, written_by
from lowering.mesh.homes import Home, Homes, blocked
from lowering.mesh.split_sums import SumAcross, sum_across
from lowering.mesh.subfamilies import inner_extents, subfamily
from lowering.plan.control import control
from lowering.plan.elements import ElementSet
from lowering.plan.plan import Plan
from lowering.plan.steps import CallStep, CopyStep, ExecuteStep, RotateStep, Step
from lowering.plan.walk import all_steps, bodies

SMALL_BYTES = 1 << 20
"""A variable that takes no more may live everywhere."""

CROSSING = 32
"""What an element that crosses costs, in elements that vertices read or write. A guess."""

COLLECTIVE = 4096
"""What it costs that anything of a variable crosses in a step, in the same. A guess."""

GIVEN = 8
"""What it costs that all devices have an element of an input, in the same: some inputs have gradients. A guess."""

MOST_TRIED = 4000
"""So many steps are looked at, all beginnings together."""


# --- what a step costs ------------------------------------------------------------------------------------


class _FamilyTraffic(NamedTuple):
    """What the vertices of a family on one device read and write, and how many elements, each as often as it does."""

    read: ElementSet
    written: ElementSet
    work: int


def _moved(family: Family, devices: np.ndarray | None, device: int, across: SumAcross | None) -> _FamilyTraffic:
    read, written, work = ElementSet(), ElementSet(), 0
    own = subfamily(family, chosen(devices, device, family.extents), inner_extents(family))
    for here in () if across is None else across.on_device(device):  # for all vertices, and no other's elements
        read.add(here, family.axes)
        work += here.size * family.num_vertices
    added_up = () if across is None else tuple(field.name for field in across.fields)
    for field in own.fields if own is not None else ():
        if field.tensor is None or own is None or field.name in added_up:
            continue
        work += field.tensor.size * (1 if field.tensor.rows is not None else own.num_vertices)
        if field.is_read:
            read.add(field.tensor, own.axes)
        if field.is_written:
            written.add(field.tensor, own.axes)
    return _FamilyTraffic(read, written, work)


def _ways(variables: Iterable[Variable], homes: Homes) -> tuple[int, ...]:
    """How variables live, to be looked up by."""
    return tuple(id(homes[own]) for own in sorted(variables, key=lambda own: own.number))


def _steps(steps: Sequence[Step], turns: int = 1) -> Iterator[tuple[ExecuteStep | CopyStep, int]]:
    """Compute sets and copies, and how often each runs."""
    for step in steps:
        if isinstance(step, ExecuteStep | CopyStep):
            yield step, turns
        inside = bodies(step)
        for part in control(step).parts if inside else ():
            if part.body is not None:
                yield from _steps(inside[part.body], turns * part.turns)


class _Costs:
    """What steps cost on a device, each found once for each way in which its variables live.

    Args:
        plan: of which.
        count: of devices.
        device: default: one in the middle.
    """

    def __init__(self, plan: Plan, count: int, device: int | None = None):
        self.count, self.device = count, (count - 1) // 2 if device is None else device
        self.steps = list(_steps(plan.steps))
        self.tried = 0
        self._devices: dict[tuple[Family, tuple[int, ...]], np.ndarray | None] = {}
        self._moved: dict[tuple[Family, tuple[int, ...], SumAcross | None], _FamilyTraffic] = {}
        self._sums: dict[tuple[Family, tuple[int, ...]], SumAcross | None] = {}
        self._known: dict[tuple[int, tuple[int, ...]], float] = {}
        self.results = {v for tensor in plan.outputs for v in source_variables(tensor.source)}
        self.inputs = frozenset(plan.inputs)
        self.outside = self.inputs | self.results
        self._touched = [(*step.reads, *step.writes) for step, _ in self.steps]
        self.by_variable: dict[Variable, list[int]] = {}
        for k, touched in enumerate(self._touched):
            for variable in dict.fromkeys(touched):
                self.by_variable.setdefault(variable, []).append(k)

    def devices(self, family: Family, homes: Homes) -> np.ndarray | None:
        """The device of each vertex of a family; None where it may run everywhere."""
        key = family, _ways(written_by(family), homes)
        if key not in self._devices:
            self._devices[key] = family_devices(family, homes, self.count)
        return self._devices[key]

    def sum_across(self, family: Family, homes: Homes) -> SumAcross | None:
        """The first sum of a family that is split."""
        key = family, _ways(variables_of(family), homes)
        if key not in self._sums:
            self._sums[key] = sum_across(family, self.devices(family, homes), homes)
        return self._sums[key]

    def moved(self, family: Family, homes: Homes, across: SumAcross | None) -> _FamilyTraffic:
        key = family, _ways(written_by(family), homes), across
        if key not in self._moved:
            self._moved[key] = _moved(family, self.devices(family, homes), self.device, across)
        return self._moved[key]

    def _across(self, read: ElementSet, written: ElementSet, homes: Homes) -> float:
        """What crosses to the device, and what it sends."""
        total = 0.0
        for variable in dict.fromkeys((*read.variables, *written.variables)):
            home = homes[variable]
            own = home.elements[self.device]
            away = (read.of(variable) - own).count if not home.is_everywhere else 0
            sent = (written.of(variable) - own).count if not home.is_everywhere else 0
            words = variable.dtype.itemsize / 4 * home.padding
            total += CROSSING * words * (away + sent) + COLLECTIVE * ((away > 0) + (sent > 0))
        return total

    def _execute(self, step: ExecuteStep, homes: Homes) -> float:
        read, written, work = ElementSet(), ElementSet(), 0
        for family in step.families:
            if not family.num_vertices:
                continue
            across = self.sum_across(family, homes)
            own = self.moved(family, homes, across)
            work += 0 if across is None else self._sum(across)
            read, written, work = read | own.read, written | own.written, work + own.work
            if self.devices(family, homes) is not None:
                for variable in own.written.variables:
                    if homes[variable].is_everywhere:
                        work += CROSSING * (self.count - 1) * own.written.of(variable).count + COLLECTIVE
        return work + self._across(read, written, homes)

    def _sum(self, across: SumAcross) -> float:
        """What it costs to add up over the devices, and to bring the slope of a sum back to those that have its parts.

        A sum that all devices have is there already; blocks of it are gathered.
        """
        words = across.dtype.itemsize / 4 * math.prod(across.extents)
        return CROSSING * words * 2 * (1 - 1 / self.count) + COLLECTIVE * (1 if across.cut is None else 2)

    def _copy(self, step: CopyStep, homes: Homes) -> float:
        pair = step.whole_variables
        if pair is None:
            return 0.0
        source, destination = (homes[variable] for variable in pair)
        if source.is_everywhere:
            return 0.0
        away = (destination.elements[self.device] - source.elements[self.device]).count
        return CROSSING * away + COLLECTIVE * (away > 0)

    def of_step(self, k: int, homes: Homes) -> float:
        """What a step costs, all its iterations together."""
        key = k, tuple(id(homes[variable]) for variable in self._touched[k])
        if key not in self._known:
            self.tried += 1
            step, turns = self.steps[k]
            cost = self._execute(step, homes) if isinstance(step, ExecuteStep) else self._copy(step, homes)
            self._known[key] = turns * cost
        return self._known[key]

    def of_variable(self, variable: Variable, homes: Homes) -> float:
        """What it costs how an input or an output lives, for whoever gives or takes it.

        One that is no array in even blocks is brought. One that is on all devices has to be put there, and the gradient
        of an input, if it has one, is a sum over them: a guess. A result that is cut along another dimension than the
        first, which is mostly a batch, is to be cut otherwise, which counts as what vertices read.
        """
        home = homes[variable]
        if variable not in self.outside:
            return 0.0
        if home.is_everywhere:
            return (1 - 1 / self.count) * variable.size * (GIVEN if variable in self.inputs else 1)
        if home.padding != 1 or home.devices is not None:
            return CROSSING * variable.size
        return float(variable.size) if home.cut and variable in self.results else 0.0

    def of_steps(self, homes: Homes) -> float:
        """What all steps cost."""
        return sum(self.of_step(k, homes) for k in range(len(self.steps)))

    def total(self, homes: Homes) -> float:
        """What all of a plan costs."""
        return self.of_steps(homes) + sum(self.of_variable(variable, homes) for variable in self.outside)


# --- choosing -----------------------------------------------------------------------------------------------


def _used_tiles(plan: Plan, element_tiles: np.ndarray) -> np.ndarray:
    """The tiles on which anything lives or runs that the graph says, rising."""
    found = [family.tile.values(family.axes).reshape(-1) for family in plan.families if family.tile is not None]
    return np.unique(np.concatenate([*found, element_tiles[element_tiles >= 0]]))


class _Choices:
    """The ways in which variables may live: the same objects for the same ways."""

    def __init__(self, plan: Plan, count: int):
        self.count = count
        self.given = Homes(count)
        tiles = plan.graph.element_tiles if plan.graph.has_tile_mapping else None
        self.given.tiles = used = None if tiles is None else _used_tiles(plan, tiles)
        for variable in (*plan.variables, *plan.added):
            if variable.value is not None or variable.size < 2 or variable in plan.added:
                self.given[variable] = Home(variable, count)
            elif tiles is not None and used is not None:
                own = tiles[variable.first_element : variable.first_element + variable.size]
                if (own >= 0).all():
                    devices = by_tiles(own, used, count)
                    self.given[variable] = blocked(devices, variable, count)
        rotated = [step.variables for step in all_steps(plan.steps) if isinstance(step, RotateStep)]
        self.group: dict[Variable, tuple[Variable, ...]] = {}
        for variables in rotated:
            joined = tuple(dict.fromkeys(own for v in variables for own in self.group.get(v, (v,))))
            self.group.update(dict.fromkeys(joined, joined))
        self.open = [v for v in plan.variables if v not in self.given]
        self._made: dict[tuple[Variable, int | None], Home] = {}

    def home(self, variable: Variable, cut: int | None) -> Home:
        if (variable, cut) not in self._made:
            self._made[variable, cut] = Home(variable, self.count, cut)
        return self._made[variable, cut]

    def cuts(self, variable: Variable) -> list[int | None]:
        """Along which dimensions a variable may be cut; None for not at all."""
        long = [d for d, n in enumerate(variable.shape) if n >= self.count]
        most = max(range(len(variable.shape)), key=lambda d: variable.shape[d])
        found: list[int | None] = [*(long or [most])]
        if variable.size * variable.dtype.itemsize <= SMALL_BYTES:
            found.append(None)
        return found

    def alike(self, variable: Variable) -> tuple[Variable, ...]:
        """The variables that live as one does, itself among them, of those that are left open."""
        return tuple(own for own in self.group.get(variable, (variable,)) if own not in self.given)


def _descended(choices: _Choices, costs: _Costs, homes: Homes) -> Homes:
    """Homes from which no variable alone gains by another."""
    has_changed = True
    while has_changed and costs.tried < MOST_TRIED:
        has_changed = False
        for variable in choices.open:
            group = choices.alike(variable)
            touching = sorted({k for own in group for k in costs.by_variable.get(own, ())})
            before = homes[variable]

            def cost(group: Sequence[Variable] = group, touching: Sequence[int] = touching) -> float:
                own = sum(costs.of_variable(variable, homes) for variable in group)
                return own + sum(costs.of_step(k, homes) for k in touching)

            best, least = before.cut, cost()
            for cut in choices.cuts(variable):
                homes.update({own: choices.home(own, cut) for own in group})
                if (found := cost()) < least:
                    best, least, has_changed = cut, found, True
            homes.update({own: choices.home(own, best) for own in group})
    return homes


def _beginnings(choices: _Choices) -> Iterator[Homes]:
    """All variables cut along the first, the last or the longest of their long dimensions; with small ones everywhere.

    Small are none, those that cost no more than a collective does, or all that may live everywhere.
    """
    rules = (
        lambda cuts, shape: cuts[0],
        lambda cuts, shape: cuts[-1],
        lambda cuts, shape: max(cuts, key=lambda d: shape[d]),
    )
    for most, rule in itertools.product((0, COLLECTIVE, SMALL_BYTES), rules):
        homes = choices.given.copy()
        for variable in choices.open:
            *cuts, last = choices.cuts(variable)
            is_small = last is None and variable.size <= most
            cut = None if is_small else rule(cuts if last is None else [*cuts, last], variable.shape)
            for own in choices.alike(variable):
                homes[own] = choices.home(own, cut)
        yield homes


def _as_before(choices: _Choices, like: Homes) -> Homes:
    """Homes as in another plan; those of variables that it does not have are cut along the first long dimension."""
    homes = next(_beginnings(choices))
    for variable in choices.open:
        if variable in like and like[variable].devices is None:
            homes[variable] = choices.home(variable, like[variable].cut)
    return homes


def _partitioned(plan: Plan, choices: _Choices) -> Homes | None:
    """Homes by partition of an irregular plan, which says more than any cut along a dimension; `None` of others."""
    is_plain = not any(isinstance(step, RotateStep | CallStep) for step in all_steps(plan.steps))
    if plan.graph.has_tile_mapping or plan.added or not is_plain or not is_irregular(plan):
        return None
    devices = element_devices(plan, choices.count)
    if devices is None:
        return None
    homes = choices.given.copy()
    for variable in choices.open:
        own = devices[variable.first_element : variable.first_element + variable.size]
        homes[variable] = blocked(own.astype(np.int64), variable, choices.count)
    return homes


def choose_homes(plan: Plan, count: int, like: Homes | None = None) -> tuple[Homes, float]:
    """Where the variables of a plan live on so many devices, and what it costs.

    Args:
        plan: of which.
        count: of devices.
        like: where they live in another plan of the same program, from which to go on.
    """
    choices = _Choices(plan, count)
    costs = _Costs(plan, count)
    if count == 1:
        return choices.given.copy(), 0.0
    best: tuple[float, Homes] = math.inf, Homes(count)
    for homes in _beginnings(choices) if like is None else [_as_before(choices, like)]:
        found = _descended(choices, costs, homes)
        best = min(best, (costs.total(found), found), key=lambda own: own[0])
    if (parted := _partitioned(plan, choices)) is not None:
        # Devices are not alike then: the one that has most to do decides.
        several = [_Costs(plan, count, device) for device in range(count)]
        ways = [(max(own.of_steps(homes) for own in several), homes) for homes in (parted, best[1])]
        cost, homes = min(ways, key=lambda own: own[0])
        return homes, cost
    return best[1], best[0]


def rotate_alike(plan: Plan, homes: Homes) -> bool:
    """Whether the variables that a plan rotates live alike."""
    rotated = [step.variables for step in all_steps(plan.steps) if isinstance(step, RotateStep)]
    return all(homes[own].lives_as(homes[group[0]]) for group in rotated for own in group[1:])
