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
        ProgramError: something that is no mesh of this process's devices.
    """
    if mesh is None:
        return None
    if not isinstance(mesh, Mesh):
        abstract = isinstance(mesh, AbstractMesh)
        raise ProgramError(
            "a mesh has no devices" if abstract else f"{whose} mesh is none",
            given=f"{type(mesh).__name__}: {mesh!r:.80}",
            expected="a jax.sharding.Mesh of devices",
            fix='mesh=jax.make_mesh((jax.device_count(),), ("devices",))',
        )
    others = sorted({device.process_index for device in mesh.devices.flat} - {jax.process_index()})
    if others:
        raise ProgramError(
            f"{whose} mesh has devices of other processes",
            given=f"devices of processes {others}, in process {jax.process_index()}",
            expected="devices of this process alone",
            fix='mesh=jax.make_mesh((jax.local_device_count(),), ("devices",), devices=jax.local_devices())',
        )
    return mesh
