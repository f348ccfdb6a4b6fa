"""Cells of recurrent networks as operations, beside Equinox's: their gradients, a program that repeats one."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from codelet.errors import OperationError
from tests.at_once import at_once
from tests.examples import few
from tests.ops_cases import TARGET, Case, array, check


def made(kind, inputs, cells, use_bias=True, dtype=jnp.float32):
    """A cell of Equinox, and its weights, as operations take them."""
    cell = kind(inputs, cells, use_bias, dtype, key=jax.random.key(1))
    weights = [cell.weight_ih, cell.weight_hh, cell.bias, *([cell.bias_n] if kind is eqx.nn.GRUCell else [])]
    return cell, [weight for weight in weights if weight is not None]


def lstm(x, h, c, weight_ih, weight_hh, bias=None):
    """Equinox's cell on a batch."""
    cell, _ = made(eqx.nn.LSTMCell, x.shape[-1], h.shape[-1], bias is not None, x.dtype)
    names = lambda cell: [cell.weight_ih, cell.weight_hh, *([cell.bias] if bias is not None else [])]  # noqa: E731
    cell = eqx.tree_at(names, cell, [weight_ih, weight_hh, *([bias] if bias is not None else [])])
    run = lambda x, h, c: cell(x, (h, c))  # noqa: E731
    return jax.vmap(run)(x, h, c) if x.ndim == 2 else run(x, h, c)


def gru(x, h, weight_ih, weight_hh, bias=None, bias_n=None):
    """Equinox's cell on a batch."""
    cell, _ = made(eqx.nn.GRUCell, x.shape[-1], h.shape[-1], bias is not None, x.dtype)
    own = [bias, bias_n] if bias is not None else []
    names = lambda cell: [cell.weight_ih, cell.weight_hh, *([cell.bias, cell.bias_n] if own else [])]  # noqa: E731
    cell = eqx.tree_at(names, cell, [weight_ih, weight_hh, *own])
    return jax.vmap(cell)(x, h) if x.ndim == 2 else cell(x, h)


CASES = {
    "fine": ((3, 2), (3, 4), True, jnp.float32, 1),
    "a batch": ((3, 2), (3, 5), True, jnp.float32, None),
    "one": ((3,), (4,), True, jnp.float32, None),
    "no bias": ((2, 1), (2, 1), False, jnp.float32, None),
    "half": ((2, 5), (2, 3), True, jnp.float16, None),
    "nobody": ((0, 3), (0, 4), True, jnp.float32, None),
}


@few("name", CASES, quick=["one", "nobody"])
def test_cells(name):
    x, h, use_bias, dtype, grain = CASES[name]
    _, lstm_weights = made(eqx.nn.LSTMCell, x[-1], h[-1], use_bias, dtype)
    _, gru_weights = made(eqx.nn.GRUCell, x[-1], h[-1], use_bias, dtype)

    many = len(lstm_weights)

    def ours(graph, g, x, h, c, *weights):
        ops, own, lstm_weights, gru_weights = cl.ops, {"grain": grain}, weights[:many], weights[many:]
        return {
            "lstm": ops.lstm_cell(graph, x, h, c, *lstm_weights, **own),
            "lstm slopes": ops.lstm_cell_gradient(graph, g, c, x, h, c, *lstm_weights, **own)[: 3 + len(lstm_weights)],
            "gru": ops.gru_cell(graph, x, h, *gru_weights, **own),
            "gru slopes": ops.gru_cell_gradient(graph, g, x, h, *gru_weights, **own)[: 2 + len(gru_weights)],
        }

    def plain(g, x, h, c, *weights):
        lstm_weights, gru_weights = weights[:many], weights[many:]
        return {
            "lstm": lstm(x, h, c, *lstm_weights),
            "lstm slopes": jax.vjp(lstm, x, h, c, *lstm_weights)[1]((g, c)),
            "gru": gru(x, h, *gru_weights),
            "gru slopes": jax.vjp(gru, x, h, *gru_weights)[1](g),
        }

    arguments = (
        array(h, dtype, 1),
        array(x, dtype),
        array(h, dtype, 2),
        array(h, dtype, 3),
        *lstm_weights,
        *gru_weights,
    )
    tolerance = 1e-2 if dtype == jnp.float16 else None
    check(Case(ours, plain, arguments, tolerance, slopes=grain is None), interpreted=name == "fine")


@pytest.mark.slow
def test_on_tiles():
    _, weights = made(eqx.nn.GRUCell, 2, 3)
    check(Case(cl.ops.gru_cell, gru, (array((2, 2)), array((2, 3)), *weights)), on_tiles=True)


@pytest.mark.slow
def test_a_program_repeats_a_cell():
    _, own_weights = made(eqx.nn.LSTMCell, 3, 4)
    weight_ih, weight_hh, bias = own_weights
    graph = cl.Graph(TARGET)
    x, h, c = graph.add_variable("x", (2, 3)), graph.add_variable("h", (2, 4)), graph.add_variable("c", (2, 4))
    weights = [graph.add_variable(k, v.shape) for k, v in {"w": weight_ih, "u": weight_hh, "b": bias}.items()]
    sequence = graph.add_input_stream("sequence", (2, 3))
    with graph.record() as step:
        new_h, new_c = cl.ops.lstm_cell(graph, x, h, c, *weights)
    start = [cl.Copy(0.0, h), cl.Copy(0.0, c)]
    program = [*start, cl.Repeat(5, [cl.Copy(sequence, x), step, cl.Copy(new_h, h), cl.Copy(new_c, c)])]
    run = cl.lower(graph, program, inputs=weights, outputs=[h])
    own = {"sequence": array((5, 2, 3)), "w": weight_ih, "u": weight_hh, "b": bias}

    def plain(own):
        turn = lambda state, x: (lstm(x, state[0], state[1], own["w"], own["u"], own["b"]), None)  # noqa: E731
        return jax.lax.scan(turn, (jnp.zeros((2, 4)), jnp.zeros((2, 4))), own["sequence"])[0][0]

    with_slopes = lambda of: lambda own: (of(own), jax.grad(lambda own: of(own).sum())(own))  # noqa: E731
    (ours, slopes), (theirs, plain_slopes) = at_once(*map(with_slopes, (lambda own: run(own)["h"], plain)))(own)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), slopes, plain_slopes)


# --- mistakes ---------------------------------------------------------------------------------------------

MISTAKES = {
    "weight_ih of ops.lstm_cell does not fit the cell": ("lstm_cell", (2, 3), (2, 4), (2, 4), (12, 3), (16, 4)),
    "c of ops.lstm_cell does not fit": ("lstm_cell", (2, 3), (2, 4), (2, 5), (16, 3), (16, 4)),
    "x of ops.gru_cell does not fit": ("gru_cell", (3, 3), (2, 4), (12, 3), (12, 4)),
    "bias_n of ops.gru_cell does not fit": ("gru_cell", (2, 3), (2, 4), (12, 3), (12, 4), (12,), (12,)),
}


@pytest.mark.parametrize("told", MISTAKES)
def test_mistakes(told):
    name, *shapes = MISTAKES[told]
    graph = cl.Graph(TARGET)
    with pytest.raises(OperationError, match=told) as caught:
        getattr(cl.ops, name)(graph, *(graph.add_variable(f"v{k}", shape) for k, shape in enumerate(shapes)))
    assert caught.value.line is not None
    assert not graph.num_vertices
