"""Assembly takes no longer than compiled code: whoever writes it may write what the compiler would."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

import codelet as cl
from ipu_backend.model.body_cycles import body_cycles, jaxpr_cost
from ipu_backend.model.costs import Mode
from tests.examples import examples

PLACES = 12


def _turns(step):
    """A step in a loop, once for each place."""

    def looped(x, i):
        return lax.fori_loop(0, PLACES, lambda k, own: step(own, i[k]), x)

    return looped


STEPS = {
    "map": lambda x, i: jnp.tanh(x) * 0.5 + x,
    "divide": lambda x, i: x / (2 + jnp.abs(x)),
    "running": lambda x, i: jnp.cumsum(x) / x.size,
    "look up": lambda x, i: x.at[:PLACES].multiply(x[i], unique_indices=True),
    "put": lambda x, i: x.at[i].set(0.25),
    "add": lambda x, i: x.at[i].add(0.25),
    "choose": lambda x, i: jnp.where(i[0] > 2, x.at[i[1]].set(0.5), x),
    "sum": lambda x, i: x - x.mean(),
    "sort": lambda x, i: jnp.sort(x),
    "turn": lambda x, i: jnp.concatenate([x[1:], x[:1]]),
    "put in a loop": _turns(lambda x, k: x.at[k].set(0.5)),
    "look up in a loop": _turns(lambda x, k: x * x[k]),
    "choose in a loop": _turns(lambda x, k: lax.cond(k > 3, lambda x: jnp.sin(x), lambda x: x + 1, x)),
    "product": lambda x, i: x * jnp.dot(x, x),
}


@st.composite
def codelets(draw):
    """A function of an array and places in it, of one to four steps, as a jaxpr."""
    names = draw(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4))
    size, dtype = draw(st.sampled_from((13, 64, 500))), draw(st.sampled_from(("float32", "float16")))

    def function(x, i):
        for name in names:
            x = STEPS[name](x, i).astype(x.dtype)
        return x

    return jax.make_jaxpr(function)(jnp.ones(size, dtype), jnp.zeros(PLACES, "int32"))


def check_no_longer(closed, workers):
    in_assembly = Mode(cl.IPU(), workers=workers)
    found = body_cycles(closed.jaxpr, in_assembly)
    compiled = body_cycles(closed.jaxpr, replace(in_assembly, compiled=True))
    alone = [own.cost.supervisor + 6 * own.cost.worker for own in (found, compiled)]
    assert found.is_vertex or alone[0] <= alone[1]  # a vertex of a library takes what that takes


@examples(40)
@given(codelets(), st.sampled_from((1, 6)))
def test_assembly_takes_no_longer_than_compiled(closed, workers):
    check_no_longer(closed, workers)


@pytest.mark.slow
@examples(600)
@given(codelets(), st.sampled_from((1, 6)))
def test_assembly_takes_no_longer_than_compiled_very_often(closed, workers):
    check_no_longer(closed, workers)


def _cycles(function, *arguments, compiled):
    mode = Mode(cl.IPU(), workers=6, compiled=compiled)
    return jaxpr_cost(jax.make_jaxpr(function)(*arguments), mode).worker


X, PLACE = jnp.ones(8192), jnp.zeros(1, "int32")


@pytest.mark.parametrize("compiled", [False, True], ids=["assembly", "compiled"])
def test_an_update_that_is_chosen_takes_what_the_update_takes(compiled):
    for put in (
        lambda x, i: x.at[i[0]].set(1.0),
        lambda x, i: x.at[i[0]].add(1.0),
        lambda x, i: lax.dynamic_update_slice(x, jnp.ones(3), (i[0],)),
    ):
        alone = _cycles(put, X, PLACE, compiled=compiled)
        for function in (
            lambda x, i, put=put: jnp.where(i[0] > 0, put(x, i), x),
            lambda x, i, put=put: jnp.where(i[0] > 0, x, put(x, i)),
            lambda x, i, put=put: lax.select(i[0] > 0, put(x, i), x),
        ):
            assert alone <= _cycles(function, X, PLACE, compiled=compiled) <= alone + 20


def test_a_choice_of_other_arrays_is_one_of_all_elements():
    update = _cycles(lambda x, i: x.at[i[0]].set(1.0), X, PLACE, compiled=False)
    for function in (
        lambda x, i: jnp.where(i[0] > 0, x.at[i[0]].set(1.0), 2 * x),
        lambda x, i: jnp.where(x > 0, x.at[i[0]].set(1.0), x),
        lambda x, i: (own := x.at[i[0]].set(1.0), jnp.where(i[0] > 0, own, x))[1] + own,
    ):
        assert _cycles(function, X, PLACE, compiled=False) > update + 1000
