"""Steps on one tensor: it is printed, aborted on, or ends its life."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from codelet.errors import ProgramError
from codelet.programs.checks import check_plain, check_predicate
from codelet.programs.program import Program
from codelet.views.sources import source_text, source_variables
from codelet.views.tensor import Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Print(Program):
    """Print a tensor's value each time it runs (`jax.debug.print`).

    Under `jax.vmap` each row prints. If the control of an `If` or a `Switch` differs between rows, JAX runs all cases,
    so every case prints.

    Args:
        tensor: a view without symbols.
        label: printed before the value. Default: the name of the view's variable.

    Raises:
        ProgramError: not a tensor, or a label that is not a string.

    Source: program::PrintTensor of Poplar's API reference.

    >>> import codelet as cl
    >>> graph = cl.Graph()
    >>> x = graph.add_variable("x", (2,))
    >>> _ = cl.interpret(graph, cl.Print(x), values={x: [1, 2]}, outputs=x)
    x: [1. 2.]
    """

    tensor: Tensor
    label: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.tensor, Tensor):
            raise ProgramError("something other than a tensor is printed", given=self.tensor, expected="a tensor")
        if not isinstance(self.label, str | None):
            raise ProgramError("the label of a print is not text", given=self.label, expected="a string")
        check_plain(self.tensor, "what is printed")

    @property
    def text(self) -> str:
        """The label before the value.

        >>> import codelet as cl
        >>> cl.Print(cl.Graph().add_variable("x", (2,))).text
        'x'
        """
        return source_text(self.tensor.source) if self.label is None else self.label

    def lines(self) -> Iterator[str]:
        yield f"Print({self.tensor}, {self.text!r})"


@dataclass(frozen=True, eq=False, repr=False)
class AbortOn(Program):
    """Abort if a predicate is true. The engine then raises, and its state stays the one before the run.

    Later steps may still execute; their effects are discarded. A lowered function raises as well, by
    `equinox.error_if`.

    Args:
        predicate: a view of shape () of a bool or an integer, which is true unless it is 0.
        message: the text of the error.

    Raises:
        ProgramError: an invalid predicate, or a message that is not a string.

    Source: program::AbortOnCondition of Poplar's API reference.

    >>> import codelet as cl
    >>> graph = cl.Graph()
    >>> is_bad = graph.add_variable("is_bad", (), bool)
    >>> try:
    ...     _ = cl.interpret(graph, cl.AbortOn(is_bad, "bad data"), values={is_bad: True}, outputs=is_bad)
    ... except cl.ProgramAbortedError as error:
    ...     print(str(error).splitlines()[0])
    bad data
    """

    predicate: Tensor
    message: str

    def __post_init__(self) -> None:
        check_predicate(self.predicate, "the predicate of an abort")
        if not isinstance(self.message, str):
            raise ProgramError("the message of an abort is not text", given=self.message, expected="a string")

    def lines(self) -> Iterator[str]:
        yield f"AbortOn({self.predicate}, {self.message!r})"


@dataclass(frozen=True, eq=False, repr=False)
class WriteUndef(Program):
    """End the live range of a view: reading it is an error until it is written again.

    Args:
        tensor: a view without symbols, of variables.

    Raises:
        ProgramError: any other view, or not a tensor.

    Source: program::WriteUndef of Poplar's API reference.

    >>> import codelet as cl
    >>> graph = cl.Graph()
    >>> x, y = graph.add_variable("x", ()), graph.add_variable("y", ())
    >>> try:
    ...     _ = cl.interpret(graph, [cl.WriteUndef(x), cl.Copy(x, y)], values={x: 1.0}, outputs=y)
    ... except cl.UninitializedReadError:
    ...     print("x holds no value")
    x holds no value
    """

    tensor: Tensor

    def __post_init__(self) -> None:
        if not isinstance(self.tensor, Tensor):
            raise ProgramError(
                "something other than a tensor is made undefined", given=self.tensor, expected="a tensor"
            )
        check_plain(self.tensor, "what is made undefined")
        for variable in source_variables(self.tensor.source):
            if variable.value is not None:
                raise ProgramError("a constant is made undefined", given=self.tensor, expected="variables")

    def lines(self) -> Iterator[str]:
        yield f"WriteUndef({self.tensor})"
