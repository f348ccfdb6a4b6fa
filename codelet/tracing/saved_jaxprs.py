"""Jaxprs in files: plain data that pickles, and the jaxpr that it is.

In comes a closed jaxpr, which `pickle` does not take. Out come its equations by the names of their primitives, with
their parameters; reading them binds the primitives again, in order. Of a call of a jitted function the name is kept,
and not where it is to run. What holds Python functions, as derivative rules of one's own do, cannot be written.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core
from jax.extend.core import primitives as jax_primitives

from codelet.errors import SavingError

_CALLS = ("jit", "pjit")

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "random_wrap": lambda data, impl: jax.random.wrap_key_data(data, impl=impl),
    "random_unwrap": jax.random.key_data,
}
"""Public functions for primitives that JAX does not make public."""


class _Number(NamedTuple):
    """A literal."""

    value: np.ndarray
    is_weak: bool


class _SavedEquation(NamedTuple):
    """An equation, whose operands are numbers of values: of the constants, the inputs, then the results in order."""

    primitive: str
    operands: tuple[int | _Number, ...]
    params: Mapping[str, Any]


class SavedJaxpr(NamedTuple):
    """A jaxpr as plain data.

    Attributes:
        types: of its inputs, the shape, the dtype and whether it yields to others.
        constants: the arrays it holds.
        equations: what it computes, in order.
        results: what it returns, as operands.
        is_closed: whether it stands as a closed jaxpr where it is a parameter.
        is_wide: whether anything in it has 64 bits, for which `jax_enable_x64` has to be on.
    """

    types: tuple[tuple[tuple[int, ...], np.dtype, bool], ...]
    constants: tuple[np.ndarray, ...]
    equations: tuple[_SavedEquation, ...]
    results: tuple[int | _Number, ...]
    is_closed: bool
    is_wide: bool


@functools.cache
def _primitives() -> dict[str, jax_core.Primitive]:
    """JAX's primitives that it makes public, by name."""
    everything = [*vars(jax.lax).values(), *vars(jax_primitives).values()]
    return {own.name: own for own in everything if isinstance(own, jax_core.Primitive)}


def _cannot(name: str, what: str) -> SavingError:
    return SavingError(
        f"codelet {name!r} cannot be pickled: its jaxpr holds what cannot be written",
        given=what,
        expected="equations of JAX's public primitives, whose parameters are no functions",
        fix="give it a function at the top of a module in place of the jaxpr: @cl.codelet above `def`; copy.deepcopy "
        "needs none",
    )


def _parameter(value: Any, name: str, what: str) -> Any:
    if isinstance(value, (jax_core.ClosedJaxpr, jax_core.Jaxpr)):
        return saved_jaxpr(value, name)
    if type(value) is tuple and any(isinstance(part, jax_core.ClosedJaxpr) for part in value):
        return tuple(_parameter(part, name, what) for part in value)
    try:
        pickle.dumps(value)
    except Exception as error:  # whatever the parameter's own class raises
        raise _cannot(name, f"{what}={value!r:.60}") from error
    return value


def _is_wide(aval: Any) -> bool:
    dtype = getattr(aval, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.kind in "iufc" and dtype.itemsize >= (16 if dtype.kind == "c" else 8)


def saved_jaxpr(jaxpr: jax_core.ClosedJaxpr | jax_core.Jaxpr, name: str) -> SavedJaxpr:
    """A jaxpr as plain data.

    Args:
        jaxpr: what is to be written.
        name: the codelet's, for errors.

    Raises:
        SavingError: it holds Python functions, or primitives that are not JAX's.
    """
    is_closed = isinstance(jaxpr, jax_core.ClosedJaxpr)
    inner, consts = (jaxpr.jaxpr, jaxpr.consts) if isinstance(jaxpr, jax_core.ClosedJaxpr) else (jaxpr, ())
    if len(inner.constvars) != len(consts):
        raise _cannot(name, "an open jaxpr with constants")
    numbers: dict[Any, int] = {var: k for k, var in enumerate([*inner.constvars, *inner.invars])}
    avals: list[Any] = [var.aval for var in numbers]

    types = tuple((aval.shape, aval.dtype, aval.weak_type) for aval in avals[len(consts) :])

    def operand(atom: Any) -> int | _Number:
        if isinstance(atom, jax_core.Literal):
            aval: Any = atom.aval
            avals.append(aval)
            return _Number(np.asarray(atom.val, aval.dtype), aval.weak_type)
        return numbers[atom]

    equations, count = [], len(numbers)
    for eqn in inner.eqns:
        primitive = eqn.primitive.name
        known = primitive in _CALLS or primitive in _FUNCTIONS or _primitives().get(primitive) is eqn.primitive
        if not known:
            raise _cannot(name, f"the primitive {primitive}")
        params = {key: eqn.params[key] for key in ("name", "jaxpr")} if primitive in _CALLS else eqn.params
        kept = {key: _parameter(value, name, f"{primitive} with {key}") for key, value in params.items()}
        equations.append(_SavedEquation(primitive, tuple(map(operand, eqn.invars)), kept))
        for var in eqn.outvars:
            numbers[var] = count
            avals.append(var.aval)
            count += 1
    within = [part for own in equations for value in own.params.values() for part in _saved_within(value)]
    return SavedJaxpr(
        types,
        tuple(np.asarray(const) for const in consts),
        tuple(equations),
        tuple(map(operand, inner.outvars)),
        is_closed,
        any(map(_is_wide, avals)) or any(own.is_wide for own in within),
    )


def _saved_within(value: Any) -> list[SavedJaxpr]:
    if isinstance(value, SavedJaxpr):
        return [value]
    return [part for part in value if isinstance(part, SavedJaxpr)] if type(value) is tuple else []


def _read_parameter(value: Any) -> Any:
    if isinstance(value, SavedJaxpr):
        read = _read(value)
        return read if value.is_closed else read.jaxpr
    if _saved_within(value):
        return tuple(map(_read_parameter, value))
    return value


def _run(equation: _SavedEquation, operands: list[Any]) -> list[Any]:
    params = {key: _read_parameter(value) for key, value in equation.params.items()}
    if equation.primitive in _CALLS:
        function = jax_core.jaxpr_as_fun(params["jaxpr"])
        called = lambda *fields: function(*fields)  # noqa: E731 - which can be given the name it had
        called.__name__ = called.__qualname__ = params["name"]
        return jax.jit(called)(*operands)
    if equation.primitive in _FUNCTIONS:
        return [_FUNCTIONS[equation.primitive](*operands, **params)]
    primitive = _primitives()[equation.primitive]
    found = primitive.bind(*operands, **params)
    return list(found) if primitive.multiple_results else [found]


def _number(literal: _Number) -> Any:
    """A literal as what JAX makes it of again: a plain number where its dtype yields to others."""
    plain = literal.value.item() if literal.is_weak else None
    if plain is not None and jnp.asarray(plain).dtype == literal.value.dtype:
        return plain
    return literal.value[()]


def _read(saved: SavedJaxpr) -> jax_core.ClosedJaxpr:
    def run(*inputs: Any) -> list[Any]:
        values = [*map(jnp.asarray, saved.constants), *inputs]
        at = lambda operand: values[operand] if isinstance(operand, int) else _number(operand)  # noqa: E731
        for equation in saved.equations:
            values += _run(equation, list(map(at, equation.operands)))
        return list(map(at, saved.results))

    return jax.make_jaxpr(run)(*(jax.ShapeDtypeStruct(*own[:2], weak_type=own[2]) for own in saved.types))


def read_jaxpr(saved: SavedJaxpr) -> jax_core.ClosedJaxpr:
    """The jaxpr that plain data is.

    >>> saved = saved_jaxpr(jax.make_jaxpr(lambda x: 2 * x)(jnp.ones(3)), "double")
    >>> print(read_jaxpr(pickle.loads(pickle.dumps(saved))))
    { lambda ; a:f32[3]. let b:f32[3] = mul 2.0:f32[] a in (b,) }
    """
    with jax.enable_x64(saved.is_wide):
        return _read(saved)
