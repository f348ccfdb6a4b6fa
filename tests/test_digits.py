"""Strided digits, against the numbers that they stand for."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codelet.views.digits import (
    Digit,
    are_nested,
    ends,
    merged,
    read_digits,
    regrouped,
    row_major_digits,
    row_major_strides,
    stretch,
)
from tests.examples import examples

quick = examples(200)
steps = st.integers(-7, 7) | st.sampled_from([-24, -12, 12, 24, 36])
digit_lists = st.lists(st.builds(Digit, steps, st.integers(1, 4)), max_size=4)
shapes = st.lists(st.integers(1, 4), max_size=4)


def numbers(digits) -> list[int]:
    """The number at all places, in row-major order."""
    return [sum(map(math.prod, zip(steps, places, strict=True))) for steps, places in _all_places(digits)]


def _all_places(digits):
    steps = [step for step, _ in digits]
    return ((steps, places) for places in itertools.product(*(range(extent) for _, extent in digits)))


@quick
@given(digits=digit_lists, offset=st.integers(-5, 5))
def test_ends_and_nesting(digits, offset):
    all_numbers = numbers(digits)
    assert ends(digits, offset) == (min(all_numbers) + offset, max(all_numbers) + offset)
    length, apart = stretch(digits)
    starts = numbers(apart)
    covered = {min(all_numbers) + start + k for start in starts for k in range(length)}
    assert covered == set(all_numbers)
    assert all(step > length for step, _ in apart)
    if are_nested(digits):
        assert len(set(all_numbers)) == len(all_numbers)
        # ... and read off by division, largest step first.
        order = sorted(range(len(digits)), key=lambda k: -abs(digits[k].step))
        for places in itertools.product(*(range(extent) for _, extent in digits)):
            rest = sum(map(math.prod, zip([step for step, _ in digits], places, strict=True))) - min(all_numbers)
            for k in order:
                step, extent = digits[k]
                found, rest = divmod(rest, abs(step)) if extent > 1 else (0, rest)
                assert (found if step > 0 else extent - 1 - found) == places[k]
            assert rest == 0


@quick
@given(shape=shapes)
def test_an_array_in_memory(shape):
    assert numbers(row_major_digits(shape)) == list(range(math.prod(shape)))
    assert are_nested(row_major_digits(shape))
    strides = np.empty(shape, np.int8).strides
    assert all(n == 1 or s == t for n, s, t in zip(shape, strides, row_major_strides(shape), strict=True))


@pytest.mark.slow
@quick
@given(digits=digit_lists, data=st.data())
def test_merging_splitting_and_regrouping_keep_the_numbers(digits, data):
    fewer = merged(digits)
    assert numbers(fewer) == numbers(digits)
    assert merged(fewer) == fewer
    for digit in digits:
        for inner in (n for n in range(1, digit.extent + 1) if digit.extent % n == 0):
            assert numbers(digit.split(inner)) == numbers([digit])
    # Of the sizes of any reshape: None, or digits that are the same numbers, so many in each group.
    sizes, left = [], math.prod(digit.extent for digit in digits)
    while left > 1:
        sizes.append(data.draw(st.sampled_from([n for n in range(2, left + 1) if left % n == 0])))
        left //= sizes[-1]
    for given_digits in (digits, fewer):
        groups = regrouped(given_digits, sizes)
        if groups is not None:
            assert [math.prod(digit.extent for digit in group) for group in groups] == sizes
            assert numbers([digit for group in groups for digit in group]) == numbers(digits)
    if len(fewer) <= 1:
        assert regrouped(fewer, sizes) is not None
    finest = merged([part for digit in digits for part in _finest(digit)])
    assert regrouped(finest, [digit.extent for digit in finest]) is not None


def _finest(digit):
    for prime in (2, 3):
        if digit.extent % prime == 0 and digit.extent > prime:
            outer, inner = digit.split(prime)
            return [*_finest(outer), inner]
    return [digit]


@quick
@given(digits=digit_lists, offset=st.integers(-5, 5), spoiled=st.none() | st.integers(0, 255))
def test_digits_are_read_from_numbers(digits, offset, spoiled):
    column = np.array(numbers(digits)) + offset
    if spoiled is not None:
        column[spoiled % len(column)] += 1
    found = read_digits(column)
    if found is not None:
        assert [number + column[0] for number in numbers(found)] == column.tolist()
        assert merged(found) == found or 0 in [digit.step for digit in found]
    assert found is not None or spoiled is not None or not are_nested(digits)
