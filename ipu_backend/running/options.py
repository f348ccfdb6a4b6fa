"""Options: what an engine can be made with and asked for, each mistake told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jax.sharding import Mesh

from codelet.errors import ProgramError, TileError
from codelet.frontends.traced import Traced
from codelet.graphs.graph import Graph
from codelet.schema import is_whole
from ipu_backend.running.saved_mesh import SavedMesh
from lowering.machine.place import METHODS, is_method
from lowering.mesh.checked_mesh import checked_mesh


def checked_options(
    graph: object, program: object, execution: object, placement: object, stream_bytes: object
) -> tuple[Graph, object]:
    """The graph and the program of an engine: of a traced function its own, unless another program is given.

    Raises:
        ProgramError: something that is no graph, or an option that there is not.
    """
    if isinstance(graph, Traced):
        graph, program = graph.graph, graph.program if program is None else program
    if not isinstance(graph, Graph):
        raise ProgramError(
            "an engine is made of something other than a graph",
            given=f"{type(graph).__name__}: {graph!r:.80}",
            expected="a cl.Graph, and what of it is to run, or a cl.Traced",
            fix="call what builds it first: graph = cl.Graph(); build(graph, ...)" if callable(graph) else None,
        )
    if not isinstance(execution, str) or execution not in ("fused", "tiles", "addresses"):
        raise ProgramError(
            "there is no such execution", given=f"{execution=!r}", expected="'fused', 'tiles' or 'addresses'"
        )
    if not is_method(placement) and not callable(placement):
        raise ProgramError(
            "there is no such placement",
            given=f"{placement=!r}",
            expected=f"{', '.join(map(repr, METHODS))}, or a function from a plan to its placement",
        )
    if not is_whole(stream_bytes, 1):
        raise ProgramError(
            "the host cannot hold so many bytes of streams", given=f"{stream_bytes=!r}", expected="a number of bytes"
        )
    return graph, program


def engine_mesh(mesh: object, execution: str) -> Mesh | None:
    """The mesh of an engine, which may be one as it is pickled; None for one device.

    Raises:
        SavingError: one of devices that are not here.
        ProgramError: something that is no mesh of this process's devices, or an execution that runs on one device.
    """
    if mesh is not None and execution == "addresses" and isinstance(mesh, Mesh):
        raise ProgramError(
            f"execution={execution!r} runs on one device",
            given=f"{mesh=!r:.120}",
            expected="an execution that takes a mesh: 'fused' or 'tiles'",
            fix="cl.Engine(graph, mesh=mesh)",
        )
    return checked_mesh(mesh.restored() if isinstance(mesh, SavedMesh) else mesh, "an engine's")


def check_tile(tile: object, num_tiles: int) -> None:
    """See that there is a tile of a number.

    Raises:
        TileError: there is none.
    """
    if not is_whole(tile) or not 0 <= tile < num_tiles:
        raise TileError("there is no such tile", given=tile, expected=f"a number from 0 to {num_tiles - 1}")


def named_programs(given: object) -> Mapping[str, object]:
    """Programs by name.

    Raises:
        ProgramError: no program, or a name that is none.
    """
    if not isinstance(given, Mapping):
        return {"main": given}
    if not given or not all(isinstance(name, str) for name in given):
        raise ProgramError(
            "an engine's programs have no names" if given else "an engine is given no programs",
            given=f"{given!r:.80}",
            expected="a dict of at least one, by name",
        )
    return given


def chosen_program(programs: Mapping[str, Any], name: object) -> Any:
    """One of several programs by name, or the only one.

    Raises:
        ProgramError: a name that none has, or none where there are several.
    """
    if name is None and len(programs) == 1:
        return next(iter(programs.values()))
    if not isinstance(name, str) or name not in programs:
        problem = "the engine has several programs" if name is None else "the engine has no such program"
        raise ProgramError(problem, given=name, expected=f"the name of one: {' or '.join(map(repr, programs))}")
    return programs[name]
