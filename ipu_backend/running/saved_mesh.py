"""The mesh of an engine as it is pickled."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from codelet.errors import SavingError


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
                fix="make an engine over another mesh, and give it the other's engine.state by engine.load_state",
            )
        return Mesh(np.vectorize(here.get, otypes=[object])(self.numbers), self.axes)


def saved_mesh(mesh: Mesh | None) -> SavedMesh | None:
    """The mesh of an engine as it is pickled."""
    if mesh is None:
        return None
    numbers = np.vectorize(lambda device: device.id, otypes=[int])(mesh.devices)
    return SavedMesh(mesh.devices.flat[0].platform, numbers, tuple(mesh.axis_names))
