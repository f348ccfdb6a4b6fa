"""Differences: what values of a function near a place say of its slope there.

In come values at steps to both sides, and the slope that is to be judged. Out comes whether it is right; and if not,
why: differences converge to another number, or from the left and the right to two numbers, or not at all.

Source: differences at several steps, extrapolated: C. J. F. Ridders, Accurate computation of F'(x) and F'(x) F''(x),
Advances in Engineering Software 4 (1982).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

Kind = Literal["right", "kink", "wrong", "unstable"]

_CONSISTENT = 0.1
"""Estimates are of one limit where they differ by less than this of what is to be told apart."""

_GAP = 1e-3
"""Slopes from both sides are two where they differ by more than this of the larger."""


class Steps(NamedTuple):
    """Steps in numbers of some precision, the largest first, each so many times the next."""

    sizes: np.ndarray
    ratio: int

    @property
    def places(self) -> np.ndarray:
        """Where a function is evaluated: at 0, then after and before it by each step."""
        return np.concatenate([[0.0], np.stack([self.sizes, -self.sizes], axis=1).reshape(-1)])


def steps_for(eps: float) -> Steps:
    """Steps for numbers of a relative precision: from where slopes bend to where rounding shows."""
    first, ratio = (2.0**-5, 4) if eps < 1e-12 else (2.0**-3, 2)
    return Steps(first / float(ratio) ** np.arange(8), ratio)


def tolerance(eps: float) -> float:
    """How far a slope in numbers of a relative precision may be from differences, of its size."""
    return 1e-5 if eps < 1e-12 else 1e-2 if eps < 1e-6 else 0.1


class Verdict(NamedTuple):
    """What differences say of a slope.

    Attributes:
        kind: right, wrong, or why that cannot be said.
        slope: what was judged.
        difference: what differences converge to; the nearest of them where they do not.
        left: the same from the left alone.
        right: from the right alone.
        error: how far the slope is from the differences, of the larger of them and of what rounding shows.
    """

    kind: Kind
    slope: float
    difference: float
    left: float
    right: float
    error: float


class _Estimates(NamedTuple):
    """Slopes by steps, extrapolated, and how far rounding may have moved them; `count` of them are of use."""

    central: np.ndarray
    left: np.ndarray
    right: np.ndarray
    doubt: np.ndarray
    count: int


def _estimates(steps: Steps, values: np.ndarray, slope: float, spread: float, noise: float, rtol: float) -> _Estimates:
    q, sizes = steps.ratio, steps.sizes
    after, before = values[1::2], values[2::2]
    central, right, left = (after - before) / (2 * sizes), (after - values[0]) / sizes, (values[0] - before) / sizes
    central = (q * q * central[1:] - central[:-1]) / (q * q - 1)
    left, right = ((q * own[1:] - own[:-1]) / (q - 1) for own in (left, right))
    doubt = 4 * noise / sizes[1:]
    scale = max(spread, abs(slope) if np.isfinite(slope) else 0.0, abs(central[0]) if np.isfinite(central[0]) else 0.0)
    return _Estimates(central, left, right, doubt, max(2, int(np.sum(doubt <= rtol * scale))))


def _is_one(own: np.ndarray, beside: float) -> bool:
    """Whether estimates are of one limit, beside what is to be told apart."""
    return bool(np.ptp(own) <= _CONSISTENT * beside)


def _has_kink(found: _Estimates, window: slice, rtol: float) -> bool:
    """Whether slopes from the left and the right converge, and to different numbers."""
    left, right, doubt = found.left[window], found.right[window], found.doubt[window]
    gap = np.abs(right - left)
    apart = gap > max(_GAP, rtol) * np.maximum(np.abs(left), np.abs(right)) + 4 * doubt
    return bool(apart.all()) and _is_one(left, float(gap.min())) and _is_one(right, float(gap.min()))


def judge(steps: Steps, values: np.ndarray, slope: float, *, spread: float, noise: float, rtol: float) -> Verdict:
    """Judge a slope by values around.

    Args:
        steps: where.
        values: at `steps.places`.
        slope: what is judged.
        spread: the size of what the slope is a sum of.
        noise: how far rounding may have moved a value.
        rtol: how far a slope may be from the differences, of the larger of them and the spread.
    """
    with np.errstate(all="ignore"):
        found = _estimates(steps, np.asarray(values, np.float64), slope, spread, noise, rtol)
        used = found.central[: found.count]
        scale = np.maximum(np.maximum(np.abs(used), abs(slope)), spread)
        error = np.abs(used - slope) / (scale + found.doubt[: found.count] / rtol)
        error = np.where(np.isnan(error), np.where(used == slope, 0.0, np.inf), error)
        best = int(np.argmin(error))
        told = lambda kind, at: Verdict(  # noqa: E731
            kind, slope, float(used[at]), float(found.left[at]), float(found.right[at]), float(error[at])
        )
        width = min(3, found.count)
        windows = [slice(k, k + width) for k in range(found.count - width, -1, -1)]  # the smallest steps first
        if _has_kink(found, windows[0], rtol):
            return told("kink", windows[0].stop - 1)
        if error[best] <= rtol:
            return told("right", best)
        for window in windows:
            if _has_kink(found, window, rtol):
                return told("kink", window.stop - 1)
        for window in windows:
            central = found.central[window]
            away = np.abs(central - slope) if np.isfinite(slope) else np.abs(central) + 1
            near = float(away.min())
            sides = np.concatenate([found.left[window][-1:], found.right[window][-1:], central])
            if np.isfinite(sides).all() and _is_one(central, near) and _is_one(sides, max(near, 0.1 * abs(sides[-1]))):
                return told("wrong", window.stop - 1)
        return told("unstable", best)
