"""Old names work for one release: each does what the new one does, and warns once, at the user's line."""

# pyright: reportCallIssue=false, reportAttributeAccessIssue=false

import pickle
import re
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from codelet.deprecated import callable_still, old_arguments, old_attribute, old_order


class Loop:
    @old_arguments(turns="iterations")
    def __init__(self, body, *, iterations=1):
        """A loop."""
        self.body, self.iterations = body, iterations

    turns = old_attribute("Loop.turns", "iterations")

    @property
    def steps(self):
        return callable_still([1, 2], "Loop.steps")


@old_order(("values", "outputs", "program"), lambda second: isinstance(second, dict))
def run(graph, program=None, *, values, outputs):
    return graph, program, values, outputs


def test_a_keyword_under_its_old_name():
    with pytest.warns(DeprecationWarning, match=r"codelet: Loop\(turns=\.\.\.\) is now iterations=; the old") as told:
        made = Loop("body", turns=3)
    assert made.iterations == 3
    assert told[0].filename == __file__
    with pytest.raises(TypeError, match="given iterations= and, under its old name, turns="):
        Loop("body", turns=3, iterations=3)
    assert Loop.__init__.__doc__ == "A loop."


def test_an_attribute_under_its_old_name():
    made = Loop("body", iterations=2)
    with pytest.warns(DeprecationWarning, match=r"Loop\.turns is now iterations"):
        assert made.turns == 2
    with pytest.raises(AttributeError):
        made.other  # noqa: B018


def test_arguments_in_their_old_order():
    with pytest.warns(DeprecationWarning, match="run with values, outputs, program by position is now by keyword"):
        found = run("graph", {}, ["y"], "program")
    assert found == ("graph", "program", {}, ["y"]) == run("graph", "program", values={}, outputs=["y"])


def test_a_method_that_is_a_property():
    steps = Loop("body").steps
    assert steps == [1, 2]
    assert type(pickle.loads(pickle.dumps(steps))) is list
    with pytest.warns(DeprecationWarning, match=r"Loop\.steps\(\) is now Loop\.steps, a property"):
        assert steps() == [1, 2]


def test_new_names_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Loop("body", iterations=2)
        run("graph", values={}, outputs=[])


# --- each old name of the library ---------------------------------------------------------------------------------


def _graph():
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, y, flag = graph.add_variable("x", (4,)), graph.add_variable("y", (4,)), graph.add_variable("flag", (), "bool")
    i = cl.grid(4)
    graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i], out=y[i], tile=i)
    return graph, x, y, flag


def _profile():
    return cl.Engine(_graph()[0]).profile()


def _engine():
    engine = cl.Engine(_graph()[0])
    engine.write({"x": ONES})
    return engine


ONES = np.ones(4, np.float32)
KEY, IPU = jax.random.PRNGKey(0), cl.IPU(num_tiles=4)


def _of_graph(use):
    return lambda path: use(*_graph())


def _indices(graph):
    return graph.add_variable("indices", (2,), "int32")


def _of_wrong_gradient(path):
    return cl.GradientError("wrong", "found").report == "found"


OLD = {
    "Repeat(checkpoint=...) is now recompute=": lambda path: cl.Repeat(3, [], checkpoint=2).recompute == 2,
    "Repeat.checkpoint is now recompute": lambda path: cl.Repeat(3, [], recompute=2).checkpoint == 2,
    "RepeatWhile(max_steps=...) is now max_iterations=": _of_graph(
        lambda graph, x, y, flag: cl.RepeatWhile([], flag, [], max_steps=3).max_iterations == 3
    ),
    "RepeatWhile(turns=...) is now trip_count=": _of_graph(
        lambda graph, x, y, flag: cl.RepeatWhile([], flag, [], turns=3).trip_count == 3
    ),
    "RepeatWhile.max_steps is now": _of_graph(
        lambda graph, x, y, flag: cl.RepeatWhile([], flag, [], max_iterations=3).max_steps == 3
    ),
    "RepeatWhile.turns is now": _of_graph(
        lambda graph, x, y, flag: cl.RepeatWhile([], flag, [], trip_count=3).turns == 3
    ),
    "codelet(turns=...) is now trip_count=": lambda path: cl.codelet(lambda x: x, turns=3).hints.trip_count == 3,
    "codelet_from_jaxpr(turns=...) is now trip_count=": lambda path: cl.codelet_from_jaxpr(
        jax.make_jaxpr(jnp.sin)(1.0), "x", turns=3
    ),
    "Codelet.trace is now specialise": lambda path: cl.codelet(lambda x: x).trace,
    "Recompute.every(steps=...) is now compute_sets=": lambda path: cl.Recompute.every(steps=3).compute_sets == 3,
    "Recompute.steps is now compute_sets": lambda path: cl.Recompute.every(3).steps == 3,
    "interpret with values, outputs by position": _of_graph(
        lambda graph, x, y, flag: cl.interpret(graph, {"x": ONES}, ["y"])["y"].sum() == 8
    ),
    "gradient with of, wrt by position": _of_graph(
        lambda graph, x, y, flag: cl.gradient(graph, y, [x], cotangent=1.0)[x].shape == (4,)
    ),
    "check_gradient with of, wrt, values by position": _of_graph(
        lambda graph, x, y, flag: not cl.check_gradient(graph, y, [x], {"x": ONES}).wrong
    ),
    "describe(compute_sets=...) is now program=": _of_graph(
        lambda graph, x, y, flag: len(cl.describe(graph, compute_sets=[*graph.compute_sets])) == 1
    ),
    "Graph.vertices is now iter_vertices": _of_graph(lambda graph, *own: len([*graph.vertices()]) == 4),
    "Graph.edges is now iter_edges": _of_graph(lambda graph, *own: len([*graph.edges()]) == 8),
    "Graph.edge_blocks is now iter_edge_blocks": _of_graph(lambda graph, *own: [*graph.edge_blocks()]),
    "Vertex.edges is now iter_edges": _of_graph(lambda graph, *own: [*graph.vertex("double", 0).edges()]),
    "Graph.tile_mapping() is now Graph.element_tiles": _of_graph(lambda graph, *own: graph.tile_mapping().size > 8),
    "Engine.run(program=...) is now program_name=": lambda path: _engine().run(program="main") is None,
    "Engine.profile(keep=...) is now host_visible=": lambda path: _engine().profile(keep=["x"]),
    "Engine.machine(keep=...) is now host_visible=": lambda path: _engine().machine(keep="x"),
    "Engine.function(program=...) is now program_name=": lambda path: _engine().function(
        inputs="x", outputs="y", program="main"
    ),
    "Engine.state() is now Engine.state, a property": lambda path: [*_engine().state()] == ["x"],
    "Checkpoints(keep=...) is now max_to_keep=": lambda path: cl.Checkpoints(path, keep=2).max_to_keep == 2,
    "Checkpoints with max_to_keep by position is now by keyword: max_to_keep=": lambda path: (
        cl.Checkpoints(path, 2).max_to_keep == 2  # type: ignore[misc]
    ),
    "Profile.tables with layer_of by position is now by keyword: layer_of=": lambda path: _profile().tables(
        "own", lambda name: ""
    ),
    "Profile.show with height by position is now by keyword: height=": lambda path: _profile().show("own", 600),
    "Checkpoints.steps() is now Checkpoints.steps, a": lambda path: cl.Checkpoints(path).steps() == [],
    "Profile.trace is now chrome_trace": lambda path: _profile().trace()["traceEvents"],
    "Profile.record is now tables": lambda path: _profile().record("own").about["title"] == "own",
    "Profile.step_frame() is now": lambda path: len(_profile().step_frame()["name"]) == 1,
    "Profile.tile_frame() is now": lambda path: len(_profile().tile_frame()["tile"]) == 4,
    "Profile.codelet_frame() is now": lambda path: len(_profile().codelet_frame()["name"]) == 1,
    "StepProfile.repeats is now iterations": lambda path: _profile().steps[0].repeats == 1,
    "Comparison.tiles() is now": lambda path: cl.compare(_profile(), _profile()).tiles()["tile"].size == 4,
    "Comparison.differences() is now": lambda path: cl.compare(_profile(), _profile()).differences()["what"].size,
    "GradientError.report is now check": _of_wrong_gradient,
    "cl.concat is now cl.concatenate": _of_graph(lambda graph, x, y, flag: cl.concat([x, y]).shape == (8,)),
    "ops.matmul_gradients is now ops.matmul_gradient": lambda path: cl.ops.matmul_gradients,
    "ops.dot_general_gradients is now ops.dot_general_gradient": lambda path: cl.ops.dot_general_gradients,
    "ops.pad_gradient is now ops.lax_pad_gradient": lambda path: cl.ops.pad_gradient,
    "ops.scatter_add_gradient is now ops.scatter_gradient": _of_graph(
        lambda graph, x, y, flag: cl.ops.scatter_add_gradient(graph, x, _indices(graph), y[:2]).updates.shape == (2,)
    ),
    "ops.scatter_multiply_gradient is now ops.scatter_gradient": _of_graph(
        lambda graph, x, y, flag: cl.ops.scatter_multiply_gradient(graph, x, x, _indices(graph), y[:2]).operand.shape
    ),
    "ops.scatter_max_gradient is now ops.scatter_gradient": _of_graph(
        lambda graph, x, y, flag: cl.ops.scatter_max_gradient(graph, x, x, _indices(graph), y[:2], x).operand.shape
    ),
    "ops.pad with padding_value and padding_config is now ops.lax_pad": _of_graph(
        lambda graph, x, y, flag: cl.ops.pad(graph, x, 0.0, [(1, 0, 1)]).shape == (8,)
    ),
    "ops.softmax(memory_share=...) is now memory_fraction=": _of_graph(
        lambda graph, x, y, flag: cl.ops.softmax(graph, x, memory_share=0.5)
    ),
    "ops.batch_norm(axis=...) is now channel_axis=": _of_graph(
        lambda graph, x, y, flag: cl.ops.batch_norm(graph, x.expand(1), x[:1], x[:1], axis=1)
    ),
    "ops.max_pool(axes=...) is now axis=": _of_graph(
        lambda graph, x, y, flag: cl.ops.max_pool(graph, x, (2,), (2,), axes=(0,)).shape == (2,)
    ),
    "ops.avg_pool_gradient(shape=...) is now x_shape=": _of_graph(
        lambda graph, x, y, flag: cl.ops.avg_pool_gradient(graph, x[:3], shape=(4,), window_shape=(2,), axis=0).shape
    ),
    "ops.sort(operand=...) is now x=": _of_graph(lambda graph, x, y, flag: cl.ops.sort(graph, operand=x)),
    "ops.top_k_gradient(length=...) is now x_shape=": _of_graph(
        lambda graph, x, y, flag: cl.ops.top_k_gradient(graph, *cl.ops.top_k(graph, x, 2), length=(4,)).shape == (4,)
    ),
    "ops.top_k_gradient with a length along the axis is now x_shape, a shape": _of_graph(
        lambda graph, x, y, flag: cl.ops.top_k_gradient(graph, *cl.ops.top_k(graph, x, 2), 4).shape == (4,)
    ),
    "ops.iota(dimension=...) is now axis=": _of_graph(
        lambda graph, *own: cl.ops.iota(graph, (2, 3), dimension=1, dtype="int32").shape == (2, 3)
    ),
    "ops.iota with dtype, shape, axis by position is now by keyword: dtype=, shape=, axis=": _of_graph(
        lambda graph, *own: cl.ops.iota(graph, jnp.int32, (2, 3), 1).shape == (2, 3)
    ),
    "ops.cast with dtype by position is now by keyword: dtype=": _of_graph(
        lambda graph, x, y, flag: cl.ops.cast(graph, x, jnp.float16).dtype == jnp.float16
    ),
    "ops.fill with dtype by position is now by keyword: dtype=": _of_graph(
        lambda graph, *own: cl.ops.fill(graph, (3,), 1, jnp.float16).dtype == jnp.float16
    ),
    "ops.uniform with key, shape, dtype by position": _of_graph(
        lambda graph, *own: cl.ops.uniform(graph, KEY, (3,), jnp.float16).dtype == jnp.float16
    ),
    "ops.normal with key, shape by position": _of_graph(
        lambda graph, *own: cl.ops.normal(graph, KEY, (3,)).shape == (3,)
    ),
    "ops.random_bits with key by position": _of_graph(lambda graph, *own: cl.ops.random_bits(graph, KEY).shape == ()),
    "ops.bernoulli with key, p, shape by position": _of_graph(
        lambda graph, *own: cl.ops.bernoulli(graph, KEY, 0.5, (3,)).shape == (3,)
    ),
    "ops.dropout with key, x, rate by position": _of_graph(
        lambda graph, x, y, flag: cl.ops.dropout(graph, KEY, x, 0.5).shape == (4,)
    ),
    "ops.dropout_gradient with key, rate by position": _of_graph(
        lambda graph, x, y, flag: cl.ops.dropout_gradient(graph, x, KEY, 0.5).shape == (4,)
    ),
    "ops.plan_matmul with dtype by position": lambda path: cl.ops.plan_matmul(IPU, 8, 8, 8, jnp.float16),
    "ops.plan_sort with dtype by position": lambda path: cl.ops.plan_sort(IPU, (8,), jnp.float16),
    "ops.plan_top_k with dtype by position": lambda path: cl.ops.plan_top_k(IPU, (8,), 2, jnp.float16),
    "ops.plan_draw with dtype by position": lambda path: cl.ops.plan_draw(IPU, "normal", 8, jnp.float16),
    "Diagram.save is now write_picture": _of_graph(lambda graph, *own: graph.diagram().save),
}
"""What an old name warns of, and a use of it, which gives something true."""


@pytest.mark.parametrize("told", OLD)
def test_an_old_name_still_works(told, tmp_path):
    with pytest.warns(DeprecationWarning, match="codelet: ") as caught:
        found = OLD[told](tmp_path)
    assert found is not False
    messages = [str(own.message) for own in caught if str(own.message).startswith("codelet:")]
    assert len(messages) == 1
    assert messages[0].startswith(f"codelet: {told}")
    assert caught[0].filename == __file__


def test_the_changelog_has_them_all():
    table = (Path(__file__).parents[1] / "CHANGELOG.md").read_text(encoding="utf-8")
    for told in OLD:
        old = re.sub(r"=\.\.\.", "=", told.partition(" is now")[0].partition(" with ")[0]).removeprefix("cl.")
        assert any(f"`{before}{old}" in table for before in ("", "cl.")), old
