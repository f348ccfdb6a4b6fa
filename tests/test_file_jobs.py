"""Files on the command line, and functions of files that are run by JAX alone."""

import json
import re
import subprocess
import sys
import zipfile

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from ipu_backend.cli import main
from tests.test_files import PARAMETERS, network

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    traced = cl.trace(network, PARAMETERS, X, target=cl.IPU(num_tiles=4))
    cl.save("model.codelet", traced, exported=True, platforms=("cpu",), batched=("x",))
    for name, array in {**PARAMETERS, "x": X}.items():
        np.save(f"{name}.npy", array)
    return traced


def test_a_file_is_run_and_reported(folder, tmp_path, capsys):
    given = ["--input", "x=x.npy", "--input", "b.npy", "--input", "w.npy"]
    main(["run", "model.codelet", *given, "-o", "results.npz", "--json"])
    told = json.loads(capsys.readouterr().out)
    expected = jax.jit(folder)(PARAMETERS, X)
    with np.load("results.npz") as results:
        np.testing.assert_array_equal(results["y"], expected["y"])
        np.testing.assert_array_equal(results["sums.1"], expected["sums"][1])
    assert told["results"].keys() == {"y", "sums/0", "sums/1"}
    main(["report", "model.codelet"])
    assert (tmp_path / "model.html").stat().st_size > 1000


def test_mistakes_of_inputs_are_told(folder):
    for given, says in {
        ("x=x.npy",): "given too few inputs(.|\n)*parameters/b",
        ("z=x.npy",): "nothing that an input is for",
        ("x=none.npy",): "an input is no array",
        ("x=model.codelet",): "an input is no array",
        ("x=w.npy", "b.npy", "w.npy"): "wrong shape",
    }.items():
        with pytest.raises(SystemExit) as caught:
            main(["run", "model.codelet", *(part for own in given for part in ("--input", own))])
        assert re.search(says, str(caught.value.code))


ALONE = """
import sys, zipfile, numpy as np, jax.export
with zipfile.ZipFile("model.codelet") as file:
    exported = jax.export.deserialize(bytearray(file.read("exported/function")))
values = {"parameters/w": np.load("w.npy"), "parameters/b": np.load("b.npy"), "x": np.load("x.npy")[None]}
assert "codelet" not in sys.modules
np.save("alone.npy", exported.call(values)["y"][0])
"""


def test_an_exported_function_runs_where_jax_alone_is(folder):
    found = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True)
    assert not found.returncode, found.stderr
    np.testing.assert_array_equal(np.load("alone.npy"), jax.jit(folder)(PARAMETERS, X)["y"])
    with zipfile.ZipFile("model.codelet") as file:
        exported = jax.export.deserialize(bytearray(file.read("exported/function")))
    values = {"parameters/w": PARAMETERS["w"], "parameters/b": PARAMETERS["b"], "x": jnp.ones((7, 2, 3))}
    assert exported.call(values)["y"].shape == (7, 2, 4)


def test_what_cannot_be_exported_is_told(tmp_path):
    with pytest.raises(cl.SavingError, match="what is exported is no function"):
        cl.save(tmp_path / "x", cl.Graph(), exported=True)
    run = cl.lower(cl.trace(jnp.sin, jnp.ones(3), target=cl.IPU(num_tiles=2)))
    with pytest.raises(cl.SavingError, match="none of the function's"):
        cl.save(tmp_path / "x", run, exported=True, batched=("y",))
    with pytest.raises(cl.SavingError, match="cannot be exported"):
        cl.save(tmp_path / "x", run, exported=True, platforms=("abacus",))
    assert not (tmp_path / "x").exists()
