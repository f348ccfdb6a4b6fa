"""Searches: which way to place a plan took the fewest cycles, and what the others take, kept for later.

A search places a plan in several ways and counts the cycles of each. Its outcome is a few numbers, from which the
placement is made anew by the one way. It is kept on the disk for large plans (`codelet/kept_files.py`), and in files of
`cl.save` on request, which give it to the graph that is read.

An outcome stands for one plan alone: its key is a digest of all that a file of the graph holds, of the plan, of the
partitioner at hand, and of the sources of the library. A digest is no proof of where a file comes from: what the chosen
way takes is counted again, and an outcome that says otherwise is not used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from weakref import WeakKeyDictionary

from codelet.errors import SavingError
from codelet.graphs.graph import Graph
from codelet.jaxprs.plain import MalformedError, Plain, check_form, listed, text, whole
from codelet.jaxprs.strict_json import written_json
from codelet.kept_files import cache_folder, keep, looked_up
from codelet.ops.plan_keys import sources_digest
from codelet.saved.archive import PLAN, Archive
from codelet.saved.graph_files import graph_parts
from lowering.machine.candidates import WAYS
from lowering.machine.exchange import Exchange
from lowering.machine.irregular import partitioner
from lowering.machine.placement import Candidate, Placement
from lowering.plan.plan import Plan

Tried = Sequence[Candidate]
"""The outcome of a search: the placements that were compared, the chosen one first."""

_LARGE = 1 << 20
"""Plans of so many elements and vertices are searched for seconds, and their outcomes are kept on the disk."""

_GIVEN: WeakKeyDictionary[Graph, Mapping[str, Tried]] = WeakKeyDictionary()
"""The outcomes that its file gave to a graph, by key."""


def search_key(plan: Plan) -> str | None:
    """A digest of all that the outcome of a search depends on; None where files have no form for the graph.

    Args:
        plan: without calls.
    """
    try:
        parts = graph_parts(plan.graph, lambda writer: {})
    except SavingError:
        return None
    digest = hashlib.sha256(f"{sources_digest()} {partitioner()} {plan}".encode())
    for part in (piece for pieces in parts.values() for piece in pieces):
        digest.update(part)
    return digest.hexdigest()


# --- outcomes as plain data -----------------------------------------------------------------------------------


def _plain(tried: Tried) -> Plain:
    """An outcome as plain data."""
    return [[own.way, own.cycles, own.num_bytes, own.fits] for own in tried]


def _read(plain: Plain) -> Tried:
    """An outcome of plain data.

    Raises:
        MalformedError: it is none.
    """
    result = []
    for item in listed(plain):
        way, cycles, num_bytes, fits = listed(item, 4)
        check_form(way in WAYS and type(fits) is bool, "a way to place")
        result.append(Candidate(way, whole(cycles), None if num_bytes is None else whole(num_bytes), fits))
    check_form(bool(result) and len({own.way for own in result}) == len(result), "the ways that were tried")
    return tuple(result)


def search_parts(placement: Placement) -> dict[str, list[bytes]]:
    """The part of a file with the outcome of the search for a placement; none of one that was not searched for.

    Args:
        placement: by the method `balanced`.
    """
    key = search_key(placement.plan) if placement.tried else None
    return {} if key is None else {PLAN: [written_json([[key, _plain(placement.tried)]])]}


def give_searches(graph: Graph, archive: Archive) -> None:
    """Give a graph the outcomes of searches that its file has.

    Raises:
        MalformedError: a part that holds something else.
    """
    if PLAN in archive.parts:
        pairs = (listed(item, 2) for item in listed(archive.json(PLAN)))
        _GIVEN[graph] = {text(key): _read(plain) for key, plain in pairs}


# --- looking up -----------------------------------------------------------------------------------------------


def _is_large(plan: Plan) -> bool:
    elements = sum(variable.size for variable in plan.variables)
    return elements + sum(family.num_vertices for family in plan.families) >= _LARGE


def _from_disk(folder: Path, key: str) -> Tried | None:
    plain = looked_up(folder, key)
    try:
        return None if plain is None else _read(plain)
    except MalformedError:
        return None


class KnownSearch:
    """The outcome of the search for the best placement of a plan, as far as it is known.

    Args:
        plan: without calls.

    Attributes:
        tried: the outcome; None where it is not known.
    """

    def __init__(self, plan: Plan):
        self._folder = cache_folder() if _is_large(plan) else None
        given = _GIVEN.get(plan.graph, {})
        self._key = search_key(plan) if given or self._folder is not None else None
        self.tried: Tried | None = None
        if self._key is not None:
            self.tried = given.get(self._key) or (_from_disk(self._folder, self._key) if self._folder else None)

    def holds(self, cycles: int, fits: bool) -> bool:
        """Whether it says of its chosen way what that takes."""
        return self.tried is not None and (self.tried[0].cycles, self.tried[0].fits) == (cycles, fits)

    def keep(self, tried: Tried) -> None:
        """Keep an outcome on the disk, where its plan is large."""
        if self._folder is not None and self._key is not None:
            keep(self._folder, self._key, _plain(tried))


def told(exchange: Exchange, tried: Tried) -> Exchange:
    """What moves by the chosen way of an outcome, whose placement tells what was tried."""
    exchange.placement = replace(exchange.placement, tried=tuple(tried))
    return exchange
