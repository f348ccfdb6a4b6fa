"""Processes: what is done otherwise where the devices of a mesh are of several processes (`jax.distributed`).

Every process runs the same script. An array over such a mesh has parts that a process does not see: it is made from the
host by each process for its devices, and read by bringing it to all devices, which all processes do together. What they
run has to be the same, or they would wait for one another for ever: so it is compared before.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from codelet.errors import ProcessesError
from codelet.tracing.statics import trace_settings
from lowering.arrays import Array
from lowering.plan.fingerprint import fingerprint
from lowering.plan.plan import Plan
from lowering.plan.structure import structure

MOST = 400
"""Bytes of what a process tells the others, a multiple of four."""


def processes_of(mesh: Mesh) -> list[int]:
    """The processes that have devices in a mesh, rising."""
    return sorted({device.process_index for device in mesh.devices.flat})


def put(array: Any, sharding: NamedSharding) -> Array:
    """An array over the devices of a mesh. In several processes all have to have the same."""
    if sharding.is_fully_addressable or (isinstance(array, jax.Array) and not array.is_fully_addressable):
        return jax.device_put(array, sharding)
    host = np.asarray(array)
    host = host.astype(jax.dtypes.canonicalize_dtype(host.dtype), copy=False)
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])


def _same(array: Array) -> Array:
    return array


def fetched(array: Any) -> np.ndarray:
    """The value of an array on the host, of every process that has a part of it; all of them ask for it together."""
    if isinstance(array, jax.Array) and not (array.is_fully_addressable or array.is_fully_replicated):
        assert isinstance(array.sharding, NamedSharding)
        everywhere = NamedSharding(array.sharding.mesh, PartitionSpec())
        array = jax.jit(_same, out_shardings=everywhere)(array)
    return np.asarray(array)


def spread(function: Callable[[Array], Array], shape: tuple[int, ...], mesh: Mesh, held: Array) -> Array:
    """What a function gives of an array over a mesh, cut along the first dimension that its devices divide, if any."""
    cut = next((k for k, n in enumerate(shape) if n and n % mesh.size == 0), None)
    spec = PartitionSpec() if cut is None else PartitionSpec(*[None] * cut, tuple(mesh.axis_names))
    return jax.jit(function, out_shardings=NamedSharding(mesh, spec))(held)


def rows_of_all(mesh: Mesh, row: np.ndarray) -> dict[int, np.ndarray]:
    """What each process of a mesh gives, by process; all of them call this together.

    Args:
        mesh: whose processes.
        row: words of 32 bits, as many in each process.
    """
    # Over the devices in the order of their numbers, so that processes of other meshes of the same devices meet.
    devices = sorted(mesh.devices.flat, key=lambda device: device.id)
    by_device = NamedSharding(Mesh(np.array(devices), ("devices",)), PartitionSpec("devices"))
    shape = (len(devices), *row.shape)
    found = fetched(jax.make_array_from_callback(shape, by_device, lambda _: row[None]))
    return {device.process_index: own for device, own in zip(devices, found, strict=True)}


def said_by_all(mesh: Mesh, text: str) -> dict[int, str]:
    """What each process of a mesh says, by process; all of them call this together.

    Of more than `MOST` bytes the middle is left out.
    """
    if len(processes_of(mesh)) == 1:
        return {jax.process_index(): text}
    said = text.encode()
    if len(said) > MOST:
        said = said[: MOST // 3] + b" ... " + said[5 + MOST // 3 - MOST :]
    row = np.frombuffer(said.ljust(MOST, b"\0"), np.uint32)
    rows = rows_of_all(mesh, row)
    return {process: own.tobytes().rstrip(b"\0").decode(errors="ignore") for process, own in rows.items()}


def _parts(mesh: Mesh, plans: Mapping[str, Plan], where: Hashable, options: Hashable) -> dict[str, Hashable]:
    """What has to be alike, by what it is called in an error."""
    keys = {name: structure(plan) for name, plan in plans.items()}
    variables = tuple(key[:1] for key in keys.values())  # type: ignore[index]
    return {
        "mesh": (tuple(device.id for device in mesh.devices.flat), mesh.devices.shape, mesh.axis_names),
        "graph, by its variables": variables,
        "program": tuple((name, key[1:]) for name, key in keys.items()),  # type: ignore[index]
        "choice of where variables live": where,
        "options": (trace_settings(), options),
    }


def check_alike(mesh: Mesh, plans: Mapping[str, Plan], where: Hashable, options: Hashable = ()) -> None:
    """See that all processes of a mesh are about to run the same. All of them call this together.

    Args:
        mesh: whose processes.
        plans: what is to run, by name.
        where: tells apart what differs in where variables live.
        options: whatever else decides what runs.

    Raises:
        ProcessesError: some are about to run something else; every process raises it.
    """
    processes = processes_of(mesh)
    if len(processes) == 1:
        return
    told = _parts(mesh, plans, where, options)
    own = np.frombuffer(b"".join(map(fingerprint, told.values())), np.uint32)
    by_process = {process: row.reshape(len(told), -1) for process, row in rows_of_all(mesh, own).items()}
    first = by_process[processes[0]]
    others = [
        f"process {process} has another {name} than process {processes[0]}"
        for process in processes
        for k, name in enumerate(told)
        if (by_process[process][k] != first[k]).any()
    ]
    if others:
        raise ProcessesError(
            "the processes of a mesh do not run the same",
            given="\n".join(others),
            expected=f"the same script with the same settings in processes {processes}, each of which makes the same "
            "engines and functions in the same order",
            fix="build graphs of what all processes know alike: no clock, no numbers drawn anew, no files that differ",
        )
