"""Windows that move over a dimension: by strides, over padding, among zeros; and the phases in which they do so.

In come the sizes of one spatial dimension of a convolution or pooling; out comes a `WindowedDimension`: its line is the
element that a tap of a result's window meets. With zeros between elements (`lhs_dilation`) the line has a divisor, and
only some taps of a kernel meet an element. These are others for each phase of the results: see `phases` of
`views/line.py`.

Source: V. Dumoulin and F. Visin, A guide to convolution arithmetic for deep learning, 2016: transposed convolutions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax import lax

from codelet.errors import OperationError
from codelet.refused import Refused
from codelet.schema import is_whole
from codelet.views.line import Line, Phase, phases

RESULT, TAP = 0, 1
"""The keys of the lines of windows."""


@dataclass(frozen=True)
class WindowedDimension:
    """A dimension that windows move over.

    Attributes:
        extent: of the tensor that they move over, without padding.
        results: how many windows there are.
        taps: of the kernel.
        line: the element that a tap of a result's window meets: a hole between elements; in padding out of the extent.
    """

    extent: int
    results: int
    taps: int
    line: Line

    @functools.cached_property
    def phases(self) -> tuple[Phase, ...]:
        """Results whose windows meet the same taps; those with the most results first."""
        return tuple(phases(self.line, RESULT, self.results, TAP, self.taps))

    @property
    def stride(self) -> int:
        """By how many elements the windows of neighbouring results of a phase are apart."""
        return self.line.by[RESULT] // math.gcd(self.line.by[RESULT], self.line.divisor)

    @property
    def step(self) -> int:
        """By how many elements the taps of a phase are apart."""
        return self.line.by[TAP] // math.gcd(self.line.by[TAP], self.line.divisor)

    @functools.cached_property
    def widths(self) -> tuple[int, int]:
        """How many positions before and after the tensor the windows reach."""
        ends = [phase.line.ends({RESULT: phase.count, TAP: phase.taps}) for phase in self.phases if phase.taps]
        first, last = min((low for low, _ in ends), default=0), max((high for _, high in ends), default=-1)
        return max(0, -first), max(0, last + 1 - self.extent)

    def reach(self, results: int, taps: int) -> int:
        """From the first element to the last of the windows of some neighbouring results of a phase."""
        return self.stride * (results - 1) + self.step * (taps - 1) + 1

    def window(self, phase: Phase, results: slice, taps: slice) -> slice:
        """All elements from the first to the last that some results and taps of a phase meet, among `widths`."""
        start = phase.line.start + self.widths[0] + self.stride * results.start + self.step * taps.start
        return slice(start, start + self.reach(results.stop - results.start, taps.stop - taps.start))

    @property
    def transposed(self) -> WindowedDimension:
        """The windows of results that meet an element, the taps backwards: as gradients with respect to the operand
        have.
        """
        solved = self.line.solved(RESULT, position := 2)
        assert not isinstance(solved, Refused)
        line = solved.after({position: Line.of(0, {RESULT: 1}), TAP: Line.of(self.taps - 1, {TAP: -1})})
        assert not isinstance(line, Refused)
        return WindowedDimension(self.results, self.extent, self.taps, line)

    @property
    def swapped(self) -> WindowedDimension:
        """It with the taps for results, and these for taps: as gradients by kernels have."""
        line = Line.of(self.line.start, {RESULT: self.line.by[TAP], TAP: self.line.by[RESULT]}, self.line.divisor)
        return WindowedDimension(self.extent, self.taps, self.results, line)


def windowed(
    extent: int, results: int, taps: int, *, low: int, stride: int = 1, dilation: int = 1, between: int = 1
) -> WindowedDimension:
    """A dimension that windows move over.

    Args:
        extent: of the tensor that they move over.
        results: how many windows there are.
        taps: of the kernel.
        low: positions of zeros before it; negative where as many of it are left out.
        stride: by how many positions they move.
        dilation: by how many the taps are apart.
        between: by how many positions the elements are apart, zeros between them (`lhs_dilation`).

    >>> str(windowed(5, 3, 3, low=1, stride=2).line), windowed(5, 3, 3, low=1, stride=2).widths
    ('-1 + 2*k0 + k1', (1, 1))
    >>> [(phase.tap, phase.taps) for phase in windowed(3, 6, 3, low=1, between=2).phases]
    [(1, 1), (0, 2)]
    """
    return WindowedDimension(extent, results, taps, Line.of(-low, {RESULT: stride, TAP: dilation}, between))


def places_of(phase: Phase, results: slice) -> slice:
    """Some results of a phase, among all."""
    first = phase.first + phase.apart * results.start
    return slice(first, first + phase.apart * (results.stop - results.start - 1) + 1, phase.apart)


# --- what operations on windows are given --------------------------------------------------------------------


MOST_APART = 2**20
"""By how many positions elements may be apart, with zeros between them: windows have as many phases."""


def whole_numbers(operation: str, name: str, values: Any, count: int, *, most: int | None = None) -> tuple[int, ...]:
    """A number from 1 for each spatial dimension: 1 for None, a single one for all.

    Args:
        operation: its name.
        name: of the argument.
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
            expected=f"{count} integers from 1{f' to {most:,}' if most else ''}, one for each spatial dimension",
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
