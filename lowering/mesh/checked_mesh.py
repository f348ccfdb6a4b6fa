"""Checked meshes: what a user gives as a mesh of devices."""

from __future__ import annotations

import jax
from jax.sharding import AbstractMesh, Mesh

from codelet.errors import ProgramError


def checked_mesh(mesh: object, whose: str = "a") -> Mesh | None:
    """A mesh; None where none is given.

    Args:
        mesh: what was given.
        whose: whose it is, in the error.

    Raises:
        ProgramError: something that is no mesh, or one without devices of this process.
    """
    if mesh is None:
        return None
    if not isinstance(mesh, Mesh):
        abstract = isinstance(mesh, AbstractMesh)
        raise ProgramError(
            "a mesh has no devices" if abstract else f"{whose} mesh is not a mesh",
            given=f"{type(mesh).__name__}: {mesh!r:.80}",
            expected="a jax.sharding.Mesh of devices",
            fix='mesh=jax.make_mesh((jax.device_count(),), ("devices",))',
        )
    processes = sorted({device.process_index for device in mesh.devices.flat})
    if jax.process_index() not in processes:
        raise ProgramError(
            f"{whose} mesh has no devices of this process",
            given=f"devices of processes {processes}, in process {jax.process_index()}",
            expected="a mesh of which every process that makes something over it has devices",
            fix='mesh=jax.make_mesh((jax.device_count(),), ("devices",)), or of jax.local_devices() alone',
        )
    return mesh
