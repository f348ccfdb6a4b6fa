"""Moves: the few operations on an array that reading it through an access map comes to, as data.

Which they are is decided when a plan is made; emission then carries them out one after another.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.views.terms import Term, dtype_of_positions
from lowering.arrays import SMALL, Array, constant, take


def positions_of(offset: int, terms: Sequence[Term], scale: Sequence[int] | None = None) -> Array:
    """`offset` plus the terms (each times its scale), with array dimensions for the keys of all terms, in order."""
    scale = scale or [1] * len(terms)
    ranks = [len(term.keys) for term in terms]
    extents = [extent for term in terms for extent in term.extents]
    dtype = dtype_of_positions(offset, sum(term.reach * factor for term, factor in zip(terms, scale, strict=True)))
    if len(terms) == 1 and terms[0].table is not None:
        return constant(terms[0].positions(offset, scale[0]))
    total = None
    for k, (term, factor) in enumerate(zip(terms, scale, strict=True)):
        at = sum(ranks[:k])
        if term.table is None:
            values = lax.mul(lax.broadcasted_iota(dtype, extents, at), np.asarray(term.grain * factor, dtype))
        else:
            table = constant(term.positions(0, factor)).astype(dtype)
            values = lax.broadcast_in_dim(table, extents, tuple(range(at, at + ranks[k])))
        total = values if total is None else lax.add(total, values)
    assert total is not None
    return lax.add(total, np.asarray(offset, dtype)) if offset else total


def places_of(offset: int, terms: Sequence[Term], scale: Sequence[int] | None = None) -> Array:
    """The positions that are read or written; few are a constant, since a kernel that computes them takes longer."""
    if math.prod(extent for term in terms for extent in term.extents) > SMALL:
        return positions_of(offset, terms, scale)
    scale = scale or [1] * len(terms)
    each = [
        np.arange(term.extents[0], dtype=np.int64) * (term.grain * factor)
        if term.table is None
        else term.positions(0, factor).astype(np.int64)
        for term, factor in zip(terms, scale, strict=True)
    ]
    dtype = dtype_of_positions(offset, sum(term.reach * factor for term, factor in zip(terms, scale, strict=True)))
    return constant((offset + functools.reduce(np.add.outer, each)).astype(dtype))


class Lax(NamedTuple):
    """An operation of `jax.lax` on the array, by its name, with its other arguments."""

    name: str
    arguments: tuple[Any, ...]

    def of(self, array: Array) -> Array:
        """The array after the move."""
        return getattr(lax, self.name)(array, *self.arguments)


class Gather(NamedTuple):
    """Along dimension `at`, at `start` plus the terms, with a dimension for each of their keys instead."""

    at: int
    start: int
    terms: tuple[Term, ...]

    def of(self, array: Array) -> Array:
        """The array after the move."""
        return take(array, places_of(self.start, self.terms), self.at)


class Stack(NamedTuple):
    """The results of several ways on the array, along a new dimension `at`."""

    at: int
    ways: tuple[tuple[Move, ...], ...]

    def of(self, array: Array) -> Array:
        """The array after the move."""
        return jnp.stack([moved(array, way) for way in self.ways], self.at)


Move = Lax | Gather | Stack


def moved(array: Array, moves: Sequence[Move]) -> Array:
    """The array after the moves."""
    for move in moves:
        array = move.of(array)
    return array


class Way:
    """Moves as they are found, and the shape after them. An operation that would change nothing is no move: it would
    hide rules.
    """

    def __init__(self, shape: Sequence[int]):
        self.shape = tuple(shape)
        self.moves: list[Move] = []

    def _add(self, move: Move, shape: Sequence[int]) -> None:
        self.moves.append(move)
        self.shape = tuple(shape)

    def slice(self, bounds: Sequence[tuple[int, int, int]]) -> None:
        """Slice every dimension: its start, stop and step."""
        if any(bound != (0, n, 1) for bound, n in zip(bounds, self.shape, strict=True)):
            self._add(Lax("slice", tuple(zip(*bounds, strict=True))), [len(range(*bound)) for bound in bounds])

    def slice_dimension(self, at: int, start: int, stop: int, step: int = 1) -> None:
        """Slice one dimension."""
        self.slice([(start, stop, step) if d == at else (0, n, 1) for d, n in enumerate(self.shape)])

    def reshape(self, shape: Sequence[int]) -> None:
        """Reshape."""
        if self.shape != tuple(shape):
            self._add(Lax("reshape", (tuple(shape),)), shape)

    def transpose(self, order: Sequence[int]) -> None:
        """Transpose."""
        if list(order) != list(range(len(self.shape))):
            self._add(Lax("transpose", (tuple(order),)), [self.shape[d] for d in order])

    def repeat(self, shape: Sequence[int], places: Sequence[int]) -> None:
        """Repeat along new dimensions of a shape, those of the array at `places`."""
        if len(shape) > len(places):
            self._add(Lax("broadcast_in_dim", (tuple(shape), tuple(places))), shape)

    def reverse(self, dimensions: Sequence[int]) -> None:
        """Reverse dimensions."""
        if dimensions:
            self._add(Lax("rev", (tuple(dimensions),)), self.shape)

    def gather(self, at: int, start: int, terms: Sequence[Term]) -> None:
        """Gather along a dimension; see `Gather`."""
        own = [extent for term in terms for extent in term.extents]
        self._add(Gather(at, start, tuple(terms)), (*self.shape[:at], *own, *self.shape[at + 1 :]))

    def stack(self, at: int, ways: Sequence[Way]) -> None:
        """Stack the results of several ways on the array, which all have one shape."""
        shape = ways[0].shape
        self._add(Stack(at, tuple(tuple(way.moves) for way in ways)), (*shape[:at], len(ways), *shape[at:]))


_WORDS = {"slice": "sliced", "rev": "reversed", "transpose": "transposed"}


def _phrase(move: Move) -> str:
    match move:
        case Lax(name):
            return _WORDS.get(name, "")
        case Gather():
            return "gathered by a table" if any(term.table for term in move.terms) else "gathered"
        case Stack():
            return f"{len(move.ways)} slices stacked"


def moves_text(moves: Sequence[Move]) -> str:
    """A description of moves, in words: `sliced, gathered by a table`; `as it lies` where no element moves."""
    return ", ".join(phrase for phrase in dict.fromkeys(map(_phrase, moves)) if phrase) or "as it lies"
