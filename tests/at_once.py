"""Several functions as one program: XLA takes ten milliseconds for a program, however small."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def at_once(*functions: Callable[..., Any]) -> Callable[..., list[Any]]:
    """A function that gives what each of several gives for the same arguments, compiled as one program."""
    return jax.jit(lambda *arguments: [function(*arguments) for function in functions])


def with_slopes(function: Callable[..., Any]) -> Callable[..., tuple[Any, tuple[Any, ...]]]:
    """A function's array, and the slopes of the sum of its sines with respect to every argument."""

    def both(*arguments: Any) -> tuple[Any, tuple[Any, ...]]:
        def loss(*arguments: Any) -> tuple[Any, Any]:
            value = function(*arguments)
            return jnp.sin(value).sum(), value

        slopes, value = jax.grad(loss, tuple(range(len(arguments))), has_aux=True)(*arguments)
        return value, slopes

    return both
