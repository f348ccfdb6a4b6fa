"""Positions: integers that a compiled program counts up by itself, from where stretches of them begin.

In come numbers of which neighbours mostly step evenly. Out comes an array of them, made from a table of blocks: where
each begins, and where in it, a few times at most, they go on from elsewhere. XLA makes them where it gathers, which
takes hardly longer than a table of them all; that stands in the program where stretches are short.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.views.integers import narrowed
from lowering.arrays import Array, constant, reshape
from lowering.mesh.devices import Devices

MOST_BREAKS = 3
"""So many times numbers go on from elsewhere within a block: each costs a comparison for every number."""

LEAST_LENGTH = 32
"""A block has so many numbers, or all of them are in a table."""

SHORT = 1 << 16
"""So many numbers are a table however they step."""


class Blocks(NamedTuple):
    """What is added to steps, by blocks of one length.

    Attributes:
        length: of a block, the last of which may reach over the end.
        firsts: what is added at the start of each.
        breaks: where in each that changes, of shape (breaks, blocks); `length` where it does not.
        jumps: by how much, of that shape.
    """

    length: int
    firsts: np.ndarray
    breaks: np.ndarray
    jumps: np.ndarray


def _block_length(starts: Sequence[np.ndarray], shape: tuple[int, ...]) -> int | None:
    """The length of blocks for numbers of a shape that go on from elsewhere at each of `starts`; None for a table."""
    count = math.prod(shape)
    if count <= SHORT:
        return None
    unit = int(np.gcd.reduce(np.concatenate(starts), initial=count))
    inner = [math.prod(shape[d:]) for d in range(len(shape)) if unit % math.prod(shape[d:]) == 0]
    if inner and inner[0] >= LEAST_LENGTH:
        return inner[0]
    longest = 1 << (2 * count // max(map(len, starts))).bit_length()
    for least, most in itertools.product((longest // 32, 0), range(MOST_BREAKS + 1)):
        length = longest
        while length >= max(least, LEAST_LENGTH):
            if all(np.bincount(own // length, own % length != 0).max() <= most for own in starts):
                return length
            length //= 2
    return None


def blocks_of(starts: np.ndarray, added: np.ndarray, count: int, length: int) -> Blocks:
    """`count` numbers by blocks of a length: what they are from each of `starts` on."""
    begins = np.arange(0, count, length)
    firsts = added[np.searchsorted(starts, begins, side="right") - 1]
    inside = np.flatnonzero(starts % length)
    block = starts[inside] // length
    turn = np.arange(len(inside)) - np.searchsorted(block, block)
    shape = (int(turn.max(initial=-1)) + 1, len(begins))
    breaks, jumps = np.full(shape, length), np.zeros(shape, np.int64)
    breaks[turn, block] = starts[inside] % length
    jumps[turn, block] = added[inside] - added[inside - 1]
    return Blocks(length, firsts, breaks, jumps)


def changes(numbers: np.ndarray, among: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Where numbers change, the first 0, and what they are from there on; `among` are the positions that matter."""
    if among is not None:
        numbers = numbers[among]
    first = np.concatenate([[0], np.flatnonzero(numbers[1:] != numbers[:-1]) + 1])
    starts = first if among is None else np.append(0, among[first[1:]])
    return starts, numbers[first]


class Positions:
    """Whole numbers of a shape, each the sum of a step along every dimension and of what stays the same for long.

    Args:
        shape: of the numbers, none of them 0.
        steps: along each dimension.
        starts: where in the flattened shape what is added changes, rising, the first 0.
        added: what is added from there on.
        most: no number is to be greater, nor less than 0: those that would be do not matter.
    """

    def __init__(
        self, shape: tuple[int, ...], steps: Sequence[int], starts: np.ndarray, added: np.ndarray, most: int
    ) -> None:
        self.shape, self.steps, self.most = shape, tuple(steps), most
        first, self.added = changes(added)
        self.starts = starts[first]

    @property
    def numbers(self) -> np.ndarray:
        """All of them, int64."""
        added = np.repeat(self.added, np.diff(self.starts, append=math.prod(self.shape))).reshape(self.shape)
        for d, step in enumerate(self.steps):
            added += step * np.arange(self.shape[d]).reshape(-1, *[1] * (len(self.shape) - d - 1))
        return np.clip(added, 0, self.most)

    @functools.cached_property
    def _tables(self) -> tuple[int, tuple[Array, ...]]:
        """The length of blocks, 0 for none; their tables, or that of all numbers."""
        length = _block_length([self.starts], self.shape)
        if length is None:
            return 0, (constant(narrowed(self.numbers)),)
        blocks = blocks_of(self.starts, self.added, math.prod(self.shape), length)
        return length, tuple(constant(narrowed(own)) for own in blocks[1:])

    def array(self) -> Array:
        """The numbers as a JAX array, int32 where they fit."""
        return self.counted_up(*self._tables)

    def counted_up(self, length: int, tables: Sequence[Array]) -> Array:
        """The numbers of tables of blocks of a length; of that of all numbers for length 0."""
        if not length:
            return tables[0]
        (firsts, breaks, jumps), kind = tables, np.dtype(np.int32 if self.most < 2**31 else np.int64)
        found = reshape(firsts.astype(kind), (len(firsts), 1))
        within = lax.broadcasted_iota(breaks.dtype, (len(firsts), length), 1)
        for at, jump in zip(breaks, jumps, strict=True):
            found = found + jnp.where(within >= at[:, None], jump[:, None].astype(kind), 0)
        outer = next((d for d in range(len(self.shape)) if math.prod(self.shape[d:]) == length), None)
        if outer is not None and not len(breaks):
            found = reshape(found, (*self.shape[:outer], *[1] * (len(self.shape) - outer)))
        else:
            found = jnp.broadcast_to(found, within.shape)
            found = reshape(reshape(found, (found.size,))[: math.prod(self.shape)], self.shape)
        for d, step in enumerate(self.steps):
            if step:
                found = found + kind.type(step) * lax.broadcasted_iota(kind, self.shape, d)
        return lax.clamp(kind.type(0), jnp.broadcast_to(found, self.shape), kind.type(self.most))

    def like(self, other: Positions) -> bool:
        """Whether these numbers are those of another, stretch by stretch."""
        alike = (self.shape, self.steps, self.most) == (other.shape, other.steps, other.most)
        return alike and np.array_equal(self.starts, other.starts) and np.array_equal(self.added, other.added)


class DealtPositions:
    """Positions that differ by device of a mesh: where they do, from tables with a row for each device.

    Args:
        each: of each device, all of one shape and with the same steps.
    """

    def __init__(self, each: Sequence[Positions]) -> None:
        self.each = list(each)

    @functools.cached_property
    def tables(self) -> tuple[int, tuple[np.ndarray, ...]] | None:
        """The length of blocks, 0 for none, and their tables, each with a row by device; None where all are alike."""
        first = self.each[0]
        if all(own.like(first) for own in self.each[1:]):
            return None
        length = _block_length([own.starts for own in self.each], first.shape)
        if length is None:
            return 0, (narrowed(np.stack([own.numbers for own in self.each])),)
        blocks = [blocks_of(own.starts, own.added, math.prod(first.shape), length) for own in self.each]
        most = max(len(own.breaks) for own in blocks)
        more = [((0, most - len(own.breaks)), (0, 0)) for own in blocks]
        breaks = [np.pad(own.breaks, rows, constant_values=length) for own, rows in zip(blocks, more, strict=True)]
        jumps = [np.pad(own.jumps, rows) for own, rows in zip(blocks, more, strict=True)]
        firsts = np.stack([own.firsts for own in blocks])
        return length, (narrowed(firsts), narrowed(np.stack(breaks)), narrowed(np.stack(jumps)))

    def array(self, devices: Devices) -> Array:
        """This device's numbers, inside `jax.shard_map`."""
        if self.tables is None:
            return self.each[0].array()
        length, tables = self.tables
        return self.each[0].counted_up(length, [devices.own(table) for table in tables])
