"""Sorting: `sort`, `sort_together` and `argsort` along an axis, and the gradient with respect to the permutation.

`sort_planning.py` plans them, and says how lines are sorted that are cut over several tiles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from codelet.deprecated import old_order
from codelet.errors import FieldTypeError, OperationError
from codelet.graphs.graph import Graph
from codelet.graphs.stages import Block
from codelet.ops.arguments import check_tensors, checked_axis, checked_grain, checked_planned
from codelet.ops.blocks import add_blocks
from codelet.ops.followed import follow
from codelet.ops.lines import as_lines, from_lines
from codelet.ops.planning import MEMORY_FRACTION, Plan
from codelet.ops.put_lines import put_back
from codelet.ops.schema import checked
from codelet.ops.sort_planning import (
    Lines,
    block_length,
    block_sorter,
    merger,
    plan_lines,
    rounds,
    shapes_of,
    whole_sorter,
)
from codelet.target import Target
from codelet.views.tensor import Tensor

# --- vertices -----------------------------------------------------------------------------------------------


def _greatest(dtype: np.dtype) -> Any:
    """The value that is sorted last."""
    if jnp.issubdtype(dtype, jnp.inexact):
        return math.nan
    return True if np.dtype(bool) == dtype else int(jnp.iinfo(dtype).max)


def _add_sort(
    graph: Graph, operands: Sequence[Tensor], own: Lines, grain: int | None, memory_fraction: float
) -> list[Tensor]:
    """The vertices that sort lines, as planned."""
    shape = (own.before, own.after, own.length)
    plan = Plan(str(own), (), ()) if 0 in shape else follow(plan_lines(graph.target, own, grain, memory_fraction))
    if 0 in shape or plan.cut("blocks").extent == 1:
        results = zip(own.results, own.result_dtypes, strict=True)
        made = [graph.add_variable(name, shape, dtype) for name, dtype in results]
        if 0 in shape:
            return made
        codelet = whole_sorter(own, shapes_of(plan.cuts[:2], own.length))
        given = {**dict(zip(own.operands, operands, strict=True)), **dict(zip(own.results, made, strict=True))}

        def fields(before: Block, after: Block) -> dict[str, Any]:
            return {name: tensor[before.elements, after.elements] for name, tensor in given.items()}

        add_blocks(graph, "sort", codelet, plan.cuts[:2], fields)
        return made
    return _add_network(graph, operands, own, plan)


def _add_network(graph: Graph, operands: Sequence[Tensor], own: Lines, plan: Plan) -> list[Tensor]:
    """The vertices that sort blocks of lines and merge them."""
    blocks = plan.cut("blocks").extent
    length = block_length(own, blocks)
    shape = (own.before, own.after, blocks, length)
    missing = ((0, 0), (0, 0), (0, blocks * length - own.length))
    cuts, shapes = plan.cuts, shapes_of(plan.cuts[:2], length)
    names = [*(f"y{k}" for k in range(len(operands))), "order"]
    dtypes = [*own.dtypes, np.dtype(np.int32)]
    padded = [tensor.pad(missing, value=_greatest(tensor.dtype)).reshape(shape) for tensor in operands]

    def variables(step: int) -> list[Tensor]:
        return [graph.add_variable(f"{name}_{step}", shape, dtype) for name, dtype in zip(names, dtypes, strict=True)]

    sorted_blocks = variables(0)

    def first_fields(before: Block, after: Block, block: Block) -> dict[str, Any]:
        place = (before.elements, after.elements, block.number)
        given = {name: tensor[place] for name, tensor in zip(own.operands, padded, strict=True)}
        made = {name: tensor[place] for name, tensor in zip(names, sorted_blocks, strict=True)}
        return {**given, **made, "start": block.number * length}

    add_blocks(graph, "sort blocks", block_sorter(own, shapes), cuts, first_fields)
    masks, held = list(rounds(blocks)), sorted_blocks
    for step, mask in enumerate(masks, start=1):
        is_last = step == len(masks)
        if is_last:
            pairs = zip(own.results, own.result_dtypes, strict=True)
            outputs = {name: graph.add_variable(name, shape, dtype) for name, dtype in pairs}
        else:
            outputs = dict(zip(names, variables(step), strict=True))

        # A record of the operation asks for fields again later, when the loop has gone on: what they are of is bound.
        def fields(
            before: Block, after: Block, block: Block, held: Any = held, mask: int = mask, outputs: Any = outputs
        ) -> dict[str, Any]:
            lines, number = (before.elements, after.elements), block.number
            given = {f"own{k}": tensor[(*lines, number)] for k, tensor in enumerate(held)}
            other = {f"other{k}": tensor[(*lines, number ^ mask)] for k, tensor in enumerate(held)}
            made = {name: tensor[(*lines, number)] for name, tensor in outputs.items()}
            return {**given, **other, **made, "upper": number // (1 << mask.bit_length() - 1) % 2}

        add_blocks(graph, f"merge {step} of {len(masks)}", merger(own, is_last, shapes), cuts, fields)
        held = list(outputs.values())
    return [out.reshape((own.before, own.after, blocks * length))[:, :, : own.length] for out in held]


# --- what is given ------------------------------------------------------------------------------------------


def _checked(
    name: str, graph: Graph, operands: Sequence[Any], axis: int | None
) -> tuple[list[Tensor], int, tuple[int, ...]]:
    """Operands of one shape, the axis counted from the beginning, and the shape; flattened for an axis of None."""
    if isinstance(operands, Tensor) or not isinstance(operands, Sequence):
        raise FieldTypeError(
            f"ops.{name} is not given several operands",
            given=f"{operands!r:.80}",
            expected="a sequence of tensors",
            fix=f"ops.{name}(graph, [operand, ...])",
        )
    check_tensors(name, graph, **{f"operand {k}": own for k, own in enumerate(operands)})
    tensors: list[Tensor] = list(operands)
    if not tensors or len({tensor.shape for tensor in tensors}) > 1:
        raise OperationError(
            f"the operands of ops.{name} are not of one shape",
            given=", ".join(str(tensor.shape) for tensor in tensors) or "none",
            expected="one or more, of the same shape",
        )
    if axis is None:
        tensors, axis = [tensor.flatten() for tensor in tensors], 0
    return tensors, checked_axis(name, "axis", axis, tensors[0].ndim), tensors[0].shape


def _lines(tensors: Sequence[Tensor], axis: int, **how: Any) -> Lines:
    shape, dtypes = tensors[0].shape, tuple(tensor.dtype for tensor in tensors)
    return Lines(math.prod(shape[:axis]), math.prod(shape[axis + 1 :]), shape[axis], dtypes, **how)


@old_order(("dtype",), after=2)
@checked
def plan_sort(
    target: Target,
    shape: Sequence[int],
    *,
    dtype: Any = jnp.float32,
    axis: int = -1,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
) -> Plan:
    """How an array is sorted along an axis on the tiles of a machine.

    Args:
        target: the machine.
        shape: of the array, of one element at least.
        dtype: of it.
        axis: along which it is sorted.
        grain: about how many elements a vertex has; None for the planner to choose.
        memory_fraction: the fraction of a tile's memory that the plan may use.

    Raises:
        OperationError: a shape of no elements, or an axis that there is not.

    >>> import codelet as cl
    >>> print(plan_sort(cl.IPU(), (4096, 100)).choice_text())
    before 4,096 in 1,366 x 3; after 1 whole; blocks 1 whole
    >>> plan_sort(cl.IPU(), (100_000,)).cut("blocks").extent
    1024
    """
    shape, of = checked_planned("plan_sort", shape, dtype)
    axis = checked_axis("plan_sort", "axis", axis, len(shape))
    before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    own = Lines(before, after, shape[axis], (of,))
    return plan_lines(target, own, checked_grain("plan_sort", grain), memory_fraction)


# --- operations ---------------------------------------------------------------------------------------------


@checked
def sort(
    graph: Graph,
    x: Tensor,
    axis: int | None = -1,
    *,
    stable: bool = True,
    descending: bool = False,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "sort",
) -> Tensor:
    """An array sorted along an axis, as `jax.numpy.sort`: NaN last, and 0 and -0 equal.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: the tensor to sort.
        axis: along which; None sorts all elements.
        stable: whether equal elements keep their order.
        descending: whether the result is reversed.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.sort)(jnp.array([[2, 1, 3], [4, 3, 6]])).tolist()
    [[1, 2, 3], [3, 4, 6]]
    """
    tensors, own, shape = _checked(name, graph, [x], axis)
    grain = checked_grain(name, grain)
    with graph.scope(name, unique=True):
        (made,) = _add_sort(
            graph, [as_lines(tensors[0], own)], _lines(tensors, own, stable=bool(stable)), grain, memory_fraction
        )
    return from_lines(made[:, :, ::-1] if descending else made, shape, own)


@checked
def sort_together(
    graph: Graph,
    operands: Sequence[Tensor],
    axis: int = -1,
    *,
    num_keys: int = 1,
    stable: bool = True,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "sort_together",
) -> tuple[Tensor, ...]:
    """Several arrays sorted together along an axis, by the first of them, as `jax.lax.sort` of a tuple.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        operands: of one shape.
        axis: along which.
        num_keys: how many of them are compared: the later ones where the earlier are equal.
        stable: whether elements equal in all keys keep their order.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: shapes, an axis or a number of keys that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> together = cl.lower(lambda graph, x, y: cl.ops.sort_together(graph, [x, y]))
    >>> together(jnp.array([2.0, 1.0, 3.0]), jnp.array([0, 1, 2]))
    (Array([1., 2., 3.], dtype=float32), Array([1, 0, 2], dtype=int32))
    """
    tensors, own, shape = _checked(name, graph, operands, axis)
    if not isinstance(num_keys, int) or not 1 <= num_keys <= len(tensors):
        raise OperationError(
            f"num_keys of ops.{name} is not of its operands", given=num_keys, expected=f"1 to {len(tensors)}"
        )
    lines = _lines(tensors, own, num_keys=num_keys, stable=bool(stable))
    grain = checked_grain(name, grain)
    with graph.scope(name, unique=True):
        made = _add_sort(graph, [as_lines(tensor, own) for tensor in tensors], lines, grain, memory_fraction)
    return tuple(from_lines(each, shape, own) for each in made)


@checked
def argsort(
    graph: Graph,
    x: Tensor,
    axis: int | None = -1,
    *,
    stable: bool = True,
    descending: bool = False,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "argsort",
) -> Tensor:
    """The positions in which the elements of an array are sorted along an axis, as `jax.numpy.argsort`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: the tensor to sort.
        axis: along which; None sorts all elements.
        stable: whether equal elements keep their order.
        descending: whether the greatest is first.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.argsort)(jnp.array([2.0, 1.0, 3.0]))
    Array([1, 0, 2], dtype=int32)
    """
    _, positions = _sorted_with_positions(graph, x, axis, stable, descending, grain, memory_fraction, name)
    return positions


def _sorted_with_positions(
    graph: Graph,
    operand: Tensor,
    axis: int | None,
    stable: bool,
    descending: bool,
    grain: int | None,
    memory_fraction: float,
    name: str,
) -> tuple[Tensor, Tensor]:
    (tensor,), own, shape = _checked(name, graph, [operand], axis)
    dtype = jax.eval_shape(jnp.argsort, jax.ShapeDtypeStruct((shape[own],), np.int32)).dtype
    turned = bool(stable and descending)  # equal elements keep their order once more when the results are reversed
    lines = _lines([tensor], own, stable=bool(stable), positions=dtype, mirrored=turned)
    grain, given = checked_grain(name, grain), as_lines(tensor, own)
    with graph.scope(name, unique=True):
        made = _add_sort(graph, [given[:, :, ::-1] if turned else given], lines, grain, memory_fraction)
    values, positions = (from_lines(each[:, :, ::-1] if descending else each, shape, own) for each in made)
    return values, positions


@checked
def sort_gradient(
    graph: Graph,
    cotangent: Tensor,
    permutation: Tensor,
    axis: int | None = -1,
    *,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "sort_gradient",
) -> Tensor:
    """The gradient of `sort` by its operand, as `jax.vjp` gives it: cotangents put back where their elements were.

    Args:
        graph: where its compute set is added, in a scope of its name.
        cotangent: of the sorted array; or of whatever is sorted with it.
        permutation: the result of `argsort` of the operand.
        axis: along which it was sorted. With None the gradient is flat, as the operand was made.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: shapes or an axis that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.sort_gradient)(jnp.array([1.0, 2.0, 3.0]), jnp.array([2, 0, 1]))
    Array([2., 3., 1.], dtype=float32)
    """
    (cotangent, permutation), own, shape = _checked(name, graph, [cotangent, permutation], axis)
    return put_back(graph, cotangent, permutation, own, shape[own], grain, memory_fraction, name)
