"""Sum vertices: the codelets that sum contributions at shifted places, and which elements each of them does.

In come the sums of a view's elements (`shifted.py`) and how many vertices there are to be. Out come codelets and
fields: a vertex for each block of elements, which reads of each contribution the part for these, among zeros.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from codelet.tracing.adjoints import AdjointCodelet
from codelet.tracing.codelets import Codelet
from codelet.tracing.hints import NO_HINTS
from codelet.views.grids import Axis
from codelet.views.index import Index
from codelet.views.line import Phase
from codelet.views.symbols import grid
from codelet.views.tensor import Tensor
from lowering.adjoint.shifted import NO_DIMENSION, Shifted, ShiftedBox, Span

# --- what a vertex runs ---------------------------------------------------------------------------------


class SummedPart(NamedTuple):
    """A contribution as a vertex sums it.

    Attributes:
        adjoint: as in `Contribution`.
        names: of its fields.
        summed: how many leading dimensions these have that are summed over.
    """

    adjoint: AdjointCodelet | None
    names: tuple[str, ...]
    summed: int


class SumOfParts(Codelet):
    """The sum of contributions to each element of a block.

    Attributes:
        parts: the contributions.
        block: how many dimensions the block has.
        is_added: whether it is added to the field `acc`, which is in-out.
    """

    def __init__(self, parts: tuple[SummedPart, ...], block: int, is_added: bool):
        self.parts, self.block, self.is_added = parts, block, is_added
        names = ["acc"] * is_added + [f"x{k}{name}" for k, part in enumerate(parts) for name in part.names]
        parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]

        def run(*args: Any) -> dict[str, Any]:
            fields = iter(args)
            total = next(fields) if is_added else None
            for part in parts:
                made = self._made(part, [next(fields) for _ in part.names])
                total = made if total is None else total + made
            return {"acc" if is_added else "out": total}

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__name__ = run.__qualname__ = "sum_of_parts"
        super().__init__(run, NO_HINTS)

    def _made(self, part: SummedPart, fields: Sequence[Any]) -> Any:
        """The summand of a part for each element of the block."""
        if part.adjoint is None:
            (made,) = fields
        else:
            adjoint, count = part.adjoint, part.summed + self.block
            shape = jnp.shape(fields[0])[:count]

            def one(*own: Any) -> Any:
                (found,) = adjoint.function(**dict(zip(part.names, own, strict=True))).values()
                return found.reshape(())

            for _ in range(count):
                one = jax.vmap(one)
            made = one(*fields) if math.prod(shape) else jnp.zeros(shape, fields[0].dtype)
        return jnp.sum(made, tuple(range(part.summed))) if part.summed else made

    def _functions(self) -> tuple[Any, ...]:
        return ()

    def __reduce__(self) -> tuple[Any, ...]:
        return SumOfParts, (self.parts, self.block, self.is_added)


# --- vertices -------------------------------------------------------------------------------------------


def block_of(extents: Sequence[int], wanted: int) -> tuple[int, int]:
    """Vertices for all elements: one for each position along so many dimensions, and along the next for each block.

    As few vertices as there can be of blocks that divide the dimension, but as many as are wanted.

    >>> block_of((8, 64), 8), block_of((8, 64), 32), block_of((8, 64), 33), block_of((2, 3), 100)
    ((1, 64), (1, 16), (1, 8), (2, 1))
    """
    count = 1
    for d, extent in enumerate(extents):
        if count >= wanted:
            return d, extent
        if count * extent >= wanted:
            parts = next(n for n in range(-(-wanted // count), extent + 1) if extent % n == 0)
            return (d, extent // parts) if parts < extent else (d + 1, extents[d + 1] if d + 1 < len(extents) else 1)
        count *= extent
    return len(extents), 1


class DealtBlocks(NamedTuple):
    """How the elements of a box are dealt out to vertices.

    Attributes:
        places: the positions along each dimension, of all elements of a vertex's block.
        shape: of the block.
    """

    places: tuple[Index, ...]
    shape: tuple[int, ...]


def blocks(ranges: Sequence[range], wanted: int) -> DealtBlocks:
    """The elements of a box, dealt out to as few vertices as are wanted at least."""
    extents = [len(own) for own in ranges]
    whole, block = block_of(extents, wanted)
    shape = tuple([block, *extents[whole + 1 :]] if whole < len(extents) else [])
    counts = [*extents[:whole], *([extents[whole] // block] if whole < len(extents) else [])]
    made: Any = grid(*counts) if counts else ()
    axes: list[Axis] = [own.axes[0] for own in (made if isinstance(made, tuple) else (made,))]
    places = []
    for d, own in enumerate(ranges):
        strides = tuple(int(d - whole == k) for k in range(len(shape)))
        step = block if d == whole else 1
        symbols = ((axes[d], step),) if d < len(axes) else ()
        places.append(Index(own.start, shape, strides, symbols))
    return DealtBlocks(tuple(places), shape)


def _padding(part: Shifted, phases: Sequence[Phase], spans: Sequence[Span]) -> dict[int, tuple[int, int]]:
    """How many positions vertices read before and behind a contribution, along its dimensions."""
    found = {}
    for line, phase, span in zip(part.lines, phases, spans, strict=True):
        first, last = line.ends(phase, span.places)
        found[line.outer] = max(0, -first), max(0, last + 1 - line.extent)
    return found


def _read(
    part: Shifted,
    tensor: Tensor,
    phases: Sequence[Phase],
    box: ShiftedBox,
    block: DealtBlocks,
    before: Mapping[int, int],
) -> tuple[Tensor, int]:
    """The part of a contribution that a vertex reads, and how many leading dimensions are summed over.

    Args:
        part: the contribution.
        tensor: one of its fields, among zeros.
        phases: the first phase of each dimension.
        box: the elements of all vertices.
        block: those of the vertex.
        before: how many zeros there are before its dimensions.
    """
    summed = [k for k, own in enumerate(phases) if own.taps > 1]
    rank = part.contribution.places.ndim
    rest = tensor.shape[rank:]
    shape = (*(phases[k].taps for k in summed), *block.shape, *rest)
    lead, behind = len(summed), len(shape) - len(rest)
    at = {d: Index.filled(0, shape) for d in range(rank)}
    for k, (line, own, (q, phase)) in enumerate(zip(part.lines, phases, box.pairs(block.places), strict=True)):

        def moved(place: Index | None, first: int, step: int, k: int = k) -> Index:
            """A place of the block's elements, moved by a step for each that is summed along the dimension."""
            leading = [step if own == k else 0 for own in summed]
            strides = (0,) * len(block.shape) if place is None else place.strides
            offset, symbols = (0, ()) if place is None else (place.offset, place.symbols)
            return Index(offset + first, shape, (*leading, *strides, *[0] * len(rest)), symbols)

        at[line.outer] = moved(q, own.line.start + before.get(line.outer, 0), own.line.by.get(line.inner, 0))
        if line.inner != NO_DIMENSION:
            at[line.inner] = moved(phase, own.tap, own.tap_step)
    for d in range(len(rest)):
        at[rank + d] = Index(0, shape, tuple(int(k == behind + d) for k in range(len(shape))))
    return Tensor(tensor.source, tensor.index.compose([at[d] for d in range(tensor.ndim)], shape)), lead


class Summed(NamedTuple):
    """Vertices that sum: their codelet, and their fields."""

    codelet: SumOfParts
    fields: dict[str, Tensor]


def summed(group: Sequence[ShiftedBox], view: Tensor, wanted: int, is_added: bool) -> Iterator[Summed]:
    """The vertices for the sums of a group of contributions.

    Args:
        group: the sums.
        view: where they go.
        wanted: how many vertices there are at least, where there are as many elements.
        is_added: whether to add to the old value.
    """
    widths: dict[int, dict[int, tuple[int, int]]] = {}
    for box in group:
        for part, phases in box.parts:
            own = _padding(part, phases, box.spans)
            for tensor in part.contribution.given.values():
                held = widths.setdefault(id(tensor), {})
                for d, (before, behind) in own.items():
                    held[d] = max(before, held.get(d, (0, 0))[0]), max(behind, held.get(d, (0, 0))[1])
    padded: dict[int, Tensor] = {}
    for box in group:
        block = blocks(box.ranges, wanted)
        parts, fields = [], {}
        for number, (part, phases) in enumerate(box.parts):
            names, lead = [], 0
            for name, tensor in part.contribution.given.items():
                own = widths[id(tensor)]
                if id(tensor) not in padded:
                    padded[id(tensor)] = (
                        tensor.pad([own.get(d, (0, 0)) for d in range(tensor.ndim)]) if tensor.ndim else tensor
                    )
                before = {d: pair[0] for d, pair in own.items()}
                fields[f"x{number}{name}"], lead = _read(part, padded[id(tensor)], phases, box, block, before)
                names.append(name)
            parts.append(SummedPart(part.contribution.adjoint, tuple(names), lead))
        run = SumOfParts(tuple(parts), len(block.shape), is_added)
        fields["acc" if is_added else "out"] = box.elements(view, block.places, block.shape)
        yield Summed(run, fields)
