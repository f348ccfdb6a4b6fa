"""Programs that nobody here wrote the libraries of: traced as they are, with the values and slopes of plain JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from tests.ecosystem.program import PACKAGES, is_there, programs_of

ALL = [own for package in PACKAGES if is_there(package) for own in programs_of(package)]


def key_data(value: Any) -> Any:
    """The numbers of keys, which an engine holds; other arrays as they are."""
    return jax.random.key_data(value) if jnp.issubdtype(value.dtype, jax.dtypes.prng_key) else value


def _numbers(value: Any) -> np.ndarray:
    return np.asarray(key_data(value))


def _is_close(own: np.ndarray, other: np.ndarray, tolerance: float) -> bool:
    if not np.issubdtype(own.dtype, np.inexact):
        return bool(np.array_equal(own, other))
    scale = 1 + np.abs(other[np.isfinite(other)]).max(initial=0)
    return np.allclose(own, other, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def _distance(own: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(own.astype(np.float64) - other).max(initial=0))


def _in_double(function: Any, given: Sequence[Any]) -> Any:
    """What a function gives with twice the bits, of the same numbers."""

    def double(own: Any) -> Any:
        return np.asarray(own, np.float64) if jnp.result_type(own) == jnp.float32 else own

    with jax.enable_x64(True):
        return jax.tree.map(_numbers, jax.jit(function)(*jax.tree.map(double, given)))


def checked(found: Any, function: Any, given: Sequence[Any], tolerance: float = 1e-4) -> None:
    """A result like plain JAX's: of one structure, integers the same, floats within a tolerance of the greatest.

    What a step makes of rounding alone, as Adam does of slopes that are zero, may differ by more: it is no further from
    what the function gives in double precision than three times as far as plain JAX's is.
    """
    expected = jax.jit(function)(*given)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    pairs = list(zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True))
    for own, other in pairs:
        assert (own.shape, own.dtype) == (other.shape, other.dtype)
    apart = [k for k, (own, other) in enumerate(pairs) if not _is_close(_numbers(own), _numbers(other), tolerance)]
    if not apart:
        return
    exact = jax.tree.leaves(_in_double(function, given))
    for k in apart:
        own, other = map(_numbers, pairs[k])
        assert np.issubdtype(own.dtype, np.inexact), f"result {k}: {own} for {other}"
        assert _distance(own, exact[k]) <= 3 * _distance(other, exact[k]), f"result {k}: {own} for {other}"


def loss_of(function: Any) -> Any:
    """The sum of the squares of all floats that a function gives."""
    floats = lambda own: [leaf for leaf in jax.tree.leaves(own) if jnp.issubdtype(leaf.dtype, np.inexact)]  # noqa: E731
    return lambda *given: sum((leaf**2).sum() for leaf in floats(function(*given)))


def several(value: Any) -> Any:
    """Three of a value, each a little different."""
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return jax.random.split(value, 3)
    own = np.asarray(value)
    if np.issubdtype(own.dtype, np.floating):
        return np.stack([own, 0.99 * own, 0.97 * own]).astype(own.dtype)
    return np.stack([own, np.roll(own, 1), np.flip(own)])


SLOPED = [own for own in ALL if own.slopes]
each = pytest.mark.parametrize("program", ALL, ids=[own.name for own in ALL])
each_sloped = pytest.mark.parametrize("program", SLOPED, ids=[own.name for own in SLOPED])
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@each
def test_values(program):
    function, given = program.make()
    checked(cl.jit(function)(*given), function, given)


@each_sloped
def test_slopes(program):
    function, given = program.make()
    slopes = jax.jit(jax.grad(loss_of(cl.trace(function, *given)), program.slopes))(*given)
    checked(slopes, jax.grad(loss_of(function), program.slopes), given, 1e-3)


@each
def test_maps(program):
    """By `jax.vmap` over what is differentiated by, or else over the last argument."""
    function, given = program.make()
    places = program.slopes or (len(given) - 1,)
    axes = tuple(0 if k in places else None for k in range(len(given)))
    given = tuple(jax.tree.map(several, own) if k in places else own for k, own in enumerate(given))
    try:
        jax.eval_shape(jax.vmap(function, axes), *given)
    except Exception as error:
        pytest.skip(f"plain JAX does not map it: {error!s:.80}")
    traced = cl.trace(
        function, *(jax.tree.map(lambda own: own[0], o) if k in places else o for k, o in enumerate(given))
    )
    checked(jax.jit(jax.vmap(traced, axes))(*given), jax.vmap(function, axes), given)


@each
def test_on_the_machine(program):
    """Written to an engine, run and read; and its profile."""
    function, given = program.make()
    traced = cl.trace(function, *given)
    engine = cl.Engine(traced)
    engine.write(traced.arrays(*given))
    engine.run()
    checked(engine.read(traced.outputs), lambda *given: jax.tree.map(key_data, function(*given)), given)
    profile = engine.profile()
    assert profile.summary()


@each_sloped
def test_slopes_as_graphs(program):
    """By `cl.gradient`, of what has no loop without a bound."""
    function, given = program.make()
    loss = loss_of(function)
    traced = cl.trace(loss, *given)
    wanted = traced.inputs
    by = jax.tree.leaves(tuple(wanted[k] for k in program.slopes))
    try:
        found = cl.gradient(traced.graph, of=traced.outputs, wrt=by, program=traced.program)
    except cl.CodeletError as error:
        pytest.skip(f"not by vertices: {error!s:.120}")
    lowered = cl.lower(
        traced.graph,
        cl.Sequence(found.forward, found.backward),
        inputs=list(traced.flat_inputs),
        outputs=[found[own] for own in by],
    )
    slopes = lowered(traced.arrays(*given))
    expected = jax.tree.leaves(jax.jit(jax.grad(loss, program.slopes))(*given))
    for own, other in zip(jax.tree.leaves(slopes), expected, strict=True):
        assert _is_close(np.asarray(own), _numbers(other), 1e-3)


@pytest.mark.parametrize("name", ["flax/decode", "flax/scan_over_layers", "flax/transformer", "haiku/transformer"])
def test_language_models_are_drawn(name):
    pytest.importorskip("numba", reason="pictures are drawn by libraries of the extra `draw`")
    (program,) = [own for own in ALL if own.name == name] or [None]
    if program is None:
        pytest.skip(f"{name.partition('/')[0]} is not installed")
    function, given = program.make()
    run = cl.trace(function, *given)
    picture = run.draw(size=512)
    assert f"{run.graph.num_vertices:,} vertices" in picture.about
    assert (picture.pixels.max(-1) > 16).mean() > 0.02


def test_there_are_as_many_as_were_named():
    """All packages installed, they are sixty and more."""
    missing = [package for package in PACKAGES if not is_there(package)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    assert len(ALL) >= 60
