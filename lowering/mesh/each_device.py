"""Each device: one function that every device of a mesh runs on its parts of arrays, as a function of global arrays.

The function is traced twice: first for the tables of which each device takes its row, then with these rows as
arguments, which are sharded, so that no device holds another's. What comes out runs it in one `jax.shard_map`, jitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import numpy as np
from jax.extend import core as jax_core
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from lowering.aborting import raising_on_device
from lowering.arrays import Array
from lowering.jaxprs.simplify import trace_simplified
from lowering.mesh.devices import Devices
from lowering.mesh.processes import put
from lowering.mesh.replicas import Replicas

EVERYWHERE = PartitionSpec()


class OnDevice(Protocol):
    """What a device does, as it is traced.

    Attributes:
        devices: those over which arrays are cut.
        crossed: the crossings that were traced, in order.
    """

    devices: Devices
    crossed: list[Any]


def over_mesh(
    function: Callable[..., list[Array]],
    inner: OnDevice,
    mesh: Mesh,
    parts: Sequence[jax.ShapeDtypeStruct],
    given: Sequence[PartitionSpec],
    made: Sequence[PartitionSpec],
    *,
    messages: Sequence[str] | None = None,
    holds: bool = True,
    replicas: Replicas | None = None,
    names: Sequence[str] = (),
) -> Callable[..., list[Array]]:
    """A function that every device runs, on global arrays.

    Args:
        function: from a device's parts of arrays to those of results.
        inner: what it traces.
        mesh: of devices.
        parts: the shapes and dtypes of a device's parts of arrays.
        given: how the arrays are cut.
        made: how the first results are; all devices have the rest.
        messages: of aborts; where they are given it raises itself, and the last result of the function says so.
        holds: whether it holds tables on the devices; otherwise they are constants of it.
        replicas: along an axis of the mesh, if there are any.
        names: of the inputs that the arrays are, where there are replicas.
    """
    devices, by_devices = inner.devices, PartitionSpec(inner.devices.axes)

    def with_rows(tables: Sequence[np.ndarray]) -> Callable[..., list[Array]]:
        def run(rows: Sequence[Array], *arrays: Array) -> list[Array]:
            with devices.bound(tables, rows):
                return function(*arrays)

        return run

    with devices.telling() as wanted:
        devices.named(lambda: jax.eval_shape(function, *parts))
    tables = tuple(wanted.values())
    inner.crossed.clear()
    kinds = [jax.dtypes.canonicalize_dtype(table.dtype) for table in tables]
    rows = [jax.ShapeDtypeStruct((1, *table.shape[1:]), kind) for table, kind in zip(tables, kinds, strict=True)]
    body = devices.named(lambda: trace_simplified(with_rows(tables), rows, *parts, inputs="apart"))
    checked = None
    if messages is not None:
        checked = raising_on_device(body.out_avals, messages, None if replicas is None else replicas.axis)

    def run(consts: Sequence[Array], rows: Sequence[Array], *arrays: Array) -> Any:
        closed = jax_core.ClosedJaxpr(body.jaxpr, list(consts))

        def own(*arrays: Array) -> list[Array]:
            results = jax_core.jaxpr_as_fun(closed)(*rows, *arrays)
            return results if checked is None else checked(*results)

        results = own(*arrays) if replicas is None else replicas.each(own, names)(*arrays)
        return tuple(results[: len(made)]), tuple(results[len(made) :])

    rest = EVERYWHERE
    if replicas is not None:
        given = [replicas.spec(name, spec) for name, spec in zip(names, given, strict=True)]
        made, rest = [replicas.rows(spec) for spec in made], replicas.rows(rest)
    cut = (EVERYWHERE, by_devices, *given)
    sharded = jax.shard_map(run, mesh=mesh, in_specs=cut, out_specs=(tuple(made), rest), check_vma=False)
    consts, held = list(body.consts), list(tables)
    if holds:
        with jax.ensure_compile_time_eval():  # whoever lowers it may be traced
            consts = [put(const, NamedSharding(mesh, EVERYWHERE)) for const in consts]
            held = [put(table, NamedSharding(mesh, by_devices)) for table in tables]
    jitted = jax.jit(lambda *given: jax.tree.leaves(sharded(*given)))
    return lambda *arrays: jitted(consts, held, *arrays)
