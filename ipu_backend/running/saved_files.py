"""`cl.save` and `cl.load`: one file for a graph, a program, a traced or a lowered function, or an engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from codelet.errors import FileError, FileFormatError, SavingError
from codelet.frontends.traced import Traced
from codelet.graphs.graph import Graph
from codelet.jaxprs.plain import check_form
from codelet.programs.program import Program, as_program
from codelet.programs.walk import check_program
from codelet.saved.archive import Archive, read_archive, write_archive
from codelet.saved.graph_files import FileReader, graph_parts, read_safely
from codelet.saved.traced_files import read_traced, traced_parts
from codelet.saved.tree_forms import by_path
from codelet.schema import FLAG, accepts
from codelet.views.tensor import Tensor
from ipu_backend.running.engine import Engine
from ipu_backend.running.engine_files import engine_parts, read_engine
from lowering.exported import exported_parts
from lowering.lower import Lowered
from lowering.machine.searches import give_searches, search_parts
from lowering.saved_lowered import lowered_parts, read_lowered

Saveable = Graph | tuple[Graph, Any] | Traced | Lowered | Engine
"""What a file holds."""


def _program_parts(graph: Graph, program: Program | None) -> dict[str, list[Any]]:
    return graph_parts(graph, lambda writer: {"program": writer.program(program)})


def _parts(what: Any) -> tuple[str, dict[str, list[Any]]]:
    """What a file is to hold, and its parts.

    Raises:
        SavingError: something that files have no form for.
    """
    match what:
        case Engine():
            return "engine", engine_parts(what)
        case Lowered():
            return "lowered", lowered_parts(what)
        case Traced():
            return "traced", traced_parts(what)
        case Graph():
            return "graph", _program_parts(what, None)
        case (Graph() as graph, program):
            chosen = as_program(program)
            check_program(chosen, graph)
            return "graph", _program_parts(graph, chosen)
    raise SavingError(
        "there is no form of a file for this",
        given=f"{type(what).__name__}: {what!r:.80}",
        expected="a graph, (graph, program), what cl.trace or cl.lower returns, or an engine",
        fix="cl.save(path, run.at(*arguments)) of a lowered function that builds graphs" if callable(what) else None,
    )


def _planned(what: Any) -> Mapping[str, list[Any]]:
    """The parts of a file of how something is placed on the machine."""
    match what:
        case Engine():
            engine = what
        case Lowered():
            engine = Engine(what.graph, what.program)
        case (Graph() as graph, program):
            engine = Engine(graph, program)
        case _:
            engine = Engine(what)
    return search_parts(engine._machine.placement)


def _exported(what: Any, platforms: Sequence[str] | None, batched: Sequence[str]) -> Mapping[str, list[Any]]:
    """The parts of a file of an exported function.

    Raises:
        SavingError: something that is no function.
    """
    if isinstance(what, Traced):
        paths = [path or "result" for path, item in by_path(what.outputs).items() if isinstance(item, Tensor)]
        return exported_parts(what.lowered, platforms, batched, paths)
    if isinstance(what, Lowered):
        return exported_parts(what, platforms, batched)
    raise SavingError(
        "what is exported is no function",
        given=f"{what!r:.80}, with exported=True",
        expected="what cl.trace or cl.lower returns",
        fix="cl.save(path, cl.lower(graph, program, inputs=[...], outputs=[...]), exported=True)",
    )


@accepts(SavingError, exported=FLAG, planned=FLAG)
def save(
    path: str | os.PathLike[str],
    what: Any,
    *,
    exported: bool = False,
    platforms: Sequence[str] | None = None,
    batched: Sequence[str] = (),
    planned: bool = False,
) -> None:
    """Write a graph, a program, a traced or lowered function, or an engine to one file, which `cl.load` reads.

    The file is an uncompressed zip, `model.codelet` say. It holds families and never vertices, codelets as equations,
    and arrays. Nothing in it is run by reading it. It is written whole or not at all: an interrupted write, or a full
    disk, leaves the file that was there.

    Args:
        path: where, in a folder that is there.
        what: a `cl.Graph`; a graph and a program, `(graph, program)`; a `cl.Traced`; a `cl.Lowered` of one device; or
            a `cl.Engine` of one device, with its state.
        exported: also write the function as StableHLO, by `jax.export`, for machines without this library. Of a traced
            or a lowered function only.
        platforms: of the exported function: "cpu", "cuda", "tpu". Default: the one at hand.
        batched: names of arguments that get a first dimension of any size in the exported function, which is mapped
            over it. Default: none; its shapes are those of the graph.
        planned: also write which way to place it was found the best, so that a profile of what is read does not
            search for it. A reader of other sources searches all the same.

    Raises:
        SavingError: something that no file can hold, such as a codelet that calls Python; the error names its line.
        FileError: a path at which no file can be written, or a disk that is full.

    >>> import codelet as cl, os, tempfile
    >>> graph = cl.Graph(cl.IPU(num_tiles=4))
    >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
    >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cl.save(os.path.join(folder, "model.codelet"), graph)
    ...     again = cl.load(os.path.join(folder, "model.codelet"))
    >>> again, str(again) == str(graph)
    (<Graph: 4 vertices, 2 variables>, True)
    """
    contents, parts = _parts(what)
    if exported:
        parts = {**parts, **_exported(what, platforms, batched)}
    if planned:
        parts = {**parts, **_planned(what)}
    try:
        write_archive(path, contents, parts)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(
            "a file could not be written to its end; the one that was there is as it was",
            given=f"{path!r}: {error}",
            expected="a disk with room for it",
        ) from error


def _graph_of(read: Any) -> Graph:
    """The graph of what a file holds."""
    return read if isinstance(read, Graph) else read[0] if isinstance(read, tuple) else read.graph


def _read_graph(archive: Archive) -> Any:
    reader = FileReader(archive, "program")
    number = reader.beside["program"]
    check_form(not reader.named, "arrays without a use")
    return reader.reader.graph if number is None else (reader.reader.graph, reader.reader.program(number))


_READERS: Mapping[str, Callable[[Any, Archive], Any]] = {
    "graph": lambda path, archive: _read_graph(archive),
    "lowered": lambda path, archive: read_lowered(archive),
    "engine": lambda path, archive: read_engine(archive),
    "traced": read_traced,
}


def load(path: str | os.PathLike[str]) -> Any:
    """The content of a file that `cl.save` wrote. Reading a file runs nothing that is in it.

    Every part is compared with its digest first, and every number with its bounds. Codelets are read as equations of
    known primitives. Races between vertices are found where the graph is lowered, as of any graph.

    Args:
        path: of the file.

    Returns:
        A `cl.Graph`; a graph and a program; a traced function, which takes arguments in any pytree with the same paths;
            a `cl.Lowered`; or a `cl.Engine`, which goes on where it stopped.

    Raises:
        FileFormatError: a file that is damaged, that `cl.save` did not write, or that needs a newer release.

    >>> import codelet as cl, os, tempfile
    >>> graph = cl.Graph()
    >>> n = graph.add_variable("n", (), "int32")
    >>> graph.add_vertex("count", cl.codelet(lambda n: {"n": n + 1}), n=n)
    >>> engine = cl.Engine(graph)
    >>> engine.write({"n": 40}); engine.run()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cl.save(os.path.join(folder, "model.codelet"), engine)
    ...     other = cl.load(os.path.join(folder, "model.codelet"))
    >>> other.run(); other.read("n")
    array(42, dtype=int32)
    """
    archive = read_archive(path)
    if archive.contents not in _READERS:
        raise FileFormatError(
            f"the file {path!s} holds something that this release does not know",
            given=archive.contents,
            expected=", ".join(_READERS),
            fix="pip install --upgrade codelet-graphs",
        )

    def read() -> Any:
        result = _READERS[archive.contents](path, archive)
        if not isinstance(result, Engine):  # which has them since before it placed
            give_searches(_graph_of(result), archive)
        return result

    return read_safely(path, read)
