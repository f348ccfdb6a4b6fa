"""Timing several functions fairly: in turn, in one process."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np


def time_in_turn(
    calls: Sequence[Callable[[], Any]],
    *,
    repeats: int = 9,
    seconds: float = 0.5,
    most: int = 1000,
    most_seconds: float = math.inf,
) -> list[float]:
    """The median time of each call, in seconds, its results waited for.

    The calls take iterations, in an order that is reversed every other round, so that what else the machine does meets
    all of them alike. Every call runs once before, for its compilation.

    Args:
        calls: functions without arguments that return JAX arrays, in any pytree.
        repeats: the least number of rounds.
        seconds: rounds are added until they have taken this long together, so that short calls are timed
            more often.
        most: no rounds are added beyond this number.
        most_seconds: no round is begun after this long, though there be fewer than `repeats`; there is always one.

    >>> quick, slow = time_in_turn([lambda: 0, lambda: time.sleep(0.01)], seconds=0)
    >>> quick < slow
    True
    """
    for call in calls:
        jax.block_until_ready(call())
    times: list[list[float]] = [[] for _ in calls]
    order, begun = list(range(len(calls))), time.perf_counter()
    while True:
        for k in order:
            start = time.perf_counter()
            jax.block_until_ready(calls[k]())
            times[k].append(time.perf_counter() - start)
        order.reverse()
        rounds, taken = len(times[0]), time.perf_counter() - begun
        if taken > most_seconds or (rounds >= repeats and (rounds >= most or taken >= seconds)):
            return [float(np.median(own)) for own in times]
