"""Meshes of host devices, of which `conftest.py` makes eight."""

import jax
import numpy as np
from hypothesis import strategies as st
from jax.sharding import Mesh

COUNTS = (1, 2, 3, 4, 8)


def mesh_of(*extents: int) -> Mesh:
    """The first devices as a mesh, its axes named a, b, ..."""
    devices = np.array(jax.devices()[: np.prod(extents)]).reshape(extents)
    return Mesh(devices, tuple("abcdefgh"[: len(extents)]))


MESHES = st.builds(mesh_of, st.sampled_from(COUNTS))
