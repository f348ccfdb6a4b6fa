"""Fed: values of input streams, which come to the devices of a mesh cut as the variables are that they go to.

Where all that a stream goes to is whole variables that are cut in blocks alike, a device is given its blocks of the
values, and a process reads no more of them than its devices hold. Of any other stream all devices have the values.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from codelet.errors import StreamError
from codelet.programs.copies import Stream
from lowering.arrays import Array
from lowering.mesh.homes import Home, Homes
from lowering.plan.plan import Plan
from lowering.plan.steps import StreamStep
from lowering.plan.walk import all_steps


def cut_streams(plan: Plan, homes: Homes) -> dict[Stream, Home]:
    """The input streams of a plan whose values come cut, and how: as a variable is that they go to."""
    found: dict[Stream, Home] = {}
    others: set[Stream] = set()
    for step in all_steps(plan.steps):
        if not isinstance(step, StreamStep) or not step.stream.is_input:
            continue
        home = homes[step.tensor.source] if step.tensor.is_whole_variable else None  # type: ignore[index]
        known = found.setdefault(step.stream, home) if home is not None else None
        if home is None or home.cut is None or known is None or not known.lives_as(home):
            others.add(step.stream)
    return {stream: home for stream, home in found.items() if stream not in others}


def fed_spec(home: Home, axes: tuple[str, ...]) -> PartitionSpec:
    """How values, stacked, are cut."""
    return PartitionSpec(None, *home.spec(axes))


def process_part(name: str, home: Home, mesh: Mesh) -> tuple[slice, ...]:
    """The part of a value that the devices of this process hold.

    Raises:
        StreamError: it is not in one piece, since other processes have devices between those of this one.
    """
    assert home.cut is not None
    own = [k for k, device in enumerate(mesh.devices.flat) if device.process_index == jax.process_index()]
    if own != list(range(own[0], own[-1] + 1)):
        raise StreamError(
            f"what this process holds of a value of stream {name!r} is not in one piece",
            given=f"places {own} of the mesh for the devices of process {jax.process_index()}",
            expected="devices of a process side by side in the mesh",
            fix='mesh=jax.make_mesh((jax.device_count(),), ("devices",)), or values that are whole',
        )
    n = home.variable.shape[home.cut]
    ends = (min(own[0] * home.block, n), min((own[-1] + 1) * home.block, n))
    return tuple(slice(*ends) if k == home.cut else slice(0, size) for k, size in enumerate(home.variable.shape))


def fed_array(home: Home, sharding: NamedSharding, values: np.ndarray, start: int) -> Array:
    """Values over a mesh, each device having its blocks of them, with zeros behind the last.

    Args:
        home: how they are cut.
        sharding: of the array that is made.
        values: stacked, of shape (count, *shape), where along the dimension that is cut it is what this process holds.
        start: where that begins.
    """
    assert home.cut is not None
    at = 1 + home.cut

    def block(index: Any) -> np.ndarray:
        first, last, _ = index[at].indices(home.global_shape[home.cut or 0])
        found = np.zeros((*values.shape[:at], last - first, *values.shape[at + 1 :]), values.dtype)
        own = values[(slice(None),) * at + (slice(first - start, max(last - start, 0)),)]
        found[(slice(None),) * at + (slice(0, own.shape[at]),)] = own
        return found

    return jax.make_array_from_callback((len(values), *home.global_shape), sharding, block)
