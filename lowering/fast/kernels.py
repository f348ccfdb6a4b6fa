"""Kernels: how each family runs. An ordered table of rules; the first that applies is taken.

A rule takes a family and how the fields of its compute set are read. It gives a kernel, frozen data that emission
runs, or why it does not apply; an empty text where it does not concern the family at all.

To add a way for families to run: a file with a kernel and its rule, and the rule in `RULES`, before those it beats;
where it is meant to run, and why, in `lowering/platforms.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from codelet.graphs.family import Family
from lowering.fast.convolutions import Convolution, as_convolution
from lowering.fast.inputs import Inputs
from lowering.fast.pooling import Pooling, as_pooling
from lowering.fast.ragged import RowsTogether, as_buckets, as_segments
from lowering.fast.reduced_windows import as_windows_reduced
from lowering.fast.vmapped import Vmapped, as_vmapped, as_windows_apart
from lowering.platforms import MEANT, is_meant, platform_now

Kernel = RowsTogether | Convolution | Pooling | Vmapped
"""How a family runs: `run` computes its outputs, `reads` says how each field is read, `text` how it runs, in words."""


RULES: dict[str, Callable[[Family, Inputs], Kernel | str]] = {
    "segments": as_segments,  # one program for rows of any lengths
    "buckets": as_buckets,  # any other codelet of ragged fields
    "a convolution": as_convolution,  # windows would be copied once for each of their elements
    "windows reduced": as_windows_reduced,  # a dimension at a time, which is less work
    "a pooling": as_pooling,  # the same
    "windows element by element": as_windows_apart,  # XLA does not vectorise a look into a stack of slices
    "vmap": as_vmapped,  # everything else
}
"""The ways for families to run: what each is called, and what gives the kernel of a family, or why it has none."""


class Choice(NamedTuple):
    """How a family runs, and the rules that would have been taken before, each with why it was not."""

    kernel: Kernel
    refused: tuple[tuple[str, str], ...]


def choose_kernel(family: Family, inputs: Inputs) -> Choice:
    """The kernel of a family."""
    refused: list[tuple[str, str]] = []
    for name, rule in RULES.items():
        found = rule(family, inputs)
        if not isinstance(found, str):
            if is_meant(name):
                return Choice(found, tuple(refused))
            found = f"on a {platform_now()} it is not meant: {MEANT[name].why}"
        if found:
            refused.append((name, found))
    raise AssertionError(family)
