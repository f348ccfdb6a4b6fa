"""Steps on one tensor: it is printed, aborted on, or ends its life."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from codelet.errors import ProgramError
from codelet.programs.checks import check_plain, check_predicate
from codelet.programs.program import Program
from codelet.views.sources import source_text, source_variables
from codelet.views.tensor import Tensor


@dataclass(frozen=True, eq=False)
class Print(Program):
    """Print a tensor's value each time it runs (`jax.debug.print`).

    Under `jax.vmap` each row prints; of an If or a Switch whose control differs between rows, every case does,
    since JAX then runs all of them.

    Args:
        tensor: a view without symbols.
        label: what stands before the value; the view's variable when left off.

    Raises:
        ProgramError: something else than a tensor, or a label that is no text.
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
        """What stands before the value."""
        return source_text(self.tensor.source) if self.label is None else self.label

    def lines(self) -> Iterator[str]:
        yield f"Print({self.tensor}, {self.text!r})"


@dataclass(frozen=True, eq=False)
class AbortOn(Program):
    """Abort if a predicate is true. The engine then raises, and its state stays what it was before the run.

    What follows in the program may still run; nobody sees what it does. A lowered function raises as well,
    by `equinox.error_if`.

    Args:
        predicate: a view of shape () of a bool or an integer, which is true unless it is 0.
        message: what the error says.

    Raises:
        ProgramError: a predicate that is none, or a message that is no text.

    Source: program::AbortOnCondition of Poplar's API reference.
    """

    predicate: Tensor
    message: str

    def __post_init__(self) -> None:
        check_predicate(self.predicate, "the predicate of an abort")
        if not isinstance(self.message, str):
            raise ProgramError("the message of an abort is not text", given=self.message, expected="a string")

    def lines(self) -> Iterator[str]:
        yield f"AbortOn({self.predicate}, {self.message!r})"


@dataclass(frozen=True, eq=False)
class WriteUndef(Program):
    """End the life of what a view holds: until it is written again, to read it is an error.

    Args:
        tensor: a view without symbols, of variables.

    Raises:
        ProgramError: something else.

    Source: program::WriteUndef of Poplar's API reference.
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
