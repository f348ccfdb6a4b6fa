"""The state of an emission: what is held of variables and streams at a point of the steps that are emitted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from codelet.programs.copies import Stream
from codelet.views.sources import Variable
from codelet.views.tensor import Tensor
from lowering.arrays import Array, Arrays
from lowering.fast.execution import Execution
from lowering.fast.feeds import BodyStreams, Feeds
from lowering.plan.steps import FunctionBody


class JittedFunction(NamedTuple):
    """A function of the graph as JAX runs it: from tables, what is held of variables and values of streams to these.

    What is sent to streams that are passed on stands behind the variables, on both sides.
    """

    call: Callable[..., Any]
    tables: list[Any]
    streams: BodyStreams


@dataclass(eq=False)
class EmissionState:
    """What is there at a point of an emission. Changed in place by the steps of one body; each body has its own.

    Attributes:
        execution: how values are held, and what compute sets and copies do with them.
        abort: the flag that aborts raise, None where nothing aborts.
        streams: what was taken from streams and sent to them.
        arrays: what is held of every variable that has a value.
        functions: those of the graph that were called so far, which all bodies share.
    """

    execution: Execution
    abort: Variable | None
    streams: Feeds
    arrays: Arrays = field(default_factory=dict)
    functions: dict[FunctionBody, JittedFunction] = field(default_factory=dict)

    def read(self, tensor: Tensor) -> Array:
        """The value of a view without symbols."""
        return self.execution.read(self.arrays, tensor)

    def write(self, tensor: Tensor, value: Array) -> None:
        """Write a value to a view without symbols."""
        self.execution.write(self.arrays, tensor, value)

    def held(self, kept: Iterable[Variable | Stream]) -> list[Any]:
        """What is held of variables, which may have no value yet, and of what was sent to streams."""
        return [
            self.execution.held(self.arrays, own) if isinstance(own, Variable) else self.streams.held[own]
            for own in kept
        ]

    def put(self, kept: Iterable[Variable | Stream], values: Iterable[Any]) -> None:
        """Hold of variables, and of what was sent to streams, what `held` gives of another state."""
        for own, value in zip(kept, values, strict=True):
            if isinstance(own, Variable):
                self.arrays[own] = value
            else:
                self.streams.held[own] = value

    def inner(self, kept: Iterable[Variable | Stream] = (), values: Iterable[Any] = ()) -> EmissionState:
        """The state in which a body begins, with other values of what it carries."""
        streams = replace(self.streams, held=dict(self.streams.held))
        made = replace(self, streams=streams, arrays=dict(self.arrays))
        made.put(kept, values)
        return made

    def alone(self) -> EmissionState:
        """The state in which the body of a function begins, which sees nothing but what it is given."""
        return replace(self, streams=Feeds(self.streams.unsure), arrays={})
