"""The benchmark harness, and every benchmark on small sizes."""

import json
import time

import jax
import numpy as np
import pytest

import benchmarks
from benchmarks.__main__ import main
from benchmarks.harness import BENCHMARKS, Comparison, Row, ValuesDiffer, check_same, gradient_of, measure

SMALL = {
    "elementwise": {"rows": 4, "columns": 6},
    "matvec": {"rows": 3, "columns": 32},
    "mnist_step": {"batch": 2, "large_batch": 3},
}

ROWS = {
    "elementwise": ["elementwise", "elementwise/gradient"],
    "matvec": ["matvec", "matvec/gradient"],
    "mnist_step": ["mnist_step", "mnist_step/batch3"],
}


def test_every_benchmark_has_a_small_form():
    assert set(SMALL) == set(ROWS) == set(BENCHMARKS) == set(benchmarks.__all__)


@pytest.mark.parametrize("name", SMALL)
def test_benchmark_agrees_with_plain_jax_and_yields_its_rows(name):
    rows = list(measure(name, repeats=2, seconds=0, **SMALL[name]))
    assert [row.name for row in rows] == ROWS[name]
    for row in rows:
        assert row.plain_jax_seconds is not None
        assert row.ratio == row.ours_seconds / row.plain_jax_seconds
        assert row.as_json().keys() == {"name", "ours_seconds", "plain_jax_seconds", "ratio", "bar"}


def nap(seconds):
    def run(x):
        time.sleep(seconds)
        return x

    return run


def ones(random):
    return (np.ones(3, np.float32),)


def slow():
    """Slower than plain JAX, and then a row of its own."""
    row = yield Comparison("slow", nap(0.02), nap(0.001), ones, bar=2.0)
    yield Row("slow/own", row.ours_seconds, None, None, None)


def quick():
    """Quicker than plain JAX."""
    yield Comparison("quick", nap(0.001), nap(0.02), ones, bar=1.0)


def test_missed_bar_is_the_exit_status(monkeypatch, capsys):
    monkeypatch.setitem(BENCHMARKS, "slow", slow)
    assert main(["slow", "--json", "--repeats", "2"]) == 1
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["name"], first["bar"]) == ("slow", 2.0)
    assert first["ratio"] == first["ours_seconds"] / first["plain_jax_seconds"] > 2
    assert second == {
        "name": "slow/own",
        "ours_seconds": first["ours_seconds"],
        "plain_jax_seconds": None,
        "ratio": None,
        "bar": None,
    }
    assert main(["slow", "--repeats", "2"]) == 1
    out = capsys.readouterr().out
    assert "missed" in out
    assert "1 above the bar" in out


def test_kept_bar_is_no_error(monkeypatch, capsys):
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
    value, (slope,) = gradient.ours(cotangents, x)
    assert (gradient.name, gradient.bar) == ("double/gradient", 1.5)
    np.testing.assert_allclose(value, 2 * x)
    np.testing.assert_allclose(slope, 2 * cotangents)


def test_list_and_unknown_names(capsys):
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in SMALL)
    with pytest.raises(SystemExit) as stopped:
        main(["matvek"])
    assert stopped.value.code == 2
    assert "there is no benchmark 'matvek'; there are elementwise" in capsys.readouterr().err
