"""The state of an emission: the arrays of variables and streams at a point of the steps that are emitted."""

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
    """A function of the graph as JAX runs it: from tables, the arrays of variables and the values of streams to these.

    Values sent to streams that are passed on stand behind the variables, on both sides.
    """

    call: Callable[..., Any]
    tables: list[Any]
    streams: BodyStreams


@dataclass(eq=False)
class EmissionState:
    """The state at a point of an emission. Changed in place by the steps of one body; each body has a separate one.

    Attributes:
        execution: how values are stored, and the actions of compute sets and copies on them.
        abort: the flag that aborts raise, None where nothing aborts.
        streams: the values taken from streams and sent to them.
        arrays: the array of every variable that has a value.
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
        """The arrays of variables, which may have no value yet, and the values sent to streams."""
        return [
            self.execution.held(self.arrays, own) if isinstance(own, Variable) else self.streams.held[own]
            for own in kept
        ]

    def put(self, kept: Iterable[Variable | Stream], values: Iterable[Any]) -> None:
        """Take the arrays of variables, and the values sent to streams, from `held` of another state."""
        for own, value in zip(kept, values, strict=True):
            if isinstance(own, Variable):
                self.arrays[own] = value
            else:
                self.streams.held[own] = value

    def inner(self, kept: Iterable[Variable | Stream] = (), values: Iterable[Any] = ()) -> EmissionState:
        """The state in which a body begins, with other values of its carry."""
        streams = replace(self.streams, held=dict(self.streams.held))
        made = replace(self, streams=streams, arrays=dict(self.arrays))
        made.put(kept, values)
        return made

    def alone(self) -> EmissionState:
        """The state in which the body of a function begins, which sees nothing but its arguments."""
        return replace(self, streams=Feeds(self.streams.unsure), arrays={})
