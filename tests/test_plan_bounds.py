"""Bounds of planners: no way that they look at takes fewer cycles than its bound, or a better plan is missed."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from codelet.ops import block_planning, conv_planning, planning
from codelet.ops.homes import ELSEWHERE
from tests.examples import examples

F32 = np.dtype(np.float32)


def looked_at(module, plan, *, are_bounds=False):
    """The bounds and the cycles of all ways that a planner looks at; whether its estimates are bounds as well."""
    found = []

    def best_of(operation, target, offers, *share):
        plans = offers.plans(operation, range(len(offers.ways)))
        least = np.broadcast_to(offers.cycles - offers.later_cycles + offers.least_to_finish, len(plans))
        if are_bounds:
            found.extend((bound, plan.total_cycles) for bound, plan in zip(offers.estimates, plans, strict=True))
        found.extend((bound, plan.total_cycles) for bound, plan in zip(least, plans, strict=True))
        return planning.best_of(operation, target, offers, *share)

    with patch.object(module, "best_of", best_of):
        plan()
    return found


TARGETS = st.sampled_from([cl.IPU(), cl.IPU("mk1"), cl.IPU(num_tiles=16)])


@examples(10)
@given(TARGETS, st.integers(2, 1500), st.integers(1, 5000), st.booleans())
def test_sums_take_what_their_bounds_say_or_more(target, count, outputs, there):
    home = (count, -(-outputs // target.num_tiles)) if there else ELSEWHERE
    plan = block_planning.plan_sum(target, count, outputs, F32, F32, home=home)
    bound = block_planning.least_of_sums(target, count, outputs, (F32, F32), block_planning.add_up, not there)
    assert bound <= plan.total_cycles


@pytest.mark.parametrize("function", [lambda x, y: x + y, lambda x, y: x / (1 + y * y)], ids=["sum", "ratio"])
@examples(6)
@given(target=TARGETS, shape=st.lists(st.integers(1, 300), min_size=1, max_size=3), row=st.booleans())
def test_maps_take_what_their_bounds_say_or_more(function, target, shape, row):
    graph = cl.Graph(target)
    x, y = graph.add_variable("x", shape), graph.add_variable("y", shape[-1:] if row else shape)
    block_planning.plan_work.cache_clear()
    found = looked_at(block_planning, lambda: cl.ops.plan_map(graph, function, x, y))
    assert found
    assert all(bound <= cycles for bound, cycles in found)


SIZES = st.sampled_from([1, 3, 8, 20, 64])


@pytest.mark.slow
@examples(6)
@given(TARGETS, SIZES, SIZES, st.integers(1, 30), st.integers(1, 5), st.integers(1, 3), st.booleans())
def test_convolutions_take_what_their_bounds_say_or_more(target, channels, filters, side, taps, stride, is_gradient):
    of = "input gradient" if is_gradient else "results"
    conv_planning.plan_convolved.cache_clear()
    sizes = (1, channels, side, side), (filters, channels, taps, taps), (stride, stride), "SAME"
    found = looked_at(conv_planning, lambda: cl.ops.plan_conv(target, *sizes, of=of), are_bounds=True)
    assert found
    assert all(bound <= cycles for bound, cycles in found)
