"""Functions that are mapped over a mesh of devices, as graphs of one machine: values, and gradients both ways."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P

import codelet as cl
from tests.at_once import at_once
from tests.examples import few

X = jnp.sin(jnp.arange(32.0)).reshape(4, 8)
Y = jnp.cos(jnp.arange(8.0))


def mesh() -> Mesh:
    return jax.make_mesh((2, 4), ("i", "j"), axis_types=(AxisType.Auto,) * 2)


def mapped(function: Any, in_specs: Any, out_specs: Any, **options: Any) -> Any:
    return lambda *given: jax.shard_map(function, mesh=mesh(), in_specs=in_specs, out_specs=out_specs, **options)(
        *given
    )


def spoken(x: Any, y: Any) -> Any:
    """Sums, gathers, what goes round, and the numbers of the devices."""
    scale = lax.psum(x.sum(), "i") + jnp.where(lax.axis_index("j") > 1, 1.0, 0.5)
    round_ = lax.ppermute(y, "j", [(k, (k + 1) % 4) for k in range(4)])
    return (
        x * scale + lax.all_gather(y, "j", tiled=True).max(),
        round_,
        lax.psum(y, "j"),
        lax.pmean(x.max(), ("i", "j")),
    )


def looped(x: Any) -> Any:
    """A loop that sums over devices in each turn."""
    start = lax.pcast(jnp.zeros(()), ("j",), to="varying")
    return lax.scan(lambda c, row: (c + lax.psum(row.sum(), "i"), c), start, x)[0][None]


@jax.custom_vjp
def clipped(x):
    return jnp.sin(x)


clipped.defvjp(lambda x: (jnp.sin(x), x), lambda x, slope: (jnp.clip(slope * jnp.cos(x), -0.25, 0.25),))

MAPPED = {
    "alone": (mapped(jnp.sin, P("i", "j"), P("i", "j")), (X,)),
    "over both axes": (mapped(lambda x: jnp.cumsum(x), P(("i", "j")), P(("i", "j"))), (X.reshape(-1),)),
    "the other way round": (mapped(lambda x: jnp.cumsum(x), P(("j", "i")), P(("j", "i"))), (X.reshape(-1),)),
    "transposed": (mapped(lambda x: x.T * 2, P("i", "j"), P("j", "i")), (X,)),
    "not spread out": (mapped(lambda x, y: x * y.sum(), (P(None, "j"), P()), P(None, "j")), (X, Y)),
    "collectives": (mapped(spoken, (P("i", "j"), P("j")), (P("i", "j"), P("j"), P(), P())), (X, Y)),
    "unchecked": (
        mapped(spoken, (P("i", "j"), P("j")), (P("i", "j"), P("j"), P(), P()), check_vma=False),
        (X, Y),
    ),
    "a loop": (mapped(looped, P("i", "j"), P("j")), (X,)),
    "derivative rules": (mapped(lambda x: clipped(jax.nn.relu(x)) * 2, P("i"), P("i")), (X,)),
    "derivative rules, unchecked": (mapped(lambda x: clipped(x) * 2, P("i", "j"), P("i", "j"), check_vma=False), (X,)),
    "of some axes": (mapped(lambda x: lax.psum(x, "i"), P("i"), P(), axis_names={"i"}), (X,)),
    "pmap": (jax.pmap(lambda x: x * 2 + lax.psum(x, "k"), axis_name="k"), (X.T,)),
    "pmap without a collective": (jax.pmap(lambda x, y: jnp.outer(x, y), in_axes=(0, None)), (X.T, Y)),
}


def loss_of(function: Any) -> Any:
    return lambda *given: sum((own**2).sum() for own in jax.tree.leaves(function(*given)))


@few(
    "name",
    MAPPED,
    quick=[
        "alone",
        "over both axes",
        "the other way round",
        "transposed",
        "a loop",
        "derivative rules",
        "derivative rules, unchecked",
        "of some axes",
        "pmap without a collective",
    ],
)
def test_values_and_gradients(name):
    function, given = MAPPED[name]
    same = lambda a, b: jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-5, atol=1e-5), a, b)  # noqa: E731
    traced, gradient = cl.trace(function, *given), lambda own: jax.grad(loss_of(own), tuple(range(len(given))))
    values, slopes, traced_slopes = at_once(traced, gradient(traced), cl.trace(gradient(function), *given))(*given)
    same(values, jax.jit(function)(*given))
    expected = jax.jit(gradient(function))(*given)
    same(slopes, expected)
    same(traced_slopes, expected)


def test_each_device_has_vertices_of_its_own():
    traced = cl.trace(MAPPED["alone"][0], X, grain=1)
    assert traced.graph.num_vertices == X.size
