"""Mesh tiles: the tile array over a mesh of devices, as the engine holds and runs it.

In come a placed plan and a mesh. The tiles on which anything lives are dealt to the devices of the mesh in order, all
its axes taken together, as many to each; the last have fewer where they do not divide. The array of tiles by words of
a variable is one global array, sharded by rows, with rows that stand for no tile behind those of the last. A program
is what each device does (`device_tiles.py`), over the mesh (`lowering/mesh/each_device.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core as jax_core
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from codelet.views.sources import Variable
from ipu_backend.executions.device_tiles import DeviceTiles
from ipu_backend.executions.tile_array import digest, logical, logical_types
from lowering.aborting import messages_of
from lowering.arrays import Array
from lowering.fast.execution import Execution
from lowering.fast.steps import emit
from lowering.machine.exchange import Exchange
from lowering.mesh.devices import Devices
from lowering.mesh.each_device import EVERYWHERE, over_mesh
from lowering.mesh.processes import fetched, processes_of, put, spread
from lowering.plan.plan import Plan
from lowering.plan.streams import fed_types


class MeshTiles(Execution):
    """Variables as arrays of tiles by words, sharded by rows over a mesh; see the module's docstring.

    What it holds are global arrays, outside of the program. What the program does with them, inside, is
    `DeviceTiles`'s.

    Args:
        exchange: what the plan moves that will be run, or more.
        mesh: of devices.
    """

    def __init__(self, exchange: Exchange, mesh: Mesh):
        self.mesh = mesh = Mesh(mesh.devices, mesh.axis_names)  # of axes whose sharding JAX does not ask to be told
        self.by_rows = PartitionSpec(tuple(mesh.axis_names))
        self.tiles = DeviceTiles(exchange, Devices(mesh.shape))
        self.where = digest(exchange.placement)
        self.key = "tiles", self.where, mesh

    def spec(self, variable: Variable) -> PartitionSpec:
        """How the stored form of a variable is sharded."""
        return self.by_rows if variable in self.tiles.layouts else EVERYWHERE

    def _on_mesh(self, array: Any, spec: PartitionSpec) -> Array:
        return put(array, NamedSharding(self.mesh, spec))

    def load(self, variable: Variable, array: Array) -> Array:
        """The sharded array of a variable, from its value: each device is given its rows."""
        if variable not in self.tiles.layouts:
            return self._on_mesh(array, EVERYWHERE)
        return self._on_mesh(self.tiles.rows_on_host(variable, fetched(array)), self.by_rows)

    def unload(self, variable: Variable, held: Array) -> Array:
        """The value of a variable, on the host."""
        if variable not in self.tiles.layouts:
            return held
        flat, words = fetched(held).reshape(-1), self.tiles.layouts.unloading(variable)
        return flat[words.positions]  # type: ignore[return-value]

    def saved(self, variable: Variable, held: Array) -> Array:
        """The value of a variable for a checkpoint, over the mesh."""
        if variable not in self.tiles.layouts:
            return held
        words = self.tiles.layouts.unloading(variable).positions.astype(np.int32)
        return spread(lambda own: own.reshape(-1)[words], variable.shape, self.mesh, held)

    def held_type(self, variable: Variable) -> jax.ShapeDtypeStruct:
        """The shape and dtype of the stored form of a variable."""
        shape = self.tiles.held_shape(variable)
        if variable in self.tiles.layouts:
            shape = (self.mesh.size * shape[0], *shape[1:])
        return jax.ShapeDtypeStruct(shape, variable.dtype)

    def blank(self, variable: Variable) -> Array:
        """The stored form of a variable that has no value yet: zeros."""
        kind = self.held_type(variable)
        return self._on_mesh(np.zeros(kind.shape, kind.dtype), self.spec(variable))

    # --- compiling ----------------------------------------------------------------------------------------

    def _compile(
        self,
        function: Callable[..., list[Array]],
        structs: Sequence[jax.ShapeDtypeStruct],
        given: Sequence[PartitionSpec],
        made: Sequence[PartitionSpec],
        **how: Any,
    ) -> jax_core.ClosedJaxpr:
        """The jaxpr of a function that every device runs, of arrays of these shapes and dtypes; see `over_mesh`."""
        parts = [self._part(struct, spec) for struct, spec in zip(structs, given, strict=True)]
        return jax.make_jaxpr(over_mesh(function, self.tiles, self.mesh, parts, given, made, **how))(*structs)

    def _part(self, struct: jax.ShapeDtypeStruct, spec: PartitionSpec) -> jax.ShapeDtypeStruct:
        """A device's part of an array."""
        rows = struct.shape[0] // self.mesh.size if spec == self.by_rows else None
        return struct if rows is None else jax.ShapeDtypeStruct((rows, *struct.shape[1:]), struct.dtype)

    def compile_held(self, plan: Plan) -> jax_core.ClosedJaxpr:
        """The jaxpr of a checked plan from the stored form of its inputs to that of its outputs."""
        structs = [*map(self.held_type, plan.inputs), *fed_types(plan)]
        given = [*map(self.spec, plan.inputs), *(EVERYWHERE for _ in structs[len(plan.inputs) :])]
        made = [
            self.spec(tensor.source) if tensor.is_whole_variable else EVERYWHERE  # type: ignore[arg-type]
            for tensor in plan.outputs
        ]
        return self._compile(emit(plan, self.tiles), structs, given, made)

    def compile_logical(self, plan: Plan) -> jax_core.ClosedJaxpr:
        """The jaxpr of a checked plan from the values of its inputs, on all devices, to those of its outputs.

        It raises itself where the program aborts. In several processes tables are constants of it: under `jax.jit` what
        a function closes over is of its process.
        """
        structs, holds = logical_types(plan), len(processes_of(self.mesh)) == 1
        run, cut, messages = logical(plan, self.tiles), [EVERYWHERE] * len(structs), messages_of(plan)
        return self._compile(run, structs, cut, [], messages=messages, holds=holds)
