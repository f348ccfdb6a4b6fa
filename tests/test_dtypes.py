"""Dtypes that other tests have not: what moves comes out to the bit, and what is computed as codelets compute it."""

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl

INTEGERS = ["int8", "int16", "uint8", "uint32"]
FLOATS = ["float16", "bfloat16", "float8_e4m3fn", "complex64"]
DTYPES = ["bool", *INTEGERS, *FLOATS]


@cl.codelet
def chosen(x, y, first):
    return jnp.where(first, x, y)


@cl.codelet
def weighed(x, w):
    """A sum of products: of small dtypes each product is rounded, or wraps."""
    return jnp.sum(x * w).astype(x.dtype)


@cl.codelet
def product(x, w):
    return jnp.vdot(x, w).astype(x.dtype)


def moving(graph, name):
    """A program that moves elements of a dtype in every way, and the variables it ends in."""
    x, y = graph.add_variable(f"x {name}", (4, 4), name), graph.add_variable(f"y {name}", (4, 6), name)
    kept = graph.add_variable(f"kept {name}", (2, 5), name)
    (i, j), k = cl.grid(2, 3), cl.grid(2)
    program = [
        cl.Copy(cl.concat([x, x[:, ::-1][:, :2]], 1), y),
        cl.Copy(x[:-1, ::2], x[1:, 1::2]),
        cl.Copy(x.flatten()[1::3], x.flatten()[:5]),
    ]
    picked = graph.add_compute_set(f"pick {name}")
    near = x.pad(1, value=1)
    graph.add_vertex(picked, chosen, x=near[i, (j * 5) % 6], y=y[(i + 1) % 4, j], first=(i + j) % 2, out=kept[i, j])
    graph.add_vertex(picked, chosen, x=x.pad(2, "wrap")[k, 7], y=y[cl.table([2, 0])[k], 0], first=0, out=kept[k, 3])
    graph.add_vertex(picked, chosen, x=x.pad(2, "edge")[k, 7], y=y[k, 0], first=1, out=kept[k, 4])
    return [*program, cl.Execute(picked)], [x, y, kept]


def computing(graph, name):
    """Sums of products of a dtype over windows, rows and chunks."""
    a, b = graph.add_variable(f"a {name}", (6,), name), graph.add_variable(f"b {name}", (4, 6), name)
    k = cl.grid(2)
    made = []
    for number, code in enumerate((weighed, product)):
        made.append(graph.add_vertex(f"windows {name}/{number}", code, x=a[k : k + 3], w=b[0, :3]))
        made.append(graph.add_vertex(f"rows {name}/{number}", code, x=a, w=b[k]))
    return made


def values_of(graph):
    random = np.random.default_rng(0)
    variables = [v for v in graph.variables if v.name[:2] in ("x ", "a ", "b ")]
    draw = lambda v: random.uniform(0, 200 if v.dtype.kind in "iu" else 4, v.shape)  # noqa: E731
    values = {v.name: (draw(v) > 2 if v.dtype == bool else draw(v)).astype(v.dtype) for v in variables}
    return variables, values


def test_moves_of_every_dtype():
    graph, program, outputs = cl.Graph(), [], []
    for name in DTYPES:
        steps, ends = moving(graph, name)
        program, outputs = program + steps, outputs + ends
    variables, values = values_of(graph)
    program = cl.Sequence(*program)
    names = [v.name for v in variables]
    results = jax.jit(cl.lower(graph, program, inputs=names, outputs=outputs))(values)
    for name, expected in cl.interpret(graph, values, outputs, program).items():
        assert results[name].dtype == expected.dtype
        np.testing.assert_array_equal(np.asarray(results[name]).view(np.uint8), expected.view(np.uint8), name)


def test_sums_of_products_of_every_dtype():
    graph = cl.Graph()
    outputs = [y for name in DTYPES[1:] for y in computing(graph, name)]
    variables, values = values_of(graph)
    results = jax.jit(cl.lower(graph, inputs=[v.name for v in variables], outputs=outputs))(values)
    for name, expected in cl.interpret(graph, values, outputs).items():
        result = np.asarray(results[name])
        assert result.dtype == expected.dtype
        if expected.dtype.kind in "iu":
            np.testing.assert_array_equal(result, expected, name)
        else:
            rounding = 2 * float(jnp.finfo(expected.dtype).eps)
            wide = np.complex64 if expected.dtype.kind == "c" else np.float32
            np.testing.assert_allclose(result.astype(wide), expected.astype(wide), rtol=rounding, err_msg=name)
