"""Arrays of 64 bits that a function captures: a trace depends on none before it, with more bits or with fewer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend import core as jax_core

import codelet as cl
from codelet.tracing.field_types import FieldType
from tests.examples import few

pytestmark = [
    pytest.mark.filterwarnings("error"),
    pytest.mark.filterwarnings("ignore:.*the machine has no:ipu_backend.model.costs.UnknownCyclesWarning"),
]

NARROW = {"float64": "float32", "int64": "int32", "uint64": "uint32", "complex128": "complex64"}
"""What dtypes become where JAX allows 32 bits."""


def values(dtype: str) -> np.ndarray:
    """Numbers that 32 bits do not hold."""
    exact = np.array([1, 2**30, 3], np.int64) if dtype in ("int64", "uint64") else np.array([1 / 3, 2 / 3, 1e-3])
    return (exact * 1j if dtype == "complex128" else exact).astype(dtype)


def plain(x, table):
    return x + table


def first_alone(x, table):
    return x + jnp.square(table)[::-1]


def in_a_loop(x, table):
    return lax.scan(lambda carry, _: (carry * 2 + table, None), x, None, 3)[0]


def in_a_while_loop(x, table):
    return lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1] + table), (jnp.int32(0), x))[1]


def in_a_branch(x, table):
    return lax.cond(jnp.real(x[0]) > 0, lambda x: x + table, lambda x: x - table, x)


def jitted(x, table):
    return jax.jit(lambda y: jax.jit(lambda z: z * table)(y) + table)(x)


def returned(x, table):
    return jnp.asarray(table)


def with_a_rule(x, table):
    @jax.custom_jvp
    def own(x):
        return x * table

    own.defjvp(lambda primals, tangents: (own(*primals), tangents[0] * table))
    return own(x)


HOW = [plain, first_alone, in_a_loop, in_a_while_loop, in_a_branch, jitted, returned, with_a_rule]


def fresh(how: Any, dtype: str) -> Any:
    """A function that captures a table, and bodies of loops and a codelet that do, none of which JAX has seen."""
    table = values(dtype)

    def body(carry: Any, _: Any) -> Any:
        return carry + table, None

    @cl.codelet
    def inner(x):
        return x * table

    def run(x):
        return how(inner(lax.scan(body, x, None, 2)[0]), table)

    return run


def constants(closed: jax_core.ClosedJaxpr) -> Iterator[tuple[str, Any]]:
    """The constants of a jaxpr and of those within, with their dtypes."""
    yield from ((str(own.dtype), np.asarray(own).tolist()) for own in closed.consts)
    for eqn in closed.jaxpr.eqns:
        for own in jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda own: hasattr(own, "eqns")):
            if isinstance(own, jax_core.ClosedJaxpr):
                yield from constants(own)


def told(closed: jax_core.ClosedJaxpr) -> tuple[str, list[Any]]:
    """A jaxpr as something to compare; derivative rules are other objects each time."""
    return re.sub(r"0x[0-9a-f]+", "", str(closed)), [*constants(closed)]


def kind(dtype: str, wide: bool) -> FieldType:
    return FieldType((3,), np.dtype(dtype if wide else NARROW[dtype]))


def of_codelet(function: Any, dtype: str) -> Callable[[bool], Any]:
    """How a codelet of a function is traced with more bits or less."""
    codelet = cl.codelet(function)
    return lambda wide: told(codelet.trace({"x": kind(dtype, wide)}).jaxpr)


def of_trace(function: Any, dtype: str) -> Callable[[bool], Any]:
    return lambda wide: told(cl.trace(function, kind(dtype, wide).struct()).jaxpr)


def of_adjoint(function: Any, dtype: str) -> Callable[[bool], Any]:
    codelet = cl.codelet(function)

    def traced(wide: bool) -> Any:
        adjoint = codelet.adjoint({"x": kind(dtype, wide).struct()})
        types = [FieldType((3,), np.dtype(dtype if wide else NARROW[dtype]))] * len(adjoint.inputs)
        return told(adjoint.trace(dict(zip(adjoint.inputs, types, strict=True))).jaxpr)

    return traced


def check(way: Any, made: Callable[[], Any], dtype: str, first: bool) -> None:
    """See that what is traced a second and third time is what is traced first by something that nothing has seen."""
    one, expected = way(made(), dtype), {}
    for wide in (first, not first, first):
        with jax.enable_x64(wide):
            found = one(wide)
            expected[wide] = way(made(), dtype)(wide) if wide not in expected else expected[wide]
        assert found == expected[wide]
        assert wide or dtype not in str(found)
    assert expected[True] != expected[False]


@pytest.mark.parametrize("first", [True, False])
@few("dtype, how", product(NARROW, HOW), every=3)
@pytest.mark.parametrize("way", [of_codelet, of_trace])
def test_a_trace_depends_on_none_before(way, dtype, how, first):
    check(way, lambda: fresh(how, dtype), dtype, first)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("how", [plain, first_alone, in_a_loop, in_a_branch, jitted, with_a_rule])
def test_an_adjoint_depends_on_none_before(how, first):
    check(of_adjoint, lambda: fresh(how, "float64"), "float64", first)


@pytest.mark.parametrize("first", [True, False])
def test_values_are_as_exact_as_the_bits_allow(first):
    """Whether a codelet is called, run vertex by vertex, interpreted or lowered."""
    codelet, table = cl.codelet(fresh(in_a_loop, "float64")), values("float64")
    for wide in (first, not first, first):
        with jax.enable_x64(wide):
            graph = cl.Graph()
            x = graph.add_variable("x", (3,), "float64" if wide else "float32")
            y = graph.add_vertex("run", codelet, x=x)
            given = {"x": np.ones(3, x.dtype)}
            exact = 8 * table * (1 + 2 * table) + 7 * table
            found = [
                codelet.frozen()(given["x"]),
                graph.vertex("run").run(given)["out"],
                cl.interpret(graph, given, [y])[y.name],
                cl.lower(graph, inputs=[x], outputs=[y])(given)[y.name],
            ]
        for own in found:
            np.testing.assert_allclose(own, exact, rtol=1e-15 if wide else 1e-6)
            assert np.asarray(own).dtype == x.dtype
