"""Elementwise primitives beside others of their kind: what takes far longer has a source, which the pages name."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core as jax_core

import codelet as cl
from codelet.jaxprs.primitives import ELEMENTWISE
from ipu_backend.model.body_cycles import jaxpr_cost
from ipu_backend.model.costs import Cost, Mode
from tests.examples import few

PAGE = Path(__file__).parents[1] / "docs" / "cost_model.md"
SIZES = (1, 64, 10_000)
MOST = 4
"""Times the median of its class, above which a primitive needs a source of its own."""

FUNCTIONS = {
    *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "bessel_i0e", "bessel_i1e", "cbrt", "cos", "cosh"),
    *(
        "digamma",
        "erf",
        "erf_inv",
        "erfc",
        "exp",
        "exp2",
        "expm1",
        "igamma",
        "igamma_grad_a",
        "igammac",
        "lgamma",
        "log",
    ),
    *("log1p", "logistic", "polygamma", "pow", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh", "zeta"),
}
"""A class by themselves; what else is by element is another."""

CALLED = {"and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "not": "bitwise_not"}
"""What JAX calls primitives where that is no word of Python's."""


def _made(name: str, dtype: str, size: int) -> jax_core.ClosedJaxpr | None:
    """A jaxpr of one equation of a primitive, where it takes a dtype."""
    if not hasattr(lax, own := CALLED.get(name, name)):
        return None
    function: Any = getattr(lax, own)
    for count in (1, 2, 3):
        try:
            closed = jax.make_jaxpr(function)(*[jnp.ones(size, dtype)] * count)
        except (TypeError, ValueError):
            continue
        if [eqn.primitive.name for eqn in closed.eqns] == [name]:
            return closed
    return None


def _costs(dtype: str, size: int) -> dict[str, Cost]:
    """What a vertex takes of each primitive, all workers of a tile together."""
    made = {name: _made(name, dtype, size) for name in sorted(ELEMENTWISE)}
    return {name: jaxpr_cost(own, Mode(cl.IPU(), workers=6)) for name, own in made.items() if own is not None}


def _documented() -> dict[str, set[str]]:
    """By dtype, the primitives of which the page says that they take far longer, and from where that is known."""
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (float32|float16|int32|bool) \| [\d.,]+ \| `\w+", text, re.MULTILINE)
    found: dict[str, set[str]] = {}
    for names, dtype in rows:
        found.setdefault(dtype, set()).update(re.findall(r"`(\w+)`", names))
    return found


@few("dtype", ["float32", "float16", "int32", "bool"], quick=["float32"])
def test_what_takes_far_longer_than_its_kind_names_its_source(dtype):
    far: set[str] = set()
    for size in SIZES:
        costs = _costs(dtype, size)
        assert len(costs) >= {"float32": 60, "float16": 59, "int32": 30, "bool": 14}[dtype]
        for kind in (costs.keys() & FUNCTIONS, costs.keys() - FUNCTIONS):
            usual = median(costs[name].counted for name in kind if not costs[name].guessed) if kind else 0
            far |= {name for name in kind if costs[name].counted > MOST * usual and not costs[name].guessed}
    assert far == _documented().get(dtype, set())


def test_guesses_are_told_as_such():
    """What takes far longer and has no source is a guess, of which a profile says how many cycles rest on it."""
    costs = _costs("float32", 64)
    usual = median(costs[name].counted for name in costs.keys() & FUNCTIONS if not costs[name].guessed)
    guessed = {name for name, own in costs.items() if own.guessed and own.counted > MOST * usual}
    assert guessed
    assert all(costs[name].guessed > costs[name].counted / 2 for name in guessed)
