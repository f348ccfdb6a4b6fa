"""Fields without elements, rows without elements, and vertices that are none, in every way of running."""

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from tests.examples import few

# Of a field of shape (2, 0, 3), but where another is given.
WHOLE = {
    "reshaped": lambda x: x.ravel().reshape(-1, 3).sum(),
    "of another shape": lambda x: x.reshape(0, 5).sum(),
    "transposed": lambda x: x.transpose(2, 0, 1).reshape(-1, 2).sum(),
    "products": lambda x: jnp.sum(x * x[:, ::-1]),
    "contracted": lambda x: jnp.einsum("aij,aik->jk", x, x).sum(),
    "reduced": lambda x: x.sum((0, 2)).sum() + x.max(initial=-1.0),
    "mean": lambda x: jnp.nan_to_num(jnp.mean(x)),
    "joined": lambda x: jnp.concatenate([x.ravel(), jnp.ones(3)]).sum(),
    "padded": lambda x: jnp.pad(x, 1, constant_values=2.0).sum(),
    "repeated": lambda x: jnp.broadcast_to(x[..., None], (2, 0, 3, 4)).sum(),
    "split": lambda x: sum(part.sum() for part in jnp.split(x, 3, 2)),
    "sorted": lambda x: jnp.sort(x, 1).sum() + jnp.cumsum(x, 1).sum(),
    "drawn": lambda x: x.sum() + jax.random.uniform(jax.random.key(0), (0,)).sum(),
    "windows": lambda x: x.sum(1).sum(),
}

RAGGED = {
    "sum": lambda x: x.sum(),
    "reshaped": lambda x: x.reshape(-1, 3).sum(),
    "products": lambda x: jnp.sum(x * x),
    "guarded": lambda x: x.mean() if x.size > 0 else -1.0,
    "spread": lambda x: x - jnp.sum(x, 0),
    "sorted": lambda x: jnp.sort(x, 0),
}
BY_ROW = ("spread", "sorted")


def whole():
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x = graph.add_variable("x", (3, 2, 0, 3))
    i = cl.grid(3)
    names = []
    for name, function in WHOLE.items():
        y = graph.add_variable(f"y {name}", (3,))
        graph.add_vertex(name, cl.codelet(function), x=x[i], out=y[i])
        names.append(f"y {name}")
    z, none = graph.add_variable("z", (3, 0)), graph.add_variable("none", (0, 2))
    graph.add_vertex("nothing", cl.codelet(lambda x: 2 * x[0, :, 0]), x=x[i], out=z[i])
    k = cl.grid(0)
    graph.add_vertex("nobody", cl.codelet(lambda x: 2 * x), x=none[k], out=graph.add_variable("n", (0, 2))[k])
    return graph, [*names, "z", "n"]


def ragged(lengths, shape, by_loops):
    graph = cl.Graph(cl.IPU(num_tiles=4))
    ends = np.concatenate([[0], np.cumsum(lengths)])
    x = graph.add_variable("x", (int(ends[-1]), *shape))
    rows = cl.table(np.arange(x.shape[0]), offsets=ends)
    names = []
    for name, function in RAGGED.items():
        y = graph.add_variable(f"y {name}", x.shape if name in BY_ROW else (len(lengths),))
        codelet = cl.codelet(function)
        for i in range(len(lengths)) if by_loops else [cl.grid(len(lengths))]:
            graph.add_vertex(name, codelet, x=x[rows[i]], out=y[rows[i]] if name in BY_ROW else y[i])
        names.append(f"y {name}")
    return graph, names


CASES = {
    "of no elements": whole,
    "rows of none": lambda: ragged([0, 0, 0, 0, 0], (3,), False),
    "rows of none, by loops": lambda: ragged([0, 0, 0, 0, 0], (3,), True),
    "rows of nothing": lambda: ragged([0, 1, 2, 0, 3, 4], (0, 3), False),
    "rows of nothing, by loops": lambda: ragged([0, 1, 2, 0, 3, 4], (2, 0), True),
    "some empty rows": lambda: ragged([2, 0, 0, 1, 0, 3], (3,), False),
}


@few("case", CASES, quick=["of no elements", "rows of none", "rows of none, by loops", "rows of nothing, by loops"])
def test_fields_and_rows_without_elements(case):
    graph, names = CASES[case]()
    inputs = [v.name for v in graph.variables if v.name in ("x", "none")]
    values = {name: np.ones(graph.variable(name).shape, np.float32) for name in inputs}
    expected = cl.interpret(graph, values=values, outputs=names)
    run = cl.lower(graph, inputs=inputs, outputs=names)

    def total(values):
        found = run(values)
        return sum(y.sum() for y in found.values()), found

    slopes, found = jax.jit(jax.grad(total, has_aux=True))(values)
    assert all(slopes[name].shape == value.shape for name, value in values.items())
    results = {"fused": found}
    for execution in ("tiles", "addresses"):
        engine = cl.Engine(graph, execution=execution)
        engine.write(values)
        engine.run()
        results[execution] = {name: engine.read(name) for name in names}
    for execution, found in results.items():
        for name in names:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, err_msg=f"{execution}: {name}")
    assert cl.Engine(graph).profile().total_cycles > 0
    assert graph.num_edges == sum(1 for _ in graph.iter_edges())
    assert all(list(graph.writers(graph.variable(name))) for name in names if graph.variable(name).size)
    assert str(graph)
    assert repr(graph.families)


def test_copies_of_no_elements():
    graph = cl.Graph()
    x, y, z = (graph.add_variable(name, shape) for name, shape in (("x", (3, 0)), ("y", (3, 0)), ("z", (3,))))
    copies = (
        cl.Copy(x, y),
        cl.Copy(z[:0], z[3:]),
        cl.Copy(cl.concatenate([x, y]), cl.concatenate([y, x]).reshape(6, 0)),
    )
    engine = cl.Engine(graph, cl.Sequence(*copies, cl.Copy(z[:1], z[2:])))
    engine.write({"z": [1, 2, 3]})
    engine.run()
    np.testing.assert_array_equal(engine.read(z), [1, 2, 1])
