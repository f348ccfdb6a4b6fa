"""What is cut joins: pieces of any grain are their operation, and what is no partition is refused, point by point."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, seed, settings

from codelet.refused import Refused
from lowering.join import exact_cover
from lowering.join.lattice_pieces import Piece
from lowering.join.partition_of import partition_of
from tests.cut_pieces import cut, cuts, in_every_order, matmul, spoilt, terms, without_single_places
from tests.examples import examples


def joined(pieces):
    """What pieces are a partition of, by the first order of fields that says so; or why they are none."""
    refused = Refused("there are none")
    for order in in_every_order(pieces[0]):
        found = partition_of(pieces, order, holes=True)
        if not isinstance(found, Refused):
            return found.whole
        refused = found
    return refused


def is_what_they_are(pieces):
    """Whether pieces are joined; what they are joined to has their points, each as often, and no others."""
    whole = joined(pieces)
    if isinstance(whole, Refused):
        return False
    assert terms([whole]) == terms(pieces)
    return True


@examples(60)
@given(cuts())
def test_what_is_joined_are_the_pieces(case):
    whole, pieces = case
    assert terms(pieces) == terms([whole])
    is_what_they_are(pieces)


@examples(100)
@given(spoilt())
def test_what_is_spoilt_is_not_taken_for_whole(pieces):
    is_what_they_are(pieces)


@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(spoilt())
def test_of_many_that_are_spoilt_none_is_taken_for_whole(pieces):
    is_what_they_are(pieces)


def coverage(count):
    """How many of so many drawn cuts are joined, and of why the others are not how many."""
    found, reasons = 0, {}

    @seed(1)
    @settings(max_examples=count, deadline=None, database=None)
    @given(cuts(most=15))
    def run(case):
        nonlocal found
        whole = joined(case[1])
        if isinstance(whole, Refused):
            reasons[whole.reason] = reasons.get(whole.reason, 0) + 1
        else:
            found += 1

    run()
    return found, reasons


def test_most_cuts_are_joined():
    found, reasons = coverage(100)
    assert found >= 0.94 * (found + sum(reasons.values())), reasons


@pytest.mark.slow
def test_most_of_many_cuts_are_joined():
    found, reasons = coverage(750)
    assert found >= 0.94 * (found + sum(reasons.values())), reasons


def test_a_whole_of_any_size_takes_no_longer():
    pieces = cut(matmul(10_000_019, 9_973, 1_000_003), [4096, 100, 4096])
    assert len(pieces) == 8
    whole = joined(pieces)
    assert not isinstance(whole, Refused)
    assert sorted(whole.extents.values()) == [9_973, 1_000_003, 10_000_019]


def test_pieces_of_uneven_lengths():
    whole = matmul(1, 1, 40)
    (axis,) = (key for key, n in whole.extents.items() if n == 40)
    ends = np.cumsum([0, 3, 11, 1, 25])
    pieces = []
    for low, high in itertools.pairwise(ends):
        accesses = tuple(access.restricted(axis, range(low, high)) for access in whole.accesses)
        pieces.append(without_single_places(Piece(accesses[0].extents, accesses, 1)))
    assert is_what_they_are(pieces)
    assert isinstance(joined(pieces[1:]), Piece)  # which goes from 3 on
    refused = joined([pieces[0], *pieces[2:]])
    assert isinstance(refused, Refused)
    assert refused.reason == "a point is computed by no piece"


def test_scattered_pieces_of_more_places_than_are_flagged_are_refused(monkeypatch):
    whole = without_single_places(matmul(1, 1, 40))
    (axis,) = whole.extents
    pieces = []
    for first in (0, 1):
        accesses = tuple(access.restricted(axis, range(first, 40, 2)) for access in whole.accesses)
        pieces.append(Piece(accesses[0].extents, accesses, 1))
    assert is_what_they_are(pieces)
    monkeypatch.setattr(exact_cover, "MOST_FLAGS", 79)
    refused = joined(pieces)
    assert isinstance(refused, Refused)
    assert refused.reason == "2 pieces lie scattered among 40 places"
