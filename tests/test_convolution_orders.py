"""Convolutions in every order of dimensions of image, kernel and result: one convolution, as they lie in memory."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

import codelet as cl
from tests.examples import examples, few
from tests.ops_cases import array, assert_alike


@dataclass(frozen=True, eq=False)
class Convolved:
    """A convolution of arrays: their shapes, and what `lax.conv_general_dilated` is given beside them."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    options: dict[str, Any]

    def __call__(self, x, w):
        return lax.conv_general_dilated(x, w, **self.options)


def convolved(numbers, sizes, **options):
    """A convolution in an order of dimensions, of sizes by their letters; the kernel's places are in small letters."""
    image, kernel, _ = numbers
    rank = len(image) - 2
    kernel = [own if own in "OI" else own.lower() for own in kernel]
    given_ = {"window_strides": (1,) * rank, "padding": "VALID", "dimension_numbers": numbers, **options}
    return Convolved(tuple(map(sizes.__getitem__, image)), tuple(map(sizes.__getitem__, kernel)), given_)


def lowered(function, *shapes, dtype=np.float32):
    """A traced function, lowered."""
    traced = cl.trace(function, *(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes))
    return cl.lower(traced.graph, traced.program, inputs=list(traced.inputs), outputs=jax.tree.leaves(traced.outputs))


def primitives(run):
    return [eqn.primitive.name for eqn in run.jaxpr.jaxpr.eqns if eqn.primitive.name not in ("reshape", "squeeze")]


SIZES = {"N": 3, "C": 5, "H": 9, "W": 8, "D": 4, "O": 7, "I": 5, "h": 3, "w": 2, "d": 2}

ORDERS = [
    ("NHWC", "HWIO", "NHWC"),
    ("NCHW", "OIHW", "NCHW"),
    ("HWNC", "HWIO", "HWNC"),
    ("NHWC", "OHWI", "NHWC"),
    ("NHWC", "HWIO", "NCHW"),
    ("NCHW", "HWIO", "NHWC"),
    ("CHWN", "IHWO", "CHWN"),
    ("NWHC", "WHIO", "NWHC"),
    ("HNCW", "IOHW", "WNHC"),
    ("NWC", "WIO", "NWC"),
    ("WNC", "OIW", "NCW"),
    ("NDHWC", "DHWIO", "NDHWC"),
    ("DNHCW", "IDHWO", "NDHWC"),
]

WAYS = {
    "valid": ({}, {}),
    "same": ({}, {"padding": "SAME"}),
    "strides": ({"h": 4, "w": 3, "d": 3}, {"padding": "SAME", "window_strides": 2}),
    "apart": ({}, {"rhs_dilation": 2}),
    "among zeros": ({}, {"padding": (1, 1), "lhs_dilation": 2}),
    "one image": ({"N": 1}, {}),
    "rows": ({"w": 1}, {}),
    "columns": ({"h": 1}, {}),
    "one channel": ({"C": 1, "I": 1}, {}),
    "one result": ({"O": 1}, {}),
    "parts of channels": ({"N": 1, "C": 65, "I": 65, "O": 65}, {"padding": "SAME"}),
}


def in_way(numbers, way):
    sizes, options = WAYS[way]
    rank = len(numbers[0]) - 2
    several = {name: own if isinstance(own, str) else (own,) * rank for name, own in options.items()}
    return convolved(numbers, {**SIZES, **sizes}, **several)


@few(
    "numbers, way",
    ((n, way) for n, way in itertools.product(ORDERS, WAYS) if way != "rows" or "H" in n[0]),
    quick=["(NHWC, HWIO, NHWC), rows"],
)
def test_a_convolution_in_any_order_is_one_as_it_lies(numbers, way):
    f = in_way(numbers, way)
    run = lowered(f, f.x, f.w)
    assert primitives(run) == ["conv_general_dilated"]
    x, w = array(f.x), array(f.w, seed=1)
    assert_alike(jax.jit(lambda *own: run.flat(own)[0])(x, w), jax.jit(f)(x, w))


@pytest.mark.parametrize("numbers", [("NHWC", "HWIO", "NHWC"), ("NHWC", "OHWI", "NCHW")])
def test_partial_sums_of_large_images_are_one_convolution(numbers):
    sizes = {**SIZES, "N": 8, "C": 16, "I": 16, "O": 16, "H": 56, "W": 56, "w": 3}
    f = convolved(numbers, sizes)
    run = lowered(f, f.x, f.w)
    assert "runs as a convolution" in str(run.plan)
    assert primitives(run) == ["conv_general_dilated"]


@few("numbers", [ORDERS[k] for k in (0, 3, 8, 11)], quick=["(NHWC, OHWI, NHWC)"])
def test_gradients_are_convolutions_as_they_lie(numbers):
    f = convolved(numbers, {**SIZES, "h": 3, "w": 3}, padding="SAME")
    loss = lambda x, w: jnp.sum(f(x, w) ** 2)  # noqa: E731
    run = lowered(jax.grad(loss, (0, 1)), f.x, f.w)
    assert primitives(run).count("conv_general_dilated") == 3
    assert not set(primitives(run)) & {"transpose", "gather", "concatenate", "stack", "dot_general"}
    own = cl.trace(f, *map(array, (f.x, f.w)))
    slopes = jax.make_jaxpr(jax.grad(lambda x, w: jnp.sum(own(x, w) ** 2), (0, 1)))(*map(array, (f.x, f.w)))
    assert str(slopes).count("conv_general_dilated[") == 3


def test_groups_of_the_batch_are_groups_of_channels():
    f = convolved(("NHWC", "HWIO", "NHWC"), {**SIZES, "N": 4, "O": 6}, batch_group_count=2)
    run = lowered(f, f.x, f.w)
    (one,) = [eqn for eqn in run.jaxpr.jaxpr.eqns if eqn.primitive.name == "conv_general_dilated"]
    assert one.params["feature_group_count"] == 2
    x, w = array(f.x), array(f.w, seed=1)
    assert_alike(jax.jit(lambda *own: run.flat(own)[0])(x, w), jax.jit(f)(x, w))


@few("dtype", [jnp.bfloat16, jnp.float16], quick=["float16"])
def test_floats_of_16_bits(dtype):
    f = convolved(ORDERS[0], SIZES, padding="SAME")
    run = lowered(f, f.x, f.w, dtype=dtype)
    assert primitives(run) == ["conv_general_dilated", "convert_element_type"]
    x, w = array(f.x, dtype), array(f.w, dtype, seed=1)
    assert_alike(jax.jit(lambda *own: run.flat(own)[0])(x, w), jax.jit(f)(x, w))


@st.composite
def convolutions(draw):
    """A convolution of any order of dimensions, of small sizes; and whether its windows overlap, none among zeros."""
    rank = draw(st.integers(1, 3))
    places = "DHW"[3 - rank :]
    numbers = tuple("".join(draw(st.permutations(own + places))) for own in ("NC", "OI", "NC"))
    small = st.integers(1, 3)
    groups = draw(st.sampled_from(["none", "none", "feature_group_count", "batch_group_count"]))
    count = 1 if groups == "none" else draw(st.integers(2, 3))
    channels, results, images = draw(small), draw(small), draw(small)
    sizes = {
        "N": images * (count if groups == "batch_group_count" else 1),
        "C": channels * (count if groups == "feature_group_count" else 1),
        "I": channels,
        "O": results * count,
    }
    options: dict[str, Any] = {name: [] for name in ("window_strides", "padding", "lhs_dilation", "rhs_dilation")}
    overlaps = False
    for own in places:
        taps, stride, apart = draw(small), draw(small), draw(st.integers(1, 2))
        between = draw(st.sampled_from([1, 1, 1, 2]))
        low, high = draw(st.integers(-1, 2)), draw(st.integers(0, 2))
        reach = (taps - 1) * apart + 1
        extent = draw(st.integers(max(1, (reach - low - high + between - 1) // between + 1), 7))
        sizes.update({own: extent, own.lower(): taps})
        for name, value in zip(options, (stride, (low, high), between, apart), strict=True):
            options[name].append(value)
        windows = ((extent - 1) * between + 1 + low + high - reach) // stride + 1
        overlaps |= windows > 1 and reach > stride
    options |= {groups: count} if count > 1 else {}
    plain = all(own == 1 for own in options["lhs_dilation"]) and count == 1
    return convolved(numbers, sizes, **options), overlaps and plain


def check_gradients(drawn):
    f, overlaps = drawn
    loss = lambda function: jax.value_and_grad(lambda x, w: jnp.sum(jnp.sin(function(x, w))), (0, 1))  # noqa: E731
    with jax.enable_x64(True):
        x, w = array(f.x, np.float64), array(f.w, np.float64, seed=1)
        traced = cl.trace(f, x, w)
        run = cl.lower(traced.graph, traced.program, inputs=list(traced.inputs), outputs=[traced.outputs])
        if overlaps:
            assert "runs as a convolution" in str(run.plan)
        given_ = {own.source.name: value for own, value in zip(traced.inputs, (x, w), strict=True)}
        (values,) = cl.interpret(traced.graph, values=given_, outputs=[traced.outputs]).values()
        assert_alike(values, f(x, w), 1e-12)
        every = jax.jit(lambda x, w: [loss(f)(x, w), loss(traced)(x, w), cl.trace(loss(f), x, w)(x, w)])
        plain, *others = every(x, w)
        for own in others:
            jax.tree.map(lambda a, b: assert_alike(a, b, 1e-12), own, plain)


@pytest.mark.slow
@examples(1)
@given(convolutions())
def test_drawn_convolutions_and_their_gradients(drawn):
    check_gradients(drawn)


@pytest.mark.slow
@examples(60)
@given(convolutions())
def test_very_many_convolutions_and_their_gradients(drawn):
    check_gradients(drawn)
