"""Device tiles: the tile array as each device of a mesh runs it, with the rows of its tiles alone.

Everything here runs inside `jax.shard_map`. The stored form of a variable is a device's rows of its array of tiles by
words. Before a compute set what its tiles read and the device does not have crosses to it, and behind it what they
wrote of others' elements (`mesh_steps.py`). Values of views (conditions, streams, what the host is given) are on all
devices; so every device takes the same iterations and branches, and meets the others at every crossing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.graphs.family import Family
from codelet.views.grids import Axis, Grid
from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import Tensor
from ipu_backend.executions.mesh_steps import (
    MeshBatch,
    MeshBringing,
    MeshComputeSet,
    MeshCopySet,
    MeshLayouts,
    MeshPutting,
)
from ipu_backend.executions.tile_array import Field, TileArray, constant_operand, over_rows, taken_result, with_padding
from ipu_backend.executions.tile_copies import Taking, plan_putting, plan_taking
from lowering.arrays import Array, Arrays, constant
from lowering.fast.execution import Execution
from lowering.machine.exchange import Exchange
from lowering.mesh.crossing import Crossing
from lowering.mesh.devices import Devices
from lowering.plan.steps import CopyStep, ExecuteStep


@dataclass(frozen=True, eq=False)
class _DeviceReading:
    """A view without symbols as all devices have it: what it is taken from, and how it comes."""

    taking: Taking
    crossing: Crossing


class DeviceTiles(TileArray):
    """A device's rows of the arrays of tiles by words of a placement; see the module's docstring.

    Args:
        exchange: what the plan moves that will be run, or more.
        devices: those of the mesh.

    Attributes:
        crossed: the crossings that were emitted, in order, each as often as it was.
    """

    def __init__(self, exchange: Exchange, devices: Devices):
        super().__init__(exchange)
        self.devices = devices
        self.mesh_layouts = MeshLayouts(self.layouts, devices.count)
        self.crossed: list[Crossing] = []
        self._mesh_sets: dict[tuple[Family, ...], MeshComputeSet] = {}
        self._mesh_copies: dict[CopyStep, MeshCopySet] = {}
        self._loads: dict[Variable, Crossing] = {}
        self._unloads: dict[Variable, Crossing] = {}
        self._constants: dict[Variable, np.ndarray] = {}
        self._readings: dict[Tensor, _DeviceReading] = {}
        self._writings: dict[Tensor, list[MeshPutting]] = {}

    # --- what is held -----------------------------------------------------------------------------------

    def held_shape(self, variable: Variable) -> tuple[int, ...]:
        """The shape of what a device holds of a variable."""
        return self.mesh_layouts.shape(variable) if variable in self.layouts else variable.shape

    def rows_on_host(self, variable: Variable, value: np.ndarray) -> np.ndarray:
        """The array of a variable with the rows of all devices, from its value, on the host."""
        loading, count = self.layouts.loading(variable), self.devices.count * self.mesh_layouts.shape(variable)[0]
        if not loading.count:
            return np.zeros((count, loading.shape[1]), variable.dtype)
        # Words of no element hold another's, as codelets expect real values.
        found = value.reshape(-1)[loading.positions]
        return found[np.minimum(np.arange(count), len(found) - 1)]

    def _cross(self, crossing: Crossing, held: Sequence[Array], known: Sequence[Array] = ()) -> Array:
        self.crossed.append(crossing)
        return crossing.of(held, known, self.devices)

    def load(self, variable: Variable, array: Array) -> Array:
        """A device's rows of a variable, from its value, which all devices have: nothing crosses."""
        if variable not in self.layouts:
            return array
        if variable.value is not None:
            if variable not in self._constants:
                rows = self.rows_on_host(variable, np.asarray(variable.value))
                self._constants[variable] = rows.reshape(self.devices.count, *self.held_shape(variable))
            return self.devices.own(self._constants[variable])
        if variable not in self._loads:
            pieces = self.layouts.loading(variable).pieces
            self._loads[variable] = self.mesh_layouts.to_rows(variable, pieces, [variable.size])
        return self._cross(self._loads[variable], [], [jnp.asarray(array)])

    def unload(self, variable: Variable, held: Array) -> Array:
        """The value of a variable, on all devices."""
        if variable not in self.layouts:
            return held
        if variable not in self._unloads:
            pieces, rows = self.layouts.unloading(variable).pieces, self.mesh_layouts.of(variable)
            self._unloads[variable] = self.mesh_layouts.everywhere(variable.shape, pieces, [rows])
        return self._cross(self._unloads[variable], [held])

    # --- views --------------------------------------------------------------------------------------------

    def _parts(self, arrays: Arrays, taking: Taking) -> tuple[list[Array], list[Array]]:
        """What elements are taken from: of variables, and values of padding."""
        held = [self.held(arrays, variable) for variable in taking.variables]
        return held, [constant(np.stack(taking.padding))] if taking.padding else []

    def read(self, arrays: Arrays, tensor: Tensor) -> Array:
        """The value of a view without symbols, on all devices."""
        if not tensor.size:
            return jnp.zeros(tensor.shape, tensor.dtype)
        if any(variable not in self.layouts for variable in source_variables(tensor.source)):
            return Execution.read(self, arrays, tensor)
        if tensor not in self._readings:
            taking, words = plan_taking(tensor, self.layouts)
            sources = self.mesh_layouts.source(taking)[1]
            self._readings[tensor] = _DeviceReading(
                taking, self.mesh_layouts.everywhere(words.shape, words.pieces, sources)
            )
        reading = self._readings[tensor]
        return self._cross(reading.crossing, *self._parts(arrays, reading.taking))

    def _put_parts(self, arrays: Arrays, own: MeshPutting, held: Sequence[Array], known: Sequence[Array]) -> Array:
        kept = [self.held(arrays, own.variable)] if own.keeps else []
        return self._cross(own.crossing, [*held, *kept], known)

    def write(self, arrays: Arrays, tensor: Tensor, value: Array) -> None:
        """Write a value that all devices have to a view without symbols. The arrays are changed."""
        if tensor not in self._writings:
            puttings = plan_putting(tensor, self.layouts)
            self._writings[tensor] = [self.mesh_layouts.put(own, [tensor.size]) for own in puttings]
        made = {own.variable: self._put_parts(arrays, own, [], [value]) for own in self._writings[tensor]}
        arrays.update(made)

    def show(self, text: str, value: Array) -> None:
        """Print a text and a value, on the first device."""
        lax.cond(self.devices.number() == 0, lambda: super(DeviceTiles, self).show(text, value), lambda: None)

    # --- steps --------------------------------------------------------------------------------------------

    def _brought(self, arrays: Arrays, own: MeshBringing) -> Array:
        """What this device's rows compute from."""
        array = self._cross(own.crossing, [self.held(arrays, variable) for variable in own.variables])
        return with_padding(array, own.padding) if own.padding else array

    def copy(self, arrays: Arrays, step: CopyStep) -> None:
        """Copy a view to another, from tile to tile. The arrays are changed."""
        if not step.source.size:
            return
        if step not in self._mesh_copies:
            self._mesh_copies[step] = self.mesh_layouts.copy_set(self.copy_set(step))
        plan = self._mesh_copies[step]
        if isinstance(plan.source, MeshBringing):
            held, known = [self._brought(arrays, plan.source)], []
        else:
            held, known = self._parts(arrays, plan.source)
        arrays.update({own.variable: self._put_parts(arrays, own, held, known) for own in plan.puttings})

    def execute(self, arrays: Arrays, step: ExecuteStep) -> None:
        """Run a compute set: tiles receive, compute, and send home. The arrays are changed."""
        if step.families not in self._mesh_sets:
            self._mesh_sets[step.families] = self.mesh_layouts.compute_set(self.compute_set(step))
        plan = self._mesh_sets[step.families]
        brought = [self._brought(arrays, own) for own in plan.bringings]
        results = [self._computed(batch, brought) for batch in plan.batches]
        for own in plan.storings:
            parts = [taken_result(results, result) for result in own.results]
            arrays[own.putting.variable] = self._put_parts(arrays, own.putting, parts, [])

    def _operand(
        self, batch: MeshBatch, name: str, brought: Sequence[Array], row: Axis, lanes: Sequence[Axis]
    ) -> Field:
        """A field of a batch."""
        operand, places, value = batch.operands[name]
        keys = tuple(lanes[k] for k in operand.groups)
        if places is not None:
            assert operand.bringing is not None
            rows, chosen = brought[operand.bringing], batch.rows[operand.bringing]
            own = rows if chosen is None else chosen.of(rows.reshape(-1), self.devices)
            return places.of(own, self.devices), (row, *keys, *operand.dimensions)
        assert operand.value is not None
        assert value is not None
        whole, over = constant_operand(operand.value, keys, row, operand.dimensions)
        return self.devices.own(value) if row in over else whole, over

    def _computed(self, batch: MeshBatch, brought: Sequence[Array]) -> dict[str, Array]:
        """What the vertices on this device's tiles write, by the field: (rows, lanes..., *field)."""
        codelet, counts = batch.codelet, batch.dealt.counts
        row, *axes = Grid([range(batch.dealt.most), *map(range, batch.lengths)]).axes
        fields = [self._operand(batch, name, brought, row, axes) for name in codelet.inputs]
        run = lambda: over_rows(codelet, (row, *axes), fields)  # noqa: E731
        if codelet.has_effects and (counts < batch.dealt.most).any():
            one = Grid([range(1), *map(range, batch.lengths)]).axes
            return self._one_by_one(batch, one, [(array, _renamed(keys, (row, *axes), one)) for array, keys in fields])
        if counts.all():
            return run()
        return self._where(self.devices.own(counts) > 0, run)

    def _where(self, condition: Array, run: Any) -> dict[str, Array]:
        """What a function computes where a condition holds; zeros elsewhere, without running it."""
        kinds = jax.eval_shape(run)
        blank = lambda: {name: jnp.zeros(kind.shape, kind.dtype) for name, kind in kinds.items()}  # noqa: E731
        return lax.cond(condition, run, blank)

    def _one_by_one(self, batch: MeshBatch, axes: Sequence[Axis], fields: Sequence[Field]) -> dict[str, Array]:
        """What vertices that speak write, row by row, so that no row speaks that stands for no tile."""
        count = self.devices.own(batch.dealt.counts)

        def of_row(k: Array) -> dict[str, Array]:
            own = [
                (lax.dynamic_slice_in_dim(array, k, 1) if axes[0] in keys else array, keys) for array, keys in fields
            ]
            return self._where(k < count, lambda: over_rows(batch.codelet, axes, own))

        found = lax.map(of_row, jnp.arange(batch.dealt.most))
        return {name: array.reshape(-1, *array.shape[2:]) for name, array in found.items()}


def _renamed(keys: Sequence[Any], before: Sequence[Axis], after: Sequence[Axis]) -> tuple[Any, ...]:
    names = dict(zip(before, after, strict=True))
    return tuple(names.get(key, key) for key in keys)
