"""What all operations have in common: how they are called, named and described."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pkgutil
import re
from pathlib import Path

import pytest

import codelet as cl
from codelet import ops

PAGE = Path(__file__).parents[1] / "docs" / "operations.md"
OPERATIONS = {
    name: value
    for name, value in vars(ops).items()
    if inspect.isfunction(value) and not name.startswith(("_", "plan_"))
}


def test_the_page_names_every_operation_and_no_other():
    table = PAGE.read_text().split("## The operations")[1].split("## How an operation is planned")[0]
    public = {name for name, value in vars(ops).items() if inspect.isfunction(value) and not name.startswith("_")}
    named = set(re.findall(r"`ops\.(\w+)`", table))
    assert named == public


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_are_called_alike(name):
    parameters = inspect.signature(OPERATIONS[name]).parameters
    first = next(iter(parameters.values()))
    assert first.name == "graph"
    assert parameters["name"].kind is inspect.Parameter.KEYWORD_ONLY
    assert inspect.getdoc(OPERATIONS[name])


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_is_no_graph_is_told(name):
    parameters = inspect.signature(OPERATIONS[name]).parameters.values()
    needed = [
        own for own in parameters if own.default is inspect.Parameter.empty and own.kind is not own.VAR_POSITIONAL
    ]
    by_name = {own.name: None for own in needed if own.kind is own.KEYWORD_ONLY}
    with pytest.raises(cl.CodeletError) as told:
        OPERATIONS[name](*[None] * (len(needed) - len(by_name)), **by_name)
    assert "test_ops_library.py" in str(told.value)


def test_every_codelet_is_found_again_by_its_name():
    modules = [importlib.import_module(own.name) for own in pkgutil.iter_modules(ops.__path__, "codelet.ops.")]
    values = [value for module in modules for value in vars(module).values()]
    parts = [own for value in values for own in (value if isinstance(value, tuple) else [value])]
    every = [own for own in parts if isinstance(own, cl.Codelet)]
    assert len(every) > 100
    for codelet in every:
        assert pickle.loads(pickle.dumps(codelet)) is codelet


OF_NOTHING = {
    "product": lambda graph: ops.matmul(graph, graph.add_variable("a", (50, 0)), graph.add_variable("b", (0, 60))),
    "convolution": lambda graph: ops.conv_general_dilated(
        graph, graph.add_variable("x", (1, 0, 50, 60)), graph.add_variable("w", (2, 0, 1, 1))
    ),
    "sum": lambda graph: ops.sum(graph, graph.add_variable("x", (50, 0, 60)), 1),
    "logsumexp": lambda graph: ops.logsumexp(graph, graph.add_variable("x", (50, 0, 60)), 1),
}


@pytest.mark.parametrize("kind", OF_NOTHING)
def test_what_is_made_of_nothing_is_filled_as_an_array_is(kind):
    graph, alike = cl.Graph(cl.IPU(num_tiles=8)), cl.Graph(cl.IPU(num_tiles=8))
    out = OF_NOTHING[kind](graph)
    ops.fill(alike, out.shape, 0.0)
    assert graph.num_vertices == alike.num_vertices == 8
    found = next(iter(cl.lower(graph, inputs=[], outputs=[out])({}).values()))
    assert (found == (float("-inf") if kind == "logsumexp" else 0)).all()
