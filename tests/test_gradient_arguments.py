"""What `cl.gradient` is given, and what it leaves of a graph: other gradients, and the program that runs by default."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl

X = np.arange(1.0, 5.0, dtype=np.float32)


def cubes() -> tuple[cl.Graph, cl.Tensor, cl.Tensor, cl.Tensor]:
    """A graph of the cubes of four numbers, and of their sum."""
    graph = cl.Graph()
    x = graph.add_variable("x", (4,))
    i = cl.grid(4)
    y = graph.add_vertex("cubes", cl.codelet(lambda a: a**3), a=x[i])
    return graph, x, y, graph.add_vertex("sum", cl.codelet(lambda a: jnp.sum(a)), a=y)


def by(graph: cl.Graph, found: cl.Gradient, x: cl.Tensor) -> np.ndarray:
    """A gradient, as it is computed."""
    run = cl.lower(graph, cl.Sequence(found.forward, found.backward), inputs=[x], outputs=[found[x]])
    return np.asarray(run({"x": X})[found[x].name])


def test_a_gradient_is_no_part_of_what_runs_when_no_program_is_given():
    """So that it can be taken again, checked, and the graph lowered as before."""
    graph, x, _, total = cubes()
    before = str(graph.default_program)
    one, other = cl.gradient(graph, of=total, wrt=[x]), cl.gradient(graph, of="sum/out", wrt=["x"])
    assert str(graph.default_program) == before == str(one.forward) == str(other.forward)
    assert one[x].name == "backward/x" != other[x].name
    for found in (one, other):
        np.testing.assert_allclose(by(graph, found, x), 3 * X**2, 1e-6)
    assert not cl.check_gradient(graph, of=total, wrt=[x], values={"x": X}).findings
    assert float(cl.lower(graph, inputs=[x], outputs=[total])({"x": X})["sum/out"]) == np.sum(X**3)


def test_a_gradient_is_no_part_of_a_recording_around_it():
    """Since its copies would not be, either; and vertices are added to compute sets of the recording as before."""
    graph, x, _, total = cubes()
    with graph.record() as recorded:
        compute_set = graph.add_compute_set("again")
        found = cl.gradient(graph, of=total, wrt=[x])
        graph.add_vertex(compute_set, cl.codelet(lambda a: a), a=found[x])
    assert str(recorded) == "Execute(again)"


def test_what_is_recorded_aside_runs_where_it_is_named():
    graph = cl.Graph()
    x = graph.add_variable("x", (4,))
    i = cl.grid(4)
    with graph.record(aside=True) as doubled, graph.record() as within:
        graph.add_vertex("double", cl.codelet(lambda x: {"x": 2 * x}), x=x[i])
    graph.add_vertex("add one", cl.codelet(lambda x: {"x": x + 1}), x=x[i])
    assert str(graph.default_program) == "Execute(add one)"
    assert (str(doubled), str(within)) == ("", "Execute(double)")
    assert cl.interpret(graph, values={"x": X}, outputs=[x], program=[within, graph.default_program])["x"].tolist() == [
        3,
        5,
        7,
        9,
    ]


@pytest.mark.parametrize("cotangent", [2, 2.0, np.full(4, 2), [2, 2, 2, 2], np.float64(2), jnp.full(4, 2.0), "twos"])
def test_cotangents(cotangent):
    """Tensors, names of variables, and numbers of any dtype that broadcast."""
    graph, x, y, _ = cubes()
    graph.add_constant("twos", np.full(4, 2, np.float32))
    np.testing.assert_allclose(by(graph, cl.gradient(graph, of=y, wrt=[x], cotangent=cotangent), x), 6 * X**2, 1e-6)


def test_what_is_refused_leaves_the_graph_as_it_was():
    graph, x, y, _ = cubes()
    before = str(graph)
    for options in ({}, {"cotangent": np.ones(3)}, {"cotangent": x[:2]}, {"cotangent": 1.0, "recompute": "all"}):
        with pytest.raises(cl.ProgramError):
            cl.gradient(graph, of=y, wrt=[x], **options)
    assert str(graph) == before
    assert cl.gradient(graph, of=y, wrt=[x], cotangent=1)[x].name == "backward/x"


def test_a_backward_pass_is_of_the_line_that_asked_for_it():
    graph, x, _, total = cubes()
    found = cl.gradient(graph, of=total, wrt=[x])
    with pytest.raises(cl.UninitializedReadError, match=r"test_gradient_arguments\.py:\d+: found = cl\.gradient"):
        cl.lower(graph, found.backward, inputs=[], outputs=[found[x]])


def test_an_adjoint_prints_what_it_computes():
    square = cl.codelet(lambda a: a * a)
    text = str(square.adjoint({"a": jnp.ones(3)}))
    assert text.startswith("codelet <lambda>_adjoint(a: float32[3], d_out: float32[3]) -> d_a: float32[3]\n{ lambda ;")


def test_every_takes_numbers_of_numpy():
    assert cl.Recompute.every(np.int64(2)) == cl.Recompute.every(2)  # type: ignore[arg-type]
