"""Moving windows: views of which one axis at most moves along each dimension, and one dimension of theirs runs inside.

Poolings, reductions of windows and the order of results ask for these; of other views a refusal says why. Convolutions
and poolings ask as well how much of an array and of what is around it their windows are given.
"""

from __future__ import annotations

from codelet.refused import Refused
from codelet.views.access import Access
from codelet.views.grids import Axis
from codelet.views.line import Line
from codelet.views.tensor import Tensor


def axis_of(line: Line) -> tuple[Axis, int] | None:
    """The axis along which a window moves, and by how many elements; None where it does not."""
    return next(((key, step) for key, step in line.steps if isinstance(key, Axis)), None)


def inside_of(line: Line) -> tuple[int, int] | None:
    """The dimension of a view that runs inside a window, and by how many elements; None for a window of one."""
    return next(((key, step) for key, step in line.steps if isinstance(key, int)), None)


def moving_windows(tensor: Tensor) -> Access | Refused:
    """The windows that a view, which has elements, is."""
    if tensor.rows is not None:
        return Refused("its windows are ragged")
    access = Access.of(tensor.index, tensor.source.shape)
    if access.shape != tensor.source.shape:
        return Refused("its windows run across dimensions")
    if any(line.tables for line in access.lines):
        return Refused("its windows move by a table")
    for line in access.lines:
        axes = sum(isinstance(key, Axis) for key, _ in line.steps)
        if axes > 1 or len(line.steps) - axes > 1:
            return Refused("its windows move by several symbols along one dimension")
    return access


def least_cut(stop: int, count: int, low: int, high: int, spare: int) -> tuple[int, int]:
    """Where an array is cut, and how many zeros follow it, so that least is copied for the same results.

    A stride leaves elements behind the last window, which may be there: then nothing is cut off. And as many zeros may
    be behind as before: of others, libraries for GPUs take a copy with its zeros, twice the kernels of `conv/conv1`.

    Args:
        stop: behind the last element that a window reads.
        count: of the elements of the array.
        low: zeros before.
        high: zeros behind.
        spare: elements that may follow the last window, less than its stride.

    Returns:
        Where to cut, and the zeros behind.

    >>> least_cut(27, 28, 0, 0, 1), least_cut(224, 224, 3, 0, 3), least_cut(20, 28, 0, 0, 1)
    ((28, 0), (224, 3), (20, 0))
    """
    if count - stop > spare:
        return stop, high
    left = spare - (count - stop)
    return count, low if high <= low <= high + left else high
