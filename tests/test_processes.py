"""Several processes, of two devices each, run one graph together: what one device gives."""

import numpy as np
import pytest

import codelet as cl
from tests.meshes import mesh_of
from tests.process_jobs import scaling
from tests.processes import together


def test_two_processes_do_what_one_device_does(tmp_path):
    checkpoints, engine = cl.Checkpoints(tmp_path), scaling(None)
    engine.write({"x": np.arange(16.0)})
    checkpoints.save(engine, 1)
    together("little", tmp_path)
    for mesh in (None, mesh_of(3), mesh_of(8)):
        other = scaling(mesh)
        assert checkpoints.restore(other) == 2
        np.testing.assert_array_equal(other.read("x"), 2 * np.arange(16.0))


@pytest.mark.slow
def test_two_processes_do_what_one_device_does_very_often():
    together("much", 40, seconds=1500)
