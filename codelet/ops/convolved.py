"""A convolution to be planned: its sizes, its dimensions, and the codelets that its vertices run.

All convolutions and their gradients are one. out[n, g, f, y] is the sum over channels c and taps of x[n, g, c, window
of y] * w[g, f, c, tap]. A vertex makes a patch of the results, with the halo of the field that it reads; or results at
one position, a matrix product over channels and taps together; or one result.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.graphs.stages import Cut
from codelet.ops.blocks import whole
from codelet.ops.pairs import Pair, both
from codelet.ops.windows import WindowedDimension
from codelet.tracing.codelets import codelet
from codelet.tracing.field_types import SizeNames, sizes_named
from codelet.views.line import Phase

Kind = Literal["patch", "position", "element"]
"""What a vertex makes: a patch of the results, results at one position, or one result."""

Blocks = tuple[int, ...]
"""A size along each dimension, in the order of `Convolved.dimensions`."""


@dataclass(frozen=True)
class Convolved:
    """A convolution: out[n, g, f, y] is the sum of x[n, g, c, windows] * w[g, f, c, taps].

    Attributes:
        batch: positions n.
        groups: g, that have nothing in common.
        out_channels: f of a group.
        in_channels: c of a group.
        fields: the spatial dimensions.
        dtype: of both operands.
        partials: the dtype of sums.
        out_dtype: of the results.
    """

    batch: int
    groups: int
    out_channels: int
    in_channels: int
    fields: tuple[WindowedDimension, ...]
    dtype: np.dtype
    partials: np.dtype
    out_dtype: np.dtype

    @property
    def rank(self) -> int:
        """How many spatial dimensions there are."""
        return len(self.fields)

    @property
    def phases(self) -> list[tuple[Phase, ...]]:
        """A phase of each spatial dimension, in all combinations."""
        return list(itertools.product(*(field.phases for field in self.fields)))

    @property
    def results(self) -> int:
        """How many results there are."""
        return math.prod(self.kept)

    @property
    def summed(self) -> int:
        """How many products each result has, zeros between elements counted."""
        return self.in_channels * math.prod(field.taps for field in self.fields)

    @property
    def kept(self) -> tuple[int, ...]:
        """The extents of the results: batch, groups, results of a group, field."""
        return (self.batch, self.groups, self.out_channels, *(field.results for field in self.fields))

    @property
    def dimensions(self) -> tuple[tuple[str, int], ...]:
        """The dimensions that can be cut, in the order in which blocks follow one another on tiles; results of one
        phase.
        """
        names = _axis_names(self.rank)
        fields = [(f"field {name}", max((p.count for p in own.phases), default=0)) for name, own in self._named(names)]
        kernel = [(f"kernel {name}", max((p.taps for p in own.phases), default=0)) for name, own in self._named(names)]
        return (
            ("groups", self.groups),
            ("batch", self.batch),
            *fields,
            ("in channels", self.in_channels),
            *kernel,
            ("out channels", self.out_channels),
        )

    def _named(self, names: Sequence[str]) -> list[tuple[str, WindowedDimension]]:
        return list(zip(names, self.fields, strict=True))

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} {extent:,}" for name, extent in self.dimensions if extent != 1)
        phases = f", {len(self.phases)} phases" if len(self.phases) > 1 else ""
        return f"a convolution of {self.dtype} in {self.partials}: {sizes or 'one product'}{phases}"


def _axis_names(rank: int) -> list[str]:
    return ["z", "y", "x"][3 - rank :] if rank <= 3 else [str(d) for d in range(rank)]


class ByRole(NamedTuple):
    """Numbers along the dimensions of a convolution, by their roles."""

    groups: Any
    batch: Any
    fields: tuple[Any, ...]
    in_channels: Any
    kernel: tuple[Any, ...]
    out_channels: Any


def parts_of(values: Sequence[Any]) -> ByRole:
    """Numbers in the order of `Convolved.dimensions` by their roles."""
    rank = (len(values) - 4) // 2
    groups, batch, *rest = values
    *between, out_channels = rest
    return ByRole(groups, batch, tuple(between[:rank]), between[rank], tuple(between[rank + 1 :]), out_channels)


def cuts_of_phase(cuts: Sequence[Cut], phase: Sequence[Phase]) -> tuple[Cut, ...]:
    """The cuts of one phase: of fewer results perhaps, and of its taps, which are not cut where there are several."""
    rank = len(phase)
    own = list(cuts)
    for d, one in enumerate(phase):
        field, kernel = cuts[2 + d], cuts[3 + rank + d]
        own[2 + d] = Cut(field.name, one.count, min(field.block, one.count), min(field.grain, one.count))
        own[3 + rank + d] = kernel if kernel.extent == one.taps else whole(kernel.name, max(1, one.taps))
    return tuple(own)


# --- codelets ---------------------------------------------------------------------------------------------


def _sizes_of_patches(static: Mapping[str, Any], ranks: Sequence[int]) -> SizeNames:
    steps, places = static["dilations"], range(ranks[0] - 2)
    images, kernels = (tuple(f"{name}{d}" for d in places) for name in "xw")
    limits = tuple((f"x{d}", f"{steps[d]}*w{d} + {1 - steps[d]}") for d in places)
    return SizeNames((("batch", "channels", *images), ("results", "channels", *kernels)), limits)


@both
@sizes_named(_sizes_of_patches)
def convolve(x, w, *, strides, dilations, partials, dtype):
    """A patch of results: images (batch, channels, field) by kernels (results, channels, taps)."""
    found = lax.conv_general_dilated(
        x, w, strides, "VALID", rhs_dilation=dilations, preferred_element_type=jnp.dtype(partials)
    )
    return found.astype(dtype)


@both
@sizes_named(lambda _, ranks: SizeNames(tuple((name, *(f"w{d}" for d in range(1, ranks[0]))) for name in "xw")))
def multiply_windows(x, w, *, partials, dtype):
    """Results at one position: windows (batch, channels, taps) by kernels (results, channels, taps)."""
    summed = tuple(range(1, x.ndim))
    return lax.dot_general(x, w, ((summed, summed), ((), ())), preferred_element_type=jnp.dtype(partials)).astype(dtype)


@codelet(issue="assembly")
@sizes_named(lambda _, ranks: SizeNames((tuple(f"w{d}" for d in range(ranks[0])),) * 2))
def multiply_window(x, w, *, partials, dtype):
    """One result: a window (channels, taps) by a kernel."""
    every = tuple(range(x.ndim))
    return lax.dot_general(x, w, ((every, every), ((), ())), preferred_element_type=jnp.dtype(partials)).astype(dtype)


CODELETS: dict[Kind, Pair] = {
    "patch": convolve,
    "position": multiply_windows,
    "element": Pair(multiply_window, multiply_window),
}
"""By what a vertex makes; no workers share what makes one result."""


def codelets_named(name: object) -> tuple[Kind, Pair]:
    """The results of the vertices of codelets of a name, and these."""
    return next((kind, own) for kind, own in CODELETS.items() if own.shared.name == name)


def static_values(own: Convolved, kind: Kind, dtype: np.dtype) -> dict[str, Any]:
    """The static values of a codelet that makes results of a dtype."""
    values: dict[str, Any] = {"partials": own.partials.name, "dtype": dtype.name}
    if kind == "patch":
        values["strides"] = tuple(field.stride for field in own.fields)
        values["dilations"] = tuple(field.step for field in own.fields)
    return values
