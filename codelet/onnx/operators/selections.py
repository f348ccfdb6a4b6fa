"""Selections whose size depends on data: of known arrays alone, when the model is traced."""

from __future__ import annotations

from typing import Any

import numpy as np

from codelet.onnx.node import OnnxNode
from codelet.onnx.operator_table import operator


@operator("Unique", fixed=(0,))
def unique(node: OnnxNode, x: Any) -> tuple[Any, ...]:
    """The different elements, or slices, of a known array; where each is first, which each is, and how often."""
    known, axis = node.known(x, "X"), node.attribute("axis")
    by = known.reshape(-1) if axis is None else np.moveaxis(known, axis, 0)
    _, first, inverse, counts = np.unique(by, True, True, True, axis=0)
    inverse = inverse.reshape(-1)
    if not node.attribute("sorted", 1):
        order = np.argsort(first)
        first, counts, inverse = first[order], counts[order], np.argsort(order)[inverse]
    values = by[first]
    values = values if axis is None else np.moveaxis(values, 0, axis)
    return values, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


def _corners(boxes: np.ndarray, centred: bool) -> np.ndarray:
    """The least and the greatest corner of each box, along two dimensions: (boxes, 2, 2)."""
    halves = boxes.reshape(-1, 2, 2)
    if centred:
        return np.stack([halves[:, 0] - halves[:, 1] / 2, halves[:, 0] + halves[:, 1] / 2], 1)
    return np.sort(halves, 1)


def _overlaps(corners: np.ndarray, box: int, rest: np.ndarray) -> np.ndarray:
    """The intersection of a box with each of the rest, divided by their union; 0 where either has no area."""
    low = np.maximum(corners[box, 0], corners[rest, 0])
    high = np.minimum(corners[box, 1], corners[rest, 1])
    common = np.prod(np.maximum(high - low, 0), 1)
    areas = np.prod(corners[:, 1] - corners[:, 0], 1)
    union = areas[box] + areas[rest] - common
    counts = (areas[box] > 0) & (areas[rest] > 0) & (union > 0)
    return np.divide(common, union, out=np.zeros_like(common), where=counts)


@operator("NonMaxSuppression", fixed=(0, 1, 2, 3, 4))
def non_max_suppression(node: OnnxNode, boxes: Any, scores: Any, *limits: Any) -> np.ndarray:
    """The boxes of each class that overlap none of a higher score; of known boxes."""
    boxes, scores = node.known(boxes, "boxes"), node.known(scores, "scores")
    names = ("max_output_boxes_per_class", "iou_threshold", "score_threshold")
    most, overlap, least = (
        None if limit is None else node.known(limit, name).reshape(-1)[0]
        for name, limit in zip(names, (*limits, None, None, None), strict=False)
    )
    chosen = []
    for image, classes in enumerate(scores):
        corners = _corners(boxes[image], bool(node.attribute("center_point_box", 0)))
        for number, each in enumerate(classes):
            order = np.argsort(-each, kind="stable")
            left = order if least is None else order[each[order] > least]
            for _ in range(max(0, int(most or 0))):
                if not left.size:
                    break
                chosen.append((image, number, left[0]))
                rest = left[1:]
                left = rest[_overlaps(corners, left[0], rest) <= (overlap or 0)]
    return np.array(chosen, np.int64).reshape(-1, 3)
