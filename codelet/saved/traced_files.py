"""Traced functions in files: the graph and its program, and how arguments and results lie in them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from codelet.errors import ArrayError, SavingError
from codelet.frontends.arguments import Convention, Flat, type_of
from codelet.frontends.passes.fuse_elementwise import Saved
from codelet.frontends.traced import Traced, TracedGraph, as_held
from codelet.frontends.values import returned
from codelet.jaxprs.plain import NotPlainError, Plain, check_form, dtype_name, dtype_named, listed, mapped, text, whole
from codelet.jaxprs.strict_json import written_json
from codelet.saved.archive import UNCUT, Archive, archive_bytes, parsed_archive
from codelet.saved.graph_files import FileReader, graph_parts, read_safely, write_element_traces
from codelet.saved.graph_reader import GraphReader
from codelet.saved.graph_writer import GraphWriter
from codelet.saved.tree_forms import SavedTree, by_path, read_tree, saved_tree
from codelet.tracing.saved_codelets import UnsavedValue
from codelet.views.tensor import Tensor

NAMES = ("program", "name", "arguments", "results", "jaxpr", "fusion", "result_types")

_OF_UNCUT = ("program", "inputs", "outputs")

# --- writing ----------------------------------------------------------------------------------------------------


def _static(writer: GraphWriter, value: Any) -> Plain:
    try:
        return ["value", writer.jaxprs.value(value)]
    except NotPlainError:
        return ["text", UnsavedValue.of(value).text]


def _flat(writer: GraphWriter, flat: Flat, tensors: Sequence[Tensor]) -> Plain:
    leaves = []
    for leaf in flat.leaves:
        if leaf.is_array:
            kind = type_of(leaf.value)
            item: Plain = ["array", [[int(n) for n in kind.shape], dtype_name(kind.dtype), bool(kind.weak_type)]]
        else:
            item = _static(writer, leaf.value)
        leaves.append(item)
    return {
        "tree": saved_tree(flat).plain,
        "leaves": leaves,
        "tensors": [writer.views.tensor(tensor) for tensor in tensors],
    }


def _jaxpr(writer: GraphWriter, traced: Traced) -> Plain:
    """The traced jaxpr, where it can be written: it is of use to readers alone."""
    try:
        return writer.jaxprs.jaxpr(traced.jaxpr)
    except NotPlainError:
        return None


def _uncut(writer: GraphWriter, own: TracedGraph) -> Plain:
    """An uncut graph with its ends, beside the vertices that a writer writes."""

    def ends() -> dict[str, Plain]:
        views = [[beside.views.tensor(tensor) for tensor in each] for each in (own.inputs, own.outputs)]
        return dict(zip(_OF_UNCUT, (beside.programs.program(own.program), *views), strict=True))

    beside = GraphWriter(own.graph, writer)
    plain = beside.plain(ends)
    write_element_traces(beside)
    return {name: item for name, item in plain.items() if name != "lines"}


def traced_parts(traced: Traced) -> dict[str, list[Any]]:
    """The parts of a file of a traced function.

    Raises:
        SavingError: something that files have no form for.
    """
    found: dict[str, Plain] = {}

    def more(writer: GraphWriter) -> dict[str, Plain]:
        if traced.uncut is not traced.cut:
            found[UNCUT] = _uncut(writer, traced.uncut)
        arguments, results = traced._arguments, traced._results
        types = [[list(aval.shape), dtype_name(aval.dtype), bool(aval.weak_type)] for aval in traced._result_types]
        fusion = traced.fusion
        return {
            "program": writer.program(traced.program),
            "name": traced.__name__,
            "arguments": _flat(writer, arguments, traced.flat_inputs),
            "results": _flat(writer, results, traced.flat_outputs),
            "jaxpr": _jaxpr(writer, traced),
            "fusion": [int(fusion.compute_sets), int(fusion.memory_words), int(fusion.exchange_words)],
            "result_types": types,
        }

    parts = graph_parts(traced.graph, more)
    return {**parts, **{name: [written_json(plain)] for name, plain in found.items()}}


# --- reading ----------------------------------------------------------------------------------------------------


class _Arguments:
    """How arguments, or results, lie: their structure, and their leaves by path."""

    def __init__(self, plain: Plain, reader: Any):
        parts = mapped(plain, "tree", "leaves", "tensors")
        self.tree: SavedTree = read_tree(parts["tree"])
        self.paths = self.tree.paths()
        self.arrays: dict[str, jax.ShapeDtypeStruct] = {}
        self.statics: dict[str, Any] = {}
        for path, item in zip(self.paths, listed(parts["leaves"], self.tree.count), strict=True):
            kind, value = listed(item, 2)
            if kind == "array":
                self.arrays[path] = _struct(value)
            else:
                check_form(kind in ("value", "text"), "a leaf of a pytree")
                self.statics[path] = reader.values.value(value) if kind == "value" else UnsavedValue(text(value))
        check_form(len(set(self.paths)) == len(self.paths), "a path that is there twice")
        self.tensors = tuple(reader.tensor(item) for item in listed(parts["tensors"], len(self.arrays)))

    def filled(self, arrays: Sequence[Any]) -> Any:
        """The pytree of some arrays."""
        by_name = {**self.statics, **dict(zip(self.arrays, arrays, strict=True))}
        return self.tree.filled(iter([by_name[path] for path in self.paths]))


def _struct(plain: Plain) -> jax.ShapeDtypeStruct:
    shape, dtype, weak = listed(plain, 3)
    check_form(type(weak) is bool, "the type of an array")
    return jax.ShapeDtypeStruct(tuple(whole(n) for n in listed(shape)), dtype_named(dtype), weak_type=weak)


def _graph_of(graphs: GraphReader, program: Plain, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> TracedGraph:
    """A graph that was read, with its ends."""
    check_form(all(tensor.is_whole_variable for tensor in inputs), "an argument that is no variable")
    return TracedGraph(graphs.graph, graphs.program(program), tuple(inputs), tuple(outputs))


def _read_uncut(reader: FileReader, plain: Plain, cut: TracedGraph) -> TracedGraph:
    """The uncut graph of a file, whose ends are of the types of the vertices'."""
    graphs = reader.another(plain)
    assert isinstance(plain, dict)
    check_form({*_OF_UNCUT} <= plain.keys(), "the ends of an uncut graph")
    program, *views = (plain[name] for name in _OF_UNCUT)
    found = _graph_of(graphs, program, *(list(map(graphs.tensor, listed(own))) for own in views))
    types = [[[(own.shape, own.dtype) for own in ends] for ends in each[2:]] for each in (found, cut)]
    check_form(types[0] == types[1], "the ends of an uncut graph")
    return found


class SavedTraced(Traced):
    """A traced function that was read from a file. Call it as the function that was traced.

    Arguments may be in any pytrees with the same paths. Results that came in objects of a class come in dicts.
    """

    def __init__(self, reader: FileReader, uncut: Plain, read_jaxpr: Callable[[], Any]):
        beside, graphs = reader.beside, reader.reader
        self._own_arguments = _Arguments(beside["arguments"], graphs)
        self._own_results = _Arguments(beside["results"], graphs)
        cut = _graph_of(graphs, beside["program"], self._own_arguments.tensors, self._own_results.tensors)
        self._cut, self._cutting = cut, threading.Lock()
        self.uncut = cut if uncut is None else _read_uncut(reader, uncut, cut)
        self._types = [_struct(item) for item in listed(beside["result_types"], len(cut.outputs))]
        self.fusion = Saved(*(whole(item, -(1 << 62)) for item in listed(beside["fusion"], 3)))
        self.__name__ = text(beside["name"], 1000)
        self.__doc__ = None
        self.function = self.__call__
        self._convention = Convention(self.__name__, None, len(self._own_arguments.tree.children), frozenset())
        self._lowered: dict[str, Any] = {}
        self._read_jaxpr, self._jaxpr = read_jaxpr, None

    @property
    def jaxpr(self) -> Any:  # type: ignore[override]
        """The traced jaxpr.

        Raises:
            SavingError: it was not written, since files have no form for something in it.
        """
        if self._jaxpr is None:
            self._jaxpr = self._read_jaxpr()
        return self._jaxpr

    @property
    def _result_types(self) -> Sequence[Any]:
        return self._types

    @property
    def inputs(self) -> Any:
        return self._own_arguments.filled(self.flat_inputs)

    @property
    def outputs(self) -> Any:
        return self._own_results.filled(self.flat_outputs)

    def _given(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> list[Any]:
        item, passed = self._own_arguments, by_path((*arguments, dict(keywords)) if keywords else arguments)
        if passed.keys() != {*item.paths}:
            raise ArrayError(
                f"the arguments of the traced function {self.__name__!r} have other paths than it was traced for",
                given=", ".join([*passed][:8]),
                expected=", ".join(item.paths[:8]),
                fix="pytrees whose leaves have these paths",
            )
        result = []
        for path, kind in item.arrays.items():
            if jnp.shape(passed[path]) != kind.shape:
                raise ArrayError(
                    f"an argument of the traced function {self.__name__!r} is of another type than it was traced for",
                    given=f"{path}: {type_of(passed[path])}",
                    expected=f"{kind}",
                )
            result.append(as_held(passed[path], kind.dtype))
        return result

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Run the graph on arguments of the function.

        Args:
            arguments: arrays in pytrees, as those that were traced.
            keywords: the same, by keyword.

        Raises:
            ArrayError: arguments of other structure or shapes than those that were traced.
        """
        results = self.lowered.flat(self._given(arguments, keywords))
        return self._own_results.filled([returned(item, kind) for item, kind in zip(results, self._types, strict=True)])


def read_traced(path: object, archive: Archive) -> SavedTraced:
    """The traced function of a file."""
    reader = FileReader(archive, *NAMES)
    plain = reader.beside["jaxpr"]

    def read_jaxpr() -> Any:
        if plain is None:
            raise SavingError(
                "a file has no jaxpr of its traced function",
                given=f"{path!s}",
                expected="a function of JAX's public primitives",
                fix="traced.lowered.jaxpr is that of its graph",
            )
        return read_safely(path, lambda: reader.reader.values.closed(plain))

    return SavedTraced(reader, archive.json(UNCUT) if UNCUT in archive.parts else None, read_jaxpr)


# --- pickles ----------------------------------------------------------------------------------------------------


def bytes_of_traced(traced: Traced) -> bytes:
    """A traced function as the bytes of a file, for a pickle.

    Raises:
        SavingError: something that files have no form for.
    """
    return archive_bytes("traced", traced_parts(traced))


def traced_of_bytes(data: bytes) -> SavedTraced:
    """The traced function of a pickle."""
    place = "of a pickle"
    archive = parsed_archive(place, data)
    return read_safely(place, lambda: read_traced(place, archive))
