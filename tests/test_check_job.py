"""The job `codelet check`: what it compares, what it says, and its exit status."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from ipu_backend.cli import main
from ipu_backend.jobs.check import check_function
from lowering.jaxprs import simplify
from tests.test_equal import halved_where_it_is_reduced

BOTH = ["the graph of a trace", "what a trace is lowered to"]


def slopes(batch=3):
    """A gradient, and examples of its arguments."""
    return jax.grad(lambda w, x: jnp.mean(jnp.tanh(x @ w) ** 2)), jnp.ones((4, 2)), jnp.ones((batch, 4))


def sums():
    """Sums of columns."""
    return (lambda x: x.sum(0)), jnp.ones((3, 2))


def many():
    """A loop that ends where floats say."""
    return (lambda x: lax.while_loop(lambda c: c.sum() < 9, lambda c: 2 * c, x)), jnp.ones(3)


def test_a_function_and_its_graph_are_compared():
    found = check_function(f"{__name__}:slopes", batch=5, vertices=True)
    assert found
    assert [*found.answers] == [*found.seconds] == BOTH
    assert all(own.verdict == "equal" for own in found.answers.values())


def test_what_the_console_says(capsys):
    main(["check", f"{__name__}:slopes", "--vertices"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(",")[0] for line in lines] == BOTH
    assert all("equal: 8 elements at 4 random points" in line for line in lines)
    main(["check", f"{__name__}:slopes", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [*found] == BOTH[1:]
    assert found[BOTH[1]]["verdict"] == "equal"
    assert 0 < found[BOTH[1]]["chance"] < 2**-40


def test_its_exit_status(capsys, monkeypatch):
    with pytest.raises(SystemExit) as caught:
        main(["check", f"{__name__}:many"])
    assert caught.value.code == 1
    assert "undecided: while: how often it runs depends on floats" in capsys.readouterr().out
    monkeypatch.setattr(simplify, "recompute", halved_where_it_is_reduced)
    with pytest.raises(SystemExit) as caught:
        main(["check", f"{__name__}:sums"])
    assert caught.value.code == 1
    assert "different: [0][" in capsys.readouterr().out


def test_networks_have_names(capsys):
    main(["check", "mnist"])
    assert "equal: 203,541 elements" in capsys.readouterr().out


@pytest.mark.parametrize("job", ["build", "draw", "report", "check"])
def test_all_commands_of_graphs_take_the_same_options(job, capsys):
    with pytest.raises(SystemExit):
        main([job, "--help"])
    said = capsys.readouterr().out
    for option in ("--batch", "--grain", "--tiles", "--chip", "--adjoint", "--json [PATH]"):
        assert option in said


def loss(batch=3):
    """A loss, and examples of its arguments."""
    return (lambda w, x: jnp.mean(jnp.tanh(x @ w) ** 2)), jnp.ones((4, 2)), jnp.ones((batch, 4))


def test_a_gradient_by_vertices_is_compared(tmp_path, capsys):
    path = tmp_path / "found.json"
    main(["check", f"{__name__}:loss", "--adjoint", "--tiles", "8", "--json", str(path)])
    assert "the gradient by vertices" in capsys.readouterr().out
    found = json.loads(path.read_text())
    assert [own["verdict"] for own in found.values()] == ["equal", "equal"]


def test_a_report_and_a_picture_of_a_gradient(tmp_path, capsys):
    common = [f"{__name__}:loss", "--adjoint", "--chip", "mk1", "--tiles", "8"]
    main(["report", *common, "-o", str(tmp_path / "own.html"), "--json", str(tmp_path / "own.json"), "--no-picture"])
    record = json.loads((tmp_path / "own.json").read_text())
    assert record["about"]["num_tiles"] == 8
    main(["draw", *common, "-o", str(tmp_path / "own.svg"), "--json"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["path"].endswith("own.svg")
    assert "backward/" in (tmp_path / "own.svg").read_text()
