"""Arguments: the arrays that a plan runs on, those of its inputs and then all values of each of its input streams."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from codelet.hostdata import Place
from lowering.plan.plan import Plan
from lowering.plan.streams import fed_types


class Argument(NamedTuple):
    """What an array is for that is no variable: all values of an input stream, stacked, or a value for each replica."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype


def arguments(plan: Plan) -> list[Place]:
    """What the arrays are for that a plan runs on, in order."""
    names = [stream.name for stream in plan.streams if stream.is_input]
    types = zip(names, fed_types(plan), strict=True)
    return [*plan.inputs, *(Argument(name, kind.shape, np.dtype(kind.dtype)) for name, kind in types)]
