"""Passes on jaxprs, before they become graphs: what each one makes of a small example, and that nothing is changed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from jax import lax
from jax.extend import core as jax_core

import codelet as cl
from codelet.frontends.labels import line_of
from codelet.frontends.passes import simplify
from codelet.frontends.passes.contraction import Contraction
from codelet.frontends.passes.drop_unused import drop_unused
from codelet.frontends.passes.fold_constants import fold_constants
from codelet.frontends.passes.free_early import early_order, free_early
from codelet.frontends.passes.fuse_elementwise import Saved, fuse_elementwise, saved_by_fusion
from codelet.frontends.passes.inline_small import inline_small
from codelet.frontends.passes.open_primitives import open_primitives
from codelet.frontends.passes.outer_products import outer_products
from codelet.frontends.passes.pads_of_windows import pads_of_windows
from codelet.frontends.passes.share_equal import share_equal
from codelet.jaxprs.equations import scan_counts
from tests.at_once import at_once
from tests.examples import few
from tests.functions import Drawn, assert_same, drawn_functions
from tests.ops_cases import array
from tests.same_jaxprs import equations, primitives

ROW = array((4,), seed=1)
PASSES = (
    open_primitives,
    inline_small,
    pads_of_windows,
    outer_products,
    fold_constants,
    share_equal,
    drop_unused,
    fuse_elementwise,
    free_early,
)


VERSIONS = ("num_carry", "num_consts", "ft_in", "ft_out")  # what releases of JAX say differently of a scan


def printed(closed):
    """A jaxpr as text, the same in all releases of JAX."""
    lines = [line.rstrip() for line in str(closed).splitlines()]
    return "\n".join(line for line in lines if not line.strip().startswith(VERSIONS))


def names(closed):
    return [eqn.primitive.name for eqn in closed.jaxpr.eqns]


def same(drawn: Drawn):
    closed = jax.make_jaxpr(drawn)(*drawn.arguments)
    made = [change(closed) for change in PASSES]
    made.append(simplify(closed, [str(k) for k in range(len(drawn.arguments))]))
    for own in made:
        assert [aval.str_short() for aval in own.out_avals] == [aval.str_short() for aval in closed.out_avals]
    run = jax.jit(lambda *arguments: [jax_core.jaxpr_as_fun(own)(*arguments) for own in (closed, *made)])
    plain, *ours = run(*drawn.arguments)
    for own in ours:
        assert_same(own, plain)


@settings(max_examples=12)
@given(drawn_functions())
def test_a_function_does_the_same_after_each_pass(drawn: Drawn):
    same(drawn)


@pytest.mark.slow
@settings(max_examples=300)
@given(drawn_functions(most_steps=14))
def test_many_functions_do_the_same_after_each_pass(drawn: Drawn):
    same(drawn)


@pytest.mark.slow
@settings(max_examples=6)
@given(drawn_functions(most_steps=5))
@pytest.mark.filterwarnings("ignore::codelet.OneVertexWarning")
def test_a_function_does_the_same_as_a_graph(drawn: Drawn):
    traced = cl.trace(drawn, *drawn.arguments)
    assert_same(*jax.jit(lambda *own: (traced(*own), drawn(*own)))(*drawn.arguments))


# --- calls -------------------------------------------------------------------------------------------------------


@jax.jit
def block(w, x):
    return jnp.tanh(w @ x)


@jax.jit
def scale(x):
    with jax.named_scope("inner"):
        return 2.0 * x


def test_calls_that_are_no_functions_of_the_graph_are_inlined():
    closed = jax.make_jaxpr(lambda w, x: block(w, block(w, scale(x))))(jnp.ones((4, 4)), ROW)
    inlined = inline_small(closed)
    assert (
        printed(inlined)
        == """\
let block = { lambda ; a:f32[4,4] b:f32[4]. let
    c:f32[4] = dot_general[
      dimension_numbers=(([1], [0]), ([], []))
      preferred_element_type=float32
    ] a b
    d:f32[4] = tanh c
  in (d,) } in
{ lambda ; e:f32[4,4] f:f32[4]. let
    g:f32[4] = mul 2.0:f32[] f
    h:f32[4] = jit[name=block jaxpr=block] e g
    i:f32[4] = jit[name=block jaxpr=block] e h
  in (i,) }"""
    )
    assert [str(eqn.source_info.name_stack) for eqn in inlined.jaxpr.eqns] == ["scale/inner", "", ""]
    first, second = (eqn.params["jaxpr"] for eqn in inlined.jaxpr.eqns[1:])
    assert first is second


def test_what_a_library_does_is_of_the_line_that_asks_for_it():
    def function(x):
        first = jax.nn.silu(x)
        return first + jax.nn.silu(3 * x)

    inlined = inline_small(jax.make_jaxpr(function)(ROW))
    assert "jit" not in names(inlined)
    lines = [line.text for eqn in inlined.jaxpr.eqns if (line := line_of(eqn)) is not None]
    assert len(lines) == len(inlined.jaxpr.eqns)
    assert lines[0] == "first = jax.nn.silu(x)"
    assert set(lines[2:]) == {"return first + jax.nn.silu(3 * x)"}


# --- constants ---------------------------------------------------------------------------------------------------


def test_what_is_known_is_computed_and_numbers_stay_numbers():
    def function(x):
        known = x * (jnp.full(4, 3.0) * 2) + jnp.arange(4) * 2
        return known, lax.fori_loop(0, 2, lambda _, own: own + jnp.full(4, 1.0) / jnp.full(4, 2.0), x)

    folded = drop_unused(fold_constants(inline_small(jax.make_jaxpr(function)(ROW))))
    assert (
        printed(folded)
        == """\
{ lambda a:f32[4]; b:f32[4]. let
    c:f32[4] = broadcast_in_dim 6.0:f32[]
    d:f32[4] = mul b c
    e:f32[4] = add d a
    f:f32[4] = scan[
      jaxpr={ lambda ; g:f32[4]. let
          h:f32[4] = broadcast_in_dim 0.5:f32[]
          i:f32[4] = add g h
        in (i,) }
      length=2
      reverse=False
      unroll=1
    ] b
  in (e, f) }"""
    )
    np.testing.assert_array_equal(folded.consts[0], [0, 2, 4, 6])


def test_large_numbers_are_never_arrays_and_large_arrays_are_never_computed():
    def function(x):
        return x + jnp.exp(jnp.full((4000, 4000), 2.0)).T[:4, 0], jnp.arange(1 << 20) * 2

    folded = drop_unused(fold_constants(jax.make_jaxpr(function)(ROW)))
    assert names(folded) == ["broadcast_in_dim", "add", "iota", "mul"]
    assert not folded.consts
    np.testing.assert_allclose(jax_core.jaxpr_as_fun(folded)(ROW)[0], ROW + np.exp(2.0), rtol=1e-6)


def test_keys_are_known_too_and_signs_of_zeros_are_kept():
    def function(x):
        key = jax.random.split(jax.random.key(7))[1]
        return jax.random.normal(key, (4,)) + x, jnp.array([0.0, -0.0]) * 1, jax.random.fold_in(key, 3)

    closed = jax.make_jaxpr(function)(ROW)
    folded = fold_constants(inline_small(closed))
    assert names(folded) == ["add"]
    ours, plain = (jax_core.jaxpr_as_fun(own)(ROW) for own in (folded, closed))
    np.testing.assert_allclose(ours[0], plain[0], rtol=1e-6)
    np.testing.assert_array_equal(np.signbit(ours[1]), [False, True])
    np.testing.assert_array_equal(jax.random.key_data(ours[2]), jax.random.key_data(plain[2]))


def test_constants_of_no_elements_and_of_short_floats_are_known():
    function = lambda x: (x, jnp.zeros((0, 3)).T * jnp.arange(0), jnp.arange(3, dtype=jnp.bfloat16) * 0 + 2)  # noqa: E731
    folded = fold_constants(jax.make_jaxpr(function)(ROW))
    assert names(folded) == ["broadcast_in_dim"]
    ours, plain = jax_core.jaxpr_as_fun(folded)(ROW), function(ROW)
    jax.tree.map(np.testing.assert_array_equal, list(ours), list(plain))
    assert [own.dtype for own in ours] == [own.dtype for own in plain]


@pytest.mark.slow
def test_what_is_known_is_computed_within_a_jitted_function_too():
    own = lambda x: x * (jnp.arange(4) * 2) + jax.random.normal(jax.random.key(1), (4,))  # noqa: E731
    np.testing.assert_allclose(jax.jit(lambda x: cl.trace(own, ROW)(x))(ROW), own(ROW), rtol=1e-6)


def _turns_of(turn, *start, **how):
    return lambda x: lax.scan(turn, start, x, **how)


def _eliminated(state, row):
    factor, value = state
    scale = 1 / (3 - factor)
    new = scale, (row - value) * scale
    return new, (*new, factor)


def _exchanged(state, row):
    first, second, count, held = state
    first, second = second * 0.5, first + count
    return (first, second, count + 1, first), (row * second, held, row + held, count)


def _by_rows(state, rows):
    rate, total = state
    row, decay = rows
    return (rate * decay, total + rate * row), rate * jnp.arange(2.0)


KNOWN_TURNS = {
    "factors of an elimination": (_turns_of(_eliminated, 0.0, 0.0), 1),
    "backwards, two at once": (_turns_of(_eliminated, 0.5, 0.0, reverse=True, unroll=2), 1),
    "exchanged, with a counter": (_turns_of(_exchanged, 1.0, 2.0, 0, 0.0), 1),
    "by known rows": (lambda x: lax.scan(_by_rows, (1.0, 0.0), (x, jnp.linspace(0.5, 1, 4))), 1),
    "all but what is read": (_turns_of(lambda s, row: ((s[0] * 0.5, s[0]), row), 1.0, 0.0), 0),
    "in a loop": (lambda x: lax.fori_loop(0, 3, lambda _, own: _turns_of(_eliminated, 0.0, 0.0)(own)[1][1], x), 1),
    "of rows": (lambda x: lax.scan(lambda s, row: (s * row, s), 1.0, x), 1),
    "of what is given": (lambda x: lax.scan(lambda s, row: (s * 0.5, s + row), x[0], x), 1),
    "counters": (lambda x: lax.scan(lambda k, row: (k + 1, row * k), 0, x), 1),
    "large": (lambda x: lax.scan(lambda s, row: (s * 0.5, row + s.sum()), jnp.ones((300, 300)), x), 1),
}
"""Scans, and how many values the loop that is left carries."""

ONLY_IN_TURNS = ("of rows", "of what is given", "counters", "large")


@pytest.mark.parametrize("name", KNOWN_TURNS)
def test_what_turns_compute_of_known_floats_is_known(name):
    function, carried = KNOWN_TURNS[name]
    closed = inline_small(jax.make_jaxpr(function)(ROW))
    folded = drop_unused(fold_constants(closed))
    loops = [eqn for eqn in equations(folded) if eqn.primitive.name == "scan"]
    if name == "in a loop":
        (_, *loops) = loops
    if name not in ONLY_IN_TURNS:
        assert not {"div", "pow"} & set(primitives(folded))
        assert sum(scan_counts(eqn)[1] for eqn in loops) == carried
    else:
        (loop,) = loops
        assert scan_counts(loop)[1] == carried
        assert len(loop.invars) == len(loop.params["jaxpr"].jaxpr.invars) == carried + 1
    ours, plain = at_once(*(jax_core.jaxpr_as_fun(own) for own in (folded, closed)))(ROW)
    for own, other in zip(ours, plain, strict=True):
        assert (own.shape, own.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(own, other, rtol=1e-6)
    traced = cl.trace(function, ROW, target=cl.IPU(num_tiles=2))
    results = jax.tree.leaves(traced.outputs)
    found = cl.interpret(traced.graph, traced.program, values=traced.arrays(ROW), outputs=results)
    for own, other in zip(map(found.__getitem__, results), plain, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5)


def test_turns_with_effects_compute_all_they_did():
    def turn(state, row):
        jax.debug.print("a turn of {}", state)
        return state * 0.5, row

    folded = fold_constants(jax.make_jaxpr(lambda x: lax.scan(turn, 1.0, x))(ROW))
    (loop,) = (eqn for eqn in equations(folded) if eqn.primitive.name == "scan")
    assert "mul" in primitives(loop.params["jaxpr"])


# --- equal work --------------------------------------------------------------------------------------------------


def test_equal_work_is_done_once():
    closed = jax.make_jaxpr(lambda x: (jnp.sin(x) * 1.0 + jnp.sin(x) * 1.0, x * 0.0, x * -0.0, x * 0.0))(ROW)
    assert (
        printed(share_equal(closed))
        == """\
{ lambda ; a:f32[4]. let
    b:f32[4] = sin a
    c:f32[4] = mul b 1.0:f32[]
    d:f32[4] = add c c
    e:f32[4] = mul a 0.0:f32[]
    f:f32[4] = mul a -0.0:f32[]
  in (d, e, f, e) }"""
    )


def test_what_speaks_or_is_to_be_done_again_is_not_shared():
    def function(x):
        for _ in range(2):
            jax.debug.print("{}", x[0])
        again = jax.checkpoint(lambda own: jnp.sin(jnp.sin(own)))
        return again(x) + again(x), [lax.optimization_barrier(x) for _ in range(2)]

    found = names(share_equal(jax.make_jaxpr(function)(ROW)))
    assert sum("debug" in name for name in found) == 2
    assert sum("remat" in name or "checkpoint" in name for name in found) == 2
    assert found.count("optimization_barrier") == 2


def test_a_result_that_only_the_second_needs_is_there():
    closed = jax.make_jaxpr(lambda x: (lax.sort((x, x), num_keys=1)[0], lax.sort((x, x), num_keys=1)[1]))(ROW)
    shared = drop_unused(share_equal(drop_unused(closed)))
    assert names(shared) == ["sort"]
    np.testing.assert_array_equal(jax_core.jaxpr_as_fun(shared)(ROW)[1], np.sort(ROW))


# --- what is not needed ------------------------------------------------------------------------------------------


def test_what_no_output_needs_is_dropped_in_loops_and_branches_too():
    def function(x):
        turn = lambda c, row: ((c[0] + row, c[1] * row), (row * 2, c[1]))  # noqa: E731
        last, (rows, _) = lax.scan(turn, (jnp.float32(0), jnp.float32(1)), x)
        chosen = lax.cond(last[0] > 0, lambda own: (own, own + 1), lambda own: (own * 2, own * 3), x)
        held = lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2, c[2] + c[1]), (0, x, x))
        return rows, chosen[1], held[1]

    assert (
        printed(drop_unused(jax.make_jaxpr(function)(ROW)))
        == """\
{ lambda ; a:f32[4]. let
    b:f32[] c:f32[4] = scan[
      jaxpr={ lambda ; d:f32[] e:f32[]. let
          f:f32[] = add d e
          g:f32[] = mul e 2.0:f32[]
        in (f, g) }
      length=4
      reverse=False
      unroll=1
    ] 0.0:f32[] a
    h:bool[] = gt b 0.0:f32[]
    i:i32[] = convert_element_type[new_dtype=int32 weak_type=False] h
    j:f32[4] = cond[
      branches=(
        { lambda ; k:f32[4]. let l:f32[4] = mul k 3.0:f32[] in (l,) }
        { lambda ; m:f32[4]. let n:f32[4] = add m 1.0:f32[] in (n,) }
      )
    ] i a
    _:i32[] o:f32[4] = while[
      body_jaxpr={ lambda ; p:i32[] q:f32[4]. let
          r:i32[] = add p 1:i32[]
          s:f32[4] = mul q 2.0:f32[]
        in (r, s) }
      body_nconsts=0
      cond_jaxpr={ lambda ; t:i32[] u:f32[4]. let
          v:bool[] = lt t 3:i32[]
        in (v,) }
      cond_nconsts=0
    ] 0:i32[] a
  in (c, j, o) }"""
    )


def test_what_speaks_is_kept_with_what_it_needs(capfd):
    def function(x):
        def turn(c, row):
            jax.debug.print("heard {}", c)
            return c + row, row

        return lax.scan(turn, jnp.float32(0), x)[1]

    dropped = drop_unused(jax.make_jaxpr(function)(ROW))
    jax.block_until_ready(jax.jit(jax_core.jaxpr_as_fun(dropped))(ROW))
    jax.effects_barrier()
    assert capfd.readouterr().out.count("heard") == 4


# --- neighbours --------------------------------------------------------------------------------------------------


def test_neighbours_are_one_but_for_what_has_to_run_between_them():
    def function(x, y):
        a = jnp.tanh(x * 2 + y[0])
        return a * a.sum() + x, jnp.exp(a)

    fused = fuse_elementwise(jax.make_jaxpr(function)(ROW, ROW))
    assert (
        printed(fused)
        == """\
{ lambda ; a:f32[4] b:f32[4]. let
    c:f32[1] = slice[limit_indices=(1,) start_indices=(0,) strides=None] b
    d:f32[] = squeeze[dimensions=(0,)] c
    e:f32[4] f:f32[4] = jit[
      name=mul_add_tanh_exp
      jaxpr={ lambda ; a:f32[4] d:f32[]. let
          g:f32[4] = mul a 2.0:f32[]
          h:f32[4] = add g d
          e:f32[4] = tanh h
          f:f32[4] = exp e
        in (e, f) }
    ] a d
    i:f32[] = reduce_sum[axes=(0,) out_sharding=None] e
    j:f32[4] = jit[
      name=mul_add
      jaxpr={ lambda ; e:f32[4] i:f32[] a:f32[4]. let
          k:f32[4] = mul e i
          j:f32[4] = add k a
        in (j,) }
    ] e i a
  in (j, f) }"""
    )
    assert saved_by_fusion(fused) == Saved(compute_sets=4, memory_words=12, exchange_words=16)
    assert str(saved_by_fusion(fused)).startswith("fusing saves 4 compute sets, 12 words of memory")


def test_layers_stay_apart():
    def function(x):
        for name in ("first", "second"):
            with jax.named_scope(name):
                x = jnp.tanh(2 * x)
        return x

    traced = cl.trace(function, ROW)
    assert [own.name for own in traced.graph.compute_sets] == ["first/mul_tanh/map", "second/mul_tanh/map"]
    assert traced.fusion == Saved(2, 8, 8)
    assert str(traced.fusion) in str(traced)


def test_a_parameter_is_updated_by_one_map_with_what_is_held_beside_it():
    def update(parameters, velocity, slopes):
        velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, slopes)
        return jax.tree.map(lambda p, v: p - 0.1 * v, parameters, velocity), velocity

    held = {"first": {"w": ROW, "b": array((2,))}, "second": {"w": ROW, "b": array((2,))}}
    traced = cl.trace(lambda own, slopes: update(own["p"], own["v"], slopes), {"p": held, "v": held}, held)
    assert len(traced.graph.compute_sets) == 4
    ours, plain = jax.jit(lambda held: (traced({"p": held, "v": held}, held), update(held, held, held)))(held)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), ours, plain)


rounded = jax.custom_vjp(lambda x: jnp.round(x))
rounded.defvjp(lambda x: (jnp.round(x), None), lambda _, slope: (3 * slope,))


def test_a_derivative_rule_within_a_map_is_kept():
    function = lambda x: jnp.tanh(rounded(5 * x) * 0.1)  # noqa: E731
    traced = cl.trace(function, ROW)
    assert [own.name for own in traced.graph.compute_sets] == ["mul_lambda_mul_tanh/map"]
    ours, plain = at_once(*(jax.grad(lambda x, own=own: own(x).sum()) for own in (traced, function)))(ROW)
    np.testing.assert_allclose(ours, plain, rtol=1e-5)
    assert np.abs(plain).max() > 0


def asked_of(function, rule):
    """How often a derivative rule is asked for while a function of itself is traced."""
    asked = []

    @jax.custom_jvp
    def own(x):
        return jnp.where(x > 0, x, 0.5 * x)

    @own.defjvp
    def _(primals, tangents):
        asked.append(None)
        return own(*primals), rule(tangents[0])

    cl.trace(lambda x: function(own, x), ROW)
    return len(asked)


@pytest.mark.parametrize("rule", [lambda slope: 2 * slope, lambda slope: slope + slope.sum()], ids=["same", "other"])
def test_a_derivative_rule_is_asked_for_as_often_as_it_is_needed(rule):
    """Each asking traces it: that of a function of what is known never is, and in a loop, one that passes change not
    by each of them."""
    assert asked_of(lambda own, x: x + own(jnp.full(4, -3.0)), rule) == 0
    once = asked_of(lambda own, x: own(x), rule)
    assert 1 <= once <= 2
    assert asked_of(lambda own, x: lax.fori_loop(0, 3, lambda _, held: own(held) - 1, x), rule) <= 3


def test_moves_alone_take_no_vertices():
    def function(x):
        x = jnp.transpose(x, (2, 0, 1)).reshape(4, 6)[:, None]
        return jnp.broadcast_to(x, (4, 3, 6)).reshape(12, 6).T[::-1], jnp.squeeze(x).T.reshape(3, 8)

    x = array((2, 3, 4))
    traced = cl.trace(function, x)
    assert traced.graph.num_vertices == 0
    jax.tree.map(np.testing.assert_array_equal, traced(x), function(x))


# --- outer products ----------------------------------------------------------------------------------------------


@few(
    "left, right, numbers",
    [
        ((4,), (3,), (((), ()), ((), ()))),
        ((1, 4), (3, 1), (((0,), (1,)), ((), ()))),
        ((4, 1, 1, 2), (1, 3, 1), (((1, 2), (0, 2)), ((), ()))),
        ((4, 2, 1), (3, 1, 4, 2), (((2,), (1,)), ((1, 0), (3, 2)))),
        ((1,), (1,), (((0,), (0,)), ((), ()))),
        ((2, 3), (2, 3), (((), ()), ((0, 1), (0, 1)))),
    ],
    quick=[
        "(1, 4), (3, 1), (((0), (1)), ((), ()))",
        "(4, 2, 1), (3, 1, 4, 2), (((2), (1)), ((1, 0), (3, 2)))",
        "(1), (1), (((0), (0)), ((), ()))",
        "(2, 3), (2, 3), (((), ()), ((0, 1), (0, 1)))",
    ],
)
def test_a_product_that_sums_over_nothing_is_elementwise(left, right, numbers):
    a, b = array(left, seed=1), array(right, seed=2)
    closed = jax.make_jaxpr(lambda a, b: lax.dot_general(a, b, numbers))(a, b)
    turned = jax.make_jaxpr(lambda a, b: lax.dot_general(a, b, numbers).transpose())(a, b)
    for product in (closed, turned):
        made = outer_products(product)
        assert "dot_general" not in names(made)
        assert names(made).count("mul") == 1
        assert names(made)[-1] == "mul"
        plain, ours = (jax_core.jaxpr_as_fun(own)(a, b)[0] for own in (product, made))
        np.testing.assert_array_equal(ours, plain)


@pytest.mark.parametrize(
    "product",
    [
        lambda a, b: lax.dot_general(a, b, (((0,), (0,)), ((), ())), preferred_element_type=jnp.float32),
        lambda a, b: lax.dot_general(a, b[0], (((1,), (0,)), ((), ()))),
        lambda a, b: lax.dot_general(a > 0, b > 0, (((0,), (0,)), ((), ()))),
    ],
    ids=["another dtype", "a sum", "booleans"],
)
def test_other_products_stay(product):
    a = array((1, 4)).astype(jnp.float16)
    assert names(outer_products(jax.make_jaxpr(product)(a, a))).count("dot_general") == 1


@pytest.mark.slow
def test_an_outer_product_is_made_where_it_is_read():
    def step(w, x, slope):
        with jax.named_scope("layer"):
            gradient = jnp.outer(slope, x)
        return w - 0.1 * gradient

    given = ROW[:3, None] * jnp.ones(5), array((5,)), array((3,))
    traced = cl.trace(step, *given)
    assert len(traced.graph.compute_sets) == 1
    np.testing.assert_allclose(traced(*given), step(*given), rtol=1e-6)
    # Read twice, it is made once, where it is written.
    twice = cl.trace(lambda w, x, slope: (step(w, x, slope), jnp.outer(slope, x)), *given)
    assert [own.name for own in twice.graph.compute_sets] == ["layer/mul/map", "mul_sub/map"]


# --- memory ------------------------------------------------------------------------------------------------------


def test_what_frees_memory_is_done_early_and_what_takes_some_is_not():
    def step(w, v, x):
        first, second = jnp.sin(x), jnp.cos(x)
        spread = jnp.tile(x[:1], 9)
        return w + v - first, first.sum(), second, spread

    closed = jax.make_jaxpr(step)(ROW, ROW, ROW)
    before = names(closed)
    assert early_order(closed.jaxpr) == list(range(len(before)))
    owned = closed.jaxpr.invars[:2]
    order = [before[k] for k in early_order(closed.jaxpr, owned)]
    assert sorted(order) == sorted(before)
    assert order[0] == "add"  # of two parameters one is left; what is subtracted is needed for the sum
    assert order[1:] == [own for own in before if own != "add"]
    freed = free_early(closed, (0, 1))
    for own, expected in zip(*(jax_core.jaxpr_as_fun(k)(ROW, ROW, ROW) for k in (freed, closed)), strict=True):
        np.testing.assert_array_equal(own, expected)


def test_a_value_is_needed_as_long_as_a_view_of_it_is():
    def step(w, g, x):
        turned = w.T
        early = w[0] - g[0]
        return early, jnp.sin(x) @ turned

    square = ROW[:, None] * ROW
    closed = jax.make_jaxpr(step)(square, square, square)
    order = early_order(closed.jaxpr, closed.jaxpr.invars)
    found = [closed.jaxpr.eqns[k].primitive.name for k in order]
    assert found.index("sub") > found.index("transpose")
    assert order == list(range(len(order)))


@pytest.mark.slow
def test_updates_of_all_layers_hold_one_gradient_at_a_time():
    def step(weights, x, target):
        def loss(weights):
            h = x
            for w in weights:
                h = jnp.tanh(h @ w)
            return ((h - target) ** 2).sum()

        return jax.tree.map(lambda w, g: w - 0.1 * g, weights, jax.grad(loss)(weights))

    weights, x = [array((96, 96), seed=k) * 0.1 for k in range(5)], array((2, 96))
    for arguments in ((weights, x, x), (weights, x[:1], x[:1])):  # gradients are products, or outer ones
        traced = cl.trace(step, *arguments, target=cl.IPU(num_tiles=1, bytes_per_tile=2**22), donate_argnums=0)
        results = jax.jit(lambda *own, traced=traced: (traced(*own), step(*own)))(*arguments)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), *results)
        ends = [own.source.name for own in (*traced.flat_inputs, *traced.flat_outputs)]
        liveness = cl.Engine(traced.graph, traced.program).machine(host_visible=ends).liveness
        large = [own.moments for own in liveness.ranges if own.num_bytes[0] == 96 * 96 * 4]
        assert np.sum(large, axis=0).max() == (6 if len(arguments[1]) > 1 else 5)


# --- joined without a cycle --------------------------------------------------------------------------------------


def test_nodes_are_joined_unless_a_third_comes_between():
    diamond = Contraction()
    for before in ((), (0,), (0,), (1, 2)):
        diamond.add(before)
    assert not diamond.join(0, 3)
    assert diamond.join(0, 1)
    assert not diamond.join(0, 3)
    assert diamond.join(2, 0)
    assert diamond.join(3, 1)
    assert diamond.in_order() == [[0, 1, 2, 3]]


def test_joins_of_many_nodes_leave_no_cycle():
    random = np.random.default_rng(0)
    for _ in range(30):
        joined = Contraction()
        for k in range(25):
            joined.add(random.integers(0, k, min(k, 2)).tolist())
            for other in random.integers(0, k + 1, 2).tolist():
                joined.join(other, k)
        order = joined.in_order()  # which asserts that there is one
        assert sorted(k for members in order for k in members) == list(range(25))


@pytest.mark.slow
def test_zeros_that_windows_sum_over_are_options_of_the_sum():
    """As in the gradient of an average pooling, with what is around and between, and with windows of other sizes."""
    for window, strides, padding in ((2, 2, "VALID"), (3, 2, "SAME"), (3, 1, "SAME"), (2, 3, "VALID")):

        def pooled(x, window=window, strides=strides, padding=padding):
            own = (1, window, window, 1), (1, strides, strides, 1)
            return lax.reduce_window(x, 0.0, lax.add, *own, padding)

        image = jnp.sin(jnp.arange(2 * 9 * 7 * 3.0)).reshape(2, 9, 7, 3)
        slope = jax.grad(lambda x, pooled=pooled: (pooled(x) ** 2).sum())
        assert "pad" not in names(pads_of_windows(jax.make_jaxpr(slope)(image)))
        np.testing.assert_allclose(*at_once(cl.trace(slope, image), slope)(image), rtol=1e-5, atol=1e-5)
    cut = lambda x: lax.reduce_window(lax.pad(x, 0.0, [(-1, 2, 0)]), 0.0, lax.add, (2,), (1,), "VALID")  # noqa: E731
    other = lambda x: lax.reduce_window(lax.pad(x, 1.0, [(1, 2, 1)]), 0.0, lax.add, (2,), (1,), "VALID")  # noqa: E731
    for function in (cut, other):
        assert "pad" in names(pads_of_windows(jax.make_jaxpr(function)(ROW)))
        np.testing.assert_allclose(*at_once(cl.trace(function, ROW), function)(ROW), rtol=1e-6)
