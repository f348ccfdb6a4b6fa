"""Rearrangements: a value of a jaxpr as another whose elements it holds in another order or several times.

The rules of the lowering look at a value and ask what it is a rearrangement of. A `Rearrangement` answers:
its dimensions are made of atoms, each a part of a root's positions in memory, or a repetition. Reshapes,
transposes and broadcasts compose into it, so that a chain of them is at most one reshape, one transpose,
one broadcast and one reshape, and none of these where it would change nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jax import lax
from jax.extend import core as jax_core

from codelet.views.index import row_major
from lowering.arrays import reshape, transpose
from lowering.jaxprs.equations import Atomic
from lowering.jaxprs.primitives import is_understood

REARRANGING = ("transpose", "reshape", "squeeze", "broadcast_in_dim")
"""The primitives that a rearrangement sees through."""


class Atom(NamedTuple):
    """Part of a value's positions: `extent` of them, `weight` elements of the root in memory apart.

    For a repetition, `repeats` is true, and the weight is only a number that tells repetitions apart.
    """

    repeats: bool
    weight: int
    extent: int


@dataclass(frozen=True)
class Rearrangement:
    """A value as a rearrangement of a root: each dimension is the mixed-radix number of its atoms.

    Invariants: no atom has extent 1; the atoms that are no repetitions together are all of the root, once.
    """

    root: Atomic
    dims: tuple[tuple[Atom, ...], ...]

    @property
    def atoms(self) -> tuple[Atom, ...]:
        """All atoms, in row-major order of the value."""
        return tuple(atom for dim in self.dims for atom in dim)

    @property
    def memory(self) -> tuple[Atom, ...]:
        """The atoms of the root, in row-major order of the root."""
        return tuple(sorted((atom for atom in self.atoms if not atom.repeats), key=lambda atom: -atom.weight))


def whole(atom: Atomic) -> Rearrangement:
    """A value as it is."""
    shape = atom.aval.shape
    weights = row_major(shape).strides
    dims = (((Atom(False, w, n),) if n != 1 else ()) for w, n in zip(weights, shape, strict=True))
    return Rearrangement(atom, tuple(dims))


def split_atom(atom: Atom, inner: int) -> tuple[Atom, Atom]:
    """An atom as two, the second of extent `inner`."""
    return Atom(atom.repeats, atom.weight * inner, atom.extent // inner), atom._replace(extent=inner)


def _joined(atoms: Sequence[Atom]) -> list[Atom]:
    """Atoms with those made one that follow each other here and in memory."""
    joined: list[Atom] = []
    for atom in atoms:
        last = joined[-1] if joined else None
        if last and not last.repeats and not atom.repeats and last.weight == atom.weight * atom.extent:
            joined[-1] = atom._replace(extent=last.extent * atom.extent)
        else:
            joined.append(atom)
    return joined


def regroup(atoms: Sequence[Atom], sizes: Sequence[int]) -> tuple[tuple[Atom, ...], ...] | None:
    """Atoms, in order, dealt out to dimensions of the given sizes, split where they must be; None if they cannot.

    Of an array without elements no dimension tells of which part of the root it is made.
    """
    if 0 in sizes or any(atom.extent == 0 for atom in atoms):
        return None
    left = _joined(atoms)[::-1]
    dims: list[tuple[Atom, ...]] = []
    for size in sizes:
        own: list[Atom] = []
        while size > 1:
            if not left:
                return None
            atom = left.pop()
            if size % atom.extent == 0:
                own.append(atom)
                size //= atom.extent
            elif atom.extent % size == 0:
                outer, inner = split_atom(atom, atom.extent // size)
                own.append(outer)
                left.append(inner)
                size = 1
            else:
                return None
        dims.append(tuple(own))
    return None if left else tuple(dims)


def _after(view: Rearrangement, eqn: jax_core.JaxprEqn) -> Rearrangement | None:
    """A rearrangement after one more equation; None when the equation is none, or the atoms do not fit it."""
    match eqn.primitive.name:
        case "transpose":
            return Rearrangement(view.root, tuple(view.dims[d] for d in eqn.params["permutation"]))
        case "reshape":
            order = eqn.params["dimensions"]  # in which the operand's dimensions are read, as by order="F"
            dims = view.dims if order is None else tuple(view.dims[d] for d in order)
            dims = regroup([atom for dim in dims for atom in dim], eqn.params["new_sizes"])
            return None if dims is None else Rearrangement(view.root, dims)
        case "squeeze":
            gone = {int(d) for d in eqn.params["dimensions"]}
            return Rearrangement(view.root, tuple(dim for d, dim in enumerate(view.dims) if d not in gone))
        case "broadcast_in_dim":
            shape, places = eqn.params["shape"], [int(d) for d in eqn.params["broadcast_dimensions"]]
            fresh = max((atom.weight for atom in view.atoms if atom.repeats), default=0)
            made = []
            for d, n in enumerate(shape):
                dim = view.dims[places.index(d)] if d in places else ()
                if not dim and n != 1:
                    # Parts of a repetition get weights of their own when it is split: leave room for them.
                    fresh = (fresh + 1) * n
                    dim = (Atom(True, fresh, n),)
                made.append(dim)
            return Rearrangement(view.root, tuple(made))
    return None


def rearranges(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation is one that a rearrangement sees through."""
    return len(eqn.invars) == 1 and is_understood(eqn, *REARRANGING)


def rearrangement(atom: Atomic, makers: dict[Any, jax_core.JaxprEqn], stop: Callable[[Any], bool]) -> Rearrangement:
    """What a value is a rearrangement of, as far back as `stop` lets one look; of itself alone, if it is empty."""
    chain = []
    root = atom
    while not isinstance(root, jax_core.Literal) and not stop(root) and 0 not in getattr(root.aval, "shape", ()):
        maker = makers.get(root)
        if maker is None or not rearranges(maker) or isinstance(maker.invars[0], jax_core.Literal):
            break
        chain.append(maker)
        root = maker.invars[0]
    view = whole(root)
    for eqn in reversed(chain):
        after = _after(view, eqn)
        # Where the atoms do not fit, the value in between is the root.
        view = whole(eqn.outvars[0]) if after is None else after
    return view


def rearrange(value: Any, atoms: Sequence[Atom], shape: Sequence[int]) -> Any:
    """A root's value with its parts in the order of `atoms`, repetitions among them, in a shape of that size."""
    memory = sorted((atom for atom in atoms if not atom.repeats), key=lambda atom: -atom.weight)
    order = [memory.index(atom) for atom in atoms if not atom.repeats]
    groups = _runs(order)
    if len(groups) == 1 and len(memory) == len(atoms):
        return reshape(value, shape)
    # Atoms that stay neighbours in order need not be taken apart.
    extents = {group[0]: math.prod(memory[k].extent for k in group) for group in groups}
    starts = sorted(extents)
    parts = transpose(reshape(value, [extents[k] for k in starts]), [starts.index(group[0]) for group in groups])
    if len(memory) < len(atoms):
        places = [k for k, atom in enumerate(atoms) if not atom.repeats]
        parts = reshape(parts, [atoms[k].extent for k in places])
        parts = lax.broadcast_in_dim(parts, tuple(atom.extent for atom in atoms), tuple(places))
    return reshape(parts, shape)


def _runs(order: Sequence[int]) -> list[list[int]]:
    """A permutation cut into runs of consecutive numbers."""
    runs: list[list[int]] = []
    for k in order:
        if runs and runs[-1][-1] + 1 == k:
            runs[-1].append(k)
        else:
            runs.append([k])
    return runs
