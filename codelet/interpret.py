"""The meaning of a graph: one vertex at a time, with NumPy and the codelets' functions or jaxprs.

Every other way of running is tested against this one. It is never optimised: it must be plainly right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from codelet.deprecated import old_order
from codelet.errors import (
    ArrayError,
    ForeignGraphError,
    Line,
    NotInGraphError,
    ProgramAbortedError,
    ProgramError,
    ReadWriteRaceError,
    SelfAliasError,
    StreamError,
    UninitializedReadError,
    WriteRaceError,
)
from codelet.graphs.by_tensor import Named, Results, by_name, key_of, several
from codelet.graphs.family import Family
from codelet.graphs.graph import Graph
from codelet.graphs.vertices import Vertex, family_vertices, gather
from codelet.hostdata import as_array
from codelet.programs.checks import check_variables
from codelet.programs.compute_sets import ComputeSet
from codelet.programs.control import If, Repeat, RepeatWhile, Switch, too_many_turns
from codelet.programs.copies import Copy, Stream
from codelet.programs.functions import Call
from codelet.programs.program import Execute, Program, Recording, as_program
from codelet.programs.program import Sequence as ProgramSequence
from codelet.programs.tensor_steps import AbortOn, Print, WriteUndef
from codelet.programs.walk import Touched, check_program
from codelet.tracing.traced_codelet import TracedCodelet
from codelet.tracing.unchanged import check_unchanged
from codelet.views.sources import Variable
from codelet.views.tensor import Tensor, views_padding


class _Values(NamedTuple):
    """All values of an input stream, stacked."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype


def check_names(graph: Graph, values: object) -> None:
    """See that values are given by the names of variables and input streams."""
    variables = {variable.name: variable for variable in graph.sources}
    taken = [name for name, variable in variables.items() if variable.value is None]
    taken += [stream.name for stream in graph.streams if stream.is_input]
    if not isinstance(values, Mapping):
        raise ArrayError(
            "values are given without names",
            given=type(values).__name__,
            expected=f"a dict of arrays by name, for any of {', '.join(taken) or 'none'}",
        )
    for name in values:
        if name not in taken:
            constant = isinstance(name, str) and name in variables
            problem = f"the host cannot write the constant {name!r}" if constant else "a value has the name of nothing"
            kind = ArrayError if constant else NotInGraphError
            raise kind(
                problem, given=f"{name!r:.80}", expected=f"the name of a variable or input stream: {', '.join(taken)}"
            )


def _check_apart(graph: Graph, tensors: Sequence[Tensor], what: str, line: Line | None) -> None:
    """Writes that happen at once, in no order, name no element twice, no constant's, and no padding."""
    for tensor in tensors:
        check_variables(tensor, what, line)
        if views_padding(tensor):
            raise ProgramError(f"{what} writes padding, which is an element of no variable", given=tensor, line=line)
    elements = [element for tensor in tensors for element in tensor.elements().reshape(-1).tolist()]
    seen: set[int] = set()
    for element in elements:
        if element in seen:
            raise SelfAliasError(f"{what} writes {graph.element_text(element)} twice", line=line)
        seen.add(element)


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


def _target(copy: Copy) -> str:
    """The purpose of a copy's read, in an error."""
    to = f"stream {copy.destination.name!r}" if isinstance(copy.destination, Stream) else copy.destination
    return f"a copy to {to}"


class Interpreter:
    """Runs programs of a graph on NumPy arrays, and tracks which elements have a value.

    Subclasses replace NumPy's numbers by overriding a few methods.

    Attributes:
        graph: the graph.
        arrays: the values of each variable, by the number of its first element.
        written: True for each element that has a value.
    """

    def __init__(self, graph: Graph, values: Mapping[str, Any]):
        check_names(graph, values)
        self.graph = graph
        self.writes = Touched(is_read=False)
        self.unchanged: set[TracedCodelet] = set()
        self.arrays: dict[int, np.ndarray] = {}
        self.incoming: dict[Stream, Iterator[np.ndarray]] = {}
        for stream in graph.streams:
            if stream.name in values:
                count = np.shape(values[stream.name])[:1]
                stacked = _Values(stream.name, (*count, *stream.shape), stream.dtype)
                self.incoming[stream] = iter(np.asarray(as_array(values[stream.name], stacked)))
        self.outgoing: dict[Stream, list[np.ndarray]] = {s: [] for s in graph.streams if not s.is_input}
        self.written = np.zeros(sum(variable.size + 1 for variable in graph.sources), bool)
        for variable in graph.sources:
            given = variable.value
            if variable.name in values:
                given = as_array(values[variable.name], variable)
            if given is not None:
                self.written[variable.first_element : variable.first_element + variable.size] = True
            self.arrays[variable.first_element] = self.held(variable, given)

    # --- what numbers are -----------------------------------------------------------------------------------

    def held(self, variable: Variable, given: Any) -> Any:
        """The flat array of a variable: of the given values, or empty."""
        array = np.zeros(variable.size, variable.dtype)
        if given is not None:
            array[:] = np.asarray(given).reshape(-1)
        return array

    def gathered(self, tensor: Tensor) -> Any:
        """The values of a view."""
        return gather(self.arrays, tensor)

    def put(self, elements: Sequence[int], values: Any) -> None:
        """Give elements values, in order."""
        for element, value in zip(elements, values.reshape(-1), strict=True):
            variable, position = self.graph.locate(element)
            self.arrays[variable.first_element][position] = value

    def number(self, tensor: Tensor, by: str, line: Line | None) -> int:
        """The value of a single element, which controls a branch or a loop."""
        return int(self.read(tensor, by, line))

    def step(self, families: Sequence[Family], checked: set[Family]) -> None:
        """Run the vertices of families: all read the state before the step, then all write.

        Args:
            families: of a compute set.
            checked: families with one vertex whose result is compared with the trace.
        """
        vertices = [vertex for family in families for vertex in family_vertices(family)]
        _check_vertices(self.graph, vertices)
        results = []
        for vertex in vertices:
            made = vertex.call(lambda tensor, by=vertex: self.read(tensor, by), check=vertex.family in checked)
            checked.discard(vertex.family)
            results.append(made)
        for vertex, result in zip(vertices, results, strict=True):
            for name, value in result.items():
                self.write(vertex.fields[name], value)

    # --- what there is --------------------------------------------------------------------------------------

    def read(self, tensor: Tensor, by: object, line: Line | None = None) -> Any:
        """The values of a view.

        Raises:
            UninitializedReadError: an element has no value.
        """
        elements = tensor.elements()
        elements = elements[elements >= 0]  # padding holds its value from the start
        if not self.written[elements].all():
            first = int(elements[~self.written[elements]][0])
            variable, _ = self.graph.locate(first)
            vertex = by if isinstance(by, Vertex) else None
            if vertex is not None:
                family = vertex.family
                by = f"a vertex of codelet {family.codelet.name!r} in compute set {family.compute_set.name!r}"
                line = vertex.line
            raise UninitializedReadError(
                f"{self.graph.element_text(first)} is read by {by} before anything has given it a value",
                given=vertex,
                fix=variable.mend if variable.is_aside else None,
                line=line,
            )
        return self.gathered(tensor)

    def receive(self, stream: Stream) -> np.ndarray:
        value = next(self.incoming.get(stream, iter(())), None)
        if value is None:
            raise StreamError(
                f"stream {stream.name!r} has no more values",
                expected="a value for each copy from it, stacked along a first axis",
            )
        return value

    def bind(self, source: Tensor, destination: Tensor) -> None:
        """Copy values, and whether there are any."""
        here, there = source.elements().reshape(-1), destination.elements().reshape(-1)
        self.put(there.tolist(), self.gathered(source))
        self.written[there] = np.where(here >= 0, self.written[here], True)

    def forget(self, tensor: Tensor) -> None:
        elements = tensor.elements()
        self.written[elements[elements >= 0]] = False

    def write(self, tensor: Tensor, values: Any) -> None:
        """Give the elements of a view values."""
        elements = tensor.elements().reshape(-1)
        self.put(elements.tolist(), values)
        self.written[elements] = True

    # --- what runs ------------------------------------------------------------------------------------------

    def _execute(self, compute_set: ComputeSet) -> None:
        families = [family for family in self.graph.families if family.compute_set is compute_set]
        checked = set()
        for family in families:
            if family.codelet not in self.unchanged:
                checked.add(family)
                check_unchanged(family.codelet, family.lines[0] if family.lines else None, family.lengths)
                self.unchanged.add(family.codelet)
        self.step(families, checked)

    def _call(self, call: Call) -> None:
        """Values are copied in, the body runs, and its results are copied back: in no order, so to elements apart."""
        function, arguments = call.function, call.arguments
        written = self.writes.of_function(function)
        back = [name for name, parameter in function.parameters.items() if parameter.source in written]
        _check_apart(self.graph, [arguments[name] for name in back], f"a call of {function.name!r}", call.line)
        for name, parameter in function.parameters.items():
            self.bind(arguments[name], parameter)
        self.run(function.body)
        for name in back:
            self.bind(function.parameters[name], arguments[name])
        for parameter in function.parameters.values():
            self.forget(parameter)

    def _copy(self, copy: Copy) -> None:
        source, destination = copy.source, copy.destination
        if isinstance(destination, Tensor):
            _check_apart(self.graph, [destination], "a copy", copy.line)
        value = self.receive(source) if isinstance(source, Stream) else self.read(source, _target(copy), copy.line)
        if isinstance(destination, Stream):
            self.outgoing[destination].append(value)
        else:
            self.write(destination, value)

    def run(self, program: Program) -> None:
        line = program.line
        match program:
            case Execute(compute_set):
                self._execute(compute_set)
            case Recording():
                for compute_set in program.compute_sets:
                    self._execute(compute_set)
            case ProgramSequence(programs):
                for part in programs:
                    self.run(part)
            case Copy():
                self._copy(program)
            case Repeat(count, body, index):
                for turn in range(count):
                    if index is not None:
                        self.write(index, np.asarray(turn, index.dtype))
                    self.run(body)
            case RepeatWhile(condition, predicate, body):
                turns = 0
                self.run(condition)
                while bool(self.number(predicate, "the predicate of a loop", line)) != program.until:
                    if turns == program.max_iterations:
                        raise ProgramAbortedError(too_many_turns(predicate, program.bound), line=line)
                    self.run(body)
                    self.run(condition)
                    turns += 1
            case If(predicate, then, otherwise):
                self.run(then if self.number(predicate, "a choice between programs", line) else otherwise)
            case Switch(control, cases, default):
                self.run(cases.get(self.number(control, "a choice between programs", line), default))
            case Call():
                self._call(program)
            case Print(tensor):
                print(f"{program.text}: {self.read(tensor, 'a print', line)}")
            case AbortOn(predicate, message):
                if self.number(predicate, "the predicate of an abort", line):
                    raise ProgramAbortedError(message, line=line)
            case WriteUndef(tensor):
                self.forget(tensor)
            case _:
                raise AssertionError(program)


def _output(graph: Graph, given: object) -> Tensor | Stream:
    """The view without symbols, or the output stream, that an output names."""
    streams = {stream.name: stream for stream in graph.streams}
    found = given
    if isinstance(given, str):
        found = streams[given] if given in streams else graph.variable(given)
    if isinstance(found, (Tensor, Stream)) and found.graph is not graph:
        raise ForeignGraphError("an output belongs to another graph", given=found, expected="variables of this graph")
    if (isinstance(found, Stream) and not found.is_input) or (isinstance(found, Tensor) and not found.axes):
        return found
    raise ProgramError(
        "an output is neither a view without symbols nor an output stream",
        given=f"{given!r:.80}",
        expected="a tensor, an output stream, or the name of one",
        fix="name the whole range: x, and not x[i]" if isinstance(found, Tensor) else None,
    )


@old_order(("values", "outputs", "program"), lambda second: isinstance(second, Mapping))
def interpret(
    graph: Graph,
    program: object = None,
    *,
    values: Mapping[Any, Any],
    outputs: Named | Iterable[Named],
) -> Results:
    """Run a graph one vertex at a time, in NumPy: the definition of every other way of running it.

    Args:
        graph: the graph.
        program: a program, a compute set, or a list of them. Default: all compute sets in the order they were added.
        values: initial values: an array for each variable that has one, by tensor or name. For each input stream its
            values, stacked along a first axis.
        outputs: one or several results: views, by tensor or name, and output streams.

    Returns:
        The values of the outputs, by tensor or name; those of a stream stacked along a first axis.

    Raises:
        ProgramError, ForeignGraphError: a program or an output that is not of this graph.
        ArrayError, NotInGraphError: values of the wrong shape or dtype, or for an unknown name.
        UninitializedReadError, WriteRaceError, ReadWriteRaceError, SelfAliasError: the checks of `cl.lower`.
        ProgramAbortedError, StreamError: the program aborts, or a stream has too few values.

    >>> import codelet as cl, numpy as np
    >>> @cl.codelet
    ... def double(x):
    ...     return 2 * x
    >>> graph = cl.Graph()
    >>> x = graph.add_variable("x", (3,))
    >>> y = graph.add_variable("y", (3,))
    >>> i = cl.grid(3)
    >>> graph.add_vertex("double", double, x=x[i], out=y[2 - i])
    >>> cl.interpret(graph, values={x: np.arange(3.0)}, outputs=y)[y].tolist()
    [4.0, 2.0, 0.0]
    """
    if not isinstance(graph, Graph):
        raise ProgramError(
            "only a graph can be interpreted",
            given=f"{graph!r:.80}",
            expected="cl.interpret(graph, program, values=..., outputs=...)",
            fix="cl.lower(function) lowers a function that builds a graph" if callable(graph) else None,
        )
    listed = several(outputs)
    if listed is None:
        raise ProgramError("the outputs are not a list", given=f"{outputs!r:.80}", expected="a list: [y], or ['y']")
    wanted = [_output(graph, output) for output in listed]
    chosen = graph.default_program if program is None else as_program(program)
    check_program(chosen, graph)
    memory = Interpreter(graph, by_name(graph, values))
    memory.run(chosen)
    results = Results()
    for output in wanted:
        if isinstance(output, Stream):
            sent = memory.outgoing[output]
            results[output.name] = np.stack(sent) if sent else np.zeros((0, *output.shape), output.dtype)
        else:
            results[key_of(output)] = memory.read(output, "the caller")
    return results
