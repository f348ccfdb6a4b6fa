"""Collectives: what a compiled program sends between devices, read off its HLO.

In comes the text of a compiled program (`jax.jit(f).lower(...).compile().as_text()`), out comes for each kind of
collective what leaves devices, all of them together. A collective in a loop counts once, as it stands in the text.

What leaves a device: a collective-permute sends all that it is given, once for each pair of a source and another
target; an all-to-all among n devices (n - 1) / n of it, an all-gather n - 1 times all of it, a reduce-scatter (n - 1)
/ n of it, and an all-reduce twice that, as on a ring.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

BYTES = {"pred": 1, "bf16": 2, "c64": 8, "c128": 16}
"""Bytes of an element, of types whose names do not end in their bits."""

_LINE = re.compile(
    r"= (?P<types>\([^=]*?\)|\S+) (?P<kind>collective-permute|all-to-all|all-gather|all-reduce|reduce-scatter)"
    r"(?P<start>-start)?\("
)
_TYPE = re.compile(r"(\w+)\[([\d,]*)\]")


class Traffic(NamedTuple):
    """What leaves devices, of all together."""

    elements: int
    bytes: int


def _of_types(text: str) -> list[tuple[int, int]]:
    """The elements, and the bytes of one, of each array of a type or a tuple of types."""
    found = []
    for kind, extents in _TYPE.findall(text):
        size = BYTES.get(kind) or max(1, int(re.sub(r"\D", "", kind.split("e")[0])) // 8)
        found.append((math.prod(int(n) for n in extents.split(",") if n), size))
    return found


def _group_size(line: str, devices: int) -> int:
    """How many devices take part in a collective together."""
    if listed := re.search(r"replica_groups=\{\{([\d,]*)\}", line):
        return len(listed[1].split(","))
    if counted := re.search(r"replica_groups=\[(\d+),(\d+)\]", line):
        return int(counted[2])
    return devices


def _copies(kind: str, line: str, devices: int) -> float:
    """How often what a collective gives leaves a device, of all devices together."""
    if kind == "collective-permute":
        pairs = re.search(r"source_target_pairs=\{(.*?)\}\}", line)
        assert pairs is not None
        return sum(source != target for source, target in re.findall(r"\{(\d+),(\d+)", pairs[1] + "}"))
    size = _group_size(line, devices)
    shares = {"all-to-all": 1 / size, "all-gather": 1 / size, "all-reduce": 2 / size, "reduce-scatter": 1}
    return devices * (size - 1) * shares[kind]


def collectives(hlo: str) -> dict[str, Traffic]:
    """What each kind of collective sends.

    Args:
        hlo: the text of a compiled program, one that XLA has partitioned.

    >>> collectives("num_partitions=4 %p = f32[30]{0} collective-permute(%x), source_target_pairs={{1,0},{2,1}}")
    {'collective-permute': Traffic(elements=60, bytes=240)}
    """
    header = {name: int(count) for name, count in re.findall(r"(num_partitions|replica_count)=(\d+)", hlo)}
    devices, found = math.prod(header.values()), dict[str, Traffic]()
    for line in re.sub(r"/\*.*?\*/", "", hlo).splitlines():  # XLA numbers the parts of long tuples in comments
        match = _LINE.search(line)
        if match is None:
            continue
        kind, types = match["kind"], _of_types(match["types"])
        if match["start"] and match["types"].startswith("("):
            types = types[len(types) // 2 :]  # operands stand before results
        copies, before = _copies(kind, line, devices), found.get(kind, Traffic(0, 0))
        elements = round(copies * sum(n for n, _ in types))
        found[kind] = Traffic(before.elements + elements, before.bytes + round(copies * sum(n * b for n, b in types)))
    return found


def elements_carried(hlo: str) -> int:
    """How many elements leave devices by all collectives of a compiled program."""
    return sum(traffic.elements for traffic in collectives(hlo).values())
