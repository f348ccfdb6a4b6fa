"""Lines: an array as rows along one of its axes, for all positions along the others."""

from __future__ import annotations

import math
from collections.abc import Sequence

from codelet.views.tensor import Tensor


def as_lines(tensor: Tensor, axis: int) -> Tensor:
    """A tensor as (before, after, length): the dimensions before an axis, those after it, and it."""
    shape = tensor.shape
    three = tensor.reshape((math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])))
    return three.transpose((0, 2, 1))


def from_lines(lines: Tensor, shape: Sequence[int], axis: int) -> Tensor:
    """The inverse: for a shape whose extent along the axis is of the lines."""
    return lines.transpose((0, 2, 1)).reshape((*shape[:axis], lines.shape[2], *shape[axis + 1 :]))
