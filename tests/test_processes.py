"""Several processes, of two devices each, run one graph together: what one device gives."""

import os
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

import codelet as cl
from tests.meshes import mesh_of
from tests.process_jobs import scaling
from tests.processes import HEARTBEAT, ROOT, Ended, as_slurm_starts, ended, start, together


@pytest.mark.slow
def test_two_processes_do_what_one_device_does(tmp_path):
    checkpoints, engine = cl.Checkpoints(tmp_path), scaling(None)
    engine.write({"x": np.arange(16.0)})
    checkpoints.save(engine, 1)
    said = together("little", tmp_path)
    assert [own.count("numbers: [3 3]") for own in said] == [2, 0]  # what is printed is printed once for each run
    for mesh in (None, mesh_of(3), mesh_of(8)):
        other = scaling(mesh)
        assert checkpoints.restore(other, step=2) == 2
        np.testing.assert_array_equal(other.read("x"), 2 * np.arange(16.0))


@pytest.mark.slow
def test_two_processes_do_what_one_device_does_very_often():
    together("much", 40, seconds=1500)


@pytest.mark.slow
def test_the_script_of_the_page_on_machines_goes_on_from_its_checkpoint(tmp_path):
    """As SLURM starts it: twice, the second time with the last checkpoint gone."""
    page = (ROOT / "docs" / "distributed.md").read_text(encoding="utf-8")
    [script] = [part for part in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "distributed" in part]
    (tmp_path / "add_up.py").write_text(script)
    for first in (0, 5):
        found = ended(as_slurm_starts([sys.executable, "add_up.py"], tmp_path), 300)
        assert [own.code for own in found] == [0, 0], found
        assert [own.said.count(f"from step {first}, rows 0 to 32: 55") for own in found] == [1, 0], found
        assert cl.Checkpoints(tmp_path / "checkpoints").steps == [5, 10]
        shutil.rmtree(tmp_path / "checkpoints" / "10")


# --- faults -----------------------------------------------------------------------------------------------------

BOUND = 3 * HEARTBEAT + 30
"""Seconds within which processes stop of which one is gone, with the seconds that they take to start."""


def check_stopped(own: Ended) -> None:
    """A process ended by itself, with an error, and soon."""
    assert own.code not in (0, -signal.SIGKILL), own.said
    assert "Terminating process because" in own.said or "Error" in own.said, own.said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("who", "call", "when"),
    [(0, 0, "behind"), (0, 1, "behind"), (0, 2, "before"), (0, 2, "behind"), (1, 1, "before"), (1, 1, "behind")],
)
def test_a_process_that_is_killed_in_a_save_loses_no_checkpoint(tmp_path, who, call, when):
    """The first is the coordinator too."""
    found = ended(start("killed_in_a_save", tmp_path, who, call, when), BOUND)
    assert found[who].code == -signal.SIGKILL
    assert "saving" in found[who].said
    check_stopped(found[1 - who])
    checkpoints, engine = cl.Checkpoints(tmp_path), scaling(None)
    assert checkpoints.steps in ([1], [1, 2])
    for step in checkpoints.steps:
        checkpoints.restore(engine, step=step)
        np.testing.assert_array_equal(engine.read("x"), step * np.arange(16.0))
    checkpoints.save(engine, 3)
    assert not list(tmp_path.glob("*.*"))


@pytest.mark.slow
@pytest.mark.parametrize("who", [0, 1])
def test_a_process_that_is_killed_in_a_run_stops_the_other(who):
    found = ended(start("killed_in_a_run", who), BOUND)
    assert found[who].code == -signal.SIGKILL
    check_stopped(found[1 - who])


@pytest.mark.slow
@pytest.mark.parametrize("who", [0, 1])
def test_a_process_that_raises_stops_the_other(who):
    found = ended(start("raising_in_one", who), BOUND)
    assert "ValueError: this process has had enough" in found[who].said
    check_stopped(found[1 - who])


@pytest.mark.slow
def test_a_disk_that_is_full(tmp_path):
    size = 1 << 20
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(tmp_path)]
    if os.geteuid() or subprocess.run(mount, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        graph = cl.Graph()
        graph.add_variable("x", (3 * size // 16,))
        engine, checkpoints = cl.Engine(graph, mesh=mesh_of(4)), cl.Checkpoints(tmp_path)
        values = np.random.default_rng(0).normal(size=3 * size // 16).astype("f")
        engine.write({"x": values})
        checkpoints.save(engine, 1)
        engine.write({"x": -values})
        for _ in range(2):
            with pytest.raises(cl.CheckpointError, match=r"cannot be written\n  given: .*No space left on device"):
                checkpoints.save(engine, 2)
            assert checkpoints.steps == [1]
        checkpoints.restore(engine)
        np.testing.assert_array_equal(engine.read("x"), values)
    finally:
        subprocess.run(["umount", tmp_path], check=True)
