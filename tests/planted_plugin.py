"""A plugin of pytest that plants a fault in what one rule on jaxprs makes: `-p tests.planted_plugin`.

The variable `CODELET_PLANTED` names the rule, and `CODELET_PLANTED_REPORT` the file that gets a report of the run.
Wherever the rule changes a jaxpr, one equation of its result is wrong, in a way of `tests/faults.py`. Nothing is wrong
where the first variable is empty: the control.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, settings
from jax.extend import core as jax_core

from codelet.jaxprs.equations import bind
from codelet.jaxprs.rebuild import rewrite
from tests.faults import KINDS, Change
from tests.same_jaxprs import equations

RULE, REPORT = os.environ.get("CODELET_PLANTED", ""), os.environ.get("CODELET_PLANTED_REPORT", "")
SEED = int(os.environ.get("CODELET_PLANTED_SEED", "0"))

report: dict[str, Any] = {"changed": 0, "planted": 0, "collected": 0, "passed": 0, "failed": [], "broken": []}
"""How often the rule changed a jaxpr and a fault was planted, how many tests there were, how many passed, which failed,
and which files were not collected."""


def _with_change(closed: jax_core.ClosedJaxpr, eqn: jax_core.JaxprEqn, change: Change) -> jax_core.ClosedJaxpr | None:
    """A jaxpr of which one equation gives something else; None where it does not."""
    is_wrong = False

    def run(*operands: Any) -> Any:
        nonlocal is_wrong
        results = change(eqn, list(operands))
        is_wrong = results is not None
        if results is None:
            raise NotImplementedError
        return list(results)

    try:
        faulty = rewrite(closed, lambda own: run if own is eqn else None)
    except Exception:  # a kind of fault that this equation cannot have
        return None
    types = [[var.aval.str_short() for var in own.jaxpr.outvars] for own in (faulty, closed)]
    return faulty if is_wrong and types[0] == types[1] else None


def _off_by_one(random: np.random.Generator, eqn: jax_core.JaxprEqn) -> Change | None:
    """One whole number of what an equation gives is off by one."""
    avals: list[Any] = [var.aval for var in eqn.outvars]
    if len(avals) != 1 or not avals[0].size or not jnp.issubdtype(avals[0].dtype, jnp.integer):
        return None
    at = tuple(int(random.integers(n)) for n in avals[0].shape)
    return lambda eqn, operands: [jnp.asarray(own).at[at].add(1) for own in bind(eqn, operands)]


WHOLE_NUMBERS = {"an integer off by one": _off_by_one}
"""What is wrong where no float can be."""


def _with_wrong_constant(closed: jax_core.ClosedJaxpr, random: np.random.Generator) -> jax_core.ClosedJaxpr | None:
    """A jaxpr of which one number in a table is another; None where it holds no table."""
    tables = [k for k, own in enumerate(closed.consts) if np.size(own) and np.asarray(own).dtype.kind in "biu"]
    if not tables:
        return None
    k = int(random.choice(tables))
    wrong = np.array(closed.consts[k])
    at = tuple(int(random.integers(n)) for n in wrong.shape)
    wrong[at] = not wrong[at] if wrong.dtype == bool else wrong[at] - 1 if wrong[at] > 0 else wrong[at] + 1
    return jax_core.ClosedJaxpr(closed.jaxpr, [*closed.consts[:k], jnp.asarray(wrong), *closed.consts[k + 1 :]])


def with_fault(closed: jax_core.ClosedJaxpr, seed: int) -> jax_core.ClosedJaxpr:
    """A jaxpr of which one equation is wrong; itself where none can be."""
    random = np.random.default_rng(seed)
    eqns = list(equations(closed))
    kinds = {**KINDS, **WHOLE_NUMBERS}
    for kind in [*random.permutation(list(KINDS)), *WHOLE_NUMBERS]:
        for number in random.permutation(len(eqns)):
            change = kinds[kind](random, eqns[number])
            faulty = None if change is None else _with_change(closed, eqns[number], change)
            if faulty is not None:
                report["planted"] += 1
                return faulty
    faulty = _with_wrong_constant(closed, random)
    report["planted"] += faulty is not None
    return faulty or closed


def faulty(rule: Callable[..., jax_core.ClosedJaxpr]) -> Callable[..., jax_core.ClosedJaxpr]:
    """A rule that makes a mistake wherever it changes a jaxpr."""
    depth = 0

    @functools.wraps(rule)
    def run(closed: jax_core.ClosedJaxpr, *others: Any, **options: Any) -> jax_core.ClosedJaxpr:
        nonlocal depth
        depth += 1
        try:
            changed = rule(closed, *others, **options)
        finally:
            depth -= 1
        if depth or changed is closed or str(changed) == str(closed):
            return changed
        report["changed"] += 1
        return with_fault(changed, crc32(rule.__name__.encode()) + SEED)

    return run


def pytest_sessionstart() -> None:
    """Put the faulty rule into every module that has the rule, before tests are imported; failures are not shrunk."""
    if not RULE:
        return
    settings.register_profile("planted", settings.get_profile("codelet"), phases=[Phase.explicit, Phase.generate])
    settings.load_profile("planted")
    from lowering.jaxprs import simplify

    rule = getattr(simplify, RULE)
    wrong = faulty(rule)
    for name, module in list(sys.modules.items()):
        if name.startswith(("lowering.", "codelet.")) and getattr(module, RULE, None) is rule:
            setattr(module, RULE, wrong)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests that name the rule run first."""
    items.sort(key=lambda item: not RULE or RULE not in item.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note a file that could not be imported."""
    if report.failed:
        globals()["report"]["broken"].append(report.nodeid)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note how many tests there are."""
    report["collected"] = len(session.items)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note which tests passed and failed."""
    kept = globals()["report"]
    kept["passed"] += report.when == "call" and report.passed
    if report.failed:
        kept["failed"].append(report.nodeid)


def pytest_sessionfinish() -> None:
    """Write the report."""
    if REPORT:
        Path(REPORT).write_text(json.dumps(report))
