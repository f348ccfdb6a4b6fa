"""Walks over programs: their parts, the tensors and streams that they name, and the variables they write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from codelet.errors import ForeignGraphError, ProgramError
from codelet.programs.control import If, Repeat, RepeatWhile, Switch
from codelet.programs.copies import Copy
from codelet.programs.functions import Call, Function
from codelet.programs.program import Execute, Program, Recording, Sequence
from codelet.programs.tensor_steps import AbortOn, Print, WriteUndef
from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import Tensor

if TYPE_CHECKING:
    from codelet.graphs.graph import Graph


def _parts(program: Program) -> tuple[list[Program], list[Any]]:
    """The programs inside a program, and the other things it names."""
    match program:
        case Execute(compute_set):
            return [], [compute_set]
        case Recording():
            return [], list(program.compute_sets)
        case Copy(source, destination):
            return [], [source, destination]
        case Sequence(programs):
            return list(programs), []
        case Repeat(_, body, index):
            return [body], [] if index is None else [index]
        case RepeatWhile(condition, predicate, body):
            return [condition, body], [predicate]
        case If(predicate, then, otherwise):
            return [then, otherwise], [predicate]
        case Switch(control, cases, default):
            return [*cases.values(), default], [control]
        case Call(function):
            return [], [function]  # its arguments are of the same graph, and its body was checked
        case Print(tensor) | AbortOn(tensor) | WriteUndef(tensor):
            return [], [tensor]
    raise ProgramError(
        "a program is of a kind of your own",
        given=type(program).__name__,
        expected="what cl.Sequence, cl.Repeat and the other kinds of program make",
    )


def _programs(program: Program) -> Iterator[Program]:
    """A program and all that it is made of, each once, the bodies of functions aside."""
    seen, waiting = {program}, [program]
    while waiting:
        following = waiting.pop()
        yield following
        for part in reversed(_parts(following)[0]):
            if part not in seen:
                seen.add(part)
                waiting.append(part)


def check_program(program: Program, graph: Graph) -> None:
    """Check that a program names only things of `graph`.

    Raises:
        ForeignGraphError: a compute set, tensor, stream or function of another graph.
    """
    for each in _programs(program):
        for thing in _parts(each)[1]:
            if thing.graph is not graph:
                raise ForeignGraphError(
                    "a program names something of another graph",
                    given=thing,
                    expected="compute sets and tensors of the graph it runs on",
                    line=each.line,
                )


class Touched:
    """Which variables programs may touch any element of, by their text alone; that of a function is found once.

    The parameters of functions that are called count no further than the call.

    Attributes:
        is_read: whether those that they read count as well as those that they write.
    """

    def __init__(self, *, is_read: bool) -> None:
        self.is_read = is_read
        self._functions: dict[Function, frozenset[Variable]] = {}

    def of(self, program: Program) -> set[Variable]:
        """The variables of which a program may touch any element."""
        return set().union(*map(self._of_one, _programs(program)))

    def of_function(self, function: Function) -> frozenset[Variable]:
        """The variables of which a function's body may touch any element, its parameters among them."""
        if function not in self._functions:
            self._functions[function] = frozenset(self.of(function.body))
        return self._functions[function]

    def _of_one(self, program: Program) -> set[Variable]:
        """The reads and writes of a program beside those of its parts."""
        touched = [own for own in _parts(program)[1] if isinstance(own, Tensor)] if self.is_read else []
        match program:
            case Execute() | Recording():
                sets = {program.compute_set} if isinstance(program, Execute) else set(program.compute_sets)
                graphs = {compute_set.graph for compute_set in sets}
                families = [family for graph in graphs for family in graph.families if family.compute_set in sets]
                connected = [own for family in families for own in family.fields if own.is_written or self.is_read]
                touched += [field.tensor for field in connected if field.tensor is not None]
            case Copy(_, destination):
                touched += [destination] if isinstance(destination, Tensor) else []
            case Repeat(_, _, index):
                touched += [] if index is None else [index]
            case Call(function, arguments):
                own = self.of_function(function)
                given = {parameter.source: arguments[name] for name, parameter in function.parameters.items()}
                named = {variable for part in own & set(given) for variable in source_variables(given[part].source)}
                return set(own - set(given)) | named
        return {variable for tensor in touched for variable in source_variables(tensor.source)}
