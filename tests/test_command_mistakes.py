"""Mistakes on the command line: a few lines that say what to do, and never a traceback."""

from __future__ import annotations

import re
import subprocess
import sys

import jax.numpy as jnp
import pytest

import codelet as cl
from ipu_backend.cli import main

MODULE = """
import jax.numpy as jnp

number = 3

def fails():
    return [][1]

def untraceable():
    def own(x):
        return x @ jnp.ones((7, 7))
    return own, jnp.ones(4)

def decides():
    return (lambda x: x if x[0] > 0 else -x), jnp.ones(4)

def nothing():
    return 3

def asks(first):
    return jnp.sin, jnp.ones(4)

def sine():
    return jnp.sin, jnp.ones(4)
"""

MISTAKES = {
    ":": ("there is no such function", "package.module:function"),
    "networks": ("there is no such network", "alexnet, resnet18"),
    "mistakes:": ("there is no such function", "package.module:function"),
    ":sine": ("there is no such function", "package.module:function"),
    "mistakes:a b": ("there is no such function", "package.module:function"),
    "mistakes:other": ("there is no such function", "module 'mistakes' has no attribute 'other'"),
    "nowhere.at.all:other": ("there is no such function", "No module named 'nowhere'"),
    "mistakes:number": ("what should be called is no function", "mistakes:number is 3"),
    "mistakes:fails": ("a function fails where it is called", r"IndexError.*mistakes.py:7: return \[\]\[1\]"),
    "mistakes:untraceable": ("a function cannot be traced", "TypeError.*mistakes.py:11: return x @ jnp.ones"),
    "mistakes:decides": ("asks for a value that is not known", "jnp.where"),
    "mistakes:nothing": ("no function with examples", "returns int: 3"),
    "mistakes:asks": ("cannot be called with no arguments", "'first'"),
    "broken:any": ("a module cannot be imported", "SyntaxError.*broken.py:2"),
    "raises:any": ("a module cannot be imported", "ZeroDivisionError.*raises.py:1: 1 / 0"),
}
"""Names that make nothing, what is said of each, and what besides."""


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Modules of a user's, in the working directory."""
    for name, text in {"mistakes": MODULE, "broken": "x = 1\ndef f(:\n", "raises": "1 / 0\n"}.items():
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("mistakes", "broken", "raises"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("job", ["build", "draw", "report", "check"])
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_in_lines(job, name, modules):
    problem, more = MISTAKES[name]
    with pytest.raises(SystemExit) as caught:
        main([job, name, *([] if job in ("build", "check") else ["-o", f"out.{'png' if job == 'draw' else 'html'}"])])
    told = str(caught.value)
    assert told.startswith(f"codelet {job}: ")
    assert problem in told
    assert re.search(more, told, re.DOTALL), told
    assert len(told.splitlines()) <= 6
    assert not {own.name for own in modules.iterdir()} & {"out.png", "out.html"}


def test_a_batch_that_a_function_does_not_take(modules):
    with pytest.raises(SystemExit, match=r"(?s)cannot be called with batch=.*'batch'"):
        main(["build", "mistakes:sine", "--batch", "3"])


def test_no_traceback_is_printed(modules):
    """As a shell sees it."""
    done = subprocess.run(
        [sys.executable, "-m", "codelet", "build", "mistakes:fails"], cwd=modules, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("codelet build: a function fails where it is called\n")


PATHS = ["", ".", "missing/picture.png", "folder.png", "a" * 300 + ".png", "picture.tiff", "picture", "nul\0.png"]


def _never(*_: object) -> None:
    raise AssertionError("something is drawn for a path at which nothing can be written")


@pytest.mark.parametrize("path", PATHS)
def test_a_path_is_looked_at_before_anything_is_drawn(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.png").mkdir()
    traced = cl.trace(jnp.tanh, jnp.ones(4000), target=cl.IPU(num_tiles=64))
    with pytest.raises((cl.DrawError, cl.FileError)):
        cl.draw(traced, path=path, note=_never)
    with pytest.raises((cl.DrawError, cl.FileError)):
        traced.diagram(path)
    with pytest.raises(SystemExit, match=r"codelet draw: a (file cannot|picture is)") as caught:
        monkeypatch.setattr("ipu_backend.jobs.adjoint.find_function", _never)
        main(["draw", "mnist", f"--output={path or '.'}"])
    assert len(str(caught.value).splitlines()) <= 5


@pytest.mark.parametrize("option", ["-o", "--json"])
def test_the_paths_of_a_report_are_looked_at_first(option, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ipu_backend.jobs.adjoint.find_function", _never)
    with pytest.raises(SystemExit, match="codelet report: a file cannot be written there"):
        main(["report", "mnist", option, "missing/page.html"])


def test_what_was_there_stays_where_a_picture_cannot_be_written(tmp_path):
    path = tmp_path / "diagram.svg"
    path.write_text("before")
    graph = cl.Graph()
    graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", (4,)))
    graph.diagram(path)
    assert path.read_text().startswith("<svg")
    assert [own.name for own in tmp_path.iterdir()] == ["diagram.svg"]
