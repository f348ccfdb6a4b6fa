"""Jaxprs rebuilt of their own equations mean what they meant."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend import core

from codelet.frontends.passes.bodies import Bodies
from codelet.jaxprs.equations import Makers, evaluate, needed
from codelet.jaxprs.rebuild import Builder, inline, rebuild, rewrite
from tests.same_jaxprs import equations, primitives

X = jnp.arange(3.0)
TABLE = np.arange(3.0, dtype=np.float32)


@jax.custom_jvp
def threefold(x):
    return 3 * x


@threefold.defjvp
def _(primals, tangents):
    return threefold(*primals), 7 * tangents[0]  # tells itself apart from 3


@jax.jit
def twice(x):
    return jax.jit(jnp.sin)(x) + TABLE


def run(closed, *inputs):
    return core.jaxpr_as_fun(closed)(*inputs)


def test_one_function_called_twice_is_inlined_twice():
    closed = jax.make_jaxpr(lambda x: (twice(twice(x)), threefold(x), 2.0))(X)
    inlined = inline(closed)
    names = [eqn.primitive.name for eqn in inlined.jaxpr.eqns]
    assert names == ["sin", "add", "sin", "add", "custom_jvp_call"]
    made = [var for eqn in inlined.jaxpr.eqns for var in eqn.outvars]
    assert len(set(made)) == len(made)
    for own, expected in zip(run(inlined, X), run(closed, X), strict=True):
        np.testing.assert_array_equal(own, expected)
    _, slope, _ = jax.jvp(lambda x: run(inlined, x), (X,), (jnp.ones(3),))[1]
    np.testing.assert_array_equal(slope, [7.0] * 3)
    assert inline(inlined) is inlined


def test_a_function_takes_the_place_of_an_equation_also_within_loops_and_choices():
    def function(x):
        x = lax.fori_loop(0, 3, lambda _, x: jnp.sin(x), x)
        return lax.cond(x[0] > 0, lambda x: jnp.sin(x) + 1, lambda x: x, x)

    def rule(eqn):
        return (lambda x: [jnp.cos(x)]) if eqn.primitive.name == "sin" else None

    closed = jax.make_jaxpr(function)(X)
    cosines = rewrite(closed, rule)
    np.testing.assert_allclose(run(cosines, X)[0], np.cos(np.cos(np.cos(np.cos(X)))) + 1, rtol=1e-6)


def test_literals_are_numbers_to_a_rule():
    seen = []

    def rule(eqn):
        if eqn.primitive.name != "mul":
            return None
        return lambda *operands: seen.extend(type(own) for own in operands) or [operands[0] + operands[1]]

    closed = jax.make_jaxpr(lambda x: 2.0 * x)(X)
    np.testing.assert_array_equal(run(rewrite(closed, rule), X)[0], X + 2)
    assert any(issubclass(kind, float | np.generic | np.ndarray) for kind in seen)


def test_nothing_makes_an_argument_a_constant_or_a_literal():
    jaxpr = jax.make_jaxpr(lambda x: jnp.sin(x) * 2.0 + TABLE)(X).jaxpr
    makers = Makers(jaxpr.eqns)
    (sine, product, _) = jaxpr.eqns
    literal = next(atom for atom in product.invars if isinstance(atom, core.Literal))
    assert [makers.of(atom) for atom in (*jaxpr.invars, *jaxpr.constvars, literal)] == [None, None, None]
    assert makers.of(sine.outvars[0]) is sine


def everything(x, n):
    held = lax.fori_loop(0, n, lambda _, own: twice(own) * 2 + TABLE, threefold(x))
    top, _ = lax.top_k(lax.cond(n > 3, jnp.cos, jnp.sin, held), 2)
    return top, lax.scan(lambda carry, row: (carry + row, carry), 0.0, held)[1]


def test_what_does_not_change_stays_itself():
    closed = jax.make_jaxpr(everything)(X, 5)
    kept = rebuild(closed, Builder.equation)  # a loop that counts, whose first result nothing reads
    assert rebuild(kept, Builder.equation) is kept
    bodies = Bodies(lambda body, _: rebuild(body, Builder.equation))
    assert all(bodies.changed(eqn) is eqn for eqn in kept.eqns)


@pytest.mark.parametrize(
    "change",
    [
        lambda eqn, operands: (eqn, operands[::-1]),
        lambda eqn, operands: (eqn, [operands[0], core.Literal(np.float32(2), operands[0].aval)]),
        lambda eqn, operands: (eqn.replace(params={"accuracy": None}), operands),
        lambda eqn, operands: (eqn.replace(primitive=lax.add_p), operands),
        lambda eqn, operands: (eqn.replace(source_info=eqn.source_info.replace(name_stack="other")), operands),
    ],
    ids=["operands", "literal", "parameters", "primitive", "source"],
)
def test_what_changes_is_another(change):
    closed = jax.make_jaxpr(lambda x, y: jnp.sin(x) - lax.sub(y, x))(X, X)

    def run(builder, eqn, operands):
        return builder.equation(*change(eqn, operands) if eqn is closed.eqns[1] else (eqn, operands))

    assert closed.eqns[1].primitive is lax.sub_p
    assert rebuild(closed, run) is not closed


def test_what_nobody_needs_is_left_out_and_what_speaks_is_not(capfd):
    def function(x):
        jax.debug.print("heard {}", x[0])
        return jnp.cos(x), jnp.sin(x)

    closed = jax.make_jaxpr(jax.jit(function))(X)
    first = closed.jaxpr.eqns[0].params["jaxpr"].jaxpr
    kept = [eqn.primitive.name for eqn in needed(first, results=first.outvars[1:])]
    assert "cos" not in kept
    assert kept[-1] == "sin"
    assert any("callback" in name or "print" in name for name in kept)
    jax.block_until_ready(jax.jit(lambda x: run(inline(closed), x))(X))
    jax.effects_barrier()
    assert "heard 0.0" in capfd.readouterr().out


def test_evaluation_is_on_values_of_any_kind():
    closed = jax.make_jaxpr(lambda x: (x + TABLE) * 2.0)(X)
    depths = evaluate(closed, [1], lambda eqn, values: [1 + max(values)], known=lambda _: 0)
    assert depths == [3]


def test_calls_in_loops_and_choices_are_inlined():
    def function(x):
        x = lax.scan(lambda x, row: (twice(x) + row, twice(row)), x, jnp.ones((4, 3)))[1].sum(0)
        x = lax.while_loop(lambda x: twice(x)[0] + x[0] < 9, lambda x: twice(x) + x + 2, x)
        return lax.cond(x[0] > 0, lambda x: lax.fori_loop(0, 2, lambda _, x: twice(x), x), twice, x)

    closed = jax.make_jaxpr(function)(X)
    inlined = inline(closed)
    assert not {"jit", "pjit"} & set(primitives(inlined))
    np.testing.assert_array_equal(*(jax.jit(core.jaxpr_as_fun(own))(X)[0] for own in (inlined, closed)))
    assert inline(inlined) is inlined


def scopes(closed, name):
    """The scopes of the equations of one primitive, in loops too."""
    return [str(eqn.source_info.name_stack) for eqn in equations(closed) if eqn.primitive.name == name]


def test_what_takes_the_place_of_an_equation_is_in_its_scope():
    def function(x):
        with jax.named_scope("outer"):
            x = jnp.sin(x)
            x = lax.fori_loop(0, 2, lambda _, x: jnp.sin(x), x)
        return jnp.sin(x)

    def cosine(x):
        with jax.named_scope("own"):
            return [jnp.cos(x)]

    closed = jax.make_jaxpr(function)(X)
    made = rewrite(closed, lambda eqn: cosine if eqn.primitive.name == "sin" else None)
    assert scopes(made, "cos") == [f"{own}/own" if own else "own" for own in scopes(closed, "sin")]
    assert [own.split("/")[0] for own in scopes(made, "cos")][::2] == ["outer", "own"]


def test_what_a_call_is_made_of_is_in_the_scope_of_the_call():
    @jax.jit
    def within(x):
        with jax.named_scope("inner"):
            return jax.jit(jnp.sin)(x)

    def function(x):
        with jax.named_scope("outer"):
            return within(x) + 1

    closed = jax.make_jaxpr(function)(X)
    assert scopes(inline(closed), "sin") == ["outer/inner"]
    assert scopes(inline(closed), "add") == ["outer"]
