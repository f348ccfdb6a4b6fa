"""Functions: a body that is defined once, and calls of it on different tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codelet.errors import ForeignGraphError, ProgramError
from codelet.programs.checks import check_plain
from codelet.programs.program import Program, indented, set_depth
from codelet.tracing.codelets import Codelet
from codelet.tracing.field_types import FieldType
from codelet.tracing.traced_codelet import TracedCodelet
from codelet.views.sources import source_text, source_variables, type_text
from codelet.views.tensor import Tensor

if TYPE_CHECKING:
    from codelet.graphs.graph import Graph


@dataclass(frozen=True, eq=False)
class Function:
    """A body that is defined once and called on different tensors. Made by `Graph.add_function`, which has an example.

    Attributes:
        graph: the graph it belongs to.
        name: its printed name.
        body: the program that a call runs.
        parameters: the variables that stand for the arguments, by name.
        derivative: the codelet whose JAX derivative replaces that of the body, or `None`.
        same_values: True if the values of that codelet may replace those of the body.

    >>> import codelet as cl
    >>> graph = cl.Graph()
    >>> x, y = graph.add_variable("x", ()), graph.add_variable("y", ())
    >>> graph.add_function(cl.Copy(x, y), [x, y], name="move").parameters["x"] is x
    True
    """

    graph: Graph
    name: str
    body: Program
    parameters: Mapping[str, Tensor]
    derivative: TracedCodelet | None = None
    same_values: bool = False

    def lines(self) -> Iterator[str]:
        r"""The function as text, its body indented.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> step = graph.add_compute_set("step")
        >>> print("\n".join(graph.add_function(step, name="move").lines()))
        function move()
          Execute(step)
        """
        yield f"function {self.name}({', '.join(f'{name}={tensor}' for name, tensor in self.parameters.items())})"
        yield from indented(self.body)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        return f"function {self.name}({', '.join(self.parameters)})"


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Call(Program):
    """Call a function: copy the arguments to its parameters, run its body, and copy the parameters it writes back.

    Between calls the parameters hold no values. However often a function is called, its vertices exist once. A function
    cannot call itself, since it calls only functions that were defined before it.

    Args:
        function: made by `Graph.add_function`.
        arguments: a view for each of its parameters, by name.
        positional: nothing; arguments are given by name.

    Raises:
        ProgramError: arguments that do not fit the parameters.
        ForeignGraphError: a tensor of another graph.

    Source: program::Call and Graph::addFunction of Poplar's API reference, where functions have no parameters.

    >>> import codelet as cl
    >>> graph = cl.Graph()
    >>> a, x = graph.add_variable("a", ()), graph.add_variable("x", (2,))
    >>> with graph.record() as body:
    ...     graph.add_vertex("square", cl.codelet(lambda a: {"a": a * a}), a=a)
    >>> square = graph.add_function(body, [a])
    >>> program = [cl.Call(square, a=x[0]), cl.Call(square, a=x[1])]
    >>> cl.interpret(graph, program, values={x: [3.0, 4.0]}, outputs=x)[x].tolist()
    [9.0, 16.0]
    """

    function: Function
    arguments: Mapping[str, Tensor]

    def __init__(self, function: Function, /, *positional: object, **arguments: Tensor):
        if not isinstance(function, Function):
            raise ProgramError(
                "something other than a function is called",
                given=f"{function!r:.80}",
                expected="graph.add_function(body, parameters)",
                fix="a program without parameters is put where it runs, without Call",
            )
        if positional:
            raise ProgramError(
                f"an argument of a call of {function.name!r} is given without its parameter's name",
                given=f"{positional[0]!r:.80}",
                expected=", ".join(function.parameters) or "no arguments",
                fix="cl.Call(function, name=view, ...)",
            )
        if set(arguments) != set(function.parameters):
            raise ProgramError(
                f"the arguments of a call are not the parameters of {function.name!r}",
                given=", ".join(arguments) or "none",
                expected=", ".join(function.parameters) or "none",
            )
        for name, parameter in function.parameters.items():
            tensor = arguments[name]
            if not isinstance(tensor, Tensor) or tensor.shape != parameter.shape or tensor.dtype != parameter.dtype:
                raise ProgramError(
                    f"argument {name!r} does not fit the parameter of {function.name!r}",
                    given=f"{tensor!r:.80}",
                    expected=type_text(parameter.dtype, parameter.shape),
                    fix=None if isinstance(tensor, Tensor) else "cl.Copy(numbers, variable), and that variable",
                )
            check_plain(tensor, f"argument {name!r}")
            if tensor.graph is not function.graph:
                raise ForeignGraphError(f"argument {name!r} belongs to another graph", given=tensor)
            own = {parameter.source for parameter in function.parameters.values()}
            if own & set(source_variables(tensor.source)):
                raise ProgramError(
                    f"argument {name!r} is a parameter of {function.name!r} itself, which holds nothing between calls",
                    given=tensor,
                    expected="a view of other variables",
                    fix="variables of their own for the parameters of graph.add_function",
                )
        object.__setattr__(self, "function", function)
        object.__setattr__(self, "arguments", {name: arguments[name] for name in function.parameters})
        set_depth(self, function.body)

    def lines(self) -> Iterator[str]:
        given = ", ".join(f"{name}={tensor}" for name, tensor in self.arguments.items())
        yield f"Call({self.function.name}{', ' if given else ''}{given})"


def _base_name(tensor: object) -> str:
    """The name of a variable without scopes."""
    return source_text(tensor.source).rpartition("/")[2] if isinstance(tensor, Tensor) else str(tensor)


def named_parameters(parameters: Mapping[str, Tensor] | Iterable[Tensor]) -> dict[str, Tensor]:
    """The parameters of a function by name: as given, or by the variables' names without scopes.

    Raises:
        ProgramError: a parameter that is not a whole variable, or one that is given twice.
    """
    if isinstance(parameters, (str, Tensor)) or not isinstance(parameters, Iterable):
        raise ProgramError(
            "the parameters of a function are not a list",
            given=f"{parameters!r:.80}",
            expected="a list of variables, [x, y], or a dict of them by name",
        )
    named: dict[str, Tensor] = {}
    if isinstance(parameters, Mapping):
        named.update(parameters)  # type: ignore[arg-type]
    else:
        listed = list(parameters)
        names = [_base_name(tensor) for tensor in listed]
        if len(set(names)) < len(names):
            raise ProgramError("two parameters of a function have one name", given=names, expected="a dict by name")
        named.update(zip(names, listed, strict=True))
    for name_of, parameter in named.items():
        if not isinstance(name_of, str):
            raise ProgramError("a parameter's name is no name", given=f"{name_of!r:.80}", expected="a string")
        is_variable = isinstance(parameter, Tensor) and parameter.is_whole_variable
        if not is_variable or parameter.source.value is not None:  # type: ignore[union-attr]
            raise ProgramError("a parameter of a function is no variable", given=parameter, expected="a variable")
    if len({tensor.source for tensor in named.values()}) < len(named):
        raise ProgramError("two parameters of a function are one variable", given=", ".join(named))
    return named


def checked_derivative(derivative: object, parameters: Mapping[str, Tensor]) -> TracedCodelet | None:
    """The derivative codelet of a function, traced for its parameters.

    Raises:
        ProgramError: not a codelet; or its fields are not parameters, or have other types.
    """
    if derivative is None:
        return None
    if not isinstance(derivative, Codelet):
        raise ProgramError(
            "the derivative of a function is not a codelet",
            given=f"{derivative!r:.80}",
            expected="a codelet that computes of the function's parameters what its body writes to them",
            fix="cl.codelet(function)",
        )
    unknown = next((name for name in derivative.inputs if name not in parameters), None)
    if unknown is None:
        types = {name: FieldType(own.shape, own.dtype) for name, own in parameters.items()}
        traced = derivative.specialise({name: types[name] for name in derivative.inputs})
        unknown = next((name for name, own in traced.outputs.items() if types.get(name) != (*own[:2], False)), None)
        if unknown is None:
            return traced
    raise ProgramError(
        "the derivative of a function has a field that is not a parameter of it, or is of another type",
        given=f"field {unknown!r} of {derivative!r}",
        expected=", ".join(f"{name}: {type_text(own.dtype, own.shape)}" for name, own in parameters.items()),
    )
