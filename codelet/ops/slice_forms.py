"""Slices at places that indices name, in one form: the common part of gathers and scatters.

In come shapes and the dimension numbers of `jax.lax`. The operand becomes (batch, dimensions), indices (batch, indices,
numbers), the slices that they name (batch, indices, dimensions of a slice), all of them views. One dimension that every
slice has all of is the *columns*.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import lax

from codelet.errors import OperationError
from codelet.ops.lookup_planning import Array, Lookup
from codelet.tracing.codelets import Codelet
from codelet.views.tensor import Tensor


@dataclass(frozen=True)
class SliceForm:
    """How an operation on slices is brought to the one form.

    Attributes:
        shape: of the operand.
        indices: the shape of the indices.
        offset: the dimensions of the slices, among those of the gathered array.
        gone: the dimensions that slices have not.
        indexed: the dimensions that the numbers of an index are for.
        batch: the dimensions that go together with `indices_batch` of the indices.
        indices_batch: these.
        sizes: of a slice.
    """

    shape: tuple[int, ...]
    indices: tuple[int, ...]
    offset: tuple[int, ...]
    gone: tuple[int, ...]
    indexed: tuple[int, ...]
    batch: tuple[int, ...]
    indices_batch: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def rest(self) -> list[int]:
        """The dimensions of the operand that are no batch."""
        return [d for d in range(len(self.shape)) if d not in self.batch]

    @property
    def slices(self) -> list[int]:
        """Those of them that slices have."""
        return [d for d in self.rest if d not in self.gone]

    @property
    def others(self) -> list[int]:
        """The dimensions of the indices that are no batch, without the last."""
        return [d for d in range(len(self.indices) - 1) if d not in self.indices_batch]

    @property
    def counts(self) -> list[int]:
        """How many batches and indices there are: the leading extents in the one form; without batch one fewer."""
        batch = [math.prod(self.shape[d] for d in self.batch)] if self.batch else []
        return [*batch, math.prod(self.indices[d] for d in self.others)]

    @property
    def columns(self) -> int | None:
        """The largest dimension that every slice has all of, in the one form; None where there is none."""
        free = [d for d in self.slices if d not in self.indexed and self.sizes[d] == self.shape[d] > 1]
        return self.position(max(free, key=lambda d: self.shape[d])) if free else None

    @property
    def rows(self) -> int | None:
        """The dimension that all indices are for, one row each, in the one form; None where there is none."""
        alone = len(self.indexed) == 1 and self.indexed[0] in self.gone and self.shape[self.indexed[0]] > 1
        return self.position(self.indexed[0]) if alone else None

    def position(self, d: int) -> int:
        """A dimension of the operand in the one form."""
        return bool(self.batch) + self.rest.index(d)

    def operand(self, tensor: Tensor) -> Tensor:
        """The operand in the one form."""
        moved = tensor.transpose([*self.batch, *self.rest]) if tensor.ndim else tensor
        return moved.reshape([*self.counts[:-1], *(self.shape[d] for d in self.rest)])

    def operand_back(self, made: Tensor) -> Tensor:
        """An array in the form of the operand, as it was given."""
        order = [*self.batch, *self.rest]
        moved = made.reshape([self.shape[d] for d in order])
        return moved.transpose([order.index(d) for d in range(len(order))]) if order else moved

    def index(self, tensor: Tensor) -> Tensor:
        """Indices in the one form."""
        moved = tensor.transpose([*self.indices_batch, *self.others, len(self.indices) - 1])
        return moved.reshape([*self.counts, self.indices[-1]])

    @property
    def _order(self) -> list[int]:
        """Which dimension of the gathered array each one of (batch, indices, slices) is."""
        rank = len(self.indices) - 1 + len(self.slices)
        beside = [d for d in range(rank) if d not in self.offset]
        return [*(beside[d] for d in (*self.indices_batch, *self.others)), *self.offset]

    def slices_of(self, tensor: Tensor) -> Tensor:
        """The gathered array, or updates, in the one form."""
        moved = tensor.transpose(self._order) if tensor.ndim else tensor
        return moved.reshape([*self.counts, *(self.sizes[d] for d in self.slices)])

    def slices_back(self, made: Tensor) -> Tensor:
        """An array in the form of slices, as `lax` has it."""
        leading = [self.indices[d] for d in (*self.indices_batch, *self.others)]
        moved = made.reshape([*leading, *(self.sizes[d] for d in self.slices)])
        order = self._order
        return moved.transpose([order.index(d) for d in range(len(order))]) if order else moved

    @property
    def numbers(self) -> tuple[Any, ...]:
        """The dimension numbers of the one form, of gathers and of scatters."""
        batched = (0,) if self.batch else ()
        first = len(self.counts)
        offset = tuple(range(first, first + len(self.slices)))
        gone, indexed = (tuple(self.position(d) for d in own) for own in (sorted(self.gone), self.indexed))
        return offset, gone, indexed, batched, batched

    @property
    def gather_sizes(self) -> tuple[int, ...]:
        """The sizes of slices in the one form."""
        return (*((1,) if self.batch else ()), *(self.sizes[d] for d in self.rest))

    def lookup(
        self,
        name: str,
        operand: bool,
        indices: Any,
        written: str,
        static: dict[str, Any],
        *,
        cuts_indices: bool,
        by_rows: Codelet | None,
    ) -> Lookup:
        """The gather or scatter to plan.

        Args:
            name: of the compute set.
            operand: whether the operand is read.
            indices: their dtype.
            written: "slices" or "operand".
            static: the static values of the codelet, and the `dtype` of the operand.
            cuts_indices: whether they may be cut.
            by_rows: a codelet for blocks of rows; None where they may not be cut.
        """
        dtype = np.dtype(static.pop("dtype"))
        names, extents, places = [], [], {}
        lead = len(self.counts)
        if self.batch:
            places["batch"] = len(names)
            names, extents = [*names, "batch"], [*extents, self.counts[0]]
        if cuts_indices:
            places["indices"] = len(names)
            names, extents = [*names, "indices"], [*extents, self.counts[-1]]
        if self.columns is not None:
            places["columns"] = len(names)
            names, extents = [*names, "columns"], [*extents, self.shape[self.rest[self.columns - bool(self.batch)]]]
        rows = self.rows if by_rows is not None else None
        if rows is not None:
            places["rows"] = len(names)
            names, extents = [*names, "rows"], [*extents, self.shape[self.indexed[0]]]
        of_slices = (
            None if self.columns is None else lead + self.slices.index(self.rest[self.columns - bool(self.batch)])
        )
        own = lambda **where: tuple((d, places[k]) for k, d in where.items() if k in places and d is not None)  # noqa: E731
        shape = (*self.counts[:-1], *(self.shape[d] for d in self.rest))
        slices = (*self.counts, *(self.sizes[d] for d in self.slices))
        whole = Array("operand", shape, dtype, own(batch=0, columns=self.columns, rows=rows))
        index = Array("indices", (*self.counts, self.indices[-1]), indices, own(batch=0, indices=lead - 1))
        parts = Array("updates", slices, dtype, own(batch=0, indices=lead - 1, columns=of_slices))
        reads = [whole] if operand else []
        reads = [*reads, index] if written == "slices" else [*reads, index, parts]
        return Lookup(
            name,
            tuple(names),
            tuple(extents),
            tuple(reads),
            parts if written == "slices" else whole,
            tuple(static.items()),
            math.prod(self.counts),
            by_rows,
        )


def _refused(name: str, error: Exception, given: str) -> OperationError:
    message = str(error).strip().split("\n")[0]
    return OperationError(
        f"ops.{name} is given what does not fit together: {message}",
        given=given,
        expected=f"what jax.lax.{name.removesuffix('_gradient').replace('multiply', 'mul').removesuffix('_set')} takes",
    )


def gather_form(
    name: str, operand: Any, indices: Any, numbers: Any, sizes: Sequence[int], mode: Any, fill: Any
) -> SliceForm:
    """The form of a gather.

    Raises:
        OperationError: arguments that `lax.gather` does not take.
    """
    try:
        jax.eval_shape(
            lambda operand, indices: lax.gather(operand, indices, numbers, tuple(sizes), mode=mode, fill_value=fill),
            jax.ShapeDtypeStruct(operand.shape, operand.dtype),
            jax.ShapeDtypeStruct(indices.shape, indices.dtype),
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise _refused(name, error, f"{operand.shape} by {indices.dtype}{list(indices.shape)}, {numbers}") from error
    batch, indices_batch = numbers.operand_batching_dims, numbers.start_indices_batching_dims
    order = sorted(range(len(batch)), key=lambda k: batch[k])
    return SliceForm(
        operand.shape,
        indices.shape,
        tuple(numbers.offset_dims),
        tuple(numbers.collapsed_slice_dims),
        tuple(numbers.start_index_map),
        tuple(batch[k] for k in order),
        tuple(indices_batch[k] for k in order),
        tuple(sizes),
    )


def scatter_form(name: str, operand: Tensor, indices: Tensor, updates: Tensor, numbers: Any, mode: str) -> SliceForm:
    """The form of a scatter.

    Raises:
        OperationError: arguments that `lax.scatter` does not take.
    """
    try:
        structs = (jax.ShapeDtypeStruct(own.shape, own.dtype) for own in (operand, indices, updates))
        put = lax.scatter if operand.dtype == bool else lax.scatter_add  # booleans are put, never added
        jax.eval_shape(lambda x, i, y: put(x, i, y, numbers, mode=mode), *structs)
    except (TypeError, ValueError, AttributeError) as error:
        arrays = ", ".join(f"{own.dtype}{list(own.shape)}" for own in (operand, indices, updates))
        raise _refused(name, error, f"{arrays}, {numbers}") from error
    batch, indices_batch = numbers.operand_batching_dims, numbers.scatter_indices_batching_dims
    order = sorted(range(len(batch)), key=lambda k: batch[k])
    gone = tuple(numbers.inserted_window_dims)
    sizes = iter(updates.shape[d] for d in numbers.update_window_dims)
    return SliceForm(
        operand.shape,
        indices.shape,
        tuple(numbers.update_window_dims),
        gone,
        tuple(numbers.scatter_dims_to_operand_dims),
        tuple(batch[k] for k in order),
        tuple(indices_batch[k] for k in order),
        tuple(1 if d in gone or d in batch else next(sizes) for d in range(operand.ndim)),
    )
