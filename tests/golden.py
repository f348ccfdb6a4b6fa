"""Golden plans and jaxprs, of five programs and of the networks: `python -m tests.golden [--write]`.

Each is a file of `tests/golden`: the plan as it prints, then what runs, as how many equations there are of each
primitive and of each type of what it gives, with those of loops and branches below. `tests/test_golden.py` compares
them; who changes what is emitted on purpose writes them anew, and a reviewer reads the difference.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

import codelet as cl
from benchmarks.heat import heat_steps
from benchmarks.messages import lower_messages, network
from benchmarks.traced_steps import lowered_vertices
from codelet.jaxprs.equations import inner_jaxprs
from codelet.models import mnist
from codelet.models.alexnet import CHANNELS, AlexNet
from codelet.models.resnet import resnet
from codelet.models.rnet import RNet
from codelet.models.strain import LEAST_SAMPLES, StrainNet
from codelet.models.training import apply
from tutorials.programs.bitonic_sort import lower_sort

FOLDER = Path(__file__).with_suffix("")
KEY = jax.random.key(0)
TARGET = cl.IPU(num_tiles=8)


def _matrix_vector() -> cl.Lowered:
    """The program of the README, smaller."""
    graph = cl.Graph()
    x, w = graph.add_variable("x", (64,)), graph.add_variable("w", (12, 64))
    row, p = cl.grid(12, 4)
    field = slice(16 * p, 16 * p + 16)
    part = graph.add_vertex("multiply", cl.codelet(lambda x, w: jnp.dot(x, w)), x=x[field], w=w[row, field], tile=row)
    y = graph.add_vertex("add up", cl.codelet(lambda parts: parts.sum()), parts=part[cl.grid(12)])
    return cl.lower(graph, inputs=[x, w], outputs=[y])


def _mnist() -> cl.Lowered:
    layers = mnist.init_parameters(KEY, (12, 8, 4))
    return cl.lower(mnist.network).at(np.ones((3, 12), np.float32), layers, chunk=4)


def _of_network(
    make: Callable[[], Any], shape: tuple[int, ...], grain: int | None = 1 << 16, *, uncut: bool = False
) -> cl.Lowered:
    """What a network gives for two inputs of a shape, by its vertices or uncut; nothing of it is drawn."""
    made = eqx.filter_eval_shape(make)
    whole, state = made if isinstance(made, tuple) else (made, None)
    arrays, static = eqx.partition((whole, state), lambda own: isinstance(own, jax.ShapeDtypeStruct))

    def run(arrays: Any, x: Any) -> Any:
        own, held = eqx.combine(arrays, static)
        return jax.tree.leaves(apply(own, held, x))

    inputs = jax.ShapeDtypeStruct((2, *shape), np.float32)
    traced = cl.trace(run, arrays, inputs, target=TARGET, grain=grain)
    return traced.lowered if uncut else lowered_vertices(traced)


def _residual() -> Any:
    return resnet(KEY, (1,), bottleneck=False, classes=5, widths=(4,))


GOLDEN: dict[str, Callable[[], cl.Lowered]] = {
    "matrix_vector": _matrix_vector,
    "mnist": _mnist,
    "heat": lambda: cl.lower(*heat_steps(8, 6), inputs=["u"], outputs=["u"]),
    "messages": lambda: lower_messages(network(60, 20)),
    "sort": lambda: lower_sort(16),
    "network_mnist": lambda: _of_network(lambda: eqx.nn.MLP(12, 4, 8, 1, key=KEY), (12,), None),
    "network_alexnet": lambda: _of_network(lambda: AlexNet(classes=10, key=KEY), (CHANNELS, 224, 224)),
    "network_resnet": lambda: _of_network(_residual, (3, 16, 16)),
    "network_strain": lambda: _of_network(
        lambda: StrainNet(LEAST_SAMPLES, channels=(4, 8, 8), hidden=8, key=KEY), (LEAST_SAMPLES,), None
    ),
    "uncut_resnet": lambda: _of_network(_residual, (3, 16, 16), uncut=True),
    "network_rnet": lambda: _of_network(lambda: RNet(key=KEY), (3, 24, 24)),
}


def _lines(jaxpr: Any, indent: str = "") -> Iterator[str]:
    """Each primitive with the types of what it gives, how often it is there, and what is inside of it."""
    jaxpr = jaxpr.jaxpr if isinstance(jaxpr, jax_core.ClosedJaxpr) else jaxpr
    found: Counter[str] = Counter()
    for eqn in jaxpr.eqns:
        types = " ".join(var.aval.str_short() for var in eqn.outvars)
        inner = "\n".join(line for own in inner_jaxprs(eqn) for line in _lines(own, indent + "    "))
        found[f"{eqn.primitive.name} {types}" + ("\n" + inner if inner else "")] += 1
    for text, count in sorted(found.items()):
        yield f"{indent}{count} x {text}"


def text_of(name: str) -> str:
    """What the file of a program holds."""
    run = GOLDEN[name]()
    return "\n".join([str(run.plan).rstrip(), "", "# What runs", "", *_lines(run.jaxpr), ""])


def file_of(name: str) -> Path:
    """Where it is kept."""
    return FOLDER / f"{name}.txt"


def main() -> None:
    """Say which files differ, or write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the files anew")
    write = parser.parse_args().write
    for name in GOLDEN:
        path, text = file_of(name), text_of(name)
        if not path.exists() or path.read_text() != text:
            print(f"{path.name} {'is written' if write else 'differs'}")
            if write:
                path.write_text(text)


if __name__ == "__main__":
    main()
