"""Executions: how values are stored while steps are emitted, and the actions of compute sets and copies on them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from codelet.programs.copies import Stream
from codelet.views.sources import Variable
from codelet.views.tensor import Tensor
from lowering.arrays import Array, Arrays
from lowering.fast import compute_sets as fused
from lowering.fast import sources
from lowering.plan.steps import AddUpStep, CopyStep, ExecuteStep


class Execution:
    """How values are stored and the actions of vertices: here every variable is one array in logical order.

    Another execution holds variables otherwise; all of them share the treatment of loops, branches, functions and
    streams in `lowering/fast/steps.py`. The stored form of a variable is one array, whatever its shape.
    """

    def load(self, variable: Variable, array: Array) -> Array:
        """The stored form of a variable, from its value."""
        return array

    def unload(self, variable: Variable, held: Array) -> Array:
        """The value of a variable, from its stored form."""
        return held

    def blank(self, variable: Variable) -> Array:
        """The stored form of a variable that has no value yet: zeros.
        yet: zeros.
        """
        return jax.device_put(np.zeros(variable.shape, variable.dtype))

    def saved(self, variable: Variable, held: Array) -> Array:
        """The value of a variable for a checkpoint, in logical order, with any room behind its ends.

        It is over the devices that hold it, as no device may have room for all of it.
        """
        return jnp.asarray(self.unload(variable, held))

    def restoring(self, variable: Variable) -> jax.ShapeDtypeStruct | None:
        """The stored form of a variable, if that is its value in logical order, with any room behind its ends; with how
        it is sharded. None where its value has to be loaded, and on one device.
        """
        return None

    def held(self, arrays: Arrays, variable: Variable) -> Array:
        """The stored form of a variable, which may have no value yet."""
        return sources.source_array(arrays, variable)

    def read(self, arrays: Arrays, tensor: Tensor) -> Array:
        """The value of a view without symbols."""
        return sources.read_view(arrays, tensor)

    def write(self, arrays: Arrays, tensor: Tensor, value: Array) -> None:
        """Write a value to a view without symbols. The arrays are changed."""
        sources.write_tensor(arrays, tensor, value)

    def receive(self, arrays: Arrays, stream: Stream, tensor: Tensor, value: Array) -> None:
        """Write a value of an input stream to a view without symbols. The arrays are changed."""
        self.write(arrays, tensor, value)

    def feed(self, stream: Stream, values: np.ndarray) -> Any:
        """The values of an input stream for a
        program, stacked: all of each, or the part `part`.
        """
        return values

    def part(self, stream: Stream) -> tuple[slice, ...]:
        """The part of each value of an input stream that the devices of this process hold."""
        return tuple(slice(0, size) for size in stream.shape)

    def passed(self, arrays: Arrays, tensor: Tensor, parameter: Variable) -> Array:
        """The stored form of a function's parameter that gets the value of a view without symbols."""
        return self.load(parameter, self.read(arrays, tensor))

    def take_back(self, arrays: Arrays, parameter: Variable, held: Array, tensor: Tensor) -> None:
        """Write the value of a function's parameter to a view without symbols. The arrays are changed."""
        self.write(arrays, tensor, self.unload(parameter, held))

    def show(self, text: str, value: Array) -> None:
        """Print a text and a value when the program comes here."""
        # The text is an argument: JAX prints a format that begins with an escaped brace as it stands.
        jax.debug.print("{}: {}", text, value)

    def execute(self, arrays: Arrays, step: ExecuteStep) -> None:
        """Run a compute set, of which it must be decided how it runs. The arrays are changed."""
        assert isinstance(step, fused.FusedStep)
        fused.execute(arrays, step)

    def copy(self, arrays: Arrays, step: CopyStep) -> None:
        """Copy a view to another. The arrays are changed."""
        assert isinstance(step, fused.FusedCopy)
        fused.copy(arrays, step)

    def add_up(self, arrays: Arrays, step: AddUpStep) -> None:
        """Add up a variable along its first dimension. The arrays are changed."""
        held = self.held(arrays, step.source)
        arrays[step.destination] = jnp.sum(held, 0, dtype=held.dtype)
