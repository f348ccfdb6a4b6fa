"""Operations beside their JAX namesakes: one case, run in every way, forward and backward.

A case is a function of a graph and tensors, the plain JAX function that it must equal, and the arguments. `check` runs
the lowered graph and plain JAX compiled, compares values, and slopes by vector-Jacobian products; and the graph one
vertex at a time, and on tiles, where that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from codelet.graphs.vertices import gather
from codelet.views.sources import source_variables

TARGET = cl.IPU(num_tiles=8)
"""So few tiles that small shapes are cut."""


_QUICK: Any = {"xla_backend_optimization_level": 0}
"""Programs that run once, for less than they take to compile."""


class Case(NamedTuple):
    """An operation and its namesake.

    Attributes:
        build: takes a graph and tensors, and returns tensors, in any pytree.
        plain: takes arrays, and returns arrays, in the same pytree.
        arguments: arrays.
        tolerance: by how much floats may differ, of the largest number of an array; by dtype when None.
        slopes: whether gradients by the arguments of floating point are compared.
    """

    build: Callable[..., Any]
    plain: Callable[..., Any]
    arguments: tuple[Any, ...]
    tolerance: float | None = None
    slopes: bool = True


def array(shape: Sequence[int], dtype: Any = jnp.float32, seed: int = 0, low: float = -2, high: float = 2) -> jax.Array:
    """Made numbers: of floating point between two ends, whole ones as far as they go, or booleans."""
    random = np.random.default_rng((seed, *shape))
    if np.dtype(dtype) == bool:
        made = random.random(shape) < 0.5
    elif jnp.issubdtype(dtype, jnp.integer):
        made = random.integers(int(low), int(high) + 1, shape)
    else:
        made = random.uniform(low, high, shape)
    return jax.device_put(made.astype(jax.dtypes.canonicalize_dtype(dtype)))  # for which nothing is compiled


_TOLERANCES = {"float64": 1e-12, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}


def assert_alike(ours: Any, plain: Any, tolerance: float | None = None) -> None:
    """See that arrays are alike: of the same shape and dtype, floats up to a tolerance, all else exactly."""
    ours, plain = np.asarray(ours), np.asarray(plain)
    assert (ours.shape, ours.dtype) == (plain.shape, plain.dtype)
    if not jnp.issubdtype(plain.dtype, jnp.inexact):
        np.testing.assert_array_equal(ours, plain)
        return
    wide = np.complex128 if jnp.issubdtype(plain.dtype, jnp.complexfloating) else np.float64
    ours, plain, own = ours.astype(wide), plain.astype(wide), str(plain.dtype)
    scale = np.max(np.abs(plain), initial=0, where=np.isfinite(plain)) + 1e-30
    np.testing.assert_allclose(ours, plain, rtol=0, atol=scale * (tolerance or _TOLERANCES.get(own, 1e-5)))


def _plain(tree: Any) -> Any:
    """A tree with plain tuples in the place of named ones."""
    if isinstance(tree, (tuple, list)):
        return (tuple if isinstance(tree, tuple) else list)(map(_plain, tree))
    return {key: _plain(value) for key, value in tree.items()} if isinstance(tree, dict) else tree


def _assert_all_alike(ours: Any, plain: Any, tolerance: float | None) -> None:
    ours, plain = _plain(ours), _plain(plain)
    assert jax.tree.structure(ours) == jax.tree.structure(plain)
    jax.tree.map(lambda a, b: assert_alike(a, b, tolerance), ours, plain)


def check(case: Case, *, interpreted: bool = False, on_tiles: bool = False, target: Any = TARGET) -> None:
    """See that an operation gives what its namesake gives.

    Args:
        case: the two.
        interpreted: whether it is run one vertex at a time as well: of small shapes.
        on_tiles: whether it is run on tiles as well.
        target: what it is planned for.
    """
    ours = cl.lower(case.build, target=target)
    smooth = [k for k, own in enumerate(case.arguments) if jnp.issubdtype(jnp.result_type(own), jnp.floating)]
    floats = lambda tree: [a for a in jax.tree.leaves(tree) if jnp.issubdtype(a.dtype, jnp.floating)]  # noqa: E731

    def both(*arguments: Any) -> Any:
        found = []
        for function in (ours, case.plain):

            def of_smooth(*values: Any, function: Any = function) -> Any:
                given = list(arguments)
                for k, value in zip(smooth, values, strict=True):
                    given[k] = value
                return function(*given)

            if not case.slopes or not smooth:
                found.append((function(*arguments), ()))
                continue

            def floats_and_all(*values: Any, of_smooth: Any = of_smooth) -> Any:
                found = of_smooth(*values)
                return floats(found), found

            values, pull = jax.vjp(floats_and_all, *(arguments[k] for k in smooth))
            cotangents = [
                jnp.cos(jnp.arange(a.size, dtype=jnp.float32)).astype(a.dtype).reshape(a.shape) for a in values[0]
            ]
            zeros = jax.tree.map(
                lambda a: (
                    jnp.zeros_like(a) if jnp.issubdtype(a.dtype, jnp.inexact) else np.zeros(a.shape, jax.dtypes.float0)
                ),
                values[1],
            )
            found.append((values[1], pull((cotangents, zeros))))
        return found

    (values, slopes), (plain_values, plain_slopes) = jax.jit(both, compiler_options=_QUICK)(*case.arguments)
    _assert_all_alike(values, plain_values, case.tolerance)
    _assert_all_alike(slopes, plain_slopes, case.tolerance)
    if not interpreted and not on_tiles:
        return
    lowered = ours.at(*case.arguments)
    names = [variable.name for variable in lowered.plan.inputs]
    given = dict(zip(names, map(np.asarray, jax.tree.leaves(case.arguments)), strict=True))
    sources = {own.name: own for tensor in lowered.plan.outputs for own in source_variables(tensor.source)}
    constants = {name: own.value for name, own in sources.items() if own.value is not None}
    written = [name for name in sources if name not in constants]
    results = []
    if interpreted:
        results.append(cl.interpret(lowered.graph, values=given, outputs=written, program=lowered.program))
    if on_tiles:
        engine = cl.Engine(lowered.graph, lowered.program, execution="tiles")
        run = engine.function(inputs=names, outputs=written)
        results.append(jax.jit(run, compiler_options=_QUICK)(given))
    for result in results:
        held = constants | result
        values = {own.first_element: np.asarray(held[name]).reshape(-1) for name, own in sources.items()}
        for tensor, own in zip(lowered.plan.outputs, jax.tree.leaves(plain_values), strict=True):
            assert_alike(gather(values, tensor), own, case.tolerance)
