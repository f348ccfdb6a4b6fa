"""Rearrangements: a value of a jaxpr as another whose elements it holds in another order or several times.

The rules of the lowering look at a value and ask what it is a rearrangement of. A `Rearrangement` answers:
its dimensions are made of digits (`codelet/views/digits.py`) of the positions of a root in memory, those of step
zero repetitions. Reshapes, transposes and broadcasts compose into it, so that a chain of them is at most one reshape,
one transpose, one broadcast and one reshape, and none of these where it would change nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, Makers
from codelet.jaxprs.primitives import is_understood
from codelet.views.digits import Digit, chains, merged, regrouped, row_major_digits
from lowering.arrays import reshape, transpose

REARRANGING = ("transpose", "reshape", "squeeze", "broadcast_in_dim")
"""The primitives that a rearrangement sees through."""


@dataclass(frozen=True)
class Rearrangement:
    """A value as a rearrangement of a root: each dimension is the mixed-radix number of its digits.

    Invariants: no digit has extent 1; the digits that are no repetitions together are all of the root, once.
    """

    root: Atomic
    dims: tuple[tuple[Digit, ...], ...]

    @property
    def digits(self) -> tuple[Digit, ...]:
        """All digits, in row-major order of the value."""
        return tuple(digit for dim in self.dims for digit in dim)

    @property
    def is_in_order(self) -> bool:
        """Whether it holds all elements of its root in the root's order, each once."""
        return self.digits == self.memory

    @property
    def memory(self) -> tuple[Digit, ...]:
        """The digits of the root, in row-major order of the root."""
        return in_memory(self.digits)


def in_memory(digits: Iterable[Digit]) -> tuple[Digit, ...]:
    """Those of some digits that lie in memory, in the order in which they do: repetitions lie nowhere."""
    return tuple(sorted((digit for digit in digits if digit.step), reverse=True))


def whole(atom: Atomic) -> Rearrangement:
    """A value as it is."""
    dims = ((digit,) if digit.extent != 1 else () for digit in row_major_digits(atom.aval.shape))
    return Rearrangement(atom, tuple(dims))


def _after(view: Rearrangement, eqn: jax_core.JaxprEqn) -> Rearrangement | None:
    """A rearrangement after one more equation; None when the equation is none, or the digits do not fit it."""
    match eqn.primitive.name:
        case "transpose":
            return Rearrangement(view.root, tuple(view.dims[d] for d in eqn.params["permutation"]))
        case "reshape":
            order = eqn.params["dimensions"]  # in which the operand's dimensions are read, as by order="F"
            dims = view.dims if order is None else tuple(view.dims[d] for d in order)
            dims = regrouped(merged(digit for dim in dims for digit in dim), eqn.params["new_sizes"])
            return None if dims is None else Rearrangement(view.root, dims)
        case "squeeze" | "reduce_sum":
            gone = {int(d) for d in eqn.params["dimensions" if eqn.primitive.name == "squeeze" else "axes"]}
            return Rearrangement(view.root, tuple(dim for d, dim in enumerate(view.dims) if d not in gone))
        case "broadcast_in_dim":
            shape, places = eqn.params["shape"], [int(d) for d in eqn.params["broadcast_dimensions"]]
            kept = [view.dims[places.index(d)] if d in places else () for d in range(len(shape))]
            repeated = [() if n == 1 else (Digit(0, n),) for n in shape]
            return Rearrangement(view.root, tuple(a or b for a, b in zip(kept, repeated, strict=True)))
    return None


def rearranges(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation is one that a rearrangement sees through: a sum of one element each is one too."""
    if is_understood(eqn, "reduce_sum"):
        return all(eqn.invars[0].aval.shape[axis] == 1 for axis in eqn.params["axes"])  # type: ignore[attr-defined]
    return len(eqn.invars) == 1 and is_understood(eqn, *REARRANGING)


def rearrangement(atom: Atomic, makers: Makers, stop: Callable[[Any], bool]) -> Rearrangement:
    """What a value is a rearrangement of, as far back as `stop` lets one look; of itself alone, if it is empty."""
    chain = []
    root = atom
    while not isinstance(root, jax_core.Literal) and not stop(root) and 0 not in getattr(root.aval, "shape", ()):
        maker = makers.of(root)
        if maker is None or not rearranges(maker) or isinstance(maker.invars[0], jax_core.Literal):
            break
        chain.append(maker)
        root = maker.invars[0]
    view = whole(root)
    for eqn in reversed(chain):
        after = _after(view, eqn)
        # Where the digits do not fit, the value in between is the root.
        view = whole(eqn.outvars[0]) if after is None else after
    return view


def rearrange(value: Any, digits: Sequence[Digit], shape: Sequence[int]) -> Any:
    """A root's value with its parts in the order of `digits`, repetitions among them, in a shape of that size."""
    memory = in_memory(digits)
    order = [memory.index(digit) for digit in digits if digit.step]
    groups = chains(order, lambda before, k: k == before[-1] + 1)
    if len(groups) == 1 and len(memory) == len(digits):
        return reshape(value, shape)
    extents = [digit.extent for digit in memory], [digit.extent for digit in digits]
    if len(memory) == len(digits) and (list(value.shape), list(shape)) == extents:
        return transpose(value, order)  # between reshapes, no rule would see that it is one
    # Digits that stay neighbours in order need not be taken apart.
    sizes = {group[0]: math.prod(memory[k].extent for k in group) for group in groups}
    starts = sorted(sizes)
    parts = transpose(reshape(value, [sizes[k] for k in starts]), [starts.index(group[0]) for group in groups])
    if len(memory) < len(digits):
        places = [k for k, digit in enumerate(digits) if digit.step]
        parts = reshape(parts, [digits[k].extent for k in places])
        parts = lax.broadcast_in_dim(parts, tuple(digit.extent for digit in digits), tuple(places))
    return reshape(parts, shape)
