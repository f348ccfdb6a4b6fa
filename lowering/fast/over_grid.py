"""Over the grid: the jaxpr of one vertex, run on all vertices of a family.

In come a jaxpr and, for each of its inputs, an array in memory order with the key of each dimension. Out come its
results with the grid's axes first. It runs under nested `vmap`, one for each axis. Each operand is mapped at the
dimension where the axis lies in memory, and not at all where it does not depend on the axis; or, along axes of which
only so many positions are to be taken at once, in a loop over batches of them. What vertices compute by element is made
without tracing (`codelet/jaxprs/lifted.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.lifted import lifted
from codelet.jaxprs.rebuild import inline
from codelet.views.grids import Axis, Key
from lowering.arrays import Array, arranged

Operand = tuple[Any, tuple[Key, ...]]
"""An array in memory order, and the key of each of its dimensions."""

_Function = Callable[..., list[Array]]


def mapped_axes(keys: Sequence[Sequence[Key]], axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """The axes that some operand depends on, by the keys of each, in order."""
    return tuple(axis for axis in axes if any(axis in own for own in keys))


def _function_of(closed: jax_core.ClosedJaxpr) -> _Function:
    """The function of a jaxpr, whose results are arrays, as literals are not."""
    return lambda *arrays: list(map(jnp.asarray, jax_core.jaxpr_as_fun(closed)(*arrays)))


def _vertex_function(closed: jax_core.ClosedJaxpr, keys: Sequence[Sequence[Key]]) -> _Function:
    """The jaxpr on one vertex's operands, whose dimensions are still in memory order."""
    inner = [[key for key in own if isinstance(key, int)] for own in keys]
    shapes = [var.aval.shape for var in closed.jaxpr.invars]  # type: ignore[attr-defined]
    run = _function_of(closed)

    def vertex(*arrays: Array) -> list[Array]:
        fields = [
            arranged(array, own, range(len(shape)), shape)
            for array, own, shape in zip(arrays, inner, shapes, strict=True)
        ]
        return run(*fields)

    return vertex


def _in_batches(function: _Function, places: Sequence[int | None], size: int) -> _Function:
    """A function mapped over one dimension of its operands, None where it has none, `size` positions at a time."""

    def run(*arrays: Array) -> list[Array]:
        along = {k: jnp.moveaxis(arrays[k], at, 0) for k, at in enumerate(places) if at is not None}

        def one(slices: dict[int, Array]) -> list[Array]:
            return function(*(slices.get(k, array) for k, array in enumerate(arrays)))

        return lax.map(one, along, batch_size=None if size == 1 else size)

    return run


def over_axes(
    function: _Function,
    keys: Sequence[Sequence[Key]],
    axes: Sequence[Axis],
    batches: Sequence[int] | None = None,
) -> _Function:
    """A function mapped over axes, outermost first; its results get a dimension for each of them before their
    dimensions.

    Args:
        function: of arrays without these axes.
        keys: the key of each dimension of its arguments, these axes among them.
        axes: those that some argument depends on.
        batches: how many positions of each axis are taken at once; all, where it is left off.
    """
    batches = batches or [axis.extent for axis in axes]
    for depth in reversed(range(len(axes))):
        left = [[key for key in own if key not in axes[:depth]] for own in keys]
        places = tuple(own.index(axes[depth]) if axes[depth] in own else None for own in left)
        if batches[depth] == axes[depth].extent:
            function = jax.vmap(function, in_axes=places)
        else:
            function = _in_batches(function, places, batches[depth])
    return function


def _mapped(
    closed: jax_core.ClosedJaxpr,
    keys: Sequence[tuple[Key, ...]],
    axes: Sequence[Axis],
    batches: Sequence[int] | None,
) -> _Function:
    """The function of all vertices, of the operands."""
    flat = inline(closed)
    made = _of_elements(flat, keys, axes) if batches is None else None
    return over_axes(_vertex_function(flat, keys), keys, axes, batches) if made is None else made


def _of_elements(
    closed: jax_core.ClosedJaxpr, keys: Sequence[tuple[Key, ...]], axes: Sequence[Axis]
) -> _Function | None:
    """The same without mapping, where vertices compute by element and operands have the axes in order."""
    if any(own != tuple(axis for axis in axes if axis in own) for own in keys):
        return None
    made = lifted(closed, [tuple(map(axes.index, own)) for own in keys], [axis.extent for axis in axes])
    return None if made is None else _function_of(made)


_Numbered = tuple[Any, ...]


class _JittedMaps:
    """The functions that were mapped over grids, each jitted, by all that they depend on beside their operands.

    Compute sets that are alike, as the updates of parameters are, run one function. JAX traces it once for operands of
    one kind, and its equations are copied from there (`inline`).
    """

    def __init__(self, most: int):
        self.most = most
        self.made: dict[_Numbered, Callable[..., list[Array]]] = {}

    def of(
        self,
        closed: jax_core.ClosedJaxpr,
        keys: Sequence[tuple[Key, ...]],
        axes: Sequence[Axis],
        batches: Sequence[int] | None,
    ) -> Callable[..., list[Array]]:
        """The function for a jaxpr, the keys of its operands, axes and batches."""
        numbers: dict[Key, int] = {axis: -1 - k for k, axis in enumerate(axes)}  # dimensions are 0 and more
        numbered = tuple(tuple(numbers.get(key, key) for key in own) for own in keys)
        whole = closed, numbered, tuple(axis.extent for axis in axes), None if batches is None else tuple(batches)
        if whole not in self.made:
            if len(self.made) >= self.most:
                self.made.clear()
            self.made[whole] = jax.jit(_mapped(closed, keys, axes, batches))
        return self.made[whole]


_jitted = _JittedMaps(2048)


def over_grid(
    closed: jax_core.ClosedJaxpr,
    operands: Sequence[Operand],
    axes: Sequence[Axis],
    batches: Sequence[int] | None = None,
) -> list[Array]:
    """The results of all vertices.

    Args:
        closed: the function of one vertex.
        operands: for each of its inputs. Dimensions along which an input does not vary may be missing.
        axes: those that some operand depends on, outermost first.
        batches: how many positions of each axis are taken at once; all, where it is left off.

    Returns:
        The results, each with a dimension for each of `axes` before its dimensions.
    """
    function = _jitted.of(closed, [tuple(keys) for _, keys in operands], axes, batches)
    return function(*(array for array, _ in operands))
