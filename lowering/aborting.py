"""Aborting: results of a lowered graph that raise where its program aborts."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core as jax_core

from lowering.arrays import Array
from lowering.plan.plan import Plan


@jax.custom_jvp
def _with_slope_times(value: Any, one: Any) -> Any:
    """The value, whose slope is multiplied by `one`."""
    return value


@_with_slope_times.defjvp
def _with_slope_times_jvp(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    (value, one), (slope, _) = primals, tangents
    smooth = jnp.issubdtype(value.dtype, jnp.inexact)
    return _with_slope_times(value, one), slope * one.astype(slope.dtype) if smooth else slope


def raising(results: Sequence[Array], messages: Sequence[str]) -> list[Array]:
    """Results that raise where a program aborted. They and their slopes depend on the check, so that JAX keeps it.

    Args:
        results: the outputs, and last the number of the message, from one, of the abort that was met first; zero where
            there was none.
        messages: of all aborts.

    Raises:
        EquinoxRuntimeError: when it runs.
    """
    *results, flag = results
    texts = [f"the program aborted: {message}" for message in messages]
    eqx = importlib.import_module("equinox")  # most programs do not abort, and it takes 0.1 s to import
    checked = eqx.branched_error_if([*results, jnp.ones(())], flag > 0, jnp.maximum(flag - 1, 0), texts)
    return [_with_slope_times(result, checked[-1]) for result in checked[:-1]]


def messages_of(plan: Plan) -> Sequence[str] | None:
    """The messages of a plan's aborts; None where it does not abort."""
    return None if plan.abort is None else plan.messages


def raising_on_device(
    results: Sequence[Any], messages: Sequence[str], replicas: str | None = None
) -> Callable[..., list[Array]]:
    """The same, as every device of a mesh runs it: were one alone to raise, the others would wait for it.

    Args:
        results: their types.
        messages: of all aborts.
        replicas: the axis of the mesh along which the number differs.
    """
    structs = [jax.ShapeDtypeStruct(own.shape, own.dtype) for own in results]
    closed = jax.make_jaxpr(partial(raising, messages=messages))(structs)

    def run(*results: Array) -> list[Array]:
        *rest, flag = results
        return jax_core.jaxpr_as_fun(closed)(*rest, flag if replicas is None else lax.pmax(flag, replicas))

    return run
