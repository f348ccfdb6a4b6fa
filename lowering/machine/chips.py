"""Chips: over which links of a machine of several what moves between them goes, and for how long.

In come the bytes that each chip sends to each other, out come the cycles of that: of the busiest link.

Chips stand in pairs on a ladder. What goes to the other of a pair goes straight there. What goes further goes across
the rung first, if the chip that it goes to is on the other side, and then up or down, a pair at a time. Each chip has
`_LINKS` links for each of these ways.

Source: PopLibs, lib/poplibs_test/Util.cpp @ f69d60c6, `addGlobalExchangeConstraints` and `setGlobalSyncLatency`, where
the number of chips is even. With an odd one, which is a guess, the last chip goes down before it goes across.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from codelet.target import Target

_LINKS = {"pair": 4, "across": 2, "up": 2, "down": 2}
"""How many links a chip has for what it sends."""


def tiles_per_chip(target: Target) -> int:
    """How many tiles a chip has, which have numbers one after another."""
    return target.num_tiles // target.num_chips


class _ChipLinks(NamedTuple):
    """The links that what goes from chip to chip takes: `pairs` and `links` side by side; `widths` of each link."""

    pairs: np.ndarray
    links: np.ndarray
    widths: np.ndarray


def _route(sender: int, receiver: int, num_chips: int) -> list[tuple[str, int]]:
    """Which links what one chip sends to another takes, each by its way and the chip that sends over it."""
    if sender // 2 == receiver // 2:
        return [("pair", sender)]
    found, at = [], sender
    while at != receiver:
        if at % 2 != receiver % 2 and at ^ 1 < num_chips:
            found.append(("across", at))
            at ^= 1
        else:
            up = at // 2 < receiver // 2
            found.append(("up" if up else "down", at))
            at += 2 if up else -2
    return found


@functools.cache
def _links(num_chips: int) -> _ChipLinks:
    names = [(way, chip) for way in _LINKS for chip in range(num_chips)]
    number = {name: k for k, name in enumerate(names)}
    taken = [
        (sender * num_chips + receiver, number[link])
        for sender in range(num_chips)
        for receiver in range(num_chips)
        if sender != receiver
        for link in _route(sender, receiver, num_chips)
    ]
    pairs, links = np.array(taken, np.int64).reshape(-1, 2).T
    return _ChipLinks(pairs, links, np.array([_LINKS[way] for way, _ in names], np.int64))


def external_exchange_cycles(bytes_between: np.ndarray, target: Target) -> int:
    """Cycles in which the busiest link moves what goes over it.

    Args:
        bytes_between: what each chip sends to each other, of shape (num_chips, num_chips).
        target: the machine.
    """
    ways = _links(target.num_chips)
    moved = np.bincount(ways.links, bytes_between.reshape(-1)[ways.pairs], len(ways.widths))
    busiest = float((moved / ways.widths).max(initial=0.0))
    return math.ceil(busiest * target.clock_hertz / target.link_bytes_per_second)


def external_sync_cycles(target: Target) -> int:
    """Cycles in which all chips wait for each other: there and back, one hop in a pair and one for every two pairs."""
    hops = 1 + target.num_chips // 4
    return math.ceil(target.hop_seconds * target.clock_hertz * hops * 2)
