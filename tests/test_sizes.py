"""Sizes: what does not fit is told before it is tried, and what is touched in stretches is no matter how long."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from codelet.views.index import row_major
from lowering.host_memory import check_host_memory, host_memory
from lowering.pipeline import plan_engine, plan_graph
from lowering.plan.elements import Elements, affine_runs
from tests.examples import examples

HUGE, VAST = 2**31, 2**40


@cl.codelet
def double(x):
    return 2 * x


def planned(graph, program, inputs, outputs):
    """A checked plan of a program as a function of whole variables."""
    return plan_graph(graph, program, [tensor.source for tensor in inputs], outputs)


def doubling(size):
    graph = cl.Graph()
    x, y, i = graph.add_variable("x", (size,)), graph.add_variable("y", (size,)), cl.grid(size)
    graph.add_vertex("double", double, x=x[i], out=y[i])
    return graph, x, y


# --- sets of elements -----------------------------------------------------------------------------------


SIZE = 40


@st.composite
def elements(draw):
    """Some of 40 elements, as an access map names them, or as flags."""
    if draw(st.booleans()):
        flags = np.array(draw(st.lists(st.booleans(), min_size=SIZE, max_size=SIZE)))
        return Elements.of_flags(flags), flags
    index, (i, j) = row_major((SIZE,)), cl.grid(3, 2)
    axes = (*i.axes, *j.axes)
    low = draw(st.integers(0, 5))
    step = draw(st.sampled_from([1, 2, -1, 3]))
    part = index[low : low + 9][::step] if step > 0 else index[low : low + 9][::-1]
    symbols = draw(st.integers(0, 9)) * i + draw(st.integers(-2, 2)) * j + 3
    moved = part + symbols
    flags = np.zeros(SIZE, bool)
    flags[moved.values(axes)] = True
    return Elements.of_view(moved, axes, SIZE, "x"), flags


@examples(80)
@given(elements(), elements())
def test_sets_of_elements_are_sets(first, second):
    (a, flags), (b, others) = first, second
    for own, expected in (
        (a, flags), (a | b, flags | others), (a & b, flags & others), (a - b, flags & ~others)
    ):  # fmt: skip
        np.testing.assert_array_equal(own.as_flags(), expected)
        assert own.is_all == expected.all()
        assert own.first == (int(expected.argmax()) if expected.any() else None)
        assert own.equals(Elements.of_flags(expected))
        named = np.zeros(SIZE, int)
        for index in own.indices():
            np.add.at(named, index.values().reshape(-1), 1)
        np.testing.assert_array_equal(named, expected)  # each in one
    assert a.equals(b) == bool((flags == others).all())


def test_stretches_are_found_by_strides():
    i = cl.grid(VAST)
    runs = affine_runs(row_major((3 * VAST,))[0] + 3 * i, i.axes, 10)
    assert runs is None  # a run for each
    whole = Elements.of_view(row_major((3 * VAST,)).reshape((VAST, 3))[0] + 3 * i, i.axes, 3 * VAST, "x")
    assert whole.is_all


# --- what is too large ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [HUGE, VAST])
def test_whole_writes_are_checked_whatever_their_size(size):
    graph, x, y = doubling(size)
    plan = planned(graph, graph.default_program, [x], [y])
    assert plan.steps
    with pytest.raises(cl.UninitializedReadError, match=r"'x\[0\]'|x\[0\]"):
        planned(graph, graph.default_program, [], [y])
    assert plan_engine(graph, cl.Sequence(graph.compute_sets[0], cl.Copy(y, x))).steps
    half = cl.Copy(x[: size // 2], y[size // 2 :])
    with pytest.raises(cl.UninitializedReadError, match="y\\[0\\]"):
        planned(graph, half, [x], [y])


def test_what_the_machine_cannot_hold_is_told_first():
    graph, _, _ = doubling(HUGE)
    engine = cl.Engine(graph)
    for ask in (engine.machine, engine.profile):
        with pytest.raises(cl.OutOfTileMemoryError) as caught:
            ask()
        assert "take 16.0 GiB, more than all tiles together have" in str(caught.value)
        assert "8,589,934,592 bytes: x: float32[2147483648]" in str(caught.value)
    with pytest.raises(cl.OutOfTileMemoryError, match=r"take 8\.0 GiB"):
        engine.machine(host_visible=[])


def test_what_this_computer_cannot_hold_is_told_first():
    graph, x, y = doubling(VAST)
    with pytest.raises(
        cl.SizeError, match=r"plan of 2,199,023,255,552 elements and 1,099,511,627,776 vertices"
    ) as caught:
        cl.Engine(graph).machine(allow_out_of_memory=True)
    assert "52.0 TiB would be needed" in str(caught.value)
    for make in (
        lambda: cl.Engine(graph, execution="tiles"),
        lambda: cl.Engine(graph).machine(placement="linear", allow_out_of_memory=True),
        lambda: planned(graph, cl.Copy(x[::2], y[::2]), [x], [y[::2]]),
    ):
        with pytest.raises(cl.SizeError, match="this computer's memory does not hold"):
            make()
    assert issubclass(cl.SizeError, MemoryError)


def test_a_computer_that_does_not_say_what_it_has_is_not_asked_for_more(monkeypatch):
    def unknown(name):
        raise ValueError(name)

    monkeypatch.setattr("os.sysconf", unknown)
    assert host_memory() is None
    check_host_memory(2**60, "anything")
