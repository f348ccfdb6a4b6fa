"""Indexing by numbers that are known late: `gather` and `scatter` as in `jax.lax`, with their gradients.

In come tensors and dimension numbers; both become one form (`slice_forms.py`), whose columns may be cut over tiles
(`lookup_planning.py`). `lookups.py` has the usual ones by name.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.graphs.stages import Block, Cut
from codelet.ops.arguments import check_tensors, checked_grain
from codelet.ops.block_planning import plan_sum
from codelet.ops.blocks import add_blocks
from codelet.ops.elementwise import map
from codelet.ops.followed import follow
from codelet.ops.homes import settle
from codelet.ops.lookup_codelets import (
    SCATTERS,
    gather_block,
    gather_rows,
    laid_out,
    positions,
    scatter_block,
    scatter_block_on_zeros,
    scatter_rows,
    scatter_rows_on_zeros,
)
from codelet.ops.lookup_planning import Array, Lookup, columns_of, plan_lookup, rows_to_lay_out
from codelet.ops.partials import sum_partials
from codelet.ops.planning import MEMORY_FRACTION, Plan
from codelet.ops.schema import checked
from codelet.ops.slice_forms import SliceForm, gather_form, scatter_form
from codelet.tracing.codelets import Codelet
from codelet.views.tensor import Tensor

Mode = lax.GatherScatterMode

# --- how it is added ----------------------------------------------------------------------------------------


MOST_IN_PARTS = 1 << 16
"""Elements of what is looked up, up to which its gradient is made in parts, of some of the indices each: fast execution
makes every part, and of larger ones that takes far longer than the whole."""


def checked_mode(name: str, mode: Any) -> str:
    """A mode of indices that lead beyond the ends.

    Raises:
        OperationError: one that there is not.
    """
    try:
        own = Mode.from_any(mode)
        return {Mode.CLIP: "clip", Mode.FILL_OR_DROP: "fill", Mode.PROMISE_IN_BOUNDS: "promise_in_bounds"}[own]
    except (KeyError, ValueError, TypeError):
        raise OperationError(
            f"mode of ops.{name} is unknown", given=repr(mode), expected="'clip', 'fill' or 'promise_in_bounds'"
        ) from None


def _columns_first(graph: Graph, name: str, array: Array, cuts: Sequence[Cut]) -> Tensor:
    """A new array whose columns, where they are cut, lie one after another: those of a vertex are few whole runs."""
    columns = columns_of(array, cuts)
    order = [*columns, *(d for d in range(len(array.shape)) if d not in columns)]
    made = graph.add_variable(name, tuple(array.shape[d] for d in order), array.dtype)
    return made.transpose([order.index(d) for d in range(len(order))])


def _laid_out(graph: Graph, own: Lookup, cuts: Sequence[Cut], operand: Tensor) -> Tensor:
    """The indexed array, with its columns one after another where vertices have some of them: moved row by row."""
    found = rows_to_lay_out(own, cuts, graph.target.num_tiles)
    if found is None:
        return operand
    (d, cut), made = found, _columns_first(graph, "columns", own.reads[0], cuts)

    def fields(rows: Block) -> dict[str, Any]:
        view = (slice(None),) * d + (rows.elements,)
        return {"rows": operand[view], "out": made[view]}

    add_blocks(graph, "lay out", laid_out, [cut], fields)
    return made


def _add(
    graph: Graph, codelet: Codelet, own: Lookup, fields: dict[str, Tensor], grain: int | None, share: float
) -> Tensor:
    """The vertices of a planned lookup."""
    arrays = [*((array.name, array) for array in own.reads), ("out", own.writes)]
    if 0 in own.writes.shape:
        return graph.add_variable("out", own.writes.shape, own.writes.dtype)
    cuts = follow(plan_lookup(graph.target, own, codelet, grain, share)).cuts
    chosen, static, parts = own.codelet(cuts, codelet), dict(own.static), own.num_partials(cuts)
    numbers = [cuts[k].vertices for k in own.summed]
    rows = own.names.index("rows") if own.num_blocks(cuts) > 1 else None
    if rows is not None and static["mode"] == "clip":
        fields = {**fields, "indices": _clipped(graph, fields["indices"], own.extents[rows])}
    out = _columns_first(graph, "out", own.writes, cuts)
    settle(out)
    written = graph.add_variable("of blocks", (*numbers, *out.shape), out.dtype) if parts > 1 else out
    if "operand" in fields:
        fields = {**fields, "operand": _laid_out(graph, own, cuts, fields["operand"])}
    tensors = {**fields, "out": written}

    def of_blocks(*blocks: Block) -> dict[str, Any]:
        named: dict[str, Any] = dict(static)
        for field, array in arrays:
            cut = dict(array.dimensions)
            view = tuple(blocks[cut[d]].elements if d in cut else slice(None) for d in range(len(array.shape)))
            number = [blocks[k].number for k in own.summed] if field == "out" and parts > 1 else ()
            named[field] = tensors[field][(*number, *view)]
        if rows is not None:
            named["first"] = blocks[rows].elements.start
        if "shape" in chosen.static:
            named["shape"] = named["out"].shape
        return named

    add_blocks(graph, own.name, chosen, cuts, of_blocks)
    if parts > 1:
        plan = plan_sum(graph.target, parts, out.size, out.dtype, out.dtype)
        sum_partials(graph, written.reshape(parts, out.size), out.flatten(), plan)
        if rows is not None and static["mode"] == "fill" and static.get("fill_value", 0) != 0:
            return _filled(graph, out, fields["indices"], own.extents[rows], static["fill_value"])
    return out


def within(index, *, extent):
    """An index that leads beyond the ends as that of the end."""
    return jnp.clip(positions(index), 0, extent - 1)


def chosen(own, index, *, extent, value):
    """The gathered elements, or a value where their index is out of range."""
    index = positions(index)
    return jnp.where((index >= 0) & (index < extent), own, jnp.asarray(value, own.dtype))


def counted(index, *, extent):
    """An index counted from the beginning."""
    index = positions(index)
    return jnp.where(index < 0, index + extent, index)


def _clipped(graph: Graph, indices: Tensor, extent: int) -> Tensor:
    """Indices that lead beyond the ends as those of the ends."""
    return map(graph, functools.partial(within, extent=extent), indices, name="clip")


def _filled(graph: Graph, made: Tensor, indices: Tensor, extent: int, value: Any) -> Tensor:
    """The gathered elements, with a value where indices are out of range."""
    if value is None:
        integers = jnp.issubdtype(made.dtype, jnp.integer)
        ends = jnp.iinfo(made.dtype) if integers else None
        signed = jnp.issubdtype(made.dtype, jnp.signedinteger)
        value = float("nan") if ends is None else int(ends.min if signed else ends.max)
    spread = indices.reshape((*indices.shape[:-1], *(1 for _ in range(made.ndim - indices.ndim + 1))))
    return map(graph, functools.partial(chosen, extent=extent, value=value), made, spread, name="fill")


# --- the operations ---------------------------------------------------------------------------------------


def _promised(unique_indices: bool, indices_are_sorted: bool) -> dict[str, bool]:
    """Static values of codelets: the promises about indices."""
    own = {"unique": unique_indices, "in_order": indices_are_sorted}
    return {name: True for name, value in own.items() if value}


def _gather_lookup(
    form: SliceForm, operand: Any, indices: Any, mode: str, fill: Any, promised: Mapping[str, bool] | None = None
) -> Lookup:
    columns = -1 if form.columns is None else form.columns
    static = {
        "numbers": form.numbers,
        "sizes": form.gather_sizes,
        "columns": columns,
        "mode": mode,
        "fill_value": fill,
        "dtype": operand.dtype,
        **(promised or {}),
    }
    by_rows = gather_rows if operand.dtype != bool else None
    return form.lookup("look up", True, indices.dtype, "slices", static, cuts_indices=True, by_rows=by_rows)


@checked
def gather(
    graph: Graph,
    operand: Tensor,
    start_indices: Tensor,
    dimension_numbers: lax.GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    mode: Any = None,
    fill_value: Any = None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "gather",
) -> Tensor:
    """Slices at places known only at run time, as `jax.lax.gather`.

    Args:
        graph: where its compute set is added, in a scope of its name.
        operand: the array to look up in.
        start_indices: where slices begin.
        dimension_numbers: which dimensions are which.
        slice_sizes: of the slices.
        mode: for out-of-range indices: "clip", "fill" or "promise_in_bounds"; default: "fill".
        fill_value: their value by "fill"; NaN, or the least integer, when left off.
        unique_indices: whether it is promised that no two slices overlap, which makes its gradient faster.
        indices_are_sorted: whether it is promised that they are sorted.
        grain: about how many elements a vertex looks up; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: arguments that do not fit together.

    >>> import codelet as cl, jax, jax.numpy as jnp
    >>> numbers = jax.lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))
    >>> look_up = lambda graph, x, i: cl.ops.gather(graph, x, i, numbers, (1,))
    >>> cl.lower(look_up)(jnp.arange(4.0), jnp.array([[2], [0]]))
    Array([2., 0.], dtype=float32)
    """
    check_tensors(name, graph, operand=operand, start_indices=start_indices)
    own = checked_mode(name, mode)
    form = gather_form(name, operand, start_indices, dimension_numbers, slice_sizes, own, fill_value)
    grain = checked_grain(name, grain)
    promised = _promised(unique_indices, indices_are_sorted)
    lookup = _gather_lookup(form, operand, start_indices, own, fill_value, promised)
    with graph.scope(name, unique=True):
        fields = {"operand": form.operand(operand), "indices": form.index(start_indices)}
        return form.slices_back(_add(graph, gather_block, lookup, fields, grain, memory_fraction))


@checked
def plan_gather(
    graph: Graph,
    operand: Tensor,
    start_indices: Tensor,
    dimension_numbers: lax.GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    mode: Any = None,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
) -> Plan:
    """The plan of a `gather` with these arguments, for the target of the graph. It adds nothing, and prints.

    Args:
        graph: for whose target; the operands are of it.
        operand: the array to look up in.
        start_indices: where the slices would begin.
        dimension_numbers: as `jax.lax.gather` takes them.
        slice_sizes: the size of a slice along each dimension.
        mode: of slices beyond the ends: "clip", "fill" or "promise_in_bounds"; default: "fill".
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.

    Raises:
        OperationError: arguments that do not fit together.

    >>> import codelet as cl, jax
    >>> graph = cl.Graph(cl.IPU(num_tiles=4))
    >>> x, i = graph.add_variable("x", (100, 8)), graph.add_variable("i", (32, 1), "int32")
    >>> numbers = jax.lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    >>> len(cl.ops.plan_gather(graph, x, i, numbers, (1, 8)).steps) > 0
    True
    """
    own = checked_mode("gather", mode)
    form = gather_form("gather", operand, start_indices, dimension_numbers, slice_sizes, own, None)
    lookup = _gather_lookup(form, operand, start_indices, own, None)
    return plan_lookup(graph.target, lookup, gather_block, checked_grain("gather", grain), memory_fraction)


@checked
def gather_gradient(
    graph: Graph,
    cotangent: Tensor,
    operand: Tensor,
    start_indices: Tensor,
    dimension_numbers: lax.GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    mode: Any = None,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "gather_gradient",
) -> Tensor:
    """The gradient of `gather` by its operand: zeros, to which the cotangents of the slices are added.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result.
        operand: the array that was looked up in; only its shape and dtype are used.
        start_indices: where the slices began.
        dimension_numbers: as `jax.lax.gather` takes them.
        slice_sizes: the size of a slice along each dimension.
        mode: of slices beyond the ends: "clip", "fill" or "promise_in_bounds"; default: "fill".
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        A tensor of the shape and dtype of the operand.

    Raises:
        OperationError: arguments that do not fit together.

    >>> import codelet as cl, jax, jax.numpy as jnp
    >>> numbers = jax.lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))
    >>> slopes = lambda graph, g, x, i: cl.ops.gather_gradient(graph, g, x, i, numbers, (1,))
    >>> cl.lower(slopes)(jnp.array([1.0, 2.0]), jnp.zeros(3), jnp.array([[2], [0]]))
    Array([2., 0., 1.], dtype=float32)
    """
    check_tensors(name, graph, cotangent=cotangent, operand=operand, start_indices=start_indices)
    own = checked_mode(name, mode)
    form = gather_form(name, operand, start_indices, dimension_numbers, slice_sizes, own, None)
    shape = form.slices_back(_placeholder(form, operand.dtype)).shape
    if cotangent.shape != shape or cotangent.dtype != operand.dtype:
        raise OperationError(
            f"the cotangent of ops.{name} is not of its result's shape and dtype",
            given=cotangent,
            expected=f"{operand.dtype}{list(shape)}",
        )
    lookup = _update_lookup(form, operand, start_indices, own)
    with graph.scope(name, unique=True):
        fields = {"indices": form.index(start_indices), "updates": form.slices_of(cotangent)}
        grain = checked_grain(name, grain)
        return form.operand_back(_add(graph, scatter_block_on_zeros, lookup, fields, grain, memory_fraction))


def _update_lookup(form: SliceForm, operand: Tensor, indices: Tensor, mode: str) -> Lookup:
    """The gradient of a gather as it is planned: zeros, to which slices are added."""
    static = {"numbers": form.numbers, "mode": mode, "dtype": operand.dtype}
    options = {"cuts_indices": operand.size <= MOST_IN_PARTS, "by_rows": scatter_rows_on_zeros}
    return form.lookup("update", False, indices.dtype, "operand", static, **options)


def gradient_pays(
    graph: Graph,
    operand: Tensor,
    start_indices: Tensor,
    dimension_numbers: lax.GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    mode: Any,
    grain: int | None,
    memory_fraction: float,
) -> bool:
    """Whether `gather_gradient` is planned to take no more cycles than the adjoints of a gather's vertices.

    Each of these adds its slices to separate zeros, and where the indices are cut these tables are summed.
    """
    own = checked_mode("gather", mode)
    form = gather_form("gather", operand, start_indices, dimension_numbers, slice_sizes, own, None)
    planned = functools.partial(plan_lookup, graph.target, grain=grain, memory_fraction=memory_fraction)
    update = planned(_update_lookup(form, operand, start_indices, own), scatter_block_on_zeros)
    lookup = _gather_lookup(form, operand, start_indices, own, None)
    forward = planned(lookup, gather_block)
    parts = math.prod(cut.vertices for name, cut in zip(lookup.names, forward.cuts, strict=True) if name == "indices")
    dtype = operand.dtype
    sums = plan_sum(graph.target, parts, operand.size, dtype, dtype).total_cycles if parts > 1 else 0
    return update.total_cycles <= forward.total_cycles + sums


def _placeholder(form: SliceForm, dtype: np.dtype) -> Tensor:
    """Slices of no graph that anything is added to."""
    return Graph().add_variable("slices", (*form.counts, *(form.sizes[d] for d in form.slices)), dtype)


@checked
def scatter(
    graph: Graph,
    operand: Tensor,
    indices: Tensor,
    updates: Tensor,
    dimension_numbers: lax.ScatterDimensionNumbers | None = None,
    *,
    op: str = "set",
    mode: Any = None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "scatter",
) -> Tensor:
    """An array with updates of slices at places known only at run time, as `jax.lax.scatter` and its kin.

    Args:
        graph: where its compute set is added, in a scope of its name.
        operand: the array to update.
        indices: where slices begin; where `op` is "set" and several name an element, any of them may be the last.
        updates: of the slices.
        dimension_numbers: which dimensions are which. When left off, `operand.at[indices].op(updates)` of indices into
            the first dimension, counted from the end where they are negative.
        op: "set", "add", "multiply", "min" or "max".
        mode: for out-of-range indices: "clip", "drop" or "promise_in_bounds"; default: "drop".
        unique_indices: whether it is promised that no two name the same element, as JAX asks where "multiply" is
            differentiated by the updates.
        indices_are_sorted: whether it is promised that they are sorted.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: arguments that do not fit together.

    >>> import codelet as cl, jax.numpy as jnp
    >>> def count(graph, x, i, y):
    ...     return cl.ops.scatter(graph, x, i, y, op="add")
    >>> cl.lower(count)(jnp.zeros(3), jnp.array([0, -1, 0]), jnp.ones(3))
    Array([2., 0., 1.], dtype=float32)
    """
    check_tensors(name, graph, operand=operand, indices=indices, updates=updates)
    own = checked_mode(name, mode)
    if op not in SCATTERS:
        raise OperationError(
            f"op of ops.{name} is unknown", given=repr(op), expected=" or ".join(repr(own) for own in SCATTERS)
        )
    by_rows = dimension_numbers is None
    if by_rows:
        indices, updates, dimension_numbers = rows_as_slices(name, operand, indices, updates)
    form = scatter_form(name, operand, indices, updates, dimension_numbers, own)
    grain = checked_grain(name, grain)
    with graph.scope(name, unique=True):
        if by_rows:
            indices = from_beginning(graph, indices, operand.shape[0])
        promised = _promised(unique_indices, indices_are_sorted)
        static = {"numbers": form.numbers, "op": op, "mode": own, "dtype": operand.dtype, **promised}
        options = {"cuts_indices": False, "by_rows": scatter_rows}
        lookup = form.lookup("update", True, indices.dtype, "operand", static, **options)
        slices = form.slices_of(updates)
        fields = {"operand": form.operand(operand), "indices": form.index(indices), "updates": slices}
        return form.operand_back(_add(graph, scatter_block, lookup, fields, grain, memory_fraction))


def look_up_slices(
    graph: Graph,
    form: SliceForm,
    x: Tensor,
    indices: Tensor,
    *,
    mode: str,
    grain: int | None,
    memory_fraction: float,
) -> Tensor:
    """The vertices that look up in an array the elements that a `scatter` of a form updates: 0 out of range."""
    fields = {"operand": form.operand(x), "indices": form.index(indices)}
    lookup = _gather_lookup(form, x, indices, mode, 0)
    return form.slices_back(_add(graph, gather_block, lookup, fields, grain, memory_fraction))


def from_beginning(graph: Graph, indices: Tensor, extent: int) -> Tensor:
    """Indices, counted from the end where they are negative, as counted from the beginning: of 32 bits at least."""
    if not jnp.issubdtype(indices.dtype, jnp.signedinteger):
        return indices
    return map(graph, functools.partial(counted, extent=extent), indices, name="from the beginning")


def rows_as_slices(name: str, operand: Tensor, indices: Tensor, updates: Tensor) -> tuple[Tensor, Tensor, Any]:
    """Indices into the first dimension, updates of their shape, and dimension numbers."""
    if not operand.ndim or not jnp.issubdtype(indices.dtype, jnp.integer):
        raise OperationError(
            f"ops.{name} is not given integers for rows of an array",
            given=f"{operand}, {indices}",
            expected="an array of one dimension at least, and integers",
        )
    shape = (*indices.shape, *operand.shape[1:])
    if updates.shape != shape:
        try:
            fits = np.broadcast_shapes(updates.shape, shape) == shape
        except ValueError:
            fits = False
        if not fits:
            raise OperationError(
                f"the updates of ops.{name} do not fit",
                given=str(updates.shape),
                expected=f"{shape}, or what is broadcast to it",
            )
        updates = updates.broadcast_to(shape)
    numbers = lax.ScatterDimensionNumbers(tuple(range(indices.ndim, len(shape))), (0,), (0,))
    return indices.expand(indices.ndim), updates, numbers
