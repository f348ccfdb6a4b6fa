"""The job `codelet build`: a network's training step, or any function of JAX, as a graph, and what it costs.

In comes the name of a network of `codelet/models/networks.py`, or `package.module:function`: a function that is called
without arguments (with `batch=N` where a batch is given) and returns what `cl.trace` takes, a function of JAX and
examples of its arguments. Out come its counts, the memory of the tiles, what each layer costs in the forward pass, the
backward pass and the update, and the time that every stage took.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from codelet.errors import SizeError
from codelet.graphs.family import counted
from codelet.target import Target
from codelet.views.sources import source_variables
from ipu_backend.jobs.adjoint import Step, asked_step, stages_of
from ipu_backend.jobs.layers import Layer, layer_table, layers_of
from ipu_backend.model.ipu import IPU
from ipu_backend.model.profile import Profile
from ipu_backend.model.profile_plan import profile_machine
from lowering.check.check import check
from lowering.pipeline import compile_fast, plan_fast, plan_machine
from lowering.plan.collect import collect
from lowering.plan.dataflow import flow
from lowering.plan.plan import Plan

STAGES = ("trace", "plan", "check", "lower", "profile")
ADJOINT_STAGES = ("trace", "differentiate", *STAGES[1:])


@dataclass(frozen=True)
class MemoryUse:
    """Bytes taken of the tiles' memories, what part of all memory that is, and how many tiles cannot hold theirs.

    All of it as of what keeps its memory from run to run, which `kept` says.
    """

    fullest_tile: int
    fullest_tile_bytes: int
    mean_tile_bytes: float
    bytes_per_tile: int
    share: float
    tiles_over: int
    kept: str


@dataclass(frozen=True)
class BuildResult:
    """What a graph came to.

    Attributes:
        name: as it was given.
        vertices, edges, variables, compute_sets, functions: how many there are, those of a function once.
        tiles: of the machine.
        memory: None where the graph is too large for this computer to plan it on the machine.
        cycles: of the program; None there, too.
        layers: those that take the most first.
        seconds: by stage.
        unprofiled: why there is no profile.
    """

    name: str
    vertices: int
    edges: int
    variables: int
    compute_sets: int
    functions: int
    tiles: int
    memory: MemoryUse | None
    cycles: int | None
    layers: tuple[Layer, ...]
    seconds: Mapping[str, float]
    unprofiled: str = ""

    def as_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        return asdict(self)

    def __str__(self) -> str:
        counts = ("vertices", "edges", "variables", "compute sets", "functions")
        lines = [f"{self.name}: " + ", ".join(f"{getattr(self, own.replace(' ', '_')):,} {own}" for own in counts)]
        if self.memory is None:
            lines.append(f"no profile: {self.unprofiled}")
        else:
            own = self.memory
            full = own.fullest_tile_bytes / own.bytes_per_tile
            lines.append(
                f"memory of {self.tiles:,} tiles: {own.share:.1%}; a tile has {own.mean_tile_bytes:,.0f} bytes in the "
                f"mean, tile {own.fullest_tile} the most: {own.fullest_tile_bytes:,} of {own.bytes_per_tile:,} "
                f"({full:.1%})"
            )
            lines.append(f"of it, {own.kept}")
            if own.tiles_over:
                lines.append(f"out of memory: {counted(own.tiles_over, 'tile', 'tiles')} would hold more than there is")
            lines.append(f"cycles: {self.cycles:,}")
            lines += layer_table(self.layers, self.cycles or 0)
        lines.append("seconds: " + ", ".join(f"{name} {taken:.1f}" for name, taken in self.seconds.items()))
        return "\n".join(lines)


def _profile(plan: Plan, step: Step) -> Profile:
    """What it costs where what goes in and comes out keeps its memory, as that of the host's or of the next step.

    What the tiles cannot hold is counted all the same.

    Raises:
        SizeError: planning it would take more memory than this computer has.
    """
    keep = list(
        dict.fromkeys(variable for own in (*step.inputs, *step.outputs) for variable in source_variables(own.source))
    )
    return profile_machine(plan_machine(plan, keep=keep, allow_out_of_memory=True))


def build(
    name: str,
    *,
    grain: int | None = None,
    target: Target | None = None,
    batch: int | None = None,
    adjoint: bool = False,
) -> BuildResult:
    """Trace a network's training step or another function, lower it, and profile it.

    Args:
        name: as `find_function` takes it.
        grain: as `cl.trace` takes it.
        target: the machine; default: an IPU.
        batch: as `find_function` takes it.
        adjoint: as `asked_step` takes it.

    Raises:
        BuildError: a name that nothing has.
        ProgramError: nothing that can be differentiated, where that is asked for.
    """
    target = IPU() if target is None else target
    stages = stages_of(adjoint, *STAGES[1:])
    _, step = asked_step(name, stages, grain=grain, batch=batch, target=target, adjoint=adjoint)
    graph = step.graph
    with stages.stage("plan"):
        sources = tuple(source_variables(own.source)[0] for own in step.inputs)
        plan = flow(collect(graph, step.program, sources, step.outputs))
    with stages.stage("check"):
        plan = check(plan)
    with stages.stage("lower"):
        compile_fast(plan_fast(plan))
    profile, unprofiled = None, ""
    try:
        with stages.stage("profile"):
            profile = _profile(plan, step)
    except SizeError as error:
        unprofiled = error.problem
    counts = (graph.num_vertices, graph.num_edges, len(graph.sources), len(graph.compute_sets), len(graph.functions))
    if profile is None:
        return BuildResult(name, *counts, target.num_tiles, None, None, (), stages.seconds, unprofiled)
    by_tile = profile.memory_by_tile
    fullest = profile.fullest_tiles(1)[0]
    there = target.num_tiles * target.bytes_per_tile
    memory = MemoryUse(
        fullest,
        int(by_tile[fullest]),
        float(by_tile.mean()),
        target.bytes_per_tile,
        float(by_tile.sum() / there),
        int((by_tile > target.bytes_per_tile).sum()),
        profile.kept_text,
    )
    layers = layers_of(profile, graph)
    return BuildResult(name, *counts, target.num_tiles, memory, profile.total_cycles, layers, stages.seconds)
