"""Whether two programs are equal: what is equal by construction, and single faults."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import Primitive
from jax.sharding import PartitionSpec as P

import codelet as cl
from codelet.field import arithmetic
from codelet.field.evaluate import Evaluation
from codelet.field.meanings import MEANINGS, meaning
from codelet.field.values import Unknown, residues
from codelet.jaxprs.rebuild import rewrite
from lowering.equality.meaning_table import PAGE, page_with_table
from lowering.jaxprs import simplify
from lowering.jaxprs.slopes import differentiable
from tests.examples import few
from tests.meshes import mesh_of

equal = cl.equal

X, W = jnp.ones((8, 6)), jnp.ones((6, 4))
IMAGE, KERNEL = jnp.ones((2, 3, 8, 9)), jnp.ones((4, 3, 3, 3))
IDS = np.array([0, 2, 2, 5], np.int32)


def _layer(x, w):
    return jnp.tanh(x @ w)


def _convolved(image, kernel):
    return lax.conv_general_dilated(image, kernel, (2, 1), ((1, 1), (0, 2)), rhs_dilation=(1, 2))


def _convolved_by_taps(image, kernel):
    padded, total = jnp.pad(image, ((0, 0), (0, 0), (1, 1), (0, 2))), 0
    for i in range(3):
        for j in range(3):
            part = padded[:, :, i : i + 7 : 2, 2 * j : 2 * j + padded.shape[3] - 4]
            total = total + jnp.einsum("ncij,oc->noij", part, kernel[:, :, i, j])
    return total


def _slopes(convolved):
    return jax.grad(lambda image, kernel: (convolved(image, kernel) ** 2).sum(), (0, 1))


def _scanned(x):
    return lax.scan(lambda carry, row: (carry * row + 1, carry), jnp.zeros(6), x)


def _unrolled(x):
    carry, rows = jnp.zeros(6), []
    for row in x:
        rows.append(carry)
        carry = row * carry + 1
    return carry, jnp.stack(rows)


def _attention(q, k, v):
    return jax.nn.softmax(q @ k.T / 8) @ v


def _tiled(q, k, v, block=4, first: Any = -np.inf):
    """Attention over blocks of keys, with what was summed so far brought to each new maximum."""

    def turn(state, own):
        (greatest, total, out), (k, v) = state, own
        scores = q @ k.T / 8
        now = jnp.maximum(greatest, scores.max(-1))
        p, less = jnp.exp(scores - now[:, None]), jnp.exp(greatest - now)
        return (now, total * less + p.sum(-1), out * less[:, None] + p @ v), None

    state = jnp.full(len(q), first), jnp.zeros(len(q)), jnp.zeros((len(q), v.shape[1]))
    blocks = (own.reshape(-1, block, own.shape[1]) for own in (k, v))
    (_, total, out), _ = lax.scan(turn, state, tuple(blocks))
    return out / total[:, None]


Q, K, V = jnp.ones((5, 6)), jnp.ones((12, 6)), jnp.ones((12, 3))

EQUAL = {
    "a product by sums": (lambda x, w: x @ w, lambda x, w: (x[:, :, None] * w).sum(1), (X, W)),
    "products in another order": (lambda x, w: (x @ w) @ w.T, lambda x, w: x @ (w @ w.T), (X, W)),
    "sums by blocks": (jnp.sum, lambda x: x.reshape(4, 2, 6).sum(1).sum(), (X,)),
    "distributed": (lambda x: (x + 1) * (x - 1), lambda x: x**2 - 1, (X,)),
    "the greatest by blocks": (jnp.max, lambda x: x.T.reshape(3, 16).max(1).max(), (X,)),
    "the greatest of windows": (
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 3), (2, 3), "VALID"),
        lambda x: x.reshape(4, 2, 2, 3).max((1, 3)),
        (X,),
    ),
    "a gradient by hand": (
        jax.grad(lambda x, w: (_layer(x, w) ** 2).sum()),
        lambda x, w: (2 * _layer(x, w) * (1 - _layer(x, w) ** 2)) @ w.T,
        (X, W),
    ),
    "a convolution by its taps": (_convolved, _convolved_by_taps, (IMAGE, KERNEL)),
    "gradients of a convolution": (_slopes(_convolved), _slopes(_convolved_by_taps), (IMAGE, KERNEL)),
    "a loop unrolled": (_scanned, _unrolled, (X,)),
    "a look-up as a product": (lambda x: x[IDS], lambda x: jax.nn.one_hot(IDS, 8) @ x, (X,)),
    "a segment sum as a product": (
        lambda x: jax.ops.segment_sum(x[:4], IDS, 8),
        lambda x: jax.nn.one_hot(IDS, 8).T @ x[:4],
        (X,),
    ),
    "a mean": (lambda x: x.mean(1), lambda x: x.sum(1) / 6, (X,)),
    "a constant as a quotient": (lambda x: x * 0.1, lambda x: x / 10, (X,)),
    "a variance": (lambda x: x.var(0), lambda x: (x**2).mean(0) - x.mean(0) ** 2, (X,)),
    "a softmax": (
        jax.nn.softmax,
        lambda x: (e := jnp.exp(x - x.max(-1, keepdims=True))) / e.sum(-1, keepdims=True),
        (X,),
    ),
    "a softmax without a shift": (
        jax.nn.softmax,
        lambda x: jnp.exp(x) / jnp.exp(x).sum(-1, keepdims=True),
        (X,),
    ),
    "logarithms of a softmax": (
        jax.nn.log_softmax,
        lambda x: x - jax.nn.logsumexp(x, -1, keepdims=True),
        (X,),
    ),
    "attention by blocks": (_attention, _tiled, (Q, K, V)),
    "attention by blocks of which nothing is first": (
        lambda q, k, v: _tiled(q, k, v, 3, jnp.nan_to_num(-np.inf)),
        lambda q, k, v: _tiled(q, k, v, 2, jnp.nan_to_num(-np.inf)),
        (Q, K, V),
    ),
    "gradients of attention by blocks": (
        jax.grad(lambda q, k, v: (_attention(q, k, v) ** 2).sum(), (0, 1, 2)),
        jax.grad(lambda q, k, v: (_tiled(q, k, v) ** 2).sum(), (0, 1, 2)),
        (Q, K, V),
    ),
    "odd and even": (lambda x: jnp.sin(-x) + jnp.cos(-x), lambda x: jnp.cos(x) - jnp.sin(x), (X,)),
    "swapped comparisons": (lambda x: jnp.where(x > 2, x, -x), lambda x: jnp.where(lax.lt(2.0, x), x, -x), (X,)),
    "random numbers": (
        lambda x: x + jax.random.normal(jax.random.key(3), x.shape),
        lambda x: jax.random.normal(jax.random.key(3), x.shape) + x,
        (X,),
    ),
    "a running sum": (lambda x: jnp.cumsum(x, 0), lambda x: jnp.tri(8) @ x, (X,)),
    "running sets": (
        lambda x: lax.cummax(x, 1),
        lambda x: jnp.stack([x[:, : k + 1].max(1) for k in range(6)], 1),
        (X,),
    ),
    "roots": (
        lambda x: jnp.sqrt(x) ** 3 + jnp.sqrt(x * x[::-1]),
        lambda x: jnp.sqrt(x) * (x + jnp.sqrt(x)[::-1]),
        (X,),
    ),
    "a layer norm": (
        lambda x: (x - x.mean(1, keepdims=True)) / jnp.sqrt(x.var(1, keepdims=True) + 1e-5),
        lambda x: (x - x.mean(1, keepdims=True)) * lax.rsqrt(1e-5 + x.var(1, keepdims=True)),
        (X,),
    ),
    "sums along an axis of a map": (
        jax.vmap(lambda x: (jax.lax.pmean(x, "b"), jax.lax.pmax(x, "b"), x - jax.lax.psum(x, "b")), axis_name="b"),
        lambda x: (
            jnp.broadcast_to(x.mean(0), x.shape),
            jnp.broadcast_to(x.max(0), x.shape),
            x - x.sum(0),
        ),
        (X,),
    ),
    "sorted": (lambda x: jnp.sort(x, 1), lambda x: jnp.sort(x[:, ::-1], 1), (X,)),
}


@pytest.mark.parametrize("name", EQUAL)
def test_what_is_equal_by_construction(name):
    first, second, examples = EQUAL[name]
    found = equal(first, second, *examples)
    assert found.verdict == "equal", found
    assert found.chance <= 2.0**-40
    assert found


Z = jnp.ones((4, 3), jnp.complex64)

COMPLEX = {
    "a product by its parts": (
        lambda z, w: z @ w.T,
        lambda z, w: (z.real @ w.real.T - z.imag @ w.imag.T) + 1j * (z.real @ w.imag.T + z.imag @ w.real.T),
        (Z, Z),
    ),
    "a quotient": (lambda z, w: z / w, lambda z, w: z * w.conj() / (w.real**2 + w.imag**2), (Z, Z)),
    "a size": (lambda z: jnp.abs(z) ** 2, lambda z: (z * z.conj()).real, (Z,)),
    "sums": (lambda z: jnp.cumsum(z, 0)[-1], lambda z: z.sum(0), (Z,)),
    "powers": (lambda z: z**3, lambda z: z * z * z, (Z,)),
    "conjugates": (lambda z: jnp.conj(z).sum() + 2j, lambda z: jnp.conj(z.sum() - 2j), (Z,)),
    "updates": (
        lambda z: z.at[IDS[:3] % 4].add(2j * z[:3]),
        lambda z: z.at[IDS[:3] % 4].add(z[:3] * 1j + 1j * z[:3]),
        (Z,),
    ),
    "slopes": (
        jax.grad(lambda z: (z * z.conj()).real.sum()),
        lambda z: 2 * jnp.conj(z),
        (Z,),
    ),
    "functions": (lambda z: jnp.exp(z * 2) + jnp.sin(-z), lambda z: jnp.exp(z + z) - jnp.sin(z), (Z,)),
    "choices": (lambda z: jnp.where(z.real > 0, z, 0), lambda z: z * jnp.where(z.real > 0, 1, 0), (Z,)),
    "real numbers": (lambda x: (x + 0j) * x, lambda x: x * x * (1 + 0j), (X,)),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers(name):
    first, second, examples = COMPLEX[name]
    found = equal(first, second, *examples)
    assert found.verdict == "equal", found
    wrong = equal(first, lambda *own: jnp.conj(second(*own)) * (1 + (name == "a size")), *examples)
    assert wrong.verdict == ("equal" if name == "real numbers" else "different"), wrong


def _without(x, k):
    return x.at[k].set(0)


FAULTS = {
    "an element of another": (lambda x: x * 2, lambda x: x.at[3, 1].set(x[3, 2]) * 2, (3, 1)),
    "a term left out": (lambda x: x.sum(1), lambda x: _without(x, (5, 2)).sum(1), (5,)),
    "a term taken twice": (lambda x: x.sum(1), lambda x: x.sum(1).at[4].add(x[4, 0]), (4,)),
    "a sign": (lambda x: x - 1, lambda x: (x - 1).at[2, 2].multiply(-1), (2, 2)),
    "swapped operands": (lambda x: x[0] - x[1], lambda x: (x[0] - x[1]).at[3].set(x[1, 3] - x[0, 3]), (3,)),
    "the greatest of others": (lambda x: x.max(1), lambda x: x.max(1).at[6].set(x[6, :5].max()), (6,)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_single_faults_are_told_with_a_witness(name):
    right, wrong, element = FAULTS[name]
    found = equal(right, wrong, X)
    assert found.verdict == "different", found
    assert found.witness is not None
    assert found.witness.element == element
    first, second = found.witness.values
    with jax.enable_x64(True):
        (given,) = (jnp.asarray(own) for own in found.witness.inputs)
        np.testing.assert_allclose(np.asarray(right(given))[element], first)
        np.testing.assert_allclose(np.asarray(wrong(given))[element], second)
    assert first != second


@pytest.mark.slow
def test_a_fault_in_attention_by_blocks_is_told():
    def wrong(q, k, v):
        return _tiled(q, k.at[7].set(k[8]), v)

    found = equal(_attention, wrong, Q, K, V)
    assert found.verdict == "different"
    assert found.witness is not None
    assert found.witness.values[0] != found.witness.values[1]


def test_what_is_known_of_signs():
    assert equal(lambda x: jnp.sqrt(x), lambda x: jnp.sqrt(-x), X).verdict == "different"
    assert equal(lambda x: lax.rsqrt(x), lambda x: -lax.rsqrt(x), X).verdict == "different"
    assert equal(lambda x: jnp.abs(jnp.exp(x).sum(0)), lambda x: jnp.exp(x).sum(0), X)
    assert equal(lambda x: jnp.sign(jnp.exp(x)), lambda x: jnp.ones_like(x), X)
    none = lambda x: jnp.sign(jnp.exp(x[:0]).sum(0))  # noqa: E731
    assert equal(none, lambda x: jnp.zeros(6), X)
    assert equal(none, lambda x: jnp.ones(6), X).verdict == "different"
    assert equal(lambda x: jnp.abs(jnp.exp(x) - 1), lambda x: jnp.exp(x) - 1, X).verdict == "different"


def test_laws_that_do_not_hold_of_a_field_are_undecided():
    found = equal(lambda x: jnp.maximum(x, 0), lambda x: jnp.where(x > 0, x, 0), X)
    assert found.verdict == "undecided"
    assert not found
    assert "part in" in str(found)


def test_what_is_not_understood_is_undecided_with_its_place():
    own = Primitive("own")
    own.def_impl(lambda x: x)
    own.def_abstract_eval(lambda x: x)
    found = equal(lambda x: own.bind(x), lambda x: own.bind(x), X)
    assert found.verdict == "undecided"
    assert "own: the primitive has no meaning over the field" in str(found)
    assert found.line is not None
    found = equal(lambda x: lax.while_loop(lambda c: c.sum() < 100, lambda c: c * 2, x), lambda x: x, X)
    assert found.verdict == "undecided"
    assert "how often it runs" in str(found)


@pytest.mark.parametrize(
    ("rows", "degree"),
    [
        (lambda x: lax.scan(lambda c, row: (c, row**8), 0.0, x)[1], 8),
        (lambda x: lax.cond(x[0, 0] > 0, lambda: x**7, lambda: x**3), 1 + 7 + 3),  # as that of `select_n`
        (
            lambda x: jax.shard_map(
                lambda own: lax.all_gather(own**8, "a", tiled=True),
                mesh=mesh_of(2),
                in_specs=P("a"),
                out_specs=P(),
                check_vma=False,
            )(x),
            8,
        ),
    ],
    ids=["scan", "cond", "shard_map"],
)
def test_what_is_put_together_has_the_degree_of_its_parts(rows, degree):
    evaluation, random = Evaluation(4), np.random.default_rng(0)
    given = Unknown(random.integers(0, arithmetic.PRIME, (4, 8, 6)), np.float32)
    (result,) = evaluation.run(jax.make_jaxpr(lambda x: rows(x) ** 3)(X), [given])
    assert isinstance(result, Unknown)
    assert result.degree == 3 * degree


def test_great_degrees_are_told_at_more_points():
    def power(x, squares):
        for _ in range(squares):
            x = x * x
        return x

    found = [equal(lambda x, k=k: power(x, k), lambda x, k=k: power(x, k - 1) ** 2, X) for k in (3, 21, 27, 31)]
    assert [own.verdict for own in found] == ["equal"] * 3 + ["undecided"]
    assert [own.draws for own in found[:3]] == [4, 8, 16]
    assert max(own.chance for own in found[:3]) <= 2.0**-40
    assert "its degree is 2,147,483,648" in found[3].reason


def test_loops_on_conditions_and_slices_of_what_is_lowered():
    def loop(x):
        return lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, jnp.sin(s[1])), (0, x))[1]

    assert equal(cl.trace(loop, X), lambda x: jnp.sin(jnp.sin(jnp.sin(x))), X).verdict == "equal"

    def strips(x):
        for i in range(5):
            x = lax.dynamic_update_slice(x, jnp.sin(x[i : i + 1, :2]) * x[i : i + 1, 1:3], (i + 1, 0))
        return (x**2).sum()

    wide = jnp.ones((40, 30))
    lowered = differentiable(jax.make_jaxpr(strips)(wide))
    slopes = jax.grad(lambda x: lowered(x)[0])
    assert "slices_together" in str(jax.make_jaxpr(slopes)(wide))
    assert equal(slopes, jax.grad(strips), wide).verdict == "equal"


def test_arrays_of_no_elements():
    empty = lambda x: (x[:0].T @ x[:0], jnp.sort(x[:, :0]), x[:0].sum(0), jnp.cumsum(x[:0], 0), x[:0].max(1))  # noqa: E731
    zeros = lambda x: (  # noqa: E731
        jnp.zeros((6, 6)),
        jnp.zeros((8, 0)),
        jnp.zeros(6),
        jnp.zeros((0, 6)),
        jnp.zeros(0),
    )
    assert equal(empty, zeros, X)


def test_functions_of_whole_matrices():
    a = jnp.ones((3, 4, 4))
    solve = lambda a, b: jnp.linalg.solve(a + a, b)  # noqa: E731
    assert equal(solve, lambda a, b: jnp.linalg.solve(2 * a, b), a[0], X[:4])
    each = jax.vmap(lambda a: jnp.linalg.qr(a)[1])
    assert equal(each, lambda a: jnp.stack([jnp.linalg.qr(own)[1] for own in a]), a)
    found = equal(each, lambda a: jnp.stack([jnp.linalg.qr(own.T)[1] for own in a]), a)
    assert found.verdict == "different"
    assert equal(lambda x: jnp.fft.fft(x + x), lambda x: jnp.fft.fft(2 * x), a)
    assert equal(lambda x: jnp.fft.fft(x), lambda x: jnp.fft.fft(x, axis=1), a).verdict == "different"


def test_a_meaning_that_a_user_registers():
    scaled = Primitive("scaled")
    scaled.def_impl(lambda x, *, by: x * by)
    scaled.def_abstract_eval(lambda x, *, by: x)
    by = lambda n: lambda x: scaled.bind(x, by=n)  # noqa: E731
    assert equal(by(2.0), by(2.0), X).verdict == "undecided"

    @meaning("scaled", "by", said="a multiple")
    def multiple(field, eqn, x):
        factor = residues(np.asarray(eqn.params["by"], x.dtype), field.draws)
        return [Unknown(arithmetic.multiply(residues(x, field.draws), factor.reshape(-1, 1, 1)), x.dtype)]

    try:
        assert equal(by(2.0), lambda x: x + x, X)
        assert equal(by(2.0), lambda x: x + x + x, X).verdict == "different"
    finally:
        del MEANINGS["scaled"]


def test_the_table_is_that_of_the_code():
    assert PAGE.read_text() == page_with_table(PAGE.read_text()), "python -m lowering.equality.meaning_table --write"


def test_lost_digits_are_found_where_they_are_asked_for():
    short = lambda x: x.astype(jnp.bfloat16).astype(jnp.float32)  # noqa: E731
    assert equal(short, lambda x: x, X).verdict == "equal"
    found = equal(short, lambda x: x, X, casts="exact")
    assert found.verdict == "different"
    assert found.witness is not None
    assert found.witness.values[0] == float(jnp.bfloat16(found.witness.values[1]))
    assert equal(short, short, X, casts="exact").verdict == "equal"


@pytest.mark.parametrize(
    ("f", "g", "told"),
    [
        (lambda x: x, lambda x: (x,), "not of the same structure"),
        (lambda x: x, lambda x: x[1:], "not of the same shapes and dtypes"),
        (lambda x: x, lambda x: 1 / 0, "the second of two programs raises: ZeroDivisionError"),
        (3, lambda x: x, "the first of two programs is not a program"),
        (lambda x: x, lambda x: jax.debug.print("{}", x) or x, "does something else than to compute"),
    ],
)
def test_mistakes(f, g, told):
    with pytest.raises(cl.ProgramError, match=told):
        equal(f, g, X)


# --- graphs -----------------------------------------------------------------------------------------------------


def _doubled(places):
    graph = cl.Graph()
    x, y, i = graph.add_variable("x", (64,)), graph.add_variable("y", (64,)), cl.grid(64)
    graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[places(i)], out=y[i])
    return graph


def test_a_graph_by_its_meaning_is_equal_to_what_it_is_lowered_to():
    graph = _doubled(lambda i: 63 - i)
    example = {"x": jnp.ones(64)}
    lowered = cl.lower(graph, inputs=["x"], outputs=["y"])
    assert equal(graph, lowered, example)
    assert equal(graph, lambda values: {"y": 2 * values["x"][::-1]}, example)
    assert equal((graph, graph.default_program), graph, example)


def test_a_wrong_edge_of_a_graph_is_told():
    found = equal(
        _doubled(lambda i: cl.where(i < 63, i, 62)), lambda values: {"y": 2 * values["x"]}, {"x": jnp.ones(64)}
    )
    assert found.verdict == "different"
    assert found.witness is not None
    assert (found.witness.result, found.witness.element) == ("['y']", (63,))


def test_a_planned_product_is_equal_to_the_product():
    graph = cl.Graph(cl.IPU(num_tiles=16))
    a, b = graph.add_variable("a", (24, 17)), graph.add_variable("b", (17, 9))
    product = cl.ops.matmul(graph, a, b)
    name = product.source.name
    example = {"a": jnp.ones((24, 17)), "b": jnp.ones((17, 9))}
    assert equal(graph, lambda values: {name: (values["a"] @ values["b"]).reshape(product.source.shape)}, example)


# --- the field --------------------------------------------------------------------------------------------------


def test_floats_stand_for_the_simplest_fractions_of_any_precision():
    for dtype in (np.float32, np.float16, jnp.bfloat16, np.float64):
        tenth, third, minus = arithmetic.of_floats(np.array([0.1, 1 / 3, -0.5], dtype))
        assert int(arithmetic.multiply(tenth, np.array(10))) == 1
        assert int(arithmetic.multiply(third, np.array(3))) == 1
        assert int(arithmetic.add(arithmetic.add(minus, minus), np.array(1))) == 0


@pytest.mark.parametrize("count", [0, 1, arithmetic.FEW, arithmetic.FEW + 1, 40])
def test_powers_of_residues_are_exact(count):
    own = np.random.default_rng(0).integers(0, arithmetic.PRIME, count)
    own[:1] = 0
    for exponent in (0, 1, 2, arithmetic.PRIME - 2):
        expected = [pow(int(one), exponent, arithmetic.PRIME) for one in own]
        made = arithmetic.power(own, exponent)
        np.testing.assert_array_equal(made, np.array(expected, np.int64))
        assert made.dtype == np.int64


@pytest.mark.parametrize("count", [0, 1, 3, 64, 65, 2048, 2049])
def test_products_of_residues_are_exact(count):
    random = np.random.default_rng(0)
    a, b = (random.integers(0, arithmetic.PRIME, shape) for shape in ((5, count), (count, 3)))
    a[0], b[:, 0] = arithmetic.PRIME - 1, arithmetic.PRIME - 1
    for left, right in ((a, b), (b.T, a.T)):
        exact = (left.astype(object) @ right.astype(object)) % arithmetic.PRIME if count else 0
        np.testing.assert_array_equal(arithmetic.matrix_product(left, right), np.asarray(exact, np.int64))


def test_every_meaning_says_what_it_is():
    assert len(MEANINGS) > 100
    assert all(own.said for own in MEANINGS.values())


# --- over meshes ------------------------------------------------------------------------------------------------


def _over(mesh, wrong=None):
    """What several devices compute of rows, with all collectives; one device may be wrong."""

    def each(x):
        number = lax.axis_index("a")
        own = jnp.where(number == wrong, x[:, ::-1], x) if wrong is not None else x
        rows = lax.all_gather(own, "a", tiled=True)
        columns = lax.all_to_all(own, "a", 1, 0, tiled=True)
        count = lax.axis_size("a")
        around = lax.ppermute(own, "a", [(k, (k + 1) % count) for k in range(count)])
        total = lax.scan(lambda c, row: (c + lax.psum(row, "a"), lax.pmax(row.max(), "a")), jnp.zeros(x.shape[1]), own)
        mean = lax.cond(number < 9, lambda: lax.psum_scatter(rows, "a", tiled=True) / count, lambda: own)
        return rows.sum(), columns, around, total, mean

    spec = P("a")
    return jax.shard_map(
        each,
        mesh=mesh,
        in_specs=spec,
        out_specs=(P(), P(None, "a"), spec, (P(), P()), spec),
        check_vma=False,
    )


def _alone(count):
    def function(x):
        rows = x.reshape(count, -1, x.shape[1])
        return x.sum(), x, jnp.roll(x, x.shape[0] // count, 0), (x.sum(0), rows.max((0, 2))), x

    return function


@few("count", [1, 2, 4], quick=["2", "4"])
def test_what_several_devices_run_is_equal_to_what_one_does(count):
    x = jnp.ones((8, 4))
    found = equal(_over(mesh_of(count), None), _alone(count), x)
    assert found.verdict == "equal", found
    found = equal(_over(mesh_of(count), count - 1), _alone(count), x)
    assert found.verdict == "different", found


@pytest.mark.parametrize("extents", [(2,), (3,), (2, 2)])
def test_what_is_lowered_over_a_mesh_is_checked(extents):
    def step(w, x):
        return w - 0.1 * jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).sum())(w)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cl.lower(cl.trace(step, W, X), mesh=mesh_of(*extents), check="equal")


# --- check="equal" ----------------------------------------------------------------------------------------------


def halved_where_it_is_reduced(closed):
    """A rule on jaxprs that is wrong: what is summed is halved."""

    def rule(eqn):
        if eqn.primitive.name != "reduce_sum":
            return None
        return lambda x: [jnp.sum(x, axis=eqn.params["axes"]) * 0.5]

    return rewrite(closed, rule)


def _mean(graph, x):
    return graph.add_vertex("mean", cl.codelet(lambda x: jnp.mean(x)), x=x)


def test_what_is_lowered_is_checked(monkeypatch):
    x = jnp.ones((4, 5))
    layer = cl.lower(_mean, check="equal")
    assert float(layer(x)) == 1
    traced = cl.trace(lambda x: x.sum(0), x, check="equal")
    assert traced(x).tolist() == [4.0] * 5
    assert cl.lower(traced, check="equal").flat([x])[0].tolist() == [4.0] * 5
    monkeypatch.setattr(simplify, "recompute", halved_where_it_is_reduced)
    with pytest.raises(cl.NotEqualError, match=r"what is lowered is not equal to its graph(?s:.)*is .* and "):
        cl.lower(_mean, check="equal")(x)
    with pytest.raises(cl.NotEqualError, match="what a trace is lowered to is not equal to the function"):
        cl.trace(lambda x: x.sum(0), x, check="equal")


def test_what_cannot_be_checked_is_told():
    many = lambda x: lax.while_loop(lambda c: c.sum() < 9, lambda c: 2 * c, x)  # noqa: E731
    with pytest.warns(cl.UndecidedWarning, match="how often it runs depends on floats"):
        cl.trace(many, X, check="equal")
    graph = cl.Graph()
    x, stream = graph.add_variable("x", (3,)), graph.add_input_stream("in", (3,))
    with pytest.warns(cl.UndecidedWarning, match="it has streams"):
        cl.lower(graph, cl.Copy(stream, x), inputs=[], outputs=[x], check="equal")


@pytest.mark.parametrize(
    "made",
    [
        lambda: cl.lower(_mean, check="same"),
        lambda: cl.trace(jnp.sin, X, check=True),
        lambda: cl.gradient(_energy()[0], of=_energy()[1], wrt=[], check="exact"),
    ],
)
def test_other_words_are_no_check(made):
    with pytest.raises(cl.ProgramError, match="check is no check"):
        made()


def _energy():
    """A graph with a loop, a look-up and a sum, its result, and what it is of."""
    graph = cl.Graph()
    x, s = graph.add_variable("x", (6, 4)), graph.add_variable("s", (4,))
    y, i = graph.add_variable("y", ()), cl.grid(4)
    step = cl.codelet(lambda s, x: {"s": jnp.tanh(s * x + x)})
    with graph.record() as body:
        for k in (0, 5, 2):
            graph.add_vertex(f"step {k}", step, s=s[i], x=x[k, i])
    with graph.record() as last:
        graph.add_vertex("sum", cl.codelet(lambda s: jnp.sum(s**2)), s=s, out=y)
    return graph, y, [x, s], [cl.Repeat(2, body), last]


def test_gradients_are_checked():
    graph, y, by, program = _energy()
    found = cl.gradient(graph, of=y, wrt=by, program=program, check="equal")
    assert found[by[0]].shape == (6, 4)
    graph, y, by, program = _energy()
    sums = graph.add_variable("c", ())
    part = by[0][1:3]
    assert cl.gradient(graph, of=y, wrt=[part, by[1]], program=program, cotangent=sums, check="equal")[part].shape == (
        2,
        4,
    )


def test_a_wrong_gradient_is_told(monkeypatch):
    graph, y, by, program = _energy()
    real = cl.Gradient

    def turned(target, tensors, forward, backward):
        return real(
            target, {own: made[::-1] if made.ndim == 1 else made for own, made in tensors.items()}, forward, backward
        )

    monkeypatch.setattr("lowering.adjoint.gradient.Gradient", turned)
    with pytest.raises(cl.NotEqualError, match="the gradient by vertices is not equal to JAX's"):
        cl.gradient(graph, of=y, wrt=by, program=program, check="equal")
