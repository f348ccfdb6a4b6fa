"""The schema of operations: what arguments that are no tensors may be, by name, looked at before anything is planned.

An argument means the same wherever it has the same name. `checked` puts the schema before an operation, whose own
checks go on from there: of what belongs together, as axes do to a tensor's dimensions.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from codelet.errors import CodeletError, OperationError

F = TypeVar("F", bound=Callable[..., Any])


class Kind(NamedTuple):
    """What an argument may be.

    Attributes:
        text: what is expected, for errors.
        accepts: whether a value is that.
    """

    text: str
    accepts: Callable[[Any], bool]


def _is_count(value: Any, least: int) -> bool:
    """Whether a value counts as a whole number, from some number on; truth values do not."""
    if isinstance(value, (bool, np.bool_)):
        return False
    try:
        own = operator.index(value)
    except (TypeError, CodeletError):  # tensors and symbols say that they are none
        return False
    return own >= least


def _is_number(value: Any, least: float = -math.inf, most: float = math.inf) -> bool:
    """Whether a value is a finite number between two."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        return False
    return math.isfinite(value) and bool(least <= value <= most)


def _are_wholes(value: Any, least: int) -> bool:
    """Whether a value is a sequence of whole numbers."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        return False
    try:
        return all(_is_count(own, least) for own in value)
    except CodeletError:  # a tensor of no dimensions is no sequence
        return False


FLAG = Kind("True or False", lambda value: isinstance(value, (bool, np.bool_)))
NUMBER = Kind("a finite number", _is_number)
COUNT = Kind("a whole number from 1", lambda value: _is_count(value, 1))
SIZE = Kind("a whole number from 0", lambda value: _is_count(value, 0))
SIZES = Kind("whole numbers from 0", lambda value: _are_wholes(value, 0))
NAME = Kind("a name: text that is not empty", lambda value: isinstance(value, str) and bool(value))


def _one_of(*values: str) -> Kind:
    return Kind(", ".join(map(repr, values)), lambda value: isinstance(value, str) and value in values)


KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("allow_negative_indices", "count_include_pad", "descending", "indices_are_sorted"), FLAG),
    **dict.fromkeys(("is_causal", "keepdims", "reverse", "stable", "unique_indices"), FLAG),
    **dict.fromkeys(("batch", "rows", "columns", "summed", "num_groups", "num_heads", "num_keys"), COUNT),
    **dict.fromkeys(("count", "length", "k"), SIZE),
    **dict.fromkeys(("lhs_shape", "rhs_shape", "slice_sizes", "window_shape", "window_dimensions"), SIZES),
    "memory_share": Kind(
        "a number above 0 and at most 1: of a tile's memory, what the operation may take",
        lambda value: _is_number(value, 0, 1) and value > 0,
    ),
    "eps": Kind("a number from 0 on", lambda value: _is_number(value, 0)),
    "ddof": NUMBER,
    "momentum": NUMBER,
    "name": NAME,
    "op": _one_of("set", "add", "multiply", "min", "max"),
}
"""What arguments may be, by name, but for those that have a check of their own, as `grain` has."""


_FOREIGN = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError)
"""What Python, NumPy and JAX raise of arguments that are nothing to them."""


def _short(value: Any) -> str:
    return f"{value!r:.60}"


def checked(operation: F) -> F:
    """An operation behind the schema of its arguments.

    What an operation itself does not see, but Python or JAX within it, is told as an error of the operation as well.

    Raises:
        OperationError: where it is called with an argument that is not what the schema says, or that it fails for.
    """
    parameters = inspect.signature(operation).parameters
    by_place = [name for name, own in parameters.items() if own.kind is own.POSITIONAL_OR_KEYWORD]
    defaults = {name: own.default for name, own in parameters.items() if name in KINDS}

    @functools.wraps(operation)
    def called(*args: Any, **kwargs: Any) -> Any:
        for name, value in (*zip(by_place, args, strict=False), *kwargs.items()):
            if name in defaults and value is not defaults[name] and not KINDS[name].accepts(value):
                raise OperationError(
                    f"{name} of ops.{operation.__name__} is not what it may be",
                    given=f"{value!r:.80}",
                    expected=KINDS[name].text,
                )
        try:
            return operation(*args, **kwargs)
        except CodeletError:
            raise
        except _FOREIGN as error:
            message = str(error).strip().partition("\n")[0]
            raise OperationError(
                f"ops.{operation.__name__} fails for what it is given: {type(error).__name__}: {message:.200}",
                given=f"{', '.join([*map(_short, args), *(f'{k}={_short(v)}' for k, v in kwargs.items())]):.300}",
                expected=f"what help(cl.ops.{operation.__name__}) says",
            ) from error

    return called  # type: ignore[return-value]
