"""Pairs of programs that are equal by construction: never "different", and nearly always "equal"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from jax.extend import core as jax_core

from lowering.equality.compare import compared
from lowering.equality.sides import jaxpr_side
from tests.equal_pairs import rewritten
from tests.functions import Drawn, drawn_functions
from tests.loop_programs import LoopProgram, loop_programs
from tests.test_equal_faults import PROGRAMS


def _slopes(function: Any, structs: Any) -> Any:
    """The slopes of a function's results, each element weighted alike, by all floats that it is given."""
    floats = [k for k, own in enumerate(structs) if own.dtype == np.float32]

    def loss(*arguments: Any) -> Any:
        results = jax.tree.leaves(function(*arguments))
        return sum((own.sum() * (k + 1) for k, own in enumerate(results) if own.dtype == np.float32), 0.0)

    return jax.make_jaxpr(jax.grad(loss, floats))(*structs)


def pairs_of(function: Any, structs: Any, number: int) -> Iterator[tuple[Any, Any]]:
    """A program and another way of it; their slopes, by two ways; and a way of the slopes."""
    plain = jax.make_jaxpr(lambda *own: jax.tree.leaves(function(*own)))(*structs)
    other, count = rewritten(plain, number)
    if count:
        yield plain, other
        if "while[" in str(plain):  # which JAX cannot differentiate backward
            return
        slopes = _slopes(function, structs)
        yield slopes, _slopes(jax_core.jaxpr_as_fun(other), structs)
        yield slopes, rewritten(slopes, number + 1)[0]


def answers(pairs: Iterator[tuple[Any, Any]]) -> Counter[str]:
    """What is said of pairs that are equal, by verdict, and by reason where nothing is said."""
    found: Counter[str] = Counter()
    for one, other in pairs:
        structs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in one.in_avals]
        answer = compared(jaxpr_side(one), jaxpr_side(other), structs)
        assert answer.verdict != "different", f"{answer}\n{one}\n{other}"
        found[answer.verdict] += 1
        if answer.verdict == "undecided":
            found[f"undecided: {answer.reason}"[:100]] += 1
    return found


def _of_programs(rounds: int, names: Sequence[str] = tuple(PROGRAMS)) -> Iterator[tuple[Any, Any]]:
    for number in range(rounds):
        for name in names:
            yield from pairs_of(PROGRAMS[name].function, PROGRAMS[name].examples, number)


def _drawn(strategy: Any, count: int, structs_of: Any) -> Iterator[tuple[Any, Any]]:
    """Pairs of drawn functions."""
    found: list[Any] = []

    @seed(0)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(strategy)
    def draw(own: Any) -> None:
        found.append(own)

    draw()
    for number, own in enumerate(found):
        function, arguments = structs_of(own)
        yield from pairs_of(function, [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arguments], number)


def _function(own: Drawn) -> tuple[Any, Any]:
    return own, own.arguments


def _loop(own: LoopProgram) -> tuple[Any, Any]:
    return own.function, own.arguments


def _check(found: Counter[str]) -> None:
    assert found["undecided"] <= 0.05 * (found["equal"] + found["undecided"]), found


def test_programs_are_equal_to_other_ways_of_them():
    found = answers(_of_programs(1, ["attention", "a product", "running sums"]))
    assert found["equal"] > 6
    _check(found)


@pytest.mark.slow
def test_two_thousand_pairs_are_equal(capsys):
    found = answers(_of_programs(40))
    found += answers(_drawn(drawn_functions(), 700, _function))
    found += answers(_drawn(loop_programs(), 150, _loop))
    with capsys.disabled():
        print(dict(found))
    assert found["equal"] + found["undecided"] >= 2000
    _check(found)
