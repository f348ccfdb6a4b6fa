"""The planner of Poplar's matrix-vector tutorial: into how many parts to split the columns.

In come the sizes of a matrix and the machine; out come the estimated cycles of every split. Each row of the
matrix is cut into `splits` parts; a vertex takes the dot product of one part with its part of the vector, a
second compute set adds up the partial sums of each row. With more splits there are more, shorter vertices, but
more partial sums to exchange and to add up.

Source: Graphcore's Poplar tutorial 6, "Matrix-vector multiplication optimisation" (`calcOptimalColAxisSplit`),
whose divisions are of integers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from codelet.target import Target
from ipu_backend.model.costs import ceil_div


class MatvecEstimate(NamedTuple):
    """Estimated cycles of a matrix-vector product whose columns are split, its synchronizations aside.

    Attributes:
        splits: parts that the columns are split into.
        compute: the dot products of the busiest tile.
        exchange: the part of the vector that the busiest tile receives.
        reduce_exchange: the partial sums that the busiest tile receives.
        reduce_compute: the sums of partial sums of the busiest tile.
    """

    splits: int
    compute: int
    exchange: int
    reduce_exchange: int
    reduce_compute: int

    @property
    def total_cycles(self) -> int:
        """All four."""
        return self.compute + self.exchange + self.reduce_exchange + self.reduce_compute


def dot_vertex_cycles(num_elements: int) -> int:
    """Cycles of one worker for a dot product, or a sum, of float32: the tutorial's estimate.

    >>> dot_vertex_cycles(143)
    77
    """
    return 5 + (num_elements + 1) // 2


def estimate_matvec(rows: int, columns: int, splits: int, target: Target) -> MatvecEstimate:
    """The tutorial's estimate for one number of splits.

    >>> import codelet as cl
    >>> estimate_matvec(10000, 1000, 7, cl.IPU())
    MatvecEstimate(splits=7, compute=3696, exchange=143, reduce_exchange=49, reduce_compute=108)
    """
    workers, tiles, rate = target.num_workers, target.num_tiles, target.exchange_bytes_per_cycle
    word = np.dtype(np.float32).itemsize
    vertices, length = max(ceil_div(rows * splits, tiles), 1), ceil_div(columns, splits)
    reductions = max(ceil_div(rows, tiles), 1)
    return MatvecEstimate(
        splits,
        compute=ceil_div(vertices, workers) * workers * dot_vertex_cycles(length),
        exchange=ceil_div(vertices, rows) * length * word // rate,
        reduce_exchange=reductions * splits * word // rate,
        reduce_compute=ceil_div(reductions, workers) * workers * dot_vertex_cycles(splits),
    )


def search_matvec(rows: int, columns: int, target: Target) -> list[MatvecEstimate]:
    """The estimates for 1 to `columns - 1` splits, the best first; of equals, the fewest splits first.

    >>> import codelet as cl
    >>> best, *_, worst = search_matvec(10000, 1000, cl.IPU("mk1"))
    >>> best.splits, best.total_cycles, worst.total_cycles
    (5, 4751, 64373)
    """
    estimates = [estimate_matvec(rows, columns, splits, target) for splits in range(1, columns)]
    return sorted(estimates, key=lambda estimate: estimate.total_cycles)
