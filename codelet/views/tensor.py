"""Variables, and tensors: views of variables.

A `Tensor` is a source and an access map, an `Index` into the flat elements of the source. Viewing a
tensor composes the map and never makes state. The source is a `Variable`; or a `Patchwork` of tensors laid end to
end or among padding, so that a view of several variables is an ordinary view of one source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from codelet.errors import TensorError, UnnamedError, ViewError
from codelet.saving import Frozen
from codelet.views.digits import row_major_strides
from codelet.views.extents import as_dimension, as_integers, as_order, as_shape
from codelet.views.grids import Axis, union_axes
from codelet.views.index import Index, as_index, row_major
from codelet.views.indexing import expanded_items
from codelet.views.mends import function_of_jax, mend_of
from codelet.views.operators import NoNumber, shown
from codelet.views.padding import MODES, as_padding, as_widths, repeated_positions
from codelet.views.patchwork import padded
from codelet.views.ragged import Ragged
from codelet.views.rows import LENGTH_NAMES, RowLength, Rows
from codelet.views.sources import Source, Variable, source_elements, source_text, source_variables, type_text
from codelet.views.strided import Layout, layout_of

if TYPE_CHECKING:
    from codelet.graphs.graph import Graph


class _TensorSlots:
    """The slots of a tensor, and what it is while they are filled: its class becomes `Tensor` when it is made.

    Of the ways to make what is frozen, this costs least where one is made for every edge of a graph: a change of
    class takes 20 ns; `object.__setattr__`, which frozen dataclasses call, takes 45 for each slot.
    """

    __slots__ = ("_index", "layout", "offset", "ragged_dimension", "rows", "source")

    source: Source
    _index: Index | None
    rows: Rows | None
    ragged_dimension: int
    layout: Layout | None
    offset: int


class Tensor(NoNumber, Frozen, _TensorSlots):
    """A view: an array of references to elements of variables. Made by `Graph.add_variable` and by viewing.

    It is indexed as NumPy arrays are, and by grid symbols and tables as well; no view makes state.

    Attributes:
        source: what is viewed.
        index: which element of the source stands at each position.
        rows: for a view with a ragged dimension, whose length depends on the vertex, whose elements are
            whose; `index`, and so the tensor's shape, is that of the elements of all vertices.
        ragged_dimension: the dimension that is ragged, where there are rows.
        layout: what it has in common with strided views of other offsets; None where it is no strided view,
            or was not asked yet. See `find_layout`.
        offset: of a view that has a layout.
    """

    __slots__ = ()

    def __init__(self, source: Source, index: Index, rows: Rows | None = None, ragged_dimension: int = 0):
        state = {"source": source, "_index": index, "rows": rows, "ragged_dimension": ragged_dimension}
        self.__setstate__((None, {**state, "layout": None, "offset": 0}))

    @property
    def index(self) -> Index:
        """Which element of the source stands at each position; see the class."""
        index = self._index
        if index is None:
            assert self.layout is not None
            index = Index(self.offset, self.layout.shape, self.layout.strides)
            object.__setattr__(self, "_index", index)
        return index

    def find_layout(self) -> Layout | None:
        """Its layout, where it is a strided view."""
        index = self.index
        if self.layout is None and index.is_strided and self.rows is None:
            object.__setattr__(self, "offset", index.offset)
            object.__setattr__(self, "layout", layout_of(self.source, index.shape, index.strides))
        return self.layout

    @property
    def graph(self) -> Graph:
        """The graph whose elements it views."""
        return self.source.graph

    @property
    def name(self) -> str:
        """The name of the variable that it is all of, scopes included.

        Raises:
            UnnamedError: a view of something else than one whole variable.
        """
        if not self.is_whole_variable:
            raise UnnamedError(
                "a view has no name",
                given=self,
                expected="a variable, all of it, as graph.add_variable returns it",
                fix=f"it views {', '.join(v.name for v in source_variables(self.source))}",
            )
        return source_text(self.source)

    @property
    def dtype(self) -> np.dtype:
        """The dtype of its elements."""
        return self.source.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, at each position of the grid where it depends on symbols.

        Along a dimension that is ragged it is the number of elements of all rows, and shown as `n`.
        """
        if self.rows is None:
            return self.index.shape
        at, shape = self.ragged_dimension, self.index.shape
        return (*shape[:at], RowLength(shape[at]), *shape[at + 1 :])

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.index.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.index.size

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The grid axes it depends on."""
        return self.index.axes if self.rows is None else union_axes([self.index.axes, self.rows.axes])

    @property
    def is_whole_variable(self) -> bool:
        """Whether it is one variable, all of it, in order."""
        return isinstance(self.source, Variable) and self.is_whole_source

    @property
    def is_whole_source(self) -> bool:
        """Whether it is all of what it views, in order."""
        source, index = self.source, self.index
        return (
            self.rows is None
            and index.is_strided
            and index.shape == source.shape
            and index.offset == 0
            and (index.strides == row_major_strides(source.shape) or 0 in source.shape)
        )

    def __getitem__(self, items: object) -> Tensor:
        """A view of some elements, by NumPy's rules; symbols and tables may stand where integers may.

        A ragged table, or a slice whose length depends on a symbol, makes a view with a ragged dimension.

        Raises:
            OutOfBoundsError: an index that leaves the tensor at any position of the grid.
            ViewError: two lengths that depend on symbols, or something that is no index.
        """
        layout = self.layout
        if layout is None:
            layout = self.find_layout()
            if layout is None:
                return self._view(items)
        # Graphs of single vertices are built of little else than what follows: it is written to be fast.
        offset, place = self.offset, layout.first
        for item in items if type(items) is tuple else (items,):
            if type(item) is int:
                if not 0 <= item < place.extent:
                    return self._view(items)
                offset += item * place.stride
                place = place.point or place.after_number()
            elif type(item) is slice:
                start, stop = item.start, item.stop
                if (
                    item.step is not None
                    or type(start) is not int
                    or type(stop) is not int
                    or not 0 <= start < stop <= place.extent
                ):
                    return self._view(items)
                offset += start * place.stride
                place = place.spans.get(stop - start) or place.after_slice(stop - start)
            else:
                return self._view(items)
        view = _TensorSlots()
        view.source = self.source
        view._index = view.rows = None
        view.ragged_dimension = 0
        view.layout = place.layout or place.end()
        view.offset = offset
        view.__class__ = Tensor
        return view  # type: ignore[return-value]

    def _view(self, items: object) -> Tensor:
        """A view of some elements; see `__getitem__`, which does what is common by itself."""
        if self.rows is not None:
            return self._within_rows(items)
        if type(items) is tuple and any(isinstance(item, np.integer) for item in items):
            return self[tuple(int(item) if isinstance(item, np.integer) else item for item in items)]
        taken = self.index[int(items) if isinstance(items, np.integer) else items]
        if isinstance(taken, Ragged):
            return Tensor(self.source, taken.index, taken.rows, taken.dimension)
        return Tensor(self.source, taken)

    def over(self, axes: Sequence[Axis]) -> Tensor:
        """It over axes that stand for all of its own, without idle symbols: a view as a family holds it."""
        if self.rows is None:
            index = self.index.over(axes).without_idle_symbols()
            return self if index is self.index else Tensor(self.source, index)
        moved = Ragged(self.index, self.ragged_dimension, self.rows).over(axes)
        return Tensor(self.source, moved.index.without_idle_symbols(), moved.rows, moved.dimension)

    def _within_rows(self, items: object) -> Tensor:
        """A view of a ragged tensor that keeps all of each row."""
        rows, at = self.rows, self.ragged_dimension
        assert rows is not None
        dimension = kept = moved = 0
        for item in expanded_items(items, self.shape):
            is_slice = isinstance(item, slice)
            position = None if item is None or is_slice else as_index(item)
            if dimension == at and is_slice and item == slice(None):
                moved = kept
            elif item is not None and (
                dimension == at
                or not (is_slice or (position is not None and not position.shape))
                or (position is not None and set(position.keys) & set(rows.axes))
            ):
                raise ViewError(
                    "a view with a ragged dimension is indexed by more than numbers and slices beside that dimension",
                    given=f"{item} for dimension {dimension}",
                    expected=f"`:` for dimension {at}, which holds a row of another length for each vertex",
                    fix="look up what is wanted by the ragged table or slice itself",
                )
            kept += item is None or is_slice
            dimension += item is not None
        taken = self.index[items]
        if isinstance(taken, Ragged):
            raise ViewError(
                "a view has two lengths that depend on symbols", given=f"{rows} and {taken.rows}", expected="one"
            )
        return Tensor(self.source, taken, rows, moved)

    def _refuse_rows(self, what: str) -> None:
        if self.rows is not None:
            raise ViewError(
                f"a view with a ragged dimension is {what}",
                given=self,
                expected="a view whose length is the same for all vertices",
                fix=f"see that what it views is {what} first, and look up rows of that",
            )

    def __len__(self) -> int:
        if not self.shape or (self.rows is not None and self.ragged_dimension == 0):
            raise ViewError(
                "a tensor without dimensions has no length"
                if not self.shape
                else "a view has another length for each vertex",
                given=self,
                expected="a tensor whose first dimension is the same for all vertices",
                fix="within a codelet the length of a field is x.shape[0]" if self.shape else "x.size is 1",
            )
        return self.shape[0]

    def __eq__(self, other: object) -> Any:
        # Tensors are themselves and no other, so that they may be keys; with numbers elements would be compared.
        if isinstance(other, (int, float, complex, np.generic, np.ndarray, jax.Array, Index)):
            raise self._refuse("`==`", f"{shown(self)} == {shown(other)}")
        return NotImplemented

    __hash__ = object.__hash__

    def _refuse(self, use: str, given: str) -> TensorError:
        fix = "add a vertex that computes it: graph.add_vertex(compute_set, codelet, field=tensor)"
        if (mend := mend_of(use, given)) is not None:
            fix = f"{mend}, or {fix}"
        if use in ("`bool`", "`int`", "`float`", "`complex`"):
            fix = "decide by jnp.where in a codelet that computes it, or by cl.If or cl.RepeatWhile on its result"
        elif use == "`[...] =`":
            fix = "write the view by a vertex, add_vertex(..., out=tensor[...]), or by cl.Copy"
        elif use in ("`numpy.asarray`", "`jax.numpy.asarray`", "`format`"):
            fix += "; engine.read(tensor), or what a lowered function returns, has the numbers that it computed"
        return TensorError(
            f"a tensor has no {use}: it is a view, whose elements have no numbers while the graph is built",
            given=given,
            expected="a view of it, or a field of a vertex",
            fix=fix,
        )

    @property
    def __jax_array__(self) -> Any:
        # Not a method: JAX's compiled functions look for it, call it never, and word a mistake of their own.
        name = function_of_jax()
        raise self._refuse(f"`{name}`", repr(self) if name == "jax.numpy.asarray" else f"{name}({shown(self)})")

    def __iter__(self) -> Iterator[Tensor]:
        return (self[k] for k in range(len(self)))

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """Its elements, in row-major order, in another shape; one extent may be -1.

        Raises:
            ViewError: a shape of another size.
        """
        self._refuse_rows("reshaped")
        return Tensor(self.source, self.index.reshape(as_shape(shape, self.shape)))

    def flatten(self) -> Tensor:
        """Its elements, in row-major order, in one dimension."""
        return self.reshape((self.size,))

    def transpose(self, *order: int | Sequence[int]) -> Tensor:
        """Its dimensions in another order, or reversed when none is given."""
        positive = as_order(order, self.ndim)
        moved = positive.index(self.ragged_dimension) if self.rows is not None else 0
        return Tensor(self.source, self.index.transpose(positive), self.rows, moved)

    @property
    def T(self) -> Tensor:
        """Its dimensions reversed."""
        return self.transpose()

    def broadcast_to(self, shape: int | Sequence[int]) -> Tensor:
        """Its elements repeated over `shape`, by NumPy's rules."""
        self._refuse_rows("broadcast")
        wanted = as_integers((shape,), "the shape of a broadcast")
        try:
            fits = np.broadcast_shapes(wanted, self.shape) == wanted
        except ValueError:
            fits = False
        if not fits:
            raise ViewError(
                "a tensor cannot be broadcast to this shape",
                given=f"{self.shape} to {wanted}",
                expected="a shape that ends in the tensor's, but for its extents of 1",
            )
        return Tensor(self.source, self.index.broadcast_to(wanted))

    def expand(self, dimension: int) -> Tensor:
        """A new dimension of extent 1 before `dimension`."""
        at = as_dimension(dimension, self.ndim + 1)
        return self[(slice(None),) * at + (None,)]

    def squeeze(self, dimension: int | None = None) -> Tensor:
        """Without `dimension`, of extent 1; without all such dimensions when none is named."""
        if dimension is None:
            return self[tuple(0 if n == 1 else slice(None) for n in self.shape)]
        at = as_dimension(dimension, self.ndim)
        if self.shape[at] != 1:
            raise ViewError(
                "a squeezed dimension has more than one element",
                given=f"dimension {at} of {self.shape}",
                expected="a dimension of extent 1",
            )
        return self[(slice(None),) * at + (0,)]

    def reverse(self, dimension: int) -> Tensor:
        """With the order of one dimension reversed."""
        at = as_dimension(dimension, self.ndim)
        return self[(slice(None),) * at + (slice(None, None, -1),)]

    def text(self) -> str:
        """It in an error about an expression: what is viewed, and where."""
        return self.name if self.is_whole_variable else repr(self)

    def pad(self, widths: object, mode: str = "constant", value: object = 0) -> Tensor:
        """With more positions before and after its dimensions, as `numpy.pad` adds them. It needs no memory.

        Modes `edge`, `wrap` and `reflect` repeat its own elements. Mode `constant` adds positions that are
        elements of no variable: no edge leads to them, nothing writes them, and they hold `value`. Pad once
        and index the result: vertices added in a loop that each pad anew are each a family of their own.

        Args:
            widths: for each dimension how many positions before and after, ((1, 1), (0, 2)); or one such
                pair for all dimensions; or one number for all.
            mode: "constant"; "edge" for the element at the end; "wrap" for those of the other end;
                "reflect" for those next to the end, in reverse.
            value: what a constant pad holds; any number that the dtype holds.

        Raises:
            ViewError: widths that do not fit or are negative, a mode that is none, a value without mode
                "constant", an empty dimension that would have to repeat something.
            FieldTypeError: a value that the dtype cannot hold.

        Source: numpy.pad, NumPy's API reference.

        >>> import codelet as cl
        >>> x = cl.Graph().add_variable("x", (3,))
        >>> x.pad(2).elements().tolist(), x.pad((0, 2), "wrap").elements().tolist()
        ([-1, -1, 0, 1, 2, -1, -1], [0, 1, 2, 0, 1])
        >>> i = cl.grid(3)
        >>> x.pad(1)[i : i + 3].elements(i.axes).tolist()
        [[-1, 0, 1], [0, 1, 2], [1, 2, -1]]
        """
        self._refuse_rows("padded")
        pairs = as_widths(widths, self.shape)
        if not isinstance(mode, str) or mode not in MODES:
            raise ViewError("a pad has an unknown mode", given=f"mode={mode!r}", expected=" or ".join(map(repr, MODES)))
        if mode != "constant":
            if not (isinstance(value, int) and value == 0):
                raise ViewError(f"a pad of mode {mode!r} is given a value", given=value, expected="mode 'constant'")
            extended = self
            for d, (before, after) in enumerate(pairs):
                positions = repeated_positions(self.shape[d], before, after, mode) if before or after else slice(None)
                extended = extended[(slice(None),) * d + (positions,)]
            return extended
        held = as_padding(value, self.dtype)
        if not any(map(any, pairs)):
            return self
        # As of what is joined, symbols become dimensions of what is padded.
        index = self.index.without_idle_symbols()
        axes = index.axes
        source = padded(Tensor(self.source, index.lifted(axes)), ((0, 0),) * len(axes) + pairs, held)
        return Tensor(source, row_major(source.shape).bound(axes).mentioning(self.axes))

    def elements(self, axes: Sequence[Axis] = ()) -> np.ndarray:
        """The graph's numbers of its elements, int64 of shape `(extents of axes..., *shape)`; -1 for padding.

        Of a view with a ragged dimension, those of all rows; `axes` need not cover the axes of the rows.

        Two positions hold the same number exactly when they view the same element, or padding both.
        """
        return source_elements(self.source)[self.index.values(axes)]

    def __repr__(self) -> str:
        text = f"{type_text(self.dtype, self.shape)} of {source_text(self.source)}: {self.index.text()}"
        if self.rows is not None:
            ends = f"{self.rows.lengths.min()} to {self.rows.lengths.max()}" if self.rows.count else "no rows"
            text += f", {LENGTH_NAMES[0]} from {ends}"
        return f"Tensor({text})"


def whole_view(source: Source) -> Tensor:
    """All of a source, as it lies."""
    return Tensor(source, row_major(source.shape))


def views_padding(tensor: Tensor) -> bool:
    """Whether a view holds padding at any position of the grid, so that it cannot be written."""
    if not tensor.source.has_padding:
        return False
    numbers = source_elements(tensor.source)
    return any(bool((numbers[block] < 0).any()) for _, block in tensor.index.blocks(tensor.index.axes))
