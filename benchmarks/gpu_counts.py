"""What a GPU would run, counted in the texts that XLA writes of a compiled program.

In come the list of what is launched (`thunk_sequence.txt`), the names of it (`thunk_metadata.txt`), the optimized HLO,
and PTX; out come how many kernels a program launches and where, how often its loops turn, which of its atomic updates
are compare-and-swap loops, and what `ptxas -v` says of registers spilled to memory. Text in, numbers out: no JAX.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

AROUND = frozenset(
    {
        *("kWhile", "kConditional", "kSequential", "kCommandBuffer", "kDynamicSlice", "kDynamicSliceFusion"),
        *("kAsyncStart", "kAsyncDone", "kWaitForStreams", "kCopyDone"),
    }
)
"""Kinds of thunks that launch nothing themselves: what they hold does. A fused slice moves addresses on the host, by
the turn of the loop (XLA's `dynamic_slice_fusion_v2_thunk.cc`)."""

LANES = 65_536
"""Registers of 32 bits of a multiprocessor, of an A100 as of an H100."""

MOST_REGISTERS = 255
"""That a thread has at most; `ptxas` may use all of them before anything is spilled."""


@dataclass(frozen=True)
class Launches:
    """What a program launches.

    Attributes:
        kernels: launches outside of loops, as they stand in the program: kernels, copies, fills, library calls.
        loops: loops of the host, each of whose turns launches its kernels and waits for the condition.
        in_loops: launches that stand in bodies and conditions of loops.
        run: launches of a whole run, a loop's as often as it turns; where that is not known, once.
    """

    kernels: int
    loops: int
    in_loops: int
    run: int

    @property
    def standing(self) -> int:
        """Launches as they stand in the program, in loops and outside."""
        return self.kernels + self.in_loops


_THUNK = re.compile(r"^(\s*)(\d+): (k\w+)")
_PART = re.compile(r"^\s*(condition|body):")


def thunks(sequence: str) -> Iterator[tuple[int, int, str]]:
    """The number of each thunk, how far its line is indented, and its kind, in order."""
    for line in sequence.splitlines():
        found = _THUNK.match(line)
        if found:
            yield int(found[2]), len(found[1]), found[3]


def loop_names(metadata: str) -> dict[int, str]:
    """The name in HLO of each loop, by the number of its thunk."""
    named = re.finditer(
        r'profile_annotation: "([^"]*)"\s*thunk_id: (\d+)\s*}\s*thunk_kind: "kWhile"', metadata, re.DOTALL
    )
    return {int(own[2]): own[1] for own in named}


def trip_counts(hlo: str) -> dict[str, int]:
    """How often each loop turns, by its name in HLO; loops of which XLA does not know it are left out."""
    lines = (line for line in hlo.splitlines() if " while(" in line)
    found = (re.search(r'%?([\w.\-]+) = .*known_trip_count":\{"n":"(\d+)"', line) for line in lines)
    return {own[1]: int(own[2]) for own in found if own}


def launches(sequence: str, turns: Mapping[int, int]) -> Launches:
    """What a program launches.

    Args:
        sequence: the text of its thunks, what loops hold indented beneath them.
        turns: how often the loops turn, by the numbers of their thunks; one that is missing counts as once.
    """
    around: list[tuple[int, int]] = []  # of the loops around: how far they are indented, and how often all of it runs
    kernels = loops = inside = run = 0
    for number, indent, kind in thunks(sequence):
        while around and around[-1][0] >= indent:
            around.pop()
        often = around[-1][1] if around else 1
        if kind == "kWhile":
            loops += 1
            around.append((indent, often * turns.get(number, 1)))
        elif kind not in AROUND:
            kernels += not around
            inside += bool(around)
            run += often
    return Launches(kernels, loops, inside, run)


_BYTES = {"pred": 1, "bf16": 2, "c64": 8, "c128": 16}


def _shape_bytes(text: str) -> int:
    """The bytes of all arrays of a shape in HLO; scratch memory of libraries, which is of bytes, left out."""
    total = 0
    for dtype, dims in re.findall(r"\b(pred|bf16|[fsuc]\d+)\[([\d,]*)\]", text):
        if dtype not in ("s8", "u8"):
            bits = re.sub(r"\D", "", dtype)
            total += _BYTES.get(dtype, int(bits or 8) // 8) * math.prod(map(int, filter(None, dims.split(","))))
    return total


def library_bytes(hlo: str) -> int:
    """The bytes that calls of libraries are given and give: products, convolutions, sorts."""
    shapes: dict[str, int] = {}
    total = 0
    for line in hlo.splitlines():
        made = re.match(r"\s*(?:ROOT )?(%[\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)", line)
        if made is None:
            continue
        shapes[made[1]] = _shape_bytes(made[2])
        if made[3] == "custom-call":
            given = re.findall(r"%[\w.\-]+", made[4].split("), ", 1)[0])
            total += shapes[made[1]] + sum(shapes.get(own, 0) for own in given)
    return total


def scratch_bytes(hlo: str) -> int:
    """The bytes that products of libraries ask for beside their operands: they share one such buffer."""
    calls = re.findall(r"\bs8\[(\d+)\]\S*\) custom-call\(.*custom_call_target=\"__cublas", hlo)
    return max(map(int, calls), default=0)


def compare_and_swaps(ptx: str) -> int:
    """Atomic updates of PTX that are loops of compare-and-swap, for want of an instruction that does them."""
    return len(re.findall(r"\batom\.\S*cas\.", ptx))


def may_spill(ptx: str) -> bool:
    """True if a kernel names more registers than a thread of it has, without which nothing is spilled."""
    for kernel in re.split(r"(?=\.entry\b)", ptx)[1:]:
        threads = re.search(r"\.(?:max|req)ntid (\d+)", kernel)
        most = min(MOST_REGISTERS, LANES // int(threads[1])) if threads else MOST_REGISTERS
        named = re.findall(r"\.reg \.[bfsu](16|32|64)\s+%\w+<(\d+)>", kernel)
        if sum(int(count) * (2 if bits == "64" else 1) for bits, count in named) > most:
            return True
    return ".func " in ptx


def spilled_bytes(told: str) -> int:
    """The bytes that `ptxas -v` says are stored for want of registers, of all kernels."""
    return sum(map(int, re.findall(r"(\d+) bytes spill stores", told)))
