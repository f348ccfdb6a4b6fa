"""What a jaxpr moves: exact numbers of small programs, and beside the bytes that XLA counts of compiled ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from codelet.jaxprs.moved import moved, num_bytes
from tests.examples import few

N = 100
X, ROW, K = jnp.ones((N, N)), jnp.ones(N), jnp.int32(3)
LINE = jnp.ones(N)


@jax.custom_jvp
def _doubled(x):
    return 2 * x


@_doubled.defjvp
def _(primals, tangents):
    return _doubled(*primals), 2 * tangents[0]


def _put(a, row, k):
    return lax.dynamic_update_slice(a, row.reshape(1, -1), (k, 0), allow_negative_indices=False)


def _turns(body, length=5):
    return lambda x: lax.fori_loop(0, length, lambda k, x: body(x), x)


EXACT = {
    "a map": (lambda x: jnp.sin(x) + 1, [LINE], 2 * N),
    "a square": (lambda x: x * x, [LINE], 2 * N),
    "two arguments": (lambda x, y: x * y, [LINE, LINE], 3 * N),
    "two results": (lambda x: (x + 1, x * 2), [LINE], 4 * N),
    "nothing": (lambda x: x, [LINE], 0),
    "a reshape": (lambda x: x.reshape(-1), [X], 0),
    "a sum": (lambda x: x.sum(), [X], N * N + 1),
    "a sum of a map": (lambda x: jnp.sin(x).sum(0), [X], N * N + N),
    "a transpose": (lambda x: x.T, [X], 2 * N * N),
    "a broadcast": (lambda x: jnp.broadcast_to(x, (N, N)), [ROW], N + N * N),
    "a slice": (lambda x: x[:10], [LINE], 20),
    "a slice of a slice": (lambda x: x[:50].reshape(10, 5)[:, :2].sum(), [LINE], 20 + 1),
    "a slice that is also used whole": (lambda x: (x[:50].sum(), x[:50].reshape(10, 5)[:, :2].sum()), [LINE], 50 + 22),
    "a row": (lambda x, k: lax.dynamic_index_in_dim(x, k, 0, allow_negative_indices=False), [X, K], 2 * N + 1),
    "a product": (lambda x, y: lax.dot(x, y), [X, X], 3 * N * N),
    "a row that is put into what is given": (_put, [X, ROW, K], 2 * (N * N + N)),
    "a row that is put into what was made": (
        lambda a, row, k: _put(jnp.cumsum(a, 0), row, k),
        [X, ROW, K],
        2 * N * N + 2 * N,
    ),
    "a call": (lambda x: jax.jit(lambda x: jnp.sin(x) + 1)(x), [LINE], 2 * N),
    "a call between maps": (lambda x: 2 * jax.jit(jnp.sin)(x + 1), [LINE], 2 * N),
    "a choice by platform": (lambda x: 2 * lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cumsum), [LINE], 2 * N),
    "a choice of other platforms": (lambda x: lax.platform_dependent(x, tpu=jnp.cumsum, default=jnp.sin), [ROW], 2 * N),
    "with a rule of its own": (lambda x: _doubled(x) + 1, [LINE], 2 * N),
    "a reduction by a function": (lambda x: lax.reduce(x, 0.0, lambda a, b: a + jnp.sin(b), (0,)), [LINE], None),
}
"""Functions, their arguments, and what they move."""


@pytest.mark.parametrize("name", EXACT)
def test_what_is_moved(name):
    function, arguments, expected = EXACT[name]
    found = moved(jax.make_jaxpr(function)(*arguments)).total()
    if expected is None:  # one that is not named: its operands and its results
        assert found >= N
    else:
        assert found == expected


def test_a_row_is_put_in_place_where_the_array_is_handed_over():
    closed = jax.make_jaxpr(_put)(X, ROW, K)
    assert moved(closed, owned=[0]).total() == 2 * N
    again = jax.make_jaxpr(lambda a, row, k: (_put(a, row, k), a + 1))(X, ROW, K)
    assert moved(again, owned=[0]).total() == 2 * (N * N + N) + 2 * N * N
    called = jax.make_jaxpr(lambda a, row, k: jax.jit(_put)(a, row, k))(X, ROW, K)
    assert moved(called, owned=[0]).total() == 2 * N
    kept = jax.make_jaxpr(lambda a, row, k: (jax.jit(_put)(a, row, k), a + 1))(X, ROW, K)
    assert moved(kept, owned=[0]).total() == 2 * (N * N + N) + 2 * N * N


def test_loops_count_once_or_by_their_turns():
    closed = jax.make_jaxpr(_turns(lambda x: jnp.sin(x), 5))(LINE)
    once, by_turns = moved(closed).total(), moved(closed, turns=lambda length: length).total()
    assert by_turns == 5 * once
    assert 2 * N <= once <= 2 * N + 4  # and the counter
    nested = jax.make_jaxpr(_turns(_turns(lambda x: jnp.sin(x), 3), 5))(LINE)
    assert moved(nested, turns=lambda length: length).total() >= 15 * 2 * N


def test_a_loop_hands_over_what_it_carries():
    """A row that is put is put in place, though the array before the loop is another's."""
    function = lambda a, row: lax.fori_loop(0, N, lambda k, a: _put(a, row, k), a)  # noqa: E731
    assert moved(jax.make_jaxpr(function)(X, ROW)).total() <= 2 * N + 4


def test_of_a_condition_every_branch_counts():
    function = lambda p, x: lax.cond(p, lambda x: x + 1, lambda x: x.sum() * jnp.ones(N), x)  # noqa: E731
    assert moved(jax.make_jaxpr(function)(True, LINE)).total() == 2 + 2 * N + (N + 1) + (1 + N)  # the choice too


def test_scopes_count_for_themselves():
    @jax.jit
    def inner(x):
        with jax.named_scope("inner"):
            return jnp.cumsum(x)

    def function(x):
        with jax.named_scope("first"):
            x = jnp.cumsum(x)
        with jax.named_scope("second"):
            x = inner(x)
            x = lax.fori_loop(0, 3, lambda _, x: jnp.cumsum(x), x)
        return x.sum()

    found = moved(jax.make_jaxpr(function)(LINE), scope=lambda eqn: str(eqn.source_info.name_stack).split("/")[0])
    assert found["first"] == 2 * N
    assert 4 * N <= found["second"] <= 4 * N + 4
    assert found[""] == N + 1


def test_bytes_are_of_dtypes():
    for dtype in (np.float32, jnp.bfloat16, np.int8):
        closed = jax.make_jaxpr(lambda x: x + 1)(jnp.ones(N, dtype))
        assert moved(closed, unit=num_bytes).total() == 2 * N * np.dtype(dtype).itemsize
    keys = jax.make_jaxpr(lambda k: jax.random.split(k, 3))(jax.random.key(0))
    assert moved(keys, unit=num_bytes).total() >= 8


SQUARE, IMAGE, WEIGHTS = jnp.ones((64, 64)), jnp.ones((4, 16, 16, 8)), jnp.ones((3, 3, 8, 8))
LIKE_CPUS = ("NHWC", "HWIO", "NHWC")

BESIDE_XLA = {
    "map": (lambda x: jnp.sin(x) + 1, [SQUARE]),
    "maps of maps": (lambda x, y: jnp.tanh(x * y + x) - y, [SQUARE, SQUARE]),
    "product": (lambda x, y: x @ y, [SQUARE, SQUARE]),
    "product of maps": (lambda x, y: jnp.sin(x) @ jnp.cos(y), [SQUARE, SQUARE]),
    "transpose": (lambda x: x.T, [SQUARE]),
    "transposed map": (lambda x: jnp.sin(x).T + 1, [SQUARE]),
    "sum": (lambda x: x.sum(0), [SQUARE]),
    "softmax": (lambda x: jax.nn.softmax(x), [SQUARE]),
    "convolution": (
        lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=LIKE_CPUS),
        [IMAGE, WEIGHTS],
    ),
    "gather": (lambda x, i: x.at[i].get(mode="clip"), [SQUARE, jnp.arange(32)]),
    "one element put": (lambda x: lax.dynamic_update_slice(x, jnp.ones((1, 1)), (3, 3)), [SQUARE]),
    "concatenation": (lambda x, y: jnp.concatenate([x, y]), [SQUARE, SQUARE]),
    "slice": (lambda x: x[1:33, 2:], [SQUARE]),
    "reversal": (lambda x: x[::-1], [SQUARE]),
    "pad": (lambda x: jnp.pad(x, 1), [SQUARE]),
    "outer product": (lambda x, y: x[:, None] * y, [jnp.ones(64), jnp.ones(64)]),
}


@few("name", BESIDE_XLA, quick=["concatenation"])
def test_as_much_is_moved_as_xla_counts(name):
    function, arguments = BESIDE_XLA[name]
    costs = jax.jit(function).lower(*arguments).compile().cost_analysis()
    assert costs is not None
    by_xla = costs["bytes accessed"]
    own = moved(jax.make_jaxpr(function)(*arguments), unit=num_bytes).total()
    assert own / 2.5 <= by_xla <= 2.5 * own, (own, by_xla)
