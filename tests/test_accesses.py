"""Accesses: every operation on them means what it does place by place, and phases are what divides."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import codelet as cl
from codelet.refused import Refused
from codelet.views.access import Access, joined
from codelet.views.grids import Key
from codelet.views.index import row_major
from codelet.views.line import Line, phases
from tests.accesses import accesses, extents, line_at, lines, table_of
from tests.examples import examples

FRESH = cl.grid(7, 7, 7)
POSITIONS = [own.axes[0] for own in FRESH]


@examples(100)
@given(accesses(rounded=True, tabled=True))
def test_box_holds_all_positions(own):
    found = table_of(own).values()
    for d, (low, high) in enumerate(own.box()):
        there = [n for row in found if (n := row[d]) is not None]
        assert all(low <= n < high for n in there)
        if own.lines[d].divisor == 1 and not own.lines[d].tables:
            assert (low, high) == (min(there), max(there) + 1)


@pytest.mark.slow
@examples(100)
@given(accesses(rounded=True, tabled=True), st.data())
def test_restriction_is_those_places(own, data):
    key = data.draw(st.sampled_from(list(own.extents)))
    places = range(data.draw(st.integers(0, own.extents[key] - 1)), own.extents[key], data.draw(st.integers(1, 3)))
    whole = table_of(own)
    for at, positions in table_of(own.restricted(key, places)).items():
        assert whole[frozenset((k, places[n] if k == key else n) for k, n in at)] == positions


@examples(100)
@given(accesses(rounded=True, tabled=True), st.integers(1, 4), st.data())
def test_cut_parts_are_all_of_it_and_join_again(own, size, data):
    key = data.draw(st.sampled_from(list(own.extents)))
    block = POSITIONS[0]
    found, first = {}, 0
    merged = []
    for part in own.cut(key, size, block):
        inside = part.extents[key]
        for at, positions in table_of(part).items():
            by = dict(at)
            by[key] = first + by.pop(block) * inside + by[key]
            assert frozenset(by.items()) not in found
            found[frozenset(by.items())] = positions
        first += inside * part.extents[block]
        merged.append(part.merged(block, key, key))
    assert found == table_of(own)
    moves = any(line.by.get(key) for line in own.lines)
    if all(line.divisor == 1 and not line.tables for line in own.lines) and moves:
        assert joined(merged, key) == own


@examples(100)
@given(accesses(divided=False, tabled=True))
def test_parts_that_do_not_go_on_are_refused(own):
    key = next((k for k, n in own.extents.items() if n > 2 and any(line.by.get(k) for line in own.lines)), None)
    assume(key is not None and not any(line.tables for line in own.lines))
    assert key is not None
    parts = [own.restricted(key, range(1)), own.restricted(key, range(2, own.extents[key]))]
    assert isinstance(joined(parts, key), Refused)
    assert joined(parts[::-1][:1], key) == parts[1]


@examples(150)
@given(accesses(rounded=True, tabled=True), extents(), st.data())
def test_composition_is_looking_up(outer, keys, data):
    inner = {key: data.draw(lines(keys, tabled=True)) for key in outer.extents}
    if any(line.tables for line in outer.lines):  # which are looked up at places that there are
        inner |= {
            key: Line.of(data.draw(st.integers(0, n - 1)))
            for key, n in outer.extents.items()
            if data.draw(st.booleans())
        }
    found = [line_at(line, keys) for line in inner.values()]
    made = outer.after(inner, keys)
    tabled = {key for line in outer.lines for table in line.tables for key in table.keys}
    for key, column in zip(outer.extents, found, strict=True):
        assume(key not in tabled or all(n is not None and 0 <= n < outer.extents[key] for n in column))
    if isinstance(made, Refused):
        return
    for line, expected in zip(made.lines, outer.lines, strict=True):
        for at, position in enumerate(line_at(line, keys)):
            places = {key: column[at] for key, column in zip(outer.extents, found, strict=True)}
            if any(places[key] is None for key in expected.keys):
                assert position is None
            else:
                known = {key: np.array(n if n is not None else 0) for key, n in places.items()}
                number, is_there = expected.at(known)
                assert position == (int(number) if is_there else None)


@examples(100)
@given(extents(), st.data())
def test_plain_lines_are_composed_without_refusal(keys, data):
    own = data.draw(accesses(rounded=True))
    inner = {key: data.draw(lines(keys, divided=False)) for key in own.extents}
    assert isinstance(own.after(inner, keys), Access)


@examples(100)
@given(lines({0: 5, 1: 4, 2: 3}), st.data())
def test_solved_for_a_key_is_its_place(own, data):
    key, sizes = data.draw(st.sampled_from([0, 1, 2])), {0: 5, 1: 4, 2: 3}
    position = POSITIONS[0]
    made = own.solved(key, position)
    if isinstance(made, Refused):
        assert key not in own.by
        return
    for at in np.ndindex(5, 4, 3):
        places = {k: np.array(n) for k, n in enumerate(at)}
        number, is_there = own.at(places)
        if is_there:  # one place is that from which it came, and no other gives the same position
            place, found = made.at({**places, position: number})
            assert found
            assert place == at[key]
    others = {k: np.array(0) for k in sizes}
    for number in range(-20, 20):
        place, found = made.at({**others, position: np.array(number)})
        given_back = own.at({**others, key: place})
        assert bool(found) == (bool(given_back[1]) and int(given_back[0]) == number) or not found
        if not found:
            assert not any(own.at({**others, key: np.array(n)}) == (number, True) for n in range(-40, 40))


@examples(100)
@given(
    st.lists(st.tuples(st.integers(-3, 9), st.integers(-4, 4).filter(bool), st.integers(1, 5)), min_size=1, max_size=3)
)
def test_inverse_names_each_place_and_has_holes_elsewhere(dimensions):
    keys: dict[Key, int] = dict(enumerate(n for _, _, n in dimensions))
    own = Access((40,) * len(dimensions), tuple(Line.of(a, {d: b}) for d, (a, b, _) in enumerate(dimensions)), keys)
    back = own.inverse(POSITIONS[: len(dimensions)])
    assert not isinstance(back, Refused)
    for d, (start, step, n) in enumerate(dimensions):
        named = {start + step * k: k for k in range(n)}
        for position in range(-30, 60) if n > 1 else [start]:
            place, is_there = back[d].at({key: np.array(position) for key in POSITIONS})
            assert (int(place) if is_there and 0 <= place < n else None) == named.get(position)


def test_inverse_refuses_what_is_named_twice():
    several = Access((9,), (Line.of(0, {0: 1, 1: 1}),), {0: 3, 1: 3})
    idle = Access((9,), (Line.of(0, {0: 1}),), {0: 3, 1: 3})
    assert isinstance(several.inverse(POSITIONS[:1]), Refused)
    assert isinstance(idle.inverse(POSITIONS[:1]), Refused)


@examples(100)
@given(accesses(rounded=True, tabled=True), st.data())
def test_padding_moves_positions(own, data):
    widths = [(data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))) for _ in own.lines]
    made = own.padded(widths)
    assert made.shape == tuple(n + sum(width) for n, width in zip(own.shape, widths, strict=True))
    moved = [
        tuple(None if n is None else n + a for n, (a, _) in zip(row, widths, strict=True))
        for row in table_of(own).values()
    ]
    assert list(table_of(made).values()) == moved


@examples(150)
@given(lines({0: 6, 1: 5}, rounded=True))
def test_simplified_is_the_same_and_rounded_lines_within_a_block_are_plain(own):
    sizes: dict[Key, int] = {0: 6, 1: 5}
    made = own.simplified(sizes)
    assert line_at(made, sizes) == line_at(own, sizes)
    found = line_at(own, sizes)
    if own.rounded and made.rounded:
        rest = {key: step for key, step in own.steps if step % own.divisor}
        low, high = Line.of(own.start, rest).ends(sizes)
        assert low // own.divisor != high // own.divisor
    assert len(found) == 30


@examples(150)
@given(lines({0: 9, 1: 8}), st.integers(1, 9), st.integers(1, 8))
def test_phases_are_what_divides(own, count, taps):
    expected = {
        (a, b): int(own.at({0: np.array(a), 1: np.array(b)})[0])
        for a in range(count)
        for b in range(taps)
        if own.at({0: np.array(a), 1: np.array(b)})[1]
    }
    found = {}
    for phase in phases(own, 0, count, 1, taps):
        assert phase.line.divisor == 1
        for q in range(phase.count):
            for t in range(phase.taps):
                at = phase.first + phase.apart * q, phase.tap + phase.tap_step * t
                assert at not in found
                found[at] = int(phase.line.at({0: np.array(q), 1: np.array(t)})[0])
    assert found == expected
    assert sum(phase.count for phase in phases(own, 0, count, 1, taps)) == count


# --- of indices -------------------------------------------------------------------------------------------


@st.composite
def indices(draw):
    """An index into an array of a shape: some slices of it over axes, some looked up in a table."""
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    index = row_major(shape)
    for d in range(len(shape)):
        n = index.shape[d]
        kind = draw(st.sampled_from(["all", "slice", "backwards", "table"]))
        if kind == "slice":
            start = draw(st.integers(0, n - 1))
            items = slice(start, draw(st.integers(start + 1, n)), draw(st.integers(1, 3)))
        elif kind == "backwards":
            items = slice(None, None, -1)
        elif kind == "table":
            items = np.array(draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=4)))
        else:
            items = slice(None)
        index = index[(*[slice(None)] * d, items)]
    if draw(st.booleans()):
        index = index.reshape((index.size,))
    return index, shape


@examples(150)
@given(indices())
def test_an_access_is_its_index_and_back(case):
    index, shape = case
    own = Access.of(index, shape)
    assert math.prod(own.shape) == math.prod(shape)
    every = tuple(range(index.ndim))
    np.testing.assert_array_equal(own.index().values_over(every), index.values_over(every))
    assert all(0 <= low < high <= n for (low, high), n in zip(own.box(), own.shape, strict=True))


@examples(100)
@given(indices(), st.data())
def test_dimensions_are_never_negative_and_are_the_lines(case, data):
    index, shape = case
    own = Access.of(index, shape)
    again = Access(own.shape, own.lines, own.extents)
    assert [start for start, _ in again.dimensions] == [start for start, _ in own.dimensions]
    for (_, terms), (_, expected) in zip(again.dimensions, own.dimensions, strict=True):
        assert [term[:4] for term in terms] == [term[:4] for term in expected]
    assert again.reversed_keys == own.reversed_keys


def test_symbols_are_keys():
    i, j = cl.grid(3, 4)
    x = cl.Graph().add_variable("x", (10, 8))
    own = Access.of(x[2 * i + 1 : 2 * i + 4, j].index, (10, 8))
    assert [line.text({i.axes[0]: "i", j.axes[0]: "j", 0: "k"}) for line in own.lines] == ["1 + k + 2*i", "j"]


@pytest.mark.parametrize("divisor", [-3, 2])
def test_lines_have_one_form(divisor):
    assert Line.of(2 * divisor, {0: divisor}, divisor) == Line.of(2, {0: 1})
    assert Line.of(0, {0: 0}) == Line(0)
    assert hash(Line.of(4, {1: 2}, 6)) == hash(Line.of(2, {1: 1}, 3))
    assert Line.of(1, {0: 1}) != Line.of(1, {0: 1}, 2)
