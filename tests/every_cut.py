"""Works cut in all ways that there are: what is chosen is measured beside the best of them."""

from __future__ import annotations

import itertools

import numpy as np

from codelet.ops import block_planning
from codelet.ops.blockwise import Work
from codelet.target import Target


def least_of_all(target: Target, work: Work) -> int:
    """The cycles of the cheapest of all ways to cut the axes of a work over the tiles, and to make vertices of that."""
    every = [[axis.extent] if axis.role == "whole" else range(1, axis.extent + 1) for axis in work.axes]
    blocks = np.array(list(itertools.product(*every)), np.int64).reshape(-1, len(every)).T
    offers = block_planning._offers(target, work, np.zeros(blocks.shape[1]), blocks, None)
    return min(plan.total_cycles for plan in offers.plans("every", range(len(offers.ways))))
