"""The mesh of an engine: checked, and as it is pickled."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import AbstractMesh, Mesh

from codelet.errors import ProgramError, SavingError


class SavedMesh(NamedTuple):
    """A mesh as it is pickled: the devices of its axes by number, since JAX pickles none."""

    platform: str
    numbers: np.ndarray
    axes: tuple[str, ...]

    def restored(self) -> Mesh:
        """The mesh of these devices here.

        Raises:
            SavingError: there are fewer.
        """
        here = {device.id: device for device in jax.devices(self.platform)}
        missing = [number for number in self.numbers.reshape(-1).tolist() if number not in here]
        if missing:
            raise SavingError(
                "an engine was saved over devices that there are not here",
                given=f"{self.platform} devices {missing}",
                expected=f"those from 0 to {max(here)}",
                fix="make an engine over another mesh, and give it the other's engine.state() by engine.load_state",
            )
        return Mesh(np.vectorize(here.get, otypes=[object])(self.numbers), self.axes)


def saved_mesh(mesh: Mesh | None) -> SavedMesh | None:
    """The mesh of an engine as it is pickled."""
    if mesh is None:
        return None
    numbers = np.vectorize(lambda device: device.id, otypes=[int])(mesh.devices)
    return SavedMesh(mesh.devices.flat[0].platform, numbers, tuple(mesh.axis_names))


def checked_mesh(mesh: object, execution: str) -> Mesh | None:
    """The mesh of an engine, which may be one as it is pickled; None for one device.

    Raises:
        SavingError: one of devices that are not here.
        ProgramError: something that is no mesh of this process's devices, or an execution that runs on one device.
    """
    if mesh is None:
        return None
    if isinstance(mesh, SavedMesh):
        return mesh.restored()
    if not isinstance(mesh, Mesh):
        abstract = isinstance(mesh, AbstractMesh)
        raise ProgramError(
            "a mesh has no devices" if abstract else "an engine's mesh is none",
            given=f"{type(mesh).__name__}: {mesh!r:.80}",
            expected="a jax.sharding.Mesh of devices",
            fix='mesh=jax.make_mesh((jax.device_count(),), ("devices",))',
        )
    if execution != "tiles":
        raise ProgramError(
            f"execution={execution!r} runs on one device",
            given=f"{mesh=!r:.120}",
            expected="an execution that takes a mesh: 'tiles'",
            fix='cl.Engine(graph, execution="tiles", mesh=mesh)',
        )
    others = sorted({device.process_index for device in mesh.devices.flat} - {jax.process_index()})
    if others:
        raise ProgramError(
            "an engine's mesh has devices of other processes",
            given=f"devices of processes {others}, in process {jax.process_index()}",
            expected="devices of this process alone",
            fix='mesh=jax.make_mesh((jax.local_device_count(),), ("devices",), devices=jax.local_devices())',
        )
    return mesh
