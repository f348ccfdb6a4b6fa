"""Residual networks of 18, 34 and 50 layers, for one picture; blocks of one shape are one function.

In come a picture and the running statistics of batch norm; out come the logits and the statistics one step on. A block
is called through one jitted function of the block, its state and its input. JAX traces that function once for all
blocks of one shape, and users of the trace can do the same.

The state is a list of `equinox.nn.State`, one for each block, each named within its block, so that the states of
two blocks of one shape have one structure too. The strides are in the 3 x 3 convolutions.

Source: He et al., "Deep Residual Learning for Image Recognition" (2016), table 1, with projections where shapes
change (its option B); strides as Goyal et al., "Accurate, Large Minibatch SGD" (2017), section 5.1.
"""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp

from codelet.models.training import AXIS

SIDE = 224
CHANNELS = 3
CLASSES = 1000
WIDTHS = (64, 128, 256, 512)
"""Channels of the four stages, before a bottleneck's last convolution makes them four times as many."""


class Normalised(eqx.Module):
    """A convolution without bias, then batch norm.

    Attributes:
        conv: the convolution, padded so that a stride of one keeps the field.
        norm: means and variances over the batch and the field; running ones keep 0.9 of their values.
    """

    conv: eqx.nn.Conv2d
    norm: eqx.nn.BatchNorm

    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1, *, key: jax.Array):
        """A convolution of `size` x `size`, drawn at random, and batch norm that changes nothing but the scale."""
        self.conv = eqx.nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, use_bias=False, key=key)
        self.norm = eqx.nn.BatchNorm(outputs, AXIS, momentum=0.9, mode="batch")

    def __call__(self, x: jax.Array, state: eqx.nn.State) -> tuple[jax.Array, eqx.nn.State]:
        """From (inputs, height, width) to (outputs, height / stride, width / stride), and the statistics after."""
        return self.norm(self.conv(x), state)


class Block(eqx.Module):
    """Convolutions with rectifiers between, added to the input, and a rectifier.

    Attributes:
        body: two convolutions of 3 x 3, or a bottleneck: 1 x 1, 3 x 3 and 1 x 1.
        shortcut: a convolution of 1 x 1 where the input has another shape than the output, else None.
    """

    body: list[Normalised]
    shortcut: Normalised | None

    def __init__(self, inputs: int, width: int, stride: int, *, bottleneck: bool, key: jax.Array):
        """A block drawn at random.

        Args:
            inputs: channels that go in.
            width: channels within; as many come out, of a bottleneck four times as many.
            stride: of the first convolution of 3 x 3, and of the shortcut.
            bottleneck: whether it is one.
            key: a JAX random key.
        """
        keys = jax.random.split(key, 4)
        outputs = 4 * width if bottleneck else width
        if bottleneck:
            self.body = [
                Normalised(inputs, width, 1, key=keys[0]),
                Normalised(width, width, 3, stride, key=keys[1]),
                Normalised(width, outputs, 1, key=keys[2]),
            ]
        else:
            self.body = [
                Normalised(inputs, width, 3, stride, key=keys[0]),
                Normalised(width, outputs, 3, key=keys[1]),
            ]
        same = stride == 1 and inputs == outputs
        self.shortcut = None if same else Normalised(inputs, outputs, 1, stride, key=keys[3])

    def __call__(self, x: jax.Array, state: eqx.nn.State) -> tuple[jax.Array, eqx.nn.State]:
        """From (inputs, height, width) to (outputs, height / stride, width / stride), and the statistics after."""
        short = x
        if self.shortcut is not None:
            short, state = self.shortcut(x, state)
        for layer in self.body[:-1]:
            x, state = layer(x, state)
            x = jax.nn.relu(x)
        x, state = self.body[-1](x, state)
        return jax.nn.relu(x + short), state


class Stem(eqx.Module):
    """The first convolution, of 7 x 7 at every other place, a rectifier, and maxima of 3 x 3 at every other place."""

    first: Normalised
    pool: eqx.nn.MaxPool2d

    def __init__(self, outputs: int, *, key: jax.Array):
        """A stem drawn at random, of that many channels."""
        self.first = Normalised(CHANNELS, outputs, 7, 2, key=key)
        self.pool = eqx.nn.MaxPool2d(3, 2, padding=1)

    def __call__(self, x: jax.Array, state: eqx.nn.State) -> tuple[jax.Array, eqx.nn.State]:
        """From (3, height, width) to (outputs, height / 4, width / 4), and the statistics after."""
        x, state = self.first(x, state)
        return self.pool(jax.nn.relu(x)), state


@eqx.filter_jit
def block(layers: Stem | Block, x: jax.Array, state: eqx.nn.State) -> tuple[jax.Array, eqx.nn.State]:
    """`layers(x, state)`, traced once for all blocks of one shape."""
    return layers(x, state)


class ResNet(eqx.Module):
    """The network, for one picture; under `jax.vmap(..., axis_name="batch")` it takes a batch.

    Attributes:
        stem: the layers before the stages.
        stages: the blocks of each; the first of every stage but the first halves the field.
        dense: the means over the field to the logits.
    """

    stem: Stem
    stages: list[list[Block]]
    dense: eqx.nn.Linear

    def __call__(self, x: jax.Array, state: Sequence[eqx.nn.State]) -> tuple[jax.Array, list[eqx.nn.State]]:
        """The logits, of shape (classes,), and the statistics after.

        Args:
            x: a picture of shape (3, height, width); 224 x 224 as published.
            state: the statistics of the stem, then of every block, as `resnet` returns them.
        """
        named: list[tuple[str, Stem | Block]] = [("stem", self.stem)]
        for stage, blocks in enumerate(self.stages, 1):
            named += [(f"stage{stage}/block{number}", layers) for number, layers in enumerate(blocks, 1)]
        after = []
        for (name, layers), before in zip(named, state, strict=True):
            with jax.named_scope(name):
                x, statistics = block(layers, x, before)
            after.append(statistics)
        with jax.named_scope("dense"):
            return self.dense(jnp.mean(x, axis=(1, 2))), after


def resnet(
    key: jax.Array,
    repeats: Sequence[int],
    *,
    bottleneck: bool,
    classes: int = CLASSES,
    widths: Sequence[int] = WIDTHS,
) -> tuple[ResNet, list[eqx.nn.State]]:
    """A residual network drawn at random, and the statistics of its batch norms before the first step.

    Args:
        key: a JAX random key.
        repeats: how many blocks each stage has.
        bottleneck: whether they are bottlenecks.
        classes: how many logits it gives.
        widths: the channels of each stage; the first of every stage but the first halves the field.
    """
    keys = iter(jax.random.split(key, sum(repeats) + 2))
    stem, statistics = eqx.nn.make_with_state(Stem)(widths[0], key=next(keys))
    stages, state, inputs = [], [statistics], widths[0]
    for number, width in zip(repeats, widths, strict=True):
        blocks = []
        for _ in range(number):
            stride = 1 if blocks or not stages else 2
            made = eqx.nn.make_with_state(Block)(inputs, width, stride, bottleneck=bottleneck, key=next(keys))
            blocks.append(made[0])
            state.append(made[1])
            inputs = 4 * width if bottleneck else width
        stages.append(blocks)
    network = ResNet(stem, stages, eqx.nn.Linear(inputs, classes, key=next(keys)))
    return network, state


def resnet18(key: jax.Array, *, classes: int = CLASSES) -> tuple[ResNet, list[eqx.nn.State]]:
    """The network of 18 layers, 11,689,512 parameters, and its statistics; see `resnet`."""
    return resnet(key, (2, 2, 2, 2), bottleneck=False, classes=classes)


def resnet34(key: jax.Array, *, classes: int = CLASSES) -> tuple[ResNet, list[eqx.nn.State]]:
    """The network of 34 layers, 21,797,672 parameters, and its statistics; see `resnet`."""
    return resnet(key, (3, 4, 6, 3), bottleneck=False, classes=classes)


def resnet50(key: jax.Array, *, classes: int = CLASSES) -> tuple[ResNet, list[eqx.nn.State]]:
    """The network of 50 layers, 25,557,032 parameters, and its statistics; see `resnet`."""
    return resnet(key, (3, 4, 6, 3), bottleneck=True, classes=classes)
