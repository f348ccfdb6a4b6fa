"""Structure: what two plans have in common when they compute the same thing in the same way."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable

import numpy as np

from codelet.graphs.family import Family
from codelet.views.grids import Axis
from codelet.views.index import Index
from codelet.views.sources import Source, Variable
from codelet.views.tensor import Tensor
from lowering.plan.plan import Plan
from lowering.plan.steps import (
    AbortStep,
    CallStep,
    CopyStep,
    ExecuteStep,
    FunctionBody,
    PrintStep,
    RepeatStep,
    RotateStep,
    Step,
    StreamStep,
    SwitchStep,
    UndefStep,
    WhileStep,
    bodies,
)


def _array_key(array: np.ndarray | None) -> Hashable:
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
    tables = tuple((tuple(map(name, t.keys)), _array_key(t.values), t.scale) for t in index.tables)
    return index.offset, index.shape, index.strides, symbols, tables


def _source_key(source: Source) -> Hashable:
    if isinstance(source, Variable):
        return source.number
    # Values as bytes, since a NaN is not equal to itself.
    return source.shape, tuple(
        (p.variable.number if p.variable else p.value.tobytes(), _index_key(p.index, ()), _index_key(p.places, ()))
        for p in source.patches
    )


def _tensor_key(tensor: Tensor | None, axes: tuple[Axis, ...]) -> Hashable:
    if tensor is None:
        return None
    rows = tensor.rows
    ragged = rows and (tensor.ragged_dimension, tuple(map(axes.index, rows.axes)), _array_key(rows.offsets))
    return _source_key(tensor.source), _index_key(tensor.index, axes), ragged


def _family_key(family: Family) -> Hashable:
    fields = tuple(
        (
            field.name,
            field.kind,
            field.type,
            _tensor_key(field.tensor, family.axes),
            None
            if field.state is None
            else (_index_key(field.state.index, family.axes), _array_key(field.state.array)),
        )
        for field in family.fields
    )
    return family.codelet, family.extents, fields


class _Keys:
    """The keys of steps; that of a function is made once."""

    def __init__(self) -> None:
        self.functions: dict[FunctionBody, Hashable] = {}

    def of(self, step: Step) -> Hashable:
        """What two steps have in common that do the same."""
        kind, inner = type(step).__name__, tuple(tuple(map(self.of, body)) for body in self._bodies(step))
        match step:
            case ExecuteStep():
                return tuple(map(_family_key, step.families))
            case CopyStep():
                return kind, _tensor_key(step.source, ()), _tensor_key(step.destination, ())
            case RotateStep():
                return kind, tuple(variable.number for variable in step.variables)
            case RepeatStep():
                return kind, step.count, inner, step.index and step.index.number
            case WhileStep():
                return kind, _tensor_key(step.predicate, ()), step.until, step.max_steps, inner
            case SwitchStep():
                return kind, _tensor_key(step.control, ()), step.values, inner
            case CallStep():
                return kind, self._function(step.function), tuple(_tensor_key(t, ()) for t in step.arguments)
            case PrintStep():
                return kind, _tensor_key(step.tensor, ()), step.text
            case AbortStep():
                return kind, _tensor_key(step.predicate, ()), step.code
            case StreamStep():
                return kind, step.stream.name, _tensor_key(step.tensor, ())
            case UndefStep():
                return kind, _tensor_key(step.tensor, ())
        raise AssertionError(step)

    def _bodies(self, step: Step) -> tuple[tuple[Step, ...], ...]:
        return () if isinstance(step, CallStep) else bodies(step)

    def _function(self, function: FunctionBody) -> Hashable:
        if function not in self.functions:
            body = tuple(map(self.of, function.body))
            self.functions[function] = function.name, tuple(p.number for p in function.parameters), body
        return self.functions[function]


def structure(plan: Plan) -> Hashable:
    """What two plans have in common when they compute the same thing from the same inputs in the same way."""
    variables = tuple((v.name, v.shape, v.dtype.name, _array_key(v.value)) for v in plan.variables)
    return (
        variables,
        tuple(variable.number for variable in plan.inputs),
        tuple(_tensor_key(tensor, ()) for tensor in plan.outputs),
        tuple(map(_Keys().of, plan.steps)),
        plan.messages,
        tuple((stream.name, stream.shape, stream.dtype.name) for stream in plan.streams),
    )
