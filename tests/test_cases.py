"""Cases: a function of many numbers at once returns of each what it returns of that number alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codelet.tracing.cases import ever, gcd, greatest, least, of_cases, taken, where
from tests.examples import examples


def _collatz(a: Any, b: Any) -> list[Any]:
    turns = 0
    while a > 1 and turns < 12:
        a, turns = (a // 2 if a % 2 == 0 else 3 * a + 1), turns + 1
    return [a, turns * b]


FUNCTIONS: dict[str, Callable[[Any, Any], list[Any]]] = {
    "branches": lambda a, b: [a - b if a > b else b - a, 7 if not a % 3 else -a],
    "chains": lambda a, b: [1 <= a < b <= 20, 0 in (a % 4, b % 4)],
    "rounding": lambda a, b: [-(-a // b), sum(divmod(a, b))],
    "choices": lambda a, b: [where(a < b, least(a, 3), greatest(b, a, 9)), gcd(12, a)],
    "python's own choices": lambda a, b: [min(a, b, 11), max((a, b), key=lambda n: n % 5)],
    "keys": lambda a, b: [{1: 15, 2: 21}.get(a, 4), len({a, b})],
    "shapes": lambda a, b: [(a, b) == (b, a), math.prod((a, 2, b))],
    "bits": lambda a, b: [a.bit_length(), b.bit_count()],
    "places": lambda a, b: [[5, 6, 7][least(a, 2)], taken((5, 6, 7), least(b, 2))],
    "numbers": lambda a, b: [sum(range(a % 7)), int(math.log2(b))],
    "whether any": lambda a, b: [where(a > 5, a // 2, a) if ever(a > 5) else a, b],
    "loops": _collatz,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@examples(20)
@given(cases=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=30))
def test_of_many_it_is_what_it_is_of_each(name: str, cases: list[tuple[int, int]]) -> None:
    function = FUNCTIONS[name]
    columns = [np.array(own, np.int64) for own in zip(*cases, strict=True)]
    found = of_cases(function, columns, len(cases), 2)
    assert found.T.tolist() == [list(map(int, function(*own))) for own in cases]


def test_it_is_called_once_for_every_way_through_it() -> None:
    calls = []

    def function(n: Any) -> list[Any]:
        calls.append(n)
        return [n // 2 if n % 2 == 0 else 3 * n + 1]

    of_cases(function, [np.arange(1, 100)], 99, 1)
    assert len(calls) == 2
