"""Every network's training step as a graph: `python -m benchmarks.networks [NETWORK ...]` prints the table of them.

In come names of networks, all of them where there are none; out comes a table of Markdown: how many vertices, edges,
compute sets, variables and functions the graph of a step has, batch 1, and how long it took to trace, to cut, and to
lower and compile uncut, each in a process of its own, once. Beside that stands what compiling the step itself took.
"""

from __future__ import annotations

import argparse

from benchmarks.fresh import in_fresh_process
from benchmarks.trace_compile import seconds_to_compile_plain, seconds_to_compile_traced
from benchmarks.traced_steps import FINE_GRAIN
from codelet.models.networks import NETWORKS

GRAINS: dict[str, tuple[int | None, ...]] = {"alexnet": (None, FINE_GRAIN)}
"""The grains of a network; of any other the planned one."""

COLUMNS = (
    *("network", "grain", "vertices", "edges", "compute sets", "variables", "functions"),
    *("trace", "cut", "lower", "compile", "plain JAX"),
)


def line(network: str, grain: int | None, plain: float) -> str:
    """The line of a network at a grain, beside seconds that plain JAX takes."""
    own = in_fresh_process(seconds_to_compile_traced, network, grain)
    counts = (own.vertices, own.edges, own.compute_sets, own.variables, own.functions)
    cells = [f"`{network}`", "planned" if grain is None else f"{grain:,}", *(f"{n:,}" for n in counts)]
    cells += [f"{seconds:.1f} s" for seconds in (own.traced, own.cut, own.lowered, own.compiled, plain)]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table, each line as soon as it is measured."""
    parser = argparse.ArgumentParser(description="Training steps of networks as graphs.")
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="all of them when left off")
    print(f"| {' | '.join(COLUMNS)} |\n|---|{'---:|' * (len(COLUMNS) - 1)}", flush=True)
    for network in parser.parse_args().networks or NETWORKS:
        plain = in_fresh_process(seconds_to_compile_plain, network)
        for grain in GRAINS.get(network, (None,)):
            print(line(network, grain, plain), flush=True)


if __name__ == "__main__":
    main()
