"""Decisions on lengths: what a codelet does at some lengths of its ragged fields alone, in every way of running."""

import fractions
import gc
import itertools
import subprocess
import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from codelet.tracing.alike import alike
from codelet.tracing.lengths import Answers, fresh_lengths, watched
from tests.at_once import at_once
from tests.examples import examples, few
from tests.ragged_codelets import BY_CASES, OF_ROWS, ROWS_OF_ROWS, row_dot, row_order
from tests.strategies import cases

LENGTHS = [3, 0, 1, 2, 5, 7, 4, 3]


def attempted(x):
    try:
        return x.sum() if x.shape[0] < 3 else 2 * x.sum()
    except Exception:
        return x.max()


def matched(x):
    match x.shape[0]:
        case 3 | 5:
            return x.sum()
    return 2 * x.sum()


@jax.custom_jvp
def counted(x):
    return 2 * x


@counted.defjvp
def _counted_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    return counted(x), t * (1 + x.shape[0])


@jax.custom_vjp
def chosen(x):
    return 2 * x


chosen.defvjp(lambda x: (2 * x, x), lambda x, t: (5 * t if x.shape[0] == 3 else t,))


@jax.custom_jvp
def refusing(x):
    return 2 * x


@refusing.defjvp
def _refusing_jvp(primals, tangents):
    raise NotImplementedError("no slope")


@jax.jit
def helper(x):
    return 100 * x.sum() if x.shape[0] == 3 else x.sum()


DECISIONS = {
    "equal": lambda x: 100 * x.sum() if x.shape[0] == 1 else x.sum(),
    "unequal": lambda x: 100 * x.sum() if x.shape[0] != 4 else x.sum(),
    "where": lambda x: jnp.where(x.shape[0] == 3, 1.0, x.sum()),
    "guard": lambda x: x.mean() if x.shape[0] > 0 else 0.0,
    "guard of more": lambda x: jnp.std(x) if x.shape[0] > 1 else jnp.float32(-1),
    "no length": lambda x: -x.sum() if not x.shape[0] else x.sum() + 1,
    "any of": lambda x: x.sum() if x.shape[0] in (2, 5) else 2 * x.sum(),
    "one of a set": lambda x: x.sum() if x.shape[0] in {2, 5} else 2 * x.sum(),
    "looked up": lambda x: {3: 1.0, 4: 2.0}.get(x.shape[0], 3.0) * x.sum(),
    "shapes": lambda x: x.sum() if x.shape == (4,) else 2 * x.sum(),
    "shapes in a dict": lambda x: {(3,): 1.0}.get(x.shape, 3.0) * x.sum(),
    "sizes": lambda x: x.sum() if x.size == 7 else 2 * x.sum(),
    "even": lambda x: x.sum() if x.shape[0] % 2 == 0 else 2 * x.sum(),
    "as text": lambda x: x.sum() if f"{x.shape[0]}" == "3" else 2 * x.sum(),
    "by type": lambda x: x.sum() if isinstance(x.shape[0], int) and x.shape[0] == 3 else 2 * x.sum(),
    "to a value": lambda x: jnp.where(x.shape[0] == jnp.sum(x).astype(int), 1.0, 2.0),
    "to a float": lambda x: x.sum() if x.shape[0] == 3.0 else 2 * x.sum(),
    "to an array": lambda x: x.sum() if np.any(np.array([3, 5]) == x.shape[0]) else 2 * x.sum(),
    "attempted": attempted,
    "matched": matched,
    "in a jitted function": lambda x: helper(x) + 1,
    "no decision": lambda x: jnp.sum(x * jnp.arange(x.shape[0])) / (1 + x.shape[0]),
    "a rule that fails": lambda x: jnp.sum(refusing(x)),
}

ROWS = {
    "rows": lambda x: 2 * x if x.shape[0] == 3 else x - jnp.sum(x),
    "rows looked up": lambda x: x * {3: 1.0, 4: 2.0}.get(x.shape[0], 3.0),
    "a rule by length": lambda x: counted(x) + x,
    "a rule for a length": lambda x: chosen(x) + x,
}


def graph_of(codelets, lengths, by_loops):
    """A compute set for each codelet, of a vertex for each row of one variable; and values for that."""
    graph = cl.Graph(cl.IPU(num_tiles=4))
    ends = np.concatenate([[0], np.cumsum(lengths)])
    x = graph.add_variable("x", (int(ends[-1]),))
    order = np.random.default_rng(0).permutation(x.size)
    rows, own = cl.table(order, offsets=ends), cl.table(np.arange(x.size), offsets=ends)
    for name, function in codelets.items():
        codelet = cl.codelet(function)
        y = graph.add_variable(f"y {name}", x.shape if name in ROWS else (len(lengths),))
        for i in range(len(lengths)) if by_loops else [cl.grid(len(lengths))]:
            graph.add_vertex(name, codelet, x=x[rows[i]], out=y[own[i]] if name in ROWS else y[i])
    return graph, {"x": np.arange(x.size, dtype=np.float32) % 5 + 1}


@pytest.fixture(scope="module", params=[False, pytest.param(True, marks=pytest.mark.slow)], ids=["symbols", "loops"])
def decided(request):
    graph, values = graph_of(DECISIONS | ROWS, LENGTHS, request.param)
    names = [v.name for v in graph.variables if v.name != "x"]
    return graph, values, names, cl.interpret(graph, values=values, outputs=names)


def assert_all_close(found, expected, names):
    for name in names:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-5, err_msg=name)


def test_decisions_on_lengths(decided):
    graph, values, names, expected = decided
    assert_all_close(jax.jit(cl.lower(graph, inputs=["x"], outputs=names))(values), expected, names)


@pytest.mark.slow
@few("execution", ["addresses", "tiles"], quick=["tiles"])
def test_decisions_on_lengths_on_the_machine(decided, execution):
    graph, values, names, expected = decided
    engine = cl.Engine(graph, execution=execution)
    engine.write(values)
    engine.run()
    assert_all_close({name: engine.read(name) for name in names}, expected, names)


def test_derivative_rules_that_look_at_lengths():
    graph, values = graph_of(ROWS, LENGTHS, False)
    names = [v.name for v in graph.variables if v.name != "x"]
    run = cl.lower(graph, inputs=["x"], outputs=names)
    weights = np.random.default_rng(1).normal(size=len(values["x"])).astype(np.float32)
    weighed = lambda v: {name: y @ weights for name, y in run(v).items()}  # noqa: E731
    ends = np.concatenate([[0], np.cumsum(LENGTHS)])
    order = np.random.default_rng(0).permutation(len(weights))

    def plain(name):
        function = ROWS[name.removeprefix("y ")]
        return lambda x: sum(function(x[order[a:b]]) @ weights[a:b] for a, b in itertools.pairwise(ends))

    slopes = lambda values: {name: jax.grad(plain(name))(values["x"]) for name in names}  # noqa: E731
    ours, theirs = at_once(jax.jacobian(weighed), slopes)(values)
    for name in names:
        np.testing.assert_allclose(ours[name]["x"], theirs[name], rtol=1e-4, atol=1e-4, err_msg=name)


@jax.custom_jvp
def curved(x):
    return 2 * x


@jax.custom_jvp
def steep(x):
    return x


curved.defjvp(lambda primals, tangents: (curved(*primals), steep(*primals) * tangents[0]))
steep.defjvp(lambda primals, tangents: (steep(*primals), (5 if primals[0].shape[0] == 6 else 1) * tangents[0]))


def test_second_derivatives_whose_rules_look_at_lengths():
    lengths = [*range(1, 9)]
    graph, values = graph_of({"curved": lambda x: jnp.sum(curved(x))}, lengths, False)
    run = cl.lower(graph, inputs=["x"], outputs=["y curved"])
    assert "at once, by segments" not in str(run.plan)
    second = jax.jit(jax.grad(lambda v: jax.grad(lambda v: run(v)["y curved"].sum())(v)["x"].sum()))(values)["x"]
    order = np.random.default_rng(0).permutation(values["x"].size)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    expected = np.empty(values["x"].size)
    for own, (a, b) in zip(lengths, itertools.pairwise(ends), strict=True):
        expected[order[a:b]] = 5 if own == 6 else 1
    np.testing.assert_array_equal(second, expected)


def test_rules_are_watched_anew_however_often_they_ran():
    """JAX keeps what a rule was traced to, so that nothing is asked a second time."""
    graph, _ = graph_of({"chosen": lambda x: jnp.sum(chosen(x) + x)}, range(1, 9), False)
    plans = [str(cl.lower(graph, inputs=["x"], outputs=["y chosen"]).plan) for _ in range(3)]
    assert plans[0] == plans[1] == plans[2]
    assert "by segments" not in plans[0]


def apart(function, lengths):
    """The lengths at which a codelet is traced by itself, and how many traces were made."""
    graph, _ = graph_of({"one": function}, lengths, False)
    (family,) = graph.families
    return sorted(n for (n,) in family.codelet.apart), len(family.codelet.codelet._traced)


MANY = range(200)


@pytest.mark.slow
def test_only_lengths_that_a_decision_is_on_are_apart():
    # Traced for all, for the shortest, the longest, and those asked for: a few more where caches compare sizes.
    for name, lengths in {"no decision": [], "equal": [1], "any of": [2, 5], "guard": [0]}.items():
        found, traces = apart(DECISIONS[name], MANY)
        assert found == lengths
        assert traces < 10
    assert apart(DECISIONS["even"], MANY)[0] == list(range(0, 200, 2))
    assert apart(DECISIONS["guard of more"], MANY)[0] == [0, 1]
    assert apart(lambda x: jax.nn.softmax(x).sum(), MANY)[0] == []  # asks whether a length is 1
    assert apart(DECISIONS["one of a set"], MANY) == ([2, 5], 201)  # nobody sees which, so all are compared
    assert apart(lambda x: x.sum() if x.shape[0] < 100 else x.max(initial=0), MANY)[0] == list(range(100))


def test_what_the_garbage_collector_runs_asks_nothing():
    class Ring:
        def __init__(self):
            self.own = self

        def __del__(self):
            isinstance(self.own, int)

    def traced(x):
        for _ in range(5):
            Ring()
        return x.sum()

    before = gc.get_threshold()
    gc.freeze()  # what is there already is not looked through each time
    gc.set_threshold(1)
    try:
        found, traces = apart(traced, range(20))
    finally:
        gc.set_threshold(*before)
    assert found == []
    assert traces < 10


def test_a_profiler_that_is_on_hides_nothing():
    def profile(*_):
        pass

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        found = apart(DECISIONS["equal"], range(9))
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(before)
    assert found[0] == [1]


def test_a_codelet_that_returns_something_else_at_a_length():
    with pytest.raises(cl.CodeletTraceError) as caught:
        graph_of({"one": lambda x: jnp.int32(1) if x.shape[0] == 4 else x.sum()}, LENGTHS, False)
    assert "returns other fields where the lengths of its ragged fields are n = 4" in str(caught.value)
    assert "out: int32[] there, out: float32[] elsewhere" in str(caught.value)


def test_what_is_watched():
    n, m, *_ = fresh_lengths()
    _, answers = watched(lambda: [n == 3, n != 5, n == m, n > 0, n == n, n == "3"])
    assert answers.denied == {("n", 3), ("n", 5), ("n", "m")}
    assert answers.are_all
    assert answers.hold_at({"n": 4, "m": 2})
    assert not answers.hold_at({"n": 4, "m": 4})
    assert not answers.hold_at({"n": 3, "m": 1})

    class Three:
        def __eq__(self, other):
            return other == 3

        def __hash__(self):
            return hash(3)

    told = [lambda: {n: 1}, lambda: f"{n}", lambda: isinstance(n, int)]
    for other in (np.ones(2), fractions.Fraction(3), 3 + 0j, Three()):
        told.append(lambda other=other: n == other)
    for asked in told:
        assert not watched(asked)[1].are_all
    # What caches compare with a length by chance, as where in memory it lies decides.
    for other in (object(), jax.devices()[0], jax.ShapeDtypeStruct((3,), np.float32), lambda: 3, ...):
        assert watched(lambda other=other: n == other)[1].are_all
    # Nor does it count that a length of an earlier trace is another.
    earlier, *_ = fresh_lengths()
    assert watched(lambda: n == earlier)[1] == Answers()
    assert watched(lambda: (earlier == 3, n == 4), [n])[1].denied == {(str(n), 4)}


def test_alike():
    n, *_ = fresh_lengths()

    def compared(function, length, other=None):
        traces = [
            jax.make_jaxpr(f)(jax.ShapeDtypeStruct((size,), np.float32))
            for f, size in ((function, n), (other or function, length))
        ]
        return alike(traces[0], {"n": length}, traces[1])

    same = [
        jnp.mean,
        jnp.var,
        jax.nn.softmax,
        lambda x: jnp.ones(x.shape) @ x,
        lambda x: jnp.arange(x.shape[0]) * x,
        lambda x: x.sum() / jnp.sqrt(x.shape[0]),
        jax.nn.relu,
        lambda x: jnp.outer(x, x),
        jax.nn.logsumexp,
    ]
    assert all(compared(function, length) for function in same for length in (1, 2, 5))
    assert compared(jnp.sum, 0)
    assert not compared(lambda x: x * 2, 3, lambda x: x * 3)
    assert not compared(lambda x: x * 2, 3, lambda x: x + x)
    assert not compared(lambda x: x.sum(), 3, lambda x: x.sum().astype(np.int32))
    assert not compared(lambda x: jnp.cumsum(x), 3, lambda x: jax.lax.cumsum(x, reverse=True))
    assert not compared(
        lambda x: jax.lax.fori_loop(0, 3, lambda i, c: c + 1, x),
        3,
        lambda x: jax.lax.fori_loop(0, 3, lambda i, c: c + 2, x),
    )
    assert compared(lambda x: jnp.mean(x[:, None] * jnp.ones(4)), 3)  # its size is 4 * n
    assert not compared(lambda x: jnp.full(3, 5 // x.shape[0]), 0, lambda x: jnp.zeros(3, int))


@pytest.mark.parametrize("by_loops", [False, True])
def test_prints_come_per_vertex(capfd, by_loops):
    def told(x):
        jax.debug.print("sum {}", x.sum())
        return x.sum()

    def told_of_one(x):
        if x.shape[0] == 3:
            jax.debug.print("three {}", x.sum())
        return x.sum()

    graph, values = graph_of({"all": told, "of one": told_of_one}, LENGTHS, by_loops)
    cl.interpret(graph, values=values, outputs=["y all"])
    jax.effects_barrier()
    expected = sorted(capfd.readouterr().out.split("\n"))
    assert len(expected) == 1 + len(LENGTHS) + LENGTHS.count(3)
    run = jax.jit(cl.lower(graph, inputs=["x"], outputs=["y all"]))  # nobody needs the other, but it speaks
    jax.block_until_ready(run(values))
    jax.effects_barrier()
    assert sorted(capfd.readouterr().out.split("\n")) == expected
    engine = cl.Engine(graph, execution="tiles")
    engine.write(values)
    engine.run()
    engine.read("y all")
    jax.effects_barrier()
    assert sorted(capfd.readouterr().out.split("\n")) == expected


def check_case(case):
    expected = cl.interpret(case.graph, values=case.inputs, outputs=case.outputs, program=case.sequence())
    run = cl.lower(case.graph, case.sequence(), inputs=list(case.inputs), outputs=case.outputs)
    results = {"fused": jax.jit(run)(case.inputs)}
    for execution in ("tiles", "addresses"):
        engine = cl.Engine(case.graph, case.sequence(), execution=execution)
        engine.write(case.inputs)
        engine.run()
        results[execution] = {name: engine.read(name) for name in case.outputs}
    for execution, found in results.items():
        for name, value in expected.items():
            bound = 1e-5 * (1 + np.abs(value).sum())
            np.testing.assert_allclose(found[name], value, rtol=0, atol=bound, err_msg=f"{execution}: {name}")


@pytest.mark.slow
@examples(3)
@given(cases(np.float32, ragged=True))
def test_ragged_graphs_in_every_way_of_running(case):
    check_case(case)


@pytest.mark.slow
@examples(150)
@given(cases(np.float32, ragged=True, max_iterations=4))
def test_many_ragged_graphs_in_every_way_of_running(case):
    check_case(case)


@pytest.mark.slow
def test_modules_that_a_first_trace_imports_ask_nothing():
    """A derivative rule is watched where JAX, for the first time, imports what defines types of its own."""
    program = """
import subprocess
import sys
import types
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.test_saving import Small
print([row.strip() for row in str(Small().lower().plan).split("\\n") if "runs" in row][2])
"""
    root = str(Path(__file__).parents[1])
    made = subprocess.run([sys.executable, "-c", program.format(root=root)], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "runs all rows at once, by segments"


ROW_CODELETS = [*OF_ROWS, *ROWS_OF_ROWS]


def lowered_rows(kind, lengths):
    """The number of equations of a graph of one ragged codelet, a fresh one, and what it gives, as one by one."""
    graph = cl.Graph(cl.IPU(num_tiles=4))
    ends = np.concatenate([[0], np.cumsum(lengths)])
    x, y = graph.add_variable("x", (int(ends[-1]),)), graph.add_variable("y", (len(lengths),))
    z, rows, i = graph.add_variable("z", x.shape), cl.table(np.arange(x.size), offsets=ends), cl.grid(len(lengths))
    fields = {"x": x[rows[i]], **({"z": z[rows[i]]} if kind is row_dot else {"y": y[i]})}
    of_rows = kind in ROWS_OF_ROWS or kind is row_order
    fields["out"] = graph.add_variable("out", x.shape)[rows[i]] if of_rows else graph.add_variable("out", y.shape)[i]
    if kind is row_order:
        fields["sum"] = graph.add_variable("sum", y.shape)[i]
    static = {"how": "equal", "of": 2} if kind in BY_CASES else {}
    graph.add_vertex("rows", cl.codelet(own_copy(kind.function)), **fields, **static)
    run = cl.lower(graph, inputs=["x", "y", "z"], outputs=["out"])
    random = np.random.default_rng(0)
    values = {name: random.uniform(-1, 1, graph.variable(name).shape).astype(np.float32) for name in "xyz"}
    found = np.asarray(jax.jit(run)(values)["out"])
    np.testing.assert_allclose(found, cl.interpret(graph, values=values, outputs=["out"])["out"], rtol=2e-6, atol=2e-6)
    return len(run.jaxpr.jaxpr.eqns), found


def own_copy(function):
    """A function that does the same and that no cache of traces knows."""
    made = types.FunctionType(function.__code__, function.__globals__, function.__name__, None, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def check_order(data):
    """What was traced before, and in which order, changes neither results nor how many equations there are."""
    few_lengths = st.lists(st.sampled_from([0, 1, 1, 2, 2, 3, 7]), min_size=1, max_size=5)
    cases = st.tuples(st.sampled_from(ROW_CODELETS), few_lengths)
    chosen = data.draw(st.lists(cases, min_size=2, max_size=3))
    first = [lowered_rows(*own) for own in chosen]
    if data.draw(st.booleans()):
        jax.clear_caches()
    order = data.draw(st.permutations(range(len(chosen))))
    for k in order:
        equations, result = lowered_rows(*chosen[k])
        assert equations == first[k][0], chosen[k]
        np.testing.assert_array_equal(result, first[k][1], err_msg=str(chosen[k]))


@pytest.mark.parametrize("kind", ROW_CODELETS, ids=lambda kind: kind.name)
@few("lengths", [[0], [1], [0, 1], [1, 0, 1]], quick=["(1, 0, 1)"])
def test_rows_of_no_element_and_of_one_are_lowered(kind, lengths):
    """Where all of an array is one element, or none, many rules find nothing to do, and have to see it."""
    lowered_rows(kind, lengths)


@pytest.mark.slow
@examples(2)
@given(st.data())
def test_the_order_of_traces_changes_nothing(data):
    check_order(data)


@pytest.mark.slow
@examples(200)
@given(st.data())
def test_no_order_of_very_many_traces_changes_anything(data):
    check_order(data)
