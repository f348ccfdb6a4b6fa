"""Every pattern of programs: all rules on jaxprs together, and each by itself, keep its values and slopes.

The tests are made of the tables of `tests/patterns`, one for every kind of programs that is drawn, so that each draws
as many as its kind asks for.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis.errors import NoSuchExample
from jax.extend import core as jax_core

from benchmarks.ablation import RULES
from benchmarks.moved import KEPT
from codelet.jaxprs.moved import moved, num_bytes
from codelet.jaxprs.rebuild import inline
from tests.examples import examples
from tests.patterns.__main__ import PAGE, page
from tests.patterns.every import PATTERNS
from tests.patterns.pattern import Closed, Drawn, Program, by_rule, is_changed, is_differentiable, simplified
from tests.same_jaxprs import assert_same

KINDS = {name: drawn for pattern in PATTERNS.values() for name, drawn in pattern.drawn.items()}
"""Every kind of programs, by name."""

BY_PATTERN = [(rule, name) for name, pattern in PATTERNS.items() for rule in pattern.rules]
"""Every rule with each pattern that is for it."""


def assert_alike(found: Any, expected: Any, tolerance: float) -> None:
    """That two lists of arrays are the same, bit for bit where there is no tolerance."""
    if not tolerance:
        assert_same(found, expected)
        return
    for own, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (own.shape, own.dtype) == (other.shape, other.dtype)
        one, two = (np.asarray(each, np.float32 if each.dtype == jnp.bfloat16 else each.dtype) for each in (own, other))
        np.testing.assert_allclose(one, two, rtol=tolerance, atol=tolerance)


def assert_same_runs(drawn: Drawn, program: Program, before: Closed, *after: Closed) -> None:
    """That jaxprs give the same for the arguments of a program; those that are the same text do."""
    types = [[var.aval.str_short() for var in closed.jaxpr.outvars] for closed in (before, *after)]
    assert all(own == types[0] for own in types)
    others = [closed for closed in after if is_changed(before, closed)]
    if not others:
        return
    runs = [jax_core.jaxpr_as_fun(closed) for closed in (*others, *[before] * (not drawn.by_operation))]
    results = jax.jit(lambda *arguments: [run(*arguments) for run in runs])(*program.arguments)
    if drawn.by_operation:
        with jax.disable_jit():
            results.append(jax_core.jaxpr_as_fun(before)(*program.arguments))
    for result in results[:-1]:
        assert_alike(result, results[-1], drawn.tolerance)


def bytes_of(closed: Closed) -> int:
    """The bytes that a jaxpr moves."""
    return moved(closed, unit=num_bytes, turns=int).total()


def all_values(drawn: Drawn, program: Program) -> None:
    """All rules together, and once more, keep values and move no more bytes."""
    with drawn.around():
        before = program.traced()
        once = simplified(before)
        assert_same_runs(drawn, program, before, once, simplified(once))
        assert not drawn.moves_no_more or bytes_of(once) <= bytes_of(before)


def rule_values(rule: str, drawn: Drawn, program: Program) -> None:
    """A rule by itself keeps values, and makes the form that it should."""
    with drawn.around():
        before, after = by_rule(drawn, rule, program.traced())
        assert_same_runs(drawn, program, before, after)
        if rule in drawn.forms:
            drawn.forms[rule](after, program)


def with_slopes(closed: Closed, program: Program) -> Closed:
    """The jaxpr of what a jaxpr gives, and of its slopes by the floats among the arguments of a program."""
    run = jax_core.jaxpr_as_fun(closed)
    floats = [k for k, own in enumerate(program.arguments) if jnp.issubdtype(jnp.asarray(own).dtype, jnp.floating)]

    def loss(*arguments: Any) -> Any:
        results = run(*arguments)
        weighted = (jnp.sum(jnp.sin(jnp.asarray(own, np.float32)) * (1 + k)) for k, own in enumerate(results))
        return sum(weighted), results

    return inline(jax.make_jaxpr(jax.grad(loss, floats, has_aux=True))(*program.arguments))


def slopes(drawn: Drawn, program: Program, change: Callable[[Closed], Closed], form: Callable[[Closed], None]) -> None:
    """What a change makes of a program, and of its gradient, has the values and slopes of the program."""
    with drawn.around():
        before = program.traced()
        after = change(before)
        form(after)
        if is_differentiable(before):
            gradient = with_slopes(before, program)
            of_after = with_slopes(after, program) if is_changed(before, after) else gradient
            loose = replace(drawn, tolerance=max(2e-5, drawn.tolerance))
            assert_same_runs(loose, program, gradient, of_after, change(gradient))


def all_slopes(drawn: Drawn, program: Program) -> None:
    """All rules together keep values and slopes."""
    slopes(drawn, program, simplified, lambda after: None)


def rule_slopes(rule: str, drawn: Drawn, program: Program) -> None:
    """A rule by itself keeps values and slopes, and makes the form that it should."""
    form = drawn.forms.get(rule, lambda after, program: None)
    slopes(drawn, program, lambda closed: by_rule(drawn, rule, closed)[1], lambda after: form(after, program))


def _add_tests(name: str, check: Callable[[Program], None], programs: Any, quick: int, slow: int) -> None:
    """A quick test and a slow twin that draws more: tests that hypothesis knows, each with a number of its own."""
    for prefix, count in (("test_", quick), ("test_many_", slow)):

        def test(program: Program) -> None:
            check(program)

        test.__name__ = test.__qualname__ = prefix + name
        made = examples(count)(given(program=programs)(test)) if count else None
        if made is not None:
            globals()[prefix + name] = made if prefix == "test_" else pytest.mark.slow(made)


for _name, _drawn in KINDS.items():
    _floats = _drawn.programs if _drawn.floats is None else _drawn.floats
    _values, _slopes = (_drawn.quick, _drawn.slow), (_drawn.slopes, _drawn.slow_slopes)
    _all = tuple(-(-max(own) // 4) for own in zip(_values, _slopes, strict=True))
    _add_tests(f"all_rules_keep_values_of_{_name}", lambda p, d=_drawn: all_values(d, p), _drawn.programs, *_all)
    _some = tuple(-(-own // 5) for own in _slopes)
    _add_tests(f"all_rules_keep_slopes_of_{_name}", lambda p, d=_drawn: all_slopes(d, p), _floats, *_some)
    for _rule in _drawn.rules:
        _by_rule = lambda p, d=_drawn, r=_rule: rule_values(r, d, p)  # noqa: E731
        _add_tests(f"{_rule}_keeps_values_of_{_name}", _by_rule, _drawn.programs, *_values)
        _of_rule = lambda p, d=_drawn, r=_rule: rule_slopes(r, d, p)  # noqa: E731
        _add_tests(f"{_rule}_keeps_slopes_of_{_name}", _of_rule, _floats, *_slopes)


@pytest.mark.parametrize(("rule", "name"), BY_PATTERN, ids=map(" of ".join, BY_PATTERN))
def test_programs_are_drawn_that_a_rule_changes(rule: str, name: str):
    several = settings(max_examples=100, phases=[Phase.generate], database=None)
    for drawn in PATTERNS[name].drawn.values():

        def changes(program: Program, drawn: Drawn = drawn) -> bool:
            with drawn.around():
                return is_changed(*by_rule(drawn, rule, program.traced()))

        if rule in drawn.rules:
            with contextlib.suppress(NoSuchExample):
                find(drawn.programs, changes, settings=several)
                return
    pytest.fail(f"{rule} changes no program of {name}")


def test_every_rule_is_in_some_pattern():
    assert {rule for rule, _ in BY_PATTERN} == {*RULES}


def test_every_row_of_a_pattern_is_there():
    rows = json.loads(KEPT.read_text())
    assert [row for pattern in PATTERNS.values() for row in pattern.rows if row not in rows] == []


def test_the_table_of_patterns_is_up_to_date():
    """Where it is not: `python -m tests.patterns --write`."""
    assert page() == PAGE.read_text()


def test_kinds_of_programs_have_names_of_their_own():
    assert len(KINDS) == sum(len(pattern.drawn) for pattern in PATTERNS.values())
    assert {name: own.name for name, own in PATTERNS.items()} == {name: name for name in PATTERNS}
