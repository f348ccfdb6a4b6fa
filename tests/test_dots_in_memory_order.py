"""Dots in memory order: what is laid out only to be multiplied is multiplied as it lies, and values stay."""

import math
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st
from jax import lax
from jax.extend import core as jax_core

import codelet as cl
from lowering.jaxprs.dots_in_memory_order import dots_in_memory_order
from lowering.jaxprs.narrow_products import multiply_narrowly
from tests.at_once import at_once, with_slopes
from tests.examples import examples
from tests.ops_cases import array, assert_alike
from tests.rearrangements import summed_products


def rewritten(function, *arrays):
    return dots_in_memory_order(jax.make_jaxpr(function)(*arrays))


def names(closed):
    return [eqn.primitive.name for eqn in closed.jaxpr.eqns]


def dot_of(closed):
    (eqn,) = (eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name == "dot_general")
    return eqn


def numbers_of(closed):
    return tuple(tuple(tuple(map(int, own)) for own in pair) for pair in dot_of(closed).params["dimension_numbers"])


def whole_numbers(shapes):
    return [np.random.default_rng(k).integers(-4, 5, shape).astype(np.float32) for k, shape in enumerate(shapes)]


def check_values(runs):
    """What jaxprs make of arrays of their shapes, and the functions that they were of, all compiled as one program."""
    arrays = [whole_numbers(shapes) for _, _, shapes in runs]
    made = at_once(
        *(lambda own, k=k, f=f: f(*own[k]) for k, (_, f, _) in enumerate(runs)),
        *(lambda own, k=k, c=c: jax_core.jaxpr_as_fun(c)(*own[k])[0] for k, (c, _, _) in enumerate(runs)),
    )(arrays)
    for expected, found in zip(made[: len(runs)], made[len(runs) :], strict=True):
        np.testing.assert_array_equal(found, expected)


@examples(6, phases=[Phase.generate])
@given(st.lists(summed_products(), min_size=8, max_size=8))
def test_values_are_kept(drawn):
    runs = [(rewritten(function, *whole_numbers(shapes)), function, shapes) for function, shapes in drawn]
    check_values(runs)
    for closed, _, _ in runs:
        assert str(dots_in_memory_order(closed)) == str(closed)


PRECISIONS = (lax.Precision.HIGH, lax.Precision.HIGHEST)


@st.composite
def laid_out(draw: Any) -> Any:
    """A dot of matrices (summed, left) and (summed, right) of which each dimension is split, in drawn orders."""
    summed, left, right = (tuple(draw(st.lists(st.integers(1, 3), max_size=2))) for _ in range(3))
    of_left, of_right = (tuple(draw(st.permutations(range(len(summed) + len(own))))) for own in (left, right))
    pairs = [(of_left.index(k), of_right.index(k)) for k in draw(st.permutations(range(len(summed))))]
    numbers: Any = (tuple(tuple(pair[k] for pair in pairs) for k in (0, 1)), ((), ()))
    kept = [(side, d) for side, own in enumerate((of_left, of_right)) for d in own if d >= len(summed)]
    is_turned = draw(st.booleans())
    order = sorted(range(len(kept)), key=lambda k: (kept[k][0] ^ is_turned, kept[k]))

    def function(a, b):
        a = a.reshape(*summed, *left).transpose(of_left)
        b = b.reshape(*summed, *right).transpose(of_right)
        return lax.dot_general(a, b, numbers, precision=PRECISIONS).transpose(order)

    return function, [(math.prod(summed), math.prod(own)) for own in (left, right)], is_turned


@examples(6, phases=[Phase.generate])
@given(st.lists(laid_out(), min_size=8, max_size=8))
def test_however_matrices_are_laid_out_their_product_is_one_of_matrices(drawn):
    runs = [(rewritten(function, *whole_numbers(shapes)), function, shapes) for function, shapes, _ in drawn]
    check_values(runs)
    for (closed, _, shapes), (_, _, is_turned) in zip(runs, drawn, strict=True):
        (summed, left), (_, right) = shapes
        if summed == 1 or left == right == 1:
            continue
        turn = -1 if is_turned and min(left, right) > 1 else 1
        eqn = dot_of(closed)
        assert "transpose" not in names(closed)
        assert [atom.aval.shape for atom in eqn.invars] == [(summed, n)[: 1 + (n > 1)] for n in (left, right)[::turn]]
        assert eqn.params["precision"] == PRECISIONS[::turn]
        assert numbers_of(closed) == (((0,), (0,)), ((), ()))


def transposed_dot(a, b):
    return lax.dot_general(a.T.reshape(3, 2, 5), b, (((2,), (1,)), ((), ())))


A, B = whole_numbers([(5, 6), (4, 5)])


def used_again(a, b):
    flat = transposed_dot(a, b).reshape(6, 4)
    return flat.T, flat


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (transposed_dot, ["dot_general", "reshape"]),
        (lambda a, b: transposed_dot(a, b).reshape(6, 4).T, ["dot_general"]),
        (used_again, ["dot_general", "transpose"]),
        (lambda a, b: a.T @ b.T, ["dot_general"]),
        (lambda a, b: (b @ a).T, ["dot_general"]),
        (lambda a, b: b @ a, ["dot_general"]),
        # The smaller one is transposed, rather than the result.
        (
            lambda a, b: lax.dot_general(b.reshape(2, 2, 5).transpose(1, 0, 2), a, (((2,), (0,)), ((), ()))),
            ["reshape", "transpose", "reshape", "dot_general", "reshape"],
        ),
        # So it is where the result is, unless the operand is not much smaller.
        (
            lambda a, b: (a.T @ a).reshape(6, 3, 2).transpose(0, 2, 1),
            ["dot_general", "reshape", "transpose"],
        ),
        (
            lambda a, b: (b[:, :2] @ a.reshape(2, 15)).reshape(4, 5, 3).transpose(0, 2, 1),
            ["slice", "reshape", "transpose", "reshape", "dot_general", "reshape"],
        ),
        # What lies in memory in parts that are apart stays laid out.
        (lambda a, b: a.reshape(5, 3, 2).transpose(1, 0, 2).reshape(3, 10) @ b.reshape(10, 2), None),
        # Nothing that a dot of matrices could do.
        (lambda a, b: lax.dot_general(a, b, (((), ()), ((0,), (1,)))), None),
        (lambda a, b: lax.dot_general(a.T, b[0], (((), ()), ((), ()))), None),
    ],
)
def test_form(function, expected):
    before = jax.make_jaxpr(function)(A, B)
    after = rewritten(function, A, B)
    assert names(after) == (names(before) if expected is None else expected)
    for own, plain in zip(jax_core.jaxpr_as_fun(after)(A, B), jax_core.jaxpr_as_fun(before)(A, B), strict=True):
        np.testing.assert_array_equal(own, plain)


def test_batches_stay_in_order():
    q, k = whole_numbers([(2, 5, 3, 4), (2, 6, 3, 4)])

    def scores(q, k):
        return lax.dot_general(q.transpose(0, 2, 1, 3), k.transpose(0, 2, 3, 1), (((3,), (2,)), ((0, 1), (0, 1))))

    closed = rewritten(scores, q, k)
    assert names(closed) == ["dot_general"]
    assert numbers_of(closed) == (((3,), (3,)), ((0, 2), (0, 2)))
    np.testing.assert_array_equal(jax_core.jaxpr_as_fun(closed)(q, k)[0], scores(q, k))


ALGORITHM = lax.DotAlgorithm(np.float32, np.float32, np.float32, 1, 1, 1, False)


@pytest.mark.parametrize(
    "parameters",
    [{"precision": lax.Precision.HIGH, "preferred_element_type": np.int8}, {"preferred_element_type": np.int32}],
    ids=str,
)
def test_parameters_are_kept(parameters):
    def function(a, b):
        return lax.dot_general(b, a, (((1,), (0,)), ((), ())), **parameters).T

    a, b = A.astype(np.int8), B.astype(np.int8)
    after, before = (dot_of(own) for own in (rewritten(function, a, b), jax.make_jaxpr(function)(a, b)))
    assert [atom.aval.shape for atom in after.invars] == [A.shape, B.shape]
    assert {**after.params, "dimension_numbers": None} == {**before.params, "dimension_numbers": None}


def test_operands_of_an_algorithm_are_not_exchanged():
    closed = rewritten(lambda a, b: lax.dot(b, a, precision=ALGORITHM).T, A, B)
    assert names(closed) == ["dot_general", "transpose"]


def test_a_parameter_that_is_not_known_keeps_all():
    closed = jax.make_jaxpr(transposed_dot)(A, B)
    eqns = [
        eqn.replace(params={**eqn.params, "told_later": 1}) if eqn.primitive.name == "dot_general" else eqn
        for eqn in closed.jaxpr.eqns
    ]
    unknown = jax_core.ClosedJaxpr(closed.jaxpr.replace(eqns=eqns), closed.consts)
    assert names(dots_in_memory_order(unknown)) == names(closed)


def test_in_the_bodies_of_loops():
    def function(a, b):
        return lax.scan(lambda carry, x: (carry + transposed_dot(a, x).sum(), transposed_dot(a, x)), 0.0, b)[1]

    a, b = whole_numbers([(5, 6), (3, 4, 5)])
    closed = rewritten(function, a, b)
    (loop,) = (eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name == "scan")
    assert "transpose" not in names(loop.params["jaxpr"])
    np.testing.assert_array_equal(jax_core.jaxpr_as_fun(closed)(a, b)[0], function(a, b))


def test_a_narrow_product_is_found_behind_any_layout():
    a, b = array((130, 2, 256)), array((130, 3, 3))

    def function(a, b):
        a, b = a.transpose(1, 2, 0)[..., None], b.transpose(1, 2, 0)[..., None]
        return lax.dot_general(b, a, (((2, 3), (2, 3)), ((), ()))).reshape(9, 512).T

    closed = multiply_narrowly(rewritten(function, a, b))
    assert "dot_general" not in names(closed)
    run = lambda a, b: jax_core.jaxpr_as_fun(closed)(a, b)[0]  # noqa: E731
    ours, plain = at_once(with_slopes(run), with_slopes(function))(a, b)
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        assert_alike(mine, other, 1e-4)


@pytest.mark.parametrize(
    "build",
    [
        lambda graph, x, w, grain: cl.ops.conv_general_dilated(graph, x, w, (1, 1), "VALID", grain=grain),
        lambda graph, g, w, grain: cl.ops.conv_input_gradient(
            graph, g, w.transpose(1, 0, 2, 3), (1, 24, 3, 3), (1, 1), ((0, 0), (0, 0)), grain=grain
        ),
    ],
    ids=["forward", "by input"],
)
def test_convolutions_of_one_by_one_are_one_product_whatever_the_grain(build):
    x, w = array((1, 16, 3, 3)), array((24, 16, 1, 1))
    programs = [
        str(jax.make_jaxpr(cl.lower(lambda graph, x, w, grain=grain: build(graph, x, w, grain)))(x, w))
        for grain in (None, 16)
    ]
    assert programs[0] == programs[1]
    assert "transpose" not in programs[0]
