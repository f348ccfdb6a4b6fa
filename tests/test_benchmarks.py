"""The benchmark harness, and every benchmark on small sizes."""

import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context

import jax
import numpy as np
import pytest

from benchmarks import every
from benchmarks.__main__ import main
from benchmarks.conv import Convolution
from benchmarks.every import BENCHMARKS
from benchmarks.fresh import in_fresh_process
from benchmarks.hand_gradients import BY_HAND
from benchmarks.harness import (
    Comparison,
    Measurement,
    Row,
    ValuesDiffer,
    check_same,
    compare,
    gradient_of,
    mean_row,
    measure,
)
from benchmarks.join import CASES as JOINED
from benchmarks.memory import find_comparison, with_peaks
from benchmarks.ops_gradients import OPERATIONS
from benchmarks.ops_pool import Pooling
from ipu_backend.jobs.timing import time_in_turn
from tests.held_memory import hold

SMALL = {
    "adjoint_matvec": {"rows": 3, "columns": 32, "rounds": 1},
    "adjoint_mlp": {"batch": 3, "sizes": (32, 16, 16)},
    "adjoint_conv": {"batch": 2, "layers": [Convolution("conv1", 2, 9, 3, 3, 2, 1)]},
    "adjoint_heat": {"side": 6, "steps": 4},
    "adjoint_messages": {"edges": 12, "nodes": 5},
    "adjoint_gather": {"vertices": 5, "length": 3, "elements": 20},
    "adjoint_memory": {
        "networks": {"mnist": 1.0},
        "depth": 6,
        "less": 1,
        "turns": 20,
        "snapshots": 3,
        "lattice": (6, 4, 4, 2),
    },
    "alexnet_step": {"network": "mnist", "grain": 4096},
    "resnet50_step": {"network": "mnist"},
    "resnet18_step": {"network": "mnist"},
    "resnet34_step": {"network": "mnist"},
    "strain_step": {"network": "mnist", "batch": 2},
    "mnist_traced_step": {"batch": 2},
    "onnx_trace": {"network": "small", "rounds": 1},
    "trace_compile": {"network": "mnist", "fine": "mnist", "grain": 4096, "rounds": 1},
    "bitonic": {"size": 16, "rounds": 1},
    "blocks": {"grids": {"odd": (9, (2, 3))}, "turns": 4},
    "build": {"rows": 2, "parts": 3, "rounds": 1},
    "call_chain": {"calls": 4, "batch": 2, "width": 16, "rounds": 1},
    "compile": {"rows": 4, "columns": 32, "fewer": 2, "rounds": 1},
    "many_codelets": {"many": 6, "some": 4, "few": 2, "rounds": 1},
    "conv": {"batches": (1, 2), "layers": [Convolution("conv1", 2, 9, 3, 3, 2, 1)]},
    "correlate": {"points": 20, "windows": (3, 8)},
    "elementwise": {"rows": 4, "columns": 6},
    "gpt2": {"size": (1, 8, 2, 11, 4), "chips": {"float32": 2}},
    "gather_dot": {"vertices": 5, "length": 3, "elements": 20},
    "heat": {"side": 6, "steps": 4},
    "ising": {"side": 6},
    "join": {"cases": {"matmul": JOINED["matmul"]._replace(shapes=[(5, 7), (7, 3)])}},
    "lattice_boltzmann": {"height": 6, "width": 4, "steps": 2},
    "life": {"side": 6, "steps": 2},
    "loops": {
        "names": ("scan", "fori_columns", "while_rows"),
        "turns": (2, 3),
        "rows": ((2,), (2, 3)),
        "some": ((2, (2,)), (3, (2,))),
        "gradients": ((3, (2,)),),
        "growths": ((2,),),
    },
    "matmul": {"size": 128},
    "matvec": {"rows": 3, "columns": 32},
    "mesh": {
        "side": 160,
        "steps": 2,
        "batch": 4,
        "large_batch": 8,
        "size": 16,
        "edges": 400,
        "nodes": 52,
        "layers": [Convolution("conv1", 4, 16, 8, 3, 1, 1)],
    },
    "messages": {"edges": 12, "nodes": 5, "rounds": 1},
    "mnist_step": {"batch": 2, "large_batch": 3},
    "npbench": {"kernels": ("jacobi_1d", "crc16"), "sizes": ("odd", "small"), "rounds": 1},
    "ops_conv": {
        "alexnet": [Convolution("conv1", 2, 9, 3, 3, 2, 1)],
        "resnet50": [Convolution("narrow2", 3, 4, 2, 1, 1, 0)],
    },
    "ops_gradients": {"operations": {"product/prime": OPERATIONS["product/prime"]}, "machines": [6]},
    "hand_gradients": {"by_hand": {"norm/uneven": BY_HAND["norm/uneven"]._replace(shapes=[(9, 5), (5,), (5,)])}},
    "language_model": {"batch": 2, "tokens": 3, "machines": [6]},
    "engine_run": {"elements": 5, "timed": 0.0},
    "loop_gradients": {"side": 5, "blocks": {"uneven": (9, (2, 3))}, "system": 7, "turns": 4},
    "ops_embedding": {"rows": 13, "columns": 5, "indices": 9},
    "ops_map": {"elements": 101, "rows": 9, "columns": 7},
    "ops_matmul": {"shapes": {"odd": (5, 7, 3)}},
    "ops_attention": {"batch": 2, "length": 4, "heads": 2, "size": 3},
    "ops_random": {"size": 50},
    "ops_pool": {"poolings": [Pooling("pool", "max", 2, 7, 3, 2, 1), Pooling("mean", "avg", 2, 4, 2, 1, 0)]},
    "patchwork": {"size": 32, "parts": 4},
    "draw": {"network": "mnist", "grain": 4096, "size": 256, "widths": (50, 100)},
    "draw_small": {"times": 2, "size": 256},
    "placement": {"sizes": {"mesh_2d": (400, 6, 1), "factors": (300, 6, 1)}, "large": (400, 6, 1)},
    "profile": {"rows": 4, "columns": 32, "rounds": 1, "network": "mnist", "grain": 4096},
    "report": {"programs": (("mnist", 4096),)},
    "ops_reduce": {"rows": 5, "columns": 7, "lines": (3, 5)},
    "ops_norm": {"field": (2, 8, 3, 2), "rows": (3, 5), "lines": (3, 5)},
    "ops_softmax": {"shape": (3, 5), "large": (2, 9)},
    "stream_train": {"batch": 2, "steps": 3},
    "tile_array": {"batch": 2, "side": 16, "steps": 2},
}

ROWS = {
    "adjoint_matvec": ["adjoint_matvec", "adjoint_matvec/build"],
    "adjoint_mlp": ["adjoint_mlp"],
    "adjoint_conv": ["adjoint_conv/conv1", "adjoint_conv/mean"],
    "adjoint_heat": ["adjoint_heat"],
    "adjoint_messages": ["adjoint_messages"],
    "adjoint_gather": ["adjoint_gather"],
    "adjoint_memory": [
        *("adjoint_memory/mnist", "adjoint_memory/mnist/peak"),
        *(f"adjoint_memory/{name}{what}" for name in ("layers", "recurrent") for what in ("", "/cycles")),
        "adjoint_memory/revolve",
        *("adjoint_memory/lattice_boltzmann/every", "adjoint_memory/lattice_boltzmann/revolve"),
    ],
    "alexnet_step": ["alexnet_step", "alexnet_step/fine"],
    "resnet50_step": ["resnet50_step"],
    "resnet18_step": ["resnet18_step"],
    "resnet34_step": ["resnet34_step"],
    "strain_step": ["strain_step", "strain_step/batch2"],
    "mnist_traced_step": ["mnist_traced_step"],
    "onnx_trace": ["onnx_trace"],
    "trace_compile": [
        "trace_compile",
        *(f"trace_compile/{own}" for own in ("traced", "lowered", "compiled", "cut", "reuse")),
        *(f"trace_compile/{own}{apart}" for own in ("vertices", "edges") for apart in ("", "/apart")),
        "trace_compile/fine",
    ],
    "bitonic": ["bitonic", "bitonic/compile"],
    "blocks": [
        f"blocks/odd/{build}{what}"
        for build in ("lengths", "loops", "concat")
        for what in ("", "/lowering", "/compiling", "/equations")
    ],
    "build": ["build"],
    "call_chain": [
        "call_chain",
        "call_chain/gradient",
        "call_chain/compile",
        "call_chain/compile_one",
        "call_chain/compile_growth",
    ],
    "compile": ["compile", "compile/fewer_vertices", "compile/growth"],
    "many_codelets": [
        *("many_codelets", "many_codelets/some", "many_codelets/few", "many_codelets/growth"),
        *("many_codelets/compile_some", "many_codelets/compile_few"),
    ],
    "conv": [
        "conv/batch1/conv1",
        "conv/batch1/conv1/gradient",
        "conv/batch2/conv1",
        "conv/batch2/conv1/gradient",
        "conv/mean",
        "conv/mean/gradient",
    ],
    "correlate": ["correlate/3", "correlate/8"],
    "elementwise": ["elementwise", "elementwise/gradient"],
    "gather_dot": ["gather_dot", "gather_dot/gradient"],
    "gpt2": ["gpt2/float32/trace", "gpt2/float32/profile", "gpt2/float32/step"],
    "heat": ["heat", "heat/there_and_back"],
    "ising": ["ising"],
    "join": ["join/matmul"],
    "lattice_boltzmann": [
        "lattice_boltzmann/one",
        "lattice_boltzmann/one/gradient",
        "lattice_boltzmann/nine",
        "lattice_boltzmann/nine/gradient",
    ],
    "life": ["life/modulo", "life/wrap", "life/windows"],
    "loops": [
        *(f"loops/scan/{own}" for own in ("2x2", "2x2x3", "3x2", "3x2x3")),
        *(f"loops/scan/{own}" for own in ("3x2/grad_of_traced", "3x2/trace_of_grad", "3x2/adjoint", "growth/2")),
        *("loops/fori_columns/2x2", "loops/fori_columns/2x3"),
        *(
            f"loops/fori_columns/{own}"
            for own in ("2x3/grad_of_traced", "2x3/trace_of_grad", "2x3/adjoint", "growth/2")
        ),
        *("loops/while_rows/2x2", "loops/while_rows/3x2", "loops/while_rows/growth/2"),
    ],
    "matmul": ["matmul", "matmul/gradient"],
    "matvec": ["matvec", "matvec/gradient"],
    "mesh": [
        *("mesh/heat", "mesh/heat/there_and_back", "mesh/mnist_step", "mesh/mnist_step/plain"),
        "mesh/moved/stencil",
        *("mesh/moved/matvec/rows", "mesh/moved/matvec/columns", "mesh/moved/conv1/rows", "mesh/moved/conv1/channels"),
        *("mesh/moved/mnist_step", "mesh/moved/messages", "mesh/memory"),
    ],
    "messages": ["messages", "messages/gradient", "messages/compile"],
    "mnist_step": ["mnist_step", "mnist_step/batch3"],
    "npbench": [
        *(
            f"npbench/jacobi_1d/{size}{way}"
            for size in ("odd", "small")
            for way in ("", "/grad_of_traced", "/trace_of_grad", "/adjoint", "/by_hand")
        ),
        *("npbench/jacobi_1d/odd/build", "npbench/crc16/odd", "npbench/crc16/small", "npbench/crc16/odd/build"),
        *("npbench/mean", "npbench/mean/grad_of_traced", "npbench/mean/trace_of_grad"),
    ],
    "ops_gradients": ["ops_gradients/product/prime/6", "ops_gradients/product/prime/6/jax_grad"],
    "hand_gradients": ["hand_gradients/norm/uneven", "hand_gradients/norm/uneven/jax_grad"],
    "language_model": ["language_model/6"],
    "engine_run": ["engine_run"],
    "loop_gradients": [
        f"loop_gradients/{name}{by}"
        for name in ("wave", "wave/revolve", "heat/uneven", *(f"conjugate_gradients/bound_{k}" for k in (1, 2, 4)))
        for by in ("", "/jax_grad")
    ],
    "ops_embedding": ["ops_embedding", "ops_embedding/gradient", "ops_embedding/operation"],
    "ops_map": [f"ops_map/{own}" for own in ("gelu", "gelu/gradient", "bias", "bias/gradient", "bias/operation")],
    "ops_conv": [
        f"ops_conv/{part}/{kind}{finest}"
        for kind in ("forward", "by_input", "by_kernel")
        for finest in ("", "/finest")
        for part in ("alexnet/conv1", "resnet50/narrow2", "mean")
    ],
    "ops_matmul": [f"ops_matmul/odd/{own}" for own in ("planned", "planned/gradient", "finest", "finest/gradient")],
    "ops_attention": [
        "ops_attention",
        "ops_attention/gradient",
        "ops_attention/gradient_operation",
        "ops_attention/causal",
        "ops_attention/causal/gradient",
        "ops_attention/causal/gradient_operation",
    ],
    "ops_random": [
        "ops_random/uniform",
        "ops_random/uniform/fine",
        "ops_random/normal",
        "ops_random/dropout",
        "ops_random/dropout/gradient",
        "ops_random/dropout/gradient_operation",
    ],
    "ops_pool": [
        f"ops_pool/{name}{finest}{part}"
        for name in ("pool", "mean")
        for finest in ("", "/finest")
        for part in ("", "/gradient", "/operation")
    ],
    "patchwork": ["patchwork", "patchwork/gradient"],
    "draw": [
        *("draw/links", "draw/links_peak", "draw", "draw/peak"),
        *(f"draw/{own}" for own in ("place_layers", "place_stretches", "place_vertices", "draw", "save")),
        *("draw/layers/50", "draw/layers/100", "draw/growth"),
    ],
    "draw_small": ["draw_small", "draw_small/first"],
    "placement": [
        *("placement/mesh_2d", "placement/factors", "placement", "placement/without", "placement/million"),
    ],
    "profile": ["profile", "profile/fine", "profile/fine_peak"],
    "report": [f"report/mnist_fine/{own}" for own in ("collect", "write", "size")],
    "ops_norm": [
        *(
            f"ops_norm/{norm}{kind}"
            for norm in ("batch", "layer", "group")
            for kind in ("", "/gradient", "/gradient_operation")
        ),
        *("ops_norm/rms", "ops_norm/rms/gradient"),
    ],
    "ops_softmax": [
        f"ops_softmax/{rows}{kind}"
        for rows in ("rows", "vocabulary")
        for kind in ("", "/gradient", "/gradient_operation")
    ],
    "ops_reduce": [
        *("ops_reduce/sum/major", "ops_reduce/sum/minor", "ops_reduce/sum/all"),
        *("ops_reduce/max/major", "ops_reduce/max/major/gradient", "ops_reduce/max/minor"),
        *("ops_reduce/max/minor/gradient", "ops_reduce/max/all", "ops_reduce/max/all/gradient"),
        *("ops_reduce/var", "ops_reduce/var/gradient"),
    ],
    "stream_train": ["stream_train"],
    "tile_array": ["tile_array", "tile_array/heat"],
}

KEYS = {
    "name",
    "ours_seconds",
    "plain_jax_seconds",
    "ratio",
    "bar",
    "note",
    "ours_peak_mb",
    "plain_jax_peak_mb",
    "peak_ratio",
    "peak_bar",
}


def test_every_benchmark_has_a_small_form():
    assert set(SMALL) == set(ROWS) == set(BENCHMARKS) == set(every.__all__) - {"BENCHMARKS"}


@pytest.fixture(scope="module")
def another_process():
    """One process in the place of all fresh ones: it imports what it runs anew, but once."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield lambda function, *arguments: pool.submit(function, *arguments).result()


LONG = (
    *(
        "draw",
        "draw_small",
        "report",
        "adjoint_memory",
        "alexnet_step",
        "strain_step",
        "trace_compile",
        "lattice_boltzmann",
    ),
    *("ops_attention", "ops_conv", "ops_map", "ops_norm", "ops_pool", "ops_random", "mesh", "bitonic"),
    *(
        "tile_array",
        "mnist_step",
        "resnet34_step",
        "blocks",
        "ising",
        "call_chain",
        "mnist_traced_step",
        "onnx_trace",
        "ops_reduce",
        "ops_softmax",
        "resnet50_step",
        "npbench",
        "loops",
    ),
)
"""Those of which other tests run nearly all."""


@pytest.mark.parametrize("name", [pytest.param(own, marks=[pytest.mark.slow] * (own in LONG)) for own in SMALL])
def test_benchmark_agrees_with_plain_jax_and_yields_its_rows(name, another_process, monkeypatch):
    if hasattr(module := sys.modules[BENCHMARKS[name].__module__], "in_fresh_process"):
        monkeypatch.setattr(module, "in_fresh_process", another_process)
    rows = list(measure(name, repeats=2, seconds=0, **SMALL[name]))
    assert [row.name for row in rows] == ROWS[name]
    for row in rows:
        assert row.as_json().keys() == KEYS
        if row.plain_jax_seconds is None:
            assert (row.ratio is None) == (row.note == "")
        else:
            assert row.ours_seconds is not None
            assert row.ratio == row.ours_seconds / row.plain_jax_seconds
            assert row.note in ("", "of fused", "of one device")


def test_rows_are_chosen_by_name_and_others_are_not_run(monkeypatch, capsys):
    def several():
        yield Comparison("several/one", lambda x: x, lambda x: x, ones, bar=1e9)
        row = yield Comparison("several/other", lambda x: x + 1, lambda x: x, ones)  # it would differ
        yield Measurement("several/build", lambda name: Row(name, None, None, 2.0, None, "to something"))
        yield from mean_row("several/mean", [row])
        yield Row("several/one_more", None, None, 1.0, None, "to something")

    monkeypatch.setitem(BENCHMARKS, "several", several)
    rows = lambda name: [row.name for row in measure(name, repeats=1, seconds=0)]  # noqa: E731
    assert rows("several/one") == ["several/one"]
    assert rows("several/build") == ["several/build"]
    assert rows("several/one_more") == ["several/one_more"]
    assert rows("several/mean") == []
    with pytest.raises(ValuesDiffer):
        rows("several")
    with pytest.raises(SystemExit):
        main(["several/mean"])
    assert "no row is 'several/mean'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["nothing/one"])
    assert "there is no benchmark 'nothing/one'" in capsys.readouterr().err


def test_bar_is_for_what_takes_long_enough():
    long, short = (compare(Comparison("x", nap(0), nap(t), ones, 1.0, bar_from_seconds=0.01), 1, 0) for t in (0.02, 0))
    assert (long.bar, short.bar) == (1.0, None)


def test_rounds_end_where_they_take_long():
    calls = []
    time_in_turn([lambda: calls.append(0)], repeats=5, seconds=0)
    assert len(calls) == 6
    time_in_turn([lambda: calls.append(time.sleep(0.02))], repeats=5, most_seconds=0.01)
    assert len(calls) == 8


def test_mean_of_the_convolutions_is_geometric():
    rows = {row.name: row for row in measure("conv", repeats=1, seconds=0, **SMALL["conv"])}
    for kind in ("", "/gradient"):
        ratios = np.array([rows[f"conv/batch{batch}/conv1{kind}"].ratio for batch in (1, 2)], float)
        assert rows[f"conv/mean{kind}"].ratio == pytest.approx(np.sqrt(ratios.prod()))
        assert rows[f"conv/mean{kind}"].note == "the geometric mean of 2 ratios"


def test_rows_without_plain_jax_say_what_their_ratio_is():
    assert str(Row("build", 8e-6, None, 0.8, 1.0, "to 10 us")).split() == [
        "build",
        "8.000",
        "us",
        "0.80",
        "1.00",
        "to",
        "10",
        "us",
    ]
    assert str(Row("mean", None, None, 1.2, 1.0, "a mean")).split() == ["mean", "1.20", "1.00", "a", "mean", "missed"]


# --- memory -------------------------------------------------------------------------------------------


def test_peak_memory_is_that_of_the_process_alone():
    filler = np.ones(6 * 10**8, np.int8)  # a process inherits `ru_maxrss`: it must not count this
    before, after = in_fresh_process(hold, 10**8)
    assert before < len(filler)
    assert 0.9e8 < after - before < 1.1e8


@pytest.mark.slow
def test_peaks_are_measured_for_rows_with_two_sides():
    row = with_peaks("elementwise", Row("elementwise/gradient", 1.0, 1.0, 1.0, 1.05), **SMALL["elementwise"])
    assert row.ours_peak_mb is not None
    assert row.plain_jax_peak_mb is not None
    assert row.ours_peak_mb > 50
    assert row.peak_ratio == row.ours_peak_mb / row.plain_jax_peak_mb
    assert row.peak_bar == 1.25
    assert replace(row, peak_ratio=1.3).is_missed
    assert not replace(row, peak_ratio=1.2).is_missed
    alone = Row("build", 1e-5, None, 1.0, 1.0)
    assert with_peaks("build", alone) is alone


def test_comparison_is_found_without_measuring():
    found = find_comparison("conv", "conv/batch2/conv1", SMALL["conv"])
    assert (found.name, found.bar) == ("conv/batch2/conv1", 1.3)


def test_memory_is_printed_where_it_is_asked_for(timed_soon, monkeypatch, capsys):
    def measured(name, row):
        return replace(row, ours_peak_mb=130.0, plain_jax_peak_mb=100.0, peak_ratio=1.3, peak_bar=1.25)

    monkeypatch.setitem(BENCHMARKS, "quick", quick)
    monkeypatch.setattr("benchmarks.__main__.with_peaks", measured)
    assert main(["quick", "--repeats", "2", "--memory"]) == 1
    assert "130 MB      100 MB   1.30   1.25 missed" in capsys.readouterr().out
    assert main(["quick", "--repeats", "2", "--memory", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["peak_ratio"] == 1.3


# --- the harness --------------------------------------------------------------------------------------


def nap(seconds):
    def run(x):
        time.sleep(seconds)
        return x

    return run


def ones(random):
    return (np.ones(3, np.float32),)


@pytest.fixture
def timed_soon(monkeypatch):
    """The command stops after as many rounds as it is asked for, not after a second."""
    monkeypatch.setattr("benchmarks.__main__.measure", partial(measure, seconds=0))


def slow():
    """Slower than plain JAX, and then a row of its own."""
    row = yield Comparison("slow", nap(0.02), nap(0.001), ones, bar=2.0)
    yield Row("slow/own", row.ours_seconds, None, None, None)


def quick():
    """Quicker than plain JAX."""
    yield Comparison("quick", nap(0.001), nap(0.02), ones, bar=1.0)


def test_missed_bar_is_the_exit_status(timed_soon, monkeypatch, capsys):
    monkeypatch.setitem(BENCHMARKS, "slow", slow)
    assert main(["slow", "--json", "--repeats", "2"]) == 1
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["name"], first["bar"]) == ("slow", 2.0)
    assert first["ratio"] == first["ours_seconds"] / first["plain_jax_seconds"] > 2
    assert second == {**dict.fromkeys(KEYS), "name": "slow/own", "ours_seconds": first["ours_seconds"], "note": ""}
    assert main(["slow", "--repeats", "2"]) == 1
    out = capsys.readouterr().out
    assert "missed" in out
    assert "1 above the bar" in out


def test_kept_bar_is_no_error(timed_soon, monkeypatch, capsys):
    monkeypatch.setitem(BENCHMARKS, "quick", quick)
    assert main(["quick", "--repeats", "2"]) == 0
    assert "missed" not in capsys.readouterr().out


def test_sides_that_differ_are_not_timed(monkeypatch):
    def wrong():
        yield Comparison("wrong", lambda x: x + 1, lambda x: x, ones)

    monkeypatch.setitem(BENCHMARKS, "wrong", wrong)
    with pytest.raises(ValuesDiffer, match="wrong: results are up to 1 apart"):
        list(measure("wrong", repeats=1, seconds=0))


@pytest.mark.parametrize(
    ("ours", "plain", "message"),
    [
        (np.array([1, 2], np.int32), np.array([1, 3], np.int32), "the tolerance 0 of it"),
        (np.array([1, 2], np.float32), np.array([1, 2.1], np.float32), "0.1 apart"),
        (np.array([np.nan], np.float32), np.array([1], np.float32), "nan apart"),
        (np.array([1], np.float32), np.array([1], np.int32), "ours returns float32"),
        (np.array([1], np.float32), np.array([1, 1], np.float32), r"ours returns float32\(1,\)"),
        ([np.float32(1)], np.float32(1), "ours returns PyTreeDef"),
    ],
)
def test_what_counts_as_different(ours, plain, message):
    with pytest.raises(ValuesDiffer, match=message):
        check_same("test", ours, plain, 1e-5)
    check_same("test", plain, plain, 1e-5)


def test_gradient_of_pulls_back_random_cotangents():
    double = jax.jit(lambda x: 2 * x)
    gradient = gradient_of(Comparison("double", double, double, ones), bar=1.5)
    cotangents, x = gradient.arguments(np.random.default_rng(0))
    value, (slope,) = gradient.side("ours")(cotangents, x)
    assert (gradient.name, gradient.bar) == ("double/gradient", 1.5)
    np.testing.assert_allclose(value, 2 * x)
    np.testing.assert_allclose(slope, 2 * cotangents)


def test_what_a_side_holds_has_no_gradient():
    scaled = jax.jit(lambda index, x: 2 * x[index])
    held = lambda: (np.array([2, 0], np.int32),)  # noqa: E731
    forward = Comparison("scaled", scaled, scaled, ones, ours_held=held, plain_held=held)
    gradient = gradient_of(forward, bar=None)
    cotangents, x = gradient.arguments(np.random.default_rng(0))
    value, (slope,) = gradient.side("plain")(cotangents, x)
    np.testing.assert_allclose(value, [2, 2])
    np.testing.assert_allclose(slope, [2 * cotangents[1], 0, 2 * cotangents[0]])


def test_list_and_unknown_names(capsys):
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in SMALL)
    with pytest.raises(SystemExit) as stopped:
        main(["matvek"])
    assert stopped.value.code == 2
    told = capsys.readouterr().err
    assert "there is no benchmark 'matvek'; there are " in told
    assert all(name in told for name in SMALL)
