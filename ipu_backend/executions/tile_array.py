"""The tile array: a program run as the machine would, on one array of tiles by words for each variable.

In come a placed plan and the values of its variables. In every compute set each tile first receives, once each, the
elements that its vertices read and that live elsewhere; then all tiles compute, each from its row of words and from
nothing else; then what they wrote of elements that live elsewhere is sent home. What is received stands in an array
with a row for each tile that computes, beside copies of what the tile has of the same variable, and where a tile has
everything it computes from its words as they are. So an exchange is one gather from the arrays of variables, and from
there on everything goes row by row under `jax.vmap` over the tiles: that no tile sees another's row is in the shape of
the code.

The tables of what goes where are `tile_steps.py`'s, and arguments of what is compiled. On a tile the vertices are
lanes; a field is an operand over the lane axes that it depends on alone, so that dot products of all pairs of
some images and some rows of weights are one matrix product.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet.graphs.family import Family
from codelet.hostcopies import on_device
from codelet.tracing.traced_codelet import TracedCodelet
from codelet.views.grids import Axis, Grid, Key
from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import Tensor
from ipu_backend.executions.tile_copies import CopySet, Taking, plan_copy, plan_putting, plan_taking
from ipu_backend.executions.tile_layout import Layouts, NewWords, joined, rows_of
from ipu_backend.executions.tile_receiving import Bringing
from ipu_backend.executions.tile_steps import ComputeSet, Operand, Result, TileBatch, plan_compute_set
from lowering.arrays import SMALL, Array, Arrays, arranged, constant, reshape, transpose
from lowering.fast.execution import Execution
from lowering.fast.over_grid import mapped_axes, over_grid
from lowering.fast.steps import emit
from lowering.fast.unbatched import telling_unbatched
from lowering.jaxprs.simplify import trace_simplified
from lowering.machine.exchange import Exchange
from lowering.machine.placement import Placement
from lowering.plan.plan import Plan
from lowering.plan.steps import CopyStep, ExecuteStep
from lowering.plan.streams import fed_types

Field = tuple[Any, tuple[Key, ...]]
"""A field of vertices: an array, with a key for each of its dimensions."""

# --- computing ------------------------------------------------------------------------------------------


def _known(value: np.ndarray) -> Any:
    return value if value.size <= SMALL else constant(value)


def bring(bringing: Bringing, held: Sequence[Array]) -> Array:
    """The words that each tile computes from, (rows, words)."""
    if bringing.words is None:
        array = rows_of(held[0], bringing.rows)
    else:
        array = bringing.words.of(joined(held))
    if bringing.padding:
        array = with_padding(array, bringing.padding)
    return array


def with_padding(array: Array, padding: Sequence[Any]) -> Array:
    """Rows with values of padding behind each."""
    behind = np.stack(padding)
    return jnp.concatenate([array, jnp.broadcast_to(behind, (len(array), len(behind)))], 1)


def constant_operand(value: np.ndarray, keys: tuple[Key, ...], row: Axis, dimensions: tuple[int, ...]) -> Field:
    """A constant over rows, some lane axes and its dimensions, without what it does not vary along."""
    if not value.size:
        return jnp.zeros(value.shape[1 + len(keys) :], value.dtype), dimensions
    if not keys and (value == value[:1]).all():
        return _known(value[0]), dimensions
    return _known(value), (row, *keys, *dimensions)


def _operand(
    operand: Operand, brought: Sequence[Array], rows: np.ndarray | None, row: Axis, lanes: Sequence[Axis]
) -> Field:
    """A field of a batch."""
    keys, dimensions = tuple(lanes[k] for k in operand.groups), operand.dimensions
    if operand.places is not None:
        assert operand.bringing is not None
        array = operand.places.of(rows_of(brought[operand.bringing], rows))
        return array, (row, *keys, *dimensions)
    assert operand.value is not None
    return constant_operand(operand.value, keys, row, dimensions)


def over_rows(codelet: TracedCodelet, axes: Sequence[Axis], operands: Sequence[Field]) -> dict[str, Array]:
    """What vertices write, by the field: (rows, lanes..., *field).

    Args:
        codelet: what they run.
        axes: that of rows, and those of lanes.
        operands: for each of its inputs.
    """
    mapped = mapped_axes([keys for _, keys in operands], axes)
    with telling_unbatched(codelet):
        results = over_grid(codelet.jaxpr, operands, mapped)
    found = {}
    for (name, kind), result in zip(codelet.outputs.items(), results, strict=True):
        own = tuple(range(len(kind.shape)))
        shape = (*(axis.extent for axis in axes), *result.shape[len(mapped) :])
        found[name] = arranged(result, (*mapped, *own), (*axes, *own), shape)
    return found


def compute(batch: TileBatch, brought: Sequence[Array]) -> dict[str, Array]:
    """What each tile's vertices write, by the field: (rows, lanes..., *field)."""
    codelet, lanes = batch.batch.codelet, batch.lanes
    row, *axes = Grid([range(len(lanes.tiles)), *map(range, lanes.lengths)]).axes
    operands = [_operand(batch.operands[name], brought, batch.rows, row, axes) for name in codelet.inputs]
    return over_rows(codelet, (row, *axes), operands)


def taken_result(results: Sequence[dict[str, Array]], result: Result) -> Array:
    """What a batch has computed, over rows and lanes, with its dimensions in order."""
    array = results[result.batch][result.name]
    over = array.ndim - len(result.dimensions)
    return transpose(array, [*range(over), *(over + d for d in result.dimensions)])


# --- the execution --------------------------------------------------------------------------------------


def digest(placement: Placement) -> str:
    """What placements of one plan have in common that are the same."""
    made = hashlib.blake2b(np.ascontiguousarray(placement.element_tiles, np.int32).data, digest_size=16)
    for tiles in placement.vertex_tiles.values():
        made.update(np.ascontiguousarray(tiles).data)
    return made.hexdigest()


def logical(plan: Plan, execution: Execution) -> Callable[..., list[Array]]:
    """A checked plan as a function from the values of its inputs, which it loads, to those of its outputs."""
    run = emit(plan, execution)

    def function(*arrays: Array) -> list[Array]:
        loaded = [execution.load(v, array) for v, array in zip(plan.inputs, arrays, strict=False)]
        results = run(*loaded, *arrays[len(loaded) :])
        for k, tensor in enumerate(plan.outputs):
            if tensor.is_whole_variable:
                assert isinstance(tensor.source, Variable)
                results[k] = execution.unload(tensor.source, results[k])
        return results

    return function


def logical_types(plan: Plan) -> list[jax.ShapeDtypeStruct]:
    """The shapes and dtypes of what `logical` takes."""
    return [*(jax.ShapeDtypeStruct(v.shape, v.dtype) for v in plan.inputs), *fed_types(plan)]


class TileArray(Execution):
    """Variables as arrays of tiles by words, by a placement; see the module's docstring.

    The array of every variable has a row for each tile on which anything lives, the same rows for all, and as many
    words as the tile with most of it has elements. A variable on few of many tiles takes as much as if it filled them
    all, so far at most what the memory of so many tiles is.

    Args:
        exchange: what the plan moves that will be run, or more.
    """

    def __init__(self, exchange: Exchange):
        self.exchange = exchange
        self.placement = placement = exchange.placement
        self.layouts = Layouts(placement)
        self.key = "tiles", digest(placement)
        self._compute_sets: dict[tuple[Family, ...], ComputeSet] = {}
        self._copies: dict[CopyStep, CopySet] = {}

    def compute_set(self, step: ExecuteStep) -> ComputeSet:
        """The tables of a step."""
        if step.families not in self._compute_sets:
            self._compute_sets[step.families] = plan_compute_set(step.families, self.layouts, self.exchange.of(step))
        return self._compute_sets[step.families]

    def copy_set(self, step: CopyStep) -> CopySet:
        """The tables of a copy."""
        if step not in self._copies:
            self._copies[step] = plan_copy(step, self.layouts, self.exchange.of(step).before)
        return self._copies[step]

    def load(self, variable: Variable, array: Array) -> Array:
        """The array of tiles by words of a variable, from its value."""
        if variable not in self.layouts:
            return array
        array = on_device(array)
        return self.layouts.loading(variable).of(reshape(array, (array.size,)))

    def unload(self, variable: Variable, held: Array) -> Array:
        """The value of a variable, from its array of tiles by words."""
        if variable not in self.layouts:
            return held
        return self.layouts.unloading(variable).of(reshape(held, (held.size,)))

    def held_shape(self, variable: Variable) -> tuple[int, ...]:
        """The shape of the stored form of a variable."""
        return self.layouts.of(variable).shape if variable in self.layouts else variable.shape

    def blank(self, variable: Variable) -> Array:
        """The stored form of a variable that has no value yet: zeros."""
        return jax.device_put(np.zeros(self.held_shape(variable), variable.dtype))

    def held(self, arrays: Arrays, variable: Variable) -> Array:
        """The array of a variable, zeros where it has no value yet."""
        if variable not in arrays:
            arrays[variable] = jnp.zeros(self.held_shape(variable), variable.dtype)
        return arrays[variable]

    def _source(self, arrays: Arrays, source: Bringing | Taking) -> list[Array]:
        """What is brought to tiles; or all that elements are taken from, wherever it is."""
        parts = [self.held(arrays, variable) for variable in source.variables]
        if isinstance(source, Bringing):
            return [bring(source, parts)]
        return parts + ([constant(np.stack(source.padding))] if source.padding else [])

    def _put(self, arrays: Arrays, putting: NewWords, parts: Sequence[Array]) -> Array:
        """The array of a variable, some of its words from elsewhere."""
        kept = [self.held(arrays, putting.variable)] if putting.keeps else []
        return putting.words.of(joined([*parts, *kept]))

    def read(self, arrays: Arrays, tensor: Tensor) -> Array:
        """The value of a view without symbols."""
        if not tensor.size:
            return jnp.zeros(tensor.shape, tensor.dtype)
        if any(variable not in self.layouts for variable in source_variables(tensor.source)):
            return super().read(arrays, tensor)
        taking, words = plan_taking(tensor, self.layouts)
        return words.of(joined(self._source(arrays, taking)))

    def write(self, arrays: Arrays, tensor: Tensor, value: Array) -> None:
        """Write a value to a view without symbols. The arrays are changed."""
        arrays.update({own.variable: self._put(arrays, own, [value]) for own in plan_putting(tensor, self.layouts)})

    def copy(self, arrays: Arrays, step: CopyStep) -> None:
        """Copy a view to another, from tile to tile. The arrays are changed."""
        if step.source.size:
            plan = self.copy_set(step)
            parts = self._source(arrays, plan.source)
            arrays.update({own.variable: self._put(arrays, own, parts) for own in plan.puttings})

    def execute(self, arrays: Arrays, step: ExecuteStep) -> None:
        """Run a compute set: tiles receive, compute, and send home. The arrays are changed."""
        plan = self.compute_set(step)
        brought = [self._source(arrays, own)[0] for own in plan.bringings]
        results = [compute(batch, brought) for batch in plan.batches]
        for own in plan.storings:
            parts = [taken_result(results, result) for result in own.results]
            arrays[own.putting.variable] = self._put(arrays, own.putting, parts)

    def compile_held(self, plan: Plan) -> jax_core.ClosedJaxpr:
        """The jaxpr of a checked plan from the stored form of its inputs to that of its outputs."""
        structs = [jax.ShapeDtypeStruct(self.held_shape(variable), variable.dtype) for variable in plan.inputs]
        return trace_simplified(emit(plan, self), *structs, *fed_types(plan), inputs="apart")

    def compile_logical(self, plan: Plan) -> jax_core.ClosedJaxpr:
        """The jaxpr of a checked plan from the values of its inputs, which it loads, to those of its outputs."""
        return trace_simplified(logical(plan, self), *logical_types(plan), inputs="apart")
