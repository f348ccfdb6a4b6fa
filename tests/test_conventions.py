"""Functions that rest on a convention of JAX, traced, in codelets and in `cl.gradient`: values and slopes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, assume, given
from hypothesis import strategies as st

import codelet as cl
from benchmarks.traced_steps import by_vertices
from tests.conventions import KINDS, Convention, conventions
from tests.drawn_dtypes import DTYPES, FLOATS, assert_near
from tests.examples import examples

pytestmark = pytest.mark.filterwarnings("ignore::codelet.UnknownCyclesWarning")  # of floats the machine has not

FORMS = ["traced", "slopes of traced", "traced slopes", "codelet", "gradient", "gradient of traced"]
ROWS = 2


def is_float(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def summed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A number of a function's array, along a cotangent that tells its elements apart."""

    def total(x: Any) -> Any:
        y = function(x)
        return jnp.vdot(y, weights(y.shape, y.dtype))

    return total


def weights(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.cos(np.arange(int(np.prod(shape)))).reshape(shape).astype(dtype)


def values(data: Any, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    random = np.random.default_rng(data.draw(st.integers(0, 999)))
    if jnp.issubdtype(dtype, jnp.floating):
        return random.uniform(-2, 2, shape).astype(dtype)
    return random.integers(0, 2 if np.dtype(dtype).kind == "b" else 6, shape).astype(dtype)


def of_rows(function: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A graph of a vertex for each row, which runs a function; and the same by plain JAX."""
    codelet = cl.codelet(lambda x: function(x))

    def build(graph: cl.Graph, x: cl.Tensor) -> cl.Tensor:
        return graph.add_vertex("apply", codelet, x=x[cl.grid(ROWS)])

    return build, lambda x: jnp.stack([function(row) for row in x])


def built(own: Convention, x: Any) -> tuple[cl.Graph, str, cl.Tensor, Callable[..., Any]]:
    """A graph of a vertex for each row: the graph, what goes in, what comes out, and plain JAX's function."""
    build, plain = of_rows(own.function)
    graph = cl.Graph(cl.IPU(num_tiles=4))
    made = build(graph, graph.add_variable("x", x.shape, x.dtype))
    return graph, "x", made, plain


def slope_by_differences(loss: Callable[..., Any], x: np.ndarray, way: np.ndarray) -> float:
    """The slope of a function of float64 along a direction, to the fourth order in the step."""
    at = lambda step: loss(x + step * way)  # noqa: E731
    moved = jax.jit(lambda steps: jax.lax.map(at, steps))(1e-4 * np.array([1.0, -1.0, 2.0, -2.0]))
    near, far = (moved[0] - moved[1]) / 2e-4, (moved[2] - moved[3]) / 4e-4
    return float((4 * near - far) / 3)


def check_gradient(
    own: Convention, x: Any, graph: cl.Graph, name: str, made: cl.Tensor, plain: Any, program: Any = None
) -> None:
    """`cl.gradient` is what differences say, or, where these say nothing, what JAX says."""
    cotangent = weights(made.shape, made.dtype)
    found = cl.gradient(graph, of=made, wrt=[name], program=program, cotangent=cotangent)
    run = cl.lower(graph, cl.Sequence(found.forward, found.backward), inputs=[name], outputs=[*found])
    slope = np.asarray(jax.jit(run)({name: x})[next(iter(found)).source.name])
    if x.dtype != np.float64 or not own.by_differences:
        assert_near(slope, jax.jit(jax.grad(summed(plain)))(x), own.computed_in or x.dtype)
        return
    way = np.random.default_rng(1).normal(size=x.shape)
    expected = slope_by_differences(summed(plain), x, way)
    # What lies within a step of a kink has no slope that differences could tell.
    assume(np.isfinite(expected))
    assert abs(np.vdot(slope, way) - expected) < 1e-5 * (1 + np.abs(slope).sum() + abs(expected)), own.name


def check(data: Any, kinds: Any = tuple(KINDS)) -> None:
    """A convention of some type, in some form."""
    form = data.draw(st.sampled_from(FORMS))
    of_slopes = form in FORMS[1:3] or form.startswith("gradient")
    wide = form.startswith("gradient") and data.draw(st.integers(0, 3)) > 0
    dtype = np.float64 if wide else data.draw(st.sampled_from(FLOATS if of_slopes else DTYPES))
    shape = data.draw(st.sampled_from([(3, 3), (3, 3), (2, 2), (5,), (2, 3), (1, 1), (0, 2)]))
    with jax.enable_x64(wide), warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.OneVertexWarning)
        own = data.draw(conventions(jax.ShapeDtypeStruct(shape, np.dtype(dtype)), kinds))
        assume(own is not None)
        of = jax.eval_shape(own.function, jax.ShapeDtypeStruct(shape, np.dtype(dtype)))
        assume(not of_slopes or (own.slopes and is_float(of)))
        run(data, own, form, values(data, (ROWS, *shape) if form in ("codelet", "gradient") else shape, dtype))


def run(data: Any, own: Convention, form: str, x: np.ndarray) -> None:
    """A convention in some form, beside plain JAX."""
    grain = data.draw(st.sampled_from([None, None, 1, 2, 5]))
    target, rounded = cl.IPU(num_tiles=4), own.computed_in or x.dtype
    if form.startswith("gradient"):
        if form == "gradient":
            graph, name, made, plain = built(own, x)
            check_gradient(own, x, graph, name, made, plain)
            return
        traced = cl.trace(own.function, x, target=target, grain=grain)
        (given,), made = traced.inputs, traced.outputs
        assume(made.source is not given.source and not hasattr(made.source, "patches"))
        check_gradient(own, x, traced.graph, given.source.name, made, own.function, traced.program)
        return
    if form == "codelet":
        graph, name, made, plain = built(own, x)
        expected = jax.jit(plain)(x)
        out = "apply/out"
        assert_near(cl.interpret(graph, values={name: x}, outputs=[made])[out], expected, rounded)
        for execution in ("fused", "tiles", "addresses"):
            function = cl.Engine(graph, execution=execution).function(inputs=[name], outputs=[made])
            assert_near(jax.jit(function)({name: x})[out], expected, rounded)
        return
    function = own.function if form != "traced slopes" else jax.grad(summed(own.function))
    traced: Any = cl.trace(function, x, target=target, grain=grain)
    runs = [traced, by_vertices(traced), function]
    if form == "slopes of traced":
        runs = [jax.grad(summed(own)) for own in runs]
    *ours, plain = jax.jit(lambda x: [own(x) for own in runs])(x)
    for own in ours:
        assert_near(own, plain, rounded)


@examples(12, phases=[Phase.generate])
@given(st.data())
def test_conventions(data):
    assume(data.draw(st.booleans()))  # the least of everything would tell little
    check(data)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@examples(150)
@given(st.data())
def test_many_conventions(kind, data):
    check(data, [kind])
