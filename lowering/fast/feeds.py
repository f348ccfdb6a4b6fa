"""Feeds: the values of streams, as steps take and give them while they are emitted.

The values of an input stream come in stacked; a body gets its part of them, with a first axis of iterations, and is
scanned over it. The values of an output stream whose number is fixed are stacked by the scan. Where the number depends
on data, they go into an array that holds the most there may be, one behind another, and are counted, and those of an
input stream are taken out of one: `Sent` is passed on through loops, branches and functions as variables are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from codelet.programs.copies import Stream
from lowering.arrays import Array
from lowering.plan.steps import Step
from lowering.plan.streams import Sent, count_values, unsure_streams


class _Feed(NamedTuple):
    """The values of an input stream that are there, and how many of them are taken."""

    values: Array
    taken: int = 0

    def next(self, count: int) -> tuple[Array, _Feed]:
        """The next values, stacked, and the rest."""
        start, stop = self.taken, self.taken + count
        every = (start, stop) == (0, self.values.shape[0])
        return self.values if every else lax.slice_in_dim(self.values, start, stop), self._replace(taken=stop)


class BodyStreams(NamedTuple):
    """The copies of a body from and to streams: the values that go in and those that come out, by number.

    `passed_on` are the streams whose number of values depends on data.
    """

    inputs: tuple[tuple[Stream, int], ...]
    outputs: tuple[tuple[Stream, int], ...]
    passed_on: tuple[Stream, ...]

    def take(self, streams: Feeds, turns: int = 1) -> list[Array]:
        """The next values of every input for so many iterations, which are then taken."""
        return [streams.take(stream, count * turns) for stream, count in self.inputs]

    def take_for(self, streams: Feeds, count: int) -> list[Array]:
        """The next values of every input for so many iterations, with a first axis of iterations.

        Where each iteration takes one value they are as they
            came: XLA would copy them for the loop in another shape.
        """
        taken = zip(self.take(streams, count), self.inputs, strict=True)
        return [values if n == 1 else values.reshape(count, n, *values.shape[1:]) for values, (_, n) in taken]

    def enter(self, streams: Feeds, values: Sequence[Array]) -> None:
        """Give a body its values: those of `take`, or of one iteration of `take_for`."""
        for (stream, n), own in zip(self.inputs, values, strict=True):
            streams.held[stream] = _Feed(own.reshape(n, *own.shape[own.ndim - len(stream.shape) :]))
        streams.held.update({stream: () for stream, _ in self.outputs})

    def leave(self, streams: Feeds) -> list[Array]:
        """The values that a body has sent, where their number is fixed."""
        return [streams.sent(stream) for stream, _ in self.outputs]

    def send(self, streams: Feeds, values: Sequence[Array]) -> None:
        """Send the values of bodies, stacked along any number of first axes."""
        for (stream, _), own in zip(self.outputs, values, strict=True):
            count = math.prod(own.shape[: own.ndim - len(stream.shape)])
            streams.held[stream] = (*streams.held[stream], own.reshape(count, *stream.shape))


@dataclass(eq=False)
class Feeds:
    """The streams of a program at a point of it. Changed in place.

    Attributes:
        unsure: the streams of which a number of values is copied that depends on data.
        held: of an input stream its values and how many are taken; of an output stream the values sent so far, stacked
            in pieces; `Sent` where it is unsure, of an input stream with all the values that there are.
    """

    unsure: frozenset[Stream]
    held: dict[Stream, Any] = field(default_factory=dict)

    def of(self, *bodies: Sequence[Step]) -> BodyStreams:
        """The streams that some bodies, of which one runs, copy from and to. Where the number is fixed, they all copy
        as many.
        """
        counts = {stream: n for body in bodies for stream, n in count_values(body).items()}
        ordered = sorted(counts.items(), key=lambda item: item[0].name)
        return BodyStreams(
            tuple((stream, n) for stream, n in ordered if stream.is_input and stream not in self.unsure),
            tuple((stream, n) for stream, n in ordered if not stream.is_input and stream not in self.unsure),
            tuple(stream for stream, _ in ordered if stream in self.unsure),
        )

    def take(self, stream: Stream, count: int) -> Array:
        """The next values of an input stream, stacked, which are then taken."""
        values, self.held[stream] = self.held[stream].next(count)
        return values

    def receive(self, stream: Stream) -> Array:
        """The next value of an input stream."""
        if stream in self.unsure:
            values, count = self.held[stream]
            self.held[stream] = Sent(values, count + 1)
            return lax.dynamic_index_in_dim(values, count, keepdims=False)
        value = self.take(stream, 1)
        return value.reshape(value.shape[1:])

    def kind(self, stream: Stream, count: int) -> jax.ShapeDtypeStruct:
        """The type of so many values of an input stream, stacked, as they come: perhaps a device's part of each."""
        values = self.held[stream].values
        return jax.ShapeDtypeStruct((count, *values.shape[1:]), values.dtype)

    def send(self, stream: Stream, value: Array) -> None:
        """Send a value."""
        if stream in self.unsure:
            values, count = self.held[stream]
            start = (count, *[jnp.zeros((), count.dtype)] * value.ndim)
            self.held[stream] = Sent(lax.dynamic_update_slice(values, value[None], start), count + 1)
        else:
            self.held[stream] = (*self.held[stream], value[None])

    def sent(self, stream: Stream) -> Array:
        """All that was sent to a stream of a fixed number of values, stacked."""
        parts = self.held[stream]
        if not parts:
            return jnp.zeros((0, *stream.shape), stream.dtype)
        return parts[0] if len(parts) == 1 else lax.concatenate(parts, 0)

    def copied(self, stream: Stream) -> list[Array]:
        """All that was sent to a stream, stacked, and the number of values of any where it depends on data."""
        if stream.is_input:
            return [self.held[stream].count] if stream in self.unsure else []
        return list(self.held[stream]) if stream in self.unsure else [self.sent(stream)]


def begin_streams(steps: Sequence[Step], streams: Iterable[Stream], given: Iterable[Array]) -> Feeds:
    """The streams of a program as it begins, with the values of its input streams, stacked."""
    counts, values = count_values(steps), iter(given)
    feeds = Feeds(unsure_streams(steps))
    for stream in streams:
        if stream.is_input:
            own = next(values)
            feeds.held[stream] = Sent(own, jnp.zeros((), jnp.int32)) if stream in feeds.unsure else _Feed(own)
        elif stream in feeds.unsure:
            empty = jnp.zeros((counts[stream], *stream.shape), stream.dtype)
            feeds.held[stream] = Sent(empty, jnp.zeros((), jnp.int32))
        else:
            feeds.held[stream] = ()
    return feeds
