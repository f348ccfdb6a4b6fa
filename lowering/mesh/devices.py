"""Devices: which of a mesh's devices runs what is traced, and its rows of tables.

Inside `jax.shard_map` all devices run one program. What differs by device stands in tables with a row for each, of
which each device takes its by its number. A table that is bound to an array, the device's own row of it, is passed to
the program sharded, so that no device holds another's; arrays that are not bound are replicated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import jax
import numpy as np
from jax import lax

from lowering.arrays import Array, constant

T = TypeVar("T")


class Devices:
    """The devices of a mesh, in row-major order over its axes.

    Args:
        extents: of the axes, by name.
    """

    def __init__(self, extents: Mapping[str, int]):
        self.axes = tuple(extents)
        self.count = math.prod(extents.values())
        self._extents = tuple(extents.items())
        self._wanted: dict[int, np.ndarray] | None = None
        self._bound: dict[int, Array] = {}

    def named(self, make: Callable[[], T]) -> T:
        """What a function makes that traces what will run inside `jax.shard_map`, the axes known by name.

        Not inside of it: JAX 0.10 remembers which types it found there, and takes them for those of other programs.
        """
        made: list[T] = []
        jax.make_jaxpr(lambda: made.append(make()), axis_env=self._extents)()
        return made[0]

    def number(self) -> Array:
        """The number of this device, inside `jax.shard_map`."""
        return lax.axis_index(self.axes)

    def own(self, table: np.ndarray) -> Array:
        """This device's row of a table, of shape (devices, *any)."""
        assert len(table) == self.count
        if (table == table[:1]).all():
            return constant(table[0])
        if self._wanted is not None:
            self._wanted[id(table)] = table
            return lax.full(table.shape[1:], 0, jax.dtypes.canonicalize_dtype(table.dtype))
        if id(table) in self._bound:
            return self._bound[id(table)]
        return lax.dynamic_index_in_dim(constant(table), self.number(), keepdims=False)

    @contextmanager
    def telling(self) -> Iterator[dict[int, np.ndarray]]:
        """Within the block tables are only noted, each once, and have no values."""
        self._wanted = {}
        try:
            yield self._wanted
        finally:
            self._wanted = None

    @contextmanager
    def bound(self, tables: Sequence[np.ndarray], rows: Sequence[Array]) -> Iterator[None]:
        """Within the block, the rows of some tables are these arrays, of shape (1, *any)."""
        self._bound = {id(table): row[0] for table, row in zip(tables, rows, strict=True)}
        try:
            yield
        finally:
            self._bound = {}
