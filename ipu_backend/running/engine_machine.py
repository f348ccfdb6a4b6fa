"""The machine side of an engine: where all its programs' variables live on tiles, and how programs run and cost there.

In come the loaded programs, an execution by name, and how the engine places what the graph leaves without a tile. Out
come plans on the machine, its memory, and functions that run as the engine does. All programs share one placement.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from jax.extend import core as jax_core
from jax.sharding import Mesh

from codelet.graphs.by_tensor import key_of
from codelet.views.sources import Variable
from ipu_backend.executions.mesh_tiles import MeshTiles
from ipu_backend.executions.tile_addresses import compile_addresses
from ipu_backend.executions.tile_array import TileArray, digest
from ipu_backend.running.runs import LoadedProgram
from ipu_backend.running.streaming import Together
from lowering.check.check import check
from lowering.fast.execution import Execution
from lowering.lower import Lowered, lower_graph, lower_plan, named_ends
from lowering.machine.exchange import Exchange
from lowering.machine.memory import Memory
from lowering.machine.place import Place, place
from lowering.machine.placed_by import placed_by
from lowering.machine.placement import Placement
from lowering.mesh.mesh_fused import MeshFused
from lowering.mesh.processes import check_alike
from lowering.pipeline import MachinePlan, plan_machine
from lowering.plan.plan import Plan
from lowering.plan.timeline import without_calls


class EngineMachine:
    """The programs of an engine on the machine.

    Args:
        programs: by name; each is told how it is compiled, where the execution is not the fused one.
        execution: `"fused"`, `"tiles"` or `"addresses"`.
        placement: how what the graph leaves without a tile is placed.
        mesh: the devices that variables, or tiles, are dealt to; default: one device.

    Attributes:
        execution: how values are stored.
        waits: whether a run has to be done before the next is dispatched, as over several devices of a CPU. There each
            device takes a thread while it waits for the others, and there are only as many as devices.
    """

    def __init__(
        self, programs: Mapping[str, LoadedProgram], execution: str, placement: Place, mesh: Mesh | None = None
    ):
        self._programs = programs
        self._placing: Place = placement
        self._is_fused = execution == "fused"
        self._mesh = mesh
        self.waits = mesh is not None and mesh.size > 1 and mesh.devices.flat[0].platform == "cpu"
        self.execution = Execution()
        if self._is_fused:
            if mesh is not None:
                self.execution = MeshFused(self._together, mesh)
                self._check_alike({name: loaded.plan for name, loaded in programs.items()})
                for loaded in programs.values():
                    loaded.execution, loaded.compile = self.execution, self.execution.compile_held
            return
        placed = self._placed
        if execution == "tiles":
            exchange = Exchange(placed)
            self.execution = TileArray(exchange) if mesh is None else MeshTiles(exchange, mesh)
            self._check_alike({name: loaded.plan for name, loaded in programs.items()})
        for loaded in programs.values():
            if isinstance(self.execution, TileArray | MeshTiles):
                loaded.execution = self.execution
                loaded.compile = self.execution.compile_held
            else:
                loaded.compile, loaded.splits = self._compile_addresses, False
                if not loaded.asks:
                    loaded.parts = (Together(loaded.plan.steps),)

    def _check_alike(self, plans: Mapping[str, Plan]) -> None:
        """See that all processes of the mesh are about to run the same, if there are several.

        Raises:
            ProcessesError: they are not.
        """
        if self._mesh is not None and isinstance(self.execution, MeshFused | MeshTiles):
            most = tuple(loaded.stream_bytes for loaded in self._programs.values())
            check_alike(self._mesh, plans, self.execution.where, most)

    @property
    def _together(self) -> Plan:
        """All programs, one after another."""
        plans = [loaded.plan for loaded in self._programs.values()]
        steps = tuple(step for plan in plans for step in plan.steps)
        inputs = dict.fromkeys(variable for plan in plans for variable in plan.inputs)
        outputs = {tensor.source: tensor for plan in plans for tensor in plan.outputs}
        return replace(plans[0], steps=steps, inputs=tuple(inputs), outputs=tuple(outputs.values()))

    @cached_property
    def _placed(self) -> Placement:
        """One placement of all programs, which share their variables."""
        together = without_calls(self._together)
        return placed_by(self._placing, together) if callable(self._placing) else place(together, self._placing)

    @property
    def placement(self) -> Placement:
        """Where everything lives by the engine's method: what `plan` starts from."""
        first, *others = self._programs.values()
        return self._placed if others or not self._is_fused else place(first.plan, self._placing)  # type: ignore[arg-type]

    def _compile_addresses(self, plan: Plan) -> jax_core.ClosedJaxpr:
        plan = without_calls(plan)
        return compile_addresses(plan, plan_machine(plan, replace(self._placed, plan=plan)))

    @cached_property
    def memory(self) -> Memory:
        """The memory in which every variable that the programs name is kept."""
        return plan_machine(self._placed.plan, self._placed, allow_out_of_memory=True).memory

    def plan(
        self, plan: Plan, how: Place | None, keep: Collection[Variable] | None, *, allow_out_of_memory: bool
    ) -> MachinePlan:
        """A program's plan on the machine, placed as all the programs of the engine are if it is not said how."""
        if how is None and self._is_fused and len(self._programs) == 1:
            how = self._placing
        if how is None:
            where = replace(self._placed, plan=without_calls(plan))
        else:
            where = placed_by(how, without_calls(plan)) if callable(how) else how
        return plan_machine(plan, where, keep=keep, allow_out_of_memory=allow_out_of_memory)

    def function(self, loaded: LoadedProgram, inputs: Any, outputs: Any) -> Lowered:
        """A program as a pure function of some variables and streams to others, run as the engine runs it."""
        graph, execution = loaded.plan.graph, self.execution
        if self._is_fused and not isinstance(execution, MeshFused):
            return lower_graph(graph, loaded.program, inputs, outputs)
        sources, targets = named_ends(graph, inputs, outputs)
        plan, names = check(replace(loaded.plan, inputs=sources, outputs=targets)), tuple(map(key_of, targets))
        self._check_alike({"main": plan})
        if isinstance(execution, TileArray | MeshTiles | MeshFused):
            raises = not isinstance(execution, TileArray)
            return lower_plan(plan, names, execution.compile_logical(plan), execution.key, raises=raises)
        return lower_plan(plan, names, self._compile_addresses(plan), ("addresses", digest(self._placed)))
