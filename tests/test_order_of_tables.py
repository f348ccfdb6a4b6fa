"""What is looked up by one table and put by another: looked up where it belongs, where both are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.extend import core as jax_core

import codelet as cl
from codelet.jaxprs.rebuild import inline
from lowering.jaxprs.join_tables import join_tables
from tests.at_once import at_once, with_slopes
from tests.examples import examples
from tests.ops_cases import array, assert_alike

SIZE, TABLE = 97, 13
READ = np.random.default_rng(0).integers(0, TABLE, SIZE).astype(np.int32)
UNIQUE: dict[str, Any] = {"unique_indices": True, "wrap_negative_indices": False}
PUT = np.random.default_rng(1).permutation(SIZE).astype(np.int32)


def _names(function: Callable[..., Any], *arguments: Any) -> list[str]:
    """The gathers and scatters that are left of a function, whose values and slopes stay."""
    closed = join_tables(inline(jax.make_jaxpr(function)(*arguments)))
    ours = lambda *given: jax_core.jaxpr_as_fun(closed)(*given)[0]  # noqa: E731
    both = at_once(with_slopes(ours), with_slopes(function))(*arguments)
    for made, plain in zip(*map(jax.tree.leaves, both), strict=True):
        assert_alike(made, plain)
    names = [eqn.primitive.name for eqn in closed.jaxpr.eqns]
    return [name for name in names if name in ("gather", "scatter")]


def _put(x: Any, read: Any, put: Any, size: int = SIZE, mode: str = "promise_in_bounds", start: float = 0.0) -> Any:
    own = x.reshape(-1).at[jnp.asarray(read)].get(mode=mode, wrap_negative_indices=False)
    return jnp.full(size, start, x.dtype).at[jnp.asarray(put)].set(own, mode="drop", **UNIQUE)


@examples(8)
@given(st.integers(65, 200), st.integers(2, 40), st.data())
def test_known_tables_are_one(size, extent, data):
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    read, put = random.integers(0, extent, size, np.int32), random.permutation(size).astype(np.int32)
    shape = data.draw(st.sampled_from([(extent,), (extent, 1), (1, extent)]))
    mode = data.draw(st.sampled_from(["clip", "fill", "promise_in_bounds"]))
    start = data.draw(st.sampled_from([0.0, 2.0]))
    function = lambda x: jnp.sin(_put(x, read, put, size, mode, start))  # noqa: E731
    assert _names(function, array(shape)) == ["gather"]


@pytest.mark.parametrize(
    "reason", ["named twice", "beyond the ends", "read beyond the ends", "some are left", "rows", "given", "added"]
)
def test_what_stays(reason):
    """The values of each are compared above all."""
    read, put = READ.copy(), PUT.copy()
    match reason:
        case "named twice":
            put[put == 0] = SIZE  # which drops it, and leaves what was there
        case "beyond the ends":
            put[3] = -1 - SIZE
        case "read beyond the ends":
            read[3] = TABLE
    x = array((TABLE, 2) if reason == "rows" else (TABLE,))
    if reason == "some are left":
        assert "scatter" in _names(lambda x: _put(x, read, put, SIZE + 1, start=1.0), x)
    elif reason == "rows":
        both = lambda x: jnp.zeros((SIZE, 2)).at[jnp.asarray(put)].set(x[jnp.asarray(read)], **UNIQUE)  # noqa: E731
        assert "scatter" in _names(both, x)
    elif reason == "given":
        places = jnp.asarray(put).astype(np.float32)
        made = lambda x, put: _put(x, read, put.astype(jnp.int32))  # noqa: E731
        assert "scatter" in _names(made, x, places)
    elif reason == "added":
        other = lambda x: jnp.ones(SIZE).at[jnp.asarray(put)].add(x[jnp.asarray(read)], **UNIQUE)  # noqa: E731
        assert "scatter" not in _names(other, x)  # it is another primitive
    else:
        mode = "clip" if reason == "read beyond the ends" else "promise_in_bounds"
        assert "scatter" in _names(lambda x: _put(x, read, put, mode=mode, start=1.0), x)


@cl.codelet
def total(x):
    return jnp.sum(x)


@cl.codelet
def total_of_sines(x):
    return jnp.sum(jnp.sin(x))


@pytest.mark.parametrize(("codelet", "others"), [(total, []), (total_of_sines, ["scatter"])])
def test_the_gradient_of_sums_over_rows_of_a_table(codelet, others):
    """Every element is in one row: what the rows give back to them is looked up, where it is nothing else."""
    graph = cl.Graph()
    x, y = graph.add_variable("x", (SIZE,)), graph.add_variable("y", (TABLE,))
    ends = np.sort(np.random.default_rng(2).integers(0, SIZE + 1, TABLE - 1))
    rows = cl.table(PUT, offsets=np.concatenate([[0], ends, [SIZE]]))
    i = cl.grid(TABLE)
    graph.add_vertex("total", codelet, x=x[rows[i]], out=y[i])
    cotangent = array((TABLE,), seed=1)
    found = cl.gradient(graph, y, [x], cotangent=cotangent)
    both = cl.Sequence(found.forward, found.backward)
    lowered = cl.lower(graph, both, inputs=[x], outputs=[found[x]])
    values = array((SIZE,))
    own = cl.interpret(graph, {"x": np.asarray(values)}, [found[x].source.name], both)
    assert_alike(lowered.flat([values])[0], own[found[x].source.name])
    names = [eqn.primitive.name for eqn in lowered.jaxpr.jaxpr.eqns]
    assert [own for own in names if own == "scatter"] == others
    assert "gather" in names
