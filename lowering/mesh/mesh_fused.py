"""Mesh fused: fused execution over a mesh of devices.

In come a checked plan and a mesh, all of whose axes are taken together. Where variables live is chosen
(`choose_homes.py`); what a device holds of one is its part of one global array, sharded along the dimension that is
cut. A program runs in one `jax.shard_map` (`device_fused.py`), jitted; tables that differ by device are sharded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from codelet.views.sources import Variable
from lowering.arrays import Array, constant
from lowering.fast.execution import Execution
from lowering.fast.partial_sums import join_products
from lowering.fast.prune import prune
from lowering.fast.rotate import rotate
from lowering.fast.steps import emit
from lowering.jaxprs.simplify import trace_simplified
from lowering.mesh.choose_homes import choose_homes, rotate_alike
from lowering.mesh.device_fused import DeviceFused
from lowering.mesh.devices import Devices
from lowering.mesh.homes import Home, Homes
from lowering.plan.plan import Plan
from lowering.plan.streams import fed_types

EVERYWHERE = PartitionSpec()


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
        return array if array.shape == variable.shape else lax.slice(array, (0,) * array.ndim, variable.shape)
    return array[constant(home.addresses.at(np.arange(variable.size)).astype(np.int32))].reshape(variable.shape)


def _planned(plan: Plan, *, joins: bool) -> Plan:
    """What runs of a checked plan, with products put together of what vertices compute of them, or not."""
    pruned = prune(rotate(prune(plan)))
    return join_products(pruned) if joins else pruned


def _chosen(plan: Plan, count: int) -> tuple[Homes, bool]:
    """Where variables live, and whether products are put together first, as costs least."""
    found = []
    for joins in (True, False):
        homes, cost = choose_homes(_planned(plan, joins=joins), count)
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
        homes: where variables live; chosen when left off.
    """

    def __init__(self, plan: Plan, mesh: Mesh, homes: Homes | None = None):
        self.mesh = mesh = Mesh(mesh.devices, mesh.axis_names)  # of axes whose sharding JAX does not ask to be told
        self.axes = tuple(mesh.axis_names)
        self.homes, self.joins = _chosen(plan, mesh.size) if homes is None else (homes, False)
        self.inner = DeviceFused(self.homes, Devices(mesh.shape))
        self.key = "mesh", self.homes.digest(plan), mesh

    def _on_mesh(self, array: Any, spec: PartitionSpec) -> Array:
        return jax.device_put(array, NamedSharding(self.mesh, spec))

    def spec(self, variable: Variable) -> PartitionSpec:
        """How what is held of a variable is cut."""
        return self.homes[variable].spec(self.axes)

    def load(self, variable: Variable, array: Array) -> Array:
        """The array of a variable over the mesh, from its value."""
        return self._on_mesh(_cut(self.homes[variable], jnp.asarray(array)), self.spec(variable))

    def unload(self, variable: Variable, held: Array) -> Array:
        """The value of a variable, from its array over the mesh."""
        return _whole(self.homes[variable], held)

    def held_type(self, variable: Variable) -> jax.ShapeDtypeStruct:
        """The shape and dtype of what is held of a variable."""
        return jax.ShapeDtypeStruct(self.homes[variable].global_shape, variable.dtype)

    def blank(self, variable: Variable) -> Array:
        """What is held of a variable that has no value yet: zeros."""
        kind = self.held_type(variable)
        return self._on_mesh(np.zeros(kind.shape, kind.dtype), self.spec(variable))

    # --- compiling ------------------------------------------------------------------------------------------

    def _compile(
        self,
        function: Callable[..., list[Array]],
        structs: Sequence[jax.ShapeDtypeStruct],
        given: Sequence[PartitionSpec],
        made: Sequence[PartitionSpec],
    ) -> Callable[..., list[Array]]:
        """A function that every device runs, on global arrays.

        Args:
            function: from a device's parts of arrays to those of results.
            structs: the shapes and dtypes of the parts.
            given: how the arrays are cut.
            made: how the first results are; all devices have the rest.
        """
        devices, by_devices = self.inner.devices, PartitionSpec(self.axes)

        def with_rows(tables: Sequence[np.ndarray]) -> Callable[..., list[Array]]:
            def run(rows: Sequence[Array], *arrays: Array) -> list[Array]:
                with devices.bound(tables, rows):
                    return function(*arrays)

            return run

        with devices.telling() as wanted:
            devices.named(lambda: jax.eval_shape(function, *structs))
        tables = tuple(wanted.values())
        self.inner.crossed.clear()
        rows = [jax.ShapeDtypeStruct((1, *table.shape[1:]), table.dtype) for table in tables]
        body = devices.named(lambda: trace_simplified(with_rows(tables), rows, *structs))

        def run(consts: Sequence[Array], rows: Sequence[Array], *arrays: Array) -> Any:
            results = jax_core.jaxpr_as_fun(jax_core.ClosedJaxpr(body.jaxpr, list(consts)))(*rows, *arrays)
            return tuple(results[: len(made)]), tuple(results[len(made) :])

        cut = (EVERYWHERE, by_devices, *given)
        over_mesh = jax.shard_map(
            run, mesh=self.mesh, in_specs=cut, out_specs=(tuple(made), EVERYWHERE), check_vma=False
        )
        consts = [self._on_mesh(const, EVERYWHERE) for const in body.consts]
        held = [self._on_mesh(table, by_devices) for table in tables]
        jitted = jax.jit(lambda *given: jax.tree.leaves(over_mesh(*given)))
        return lambda *arrays: jitted(consts, held, *arrays)

    def _compiled(self, plan: Plan) -> Callable[..., list[Array]]:
        """A plan, from what is held of its inputs to what is held of its outputs."""
        fast = _planned(plan, joins=self.joins)
        if not rotate_alike(fast, self.homes):
            fast = prune(plan)
        types = [jax.ShapeDtypeStruct(self.homes[v].shape, v.dtype) for v in plan.inputs]
        structs = [*types, *fed_types(plan)]
        given = [*map(self.spec, plan.inputs), *(EVERYWHERE for _ in structs[len(types) :])]
        made = [
            self.spec(tensor.source) if tensor.is_whole_variable else EVERYWHERE  # type: ignore[arg-type]
            for tensor in plan.outputs
        ]
        return self._compile(emit(fast, self.inner), structs, given, made)

    def told(self, plan: Plan) -> MeshPlan:
        """A plan that was compiled, with where its variables live and what crosses before and behind its steps."""
        rows = [f"over {self.mesh.size} devices"]
        rows += [f"  {self.homes[variable]}" for variable in plan.variables if variable.value is None]
        for step in self.inner.steps.values():
            rows += [f"  {line}" for line in step.lines()]
        return MeshPlan(**{each.name: getattr(plan, each.name) for each in fields(plan)}, over=tuple(rows))

    def compile_held(self, plan: Plan) -> jax_core.ClosedJaxpr:
        """The jaxpr of a checked plan from what is held of its inputs to what is held of its outputs."""
        structs = [*map(self.held_type, plan.inputs), *fed_types(plan)]
        return jax.make_jaxpr(self._compiled(plan))(*structs)

    def compile_logical(self, plan: Plan) -> jax_core.ClosedJaxpr:
        """The jaxpr of a checked plan from the values of its inputs to those of its outputs.

        Values of variables that are cut evenly are what is held of them.
        """
        run = self._compiled(plan)

        def function(*arrays: Array) -> list[Array]:
            held = [_cut(self.homes[v], array) for v, array in zip(plan.inputs, arrays, strict=False)]
            results = list(run(*held, *arrays[len(held) :]))
            for k, tensor in enumerate(plan.outputs):
                if tensor.is_whole_variable:
                    results[k] = _whole(self.homes[tensor.source], results[k])  # type: ignore[index]
            return results

        structs = [*(jax.ShapeDtypeStruct(v.shape, v.dtype) for v in plan.inputs), *fed_types(plan)]
        return jax.make_jaxpr(function)(*structs)
