"""The programs of `tutorials/programs`, run small: they agree with their plain JAX twins, and show what they should."""

import importlib
from pathlib import Path

import jax
import numpy as np

import codelet as cl
from benchmarks.harness import check_same
from tests.examples import few
from tutorials.programs import beside, random_network

FOLDER = Path(beside.__file__).parent

SMALL = {
    "bitonic_sort": {"size": 16},
    "breadth_first": {"nodes": 60, "edges": 120},
    "cholesky": {"blocks": 3, "size": 4},
    "equinox_training": {"widths": (8, 16, 3), "batch": 4, "steps": 3},
    "fft": {"size": 16},
    "k_means": {"points": 40, "dimensions": 2, "centres": 3, "rounds": 3},
    "lattice_boltzmann": {"height": 6, "width": 5, "steps": 3},
    "ldpc": {"bits": 12, "rounds": 3},
    "life": {"side": 8, "steps": 3},
    "page_rank": {"pages": 30, "links": 90, "steps": 4},
    "spiking": {"neurons": 20, "synapses": 100, "steps": 12},
    "transformer": {"tokens": 6, "features": 8, "heads": 2},
    "waveform_inversion": {"height": 12, "width": 16, "steps": 12},
}


def twin(name):
    return importlib.import_module(f"tutorials.programs.{name}").twin(**SMALL[name])


def test_every_program_is_tested():
    helpers = {"__init__", Path(beside.__file__).stem, Path(random_network.__file__).stem}
    assert {path.stem for path in FOLDER.glob("*.py")} - helpers == set(SMALL)


@few(
    "name",
    SMALL,
    quick=[
        "bitonic_sort",
        "breadth_first",
        "cholesky",
        "equinox_training",
        "fft",
        "k_means",
        "ldpc",
        "life",
        "page_rank",
        "spiking",
    ],
)
def test_a_program_agrees_with_its_twin(name):
    made = twin(name)
    arguments = jax.device_put(made.arguments(np.random.default_rng(0)))
    check_same(made.name, made.side("ours")(*arguments), made.side("plain")(*arguments), made.tolerance)


def test_what_is_shown(capsys):
    row = beside.show(twin("fft"), repeats=1, seconds=0)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "fft: 32 vertices, 96 edges"
    assert shown[2].startswith("fft")
    assert f"{row.ratio:.2f}" in shown[2]


def test_the_fft_is_one():
    from tutorials.programs.fft import lower_fft

    x = np.random.default_rng(0).standard_normal(32).astype(np.complex64)
    np.testing.assert_allclose(jax.jit(lower_fft(32))({"x": x})["y"], np.fft.fft(x), rtol=1e-5, atol=1e-5)


def test_the_decoder_corrects_a_word():
    """Of the word of zeros, whose beliefs are positive, some bits arrive wrong."""
    from tutorials.programs.ldpc import lower_decoder, random_code

    bits = 600
    heard = np.rint(16 * (1 + 0.6 * np.random.default_rng(0).standard_normal(bits))).astype(np.int32)
    belief = jax.jit(lower_decoder(random_code(bits), 20))({"channel": heard, "up": np.zeros(3 * bits, np.int32)})[
        "belief"
    ]
    assert (heard < 0).sum() > 10
    assert (np.asarray(belief) < 0).sum() == 0


def test_breadth_first_search_finds_the_distances():
    from tutorials.programs.breadth_first import FAR, lower_search
    from tutorials.programs.random_network import Network

    ring = Network(np.array([4, 0, 1, 2, 3]), np.arange(6), np.ones(5, np.int64))
    start = np.array([0, FAR, FAR, FAR, FAR], np.int32)
    assert jax.jit(lower_search(ring))({"old": start})["distance"].tolist() == [0, 1, 2, 3, 4]


def test_a_lowered_layer_is_a_field_of_a_module():
    from tutorials.programs.equinox_training import lowered_dense, network

    layers = network((8, 8, 4), lowered_dense, np.random.default_rng(0))
    assert isinstance(layers[0].run, cl.LoweredFunction)
    assert layers[0](np.ones((2, 8), np.float32)).shape == (2, 8)
