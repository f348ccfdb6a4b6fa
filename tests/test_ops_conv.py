"""Convolutions as operations, and their gradients as operations: values, slopes, plans, what is told of mistakes."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

import codelet as cl
from codelet.errors import CodeletError
from codelet.ops.conv_arguments import checked_sizes, seen_by_input, seen_by_kernel, seen_forward
from codelet.ops.conv_planning import offers, plan_convolved
from codelet.ops.conv_vertices import add_planned
from codelet.ops.planning import Plan
from tests.examples import examples, few
from tests.ops_cases import Case, array, check


def sizes(x, w, strides: Any = 1, padding: Any = "VALID", **options):
    return x, w, strides, padding, options


CASES = {
    "strides": sizes((2, 3, 9, 8), (5, 3, 3, 2), (2, 1), ((1, 2), (0, 1))),
    "valid": sizes((1, 3, 8, 8), (5, 3, 3, 3)),
    "among zeros": sizes(
        (1, 3, 7, 6), (4, 3, 3, 2), (3, 2), ((1, 2), (0, 1)), lhs_dilation=(2, 3), rhs_dilation=(2, 1)
    ),
    "groups": sizes((1, 6, 7, 7), (4, 3, 3, 3), 2, "SAME", feature_group_count=2),
    "each channel": sizes((1, 5, 7, 7), (5, 1, 3, 3), 1, "SAME", feature_group_count=5),
    "groups of the batch": sizes((4, 3, 6, 7), (4, 3, 3, 3), 1, "SAME", batch_group_count=2),
    "one dimension": sizes((2, 9, 3), (3, 3, 5), 2, "SAME", dimension_numbers=("NHC", "HIO", "NHC")),
    "three dimensions": sizes((1, 2, 4, 5, 4), (3, 2, 2, 3, 1), 1, "SAME_LOWER"),
    "no kernel to speak of": sizes((1, 4, 5, 5), (3, 4, 1, 1), 2),
    "no dimension": sizes((3, 4), (5, 4)),
    "of one": sizes((1, 1, 1, 1), (1, 1, 1, 1)),
}


def case_of(name, grain=None, dtype=jnp.float32, tolerance=None):
    x, w, strides, padding, options = CASES[name]
    several = strides if isinstance(strides, tuple) else (strides,) * (len(x) - 2)
    return Case(
        lambda graph, x, w: cl.ops.conv_general_dilated(graph, x, w, strides, padding, grain=grain, **options),
        lambda x, w: lax.conv_general_dilated(x, w, several, padding, **options),
        (array(x, dtype), array(w, dtype, seed=1)),
        tolerance,
    )


def all_of(name, grain=None, dtype=jnp.float32):
    """A convolution and both gradients as operations, beside the vector-Jacobian product."""
    x, w, strides, padding, options = CASES[name]
    forward = case_of(name, grain)
    kinds = [jax.ShapeDtypeStruct(shape, dtype) for shape in (x, w)]
    shape = jax.eval_shape(forward.plain, *kinds).shape

    def build(graph, g, x, w):
        given = {"grain": grain, **options}
        return (
            forward.build(graph, x, w),
            cl.ops.conv_input_gradient(graph, g, w, x.shape, strides, padding, **given),
            cl.ops.conv_kernel_gradient(graph, g, x, w.shape, strides, padding, **given),
        )

    def plain(g, x, w):
        value, pull = jax.vjp(forward.plain, x, w)
        return value, *pull(g)

    return Case(build, plain, (array(shape, dtype, seed=2), array(x, dtype), array(w, dtype, seed=1)), slopes=False)


@few(
    "name",
    CASES,
    quick=[
        "valid",
        "among zeros",
        "each channel",
        "groups of the batch",
        "one dimension",
        "no kernel to speak of",
        "no dimension",
        "of one",
    ],
)
def test_convolutions_and_their_gradients(name):
    check(all_of(name), interpreted=name == "groups", on_tiles=name == "strides")


@few("name", ["strides", "groups", "one dimension"], quick=["one dimension"])
def test_slopes(name):
    check(case_of(name))


@few("name, grain", [("strides", 40), ("strides", 1), ("groups", 100)], quick=["strides, 1", "groups, 100"])
def test_grains(name, grain):
    check(all_of(name, grain), interpreted=grain == 40)


@few("dtype", [jnp.float16, jnp.bfloat16, jnp.int32], quick=["int32"])
def test_dtypes(dtype):
    check(case_of("valid", dtype=dtype)._replace(slopes=False) if dtype == jnp.int32 else all_of("valid", dtype=dtype))


def test_results_and_partial_sums_have_dtypes_of_their_own():
    x, w = array((1, 40, 5, 5), jnp.float16), array((3, 40, 3, 3), jnp.float16, seed=1)
    for partials in (jnp.float16, jnp.float32):
        case = Case(
            lambda graph, x, w, partials=partials: cl.ops.conv_general_dilated(
                graph, x, w, preferred_element_type=jnp.float32, partials=partials
            ),
            lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "VALID", preferred_element_type=jnp.float32),
            (x, w),
            tolerance=1e-5 if partials == jnp.float32 else 5e-3,
            slopes=False,
        )
        check(case)


def test_padding_that_cuts_off():
    x, w = array((1, 2, 7, 6)), array((3, 2, 3, 3), seed=1)
    case = Case(
        lambda graph, x, w: cl.ops.conv_general_dilated(graph, x, w, 1, ((-2, 1), (1, -1))),
        lambda x, w: lax.conv_general_dilated(x[:, :, 2:, :-1], w, (1, 1), ((0, 1), (1, 0))),
        (x, w),
    )
    check(case, interpreted=True)


@pytest.mark.parametrize(
    ("x", "w"), [((0, 3, 5, 5), (2, 3, 3, 3)), ((1, 0, 5, 5), (2, 0, 3, 3)), ((1, 3, 2, 5), (2, 3, 3, 3))], ids=str
)
def test_nothing(x, w):
    case = Case(
        lambda graph, x, w: cl.ops.conv_general_dilated(graph, x, w),
        lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "VALID"),
        (array(x), array(w)),
    )
    check(case)


# --- plans ----------------------------------------------------------------------------------------------------

PLANNED = {
    "patches": ("results", (1, 32, 20, 20), (32, 32, 3, 3), 1, jnp.float32),
    "strides": ("input gradient", (1, 16, 20, 20), (32, 16, 3, 3), 2, jnp.float32),
    "positions": ("kernel gradient", (1, 32, 14, 14), (32, 32, 3, 3), 1, jnp.float16),
}


def tensors(graph, of, x, w, strides, dtype):
    """A convolution, or a gradient of it, in a graph; and its plan."""
    plain = lambda x, w: lax.conv_general_dilated(x, w, (strides,) * 2, "SAME")  # noqa: E731
    results = jax.eval_shape(plain, *(jax.ShapeDtypeStruct(shape, dtype) for shape in (x, w))).shape
    image, kernel = graph.add_variable("x", x, dtype), graph.add_variable("w", w, dtype)
    plan = cl.ops.plan_conv(graph.target, x, w, strides, "SAME", of=of, dtype=dtype)
    if of == "results":
        cl.ops.conv_general_dilated(graph, image, kernel, strides, "SAME")
    elif of == "input gradient":
        cl.ops.conv_input_gradient(graph, graph.add_variable("g", results, dtype), kernel, x, strides, "SAME")
    else:
        cl.ops.conv_kernel_gradient(graph, graph.add_variable("g", results, dtype), image, w, strides, "SAME")
    return plan


@few(
    "name, target",
    product(PLANNED, [cl.IPU("mk2"), cl.IPU(num_tiles=64)]),
    quick=["patches, IPU('mk2', num_tiles=64)"],
)
def test_cycles_are_as_planned(name, target):
    graph = cl.Graph(target)
    plan = tensors(graph, *PLANNED[name])
    assert plan.total_cycles == pytest.approx(cl.Engine(graph).profile().total_cycles, rel=0.1)
    assert "next best of" in str(plan)


@few("name", PLANNED, quick=["patches"])
def test_no_other_way_is_much_better(name):
    of, *_, strides, dtype = PLANNED[name]
    graph = cl.Graph(cl.IPU(num_tiles=16))
    plan = tensors(graph, of, (1, 8, 7, 7), (8, 8, 3, 3), strides, dtype)
    own = planned_of(graph, of, strides)
    made = offers(graph.target, own, None, graph.target.bytes_per_tile, priced=400)
    every = [plan.total_cycles for plan in made.plans("every", range(len(made.ways)))]
    assert plan.total_cycles <= 1.05 * min(every)


def planned_of(graph, of, strides):
    """The sizes of a convolution of a graph's tensors, or of a gradient of it."""
    image, kernel = graph.variable("x"), graph.variable("w")
    sizes = checked_sizes("conv", image.shape, kernel.shape, strides, "SAME", None, None, None, 1, 1)
    kinds = (np.dtype(np.float32), image.dtype)
    if of == "results":
        return seen_forward(image, kernel, sizes, *kinds).own
    if of == "input gradient":
        return seen_by_input(graph.variable("g"), kernel, sizes, *kinds).own
    return seen_by_kernel(graph.variable("g"), image, sizes, *kinds).own


@examples(3)
@given(st.data())
def test_any_plan_gives_the_same(data):
    draw = data.draw
    channels, filters, side, kernel = (draw(st.integers(1, n)) for n in (4, 4, 7, 3))
    strides, dilation = draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (3, 1)]))
    given_ = (strides, ((1, draw(st.integers(0, 2))),))
    seed = draw(st.integers(0, 5))

    def build(graph, x, w):
        sizes = checked_sizes("conv", x.shape, w.shape, *given_, None, dilation, None, 1, 1)
        seen = seen_forward(x, w, sizes, np.dtype(np.float32), np.dtype(np.float32))
        if not seen.own.results:
            return cl.ops.conv_general_dilated(graph, x, w, *given_, rhs_dilation=dilation)
        every = offers(graph.target, seen.own, draw(st.sampled_from([None, 2, 5])), 1 << 30, priced=400)
        k = draw(st.integers(0, len(every.ways) - 1))
        return add_planned(graph, seen, Plan("drawn", every.ways.at(k), (), every.details[int(every.which[k])]))

    plain = lambda x, w: lax.conv_general_dilated(x, w, (strides,), given_[1], rhs_dilation=(dilation,))  # noqa: E731
    check(
        Case(build, plain, (array((2, channels, side), seed=seed), array((filters, channels, kernel), seed=seed + 1)))
    )


def test_what_does_not_fit_is_done_in_turns():
    target = cl.IPU(num_tiles=16, bytes_per_tile=26_304)
    shapes = (4, 16, 16, 16), (16, 16, 3, 3)
    plan = cl.ops.plan_conv(target, *shapes, 1, "SAME")
    assert plan.detail("turns of batch") == 2
    assert plan.tile_bytes <= 0.6 * target.bytes_per_tile
    graph = cl.Graph(target)
    x, w = (graph.add_variable(name, shape) for name, shape in zip("xw", shapes, strict=True))
    y = cl.ops.conv_general_dilated(graph, x, w, 1, "SAME")
    engine, values = cl.Engine(graph), {"x": array(shapes[0], seed=1), "w": array(shapes[1], seed=2)}
    assert plan.total_cycles == pytest.approx(engine.profile().total_cycles, rel=0.1)
    engine.write(values)
    engine.run()
    expected = lax.conv_general_dilated(values["x"], values["w"], (1, 1), "SAME")
    np.testing.assert_allclose(engine.read(y), expected, atol=1e-4)


@pytest.mark.parametrize("cut", ["batch", "groups", "out_channels"])
def test_turns_of_any_part_of_the_results_give_the_same(cut):
    numbers = ("NHWC", "HWIO", "NHWC")

    def build(graph, x, w):
        sizes = checked_sizes("conv", x.shape, w.shape, 2, "SAME", None, None, numbers, 3, 1)
        seen = seen_forward(x, w, sizes, np.dtype(np.float32), np.dtype(np.float32))
        of_turn = replace(seen.own, **{cut: 2})
        plan = plan_convolved(graph.target, of_turn)
        return add_planned(graph, seen, plan)

    def plain(x, w):
        return lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=numbers, feature_group_count=3)

    check(Case(build, plain, (array((3, 6, 7, 6), seed=1), array((3, 3, 2, 9), seed=2))))


def test_the_largest_layer_is_planned_at_once():
    target = cl.IPU("mk2")
    found = [cl.ops.plan_conv(target, (1, 512, 7, 7), (512, 512, 3, 3), 1, "SAME") for _ in range(2)]
    assert found[0] is found[1]
    assert found[0].num_options < 500


# --- what is told of mistakes ----------------------------------------------------------------------------------

MISTAKES = {
    "dimensions": (((3, 4, 5), (2, 4, 3, 3)), {}, "have not the dimensions of a convolution"),
    "channels": (((1, 4, 5, 5), (2, 3, 3, 3)), {}, "channels of ops.conv_general_dilated do not fit"),
    "groups": (((1, 4, 5, 5), (3, 2, 3, 3)), {"feature_group_count": 2}, "do not fit"),
    "both groups": (
        ((2, 4, 5, 5), (4, 2, 3, 3)),
        {"feature_group_count": 2, "batch_group_count": 2},
        "groups of channels and of the batch",
    ),
    "no group": (((1, 4, 5, 5), (3, 2, 3, 3)), {"feature_group_count": 0}, "is not an integer from 1"),
    "strides": (((1, 3, 5, 5), (2, 3, 3, 3)), {"window_strides": (1, 0)}, "window_strides of ops"),
    "dilation": (((1, 3, 5, 5), (2, 3, 3, 3)), {"rhs_dilation": (1,)}, "rhs_dilation of ops"),
    "lhs_dilation": (((1, 3, 5, 5), (2, 3, 3, 3)), {"lhs_dilation": 2**21}, "2 integers from 1 to 1,048,576"),
    "padding by name": (((1, 3, 5, 5), (2, 3, 3, 3)), {"padding": "FULL"}, "is of no known name"),
    "padding": (((1, 3, 5, 5), (2, 3, 3, 3)), {"padding": ((1, 1),)}, "padding of ops.conv_general_dilated does not"),
    "numbers": (((1, 3, 5, 5), (2, 3, 3, 3)), {"dimension_numbers": ("NCHW", "OIHW")}, "dimension numbers"),
    "grain": (((1, 3, 5, 5), (2, 3, 3, 3)), {"grain": 0}, "grain of ops.conv_general_dilated"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    (x, w), options, told = MISTAKES[name]
    graph = cl.Graph()
    x, w = graph.add_variable("x", x), graph.add_variable("w", w)
    with pytest.raises(CodeletError) as caught:
        cl.ops.conv_general_dilated(graph, x, w, **options)
    assert told in str(caught.value)
    assert "given:" in str(caught.value)
    assert "expected:" in str(caught.value)
    assert __file__ in str(caught.value)
    assert not graph.num_vertices


def test_a_cotangent_of_another_shape():
    graph = cl.Graph()
    g, w = graph.add_variable("g", (1, 2, 4, 4)), graph.add_variable("w", (2, 3, 3, 3))
    with pytest.raises(CodeletError, match=r"the cotangent of ops\.conv_input_gradient has not the shape") as caught:
        cl.ops.conv_input_gradient(graph, g, w, (1, 3, 5, 5))
    assert "(1, 2, 3, 3)" in str(caught.value)
