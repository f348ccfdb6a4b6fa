"""Mends: whatever the advice of an error names of the library is there."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import codelet as cl

ROOT = Path(cl.__file__).parents[1]
ROOMS = ("codelet", "lowering", "ipu_backend")

OWNERS: dict[str, Any] = {
    "cl": cl,
    "ops": cl.ops,
    "cl.ops": cl.ops,
    "graph": cl.Graph,
    "engine": cl.Engine,
    "profile": cl.Profile,
    "checkpoints": cl.Checkpoints,
    "tensor": cl.Tensor,
    "record": cl.Record,
    "traced": cl.Traced,
    "jax": jax,
    "jnp": jax.numpy,
    "numpy": np,
}
"""What the names stand for that advice is written with."""

_NAMED = re.compile(rf"(?<![\w.'])({'|'.join(map(re.escape, OWNERS))})((?:\.[A-Za-z_]\w*)+)")


def named(text: str) -> Iterator[tuple[str, list[str]]]:
    """What a text names: an owner, and the path of an attribute of it."""
    for owner, path in _NAMED.findall(text):
        yield owner, path[1:].split(".")


def missing(text: str) -> list[str]:
    """What a text names that is not there."""
    found = []
    for owner, path in named(text):
        own = OWNERS[owner]
        for name in path:
            if name[0] == "_" or not (hasattr(own, name) or _is_set_on(own, name) or _is_module(own, name)):
                found.append(f"{owner}.{'.'.join(path)}")
                break
            if not hasattr(own, name) or isinstance(own.__dict__.get(name), property):
                break  # of what an instance holds the type is not known
            own = getattr(own, name)
    return found


def _is_set_on(own: Any, name: str) -> bool:
    """Whether instances of a class have an attribute that their `__init__` sets."""
    return isinstance(own, type) and name in {*own.__init__.__code__.co_names, *getattr(own, "__annotations__", ())}


def _is_module(own: Any, name: str) -> bool:
    try:
        return bool(importlib.import_module(f"{own.__name__}.{name}"))
    except (ImportError, AttributeError):
        return False


def _texts(node: ast.expr) -> Iterator[str]:
    """The text in an expression, with `{}` for what is filled in."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(own.value if isinstance(own, ast.Constant) else "{}" for own in node.values)  # type: ignore[misc]
    else:
        for own in ast.iter_child_nodes(node):
            if isinstance(own, ast.expr):
                yield from _texts(own)


def mends() -> Iterator[tuple[str, str]]:
    """All advice of the library, as `fix=` gives it, with the line where it stands."""
    for path in (own for room in ROOMS for own in (ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            given = [own for own in node.keywords if own.arg == "fix"] if isinstance(node, ast.Call) else []
            values = [own.value for own in given]
            if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "fix" for t in node.targets):
                values.append(node.value)
            for value in values:
                for text in _texts(value):
                    yield f"{path.relative_to(ROOT)}:{value.lineno}", text


def test_what_mends_name_is_there():
    every = list(mends())
    assert sum(bool([*named(text)]) for _, text in every) >= 50
    assert {place: found for place, text in every if (found := missing(text))} == {}


@pytest.mark.parametrize(
    "text",
    ["cl.ops.reduce_sum(graph, x)", "graph.add_varable('x', ())", "ops.nothing", "cl.Repeats", "engine.wrote(x)"],
)
def test_what_is_not_there_is_found(text):
    assert missing(text)


def test_a_mend_for_a_codelet_shows_what_failed():
    @cl.codelet
    def branching(x):
        return x if x > 0 else -x

    graph = cl.Graph()
    x = graph.add_variable("x", (3,))
    with pytest.raises(cl.CodeletTraceError) as error:
        graph.add_vertex("own", branching, x=x[cl.grid(3)])
    assert "fix" in str(error.value)
    with pytest.raises(jax.errors.ConcretizationTypeError):
        jax.make_jaxpr(branching)(np.float32(1))

    @cl.codelet
    def failing(x):
        return x @ x

    y = graph.add_variable("y", (3, 4))
    with pytest.raises(
        cl.CodeletTraceError, match=r"jax\.make_jaxpr\(failing\)\(\.\.\.\), of such arrays, shows where"
    ):
        graph.add_vertex("own", failing, x=y)
    with pytest.raises(TypeError):
        jax.make_jaxpr(failing)(np.ones((3, 4)))


def test_variables_are_what_the_other_functions_take():
    graph = cl.Graph(cl.IPU(num_tiles=4))
    graph.add_variable("x", (2, 3))
    graph.add_constant("c", np.arange(4))
    x, c = graph.variables
    assert (x.name, c.name, graph.num_elements) == ("x", "c", 10)
    graph.set_tile_mapping(x, 2)
    assert graph.tile_mapping(x[1]).tolist() == [2, 2, 2]
    assert graph.tile_mapping(c).tolist() == [-1] * 4
    assert graph.tile_mapping(x[0].pad(1)).tolist() == [-1, 2, 2, 2, -1]
    graph.set_tile_mapping(c, 0)
    engine = cl.Engine(graph)
    engine.write({x: np.ones((2, 3))})
    assert engine.read(x).sum() == 6


def test_a_kind_of_phase_that_there_is_not():
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x = graph.add_variable("x", (2,))
    graph.add_vertex("own", cl.codelet(lambda x: {"x": x + 1}), x=x)
    profile = cl.Engine(graph).profile()
    for own in (profile, profile.steps[0]):
        with pytest.raises(cl.FigureError, match="no such kind of phase"):
            own.cycles_of("typo")
