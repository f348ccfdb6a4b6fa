"""What the placement pass chooses takes no more cycles than what anyone would try by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from lowering.machine.exchange import plan_exchange
from lowering.machine.place import place_and_exchange
from lowering.machine.step_cycles import total_cycles
from lowering.pipeline import plan_engine
from lowering.plan.plan import Plan
from lowering.plan.timeline import without_calls
from tests.examples import examples
from tests.obvious_placements import obvious, systolic
from tests.placements import plan_of, plan_of_graph
from tests.strategies import cases

NEAR = 1.02


def check_no_worse(plan: Plan) -> None:
    chosen = total_cycles(place_and_exchange(plan))
    for name, placement in obvious(plan):
        if placement.bytes_by_tile.max(initial=0) <= plan.graph.target.bytes_per_tile:
            assert chosen <= NEAR * total_cycles(plan_exchange(placement)), name


@cl.codelet
def add_up(x):
    return x.sum(0)


@cl.codelet
def scale(x):
    return 0.5 * x + 1


@cl.codelet
def dot(a, b):
    return a @ b


@st.composite
def drawn_chains(draw):
    """Compute sets one after another: of equal grids, over tables, over windows, or of few large vertices."""
    tiles, chips = draw(st.sampled_from([(4, 1), (12, 1), (32, 1), (64, 2)]))
    graph = cl.Graph(cl.IPU(num_tiles=tiles, num_chips=chips))
    count, width = draw(st.sampled_from([3, 8, 17, 40, 120])), draw(st.sampled_from([1, 8, 50]))
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    own = graph.add_variable("x", (count, width))
    for k in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["each", "table", "pairs", "window", "all"]))
        to, i = graph.add_variable(f"x{k}", (count, width)), cl.grid(count)
        if kind == "each":
            graph.add_vertex(f"set {k}", scale, x=own[i], out=to[i])
        elif kind == "all":
            graph.add_vertex(f"set {k}", add_up, x=own, out=to[i])
        elif kind == "pairs":
            some = cl.table(random.permutation(count))
            graph.add_vertex(f"set {k}", cl.codelet(lambda a, b: a + b), a=own[i], b=own[some[i]], out=to[i])
        elif kind == "table":
            lengths = random.integers(0, 5, count)
            rows = cl.table(random.integers(0, count, lengths.sum()), offsets=np.append(0, np.cumsum(lengths)))
            graph.add_vertex(f"set {k}", add_up, x=own[rows[i]], out=to[i])
        else:
            j = cl.grid(count - 2)
            graph.add_vertex(f"set {k}", add_up, x=own[j : j + 3], out=to[j + 1])
            graph.add_vertex(f"set {k}", scale, x=own[0], out=to[0])
            graph.add_vertex(f"set {k}", scale, x=own[count - 1], out=to[count - 1])
        own = to
    return graph


@examples(12)
@given(drawn_chains())
def test_chains_of_compute_sets(graph):
    check_no_worse(plan_of_graph(graph))


@pytest.mark.slow
@examples(60)
@given(cases())
def test_drawn_programs(case):
    check_no_worse(plan_of(case))


def test_a_systolic_product_over_two_chips():
    for cells, block in ((5, 8), (16, 16)):
        check_no_worse(without_calls(plan_engine(*systolic(cells, block))))
