"""Recurrent networks: simple cells, gated units, long short-term memories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.onnx.node import OnnxNode
from codelet.onnx.operator_table import operator

State = tuple[Any, ...]


def _functions(node: OnnxNode, number: int, defaults: Sequence[str], direction: int) -> list[Callable[[Any], Any]]:
    """The activations of one direction."""
    names = node.attribute("activations") or list(defaults) * (
        2 if node.attribute("direction") == "bidirectional" else 1
    )
    alphas, betas = (iter(node.attribute(name) or ()) for name in ("activation_alpha", "activation_beta"))
    output = []
    for name in names:
        key = name.lower()
        if key not in _ACTIVATIONS:
            raise node.error("an activation that is not known", given=name, expected=", ".join(sorted(_ACTIVATIONS)))
        function, takes = _ACTIVATIONS[key]
        values = [
            next(item, default) for item, default in zip((alphas, betas), takes, strict=False) if default is not None
        ]
        output.append((lambda f, v: lambda x: f(x, *(np.asarray(one, x.dtype) for one in v)))(function, values))
    return output[direction * number : (direction + 1) * number]


_ACTIVATIONS: dict[str, tuple[Callable[..., Any], tuple[float | None, float | None]]] = {
    "relu": (jax.nn.relu, (None, None)),
    "tanh": (jnp.tanh, (None, None)),
    "sigmoid": (jax.nn.sigmoid, (None, None)),
    "softsign": (jax.nn.soft_sign, (None, None)),
    "softplus": (jax.nn.softplus, (None, None)),
    "affine": (lambda x, a, b: a * x + b, (1.0, 0.0)),
    "leakyrelu": (lambda x, a: jnp.where(x < 0, a * x, x), (0.01, None)),
    "thresholdedrelu": (lambda x, a: jnp.where(x > a, x, 0), (1.0, None)),
    "scaledtanh": (lambda x, a, b: a * jnp.tanh(b * x), (1.0, 1.0)),
    "hardsigmoid": (lambda x, a, b: jnp.clip(a * x + b, 0, 1), (0.2, 0.5)),
    "elu": (lambda x, a: jnp.where(x > 0, x, a * jnp.expm1(jnp.minimum(x, 0))), (1.0, None)),
}


def _clipped(node: OnnxNode, x: Any) -> Any:
    most = node.attribute("clip")
    return x if most is None else jnp.clip(x, -np.asarray(most, x.dtype), np.asarray(most, x.dtype))


Step = Callable[[State, Any], State]


def _directions(node: OnnxNode) -> list[bool]:
    """For each direction whether it goes backwards."""
    return {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[
        node.attribute("direction", "forward")
    ]


def _run(step: Step, first: State, x: Any, lengths: Any, backwards: bool) -> tuple[Any, State]:
    """A cell along the first dimension: the states after each iteration, zero after the end of a sequence, and the
    last.

    Args:
        step: from a state, of which the first is given out, and an input to the next.
        first: the state before.
        x: (time, batch, ...).
        lengths: of the sequences of the batch; None where all are whole.
        backwards: whether it goes from the end of each.
    """
    times = jnp.arange(x.shape[0])

    def turn(state: State, arguments: tuple[Any, Any]) -> tuple[State, Any]:
        time, item = arguments
        output = step(state, item)
        if lengths is None:
            return output, output[0]
        runs = (time < lengths)[:, None]
        share_kept = tuple(jnp.where(runs, new, old) for new, old in zip(output, state, strict=True))
        return share_kept, jnp.where(runs, output[0], 0)

    last, outputs = lax.scan(turn, first, (times, x), reverse=backwards)
    return outputs, last


def _recurrent(
    node: OnnxNode,
    x: Any,
    lengths: Any,
    states: Sequence[Any],
    of_direction: Callable[[int], tuple[Any, Step]],
    hidden: int,
) -> tuple[Any, ...]:
    """All directions of a recurrent network.

    Args:
        node: which.
        x: (time, batch, inputs), or with the batch first.
        lengths: of the sequences.
        states: the first states, (directions, batch, hidden) each, or None for zeros.
        of_direction: the part of the inputs that does not depend on the state, and the function from one state to the
            next.
        hidden: the size of a state.
    """
    batch_first = bool(node.attribute("layout", 0))
    x = jnp.swapaxes(x, 0, 1) if batch_first else x
    item = [None if s is None else jnp.swapaxes(s, 0, 1) if batch_first else s for s in states]
    outputs, lasts = [], []
    for number, backwards in enumerate(_directions(node)):
        from_inputs, step = of_direction(number)
        zeros = jnp.zeros((x.shape[1], hidden), x.dtype)
        first = tuple(zeros if s is None else s[number] for s in item)
        arguments, last = _run(step, first, from_inputs(x), lengths, backwards)
        outputs.append(arguments)
        lasts.append(last)
    whole = jnp.stack(outputs, 1)  # (time, directions, batch, hidden)
    ends = [jnp.stack([last[k] for last in lasts]) for k in range(len(states))]
    if batch_first:
        return jnp.transpose(whole, (2, 0, 1, 3)), *(jnp.swapaxes(end, 0, 1) for end in ends)
    return whole, *ends


def _weights(w: Any, r: Any, b: Any, number: int) -> tuple[Any, Any, Any, Any]:
    """Of one direction: by inputs, by states, and their biases."""
    rows = w.shape[1]
    biases = jnp.zeros(2 * rows, w.dtype) if b is None else b[number]
    return w[number], r[number], biases[:rows], biases[rows:]


@operator("RNN")
def rnn(node: OnnxNode, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None) -> tuple[Any, Any]:
    """`h = f(x @ W.T + h @ R.T + b)`."""

    def of(number: int) -> tuple[Any, Step]:
        (f,) = _functions(node, 1, ["Tanh"], number)
        wi, ri, wb, rb = _weights(w, r, b, number)
        return lambda x: x @ wi.T + (wb + rb), lambda state, item: (f(_clipped(node, item + state[0] @ ri.T)),)

    whole, last = _recurrent(node, x, lengths, [h], of, r.shape[-1])
    return whole, last


@operator("GRU")
def gru(node: OnnxNode, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None) -> tuple[Any, Any]:
    """A gated recurrent unit: gates z, r, h in this order."""
    after = bool(node.attribute("linear_before_reset", 0))

    def of(number: int) -> tuple[Any, Step]:
        f, g = _functions(node, 2, ["Sigmoid", "Tanh"], number)
        wi, ri, wb, rb = _weights(w, r, b, number)
        (rz, rr, rh), (bz, br, bh) = jnp.split(ri, 3), jnp.split(rb, 3)

        def step(state: State, item: Any) -> State:
            (hidden,) = state
            xz, xr, xh = jnp.split(item, 3, axis=-1)
            z = f(_clipped(node, xz + hidden @ rz.T + bz))
            reset = f(_clipped(node, xr + hidden @ rr.T + br))
            inner = reset * (hidden @ rh.T + bh) if after else (reset * hidden) @ rh.T + bh
            output = g(_clipped(node, xh + inner))
            return ((1 - z) * output + z * hidden,)

        return lambda x: x @ wi.T + wb, step

    whole, last = _recurrent(node, x, lengths, [h], of, r.shape[-1])
    return whole, last


@operator("LSTM")
def lstm(
    node: OnnxNode,
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    lengths: Any = None,
    h: Any = None,
    c: Any = None,
    p: Any = None,
) -> tuple[Any, Any, Any]:
    """A long short-term memory: gates i, o, f, c in this order, with peepholes if they are given."""

    def of(number: int) -> tuple[Any, Step]:
        f, g, out = _functions(node, 3, ["Sigmoid", "Tanh", "Tanh"], number)
        wi, ri, wb, rb = _weights(w, r, b, number)
        peep = [0, 0, 0] if p is None else jnp.split(p[number], 3)

        def step(state: State, item: Any) -> State:
            hidden, cell = state
            i, o, forget, new = jnp.split(item + hidden @ ri.T, 4, axis=-1)
            i = f(_clipped(node, i + peep[0] * cell))
            forget = 1 - i if node.attribute("input_forget", 0) else f(_clipped(node, forget + peep[2] * cell))
            output = forget * cell + i * g(_clipped(node, new))
            o = f(_clipped(node, o + peep[1] * output))
            return o * out(output), output

        return lambda x: x @ wi.T + (wb + rb), step

    whole, hidden, cell = _recurrent(node, x, lengths, [h, c], of, r.shape[-1])
    return whole, hidden, cell
