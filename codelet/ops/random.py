"""Random numbers by counters: those that `jax.random` draws from the same key, whatever the tiles and the grain.

Element i of an array is made by Threefry-2x32 with 20 rounds of the 64-bit counter i, by whichever vertex it is (Salmon
et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011). 32 bits are the two words of the block exclusively or-ed,
fewer bits the lowest of these, 64 bits both words. This is JAX's default form, which it calls partitionable
(`jax_threefry_partitionable`, with the key implementation `threefry2x32`). A key is a tensor of two words, uint32 of
shape (2,): `jax.random.key_data(key)`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from codelet.deprecated import old_order
from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.hostdata import is_of_keys
from codelet.ops.arguments import check_floating, check_tensors, checked_dtype, checked_grain, is_key
from codelet.ops.pairs import Pair
from codelet.ops.planning import MEMORY_FRACTION
from codelet.ops.random_codelets import (
    draw_between,
    draw_bits,
    draw_normal,
    draw_truth,
    draw_truths,
    draw_uniform,
    drop,
    fold,
    make_keys,
)
from codelet.ops.random_planning import add_draws, draw_work
from codelet.ops.schema import checked
from codelet.views.index import Index
from codelet.views.tensor import Tensor

# --- what is given ------------------------------------------------------------------------------------------


def _check_key(operation: str, graph: Graph, key: Any, **tensors: Tensor) -> None:
    """See that a key is a tensor of its data, or a key that JAX has made, typed or not; and that others are tensors.

    Raises:
        OperationError: a key of another form, or of another implementation than `threefry2x32`.
    """
    if isinstance(key, Tensor) or getattr(key, "dtype", None) is None:
        check_tensors(operation, graph, key=key, **tensors)
    else:
        check_tensors(operation, graph, **tensors)
    known: Any = key
    is_typed = is_of_keys(key.dtype)
    if (key.shape, is_typed or key.dtype == np.uint32) != (() if is_typed else (2,), True) or (
        is_typed and str(jax.random.key_impl(known)) != "threefry2x32"
    ):
        raise OperationError(
            f"key of ops.{operation} is not a key",
            given=key,
            expected="jax.random.key(seed), of the implementation threefry2x32, or its data: uint32 of shape (2,)",
            fix="pass jax.random.key(seed), or of a tensor what jax.random.key_data gives",
        )


def _key_tensor(graph: Graph, key: Any) -> Tensor:
    """A key as a tensor of its data, in the scope that is open: a constant, where it is known."""
    return key if isinstance(key, Tensor) else graph.add_constant("key", key)


def _checked_shape(operation: str, shape: Any, per_element: int = 1) -> tuple[int, ...]:
    try:
        own = tuple(map(operator.index, (shape,) if isinstance(shape, int) else shape))
    except TypeError:
        own = (-1,)
    if any(extent < 0 for extent in own) or math.prod(own) * per_element >= 2**31:
        raise OperationError(
            f"the shape of ops.{operation} is invalid or too large",
            given=repr(shape),
            expected="integers from 0, of fewer than 2**31 numbers in all",
        )
    return own


def _checked_number(operation: str, name: str, value: Any, least: float = -math.inf, most: float = math.inf) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not least <= number <= most:
        raise OperationError(
            f"{name} of ops.{operation} is no number that it may be",
            given=repr(value)[:80],
            expected="a number" if least == -math.inf else f"a number from {least:g} to {most:g}",
        )
    return number


def _checked_float(operation: str, dtype: Any) -> np.dtype:
    own = checked_dtype(operation, "dtype", float if dtype is None else dtype)
    if not jnp.issubdtype(own, jnp.floating) or own.itemsize < 2:
        raise OperationError(
            f"dtype of ops.{operation} is not of floating point", given=own, expected="float32, float16 or bfloat16"
        )
    return own


def _broadcast(operation: str, name: str, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A tensor in the shape of the results, flattened."""
    try:
        fits = np.broadcast_shapes(tensor.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise OperationError(
            f"{name} of ops.{operation} does not broadcast to the shape of the results",
            given=f"{tensor.shape} and {shape}",
            expected="extents that are 1 or the same, counted from the end",
        )
    return tensor.broadcast_to(shape).flatten()


# --- planned and added --------------------------------------------------------------------------------------


def _draw(
    graph: Graph,
    name: str,
    key: Any,
    codelets: Pair,
    shape: tuple[int, ...],
    of: Any,
    planned: tuple[int | None, float],
    operands: Mapping[str, Tensor | float] = MappingProxyType({}),
    **static: Any,
) -> Tensor:
    """The vertices that draw an array of a dtype, each a stretch of it, from the numbers of its elements."""
    dtype, grain, own = np.dtype(of), checked_grain(name, planned[0]), dict[str, Tensor]()
    with graph.scope(name, unique=True):
        key = _key_tensor(graph, key)
        for which, value in operands.items():
            if not isinstance(value, Tensor):
                value = graph.add_constant(which, np.array(value, dtype)).broadcast_to((math.prod(shape),))
            own[which] = value
        out = graph.add_variable("out", shape, dtype)
        flat = out.flatten()

        def fields(elements: slice) -> dict[str, Any]:
            place = flat[elements]
            return {"key": key, "counter": place.index, "out": place} | {
                k: tensor[elements] for k, tensor in own.items()
            }

        if out.size:
            dtypes = {which: tensor.dtype for which, tensor in own.items()}
            add_draws(graph, draw_work("draw", codelets, out.size, dtypes, dtype, static), grain, planned[1], fields)
    return out


# --- operations ---------------------------------------------------------------------------------------------


@old_order(("key", "shape", "dtype"), is_key)
@checked
def random_bits(
    graph: Graph,
    shape: Sequence[int] = (),
    *,
    key: Any,
    dtype: Any = None,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "random_bits",
) -> Tensor:
    """Random bits, as `jax.random.bits` draws them.

    Args:
        graph: where its compute set is added, in a scope of its name.
        shape: of the results.
        key: `jax.random.key(seed)`, or its data, uint32 of shape (2,): a tensor, or numbers that are known.
        dtype: of the results, unsigned integers: default: uint32, uint64 with x64.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: a key, a shape or a dtype that is none.

    >>> import codelet as cl, jax
    >>> key = jax.random.key(7)
    >>> draw = cl.lower(lambda graph, key: cl.ops.random_bits(graph, (3, 5), key=key))
    >>> bool((draw(jax.random.key_data(key)) == jax.random.bits(key, (3, 5))).all())
    True
    """
    _check_key(name, graph, key)
    shape = _checked_shape(name, shape)
    own = checked_dtype(name, "dtype", jax.dtypes.canonicalize_dtype(np.uint64) if dtype is None else dtype)
    if not jnp.issubdtype(own, jnp.unsignedinteger):
        raise OperationError(f"dtype of ops.{name} is not of unsigned integers", given=own, expected="uint32, say")
    return _draw(graph, name, key, draw_bits, shape, own, (grain, memory_fraction), dtype=own.name)


@old_order(("key", "shape", "dtype", "minval", "maxval"), is_key)
@checked
def uniform(
    graph: Graph,
    shape: Sequence[int] = (),
    *,
    key: Any,
    dtype: Any = None,
    minval: Tensor | float = 0.0,
    maxval: Tensor | float = 1.0,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "uniform",
) -> Tensor:
    """Uniform numbers from `minval` to below `maxval`, as `jax.random.uniform` draws them.

    Args:
        graph: where its compute set is added, in a scope of its name.
        shape: of the results.
        key: `jax.random.key(seed)`, or its data, uint32 of shape (2,): a tensor, or numbers that are known.
        dtype: of the results, of floating point; default: float32.
        minval: a number, or a tensor that broadcasts to the results.
        maxval: the same.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: a key, a shape, a dtype or bounds that do not fit.

    >>> import codelet as cl, jax, jax.numpy as jnp
    >>> key = jax.random.key(0)
    >>> drawn = cl.lower(lambda graph: cl.ops.uniform(graph, (3,), key=key))()
    >>> bool((drawn == jax.random.uniform(key, (3,))).all())
    True
    """
    bounds = {k: v for k, v in {"minval": minval, "maxval": maxval}.items() if isinstance(v, Tensor)}
    _check_key(name, graph, key, **bounds)
    shape, own = _checked_shape(name, shape), _checked_float(name, dtype)
    if not bounds:
        low, high = _checked_number(name, "minval", minval), _checked_number(name, "maxval", maxval)
        return _draw(
            graph,
            name,
            key,
            draw_uniform,
            shape,
            own,
            (grain, memory_fraction),
            minval=low,
            maxval=high,
            dtype=own.name,
        )
    operands = {
        which: _broadcast(name, which, bounds[which], shape) if which in bounds else _checked_number(name, which, value)
        for which, value in (("minval", minval), ("maxval", maxval))
    }
    return _draw(graph, name, key, draw_between, shape, own, (grain, memory_fraction), operands, dtype=own.name)


@old_order(("key", "shape", "dtype"), is_key)
@checked
def normal(
    graph: Graph,
    shape: Sequence[int] = (),
    *,
    key: Any,
    dtype: Any = None,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "normal",
) -> Tensor:
    """Numbers of the standard normal distribution, as `jax.random.normal` draws them.

    Args:
        graph: where its compute set is added, in a scope of its name.
        shape: of the results.
        key: `jax.random.key(seed)`, or its data, uint32 of shape (2,): a tensor, or numbers that are known.
        dtype: of the results, of floating point; default: float32.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: a key, a shape or a dtype that does not fit.

    >>> import codelet as cl, jax, jax.numpy as jnp
    >>> key = jax.random.key(0)
    >>> drawn = cl.lower(lambda graph: cl.ops.normal(graph, (3,), key=key))()
    >>> bool(jnp.allclose(drawn, jax.random.normal(key, (3,))))
    True
    """
    _check_key(name, graph, key)
    shape, own = _checked_shape(name, shape), _checked_float(name, dtype)
    return _draw(graph, name, key, draw_normal, shape, own, (grain, memory_fraction), dtype=own.name)


@old_order(("key", "p", "shape", "mode"), is_key)
@checked
def bernoulli(
    graph: Graph,
    p: Tensor | float = 0.5,
    shape: Sequence[int] | None = None,
    *,
    key: Any,
    mode: str = "low",
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "bernoulli",
) -> Tensor:
    """Booleans, true with probability `p`, as `jax.random.bernoulli` draws them.

    Args:
        graph: where its compute set is added, in a scope of its name.
        p: a number from 0 to 1, or a tensor that broadcasts to the results.
        shape: of the results; default: that of `p`.
        key: `jax.random.key(seed)`, or its data, uint32 of shape (2,): a tensor, or numbers that are known.
        mode: "high" draws twice as many bits, for probabilities near 0.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: a key, a probability, a shape or a mode that does not fit.

    >>> import codelet as cl, jax, jax.numpy as jnp
    >>> key = jax.random.key(0)
    >>> cl.lower(lambda graph: cl.ops.bernoulli(graph, 0.5, (4,), key=key))().tolist() == jax.random.bernoulli(
    ...     key, 0.5, (4,)
    ... ).tolist()
    True
    """
    given = {"p": p} if isinstance(p, Tensor) else {}
    _check_key(name, graph, key, **given)
    check_floating(name, **given)
    if mode not in ("low", "high"):
        raise OperationError(f"mode of ops.{name} is unknown", given=repr(mode), expected="'low' or 'high'")
    own = _checked_shape(name, (p.shape if isinstance(p, Tensor) else ()) if shape is None else shape, 2)
    static = {"count": math.prod(own) if mode == "high" else 0, "mode": mode}
    if isinstance(p, Tensor):
        operands = {"p": _broadcast(name, "p", p, own)}
        return _draw(graph, name, key, draw_truths, own, bool, (grain, memory_fraction), operands, **static)
    number, dtype = _checked_number(name, "p", p, 0, 1), checked_dtype(name, "p", float).name
    return _draw(graph, name, key, draw_truth, own, bool, (grain, memory_fraction), p=number, dtype=dtype, **static)


@old_order(("key", "x", "rate"), is_key)
@checked
def dropout(
    graph: Graph,
    x: Tensor,
    rate: float = 0.5,
    *,
    key: Any,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "dropout",
) -> Tensor:
    """An array with a share of its elements 0, and the others divided by the share of those kept.

    The kept elements are `jax.random.bernoulli(key, 1 - rate, x.shape)`, as of `equinox.nn.Dropout` and
    `flax.linen.Dropout`.

    Args:
        graph: where its compute set is added, in a scope of its name.
        x: of floating point.
        rate: the share that becomes 0, from 0 to 1.
        key: `jax.random.key(seed)`, or its data, uint32 of shape (2,): a tensor, or numbers that are known.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: a key, a rate or a dtype that does not fit.

    >>> import codelet as cl, jax, jax.numpy as jnp
    >>> drop = cl.lower(lambda graph, x: cl.ops.dropout(graph, x, 0.5, key=jax.random.key(0)))
    >>> sorted(set(drop(jnp.ones(100)).tolist()))
    [0.0, 2.0]
    """
    _check_key(name, graph, key, x=x)
    check_floating(name, x=x)
    kept = 1.0 - _checked_number(name, "rate", rate, 0, 1)
    if not kept or kept == 1:  # nothing is left, or all is
        with graph.scope(name, unique=True):
            return x if kept else graph.add_constant("zero", np.zeros((), x.dtype)).broadcast_to(x.shape)
    _checked_shape(name, x.shape)
    dtype = checked_dtype(name, "rate", float).name
    return _draw(
        graph, name, key, drop, x.shape, x.dtype, (grain, memory_fraction), {"x": x.flatten()}, kept=kept, dtype=dtype
    )


@old_order(("key", "rate"), is_key, after=2)
@checked
def dropout_gradient(
    graph: Graph,
    cotangent: Tensor,
    rate: float = 0.5,
    *,
    key: Any,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "dropout_gradient",
) -> Tensor:
    """The gradient of `dropout` by `x`: the cotangent where `x` was kept, by the same key; nothing need be stored.

    Args:
        graph: where its compute set is added, in a scope of its name.
        cotangent: of the results, in their shape.
        rate: the share that was made 0.
        key: that which they were made with, in either form.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: a key, a rate or a dtype that does not fit.

    >>> import codelet as cl, jax, jax.numpy as jnp
    >>> key = jax.random.key(0)
    >>> slope = cl.lower(lambda graph, g: cl.ops.dropout_gradient(graph, g, 0.5, key=key))
    >>> sorted(set(slope(jnp.ones(100)).tolist()))
    [0.0, 2.0]
    """
    return dropout(graph, cotangent, rate, key=key, grain=grain, memory_fraction=memory_fraction, name=name)


@checked
def split_key(
    graph: Graph,
    key: Any,
    num: int | Sequence[int] = 2,
    *,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "split_key",
) -> Tensor:
    """New keys of a key, as `jax.random.split` makes them: their data, uint32 of shape (*num, 2).

    Args:
        graph: where its compute set is added, in a scope of its name.
        key: `jax.random.key(seed)`, or its data, uint32 of shape (2,): a tensor, or numbers that are known.
        num: how many, or the shape of an array of keys.
        grain: about how many a vertex makes; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: a key or a shape that does not fit.

    >>> import codelet as cl, jax, jax.numpy as jnp
    >>> key = jax.random.key(0)
    >>> keys = cl.lower(lambda graph: cl.ops.split_key(graph, key, 3))()
    >>> bool((keys == jax.random.key_data(jax.random.split(key, 3))).all())
    True
    """
    _check_key(name, graph, key)
    shape = _checked_shape(name, num, 2)
    grain, count = checked_grain(name, grain), math.prod(shape)
    with graph.scope(name, unique=True):
        key, out = _key_tensor(graph, key), graph.add_variable("out", (*shape, 2), np.uint32)
        rows, counters = out.reshape(count, 2), Index(0, (count,), (1,))

        def fields(elements: slice) -> dict[str, Any]:
            return {"key": key, "counter": counters[elements], "out": rows[elements]}

        if count:
            add_draws(
                graph,
                draw_work("make keys", make_keys, count, {}, np.dtype(np.uint32), {}, is_of_words=True),
                grain,
                memory_fraction,
                fields,
            )
    return out


@checked
def fold_in(graph: Graph, key: Any, data: Tensor | int, *, name: str = "fold_in") -> Tensor:
    """A new key of a key and a number, as `jax.random.fold_in` makes it: in a program that repeats, one for each
    iteration.

    Args:
        graph: where its compute set is added, in a scope of its name.
        key: `jax.random.key(seed)`, or its data, uint32 of shape (2,): a tensor, or numbers that are known.
        data: an integer, or a scalar tensor of integers: the `index` of a `cl.Repeat`, say.
        name: of the scope.

    Raises:
        OperationError: a key or a number that does not fit.

    >>> import codelet as cl, jax, jax.numpy as jnp
    >>> key = jax.random.key(0)
    >>> own = cl.lower(lambda graph: cl.ops.fold_in(graph, key, 7))()
    >>> bool((own == jax.random.key_data(jax.random.fold_in(key, 7))).all())
    True
    """
    if isinstance(data, Tensor):
        _check_key(name, graph, key, data=data)
        fits = not data.shape and jnp.issubdtype(data.dtype, jnp.integer)
    else:
        _check_key(name, graph, key)
        fits = isinstance(data, int) and -(2**31) <= data < 2**32
    if not fits:
        raise OperationError(f"data of ops.{name} is no integer", given=data, expected="an integer of 32 bits")
    with graph.scope(name, unique=True):
        if not isinstance(data, Tensor):
            data = graph.add_constant("data", np.array(data % 2**32, np.uint32))
        return graph.add_vertex("fold in", fold, key=_key_tensor(graph, key), data=data)
