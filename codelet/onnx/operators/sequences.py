"""Sequences and optional values: they are put together when the model is traced, as Python has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from codelet.onnx.node import OnnxNode
from codelet.onnx.operator_table import operator
from codelet.onnx.operators.shapes import host_shape


def _place(node: OnnxNode, position: Any, several: Sequence[Any], last: int) -> int:
    place = last if position is None else node.whole_numbers(position, "position")[0]
    if not -len(several) <= place <= len(several):
        raise node.error(
            "a place that the sequence has not", given=place, expected=f"{-len(several)} to {len(several)}"
        )
    return place


@operator("SequenceEmpty")
def sequence_empty(node: OnnxNode) -> list[Any]:
    """A sequence of nothing."""
    return []


@operator("SequenceConstruct", sees_constants=True)
def sequence_construct(node: OnnxNode, *operands: Any) -> list[Any]:
    """A sequence of some arrays."""
    return list(operands)


@operator("SequenceInsert", fixed=(2,), sees_constants=True)
def sequence_insert(node: OnnxNode, several: list[Any], x: Any, position: Any = None) -> list[Any]:
    """A sequence with one more."""
    place = _place(node, position, several, len(several))
    return [*several[:place], x, *several[place:]]


@operator("SequenceErase", fixed=(1,))
def sequence_erase(node: OnnxNode, several: list[Any], position: Any = None) -> list[Any]:
    """A sequence with one less."""
    place = _place(node, position, several, -1) % max(1, len(several))
    return [*several[:place], *several[place + 1 :]]


@operator("SequenceAt", fixed=(1,))
def sequence_at(node: OnnxNode, several: list[Any], position: Any) -> Any:
    """One of a sequence."""
    place = _place(node, position, several, 0)
    if place == len(several):
        raise node.error("a place that the sequence has not", given=place, expected=f"less than {len(several)}")
    return several[place]


@operator("SequenceLength")
def sequence_length(node: OnnxNode, several: list[Any]) -> np.ndarray:
    """How many there are."""
    return np.array(len(several), np.int64)


@operator("ConcatFromSequence")
def concat_from_sequence(node: OnnxNode, several: list[Any]) -> Any:
    """Those of a sequence, one after another or stacked."""
    axis = node.attribute("axis")
    return jnp.stack(several, axis) if node.attribute("new_axis", 0) else jnp.concatenate(several, axis)


@operator("SplitToSequence", fixed=(1,))
def split_to_sequence(node: OnnxNode, x: Any, sizes: Any = None) -> list[Any]:
    """Parts along an axis as a sequence."""
    axis = node.axis(node.attribute("axis", 0), x)
    extent = x.shape[axis]
    if sizes is None:
        parts = [1] * math.prod(host_shape(node, extent))
    elif np.ndim(node.known(sizes, "split")) == 0:
        (each,) = node.whole_numbers(sizes, "split")
        host_shape(node, extent // max(1, each))
        parts = [min(each, extent - k) for k in range(0, extent, each)]
    else:
        parts = node.whole_numbers(sizes, "split")
    result = jnp.split(x, np.cumsum(parts)[:-1].tolist(), axis)
    drops = sizes is None and not node.attribute("keepdims", 1)
    return [jnp.squeeze(item, axis) for item in result] if drops else list(result)


@operator("SequenceMap", is_folded=False, sees_constants=True)
def sequence_map(node: OnnxNode, several: list[Any], *operands: Any) -> tuple[list[Any], ...]:
    """A graph for each of a sequence."""
    output = [
        node.attribute("body")(item, *(other[k] if isinstance(other, list) else other for other in operands))
        for k, item in enumerate(several)
    ]
    return tuple(list(kind) for kind in zip(*output, strict=True))


@operator("Optional", sees_constants=True)
def optional(node: OnnxNode, value: Any = None) -> Any:
    """A value, or none."""
    return value


@operator("OptionalHasElement")
def optional_has_element(node: OnnxNode, value: Any = None) -> np.ndarray:
    """Whether there is one."""
    return np.array(value is not None)


@operator("OptionalGetElement")
def optional_get_element(node: OnnxNode, value: Any) -> Any:
    """The value there is."""
    if value is None:
        raise node.error("there is no value", given="an optional value that is absent", expected="one that is present")
    return value
