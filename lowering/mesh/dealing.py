"""Dealing: which vertices run on which devices of a mesh.

A vertex runs where its tile says, if the graph maps its elements to tiles as well; else where the first element lives
that it writes. Vertices that write what lives everywhere alone run everywhere, each on all devices, unless something
else of their compute set writes the same, or they do more than to write.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codelet.graphs.family import Family
from codelet.views.sources import Variable, source_elements, source_variables
from lowering.mesh.homes import Homes
from lowering.mesh.subfamilies import distinct
from lowering.plan.steps import ExecuteStep

EVERYWHERE = -1
"""The device of vertices that run on all of them."""


def _in_order(family: Family, count: int) -> np.ndarray:
    """The vertices in blocks, in their order."""
    number = np.arange(family.num_vertices)
    return (number * count // max(1, family.num_vertices)).reshape(family.extents)


def by_tiles(tiles: np.ndarray, dealt: np.ndarray, count: int) -> np.ndarray:
    """The devices of tiles, of which those that are dealt are in order, as many on each."""
    return np.searchsorted(dealt, tiles) * count // len(dealt)


def _by_writes(family: Family, homes: Homes) -> np.ndarray | None:
    """Where the first element lives that each vertex writes; None where no field says for all."""
    for field in family.fields:
        tensor = field.tensor
        if not field.is_written or tensor is None or not tensor.size or tensor.rows is not None:
            continue
        variables = source_variables(tensor.source)
        if homes.are_everywhere(variables):
            continue
        first = tensor.index[(0,) * tensor.ndim]
        if isinstance(tensor.source, Variable):
            return homes[tensor.source].devices_over(first, family.axes)
        numbers = source_elements(tensor.source)[first.values(family.axes)]
        devices = np.full(numbers.shape, EVERYWHERE)
        for variable in variables:
            own = (numbers >= variable.first_element) & (numbers < variable.first_element + variable.size)
            devices[own] = homes[variable].of_elements[numbers[own] - variable.first_element]
        return np.where(devices < 0, 0, devices)
    return None


def variables_of(family: Family) -> set[Variable]:
    """The variables that a family reads or writes."""
    tensors = [field.tensor for field in family.fields if field.tensor is not None]
    return {variable for tensor in tensors for variable in source_variables(tensor.source)}


def written_by(family: Family) -> set[Variable]:
    """The variables that a family writes."""
    tensors = [field.tensor for field in family.fields if field.is_written and field.tensor is not None]
    return {variable for tensor in tensors for variable in source_variables(tensor.source)}


def family_devices(family: Family, homes: Homes, count: int) -> np.ndarray | None:
    """The device of each vertex of a family, of the shape of its grid; None where it may run everywhere."""
    graph = family.compute_set.graph
    if family.tile is not None and graph.has_tile_mapping:
        target = graph.target
        dealt = np.arange(target.num_tiles) if homes.tiles is None else homes.tiles
        return by_tiles(family.tile.values(family.axes), dealt, count)
    devices = _by_writes(family, homes)
    everywhere = homes.are_everywhere(written_by(family))
    if devices is None and (not everywhere or family.codelet.has_effects):
        return _in_order(family, count)
    return devices


def vertex_devices(step: ExecuteStep, homes: Homes, count: int) -> dict[Family, np.ndarray | None]:
    """The device of each vertex of a compute set, of the shape of its grid; None for families that run everywhere."""
    return _agreed({family: family_devices(family, homes, count) for family in step.families}, count)


def _agreed(found: dict[Family, np.ndarray | None], count: int) -> dict[Family, np.ndarray | None]:
    """No variable is written by vertices that run everywhere and by others."""
    apart = {variable for family, devices in found.items() if devices is not None for variable in written_by(family)}
    while moved := [own for own, devices in found.items() if devices is None and written_by(own) & apart]:
        for family in moved:
            found[family] = _in_order(family, count)
            apart |= written_by(family)
    return found


def chosen(devices: np.ndarray | None, device: int, extents: Sequence[int]) -> np.ndarray:
    """A flag for each vertex of a family that runs on a device; one for all along axes where these are alike."""
    if devices is None:
        return np.broadcast_to(True, extents)
    return np.broadcast_to(distinct(devices) == device, extents)
