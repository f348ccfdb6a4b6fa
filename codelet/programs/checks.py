"""Checks of the tensors that programs name."""

from __future__ import annotations

import numpy as np

from codelet.errors import Line, ProgramError, VariableError
from codelet.programs.compute_sets import ComputeSet
from codelet.programs.program import Program
from codelet.views.sources import source_variables
from codelet.views.tensor import Tensor


def check_plain(tensor: Tensor, what: str) -> None:
    """See that a view in a program depends on no symbol.

    Raises:
        ProgramError: one that does.
    """
    if tensor.axes:
        raise ProgramError(
            f"{what} depends on a symbol",
            given=tensor,
            expected="a view without symbols",
            fix="name the whole range",
        )


def check_variables(tensor: Tensor, what: str, line: Line | None = None) -> None:
    """Check that a program writes no constant.

    Raises:
        VariableError: naming the constant.
    """
    for variable in source_variables(tensor.source):
        if variable.value is not None:
            raise VariableError(
                f"{what} writes the constant {variable.name!r}",
                given=tensor,
                expected="a variable",
                fix="graph.add_variable, and a copy of the constant to it",
                line=line,
            )


def check_predicate(tensor: object, what: str) -> None:
    if (
        not isinstance(tensor, Tensor)
        or tensor.axes
        or tensor.shape != ()
        or not (tensor.dtype == bool or tensor.dtype.kind in "iu")
    ):
        fix = "x.reshape(()) or x[0], and a codelet that compares"
        if isinstance(tensor, (Program, ComputeSet)):
            fix = "the order is RepeatWhile(condition, predicate, body), If(predicate, then, otherwise)"
        elif isinstance(tensor, (bool, int, np.bool_)):
            fix = "Python's own if, where the answer is known while the program is made"
        raise ProgramError(
            f"{what} is not a boolean or an integer in a variable",
            given=f"{tensor!r:.80}",
            expected="a view of one element, of shape () and dtype bool or int32, say",
            fix=fix,
        )
