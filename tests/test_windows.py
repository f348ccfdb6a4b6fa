"""Windows of operations: their lines, solved and swapped, are those that gradients move by, element by element."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codelet.ops.windows import WindowedDimension, places_of, windowed
from tests.accesses import line_at
from tests.examples import examples


@st.composite
def dimensions(draw) -> WindowedDimension:
    extent, results, taps = (draw(st.integers(1, 6)) for _ in range(3))
    stride, dilation, between = (draw(st.integers(1, 4)) for _ in range(3))
    low = draw(st.integers(-3, 5))
    return windowed(extent, results, taps, low=low, stride=stride, dilation=dilation, between=between)


def met(own: WindowedDimension) -> set[tuple[int, int, int]]:
    """Each result, tap and element that meet."""
    found = line_at(own.line, {0: own.results, 1: own.taps})
    each = ((*divmod(k, own.taps), element) for k, element in enumerate(found))
    return {(r, t, element) for r, t, element in each if element is not None and 0 <= element < own.extent}


@examples(150)
@given(dimensions())
def test_gradients_meet_the_same(own):
    assert met(own.transposed) == {(element, own.taps - 1 - t, r) for r, t, element in met(own)}
    assert met(own.swapped) == {(t, r, element) for r, t, element in met(own)}
    assert (own.transposed.transposed.line, own.swapped.swapped) == (own.line, own)


@examples(150)
@given(dimensions())
def test_windows_of_phases_hold_what_is_met(own):
    found = set()
    for phase in own.phases:
        results, taps = slice(0, phase.count), slice(0, phase.taps)
        window = own.window(phase, results, taps)
        places = range(*places_of(phase, results).indices(own.results))
        assert len(places) == phase.count
        for q, r in enumerate(places):
            for t in range(phase.taps):
                element = window.start - own.widths[0] + own.stride * q + own.step * t
                assert window.start <= element + own.widths[0] < window.stop
                assert 0 <= element + own.widths[0] < own.extent + sum(own.widths)
                found.add((r, phase.tap + phase.tap_step * t, element))
    assert {each for each in found if 0 <= each[2] < own.extent} == met(own)
