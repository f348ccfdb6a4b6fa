"""Mesh fused: fused execution over a mesh of devices.

In come a checked plan and a mesh, all of whose axes are taken together. Where variables live is chosen
(`choose_homes.py`); what a device holds of one is its part of one global array, sharded along the dimension that is
cut. A program is what each device does (`device_fused.py`), over the mesh (`each_device.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from codelet.programs.copies import Stream
from codelet.views.sources import Variable
from lowering.aborting import messages_of
from lowering.arrays import Array, constant
from lowering.fast.execution import Execution
from lowering.fast.prune import prune
from lowering.fast.rotate import rotate
from lowering.fast.steps import emit
from lowering.join.join import join
from lowering.mesh.by_element import by_element
from lowering.mesh.choose_homes import choose_homes, rotate_alike
from lowering.mesh.device_fused import DeviceFused
from lowering.mesh.devices import Devices
from lowering.mesh.each_device import EVERYWHERE, over_mesh
from lowering.mesh.epilogue import finished, part
from lowering.mesh.fed import cut_streams, fed_array, fed_spec, process_part
from lowering.mesh.homes import Home, Homes
from lowering.mesh.processes import fetched, processes_of, put, spread
from lowering.mesh.replicas import Replicas, without_axis
from lowering.mesh.split_sums import split_sums
from lowering.plan.arguments import arguments
from lowering.plan.plan import Plan
from lowering.plan.streams import count_values


def _cut(home: Home, array: Array) -> Array:
    """The arrays of all devices as one, of the value of a variable."""
    if home.is_everywhere:
        return array
    if home.cut is not None:
        widths = [(0, more - n, 0) for n, more in zip(array.shape, home.global_shape, strict=True)]
        return lax.pad(array, jnp.zeros((), array.dtype), widths) if any(map(any, widths)) else array
    elements = np.zeros(home.global_shape, np.int32)
    for k, own in enumerate(home.parts):
        elements[k * home.size : k * home.size + own.count] = own.sets[0]
    return array.reshape(-1)[constant(elements)]


def _whole(home: Home, array: Array) -> Array:
    """The inverse of `_cut`."""
    variable = home.variable
    if home.is_everywhere:
        return array
    if home.cut is not None:
        return array if array.shape == variable.shape else array[tuple(map(slice, variable.shape))]
    return array[constant(home.addresses.at(np.arange(variable.size)).astype(np.int32))].reshape(variable.shape)


def _as_it_is(array: Array) -> Array:
    return array


def _planned(plan: Plan, *, joins: bool) -> Plan:
    """What runs of a checked plan, with products put together of what vertices compute of them, or not."""
    pruned = prune(rotate(prune(plan)))
    return by_element(join(pruned) if joins else pruned)


def _chosen(plan: Plan, count: int) -> tuple[Homes, bool]:
    """Where variables live, and whether products are put together first, as costs least."""
    found = []
    for joins in (True, False):
        like = found[0][1] if found else None
        homes, cost = choose_homes(_planned(plan, joins=joins), count, like)
        found.append((cost, homes, joins))
    _, homes, joins = min(found, key=lambda own: own[0])
    return homes, joins


@dataclass(frozen=True, eq=False)
class MeshPlan(Plan):
    """A plan over a mesh, which prints where variables live and what crosses as well.

    Attributes:
        over: that, a line each.
    """

    over: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join((super().__str__(), *self.over))


class MeshFused(Execution):
    """Variables as arrays that are cut over a mesh; see the module's docstring.

    What it holds are global arrays, outside of the program. What the program does with them, inside, is
    `DeviceFused`'s.

    Args:
        plan: of which all that will be run is a part.
        mesh: of devices.
        homes: where variables live; default: chosen.
        replicas: along an axis of the mesh, each over the devices of the others; default: one.
    """

    def __init__(self, plan: Plan, mesh: Mesh, homes: Homes | None = None, replicas: Replicas | None = None):
        self.mesh = mesh = Mesh(mesh.devices, mesh.axis_names)  # of axes whose sharding JAX does not ask to be told
        self.replicas = replicas
        devices = Devices(without_axis(mesh, replicas))
        self.axes = devices.axes
        self.homes, self.joins = _chosen(plan, devices.count) if homes is None else (homes, False)
        self.fed = cut_streams(plan, self.homes)
        self.inner = DeviceFused(self.homes, devices, self.fed)
        self.where = self.homes.digest(plan)
        self.key = "mesh", self.where, mesh, replicas

    def _on_mesh(self, array: Any, spec: PartitionSpec) -> Array:
        return put(array, NamedSharding(self.mesh, spec))

    def spec(self, variable: Variable) -> PartitionSpec:
        """How the stored form of a variable is sharded."""
        return self.homes[variable].spec(self.axes)

    def load(self, variable: Variable, array: Array) -> Array:
        """The array of a variable over the mesh, from its value."""
        return self._on_mesh(_cut(self.homes[variable], jnp.asarray(array)), self.spec(variable))

    def unload(self, variable: Variable, held: Array) -> Array:
        """The value of a variable, on the host, from its array over the mesh."""
        return _whole(self.homes[variable], fetched(held))  # type: ignore[arg-type]

    def held_type(self, variable: Variable) -> jax.ShapeDtypeStruct:
        """The shape and dtype of the stored form of a variable."""
        return jax.ShapeDtypeStruct(self.homes[variable].global_shape, variable.dtype)

    def blank(self, variable: Variable) -> Array:
        """The stored form of a variable that has no value yet: zeros."""
        kind = self.held_type(variable)
        return self._on_mesh(np.zeros(kind.shape, kind.dtype), self.spec(variable))

    def saved(self, variable: Variable, held: Array) -> Array:
        """The value of a variable for a checkpoint, over the mesh, with room behind its ends."""
        home = self.homes[variable]
        return held if home.devices is None else spread(lambda own: _whole(home, own), variable.shape, self.mesh, held)

    def restoring(self, variable: Variable) -> jax.ShapeDtypeStruct | None:
        """The stored form of a variable, if that is its value, with its sharding."""
        if self.homes[variable].devices is not None:
            return None
        kind, sharding = self.held_type(variable), NamedSharding(self.mesh, self.spec(variable))
        return jax.ShapeDtypeStruct(kind.shape, kind.dtype, sharding=sharding)

    # --- streams --------------------------------------------------------------------------------------------

    def _feeds(self, plan: Plan) -> list[tuple[Stream, int]]:
        """The input streams of a plan, in order, and how many values of each it takes."""
        counts = count_values(plan.steps)
        return [(stream, counts[stream]) for stream in plan.streams if stream.is_input]

    def fed_spec(self, stream: Stream) -> PartitionSpec:
        """How the values of an input stream, stacked, are cut."""
        return fed_spec(self.fed[stream], self.axes) if stream in self.fed else EVERYWHERE

    def part(self, stream: Stream) -> tuple[slice, ...]:
        """The part of each value of an input stream that the devices of this process hold."""
        home = self.fed.get(stream)
        return super().part(stream) if home is None else process_part(stream.name, home, self.mesh)

    def feed(self, stream: Stream, values: np.ndarray) -> Any:
        """The values of an input stream, stacked, over the mesh, from all of each or from what `part` says."""
        home = self.fed.get(stream)
        if home is None:
            return values
        assert home.cut is not None
        start = 0 if values.shape[1:] == stream.shape else self.part(stream)[home.cut].start
        return fed_array(home, NamedSharding(self.mesh, self.fed_spec(stream)), values, start)

    # --- compiling ------------------------------------------------------------------------------------------

    def _compiled(
        self, plan: Plan, messages: Sequence[str] | None = None, *, holds: bool = True
    ) -> Callable[..., list[Array]]:
        """A plan, from the stored form of its inputs to that of its outputs."""
        fast = _planned(plan, joins=self.joins)
        if not rotate_alike(fast, self.homes):
            fast = prune(plan)
        fast = split_sums(fast, self.homes)
        parted = None if self.replicas is not None else part(fast, self.homes)
        first = fast if parted is None else parted.first
        structs = [jax.ShapeDtypeStruct(self.homes[v].shape, v.dtype) for v in plan.inputs]
        given = list(map(self.spec, plan.inputs))
        for stream, count in self._feeds(plan):
            shape = self.fed[stream].shape if stream in self.fed else stream.shape
            structs.append(jax.ShapeDtypeStruct((count, *shape), stream.dtype))
            given.append(self.fed_spec(stream))
        made = [
            self.spec(tensor.source) if tensor.is_whole_variable else EVERYWHERE  # type: ignore[arg-type]
            for tensor in first.outputs
        ]
        names = [own.name for own in arguments(plan)]
        how: dict[str, Any] = {"messages": messages, "holds": holds, "replicas": self.replicas, "names": names}
        run = over_mesh(emit(first, self.inner), self.inner, self.mesh, structs, given, made, **how)
        return run if parted is None else finished(run, parted, self.inner, self.mesh)

    def told(self, plan: Plan) -> MeshPlan:
        """A plan that was compiled, with where its variables live and what crosses before and behind its steps."""
        rows = [f"over {self.mesh.size} devices"]
        rows += [f"  {self.homes[variable]}" for variable in plan.variables if variable.value is None]
        for step in self.inner.steps.values():
            rows += [f"  {line}" for line in step.lines()]
        rows += [f"  {variable.name}: {own!r}" for variable, own in self.inner.sums.items()]
        return MeshPlan(**{each.name: getattr(plan, each.name) for each in fields(plan)}, over=tuple(rows))

    def compile_held(self, plan: Plan) -> jax_core.ClosedJaxpr:
        """The jaxpr of a checked plan from the stored form of its inputs to that of its outputs."""
        structs = list(map(self.held_type, plan.inputs))
        for stream, count in self._feeds(plan):
            shape = self.fed[stream].global_shape if stream in self.fed else stream.shape
            structs.append(jax.ShapeDtypeStruct((count, *shape), stream.dtype))
        return jax.make_jaxpr(self._compiled(plan))(*structs)

    def compile_logical(self, plan: Plan) -> jax_core.ClosedJaxpr:
        """The jaxpr of a checked plan from the values of its inputs to those of its outputs.

        Values of variables that are cut evenly are their stored forms. It raises itself where the program aborts. In
        several processes tables are constants of it: under `jax.jit` what a function closes over is of its process.
        """
        replicas, holds = self.replicas, len(processes_of(self.mesh)) == 1
        run = self._compiled(plan, messages_of(plan), holds=holds)

        def cut(name: str, own: Callable[[Array], Array], array: Array) -> Array:
            return own(array) if replicas is None else replicas.mapped(name, own)(array)

        def whole(variable: Variable, held: Array) -> Array:
            own = functools.partial(_whole, self.homes[variable])
            return own(held) if replicas is None else jax.vmap(own)(held)

        def function(*arrays: Array) -> list[Array]:
            values = iter(arrays)
            held = [cut(v.name, functools.partial(_cut, self.homes[v]), next(values)) for v in plan.inputs]
            for stream, _ in self._feeds(plan):
                own = jax.vmap(functools.partial(_cut, self.fed[stream])) if stream in self.fed else _as_it_is
                held.append(cut(stream.name, own, next(values)))
            results = list(run(*held))
            for k, tensor in enumerate(plan.outputs):
                if tensor.is_whole_variable:
                    results[k] = whole(tensor.source, results[k])  # type: ignore[arg-type]
            return results

        places = arguments(plan) if replicas is None else replicas.places(arguments(plan))
        return jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(own.shape, own.dtype) for own in places))
