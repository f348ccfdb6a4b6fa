"""The meaning of a graph: one vertex at a time, with NumPy and the codelets' own functions.

Every other way of running is tested against this one. It is never optimised: it must be plainly right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from codelet.errors import (
    ProgramAbortedError,
    ReadWriteRaceError,
    SelfAliasError,
    StreamError,
    UninitializedReadError,
    WriteRaceError,
)
from codelet.family import ComputeSet
from codelet.graph import Graph
from codelet.program import (
    AbortOn,
    Call,
    Copy,
    Execute,
    If,
    Print,
    Program,
    Recording,
    Repeat,
    RepeatWhile,
    Stream,
    Switch,
    WriteUndef,
    check_program,
    too_many_turns,
    written_variables,
)
from codelet.program import Sequence as ProgramSequence
from codelet.tensor import Tensor
from codelet.vertices import Vertex, family_vertices, gather


class _Memory:
    """The values of all elements, and whether anything has given them one."""

    def __init__(self, graph: Graph, values: Mapping[str, Any]):
        self.graph = graph
        self.arrays: dict[int, np.ndarray] = {}
        self.incoming = {s: iter(np.asarray(values[s.name], s.dtype)) for s in graph.streams if s.name in values}
        self.outgoing: dict[Stream, list[np.ndarray]] = {s: [] for s in graph.streams if not s.is_input}
        self.written = np.zeros(sum(variable.size + 1 for variable in graph.variables), bool)
        for variable in graph.variables:
            given = variable.value if variable.value is not None else values.get(variable.name)
            array = np.zeros(variable.size, variable.dtype)
            if given is not None:
                array[:] = np.asarray(given, variable.dtype).reshape(-1)
                self.written[variable.first_element : variable.first_element + variable.size] = True
            self.arrays[variable.first_element] = array

    def read(self, tensor: Tensor, by: object) -> np.ndarray:
        elements = tensor.elements()
        elements = elements[elements >= 0]  # padding holds its value from the start
        if not self.written[elements].all():
            missing = self.graph.element_text(int(elements[~self.written[elements]][0]))
            vertex = by if isinstance(by, Vertex) else None
            if vertex is not None:
                family = vertex.family
                by = f"a vertex of codelet {family.codelet.name!r} in compute set {family.compute_set.name!r}"
            line = None if vertex is None else vertex.line
            raise UninitializedReadError(
                f"{missing} is read by {by} before anything has given it a value", given=vertex, line=line
            )
        return gather(self.arrays, tensor)

    def receive(self, stream: Stream) -> np.ndarray:
        value = next(self.incoming.get(stream, iter(())), None)
        if value is None:
            raise StreamError(f"stream {stream.name!r} has no more values")
        return value

    def bind(self, source: Tensor, destination: Tensor) -> None:
        """Copy values, and whether there are any."""
        values = gather(self.arrays, source).reshape(-1)
        for a, b, value in zip(source.elements().flat, destination.elements().flat, values, strict=True):
            variable, position = self.graph.locate(int(b))
            self.arrays[variable.first_element][position] = value
            self.written[b] = self.written[a] if a >= 0 else True

    def forget(self, tensor: Tensor) -> None:
        elements = tensor.elements()
        self.written[elements[elements >= 0]] = False

    def write(self, tensor: Tensor, values: np.ndarray) -> None:
        for element, value in zip(tensor.elements().reshape(-1).tolist(), values.reshape(-1), strict=True):
            variable, position = self.graph.locate(element)
            self.arrays[variable.first_element][position] = value
            self.written[element] = True


def _check_vertices(graph: Graph, vertices: Sequence[Vertex]) -> None:
    """The rules of a compute set, by looking at every element of every vertex."""
    writer: dict[int, Vertex] = {}
    for vertex in vertices:
        own: set[int] = set()
        for field in vertex.family.fields:
            if field.is_written:
                elements = vertex.fields[field.name].elements().reshape(-1).tolist()
                if len(set(elements)) < len(elements) or own & set(elements):
                    raise SelfAliasError(f"{vertex} writes an element twice")
                own.update(elements)
        for element in own:
            if element in writer:
                raise WriteRaceError(f"{graph.element_text(element)} is written by {writer[element]} and {vertex}")
            writer[element] = vertex
    for vertex in vertices:
        for field in vertex.family.fields:
            if field.is_read:
                for element in vertex.fields[field.name].elements().reshape(-1).tolist():
                    if writer.get(element, vertex) != vertex:
                        raise ReadWriteRaceError(
                            f"{graph.element_text(element)} is written by {writer[element]} and read by {vertex}"
                        )


def _execute(memory: _Memory, compute_set: ComputeSet) -> None:
    families = [family for family in memory.graph.families if family.compute_set is compute_set]
    vertices = [vertex for family in families for vertex in family_vertices(family)]
    _check_vertices(memory.graph, vertices)
    # All vertices read the state as it was before; then all write.
    results = [vertex.call(lambda tensor, by=vertex: memory.read(tensor, by)) for vertex in vertices]
    for vertex, result in zip(vertices, results, strict=True):
        for name, value in result.items():
            memory.write(vertex.fields[name], value)


def _target(copy: Copy) -> str:
    """What a copy reads its source for, in an error."""
    to = f"stream {copy.destination.name!r}" if isinstance(copy.destination, Stream) else copy.destination
    return f"a copy to {to}"


def _run(memory: _Memory, program: Program) -> None:
    match program:
        case Execute(compute_set):
            _execute(memory, compute_set)
        case Recording():
            for compute_set in program.compute_sets:
                _execute(memory, compute_set)
        case ProgramSequence(programs):
            for part in programs:
                _run(memory, part)
        case Copy(source, destination):
            value = memory.receive(source) if isinstance(source, Stream) else memory.read(source, _target(program))
            if isinstance(destination, Stream):
                memory.outgoing[destination].append(value)
            else:
                memory.write(destination, value)
        case Repeat(count, body, index):
            for turn in range(count):
                if index is not None:
                    memory.write(index, np.asarray(turn, index.dtype))
                _run(memory, body)
        case RepeatWhile(condition, predicate, body):
            turns = 0
            _run(memory, condition)
            while bool(memory.read(predicate, "the predicate of a loop")) != program.until:
                if turns == program.max_steps:
                    raise ProgramAbortedError(too_many_turns(predicate, turns))
                _run(memory, body)
                _run(memory, condition)
                turns += 1
        case If(predicate, then, otherwise):
            _run(memory, then if memory.read(predicate, "a choice between programs") else otherwise)
        case Switch(control, cases, default):
            _run(memory, cases.get(int(memory.read(control, "a choice between programs")), default))
        case Call(function, arguments):
            for name, parameter in function.parameters.items():
                memory.bind(arguments[name], parameter)
            _run(memory, function.body)
            written = written_variables(function.body)
            for name, parameter in function.parameters.items():
                if parameter.source in written:
                    memory.bind(parameter, arguments[name])
            for parameter in function.parameters.values():
                memory.forget(parameter)
        case Print(tensor):
            print(f"{program.text}: {memory.read(tensor, 'a print')}")
        case AbortOn(predicate, message):
            if memory.read(predicate, "the predicate of an abort"):
                raise ProgramAbortedError(message)
        case WriteUndef(tensor):
            memory.forget(tensor)
        case _:
            raise AssertionError(program)


def interpret(
    graph: Graph, values: Mapping[str, Any], outputs: Sequence[Tensor | Stream | str], program: Program | None = None
) -> dict[str, np.ndarray]:
    """Run a graph one vertex at a time.

    Args:
        graph: what to run.
        values: an array for each variable that is given a value, by name; for each input stream its values,
            stacked along a first axis.
        outputs: the variables to return, whole, by tensor or name; and output streams, for all their values.
        program: what to run when; all compute sets in the order they were added when left off.

    Returns:
        The values of the outputs, by name.

    Raises:
        UninitializedReadError, WriteRaceError, ReadWriteRaceError, SelfAliasError: as the graph deserves.
        ProgramAbortedError, StreamError: as the program does.

    >>> import codelet as cl, numpy as np
    >>> @cl.codelet
    ... def double(x):
    ...     return 2 * x
    >>> graph = cl.Graph()
    >>> x = graph.add_variable("x", (3,))
    >>> y = graph.add_variable("y", (3,))
    >>> i = cl.grid(3)
    >>> graph.add_vertex("double", double, x=x[i], out=y[2 - i])
    >>> cl.interpret(graph, {"x": np.arange(3.0)}, [y])["y"].tolist()
    [4.0, 2.0, 0.0]
    """
    program = graph.default_program if program is None else program
    check_program(program, graph)
    memory = _Memory(graph, values)
    _run(memory, program)
    results = {}
    sent = {stream.name: stream for stream in memory.outgoing}
    for output in outputs:
        stream = sent.get(output) if isinstance(output, str) else output
        if isinstance(stream, Stream):
            results[stream.name] = np.reshape(memory.outgoing[stream], (-1, *stream.shape)).astype(stream.dtype)
            continue
        tensor = graph.variable(output) if isinstance(output, str) else output
        assert isinstance(tensor, Tensor)
        variable = tensor.source
        results[variable.name] = memory.read(graph.variable(variable.name), "the caller")  # type: ignore[union-attr]
    return results
