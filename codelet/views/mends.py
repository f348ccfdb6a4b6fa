"""Mends: which operation of `cl.ops` computes an expression that a user wrote of tensors, as of arrays."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import FrameType

import numpy as np

_OPERATORS = {
    "+": "add",
    "-": "subtract",
    "*": "multiply",
    "/": "divide",
    "//": "floor_divide",
    "%": "remainder",
    "&": "bitwise_and",
    "|": "bitwise_or",
    "^": "bitwise_xor",
    "<<": "left_shift",
    ">>": "right_shift",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
    "==": "equal",
    "**": "power",
    "@": "matmul",
}

_UNARY = {"-": "negative", "+": "positive", "~": "invert", "abs": "abs", "round": "round", "divmod": "divmod"}

_AS_OPERATIONS = {"amax": "max", "amin": "min", "where": "select", "dot": "matmul", "astype": "cast", "clip": "clamp"}
"""Functions of NumPy's that operations have other names for."""

_OF_SEVERAL = ("dot", "matmul", "where", "clip")

_BY_ELEMENT = {*("relu", "gelu", "silu", "swish", "elu", "selu", "celu", "softplus", "sigmoid", "log_sigmoid", "round")}
"""Functions by element that are no ufunc of NumPy's."""


def mend_of(use: str, given: str) -> str | None:
    """The call that computes the expression, as far as one is known.

    Args:
        use: the operator or function, as in "`+`" or "`numpy.sum`".
        given: the expression, as in "x + y".

    >>> mend_of("`+`", "x + y"), mend_of("`numpy.sum`", "numpy.sum(x)"), mend_of("`numpy.exp`", "numpy.exp(x)")
    ('cl.ops.map(graph, jnp.add, x, y)', 'cl.ops.sum(graph, x)', 'cl.ops.map(graph, jnp.exp, x)')
    """
    own = use.strip("`")
    parts = given.split(f" {own} ")
    if own in _OPERATORS and len(parts) == 2:
        return _call(_OPERATORS[own], ", ".join(parts))
    if own in _UNARY:
        return _call(_UNARY[own], given[given.index("(") + 1 : -1] if "(" in given else given.removeprefix(own))
    module, _, name = own.rpartition(".")
    if not module or not given.endswith(")"):
        return None
    operands = given[given.index("(") + 1 : -1]
    # Of what JAX is given one operand is known, that which it asks for its values.
    is_one = not module.startswith("jax") or (name not in _OF_SEVERAL and getattr(getattr(np, name, 0), "nin", 1) == 1)
    return _call(name, operands if is_one else f"{operands}, ...")


def _call(name: str, operands: str) -> str | None:
    operation = _AS_OPERATIONS.get(name, name)
    if operation in importlib.import_module("codelet.ops").__all__ and operation not in ("map", "fill"):
        return f"cl.ops.{operation}(graph, {operands})"
    if isinstance(getattr(np, name, None), np.ufunc):
        return f"cl.ops.map(graph, jnp.{name}, {operands})"
    return f"cl.ops.map(graph, jax.nn.{name}, {operands})" if name in _BY_ELEMENT else None


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "jax":
        yield frame
        frame = frame.f_back


def function_of_jax() -> str:
    """The function of JAX that asks for an array, as in "jax.numpy.sum"; `jax.numpy.asarray` where that is not known.

    The outermost frame of JAX's is the function that the user called; a jitted one has its name within.
    """
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("codelet."):
        frame = frame.f_back
    names = []
    for own in _callers(frame):
        within = own.f_locals.get("fun", own.f_locals.get("self"))
        names += [getattr(within, "__name__", ""), own.f_code.co_name.removeprefix("_operator_")]
    for name in reversed(names):
        for module in ("jax.numpy", "jax.nn", "jax.lax"):
            if name and not name.startswith("_") and hasattr(sys.modules.get(module), name):
                return f"{module}.{name}"
    return "jax.numpy.asarray"
