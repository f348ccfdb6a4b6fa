"""How much a run tries: few examples of what is generated, and of each parametrised test a few of its cases.

Generated tests draw ten times as many examples with CODELET_EXAMPLES=10; the cases left out are slow tests.
"""

import os
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

FACTOR = int(os.environ.get("CODELET_EXAMPLES", "1"))


def examples(few: int, **others: Any) -> settings:
    """Settings that draw a few examples, or `FACTOR` times as many; `others` are further settings."""
    return settings(max_examples=few * FACTOR, **others)


def few(names: str, values: Iterable[Any], every: int = 3, **others: Any) -> Any:
    """A test's parameters, as `pytest.mark.parametrize` has them: the first and every third are quick, the others slow.

    Of the product of a long list and a short one, an `every` without a divisor in common with the length of the short
    one meets each value of both.

    Args:
        names: the parameters, with commas between.
        values: the value of one parameter, or a tuple of those of several, for each case.
        every: how many there are for each that is quick.
        others: what else `pytest.mark.parametrize` takes.
    """
    several = "," in names

    def case(number: int, own: Any) -> Any:
        values = tuple(own) if several else (own,)
        return pytest.param(*values, marks=[pytest.mark.slow] * (number % every > 0))

    return pytest.mark.parametrize(names, [case(*own) for own in enumerate(values)], **others)
