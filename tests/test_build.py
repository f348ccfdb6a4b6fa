"""The job `codelet build`: what it counts, how it tells layers and stages, and what it refuses."""

from __future__ import annotations

import json
import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import codelet as cl
from codelet.errors import SizeError
from codelet.models.networks import step_arguments
from codelet.models.training import train_step
from codelet.views.sources import source_variables
from ipu_backend.cli import main
from ipu_backend.jobs.adjoint import network_loss, training_step
from ipu_backend.jobs.build import ADJOINT_STAGES, STAGES, build
from ipu_backend.jobs.found import BuildError, find_function
from ipu_backend.jobs.layers import COPIES, NO_LAYER, Cost, Layer, LayerNames, layer_table
from ipu_backend.jobs.stages import Stages


def two_layers(batch=3):
    """A small function with named layers, and examples of its arguments."""

    def step(w, x):
        with jax.named_scope("first"):
            x = jnp.tanh(x @ w)
        with jax.named_scope("second"):
            return jnp.sum(x @ w, axis=0)

    return jax.grad(lambda w, x: step(w, x).sum()), jnp.ones((4, 4)), jnp.ones((batch, 4))


def nothing():
    """No function with examples."""
    return jnp.ones(3)


def test_a_network_is_counted_and_profiled():
    result = build("mnist", grain=1 << 16, target=cl.IPU(num_tiles=16))
    traced = cl.trace(*find_function("mnist"), target=cl.IPU(num_tiles=16), grain=1 << 16, donate_argnums=0)
    graph = traced.graph
    assert (result.vertices, result.edges) == (graph.num_vertices, graph.num_edges)
    assert (result.compute_sets, result.functions) == (len(graph.compute_sets), len(graph.functions))
    assert tuple(result.seconds) == STAGES
    assert result.memory is not None
    assert 0 < result.memory.mean_tile_bytes <= result.memory.fullest_tile_bytes
    assert result.memory.share == pytest.approx(result.memory.mean_tile_bytes / result.memory.bytes_per_tile)
    assert sum(layer.total_cycles for layer in result.layers) == result.cycles
    profile = traced.profile(allow_out_of_memory=True)
    assert (profile.total_cycles, profile.memory_by_tile.max()) == (result.cycles, result.memory.fullest_tile_bytes)
    every = traced.profile(host_visible=[own.name for own in graph.variables], allow_out_of_memory=True)
    assert every.memory_by_tile.max() > result.memory.fullest_tile_bytes
    both_ways = [layer.name[-1] for layer in result.layers if {"forward", "backward"} <= set(layer.phases)]
    assert {"0", "1"} <= set(both_ways)
    text = str(result)
    assert f"{graph.num_vertices:,} vertices, {graph.num_edges:,} edges" in text
    assert "memory of 16 tiles" in text


def test_a_function_of_the_users_is_built_from_the_command_line(capsys):
    main(["build", f"{__name__}:two_layers", "--tiles", "4", "--grain", "8", "--batch", "5", "--json"])
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert found["name"] == f"{__name__}:two_layers"
    assert found["tiles"] == 4
    assert {layer["name"] for layer in found["layers"]} >= {"first", "second"}
    cycles = [layer[phase]["cycles"] for layer in found["layers"] for phase in ("forward", "backward", "update")]
    assert sum(cycles) == found["cycles"]
    main(["build", f"{__name__}:two_layers", "--tiles", "4"])
    assert f"{__name__}:two_layers: " in capsys.readouterr().out


def test_what_is_too_large_to_profile_is_counted_all_the_same(monkeypatch):
    def too_large(*_):
        raise SizeError("it is too large")

    monkeypatch.setattr("lowering.machine.candidates.check_host_size", too_large)
    result = build(f"{__name__}:two_layers", target=cl.IPU(num_tiles=4))
    assert result.vertices > 0
    assert (result.memory, result.cycles, result.layers) == (None, None, ())
    assert "no profile: it is too large" in str(result)


def test_what_the_tiles_cannot_hold_is_profiled_all_the_same():
    target = cl.IPU(num_tiles=2, bytes_per_tile=64)
    result = build(f"{__name__}:two_layers", target=target)
    assert result.memory is not None
    assert result.memory.tiles_over == 2
    assert result.memory.share > 1
    assert result.cycles
    assert "out of memory: 2 tiles would hold more than there is" in str(result)


@pytest.mark.parametrize(
    ("step", "layer"),
    [
        ("convs/0/conv_general_dilated/convolve", ("convs/0", "forward")),
        ("backward/dense/dot_general_2/multiply", ("dense", "backward")),
        ("block/backward/body/0/conv/dot_general/multiply", ("block/body/0/conv", "backward")),
        ("backward/pool/max_pool_gradient_3/choose/choose", ("pool", "backward")),
        ("backward/pool/max_pool_gradient/gather", ("pool", "backward")),
        ("backward/second/reduce_sum/reduce/add up", ("second", "backward")),
        ("update/dense/momentum_2/descend", ("dense", "update")),
        ("mul_4/map", (NO_LAYER, "forward")),
        ("copy relu/max/out -> relu_call/out0", (COPIES, "forward")),
        ("copy x -> backward/relu_call/out0", (COPIES, "backward")),
        ("backward/first/own/map_2/x1_2/sum/reduce in 2 parts", ("first", "backward")),
        ("copy backward/copied -> backward/first/own/map/x1/joined", ("first", "backward")),
        ("copy backward/first/own/out/sum/out -> backward/weights", ("first", "backward")),
        ("copy backward/none/own/out -> backward/last/out", (NO_LAYER, "backward")),
    ],
)
def test_steps_are_told_by_layer_and_phase(step, layer):
    names = LayerNames({"first/own/map": "first", "last/own": ""}, {"weights": "first", "last/out": ""})
    assert names.place_of(step) == layer


def test_layers_are_told_as_a_table():
    """A row for each phase, sums beneath; bytes are those of the step with the most."""
    one, two = Cost(1, 30, 10, 20, 5_000_000, 1_000_000, 3_000_000), Cost(2, 10, 10, 0, 0, 2_000_000, 2_500_000)
    rows = list(layer_table([Layer("fc", one, one + two), Layer("(no layer)", two)], 80))
    assert [row.split() for row in rows] == [
        [
            "by",
            "layer",
            "vertices",
            "cycles",
            "share",
            "compute",
            "exchange",
            "MB",
            "moved",
            "MB",
            "used",
            "MB",
            "live",
        ],
        ["fc", "forward", "1", "30", "37.5%", "10", "20", "5.00", "1.00", "3.00"],
        ["backward", "3", "40", "50.0%", "20", "20", "5.00", "2.00", "3.00"],
        ["(no", "layer)", "forward", "2", "10", "12.5%", "10", "0", "0.00", "2.00", "2.50"],
        ["all", "layers", "forward", "3", "40", "50.0%", "20", "20", "5.00", "2.00", "3.00"],
        ["backward", "3", "40", "50.0%", "20", "20", "5.00", "2.00", "3.00"],
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("alexnett", "given:    alexnett"),
        ("no_such_package:f", "No module named 'no_such_package'"),
        (f"{__name__}:no_such", "has no attribute 'no_such'"),
        (f"{__name__}:nothing", "expected: a tuple: the function, then an example of each argument"),
    ],
)
def test_what_cannot_be_built_is_told(name, message):
    with pytest.raises(BuildError) as told:
        find_function(name)
    assert message in str(told.value)


def test_a_mistake_is_one_line_of_the_command_line():
    with pytest.raises(SystemExit, match="codelet build: there is no such network"):
        main(["build", "alexnett"])


def test_every_network_has_examples_without_being_drawn():
    for name in ("alexnet", "resnet18", "resnet34", "resnet50", "strain", "mnist"):
        _, *examples = find_function(name, batch=2)
        arrays = jax.tree.leaves(eqx.filter(examples, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct)))
        assert examples[1].shape[0] == 2
        assert arrays


@pytest.mark.parametrize("has_tqdm", [True, False])
def test_stages_that_take_long_show_on_the_error_stream(has_tqdm, monkeypatch, capsys):
    if not has_tqdm:
        monkeypatch.setitem(sys.modules, "tqdm", None)
    stages = Stages(("quick", "slow"), delay=0.02)
    with stages.stage("quick"):
        pass
    with stages.stage("slow"):
        time.sleep(0.1)
    told = capsys.readouterr().err
    assert "quick" not in told
    assert "slow" in told
    assert ("2 of 2 stages" in told) == has_tqdm
    assert stages.seconds["quick"] < stages.seconds["slow"]


@pytest.mark.slow
def test_alexnets_step_fits_a_bow_machine():
    result = build("alexnet", target=cl.IPU("bow"))
    assert result.memory is not None
    assert result.memory.fullest_tile_bytes <= result.memory.bytes_per_tile
    assert result.cycles is not None
    assert result.cycles < 530_000  # weights lie where forward and backward products and their update want them
    fully_connected = [layer for layer in result.layers if layer.name.startswith("fc")]
    assert 0.2 < sum(layer.total_cycles for layer in fully_connected) / (result.cycles or 1) < 0.6


# --- by the adjoint graph -----------------------------------------------------------------------------


def squares():
    """One number of two arguments."""
    return lambda w, x: jnp.sum((x @ w) ** 2), jnp.ones((4, 4)), jnp.ones((3, 4))


def test_a_training_step_by_the_adjoint_graph_is_that_of_jax():
    training, *batch = step_arguments("mnist", batch=3, key=jax.random.key(0))
    traced = cl.trace(network_loss, training, *batch, target=cl.IPU(num_tiles=16), grain=1 << 12)
    step = training_step(traced)
    run = jax.jit(cl.lower(step.graph, step.program, inputs=step.inputs, outputs=step.outputs))
    leaves = jax.tree.leaves((training, *batch))
    made = run({source_variables(own.source)[0].name: value for own, value in zip(step.inputs, leaves, strict=True)})
    loss, after = jax.jit(train_step)(training, *batch)
    found = [made[source_variables(own.source)[0].name] for own in step.outputs]
    for own, expected in zip(found, [loss, *jax.tree.leaves((after.parameters, after.velocity))], strict=True):
        assert jnp.allclose(own, expected, 1e-4, 1e-6)


def test_a_network_is_counted_with_its_adjoint_graph():
    result = build("mnist", grain=1 << 16, target=cl.IPU(num_tiles=16), adjoint=True)
    assert tuple(result.seconds) == ADJOINT_STAGES
    assert sum(layer.total_cycles for layer in result.layers) == result.cycles
    phases = {layer.name: set(layer.phases) for layer in result.layers}
    assert phases["0"] == phases[NO_LAYER] == {"forward", "backward", "update"}  # parameters of few elements: of none
    assert phases["1"] == {"forward", "backward"}
    assert COPIES not in phases


def test_a_function_of_the_users_with_its_adjoint_graph(capsys):
    main(["build", f"{__name__}:squares", "--tiles", "4", "--adjoint", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["cycles"] > build(f"{__name__}:squares", target=cl.IPU(num_tiles=4)).cycles
    with pytest.raises(SystemExit, match="not a single number"):
        main(["build", f"{__name__}:two_layers", "--tiles", "4", "--adjoint"])
