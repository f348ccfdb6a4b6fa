"""Parts: values of a jaxpr that `split`s or `slice`s have divided from others along one dimension.

The rules that put together what was done to all parts of a value ask here what an operand is a part of.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, Makers
from codelet.jaxprs.primitives import is_understood


class Part(NamedTuple):
    """A part of a value."""

    root: Atomic
    """What it is a part of, in whatever shape."""
    start: int
    extent: int
    dimension: int
    shape: tuple[int, ...]
    """The whole, as the operand of the product: its dimensions, of which others than that divided may be merged."""
    lies_so: bool
    """Whether the whole lies so in memory: that of a part of extent 1 may, or may not."""

    def is_like(self, other: Part) -> bool:
        """Whether it is a part of the same whole as another, along the same dimension."""
        return (self.root, self.dimension, self.shape) == (other.root, other.dimension, other.shape)


def _divided(piece: Any, maker: jax_core.JaxprEqn) -> tuple[int, int] | None:
    """Along which dimension an equation has divided what it takes, and where the piece begins; None if it has not."""
    if is_understood(maker, "split"):
        axis, number = maker.params["axis"], [var is piece for var in maker.outvars].index(True)
        return axis, sum(maker.params["sizes"][:number])
    if not is_understood(maker, "slice") or not set(maker.params["strides"] or ()) <= {1}:
        return None
    whole = maker.invars[0].aval.shape  # type: ignore[attr-defined]
    cut = [d for d, (own, extent) in enumerate(zip(piece.aval.shape, whole, strict=True)) if own < extent]
    return (cut[0], maker.params["start_indices"][cut[0]]) if len(cut) == 1 else None


def behind(atom: Any, makers: Makers) -> tuple[Any, jax_core.JaxprEqn | None]:
    """A value without the reshapes that made it, and what made that."""
    maker = makers.of(atom)
    while maker is not None and is_understood(maker, "reshape") and maker.params["dimensions"] is None:
        (atom,) = maker.invars
        maker = makers.of(atom)
    return atom, maker


def part_of(operand: Any, d: int, makers: Makers, taken_as: tuple[int, ...] | None = None) -> Part | None:
    """What a value is a part of along one of its dimensions, or one of another shape that it is taken as; else None."""
    if isinstance(operand, jax_core.Literal):
        return None
    shape: tuple[int, ...] = operand.aval.shape if taken_as is None else taken_as
    piece, maker = behind(operand, makers)
    found = None if maker is None else _divided(piece, maker)
    if maker is None or found is None or isinstance(maker.invars[0], jax_core.Literal):
        return None
    axis, start = found
    own, whole = piece.aval.shape, maker.invars[0].aval.shape  # type: ignore[attr-defined]
    lies_so = math.prod(own[:axis]) == math.prod(shape[:d])
    if lies_so:  # what is divided may be cut otherwise with the dimensions behind it: a row of either in elements
        row, each = math.prod(own[axis + 1 :]), math.prod(shape[d + 1 :])
    else:  # where one of extent 1 stands does not matter
        row, each = 1, own[axis] // max(1, shape[d])
    if not each or own[axis] * row != each * shape[d] or start * row % each or whole[axis] * row % each:
        return None
    if own[axis] > 1 and not lies_so:
        return None
    root = maker.invars[0] if is_understood(maker, "split") else behind(maker.invars[0], makers)[0]
    extents = (*shape[:d], whole[axis] * row // each, *shape[d + 1 :])
    return Part(root, start * row // each, shape[d], d, extents, lies_so)
