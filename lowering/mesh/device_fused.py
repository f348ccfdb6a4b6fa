"""Device fused: fused execution as each device of a mesh runs it, with its vertices and elements alone.

Everything here is traced inside `jax.shard_map`. The stored form of a variable is the part of it on the device
(`homes.py`). Before a compute set, what the device's vertices read and it does not have crosses to it; behind it what
they wrote of others' elements (`local_steps.py`). Values of views (conditions, streams, what the host is given) are on
all devices; so every device takes the same iterations and branches, and meets the others at every crossing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.programs.copies import Stream
from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import Tensor, whole_view
from lowering.arrays import Array, Arrays, reshape, slice_
from lowering.fast.execution import Execution
from lowering.mesh.addresses import Located, Putting, elements_at, everywhere, locate, put
from lowering.mesh.crossing import Crossing, Summing, WholeGathering
from lowering.mesh.devices import Devices
from lowering.mesh.homes import Homes
from lowering.mesh.local_steps import Branch, Layer, LocalStep, plan_local_step
from lowering.mesh.windows import DeviceWindow, Placing
from lowering.plan.steps import AddUpStep, CopyStep, ExecuteStep


class DeviceFused(Execution):
    """What a device has of variables; see the module's docstring.

    Args:
        homes: where variables live.
        devices: those of the mesh.
        fed: the input streams of whose values it is given its part alone.

    Attributes:
        crossed: the crossings that were emitted, in order, each as often as it was.
        steps: the compute sets that were emitted, by their families.
        sums: what was added up over the devices, by where the sum went.
    """

    def __init__(self, homes: Homes, devices: Devices, fed: Collection[Stream] = ()):
        self.homes, self.devices, self.fed = homes, devices, fed
        self.crossed: list[Crossing | WholeGathering | Summing] = []
        self.steps: dict[tuple, LocalStep] = {}
        self.sums: dict[Variable, Summing] = {}
        self._loads: dict[Variable, Putting] = {}
        self._readings: dict[Tensor, tuple[Located, Crossing]] = {}
        self._writings: dict[Tensor, list[Putting]] = {}
        self._arguments: dict[tuple[Tensor, Variable, bool], CopyStep] = {}
        self._copies: dict[CopyStep, tuple[Located, list[Putting]]] = {}

    def _cross(self, crossing: Crossing | WholeGathering, held: Sequence[Array], known: Sequence[Array]) -> Array:
        self.crossed.append(crossing)
        return crossing.of(held, known, self.devices)

    def _put(self, arrays: Arrays, own: Putting, held: Sequence[Array], known: Sequence[Array]) -> Array:
        self.held(arrays, own.home.variable)
        return self._cross(own.crossing, *own.parts(arrays, held, known))

    def _parts(self, arrays: Arrays, located: Located) -> tuple[list[Array], list[Array]]:
        for variable in (*located.sharded, *located.known):
            self.held(arrays, variable)
        return located.parts(arrays)

    # --- what is held -----------------------------------------------------------------------------------------

    def _is_everywhere(self, tensor: Tensor) -> bool:
        return self.homes.are_everywhere(source_variables(tensor.source))

    def load(self, variable: Variable, array: Array) -> Array:
        """What a device has of a variable, from its value, which all devices have: nothing crosses."""
        home = self.homes[variable]
        if home.is_everywhere:
            return array
        if variable not in self._loads:
            self._loads[variable] = put(home, np.arange(variable.size), np.arange(variable.size), 0, variable.size)
        return self._cross(self._loads[variable].crossing, [], [jnp.asarray(array)])

    def unload(self, variable: Variable, held: Array) -> Array:
        """The value of a variable, on all devices."""
        return held if self.homes[variable].is_everywhere else self.read({variable: held}, whole_view(variable))

    def blank(self, variable: Variable) -> Array:
        """What a device has of a variable that has no value yet: zeros."""
        return jnp.zeros(self.homes[variable].shape, variable.dtype)

    def held(self, arrays: Arrays, variable: Variable) -> Array:
        """The stored form of a variable, which may have no value yet."""
        if variable not in arrays:
            arrays[variable] = self.blank(variable)
        return arrays[variable]

    # --- views ------------------------------------------------------------------------------------------------

    def read(self, arrays: Arrays, tensor: Tensor) -> Array:
        """The value of a view without symbols, on all devices."""
        if not tensor.size:
            return jnp.zeros(tensor.shape, tensor.dtype)
        if self._is_everywhere(tensor):
            return super().read(arrays, tensor)
        if tensor not in self._readings:
            located = locate(tensor.source, self.homes)
            self._readings[tensor] = located, everywhere(tensor.index.values(), located, self.devices.count)
        located, crossing = self._readings[tensor]
        return self._cross(crossing, *self._parts(arrays, located))

    def write(self, arrays: Arrays, tensor: Tensor, value: Array) -> None:
        """Write a value that all devices have to a view without symbols. The arrays are changed."""
        if not tensor.size:
            return
        if self._is_everywhere(tensor):
            super().write(arrays, tensor, value)
            return
        if tensor not in self._writings:
            positions = tensor.index.values().reshape(-1)
            self._writings[tensor] = [
                put(self.homes[variable], elements, own, 0, tensor.size)
                for variable, (own, elements) in elements_at(tensor.source, positions).items()
            ]
        made = {own.home.variable: self._put(arrays, own, [], [value]) for own in self._writings[tensor]}
        arrays.update(made)

    def receive(self, arrays: Arrays, stream: Stream, tensor: Tensor, value: Array) -> None:
        """Write a value of an input stream, or this device's part of one. The arrays are changed."""
        if stream not in self.fed:
            self.write(arrays, tensor, value)
            return
        assert isinstance(tensor.source, Variable)
        assert self.homes[tensor.source].shape == value.shape
        arrays[tensor.source] = value

    def show(self, text: str, value: Array) -> None:
        """Print a text and a value, on the first device."""
        lax.cond(self.devices.number() == 0, lambda: super(DeviceFused, self).show(text, value), lambda: None)

    # --- copies -------------------------------------------------------------------------------------------------

    def _is_local(self, step: CopyStep) -> bool:
        """Whether all of a variable is copied to another that lives where it does."""
        if step.whole_variables is None:
            return False
        one, other = (self.homes[variable] for variable in step.whole_variables)
        return one.lives_as(other)

    def copy(self, arrays: Arrays, step: CopyStep) -> None:
        """Copy a view to another, from device to device. The arrays are changed."""
        if not step.source.size:
            return
        if self._is_local(step):
            assert step.whole_variables is not None
            source, destination = step.whole_variables
            arrays[destination] = self.held(arrays, source)
            return
        if self._is_everywhere(step.source):
            self.write(arrays, step.destination, super().read(arrays, step.source))
            return
        if step not in self._copies:
            located = locate(step.source.source, self.homes)
            addresses = located.addresses.at(step.source.index.values().reshape(-1))
            positions = step.destination.index.values().reshape(-1)
            puttings = [
                put(self.homes[variable], elements, addresses[own], located.held, located.known_size)
                for variable, (own, elements) in elements_at(step.destination.source, positions).items()
            ]
            self._copies[step] = located, puttings
        located, puttings = self._copies[step]
        held, known = self._parts(arrays, located)
        arrays.update({own.home.variable: self._put(arrays, own, held, known) for own in puttings})

    def passed(self, arrays: Arrays, tensor: Tensor, parameter: Variable) -> Array:
        """What a device has of a function's parameter that gets the value of a view without symbols."""
        within = dict(arrays)
        self.copy(within, self._passing(tensor, parameter, back=False))
        return self.held(within, parameter)

    def take_back(self, arrays: Arrays, parameter: Variable, held: Array, tensor: Tensor) -> None:
        """Write what a function has left in a parameter to a view without symbols. The arrays are changed."""
        within = {**arrays, parameter: held}
        self.copy(within, self._passing(tensor, parameter, back=True))
        arrays.update({own: within[own] for own in source_variables(tensor.source) if own in within})

    def _passing(self, tensor: Tensor, parameter: Variable, *, back: bool) -> CopyStep:
        """The copy of an argument to a parameter, or back."""
        key = tensor, parameter, back
        if key not in self._arguments:
            own = whole_view(parameter)
            self._arguments[key] = CopyStep(own, tensor) if back else CopyStep(tensor, own)
        return self._arguments[key]

    def summing(self, step: AddUpStep) -> Summing:
        """How what each device has is added up, which is noted."""
        whole = step.destination
        if whole not in self.sums:
            self.sums[whole] = Summing(whole.shape, self.homes[whole].cut, self.devices.count)
        self.crossed.append(self.sums[whole])
        return self.sums[whole]

    def add_up(self, arrays: Arrays, step: AddUpStep) -> None:
        """Add up what each device has. The arrays are changed."""
        own = reshape(self.held(arrays, step.source), step.destination.shape)
        arrays[step.destination] = self.summing(step).of(own, self.devices)

    # --- compute sets -------------------------------------------------------------------------------------------

    def _brought(self, arrays: Arrays, window: DeviceWindow) -> Array:
        """A window, flat or in its shape."""
        if window.starts:
            assert isinstance(window.source, Variable)
            part = window.parts[0]
            whole = reshape(self.held(arrays, window.source), part.shape)
            return lax.dynamic_slice(whole, self._own_starts(window.starts), part.extents)
        if window.crossing is None or window.located is None:
            return jnp.zeros(window.size, window.source.dtype)
        return self._cross(window.crossing, *self._parts(arrays, window.located))

    def execute(self, arrays: Arrays, step: ExecuteStep) -> None:
        """Run a compute set: devices receive, compute, and send home. The arrays are changed."""
        if step.families not in self.steps:
            self.steps[step.families] = plan_local_step(step, self.homes, self.devices.count)
        layers = self.steps[step.families].layers
        brought = [[self._brought(arrays, window) for window in (*layer.windows, *layer.sent)] for layer in layers]
        for layer, windows in zip(layers, brought, strict=True):
            before = [*(self.held(arrays, variable) for variable in layer.held), *windows]
            self._keep(arrays, layer, self._run(layer, before))

    def _keep(self, arrays: Arrays, layer: Layer, after: Sequence[Array]) -> None:
        """Write what some vertices have written. The arrays are changed."""
        made: Arrays = {}
        for number, value in zip(layer.written, after, strict=True):
            if number < len(layer.held):
                made[layer.held[number]] = value
                continue
            for own in layer.sendings[number - len(layer.held) - len(layer.windows)]:
                if isinstance(own, Placing):
                    made[own.variable] = self._placed(self.held(arrays, own.variable), own, value)
                else:
                    made[own.home.variable] = self._put(arrays, own, [value], [])
        arrays.update(made)

    def _placed(self, held: Array, own: Placing, value: Array) -> Array:
        """The stored form of a variable, with a box of it."""
        return lax.dynamic_update_slice(held, reshape(value, own.extents), self._own_starts(own.starts))

    def _own_starts(self, starts: Sequence[np.ndarray]) -> list[Array | np.int32]:
        """Where this device's box begins, of where each device's does."""
        return [np.int32(own[0]) if (own == own[0]).all() else self.devices.own(own) for own in starts]

    def _run(self, layer: Layer, before: Sequence[Array]) -> list[Array]:
        """What is written, by what stands before."""

        def run_branch(branch: Branch) -> Callable[..., list[Array]]:
            def run(*arrays: Array) -> list[Array]:
                if branch.running is None:
                    return [arrays[number] for number in layer.written]
                local = {own: _fitted(array, own.shape) for own, array in zip(branch.reads, arrays, strict=True)}
                branch.running.run(local)
                return [
                    _filled(local[own], arrays[number].shape)
                    for own, number in zip(branch.writes, layer.written, strict=True)
                ]

            return run

        runs = [run_branch(branch) for branch in layer.branches]
        if len(runs) == 1:
            return runs[0](*before)
        return list(lax.switch(self.devices.own(layer.branch_of), runs, *before))


def _fitted(array: Array, shape: tuple[int, ...]) -> Array:
    """What a device has of an array, of another shape: its first words, if they are fewer."""
    size = int(np.prod(shape))
    if size != array.size:
        array = slice_(array, (0,), (size,))
    return reshape(array, shape)


def _filled(array: Array, shape: tuple[int, ...]) -> Array:
    """The inverse: zeros behind what there is."""
    size = int(np.prod(shape))
    if size != array.size:
        array = lax.pad(reshape(array, (array.size,)), jnp.zeros((), array.dtype), [(0, size - array.size, 0)])
    return reshape(array, shape)
