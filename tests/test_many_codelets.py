"""Many codelets in one compute set: lowering takes work in proportion to how many there are."""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from tests.examples import few


def own_codelet(k):
    def own(x):
        return x * (k + 1.5) + k

    return cl.codelet(own)


def scaled(k):
    def own(x, s):
        return x * (k + 1.5) * s

    return cl.codelet(own)


def side_by_side(n):
    """Each vertex reads and writes an element of its own."""
    graph = cl.Graph()
    x, y = graph.add_variable("x", (n,)), graph.add_variable("y", (n,))
    for k in range(n):
        graph.add_vertex("all", own_codelet(k), x=x[k], out=y[k])
    return graph, x, [y]


def apart(n):
    """Every other element is written, of rows that overlap where they are read."""
    graph = cl.Graph()
    x, y = graph.add_variable("x", (n + 3,)), graph.add_variable("y", (2 * n, 3))
    graph.add_vertex("before", cl.codelet(lambda: jnp.zeros((2 * n, 3))), out=y)
    for k in range(n):
        graph.add_vertex("all", own_codelet(k), x=x[k : k + 3], out=y[2 * k])
    return graph, x, [y]


def variables(n):
    """Each vertex has a variable of its own, and numbers of its own."""
    graph = cl.Graph()
    x = graph.add_variable("x", (4,))
    made = []
    for k in range(n):
        made.append(graph.add_variable(f"y{k}", (4,)))
        graph.add_vertex("all", scaled(k), x=x, s=float(k), out=made[-1])
    return graph, x, made


def families(n):
    """Each family has vertices of its own over one grid."""
    graph = cl.Graph()
    x, y = graph.add_variable("x", (n, 8)), graph.add_variable("y", (n, 8))
    i = cl.grid(8)
    for k in range(n):
        graph.add_vertex("all", own_codelet(k), x=x[k, i], out=y[k, i])
    return graph, x, [y]


LAYOUTS = {own.__name__: own for own in (side_by_side, apart, variables, families)}


def calls(layout, n):
    """How many functions are called to build and lower a graph of n codelets."""
    count = 0

    def note(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        graph, x, outputs = layout(n)
        run = cl.lower(graph, inputs=[x], outputs=outputs)
    finally:
        sys.setprofile(None)
    return count, run


@few("layout", LAYOUTS, quick=["variables"])
def test_the_work_grows_with_the_number_of_codelets(layout):
    calls(LAYOUTS[layout], 10)  # what is imported and remembered once
    (one, _), (two, _), (four, _) = (calls(LAYOUTS[layout], n) for n in (40, 80, 160))
    assert four - two < 2.2 * (two - one)


@few("layout", LAYOUTS, quick=["variables"])
def test_all_of_them_compute_what_they_should(layout):
    graph, x, outputs = LAYOUTS[layout](12)
    values = np.arange(x.size, dtype=np.float32).reshape(x.shape)
    expected = cl.interpret(graph, values={"x": values}, outputs=outputs)
    found = jax.jit(cl.lower(graph, inputs=[x], outputs=outputs))({"x": values})
    for name, own in expected.items():
        np.testing.assert_allclose(found[name], own, rtol=1e-6)


def _times(number):
    return cl.codelet(lambda x: x * number)


def test_codelets_whose_constants_differ_in_the_last_bit_are_two():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (4,)), graph.add_variable("y", (4,))
    numbers = [np.float32(1.0), np.nextafter(np.float32(1), np.float32(2)), np.float32(0.0), np.float32(-0.0)]
    for k, number in enumerate(numbers):
        graph.add_vertex("all", _times(number), x=x[k], out=y[k])
    run = cl.lower(graph, inputs=[x], outputs=[y])
    found = np.asarray(jax.jit(run)({"x": np.ones(4, np.float32)})["y"])
    assert found.tobytes() == np.array(numbers).tobytes()
