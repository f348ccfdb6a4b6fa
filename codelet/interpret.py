"""The meaning of a graph: one vertex at a time, with NumPy and the codelets' own functions.

Every other way of running is tested against this one. It is never optimised: it must be plainly right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from codelet.errors import ReadWriteRaceError, SelfAliasError, UninitializedReadError, WriteRaceError
from codelet.family import ComputeSet
from codelet.graph import Graph
from codelet.program import Copy, Execute, Program, Recording, Repeat, check_program
from codelet.program import Sequence as ProgramSequence
from codelet.tensor import Tensor
from codelet.vertices import Vertex, family_vertices, gather


class _Memory:
    """The values of all elements, and whether anything has given them one."""

    def __init__(self, graph: Graph, values: Mapping[str, Any]):
        self.graph = graph
        self.arrays: dict[int, np.ndarray] = {}
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
            raise UninitializedReadError(f"{missing} is read by {by} before anything has given it a value")
        return gather(self.arrays, tensor)

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
            memory.write(destination, memory.read(source, program))
        case Repeat(count, body, index):
            for turn in range(count):
                if index is not None:
                    memory.write(index, np.asarray(turn, index.dtype))
                _run(memory, body)
        case _:
            raise AssertionError(program)


def interpret(
    graph: Graph, values: Mapping[str, Any], outputs: Sequence[Tensor | str], program: Program | None = None
) -> dict[str, np.ndarray]:
    """Run a graph one vertex at a time.

    Args:
        graph: what to run.
        values: an array for each variable that is given a value, by name.
        outputs: the variables to return, whole, by tensor or name.
        program: what to run when; all compute sets in the order they were added when left off.

    Returns:
        The values of the outputs, by name.

    Raises:
        UninitializedReadError, WriteRaceError, ReadWriteRaceError, SelfAliasError: as the graph deserves.

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
    for output in outputs:
        tensor = graph.variable(output) if isinstance(output, str) else output
        variable = tensor.source
        results[variable.name] = memory.read(graph.variable(variable.name), "the caller")  # type: ignore[union-attr]
    return results
