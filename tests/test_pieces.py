"""Maps by pieces are the maps listed; positions counted up in a program are those of a table."""

import itertools
from unittest.mock import patch

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.extend import core as jax_core

import codelet as cl
from ipu_backend.executions.tile_array import TileArray
from lowering.machine.exchange import plan_exchange
from lowering.machine.place import place
from lowering.mesh.positions import Positions
from lowering.pipeline import plan_graph
from lowering.plan import runs
from lowering.plan.pieces import Pieces, pieces_of
from tests.examples import examples
from tests.strategies import Case, arrived, cases
from tests.test_tile_array import PLACES, function_of
from tests.ways import interpreted

PLACE = "lowering.mesh.positions"


@cl.codelet
def double(x):
    return 2 * x


def listed(pieces: Pieces) -> dict[int, int]:
    """What each number stands for."""
    columns = zip(pieces.starts.tolist(), pieces.stops.tolist(), pieces.origins.tolist(), strict=True)
    return {start + k: origin + k for start, stop, origin in columns for k in range(stop - start)}


@st.composite
def maps(draw) -> Pieces:
    """Stretches of numbers below 40, in any order, that stand for others, each for its own."""
    cuts = sorted(draw(st.sets(st.integers(0, 40), max_size=8)))
    kept = draw(st.lists(st.booleans(), min_size=len(cuts), max_size=len(cuts)))
    ends = [ends for ends, keep in zip(itertools.pairwise(cuts), kept, strict=False) if keep]
    order, at, rows = draw(st.permutations(range(len(ends)))), 0, []
    for k in order:
        at += draw(st.integers(0, 1))
        rows.append((ends[k][0], at, ends[k][1] - ends[k][0]))
        at += rows[-1][2]
    return pieces_of(*np.array(rows, np.int64).reshape(-1, 3).T)


@examples(60)
@given(maps(), maps())
def test_pieces_are_maps(a, b):
    own, other = listed(a), listed(b)
    assert listed(a.then(b)) == {k: other[v] for k, v in own.items() if v in other}
    assert listed(a.over(b)) == other | own
    assert listed(a.inverse()) == {v: k for k, v in own.items()}
    assert listed(a.moved(3, 5)) == {k + 3: v + 5 for k, v in own.items()}
    numbers = np.array(sorted(own), np.int64)
    assert a.at(numbers).tolist() == [own[k] for k in numbers.tolist()]
    for made in (a, a.then(b), a.over(b), a.inverse()):
        assert (made.starts < made.stops).all()
        assert (made.stops[:-1] <= made.starts[1:]).all()


@examples(30)
@given(st.lists(st.integers(0, 30), min_size=1), st.lists(st.integers(-5, 40), min_size=1))
def test_ranks_are_those_of_a_search(ordered, numbers):
    ordered, numbers = np.sort(ordered), np.array(numbers)
    with patch.object(runs, "_MANY", 0):
        for side in ("left", "right"):
            np.testing.assert_array_equal(runs.ranks(ordered, numbers, side), np.searchsorted(ordered, numbers, side))


def test_positions_are_counted_up():
    """By blocks of the innermost dimensions, and of powers of two with breaks within; or all in a table."""
    random, made, expected = np.random.default_rng(0), [], []
    for shape, starts, tables in [
        ((3, 40), [0, 40, 80], 3),
        ((2, 3, 32), [0, 96], 3),
        ((500,), [0, 130, 290], 3),
        ((7, 100), [0, 33, 150, 155, 470], 3),
        ((200, 3), [0, *range(7, 600, 5)], 1),
    ]:
        steps, added = random.integers(0, 4, len(shape)).tolist(), random.integers(-9, 50, len(starts))
        positions = Positions(shape, steps, np.array(starts), added, 400)
        with patch(f"{PLACE}.SHORT", 0):
            made.append(positions.array())
        assert len(positions._tables[1]) == tables
        assert positions.numbers.shape == shape
        expected.append(positions.numbers)
    for own, numbers in zip(made, expected, strict=True):
        np.testing.assert_array_equal(own, numbers)


@examples(3)
@given(cases(np.int32, max_iterations=3), PLACES)
def test_tiles_count_up_where_words_are(case: Case, where):
    with patch(f"{PLACE}.SHORT", 1), patch(f"{PLACE}.LEAST_LENGTH", 2):
        results = arrived(jax.jit(function_of(case, where))(case.inputs))
    for name, value in interpreted(case).items():
        np.testing.assert_array_equal(results[name], value, err_msg=name)


@pytest.mark.slow
def test_tables_of_a_large_graph_are_small():
    """They have entries for stretches, and for what all stretches consist of, not for elements."""
    for size in (2 * 10**5, 10**6 + 3000):
        graph = cl.Graph(cl.IPU(num_tiles=32))
        x, y = graph.add_variable("x", (size,)), graph.add_variable("y", (size,))
        i = cl.grid(size // 1000)
        z = graph.add_vertex("double", double, x=x[1000 * i : 1000 * i + 1000])
        program = cl.Sequence(graph.default_program, cl.Copy(z.flatten()[500:], y[:-500]), cl.Copy(x[:500], y[-500:]))
        plan = plan_graph(graph, program, [graph.sources[0]], [y])
        compiled = TileArray(plan_exchange(place(plan, "linear"))).compile_logical(plan)

        assert 100 * sum(table.size for table in compiled.consts) < size
        given = np.arange(size, dtype=np.float32)
        (result,) = jax.jit(jax_core.jaxpr_as_fun(compiled))(given)
        np.testing.assert_array_equal(result, np.concatenate([2 * given[500:], given[:500]]))
