"""Streaming: a program with streams as parts that each take a bounded number of values.

In comes a plan, out come its parts: some steps that run as one, or a loop whose iterations are taken in chunks, so that
the host holds no more values at a time than fit `stream_bytes`. `Sources` take values from what the user has connected.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from codelet.errors import ArrayError, StreamError
from codelet.hostcopies import own_copy
from codelet.programs.copies import Stream
from codelet.views.sources import type_text
from lowering.plan.steps import RepeatStep, Step, SwitchStep, WhileStep
from lowering.plan.streams import count_values, unsure_inputs

# --- parts of a program -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Together:
    """Steps that run as one compiled function."""

    steps: tuple[Step, ...]


@dataclass(frozen=True, eq=False)
class Chunks:
    """A loop of which `turns` iterations at a time run as one compiled function; the last time perhaps fewer."""

    step: RepeatStep
    turns: int


@dataclass(frozen=True, eq=False)
class Turns:
    """A loop that the engine goes round itself, since one iteration takes too many values to be one function."""

    step: RepeatStep
    body: tuple[Part, ...]


@dataclass(frozen=True, eq=False)
class Rounds:
    """A loop on a condition that takes values of streams: the engine asks for each when it is taken."""

    step: WhileStep
    condition: tuple[Part, ...]
    body: tuple[Part, ...]


@dataclass(frozen=True, eq=False)
class Choice:
    """A choice of whose branches some take more values of streams than others."""

    step: SwitchStep
    branches: tuple[tuple[Part, ...], ...]


Part = Together | Chunks | Turns | Rounds | Choice


def _num_bytes(steps: Sequence[Step]) -> int:
    """What the values weigh that some steps copy from and to streams."""
    return sum(n * math.prod(s.shape) * s.dtype.itemsize for s, n in count_values(steps).items())


def _asking(step: Step, stream_bytes: int) -> Part:
    """A step that takes a number of values of streams that depends on data, so that none is asked for in vain."""
    if isinstance(step, WhileStep):
        return Rounds(step, split(step.condition, stream_bytes), split(step.body, stream_bytes))
    if isinstance(step, SwitchStep):
        return Choice(step, tuple(split(branch, stream_bytes) for branch in step.branches))
    assert isinstance(step, RepeatStep), step
    return Turns(step, split(step.body, stream_bytes))


def split(steps: Sequence[Step], stream_bytes: int, chunks: int = 1) -> tuple[Part, ...]:
    """Steps as parts, none of which holds more values of streams than `stream_bytes`, if it can be.

    Args:
        steps: what runs, without calls of functions that take a number of values of streams that depends on data.
        stream_bytes: the bound.
        chunks: into how many chunks at least a loop over streams is to fall, as far as it has iterations.
    """
    parts: list[Part] = []
    together: list[Step] = []

    def close() -> None:
        if together:
            parts.append(Together(tuple(together)))
            together.clear()

    for step in steps:
        if unsure_inputs([step]):
            close()
            parts.append(_asking(step, stream_bytes))
            continue
        weight = _num_bytes([step])
        if together and weight and _num_bytes(together) + weight > stream_bytes:
            close()
        fits = weight <= stream_bytes and (chunks == 1 or not count_values([step]))
        if not isinstance(step, RepeatStep) or not step.count or fits:
            together.append(step)
            continue
        close()
        of_turn = _num_bytes(step.body)
        if of_turn > stream_bytes:
            parts.append(Turns(step, split(step.body, stream_bytes)))
        else:
            most = stream_bytes // of_turn if of_turn else step.count
            parts.append(Chunks(step, max(1, min(most, -(-step.count // chunks)))))
    close()
    return tuple(parts)


# --- what is connected ----------------------------------------------------------------------------------


def _checked(stream: Stream, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        array = np.asarray(None)
    fits = array.dtype == stream.dtype or (
        np.can_cast(array.dtype, stream.dtype, "same_kind") and array.dtype.kind == stream.dtype.kind
    )
    if array.shape != shape or not fits:
        raise ArrayError(
            f"a value of stream {stream.name!r} has the wrong {'shape' if array.shape != shape else 'dtype'}",
            given=type_text(array.dtype, array.shape),
            expected=type_text(stream.dtype, shape),
            fix=f"convert it first: np.asarray(..., {stream.dtype.name!r})" if array.shape == shape else None,
        )
    return array.astype(stream.dtype, copy=False)


class _Source:
    """Where the values of an input stream come from: a stacked array, or an iterator."""

    def __init__(self, stream: Stream, values: Any, shape: tuple[int, ...]):
        self.stream = stream
        self.shape = shape  # of each value, or of the part of it that is given
        self.array: np.ndarray | None = None
        self.in_file = False
        self.iterator: Iterator[Any] = iter(())
        self.taken = 0
        self.before = 0  # how many were taken before the run
        self.waiting: deque[Any] = deque()  # what an iterator has given, and is to be taken again
        self.lent: list[Sequence[Any]] | None = []  # what it has given in this run, by takes; None where not kept
        if hasattr(values, "shape") and hasattr(values, "dtype"):
            # What is in a file is copied as it is taken, what is JAX's does not change: the rest the user may write to.
            self.in_file = isinstance(values, np.memmap)
            array = np.asarray(values) if self.in_file or isinstance(values, jax.Array) else np.array(values)
            self.array = _checked(stream, array, (*array.shape[:1], *shape))
        elif isinstance(values, Iterable) and not isinstance(values, (str, bytes, Mapping)):
            self.iterator = iter(values)
        else:
            raise StreamError(
                f"stream {stream.name!r} is connected to something that gives no values",
                given=f"{values!r:.80}",
                expected="an array of values stacked along a first axis, or an iterable of arrays",
            )

    def _from_iterator(self, count: int) -> np.ndarray:
        """The next values of the iterator, fewer where it ends."""
        # Each is copied as it comes: an iterator may give one array again and again, with other values.
        found, number = np.empty((count, *self.shape), self.stream.dtype), 0
        bad: list[Any] = []
        try:
            while number < count:
                try:
                    value = self.waiting.popleft() if self.waiting else next(self.iterator)
                except StopIteration:
                    break
                bad = [value]
                found[number] = _checked(self.stream, value, self.shape)
                bad, number = [], number + 1
        finally:
            if self.lent is not None:
                self.lent += [found[:number], bad]
        return found[:number]

    def take(self, count: int) -> np.ndarray:
        """The next values, stacked."""
        array = self.array
        found = self._from_iterator(count) if array is None else array[self.taken : self.taken + count]
        found = own_copy(found) if self.in_file else found
        if len(found) < count:
            ended = self.taken + len(found)
            raise StreamError(
                f"stream {self.stream.name!r} ended after {ended} values, when step {ended} was to take the next",
                given=f"{ended} values since it was connected",
                expected=f"at least {self.taken + count}",
                fix="connect more values, or repeat fewer times",
            )
        self.taken += count
        return found

    def begin(self) -> None:
        """Begin a run: what it takes may have to go back."""
        self.before, self.lent = self.taken, []

    def give_back(self) -> None:
        """Have what the run took be taken again."""
        if self.lent is not None:
            self.waiting.extendleft(value for block in reversed(self.lent) for value in reversed(block))
            self.taken, self.lent = self.before, []


class Connections:
    """What the streams of a graph are connected to.

    Args:
        stream_bytes: how many bytes of values of iterators are kept while a run may have to give them back.
    """

    def __init__(self, stream_bytes: int) -> None:
        self.stream_bytes = stream_bytes
        self._sources: dict[Stream, _Source] = {}
        self._sinks: dict[Stream, Callable[[np.ndarray], object]] = {}
        self._sent: dict[Stream, list[np.ndarray]] = {}
        self._sent_before: dict[Stream, list[np.ndarray]] = {}
        self._lent_bytes = 0

    def connect(self, stream: Stream, values: Any, part: tuple[slice, ...] | None = None) -> None:
        """Connect a stream to where its values come from, or parts of them, or to what is called with each."""
        if part is not None and not stream.is_input:
            raise StreamError(
                f"output stream {stream.name!r} is connected by parts",
                given="by_part=True",
                expected="a function that is called with each whole value, in every process",
                fix=f"engine.connect({stream.name!r}, function)",
            )
        if stream.is_input:
            shape = stream.shape if part is None else tuple(own.stop - own.start for own in part)
            self._sources[stream] = _Source(stream, values, shape)
        elif callable(values):
            self._sinks[stream] = values
        else:
            raise StreamError(
                f"output stream {stream.name!r} is connected to something that takes no values",
                given=f"{values!r:.80}",
                expected="a function of one array; or nothing, and engine.read(...) gives what was sent",
            )

    def begin(self, streams: Sequence[Stream]) -> None:
        """Begin a run: what output streams sent before is forgotten, unless the run fails.

        Raises:
            StreamError: an input stream that is not connected.
        """
        for stream in streams:
            if stream.is_input and stream not in self._sources:
                raise StreamError(
                    f"input stream {stream.name!r} is not connected", fix=f"engine.connect({stream.name!r}, values)"
                )
        self._sent_before, self._lent_bytes = self._sent, 0
        self._sent = {**self._sent, **{stream: [] for stream in streams if not stream.is_input}}
        for source in self._sources.values():
            source.begin()

    def take(self, stream: Stream, count: int) -> np.ndarray:
        """The next values of an input stream, stacked."""
        source = self._sources[stream]
        values = source.take(count)
        if source.array is None:
            self._lent_bytes += values.nbytes
            if self._lent_bytes > self.stream_bytes:
                # Then none goes back, that of arrays neither: what is read together must stay together.
                for each in self._sources.values():
                    each.lent = None
        return values

    def send(self, stream: Stream, values: np.ndarray) -> None:
        """Hand on values, stacked, that an output stream sends."""
        if stream in self._sinks:
            for value in values:
                self._sinks[stream](value)
        elif len(values):
            self._sent[stream].append(values)

    def end(self) -> None:
        """End a run that succeeded: what it took is gone, what it sent stays."""
        self._sent_before = {}
        for source in self._sources.values():
            source.begin()

    def give_back(self) -> str | None:
        """End a run that failed: what it took is taken again by the next, and what was sent before is there again.

        Returns:
            What to tell the user where values are gone.
        """
        self._sent, self._sent_before = self._sent_before, {}
        gone = [f"{s.taken - s.before:,} of {s.stream.name!r}" for s in self._sources.values() if s.lent is None]
        for source in self._sources.values():
            source.give_back()
        if not gone:
            return None
        return (
            f"The run had taken values of streams ({', '.join(gone)}), which are not given again: those of iterators "
            f"are more than stream_bytes={self.stream_bytes:,}."
        )

    def sent(self, stream: Stream) -> np.ndarray:
        """What an output stream sent in the last run that did not fail, stacked."""
        parts = self._sent.get(stream) or [np.zeros((0, *stream.shape), stream.dtype)]
        return np.concatenate(parts)
