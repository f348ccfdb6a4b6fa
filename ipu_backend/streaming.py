"""Streaming: a program with streams as parts that each take a bounded number of values.

In comes a plan, out come its parts: some steps that run as one, or a loop whose turns are taken in chunks, so
that the host holds no more values at a time than fit `stream_bytes`. `Sources` take values from what the
user has connected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from codelet.copies import Stream
from codelet.errors import ArrayError, StreamError
from codelet.tensor import type_text
from lowering.plan import RepeatStep, Step
from lowering.streams import count_values

# --- parts of a program -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Together:
    """Steps that run as one compiled function."""

    steps: tuple[Step, ...]


@dataclass(frozen=True, eq=False)
class Chunks:
    """A loop of which `turns` turns at a time run as one compiled function; the last time perhaps fewer."""

    step: RepeatStep
    turns: int


@dataclass(frozen=True, eq=False)
class Turns:
    """A loop that the engine goes round itself, since one turn takes too many values to be one function."""

    step: RepeatStep
    body: tuple[Part, ...]


Part = Together | Chunks | Turns


def _num_bytes(steps: Sequence[Step]) -> int:
    """What the values weigh that some steps copy from and to streams."""
    return sum(n * math.prod(s.shape) * s.dtype.itemsize for s, n in count_values(steps).items())


def split(steps: Sequence[Step], stream_bytes: int) -> tuple[Part, ...]:
    """Steps as parts, none of which holds more values of streams than `stream_bytes`, if it can be."""
    parts: list[Part] = []
    together: list[Step] = []

    def close() -> None:
        if together:
            parts.append(Together(tuple(together)))
            together.clear()

    for step in steps:
        weight = _num_bytes([step])
        if together and weight and _num_bytes(together) + weight > stream_bytes:
            close()
        if not isinstance(step, RepeatStep) or weight <= stream_bytes:
            together.append(step)
            continue
        close()
        of_turn = _num_bytes(step.body)
        if of_turn > stream_bytes:
            parts.append(Turns(step, split(step.body, stream_bytes)))
        else:
            parts.append(Chunks(step, max(1, stream_bytes // of_turn)))
    close()
    return tuple(parts)


# --- what is connected ----------------------------------------------------------------------------------


def _checked(stream: Stream, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    array = np.asarray(value)
    fits = array.dtype == stream.dtype or (
        np.can_cast(array.dtype, stream.dtype, "same_kind") and array.dtype.kind == stream.dtype.kind
    )
    if array.shape != shape or not fits:
        raise ArrayError(
            f"a value of stream {stream.name!r} has the wrong {'shape' if array.shape != shape else 'dtype'}",
            given=type_text(array.dtype, array.shape),
            expected=type_text(stream.dtype, shape),
        )
    return array.astype(stream.dtype, copy=False)


class _Source:
    """Where the values of an input stream come from: a stacked array, or an iterator."""

    def __init__(self, stream: Stream, values: Any):
        self.stream = stream
        self.array: np.ndarray | None = None
        self.iterator: Iterator[Any] = iter(())
        self.taken = 0
        if hasattr(values, "shape") and hasattr(values, "dtype"):
            array = np.asarray(values)
            self.array = _checked(stream, array, (*array.shape[:1], *stream.shape))
        elif isinstance(values, Iterable):
            self.iterator = iter(values)
        else:
            raise StreamError(
                f"stream {stream.name!r} is connected to something that gives no values",
                given=f"{values!r:.80}",
                expected="an array of values stacked along a first axis, or an iterable of arrays",
            )

    def take(self, count: int) -> np.ndarray:
        """The next values, stacked."""
        found: list[np.ndarray] = []
        if self.array is not None:
            found.extend(self.array[self.taken : self.taken + count])
        else:
            for value in self.iterator:
                found.append(_checked(self.stream, value, self.stream.shape))
                if len(found) == count:
                    break
        if len(found) < count:
            ended = self.taken + len(found)
            raise StreamError(
                f"stream {self.stream.name!r} ended after {ended} values, when step {ended} was to take the next",
                given=f"{ended} values since it was connected",
                expected=f"at least {self.taken + count}",
                fix="connect more values, or repeat fewer times",
            )
        self.taken += count
        return self.array[self.taken - count : self.taken] if self.array is not None else np.stack(found)


class Connections:
    """What the streams of a graph are connected to."""

    def __init__(self) -> None:
        self._sources: dict[Stream, _Source] = {}
        self._sinks: dict[Stream, Callable[[np.ndarray], object]] = {}
        self._sent: dict[Stream, list[np.ndarray]] = {}

    def connect(self, stream: Stream, values: Any) -> None:
        """Connect a stream to where its values come from, or to what is called with each that it sends."""
        if stream.is_input:
            self._sources[stream] = _Source(stream, values)
        elif callable(values):
            self._sinks[stream] = values
        else:
            raise StreamError(
                f"output stream {stream.name!r} is connected to something that takes no values",
                given=f"{values!r:.80}",
                expected="a function of one array; or nothing, and engine.read(...) gives what was sent",
            )

    def begin(self, streams: Sequence[Stream]) -> None:
        """Begin a run: what output streams sent before is forgotten.

        Raises:
            StreamError: an input stream that is not connected.
        """
        for stream in streams:
            if stream.is_input and stream not in self._sources:
                raise StreamError(
                    f"input stream {stream.name!r} is not connected", fix=f"engine.connect({stream.name!r}, values)"
                )
            if not stream.is_input:
                self._sent[stream] = []

    def take(self, stream: Stream, count: int) -> np.ndarray:
        """The next values of an input stream, stacked."""
        return self._sources[stream].take(count)

    def send(self, stream: Stream, values: np.ndarray) -> None:
        """Hand on values, stacked, that an output stream sends."""
        if stream in self._sinks:
            for value in values:
                self._sinks[stream](value)
        elif len(values):
            self._sent[stream].append(values)

    def sent(self, stream: Stream) -> np.ndarray:
        """What an output stream sent in the last run, stacked."""
        parts = self._sent.get(stream) or [np.zeros((0, *stream.shape), stream.dtype)]
        return np.concatenate(parts)
