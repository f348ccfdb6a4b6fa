"""Structure: what two plans have in common when they compute the same thing in the same way."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from codelet.graphs.family import Family
from codelet.programs.copies import Stream
from codelet.tracing.traced_codelet import TracedCodelet
from codelet.views.grids import Axis
from codelet.views.index import Index
from codelet.views.sources import Source, Variable
from codelet.views.tensor import Tensor
from lowering.plan.plan import Plan
from lowering.plan.steps import ExecuteStep, FunctionBody


def array_key(array: np.ndarray | None) -> Hashable:
    """What two arrays have in common that are the same: shape, dtype and a digest."""
    if array is None:
        return None
    numbers = np.ascontiguousarray(array).reshape(-1).view(np.uint8)  # not `tobytes`, which would copy
    digest = hashlib.blake2b(numbers.data, digest_size=16).digest()
    return array.shape, array.dtype.name, digest


def _index_key(index: Index | None, axes: tuple[Axis, ...]) -> Hashable:
    if index is None:
        return None
    name = lambda key: key if isinstance(key, int) else f"axis {axes.index(key)}"  # noqa: E731
    symbols = tuple((axes.index(axis), coefficient) for axis, coefficient in index.symbols)
    tables = tuple((tuple(map(name, t.keys)), array_key(t.values), t.scale) for t in index.tables)
    return index.offset, index.shape, index.strides, symbols, tables


def _number(variable: Variable) -> Hashable:
    return variable.number


def _source_key(source: Source, name: Callable[[Variable], Hashable]) -> Hashable:
    if isinstance(source, Variable):
        return name(source)
    # Values as bytes, since a NaN is not equal to itself.
    return source.shape, tuple(
        (name(p.variable) if p.variable else p.value.tobytes(), _index_key(p.index, ()), _index_key(p.places, ()))
        for p in source.patches
    )


def tensor_key(
    tensor: Tensor | None, axes: tuple[Axis, ...], name: Callable[[Variable], Hashable] = _number
) -> Hashable:
    """What two views have in common that name the same elements.

    Args:
        tensor: a view; None for none.
        axes: the axes of the grid, which are told apart by their places.
        name: of a variable. Default: its number, by which it is this one of its graph.
    """
    if tensor is None:
        return None
    rows = tensor.rows
    ragged = rows and (tensor.ragged_dimension, tuple(map(axes.index, rows.axes)), rows.count, rows.digest)
    return _source_key(tensor.source, name), _index_key(tensor.index, axes), ragged


def family_key(family: Family) -> Hashable:
    connected = tuple(
        (
            field.name,
            field.kind,
            field.type,
            tensor_key(field.tensor, family.axes),
            field.state and (_index_key(field.state.index, family.axes), array_key(field.state.array)),
        )
        for field in family.fields
    )
    return family.codelet, family.extents, connected


_FOUND = ("reads", "writes", "line", "carried", "kept", "turns")
"""What of a step follows from the rest of it, says where it was written, or is for profiles alone."""


class _StepKeys:
    """The keys of what steps are made of; that of a function is made once."""

    def __init__(self) -> None:
        self.functions: dict[FunctionBody, Hashable] = {}

    def of(self, own: Any) -> Hashable:
        """What two steps, or parts of them, have in common that do the same."""
        match own:
            case Tensor():
                return tensor_key(own, ())
            case Variable():
                return "variable", own.number  # a number may stand where a variable may
            case Stream():
                return "stream", own.name
            case TracedCodelet():
                return own  # one object for equal types, as in `family_key`
            case ExecuteStep():
                return tuple(map(family_key, own.families))
            case FunctionBody() if own in self.functions:
                return self.functions[own]
            case tuple():
                return tuple(map(self.of, own))
        if not is_dataclass(own):
            return own
        made_of = [getattr(own, field.name) for field in fields(own) if field.name not in _FOUND]
        key = type(own).__name__, *map(self.of, made_of)
        if isinstance(own, FunctionBody):
            self.functions[own] = key
        return key


def structure(plan: Plan) -> Hashable:
    """What two plans have in common when they compute the same thing from the same inputs in the same way."""
    variables = tuple((v.name, v.shape, v.dtype.name, array_key(v.value)) for v in plan.variables)
    return (
        variables,
        tuple(variable.number for variable in plan.inputs),
        tuple(tensor_key(tensor, ()) for tensor in plan.outputs),
        tuple(map(_StepKeys().of, plan.steps)),
        plan.messages,
        tuple((stream.name, stream.shape, stream.dtype.name) for stream in plan.streams),
    )
