"""How much a run tries: few examples of what is generated, and of each parametrised test the cases that are named.

Generated tests draw ten times as many examples with CODELET_EXAMPLES=10; the cases left out are slow tests.
"""

import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import settings

FACTOR = int(os.environ.get("CODELET_EXAMPLES", "1"))


def examples(few: int, **others: Any) -> settings:
    """Settings that draw a few examples, or `FACTOR` times as many; `others` are further settings."""
    return settings(max_examples=few * FACTOR, **others)


def _name(value: Any) -> str:
    """How a value is named among the cases of a test: by itself, or as a function, a class or a dtype is."""
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_name, value))})"
    return value if isinstance(value, str) else str(getattr(value, "__name__", value))


def few(names: str, values: Iterable[Any], quick: Iterable[str], ids: Callable[[Any], Any] | None = None) -> Any:
    """A test's parameters, as `pytest.mark.parametrize` has them: the cases that are named are quick, the others slow.

    Args:
        names: the parameters, with commas between.
        values: the value of one parameter, or a tuple of those of several, for each case.
        quick: the names of the quick cases, which tests are listed by: the cheapest of every kind that a mistake may
            be made in. The name of a value is its text; of several values it has commas between.
        ids: what a value is named by, instead of by itself.

    Raises:
        ValueError: there is no case of some name, or several cases have one name.
    """
    several = "," in names
    named = ids or _name
    cases = [tuple(own) if several else (own,) for own in values]
    told = [", ".join(_name(named(value)) for value in own) for own in cases]
    chosen = set(quick)
    if len({*told}) < len(told) or not chosen.issubset(told):
        again = sorted({own for own in told if told.count(own) > 1})
        raise ValueError(f"cases of one name: {again}; no cases: {sorted(chosen - {*told})} among {told}")
    marks = {own: [pytest.mark.slow] * (own not in chosen) for own in told}
    return pytest.mark.parametrize(
        names, [pytest.param(*own, marks=marks[name], id=name) for own, name in zip(cases, told, strict=True)]
    )
