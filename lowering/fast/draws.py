"""Draws: many random numbers are drawn ahead of their use, on a CPU in blocks that fit the cache.

In come a vertex's jaxpr and its operands over a grid. Out come, where the jaxpr draws, the rest of it, and the
numbers as operands more. XLA's CPU backend runs the rounds of Threefry (Salmon et al., Parallel random
numbers: as easy as 1, 2, 3, SC 2011) as a loop over whole arrays, many times through memory for each number. A whole
Ising sweep takes 1.15 to 1.4 times as long without blocks, the more the busier the machine. The numbers are the same.
Only the equations that lead to them run in blocks: the rest would lose its fusion with its operands, and dots in it
could no longer be contracted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import inner_jaxprs, needed, variables
from codelet.jaxprs.rebuild import inline
from codelet.views.grids import Axis, Key
from lowering.arrays import Array
from lowering.fast.over_grid import Operand, mapped_axes, over_grid

BLOCK_BYTES = 1 << 17
"""Of the largest array in a block. Threefry keeps several, and a core has 1 to 2 MB of cache: half and twice
of it were slower."""

LEAST_BLOCKS = 4
"""What would be fewer blocks than this runs whole: then it is within the cache, or nearly."""

_DRAWING = ("random_bits", "random_fold_in", "random_split", "random_seed")


# --- what of a jaxpr draws ------------------------------------------------------------------------------


def _draws(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation runs Threefry, itself or in a jaxpr within it.

    Other generators do not count: the numbers of one vertex would depend on how many are drawn at once.
    """
    types = [str(getattr(atom.aval, "dtype", "")) for atom in (*eqn.invars, *eqn.outvars)]
    if eqn.primitive.name == "threefry2x32" or (eqn.primitive.name in _DRAWING and "key<fry>" in types):
        return True
    return any(_draws(inner) for jaxpr in inner_jaxprs(eqn) for inner in jaxpr.eqns)


def _array_bytes(var: Any) -> int:
    """The size of an array; of a Threefry key, that of its data."""
    dtype = var.aval.dtype
    return math.prod(var.aval.shape) * (4 if str(dtype) == "key<fry>" else jnp.dtype(dtype).itemsize)


def _largest_bytes(jaxpr: jax_core.Jaxpr) -> int:
    """The size of the largest array that a jaxpr computes."""
    own = [_array_bytes(var) for eqn in jaxpr.eqns for var in eqn.outvars if hasattr(var.aval, "shape")]
    return max([*own, *(_largest_bytes(inner) for eqn in jaxpr.eqns for inner in inner_jaxprs(eqn))], default=0)


@dataclass(frozen=True)
class Split:
    """A jaxpr in two: `draws`, of the inputs numbered in `inputs`, and `rest`, of all inputs and the results of
    `draws`.
    """

    inputs: tuple[int, ...]
    draws: jax_core.ClosedJaxpr
    rest: jax_core.ClosedJaxpr


def split_draws(closed: jax_core.ClosedJaxpr) -> Split | None:
    """A jaxpr as the part that draws random numbers, with all that leads to them, and the rest; None where it draws
    none.

    Equations that both need both compute. A jaxpr with effects is not split: it should speak once.
    """
    if not any(map(_draws, closed.jaxpr.eqns)) or closed.jaxpr.effects:
        return None
    closed = inline(closed)
    jaxpr = closed.jaxpr
    drawing = [eqn for eqn in jaxpr.eqns if _draws(eqn)]
    after = [eqn for eqn in needed(jaxpr, lambda eqn: () if eqn in drawing else eqn.invars) if eqn not in drawing]
    used = set(variables([*jaxpr.outvars, *(atom for eqn in after for atom in eqn.invars)]))
    numbers = [var for eqn in drawing for var in eqn.outvars if var in used]
    before = needed(jaxpr, results=numbers)
    read = set(variables(atom for eqn in before for atom in eqn.invars))
    inputs = tuple(k for k, var in enumerate(jaxpr.invars) if var in read)
    if not numbers:
        return None
    make = lambda invars, outvars, eqns: jax_core.ClosedJaxpr(  # noqa: E731
        jax_core.Jaxpr(jaxpr.constvars, invars, outvars, eqns, debug_info=jax_core.DebugInfo("draws", "", None, None)),
        closed.consts,
    )
    own = [jaxpr.invars[k] for k in inputs]
    return Split(inputs, make(own, numbers, before), make([*jaxpr.invars, *numbers], jaxpr.outvars, after))


# --- in blocks ------------------------------------------------------------------------------------------


def block_sizes(extents: Sequence[int], vertex_bytes: int) -> list[int]:
    """How many positions of each axis a block holds: all of inner axes, 1 of outer ones, some of one between.

    Args:
        extents: of the axes, outermost first.
        vertex_bytes: of the largest array of one vertex.
    """
    fit = max(1, BLOCK_BYTES // max(1, vertex_bytes))
    if math.prod(extents) < LEAST_BLOCKS * fit:
        return list(extents)
    sizes = []
    for depth, extent in enumerate(extents):
        most = min(extent, max(1, fit // math.prod(extents[depth + 1 :])))
        # One that divides the extent leaves no remainder to be run apart.
        even = next(n for n in range(most, 0, -1) if extent % n == 0)
        sizes.append(even if 2 * even > most else most)
    return sizes


@dataclass(frozen=True, eq=False)
class Draws:
    """Random numbers that are drawn ahead.

    Attributes:
        split: the part that draws them, and the rest.
        axes: that they depend on.
        sizes: how many positions of each axis a block has on a CPU.
    """

    split: Split
    axes: tuple[Axis, ...]
    sizes: tuple[int, ...]

    def ahead(self, operands: Sequence[Operand]) -> list[Operand]:
        """The numbers, from the operands of all inputs."""
        extents = [axis.extent for axis in self.axes]
        keys = [operands[k][1] for k in self.split.inputs]

        def draw(sizes: Sequence[int]) -> Callable[..., list[Array]]:
            return lambda *arrays: over_grid(self.split.draws, list(zip(arrays, keys, strict=True)), self.axes, sizes)

        arrays = (operands[k][0] for k in self.split.inputs)
        numbers = lax.platform_dependent(*arrays, cpu=draw(self.sizes), default=draw(extents))
        return [(array, (*self.axes, *range(array.ndim - len(self.axes)))) for array in numbers]

    def __str__(self) -> str:
        blocks = " x ".join(map(str, self.sizes))
        return f"random numbers drawn ahead, on a CPU in blocks of {blocks} vertices"


def plan_draws(closed: jax_core.ClosedJaxpr, keys: Sequence[Sequence[Key]], axes: Sequence[Axis]) -> Draws | None:
    """How the random numbers of vertices are drawn ahead; None where none are, or so few that blocks do not pay.

    Args:
        closed: the function of one vertex.
        keys: of the dimensions of the operand of each of its inputs.
        axes: of the family.
    """
    split = split_draws(closed)
    if split is None:
        return None
    over = mapped_axes([keys[k] for k in split.inputs], axes)
    extents = [axis.extent for axis in over]
    sizes = block_sizes(extents, _largest_bytes(split.draws.jaxpr))
    return None if sizes == extents else Draws(split, over, tuple(sizes))
