"""Components: things that are joined by pairs, told apart from those that are not."""

from __future__ import annotations

import numpy as np


def components(ends: np.ndarray, others: np.ndarray, count: int) -> np.ndarray:
    """The least member of the component of each of some things, joined by pairs.

    >>> components(np.array([3, 1]), np.array([1, 0]), 5).tolist()
    [0, 0, 2, 0, 4]
    """
    labels = np.arange(count)
    while True:
        one, other = labels[ends], labels[others]
        least = np.minimum(one, other)
        apart = one != other
        if not apart.any():
            return labels
        ends, others, least = ends[apart], others[apart], least[apart]
        np.minimum.at(labels, one[apart], least)
        np.minimum.at(labels, other[apart], least)
        while not np.array_equal(labels, labels[labels]):
            labels = labels[labels]
