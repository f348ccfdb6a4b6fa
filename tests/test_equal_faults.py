"""Single faults, a thousand of them: `cl.equal` tells them, with the right element; and how many floats tell."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core as jax_core

import codelet as cl
from lowering.equality.compare import compared
from lowering.equality.floats import Floats
from lowering.equality.sides import OfGraph, Side
from tests.faults import KINDS, Planted, planted_in_graph, planted_in_jaxpr

RTOL = 1e-5
"""Of the comparisons of floats that the differential tests make: of one and the sum of all magnitudes of a result."""


@dataclass(frozen=True)
class Program:
    """A program in plain JAX, and what it is of."""

    function: Any
    examples: tuple[Any, ...]


def _array(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, np.float32)


def _attention(q, k, v):
    return jax.nn.softmax(q @ k.T / 4) @ v


def _network(w, v, x):
    hidden = jnp.tanh(x @ w)
    return jnp.mean((hidden @ v - hidden.sum(1, keepdims=True)) ** 2)


def _normed(x, scale):
    own = x - x.mean(1, keepdims=True)
    return own * jax.lax.rsqrt((own**2).mean(1, keepdims=True) + 1e-5) * scale


def _filtered(x, kernel):
    made = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME")
    return jax.nn.relu(made).reshape(x.shape[0], -1).sum(1)


IDS = np.random.default_rng(0).integers(0, 40, 300).astype(np.int32)

PROGRAMS = {
    "a sum of 10,000": Program(lambda x: jnp.sum(x**2), (_array(10_000),)),
    "a product": Program(lambda a, b: a @ b, (_array(24, 300), _array(300, 17))),
    "attention": Program(_attention, (_array(12, 16), _array(40, 16), _array(40, 8))),
    "the gradient of attention": Program(
        jax.grad(lambda *own: (_attention(*own) ** 2).sum(), (0, 1, 2)), (_array(12, 16), _array(40, 16), _array(40, 8))
    ),
    "the gradient of a network": Program(jax.grad(_network, (0, 1)), (_array(30, 20), _array(20, 1), _array(64, 30))),
    "rows normed": Program(_normed, (_array(20, 50), _array(50))),
    "an image filtered": Program(_filtered, (_array(2, 3, 16, 16), _array(4, 3, 3, 3))),
    "segments summed": Program(lambda x: jax.ops.segment_sum(x, IDS, 40), (_array(300, 3),)),
    "rows looked up": Program(lambda x: x[IDS] * x[IDS[::-1]], (_array(40, 3),)),
    "running sums": Program(lambda x: jnp.cumsum(x, 0) - x[::-1], (_array(200, 4),)),
    "steps": Program(lambda x: x.at[3:9].set(x[2:8]).at[::7].add(0.5) - jnp.roll(x, 1), (_array(64, 5),)),
}


def _emitted(names: Collection[str]) -> Iterator[tuple[jax_core.ClosedJaxpr, OfGraph, tuple[Any, ...]]]:
    """What programs are lowered to, and their graphs."""
    for own in map(PROGRAMS.__getitem__, names):
        traced = cl.trace(own.function, *own.examples, target=cl.IPU(num_tiles=8))
        names = tuple(tensor.source.name for tensor in traced.flat_inputs)
        outputs = traced.flat_outputs
        side = OfGraph(traced.graph, traced.program, names, outputs, jax.tree.structure([0] * len(outputs)))
        yield traced.lowered.jaxpr, side, own.examples


def _tiles(names: Collection[str]) -> Iterator[jax_core.ClosedJaxpr]:
    """What an engine runs on tiles, where messages between them are tables of look-ups."""
    for name in [own for own in names if own in ("a product", "rows normed", "segments summed", "running sums")]:
        own = PROGRAMS[name]
        traced = cl.trace(own.function, *own.examples, target=cl.IPU(num_tiles=8))
        engine = cl.Engine(traced, execution="tiles")
        inputs = [tensor.source.name for tensor in traced.flat_inputs]
        run = engine.function(inputs=inputs, outputs=[tensor.source.name for tensor in traced.flat_outputs])
        yield jax.make_jaxpr(lambda *given, run=run, inputs=inputs: run(dict(zip(inputs, given, strict=True))))(
            *own.examples
        )


SHORT = ("a product", "rows normed", "segments summed", "steps")
"""Programs that take less than a second with all that is made of them."""


def faults(most: int, names: Collection[str]) -> Iterator[Planted]:
    """Faults in programs, in what they are lowered to, in their graphs and in what runs on tiles."""
    emitted = [*_emitted(names)]
    plain = [jax.make_jaxpr(PROGRAMS[name].function)(*PROGRAMS[name].examples) for name in names]
    jaxprs = [*plain, *(own for own, _, _ in emitted), *_tiles(names)]
    seed = count = 0
    while count < most:
        for kind in KINDS:
            found = planted_in_jaxpr(jaxprs[seed % len(jaxprs)], kind, seed)
            seed += 1
            if found is not None:
                count += 1
                yield found
        _, side, structs = emitted[seed % len(emitted)]
        for kind in ("reads", "writes"):
            count += 1
            yield planted_in_graph(side, structs, kind, seed)


def _results(side: Side, given: list[np.ndarray]) -> list[np.ndarray]:
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        return [np.asarray(own) for own in side.results(Floats(), given)]


def _apart(fault: Planted, seed: int) -> list[np.ndarray]:
    """Where results differ in float64, at either of two points."""
    random, found = np.random.default_rng(seed), []
    for _ in range(2):
        given = [random.standard_normal(own.shape) for own in fault.structs]
        first, second = (_results(side, given) for side in (fault.right, fault.wrong))
        pairs = zip(first, second, strict=True)
        found.append([abs(a - b) > 1e-11 * (abs(a) + abs(b) + 1e-3 * np.abs(a).max(initial=0)) for a, b in pairs])
    return [one | other for one, other in zip(*found, strict=True)]


def _told_by_floats(fault: Planted, seed: int) -> bool:
    """Whether the comparison of floats of the differential tests tells them apart."""
    random = np.random.default_rng(seed)
    given = [random.standard_normal(own.shape).astype(np.float32).astype(np.float64) for own in fault.structs]
    first, second = (_results(side, given) for side in (fault.right, fault.wrong))
    return any((np.abs(a - b) > RTOL * (1 + np.abs(b).sum())).any() for a, b in zip(first, second, strict=True))


def told_of(most: int, names: Collection[str] = tuple(PROGRAMS)) -> dict[str, Counter[str]]:
    """Of faults by kind: how many there are, how many each comparison tells, and what `cl.equal` says of others."""
    table: dict[str, Counter[str]] = {}
    for number, fault in enumerate(faults(most, names)):
        apart = _apart(fault, number)
        if not any(own.any() for own in apart):
            continue  # no fault: what is wrong changes nothing
        row = table.setdefault(fault.kind, Counter())
        row["faults"] += 1
        row["floats"] += _told_by_floats(fault, number)
        found = compared(fault.right, fault.wrong, fault.structs)
        row[found.verdict] += 1
        if found.witness is not None:
            k = fault.right.paths.index(found.witness.result)
            row["element"] += bool(apart[k][found.witness.element])
    return table


def _check(table: dict[str, Counter[str]], least: float) -> None:
    total = sum(table.values(), Counter())
    assert total["equal"] == 0, table
    assert total["different"] >= least * total["faults"], table
    assert total["element"] == total["different"], table


@pytest.mark.filterwarnings("ignore::codelet.OneVertexWarning")
def test_single_faults_of_every_kind_are_told():
    table = told_of(48, SHORT)
    assert len(table) > 8
    _check(table, 0.97)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::codelet.OneVertexWarning")
def test_a_thousand_single_faults_are_told(capsys):
    table = told_of(1400)
    with capsys.disabled():
        print(json.dumps(table))
    assert sum(table.values(), Counter())["faults"] >= 1000
    _check(table, 0.999)
