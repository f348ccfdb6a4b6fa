"""Plans of square matrix products beside the peak of a chip: `python -m benchmarks.ops_plans [--write]`.

Times nothing: cycles are those that the model of the machine counts for the graph of `ops.matmul`. With `--write` the
table is put into docs/operations.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp

import codelet as cl

SIZES = (256, 512, 1024, 2048, 4096)
PEAK = {"float32": 16, "float16": 64}
"""Multiply-adds of a tile's matrix unit in a cycle; half as many where float16 is summed in float32."""

PAGE = Path(__file__).parents[1] / "docs" / "operations.md"
BEGIN, END = "<!-- products -->", "<!-- end of products -->"


class Planned(NamedTuple):
    """A square product as planned.

    Attributes:
        size: of each side.
        dtype: of the operands.
        partials: of the sums.
        cycles: of the whole.
        multiply: compute cycles of the products.
        exchange: cycles of their operands' exchange, with its syncs.
        reduction: cycles of the sums of partials, exchanged and added.
        share: of the chip's peak.
    """

    size: int
    dtype: str
    partials: str
    cycles: int
    multiply: int
    exchange: int
    reduction: int
    share: float

    @property
    def limit(self) -> str:
        """What takes most of the time."""
        own = {"compute": self.multiply, "exchange": self.exchange, "reduction": self.reduction}
        return max(own, key=lambda name: own[name])


def planned(size: int, dtype: str, partials: str) -> Planned:
    """The plan of a square product on a GC200."""
    target = cl.IPU("mk2")
    plan = cl.ops.plan_matmul(target, size, size, size, dtype=jnp.dtype(dtype), partials=jnp.dtype(partials))
    products = [step for step in plan.steps if step.name.startswith("multiply")]
    sums = [step for step in plan.steps if not step.name.startswith("multiply")]
    peak = PEAK[dtype] * target.num_tiles
    return Planned(
        size,
        dtype,
        partials,
        plan.total_cycles,
        sum(step.compute for step in products),
        sum(step.exchange + step.sync for step in products),
        sum(step.cycles for step in sums),
        size**3 / plan.total_cycles / peak,
    )


def table() -> str:
    """All of them, as a table of Markdown."""
    rows = [
        "| product | sums in | cycles | compute | exchange | reduction | of the peak | most of it |",
        "|---|---|---:|---:|---:|---:|---:|---|",
    ]
    for dtype, partials in (("float32", "float32"), ("float16", "float16"), ("float16", "float32")):
        for size in SIZES:
            own = planned(size, dtype, partials)
            numbers = " | ".join(f"{n:,}" for n in (own.cycles, own.multiply, own.exchange, own.reduction))
            rows.append(f"| {dtype} {size:,} | {partials} | {numbers} | {own.share:.0%} | {own.limit} |")
    return "\n".join(rows)


def main() -> None:
    """Print the table, and perhaps write it."""
    parser = argparse.ArgumentParser(description="Plans of square matrix products.")
    parser.add_argument("--write", action="store_true", help="put the table into docs/operations.md")
    made = table()
    print(made)
    if parser.parse_args().write:
        text = PAGE.read_text()
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        PAGE.write_text(f"{before}{BEGIN}\n{made}\n{END}{after}")


if __name__ == "__main__":
    main()
