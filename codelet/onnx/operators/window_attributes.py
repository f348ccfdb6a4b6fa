"""WindowSizes of convolutions and poolings: their sizes, strides, dilations and padding, as attributes say them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from codelet.onnx.node import OnnxNode


class WindowSizes(NamedTuple):
    """WindowSizes along each dimension.

    Attributes:
        sizes, strides, dilations: of each.
        pads: how many elements more there are before and behind.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]

    @property
    def extents(self) -> tuple[int, ...]:
        """The extent of a window, its gaps included."""
        return tuple((n - 1) * d + 1 for n, d in zip(self.sizes, self.dilations, strict=True))


def windows_of(node: OnnxNode, shape: Sequence[int], sizes: Sequence[int]) -> WindowSizes:
    """The windows of a node over positions of some shape."""
    rank = len(shape)
    strides = tuple(node.attribute("strides") or [1] * rank)
    dilations = tuple(node.attribute("dilations") or [1] * rank)
    item = WindowSizes(tuple(sizes), strides, dilations, ())
    if len(item.sizes) != rank or len(strides) != rank or len(dilations) != rank:
        raise node.error(
            "its windows have other dimensions than what it reads", given=list(sizes), expected=f"{rank} dimensions"
        )
    how = node.attribute("auto_pad", "NOTSET")
    if how in ("SAME_UPPER", "SAME_LOWER"):
        totals = [max(0, (-(-n // s) - 1) * s + e - n) for n, s, e in zip(shape, strides, item.extents, strict=True)]
        small = [(t // 2, t - t // 2) for t in totals]
        return item._replace(pads=tuple(small if how == "SAME_UPPER" else [(b, a) for a, b in small]))
    pads = (None if how == "VALID" else node.attribute("pads")) or [0] * 2 * rank
    return item._replace(pads=tuple(zip(pads[:rank], pads[rank:], strict=True)))


def rounded_up(node: OnnxNode, windows: WindowSizes, shape: Sequence[int]) -> WindowSizes:
    """WindowSizes with the padding that the last of them need behind, where results are rounded up.

    None begins in the padding behind.
    """
    if not node.attribute("ceil_mode", 0) or node.attribute("auto_pad", "NOTSET") != "NOTSET":
        return windows
    pads = []
    for n, e, s, (a, b) in zip(shape, windows.extents, windows.strides, windows.pads, strict=True):
        count = -(-(n + a + b - e) // s) + 1
        count -= (count - 1) * s >= n + a
        pads.append((a, max(b, (count - 1) * s + e - n - a)))
    return windows._replace(pads=tuple(pads))
