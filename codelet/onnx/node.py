"""Nodes: the operators of a file, as the functions of `operators/` see them.

Values are JAX arrays, or NumPy arrays where they are known when the model is traced: constants, shapes, and results
computed of these. Sequences are Python lists, an optional value that is absent is None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from codelet.errors import ModelError

Body = Callable[..., list[Any]]
"""A graph that is an attribute of a node: a function of values, that sees those around the node."""


@dataclass(frozen=True)
class OnnxNode:
    """A node of a graph.

    Attributes:
        operator: its name.
        domain: of the operator; "" for ONNX's default domain.
        version: the opset of that domain.
        name: of the node, or of its first output where it has none.
        outputs: the names of its results; "" for one that nobody asks for.
        attributes: by name: numbers, strings, arrays, lists, and bodies for graphs.
    """

    operator: str
    domain: str
    version: int
    name: str
    outputs: Sequence[str]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute, or its default where the file leaves it out."""
        return self.attributes.get(name, default)

    def wants(self, number: int) -> bool:
        """Whether anybody asks for a result."""
        return number < len(self.outputs) and bool(self.outputs[number])

    def error(self, what: str, *, given: Any, expected: str, fix: str | None = None) -> ModelError:
        """An error that names the node."""
        return ModelError(f"{self}: {what}", given=given, expected=expected, fix=fix)

    def known(self, value: Any, name: str) -> np.ndarray:
        """An operand on which shapes depend.

        Raises:
            ModelError: it is not known when the model is traced.
        """
        if not is_known(value):
            raise self.error(
                f"the operand {name!r} decides shapes, and depends on data",
                given=f"{value.dtype}{list(value.shape)}" if hasattr(value, "shape") else repr(value)[:60],
                expected="a constant, or what is computed of shapes",
                fix='where it is an input of the model, give its value: cl.onnx.load(path, constants={"name": array})',
            )
        return np.asarray(value)

    def axis(self, axis: int, x: Any) -> int:
        """A dimension of an array, counted from the first.

        Raises:
            ModelError: the array has no such dimension.
        """
        if not -x.ndim <= axis < x.ndim:
            raise self.error("an array has no such dimension", given=axis, expected=f"from {-x.ndim} to {x.ndim - 1}")
        return axis % x.ndim

    def whole_numbers(self, value: Any, name: str) -> list[int]:
        """A known operand as numbers."""
        return [int(one) for one in self.known(value, name).reshape(-1)]

    def __str__(self) -> str:
        domain = f"{self.domain}." if self.domain else ""
        return f"node {self.name!r} ({domain}{self.operator} of opset {self.version})"


def whole_dtype() -> np.dtype:
    """The dtype of integers that an operator gives: 64 bits where JAX has them."""
    return jax.dtypes.canonicalize_dtype(np.int64)


def is_too_wide(value: Any) -> bool:
    """Whether a known value has integers that JAX's arrays do not have, as long as they have 32 bits."""
    if not is_known(value) or value.dtype.kind not in "iu" or value.dtype.itemsize < 8 or whole_dtype().itemsize == 8:
        return False
    info = np.iinfo(np.int32 if value.dtype.kind == "i" else np.uint32)
    return value.size > 0 and bool(np.max(value) > info.max or np.min(value) < info.min)


def as_array(value: Any, of: Any = "a value of the model") -> Any:
    """A value as an array of JAX, and a sequence as one of them.

    Raises:
        ModelError: it has whole numbers of more than 32 bits, and JAX's have 32.
    """
    if isinstance(value, list):
        return [as_array(one, of) for one in value]
    if is_too_wide(value):
        raise ModelError(
            f"{of}: whole numbers of more than 32 bits",
            given=f"{value.dtype}{list(value.shape)}, from {np.min(value):,} to {np.max(value):,}",
            expected="numbers of 32 bits",
            fix="with jax.enable_x64(True): ... around loading and calling the model",
        )
    return None if value is None else jnp.asarray(value)


def is_known(value: Any) -> bool:
    """Whether a value is known when the model is traced."""
    return isinstance(value, (np.ndarray, np.generic))
