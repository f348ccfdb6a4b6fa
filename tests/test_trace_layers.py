"""`cl.trace` of Equinox's layers: values and gradients, batches and directions, each beside the layer itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from tests.examples import few
from tests.ops_cases import array
from tests.test_trace_primitives import check, mapped, pulled, pushed

KEY = jax.random.key(5)
LINE, IMAGE, BLOCK = array((3, 9)), array((4, 6, 6)), array((2, 4, 4, 4))
ROWS = array((5, 6))


class Layer(NamedTuple):
    """A layer, how it is called, and with what; where nothing is said, as it is."""

    layer: Any
    x: Any
    call: Callable[..., Any] = lambda layer, x: layer(x)


def _normalised(parts: Any, x: Any) -> Any:
    layer, state = parts
    return jax.vmap(layer, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(x, state)


LAYERS: dict[str, Callable[[], Layer]] = {
    "Linear": lambda: Layer(eqx.nn.Linear(6, 3, key=KEY), ROWS[0]),
    "Conv1d": lambda: Layer(eqx.nn.Conv1d(3, 4, 3, stride=2, padding=1, key=KEY), LINE),
    "Conv2d": lambda: Layer(eqx.nn.Conv2d(4, 6, 3, dilation=2, groups=2, key=KEY), IMAGE),
    "Conv3d": lambda: Layer(eqx.nn.Conv3d(2, 2, 2, key=KEY), BLOCK),
    "ConvTranspose1d": lambda: Layer(eqx.nn.ConvTranspose1d(3, 2, 3, stride=2, key=KEY), LINE),
    "ConvTranspose2d": lambda: Layer(
        eqx.nn.ConvTranspose2d(4, 3, 3, padding=1, output_padding=1, stride=2, key=KEY), IMAGE
    ),
    "BatchNorm": lambda: Layer(
        eqx.nn.make_with_state(eqx.nn.BatchNorm)(4, axis_name="batch", mode="batch"), array((3, 4, 2, 2)), _normalised
    ),
    "BatchNorm in inference": lambda: Layer(
        eqx.nn.inference_mode(eqx.nn.make_with_state(eqx.nn.BatchNorm)(4, axis_name="batch", mode="ema")),
        *(array((3, 4, 2, 2)), _normalised),
    ),
    "LayerNorm": lambda: Layer(eqx.nn.LayerNorm(6), ROWS[0]),
    "GroupNorm": lambda: Layer(eqx.nn.GroupNorm(2, 4), IMAGE),
    "RMSNorm": lambda: Layer(eqx.nn.RMSNorm(6), ROWS[0]),
    "Dropout": lambda: Layer((eqx.nn.Dropout(0.4), jax.random.key_data(KEY)), ROWS, lambda own, x: _dropped(own, x)),
    "MaxPool1d": lambda: Layer(eqx.nn.MaxPool1d(3, 2), LINE),
    "MaxPool2d": lambda: Layer(eqx.nn.MaxPool2d(3, 2, padding=1), IMAGE),
    "AvgPool2d": lambda: Layer(eqx.nn.AvgPool2d(3, 2, padding=1), IMAGE),
    "AvgPool1d": lambda: Layer(eqx.nn.AvgPool1d(2, 3), LINE),
    "AvgPool3d": lambda: Layer(eqx.nn.AvgPool3d(2, 2), BLOCK),
    "AdaptiveAvgPool2d": lambda: Layer(eqx.nn.AdaptiveAvgPool2d(2), IMAGE),
    "AdaptiveMaxPool1d": lambda: Layer(eqx.nn.AdaptiveMaxPool1d(4), LINE),
    "Embedding": lambda: Layer(eqx.nn.Embedding(7, 3, key=KEY), jnp.array([6, 0, 6]), lambda own, x: jax.vmap(own)(x)),
    "MultiheadAttention": lambda: Layer(eqx.nn.MultiheadAttention(2, 6, key=KEY), ROWS, lambda own, x: own(x, x, x)),
    "LSTMCell": lambda: Layer(eqx.nn.LSTMCell(6, 4, key=KEY), ROWS[0], lambda own, x: own(x, (x[:4], x[2:]))),
    "GRUCell": lambda: Layer(
        eqx.nn.GRUCell(6, 4, key=KEY),
        ROWS,
        lambda own, x: jax.lax.scan(lambda h, row: (own(row, h), h), jnp.zeros(4), x),
    ),
    "MLP": lambda: Layer(eqx.nn.MLP(6, 3, 8, 2, key=KEY), ROWS[0]),
    "PReLU": lambda: Layer(eqx.nn.PReLU(0.3), ROWS),
    "SpectralNorm": lambda: Layer(
        eqx.nn.make_with_state(eqx.nn.SpectralNorm)(eqx.nn.Linear(6, 3, key=KEY), "weight", key=KEY),
        *(ROWS[0], lambda own, x: own[0](x, own[1])),
    ),
    "RotaryPositionalEmbedding": lambda: Layer(eqx.nn.RotaryPositionalEmbedding(6), ROWS),
}


def _dropped(parts: Any, x: Any) -> Any:
    layer, key = parts
    return layer(x, key=jax.random.wrap_key_data(key))


def as_cases(transform: Any, names: Iterable[str] = LAYERS) -> list[tuple[str, Callable[..., Any], list[Any]]]:
    cases = []
    for name in names:
        own = LAYERS[name]()
        arrays, static = eqx.partition(own.layer, eqx.is_array)
        leaves, tree = jax.tree.flatten((arrays, own.x))

        def function(*given: Any, own: Layer = own, tree: Any = tree, static: Any = static) -> Any:
            arrays, x = jax.tree.unflatten(tree, given)
            return eqx.filter(own.call(eqx.combine(arrays, static), x), eqx.is_array)

        cases.append((name, *transform(function, *leaves)))
    return cases


QUICK = [
    *("Conv1d", "ConvTranspose1d", "BatchNorm in inference", "LayerNorm", "Dropout", "MaxPool1d", "AvgPool1d"),
    *("Embedding", "PReLU"),
]
"""A layer of every kind; others are of more dimensions, or made of these."""


@few(
    "names",
    [QUICK, [name for name in LAYERS if name not in QUICK]],
    ["quick"],
    lambda own: "quick" if own is QUICK else "others",
)
def test_layers_have_their_values_and_gradients(names: list[str]):
    both = lambda function, *given: (lambda *own: (function(*own), pulled(function, *own)[0](*own)), list(given))  # noqa: E731
    check(as_cases(both, names), grain=16)


@pytest.mark.slow
@pytest.mark.parametrize("transform", [mapped, pushed])
def test_layers_are_themselves_in_batches_and_along_directions(transform: Callable[..., Any]):
    check(as_cases(transform))
