"""The schema of operations: the valid values of arguments that are no tensors, by name, checked before anything is
planned.

An argument means the same wherever it has the same name. `checked` puts the schema before an operation, whose checks go
on from there: of arguments that belong together, as axes do to a tensor's dimensions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from codelet.deprecated import old_keywords, renamed_keywords
from codelet.errors import CodeletError, OperationError
from codelet.graphs.graph import Graph
from codelet.schema import COUNT, FLAG, NAME, NUMBER, SIZE, SIZES, Kind, Schema, is_number, of_class, one_of
from codelet.target import Target

F = TypeVar("F", bound=Callable[..., Any])

KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("allow_negative_indices", "count_include_pad", "descending", "indices_are_sorted"), FLAG),
    **dict.fromkeys(("is_causal", "keepdims", "nesterov", "reverse", "stable", "unique_indices"), FLAG),
    **dict.fromkeys(("batch", "rows", "columns", "summed", "num_groups", "num_heads", "num_keys", "count"), COUNT),
    "target": of_class("a machine: cl.IPU()", Target),
    **dict.fromkeys(("k",), SIZE),
    **dict.fromkeys(("lhs_shape", "rhs_shape", "slice_sizes", "window_shape", "window_dimensions"), SIZES),
    "memory_fraction": Kind(
        "a number above 0 and at most 1: of a tile's memory, what the operation may take",
        lambda value: is_number(value, 0, 1) and value > 0,
    ),
    "eps": Kind("a number from 0 on", lambda value: is_number(value, 0)),
    **dict.fromkeys(("ddof", "momentum", "weight_decay"), NUMBER),
    **dict.fromkeys(("b1", "b2"), Kind("a number from 0 to 1", lambda value: is_number(value, 0, 1))),
    "name": NAME,
    "op": one_of("set", "add", "multiply", "min", "max"),
}
"""What arguments may be, by name, but for those that have a check of their own, as `grain` has."""


_FOREIGN = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError)
"""What Python, NumPy and JAX raise of arguments that are nothing to them."""


def _short(value: Any) -> str:
    return f"{value!r:.60}"


def checked(operation: F) -> F:
    """An operation behind the schema of its arguments.

    An error that an operation does not see, but Python or JAX within it, is raised as an error of the operation as
    well.

    Raises:
        OperationError: an argument that the schema refuses, or one that the operation fails for.
    """
    schema = Schema(operation, f"ops.{operation.__name__}", KINDS, OperationError)
    renamed = old_keywords(operation)

    @functools.wraps(operation)
    def called(*args: Any, **kwargs: Any) -> Any:
        if renamed.keys() & kwargs.keys():
            kwargs = renamed_keywords(operation, renamed, kwargs)
        schema.check(args, kwargs)
        try:
            if args and isinstance(args[0], Graph):
                return args[0].call(operation, *args[1:], **kwargs)
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
