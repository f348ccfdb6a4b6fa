"""`python -m benchmarks`: run benchmarks and print their rows."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

import jax

from benchmarks import on_device
from benchmarks.every import BENCHMARKS
from benchmarks.harness import HEADER, PEAK_HEADER, measure
from benchmarks.memory import with_peaks


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Time graphs of vertices beside plain JAX. Exit status 1 where a bar is missed.",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="benchmarks to run, or rows of them, with all whose names go on after a slash; all when none is named",
    )
    parser.add_argument("--list", action="store_true", help="list the benchmarks and exit")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.add_argument(
        "--repeats",
        type=int,
        default=9,
        metavar="N",
        help="rounds of each side, at least; short calls get more (default: 9)",
    )
    parser.add_argument(
        "--memory", action="store_true", help="also the peak memory of either side, each in a process of its own"
    )
    parser.add_argument(
        "--gpu", action="store_true", help="what is to be known of a GPU once there is one: docs/gpu.md"
    )
    parser.add_argument("--minutes", type=float, default=10.0, metavar="N", help="for --gpu (default: 10)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmarks named on the command line; the exit status."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    unknown = [name for name in arguments.names if name.partition("/")[0] not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}")
    if arguments.repeats < 1:
        parser.error("--repeats must be at least 1")
    if arguments.list:
        for name, function in BENCHMARKS.items():
            print(f"{name:20}{(function.__doc__ or '').splitlines()[0]}")
        return 0
    if arguments.gpu:
        return on_device.run(arguments.minutes, arguments.names)
    if not arguments.json:
        device = jax.devices()[0]
        print(f"jax {jax.__version__} on {device.device_kind}, {os.cpu_count()} CPU cores")
        print(HEADER + PEAK_HEADER * arguments.memory, flush=True)
    missed = 0
    for name in arguments.names or BENCHMARKS:
        row = None
        for row in measure(name, repeats=arguments.repeats):
            if arguments.memory:
                row = with_peaks(name.partition("/")[0], row)
            missed += row.is_missed
            print(json.dumps(row.as_json()) if arguments.json else row, flush=True)
        if row is None:
            parser.error(f"no row is {name!r}, or continues it after a slash; a mean is of the rows that are chosen")
    if missed and not arguments.json:
        print(f"{missed} above the bar")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
