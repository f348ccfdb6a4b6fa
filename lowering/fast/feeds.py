"""Feeds: the values of streams, as steps take and give them while they are emitted.

The values of an input stream come in stacked; a body gets its part of them with a first axis of turns, and is scanned
over it. The values of an output stream whose number is fixed are stacked by the scan. Where the number depends on
data, they go into an array that holds the most there may be, one behind another, and are counted: `Sent` is passed
on through loops, choices and functions as what is held of variables is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from codelet.programs.copies import Stream
from lowering.arrays import Array
from lowering.fast.compute_sets import State
from lowering.plan.steps import Step
from lowering.plan.streams import Sent, count_values, unsure_streams

_UNSURE = object()
"""The key in a state of the streams to which a number of values goes that depends on data."""


class _Feed(NamedTuple):
    """The values of an input stream that are there, and how many of them are taken."""

    values: Array
    taken: int = 0


def begin_streams(state: State, steps: Sequence[Step], streams: Iterable[Stream], given: Iterable[Array]) -> None:
    """Open the streams of a program, with the values of its input streams, stacked."""
    counts, values = count_values(steps), iter(given)
    state[_UNSURE] = unsure_streams(steps)
    for stream in streams:
        if stream.is_input:
            state[stream] = _Feed(next(values))
        elif stream in state[_UNSURE]:
            empty = jnp.zeros((counts[stream], *stream.shape), stream.dtype)
            state[stream] = Sent(empty, jnp.zeros((), jnp.int32))
        else:
            state[stream] = ()


def inherit_streams(state: State) -> State:
    """What a function's own state begins with."""
    return {_UNSURE: state[_UNSURE]}


def _between(values: Array, start: int, stop: int) -> Array:
    """Some of the values along the first axis; all of them as they are."""
    return values if (start, stop) == (0, values.shape[0]) else lax.slice_in_dim(values, start, stop)


class Streams(NamedTuple):
    """What a body copies of streams: the values that go in and those that come out, by number.

    `passed_on` are the output streams whose number of values depends on data.
    """

    inputs: tuple[tuple[Stream, int], ...]
    outputs: tuple[tuple[Stream, int], ...]
    passed_on: tuple[Stream, ...]

    def take(self, state: State, turns: int = 1) -> list[Array]:
        """The next values of every input for so many turns, which are then taken."""
        taken = []
        for stream, count in self.inputs:
            feed, more = state[stream], count * turns
            taken.append(_between(feed.values, feed.taken, feed.taken + more))
            state[stream] = feed._replace(taken=feed.taken + more)
        return taken

    def take_for(self, state: State, count: int) -> list[Array]:
        """The next values of every input for so many turns, with a first axis of turns.

        Where each turn takes one value they are as they came: XLA would copy them for the loop in another shape.
        """
        taken = zip(self.take(state, count), self.inputs, strict=True)
        return [values if n == 1 else values.reshape(count, n, *stream.shape) for values, (stream, n) in taken]

    def enter(self, state: State, values: Sequence[Array]) -> None:
        """Give a body its own values: those of `take`, or of one turn of `take_for`."""
        for (stream, n), own in zip(self.inputs, values, strict=True):
            state[stream] = _Feed(own.reshape(n, *stream.shape))
        state.update({stream: () for stream, _ in self.outputs})

    def leave(self, state: State) -> list[Array]:
        """What a body has sent, where its number is fixed."""
        return [_sent(state, stream) for stream, _ in self.outputs]

    def send(self, state: State, values: Sequence[Array]) -> None:
        """Send what bodies have sent, stacked along any number of first axes."""
        for (stream, _), own in zip(self.outputs, values, strict=True):
            count = math.prod(own.shape[: own.ndim - len(stream.shape)])
            state[stream] = (*state[stream], own.reshape(count, *stream.shape))


def streams_of(state: State, *bodies: Sequence[Step]) -> Streams:
    """What some bodies, of which one runs, copy of streams. Where the number is fixed, they all copy as many."""
    counts = {stream: n for body in bodies for stream, n in count_values(body).items()}
    ordered = sorted(counts.items(), key=lambda item: item[0].name)
    return Streams(
        tuple((stream, n) for stream, n in ordered if stream.is_input),
        tuple((stream, n) for stream, n in ordered if not stream.is_input and stream not in state[_UNSURE]),
        tuple(stream for stream, _ in ordered if stream in state[_UNSURE]),
    )


def _sent(state: State, stream: Stream) -> Array:
    """All that was sent to a stream of a fixed number of values, stacked."""
    parts = state[stream]
    if not parts:
        return jnp.zeros((0, *stream.shape), stream.dtype)
    return parts[0] if len(parts) == 1 else lax.concatenate(parts, 0)


def all_sent(state: State, stream: Stream) -> list[Array]:
    """All that was sent to a stream: the values stacked, and their number where it depends on data."""
    return list(state[stream]) if stream in state[_UNSURE] else [_sent(state, stream)]


def receive(state: State, stream: Stream) -> Array:
    """The next value of an input stream."""
    feed = state[stream]
    state[stream] = feed._replace(taken=feed.taken + 1)
    return _between(feed.values, feed.taken, feed.taken + 1).reshape(stream.shape)


def send(state: State, stream: Stream, value: Array) -> None:
    """Send a value."""
    if stream in state[_UNSURE]:
        values, count = state[stream]
        start = (count, *[jnp.zeros((), count.dtype)] * value.ndim)
        state[stream] = Sent(lax.dynamic_update_slice(values, value[None], start), count + 1)
    else:
        state[stream] = (*state[stream], value[None])
