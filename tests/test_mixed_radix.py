"""Dimensions made of several by a reshape are read and written by slices and transposes, not through tables."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from codelet.views.mixed_radix import split_digits
from tests.examples import examples


@cl.codelet
def doubled(x):
    return 2 * x


def primitives(run):
    return {eqn.primitive.name for eqn in run.jaxpr.jaxpr.eqns}


def test_heads_are_merged_by_a_transpose():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (3, 5, 4)), graph.add_variable("y", (3, 5, 4))
    token = cl.grid(5)
    merged = [tensor.transpose(1, 0, 2).reshape(5, 12) for tensor in (x, y)]
    graph.add_vertex("double", doubled, x=merged[0][token], out=merged[1][token])
    run = cl.lower(graph, inputs=[x], outputs=[y])
    assert not {"gather", "scatter"} & primitives(run)
    values = np.arange(60, dtype=np.float32).reshape(3, 5, 4)
    np.testing.assert_array_equal(run({"x": values})["y"], 2 * values)


def test_digits_of_an_index():
    index = cl.Graph().add_variable("x", (3, 5, 4)).transpose(1, 0, 2).reshape(5, 12).index
    digits = split_digits(index)
    assert digits is not None
    assert str(digits.index) == "Index(4*f0 + 20*f1 + f2, shape=(5, 3, 4))"
    assert digits.groups == ((0,), (1, 2))
    np.testing.assert_array_equal(digits.index.values().reshape(5, 12), index.values())


@st.composite
def shuffled(draw):
    """A shape, an order of its dimensions, a shape to reshape them to by merging, and whether the first is reversed."""
    shape = draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    order = draw(st.permutations(range(len(shape))))
    moved = [shape[d] for d in order]
    cuts = sorted(draw(st.sets(st.integers(1, len(shape) - 1), min_size=1)))
    ends = zip([0, *cuts], [*cuts, len(shape)], strict=True)
    return shape, order, [int(np.prod(moved[a:b])) for a, b in ends], draw(st.booleans())


def is_merged(extents, merged):
    """Whether some dimensions are others merged: each of them is several of those that lie side by side."""
    return set(np.cumprod(merged).tolist()) <= {1, *np.cumprod(extents).tolist()}


@examples(6)
@given(shuffled(), shuffled(), st.booleans())
def test_reads_and_writes_agree_with_tables(read, written, is_copied):
    """What is read through one shuffled view is written through another of the same size, by vertices or a copy."""
    shape, order, seen, is_reversed = read
    size = int(np.prod(shape))
    graph = cl.Graph()
    x = graph.add_variable("x", shape, jnp.int32)
    view = x.transpose(*order).reshape(*seen)
    view = view[::-1] if is_reversed else view
    other, back, _, _ = written
    y = graph.add_variable("y", other if np.prod(other) == size else shape, jnp.int32)
    target = y.transpose(*back).reshape(*seen) if np.prod(other) == size else y.transpose(*order).reshape(*seen)
    if is_copied:
        program = cl.Copy(view, target)
    else:
        i = cl.grid(seen[0])
        graph.add_vertex("double", doubled, x=view[i], out=target[i])
        program = None
    values = {"x": np.arange(size, dtype=np.int32).reshape(shape)}
    expected = cl.interpret(graph, values=values, outputs=["y"], program=program)["y"]
    run = cl.lower(graph, program, inputs=[x], outputs=[y])
    np.testing.assert_array_equal(jax.jit(run)(values)["y"], expected)
    if target.source.shape != tuple(other) or is_merged([other[d] for d in back], seen):
        assert not {"gather", "scatter"} & primitives(run)
