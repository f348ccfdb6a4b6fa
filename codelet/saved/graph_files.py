"""Graphs as parts of a file, with the parts beside them: a program, its inputs and outputs, arrays of state."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from codelet.errors import CodeletError, FileFormatError, SavingError
from codelet.graphs.graph import Graph
from codelet.jaxprs.plain import MalformedError, NotPlainError, Plain, check_form
from codelet.jaxprs.strict_json import written_json
from codelet.saved.archive import CODELETS, GRAPH, TENSORS, Archive, damaged
from codelet.saved.graph_reader import NAMES, GraphReader
from codelet.saved.graph_writer import GraphWriter
from codelet.saved.safetensors import read_arrays, written_arrays

_ARRAY = "array "

More = Callable[[GraphWriter], dict[str, Plain]]
"""Makes the parts of a file beside its graph."""


def graph_parts(graph: Graph, more: More, named: Mapping[str, np.ndarray] | None = None) -> dict[str, list[Any]]:
    """The parts of a file of a graph: by name, piece by piece.

    Args:
        graph: the graph.
        more: makes the parts beside it.
        named: further arrays, by name.

    Raises:
        SavingError: something that files have no form for.
    """
    writer = GraphWriter(graph)
    try:
        plain = writer.plain(lambda: more(writer))
        write_element_traces(writer)
    except NotPlainError as error:
        raise SavingError(
            "a graph cannot be saved: it holds something that files have no form for",
            given=str(error),
            expected="numbers, arrays, text, and codelets of JAX's public primitives",
        ) from None
    arrays = {f"{_ARRAY}{k}": array for k, array in enumerate(writer.jaxprs.arrays)}
    return {
        GRAPH: [written_json(plain)],
        CODELETS: [written_json(writer.codelets.plain)],
        TENSORS: written_arrays({**arrays, **(named or {})}),
    }


def write_element_traces(writer: GraphWriter) -> None:
    """Write the codelets of elements that no vertex of a graph has, and that lowering asks for."""
    for traced in importlib.import_module("lowering.join.refine").element_traces(writer.graph):
        writer.codelets.trace(traced)


class FileReader:
    """The content of a file: its graph, the parts beside it, and arrays by name.

    Args:
        archive: its parts.
        names: the parts beside the graph.

    Attributes:
        reader: reads the parts that refer to the graph.
        beside: the parts beside the graph, by name.
        named: arrays by name.
    """

    def __init__(self, archive: Archive, *names: str):
        plain = archive.json(GRAPH)
        check_form(type(plain) is dict and plain.keys() == {*NAMES, *names}, "the parts of a graph")
        arrays = read_arrays(archive.parts[TENSORS])
        count = sum(name.startswith(_ARRAY) for name in arrays)
        check_form(all(f"{_ARRAY}{k}" in arrays for k in range(count)), "the numbers of arrays")
        self.named = {name: array for name, array in arrays.items() if not name.startswith(_ARRAY)}
        self._numbered = [arrays[f"{_ARRAY}{k}"] for k in range(count)]
        self._codelets = archive.json(CODELETS)
        self.beside = {name: plain[name] for name in names}
        self.reader = GraphReader(plain, self._codelets, self._numbered)

    def another(self, plain: Plain) -> GraphReader:
        """Reads another graph of the file, which shares arrays, lines and codelets with the first."""
        return GraphReader(plain, self._codelets, self._numbered, self.reader)


def read_safely(path: object, read: Callable[[], Any]) -> Any:
    """The result of a function on a file, which may be damaged in any way.

    Raises:
        FileFormatError: it is.
    """
    try:
        return read()
    except FileFormatError:
        raise
    except CodeletError as error:
        raise damaged(path, str(error).splitlines()[0][:200]) from error
    except MalformedError as error:
        raise damaged(path, f"{error!s:.200}") from error
    except Exception as error:  # whatever JAX, NumPy or Python raises for a number that no writer writes
        raise damaged(path, f"{type(error).__name__}: {error!s:.200}") from error
