"""The engine: its state whatever fails, names of every kind, streams that get back what a run took, and threads."""

import copy
import pickle
import signal
import sys
import threading
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from ipu_backend.running.runs import CompiledPart

EXECUTIONS = ["fused", "tiles", "addresses"]


@cl.codelet
def one_more(n):
    return {"n": n + 1}


@cl.codelet
def one_more_below(n, limit):
    return {"n": eqx.error_if(n, n >= limit, "beyond the limit") + 1}


@cl.codelet
def add(a, b):
    return {"a": a + b}


def _refuse(n):
    if n.max() >= 2:
        raise ValueError("the host says no")


@cl.codelet
def told_to_host(n):
    jax.debug.callback(_refuse, n)
    return {"n": n + 1}


def _passed_on(n):
    _refuse(n)
    return n


@cl.codelet
def through_host(n):
    return {
        "n": jax.pure_callback(_passed_on, jax.ShapeDtypeStruct(n.shape, n.dtype), n, vmap_method="broadcast_all") + 1
    }


def counting(codelet=one_more, size=4, program=None, **options):
    """An engine that counts from 0 in every element of n."""
    graph = cl.Graph(cl.IPU(num_tiles=4))
    n = graph.add_variable("n", (size,), "int32")
    fields = {"limit": 2} if codelet is one_more_below else {}
    graph.add_vertex("count", codelet, n=n[cl.grid(size)], **fields)
    made = cl.Engine(graph, None if program is None else program(graph), **options)
    made.write({"n": np.zeros(size, np.int32)})
    return made


LARGE = 1 << 17
"""So many elements that JAX computes in the background."""


def written(message, error, *words):
    """See that something raises an error that says all of these words."""
    with pytest.raises(error) as caught:
        message()
    for word in words:
        assert word in str(caught.value), str(caught.value)
    return caught.value


# --- the state, whatever fails ------------------------------------------------------------------------------


@pytest.mark.parametrize("aborts", [False, True])
def test_only_what_cannot_fail_is_overwritten_in_place(aborts):
    def program(graph):
        no = graph.add_variable("no", (), "bool")
        return cl.Sequence(*graph.compute_sets, *[cl.AbortOn(no, "no")] * aborts)

    engine = counting(program=program)
    engine.write({"no": False})
    engine.run()
    [before] = [held for variable, held in engine._state.arrays.items() if variable.name == "n"]
    engine.run()
    assert before.is_deleted() != aborts
    assert (engine.read("n") == 2).all()


@pytest.mark.filterwarnings("ignore::codelet.UnknownCyclesWarning")
@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("codelet", [one_more_below, told_to_host, through_host])
def test_a_codelet_that_raises_keeps_the_state(codelet, execution):
    if execution != "fused" and codelet is told_to_host:
        return  # one of the two that call back there is enough
    engine = counting(
        codelet, LARGE if execution == "fused" and codelet is not told_to_host else 4, execution=execution
    )
    engine.run()
    engine.run()
    for _ in range(2):
        written(engine.run, Exception, "beyond the limit" if codelet is one_more_below else "the host says no")
        assert (engine.read("n") == 2).all()
    engine.write({"n": np.full(engine.read("n").shape, -1)})
    engine.run()
    assert (engine.read("n") == 0).all()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_at_any_moment(request):
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals are heard by the main thread")
    engine, runs = counting(size=LARGE), 0
    main = threading.get_ident()

    def press(delay, heard):
        heard.wait(delay)
        while not heard.is_set():  # again, since Python loses one that comes while it collects garbage
            signal.pthread_kill(main, signal.SIGINT)
            heard.wait(0.2)

    # A process started in the background of a script may have been told to ignore it.
    request.addfinalizer(partial(signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT)))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for delay in np.linspace(0, 2e-3, 12):
        heard = threading.Event()
        thread = threading.Thread(target=press, args=(delay, heard))
        try:
            thread.start()
            while True:
                engine.run()
                runs += 1
        except KeyboardInterrupt:
            heard.set()
        thread.join()
        [value] = set(engine.read("n").tolist())
        assert value in (runs, runs + 1)
        runs = value


def test_what_the_machine_takes_with_it(monkeypatch):
    def consumed(part, arrays, connections, made):
        for variable in part.written:
            arrays[variable].delete()
        raise MemoryError("no more of it")

    engine = counting(size=LARGE)
    engine.run()
    with monkeypatch.context() as patch:
        patch.setattr(CompiledPart, "run_in_place", consumed)
        written(engine.run, cl.StateLostError, "MemoryError: no more of it", "write n again")
    written(lambda: engine.read("n"), cl.UninitializedReadError, "n[0] is read by the host")
    engine.write({"n": np.ones(LARGE, np.int32)})
    engine.run()
    assert engine.read("n")[-1] == 2


def test_a_run_that_is_waited_for():
    engine = counting(size=LARGE)
    engine.run(wait=True)
    assert all(held.is_ready() for held in engine._state.arrays.values())


# --- streams ----------------------------------------------------------------------------------------------


class Fed:
    """A loop that adds up what a stream gives and sends the sums, and one value of another stream before it."""

    def __init__(self, count=4, names=("value", "sum"), **options):
        graph = self.graph = cl.Graph(cl.IPU(num_tiles=4))
        self.feed, self.start = graph.add_input_stream("feed", (2,)), graph.add_input_stream("start", (2,))
        self.sums = graph.add_output_stream("sums", (2,))
        value, total = (graph.add_variable(name, (2,)) for name in names)
        i = cl.grid(2)
        graph.add_vertex("add", add, a=total[i], b=value[i])
        turn = [cl.Copy(self.feed, value), graph.compute_sets[0], cl.Copy(total, self.sums)]
        self.engine = cl.Engine(graph, [cl.Copy(self.start, total), cl.Repeat(count, turn)], **options)


FEED = np.arange(40, dtype="f").reshape(20, 2)
ZEROS = np.zeros((9, 2), "f")


@pytest.mark.parametrize("stream_bytes", [8, 24, 10**6])
@pytest.mark.parametrize("execution", ["fused", "tiles"])
def test_hidden_variables_collide_with_no_name(stream_bytes, execution):
    names = "first turn", "aborted"
    s = Fed(5, names, stream_bytes=stream_bytes, execution=execution)
    s.engine.connect("feed", iter(FEED))
    s.engine.connect("start", ZEROS)
    s.engine.run()
    np.testing.assert_array_equal(s.engine.read("sums"), FEED[:5].cumsum(0))
    value, total = s.engine.read(list(names))
    np.testing.assert_array_equal(value, FEED[4])
    np.testing.assert_array_equal(total, FEED[:5].sum(0))
    assert set(s.engine.state) == set(names)


def test_a_hidden_counter_beside_one_of_its_name():
    graph = cl.Graph(cl.IPU(num_tiles=4))
    feed, turn = graph.add_input_stream("feed", (2,)), graph.add_variable("first turn", (), "int32")
    sums, total = graph.add_variable("sums", (), "int32"), graph.add_variable("value", (2,))
    graph.add_vertex("add", add, a=sums, b=turn)
    program = cl.Repeat(7, [cl.Copy(feed, total), graph.compute_sets[0]], index=turn)
    for stream_bytes in (8, 24):
        engine = cl.Engine(graph, program, stream_bytes=stream_bytes)
        engine.write({"sums": 0})
        engine.connect(feed, FEED)
        engine.run()
        assert engine.read(sums) == 21
        assert engine.read("first turn") == 6


SOURCES = {
    "an array": np.asarray,
    "a generator": lambda rows: (row for row in rows),
    "a list": list,
}


@pytest.mark.parametrize("stream_bytes", [32, 10**6])
@pytest.mark.parametrize("source", SOURCES)
def test_a_run_that_fails_gives_its_values_back(source, stream_bytes):
    s, fails = Fed(stream_bytes=stream_bytes), [False]

    def sink(value):
        got.append(value)
        if fails[0] and len(got) == 3:
            raise KeyboardInterrupt

    got = []
    s.engine.connect("feed", SOURCES[source](FEED))
    s.engine.connect("start", SOURCES[source](ZEROS))
    s.engine.connect("sums", sink)
    s.engine.run()
    before = s.engine.state
    fails[0], got[:] = True, []
    error = written(s.engine.run, KeyboardInterrupt)
    for name, value in before.items():
        np.testing.assert_array_equal(s.engine.read(name), value)
    fails[0], got[:] = False, []
    s.engine.run()
    # What iterators gave in a run of several chunks is more than the host is to hold: it is gone, and this is told.
    gone = stream_bytes == 32 and source != "an array"
    np.testing.assert_array_equal(got, FEED[4 + (4 if gone else 0) :][:4].cumsum(0))
    notes = " ".join(getattr(error, "__notes__", []))
    assert ("not given again" in notes) == gone, notes
    assert ("4 of 'feed', 1 of 'start'" in notes) == gone, notes


def test_a_stream_that_raises_or_ends_or_gives_something_else():
    s = Fed(3)
    s.engine.connect("start", iter(ZEROS))
    for values, error in [
        ([FEED[0], FEED[1]], cl.StreamError),
        ([FEED[0], "no", FEED[1]], cl.ArrayError),
        ((1 / (k - 1) * FEED[k] for k in range(3)), ZeroDivisionError),
    ]:
        s.engine.connect("feed", values)
        for _ in range(2):  # the second time the same values come again
            with pytest.raises(error if values is not None else cl.StreamError):
                s.engine.run()
            if error is ZeroDivisionError:
                break
    assert not s.engine.state
    s.engine.connect("feed", iter(FEED))
    for k in range(2):
        s.engine.run()
        np.testing.assert_array_equal(s.engine.read("sums"), FEED[3 * k :][:3].cumsum(0))
    s.engine.connect("feed", iter(FEED[:1]))
    written(s.engine.run, cl.StreamError, "ended after 1 values")
    # What the last run that succeeded sent is there still.
    np.testing.assert_array_equal(s.engine.read("sums"), FEED[3:6].cumsum(0))


def test_an_iterator_that_fills_one_array_again_and_again():
    def values():
        buffer = np.zeros(2, "f")
        for row in FEED:
            buffer[:] = row
            yield buffer

    s = Fed()
    s.engine.connect("feed", values())
    s.engine.connect("start", ZEROS)
    s.engine.run()
    np.testing.assert_array_equal(s.engine.read("sums"), FEED[:4].cumsum(0))


@pytest.mark.parametrize("stream_bytes", [8, 10**6])
def test_a_bar_of_the_turns_of_loops(stream_bytes, monkeypatch, capsys):
    s = Fed(41, stream_bytes=stream_bytes)
    s.engine.connect("feed", np.ones((123, 2), "f"))
    s.engine.connect("start", ZEROS)
    s.engine.run()
    expected = s.engine.read("sums")
    s.engine.run(progress=True)
    np.testing.assert_array_equal(s.engine.read("sums"), expected)
    assert "41/41" in capsys.readouterr().err
    counting().run(progress=True)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    written(lambda: s.engine.run(progress=True), cl.MissingExtraError, "pip install 'codelet-graphs[progress]'")
    s.engine.run()  # what a run without a bar took was given back
    np.testing.assert_array_equal(s.engine.read("sums"), expected)


# --- names ------------------------------------------------------------------------------------------------


def several(execution="fused"):
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, y = graph.add_variable("x", (4,)), graph.add_variable("y", (2, 3))
    i = cl.grid(4)
    graph.add_vertex("add", add, a=x[i], b=x[i])
    return cl.Engine(graph, execution=execution), x, y


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_tensors_and_views_are_names(execution):
    engine, x, y = several(execution)
    engine.write({x: [0, 1, 2, 3], y[:, 1:]: np.ones((2, 2), "f")})
    engine.run()
    assert engine.read(x[3:0:-2]).tolist() == [6, 2]
    both, last = engine.read([cl.concatenate([x, y[0, 1:]]).pad((1, 0), value=7), "x"])
    assert both.tolist() == [7, 0, 2, 4, 6, 1, 1]
    assert last.tolist() == [0, 2, 4, 6]
    written(lambda: engine.read(y), cl.UninitializedReadError, "y[0, 0] is read by the host")
    engine.write({y.T[0]: [5, 6], cl.concatenate([x[:1], y[1, :1]]): [8, 9]})
    assert engine.read(y).tolist() == [[5, 1, 1], [9, 1, 1]]
    # What comes later overwrites what comes before.
    engine.write({x[0]: 1.0, "x": np.zeros(4), x[1:3]: [1, 2], x[cl.table(np.array([2]))]: [3.0]})
    assert engine.read("x").tolist() == [0, 1, 3, 0]
    kept = engine.profile(host_visible=[x[1:2]], allow_out_of_memory=True)
    assert (kept.memory_by_tile == engine.profile(host_visible="x").memory_by_tile).all()


def test_writing_is_all_or_nothing():
    engine, x, y = several()
    engine.write({"x": [1, 2, 3, 4]})
    other = cl.Graph().add_variable("x", (4,))
    for bad in ("y", "z", y[0], x[cl.grid(4)], other, 3, y.pad(1), y[[0, 0]]):
        with pytest.raises(cl.CodeletError):
            engine.write({x: np.zeros(4), x[1]: 5, bad: np.zeros(5)})
        assert engine.read(x).tolist() == [1, 2, 3, 4]
        assert list(engine.state) == ["x"]
    mine = jnp.arange(4.0)
    engine.write({"x": mine})
    engine.write({x[0]: 9.0})
    assert mine.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_the_state_as_a_dict(execution, tmp_path):
    engine, x, y = several(execution)
    assert engine.state == {}
    engine.write({"x": [1, 2, 3, 4], y[0]: [5, 6, 7]})
    state = engine.state
    assert state["y"].mask.tolist() == [[False] * 3, [True] * 3]
    engine.run()
    engine.write({"y": np.zeros((2, 3))})
    other, _, theirs = several("fused")
    for loaded, part in ((engine, y), (other, theirs)):
        loaded.load_state(state)
        assert loaded.read("x").tolist() == [1, 2, 3, 4]
        assert loaded.read(part[0]).tolist() == [5, 6, 7]
        written(lambda: loaded.read(part), cl.UninitializedReadError, "y[1, 0]")
    for bad in ({"x": np.zeros(4), "z": 0}, {"x": np.zeros(4), "y": np.zeros(6)}, [("x", np.zeros(4))], {x[1]: 1}):
        with pytest.raises(cl.CodeletError):
            engine.load_state(bad)
        assert engine.read(x).tolist() == [1, 2, 3, 4]
    np.savez(tmp_path / "state.npz", x=np.ones(4, "f"))
    engine.load_state(np.load(tmp_path / "state.npz"))
    assert engine.read(x).tolist() == [1, 1, 1, 1]
    written(lambda: engine.read(y[0, 0]), cl.UninitializedReadError, "y[0, 0]")


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda engine: pickle.loads(pickle.dumps(engine))])
def test_an_engine_is_copied_and_pickled_with_its_state(way):
    def programs(graph):
        return {"count": graph.default_program, "stop": cl.Sequence()}

    engine = counting(program=programs, execution="tiles")
    engine.run("count")
    other = way(engine)
    engine.run("count")
    assert (other.graph is engine.graph) == (way is copy.copy)
    assert other.read("n").tolist() == [1] * 4
    other.run("count")
    other.run("count")
    assert (engine.read("n").tolist(), other.read("n").tolist()) == ([2] * 4, [3] * 4)


# --- several at once ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [4, LARGE])
def test_four_threads_use_one_engine(size):
    engine, errors = counting(size=size), []
    engine.run()

    def work():
        try:
            for _ in range(25):
                engine.run()
                assert len(set(engine.read("n").tolist())) == 1
                _ = engine.state
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert set(engine.read("n").tolist()) == {101}


def test_an_engine_is_not_used_by_what_it_calls():
    s = Fed()
    s.engine.connect("start", ZEROS)
    s.engine.connect("feed", FEED)
    s.engine.connect("sums", lambda _: s.engine.read("sum"))
    written(s.engine.run, cl.EngineInUseError, "from within its own engine.run", "engine.read")
    s.engine.connect("feed", (s.engine.read("sum") for _ in range(9)))
    written(s.engine.run, cl.EngineInUseError, "engine.read")
    assert s.engine.state == {}


def test_an_engine_is_not_used_by_a_callback():
    def look(_):
        engine.write({"n": np.zeros(LARGE, np.int32)})

    @cl.codelet
    def looked_at(n):
        jax.debug.callback(look, n.sum())
        return {"n": n + 1}

    graph = cl.Graph()
    n = graph.add_variable("n", (LARGE,), "int32")
    graph.add_vertex("count", looked_at, n=n)
    engine = cl.Engine(graph)
    look(None)
    written(engine.run, Exception, "EngineInUseError", "from within its own engine.run")
    assert (engine.read(n) == 0).all()
