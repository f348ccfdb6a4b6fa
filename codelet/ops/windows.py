"""Windows that move over a dimension: by strides, over padding, among zeros; and the phases in which they do so.

In come the sizes of one spatial dimension of a convolution or pooling; out comes an `Along`, which says for every
result where its window begins in what is there, without zeros between. With zeros between elements (`lhs_dilation`)
only some taps of a kernel meet an element, which ones is another for each *phase* of the results: result
`first + apart * a` of a phase has the taps `tap + tap_step * t`, over the elements `start + stride * a + step * t`.

Source: V. Dumoulin and F. Visin, A guide to convolution arithmetic for deep learning, 2016: transposed convolutions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jax import lax

from codelet.errors import OperationError
from codelet.schema import is_whole


class Phase(NamedTuple):
    """Results whose windows meet the same taps of the kernel.

    Attributes:
        first: the first of them.
        count: how many there are.
        start: where the window of the first begins; before the first element where negative.
        tap: the first tap that its elements meet.
        taps: how many.
    """

    first: int
    count: int
    start: int
    tap: int
    taps: int


@dataclass(frozen=True)
class Along:
    """How windows move along a dimension.

    Attributes:
        extent: of what they move over, without padding.
        results: how many windows there are.
        taps: of the kernel.
        stride: by how many elements the windows of neighbouring results of a phase are apart.
        step: by how many elements the taps of a phase are apart.
        apart: by how many the results of a phase are apart, and so how many phases there are.
        tap_step: by how many taps of the kernel the taps of a phase are apart.
        phases: each of them, those with the most results first.
    """

    extent: int
    results: int
    taps: int
    stride: int
    step: int
    apart: int
    tap_step: int
    phases: tuple[Phase, ...]

    @property
    def widths(self) -> tuple[int, int]:
        """How many positions before and after what is there the windows reach."""
        own = [phase for phase in self.phases if phase.taps and phase.count]
        ends = [p.start + self.stride * (p.count - 1) + self.step * (p.taps - 1) + 1 for p in own]
        before, after = (min((p.start for p in own), default=0), max(ends, default=0))
        return max(0, -before), max(0, after - self.extent)

    def reach(self, results: int, taps: int) -> int:
        """From the first element to the last of the windows of some neighbouring results of a phase."""
        return self.stride * (results - 1) + self.step * (taps - 1) + 1


def along(
    extent: int, results: int, taps: int, *, low: int, stride: int = 1, dilation: int = 1, between: int = 1
) -> Along:
    """How windows move over a dimension.

    Args:
        extent: of what they move over.
        results: how many windows there are.
        taps: of the kernel.
        low: positions of zeros before it; negative where as many of it are left out.
        stride: by how many positions they move.
        dilation: by how many the taps are apart.
        between: by how many positions the elements are apart, zeros between them (`lhs_dilation`).

    >>> along(5, 3, 3, low=1, stride=2).phases
    (Phase(first=0, count=3, start=-1, tap=0, taps=3),)
    >>> [phase.taps for phase in along(3, 6, 3, low=1, between=2).phases]
    [1, 2]
    """
    apart, tap_step = between // math.gcd(stride, between), between // math.gcd(dilation, between)
    phases = []
    for first in range(min(apart, results)):
        begin = first * stride - low
        own = [tap for tap in range(min(taps, tap_step)) if (begin + tap * dilation) % between == 0]
        tap = own[0] if own else 0
        count = -(-(taps - tap) // tap_step) if own else 0
        phases.append(Phase(first, -(-(results - first) // apart), (begin + tap * dilation) // between, tap, count))
    return Along(
        extent, results, taps, apart * stride // between, dilation * tap_step // between, apart, tap_step, tuple(phases)
    )


# --- what operations on windows are given --------------------------------------------------------------------


MOST_APART = 2**20
"""By how many positions elements may be apart, with zeros between them: windows have as many phases."""


def whole_numbers(operation: str, name: str, values: Any, count: int, *, most: int | None = None) -> tuple[int, ...]:
    """A number from 1 for each spatial dimension: 1 for None, a single one for all.

    Args:
        operation: its name.
        name: of what is given.
        values: the numbers.
        count: of spatial dimensions.
        most: the greatest that there may be.

    Raises:
        OperationError: other numbers, or as many as there are not.
    """
    if values is None:
        return (1,) * count
    several = (values,) * count if isinstance(values, int | np.integer) else values
    try:
        own = tuple(several)
        fits = len(own) == count and all(is_whole(n, 1) and (most is None or n <= most) for n in own)
    except TypeError:
        fits, own = False, ()
    if not fits:
        raise OperationError(
            f"{name} of ops.{operation} does not fit",
            given=repr(values),
            expected=f"{count} whole numbers from 1{f' to {most:,}' if most else ''}, one for each spatial dimension",
        )
    return tuple(int(n) for n in own)


def checked_padding(
    operation: str, padding: Any, extents: Sequence[int], reaches: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    """How many positions are added before and after each spatial dimension; fewer than none where some are left out.

    Args:
        operation: its name.
        padding: "SAME", "SAME_LOWER" or "VALID", or a pair for each dimension.
        extents: of the dimensions.
        reaches: from the first to the last element of a window.
        strides: of windows.

    Raises:
        OperationError: something else.
    """
    given: Any = padding
    if isinstance(padding, str):
        if padding.upper() not in ("SAME", "SAME_LOWER", "VALID"):
            raise OperationError(
                f"the padding of ops.{operation} is of no known name",
                given=repr(padding),
                expected='"SAME", "SAME_LOWER", "VALID", or a pair for each spatial dimension',
            )
        given = lax.padtype_to_pads(extents, reaches, strides, padding.upper())
    try:
        pairs = tuple((int(low), int(high)) for low, high in given)
    except (TypeError, ValueError):
        pairs = ()
    if len(pairs) != len(extents):
        raise OperationError(
            f"the padding of ops.{operation} does not fit",
            given=repr(padding),
            expected=f"{len(extents)} pairs, (before, after) for each spatial dimension",
        )
    return pairs


def num_windows(extent: int, taps: int, pair: tuple[int, int], stride: int, dilation: int, between: int = 1) -> int:
    """How many windows there are along a dimension."""
    length = ((extent - 1) * between + 1 if extent else 0) + sum(pair)
    reach = (taps - 1) * dilation + 1 if taps else 0
    return max(0, (length - reach) // stride + 1)
