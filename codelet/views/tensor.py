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
    """The slots of a tensor, and its class while they are
    filled: its class becomes `Tensor` when it is made.

    Of the ways to make a frozen object, this costs least where one is made for every edge of a graph: a change of class
    takes 20 ns; `object.__setattr__`, which frozen dataclasses call, takes 45 for each slot.
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

    It is indexed as NumPy arrays are, and by grid symbols and tables. A view makes no state and moves no data.

    Attributes:
        source: the variable, or the concatenation of tensors, that is viewed.
        index: the flat element of the source at each position.
        rows: for a view with a ragged dimension, whose length depends on the vertex: the rows of each vertex. `index`
            and `shape` are then those of the elements of all vertices.
        ragged_dimension: the dimension that is ragged, if there are rows.
        layout: for a strided view, the part that is independent of the offset; `None` for other views, and until
            `find_layout` is called.
        offset: the offset of a view with a layout, in elements.

    >>> import codelet as cl
    >>> x = cl.Graph().add_variable("x", (2, 3))
    >>> x[1, ::2], x[:, 0].elements().tolist()
    (Tensor(float32[2] of x: 3 + 2*f0), [0, 3])
    """

    __slots__ = ()

    def __init__(self, source: Source, index: Index, rows: Rows | None = None, ragged_dimension: int = 0):
        state = {"source": source, "_index": index, "rows": rows, "ragged_dimension": ragged_dimension}
        self.__setstate__((None, {**state, "layout": None, "offset": 0}))

    @property
    def index(self) -> Index:
        """The flat element of the source at each position.

        >>> import codelet as cl
        >>> x = cl.Graph().add_variable("x", (2, 3))
        >>> x[:, 1].index, x[:, 1].index.values().tolist()
        (Index(1 + 3*f0, shape=(2,)), [1, 4])
        """
        index = self._index
        if index is None:
            assert self.layout is not None
            index = Index(self.offset, self.layout.shape, self.layout.strides)
            object.__setattr__(self, "_index", index)
        return index

    def find_layout(self) -> Layout | None:
        """Its layout, or `None` if it is not a strided view.

        >>> import codelet as cl
        >>> x = cl.Graph().add_variable("x", (4, 6))
        >>> x[1:3, ::2].find_layout().strides, x[[0, 2, 3]].find_layout()
        ((6, 2), None)
        """
        index = self.index
        if self.layout is None and index.is_strided and self.rows is None:
            object.__setattr__(self, "offset", index.offset)
            object.__setattr__(self, "layout", layout_of(self.source, index.shape, index.strides))
        return self.layout

    @property
    def graph(self) -> Graph:
        """The graph of its elements.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> graph.add_variable("x", (2, 3))[0].graph is graph
        True
        """
        return self.source.graph

    @property
    def name(self) -> str:
        """The name of the variable that it views in whole, scopes included.

        Raises:
            UnnamedError: a view of part of a variable, or of several.

        >>> import codelet as cl
        >>> cl.Graph().add_variable("x", (2, 3)).name
        'x'
        """
        if not self.is_whole_variable:
            raise UnnamedError(
                "a view has no name",
                given=self,
                expected="a variable, all of it, as graph.add_variable returns it",
                fix="engine.read(view) needs no name; it views "
                + ", ".join(variable.name for variable in source_variables(self.source)),
            )
        return source_text(self.source)

    @property
    def dtype(self) -> np.dtype:
        """The NumPy dtype of its elements.

        >>> import codelet as cl
        >>> cl.Graph().add_variable("n", (4,), "int32")[:2].dtype
        dtype('int32')
        """
        return self.source.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape. If it depends on symbols, its shape at each position of the grid.

        The extent of a ragged dimension is the number of elements of all rows; it prints as `n`.

        >>> import codelet as cl
        >>> x = cl.Graph().add_variable("x", (2, 3))
        >>> x.shape, x[cl.grid(2)].shape
        ((2, 3), (3,))
        """
        if self.rows is None:
            return self.index.shape
        at, shape = self.ragged_dimension, self.index.shape
        return (*shape[:at], RowLength(shape[at]), *shape[at + 1 :])

    @property
    def ndim(self) -> int:
        """The number of dimensions.

        >>> import codelet as cl
        >>> x = cl.Graph().add_variable("x", (2, 3))
        >>> x.ndim, x.size, x.dtype
        (2, 6, dtype('float32'))
        """
        return len(self.index.shape)

    @property
    def size(self) -> int:
        """The number of elements.

        >>> import codelet as cl
        >>> cl.Graph().add_variable("x", (2, 3))[:, 1:].size
        4
        """
        return self.index.size

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The grid axes it depends on.

        >>> import codelet as cl
        >>> x = cl.Graph().add_variable("x", (2, 3))
        >>> x.axes, len(x[cl.grid(2)].axes)
        ((), 1)
        """
        return self.index.axes if self.rows is None else union_axes([self.index.axes, self.rows.axes])

    @property
    def is_whole_variable(self) -> bool:
        """True if it is one whole variable, in order.

        >>> import codelet as cl
        >>> x = cl.Graph().add_variable("x", (2, 3))
        >>> x.is_whole_variable, x.T.is_whole_variable
        (True, False)
        """
        return isinstance(self.source, Variable) and self.is_whole_source

    @property
    def is_whole_source(self) -> bool:
        """True if it is the whole source, in order.

        >>> import codelet as cl
        >>> x = cl.Graph().add_variable("x", (2, 3))
        >>> x[:].is_whole_source, x[0].is_whole_source, x.transpose(1, 0).is_whole_source
        (True, False, False)
        """
        source, index = self.source, self.index
        return (
            self.rows is None
            and index.is_strided
            and index.shape == source.shape
            and index.offset == 0
            and (index.strides == row_major_strides(source.shape) or 0 in source.shape)
        )

    def __getitem__(self, items: object) -> Tensor:
        """A view of some elements, by NumPy's rules. Symbols and tables may stand for integers.

        A ragged table, or a slice whose length depends on a symbol, makes a view with a ragged dimension.

        Args:
            items: an integer, a slice, `...`, `None`, an integer array, an index expression or a lookup in a
                `cl.table`, for each dimension.

        Raises:
            OutOfBoundsError: an index outside the tensor at some position of the grid.
            ViewError: two lengths that depend on symbols, or an invalid index.

        >>> import codelet as cl
        >>> x = cl.Graph().add_variable("x", (4, 6))
        >>> i = cl.grid(3)
        >>> x[0].shape, x[:, -1].shape, x[i, 2 * i : 2 * i + 2].shape
        ((6,), (4,), (2,))
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
        """A view of some elements; see `__getitem__`, which does the common cases by itself."""
        if self.rows is not None:
            return self._within_rows(items)
        if type(items) is tuple and any(isinstance(item, np.integer) for item in items):
            return self[tuple(int(item) if isinstance(item, np.integer) else item for item in items)]
        taken = self.index[int(items) if isinstance(items, np.integer) else items]
        if isinstance(taken, Ragged):
            return Tensor(self.source, taken.index, taken.rows, taken.dimension)
        return Tensor(self.source, taken)

    def over(self, axes: Sequence[Axis]) -> Tensor:
        """The same view over other axes, which stand for all of its axes, without idle symbols. Families hold views so.

        Args:
            axes: the axes of the family.

        >>> import codelet as cl
        >>> x, i = cl.Graph().add_variable("x", (4,)), cl.grid(4)
        >>> x[i].over(i.axes)
        Tensor(float32[] of x: i0)
        """
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
        """Its elements in row-major order, in another shape. One extent may be -1.

        Args:
            shape: the extents, as integers or one sequence.

        Raises:
            ViewError: a shape of another size, or a view with a ragged dimension.

        >>> import codelet as cl
        >>> x = cl.Graph().add_variable("x", (2, 3))
        >>> x.reshape(3, -1).elements().tolist()
        [[0, 1], [2, 3], [4, 5]]
        """
        self._refuse_rows("reshaped")
        return Tensor(self.source, self.index.reshape(as_shape(shape, self.shape)))

    def flatten(self) -> Tensor:
        """Its elements in row-major order, in one dimension.

        Raises:
            ViewError: a view with a ragged dimension.

        >>> import codelet as cl
        >>> cl.Graph().add_variable("x", (2, 3)).T.flatten().elements().tolist()
        [0, 3, 1, 4, 2, 5]
        """
        return self.reshape((self.size,))

    def transpose(self, *order: int | Sequence[int]) -> Tensor:
        """Its dimensions in another order.

        Args:
            order: the old dimension at each new place, as integers or one sequence. Default: reversed.

        Raises:
            ViewError: an order that does not name each dimension once.

        >>> import codelet as cl
        >>> x = cl.Graph().add_variable("x", (2, 3, 4))
        >>> x.transpose(0, 2, 1).shape, x.transpose().shape
        ((2, 4, 3), (4, 3, 2))
        """
        positive = as_order(order, self.ndim)
        moved = positive.index(self.ragged_dimension) if self.rows is not None else 0
        return Tensor(self.source, self.index.transpose(positive), self.rows, moved)

    @property
    def T(self) -> Tensor:
        """Its dimensions reversed.

        >>> import codelet as cl
        >>> cl.Graph().add_variable("x", (2, 3)).T.elements().tolist()
        [[0, 3], [1, 4], [2, 5]]
        """
        return self.transpose()

    def broadcast_to(self, shape: int | Sequence[int]) -> Tensor:
        """Its elements repeated to `shape`, by NumPy's rules.

        Args:
            shape: its extents.

        Raises:
            ViewError: a shape that it cannot be broadcast to, or a view with a ragged dimension.

        >>> import codelet as cl
        >>> cl.Graph().add_variable("x", (3,)).broadcast_to((2, 3)).elements().tolist()
        [[0, 1, 2], [0, 1, 2]]
        """
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
        """Add a dimension of extent 1.

        Args:
            dimension: its place in the result.

        Raises:
            ViewError: a dimension that does not exist.

        >>> import codelet as cl
        >>> cl.Graph().add_variable("x", (2, 3)).expand(1).shape
        (2, 1, 3)
        """
        at = as_dimension(dimension, self.ndim + 1)
        return self[(slice(None),) * at + (None,)]

    def squeeze(self, dimension: int | None = None) -> Tensor:
        """Remove dimensions of extent 1.

        Args:
            dimension: the one to remove. Default: all of extent 1.

        Raises:
            ViewError: a dimension that does not exist, or of another extent.

        >>> import codelet as cl
        >>> x = cl.Graph().add_variable("x", (2, 1, 3, 1))
        >>> x.squeeze().shape, x.squeeze(1).shape
        ((2, 3), (2, 3, 1))
        """
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
        """Reverse the order of one dimension.

        Args:
            dimension: which.

        Raises:
            ViewError: a dimension that does not exist.

        >>> import codelet as cl
        >>> cl.Graph().add_variable("x", (2, 3)).reverse(1).elements().tolist()
        [[2, 1, 0], [5, 4, 3]]
        """
        at = as_dimension(dimension, self.ndim)
        return self[(slice(None),) * at + (slice(None, None, -1),)]

    def text(self) -> str:
        """The view as errors print it in an expression.

        >>> import codelet as cl
        >>> x = cl.Graph().add_variable("x", (4,))
        >>> x.text(), x[1:].text()
        ('x', 'Tensor(float32[3] of x: 1 + f0)')
        """
        return self.name if self.is_whole_variable else repr(self)

    def pad(self, widths: object, mode: str = "constant", value: object = 0) -> Tensor:
        """Add positions before and after its dimensions, as `numpy.pad` does. It needs no memory.

        Modes `edge`, `wrap` and `reflect` repeat elements of the tensor. Mode `constant` adds padding: positions with
        `value`, which no edge reads and no vertex writes. Pad once and index the result: vertices added in a loop that
        pads again in each iteration are one family each.

        Args:
            widths: the number of positions before and after each dimension, ((1, 1), (0, 2)); or one such pair for all
                dimensions; or one number for all.
            mode: "constant"; "edge" repeats the last element, "wrap" continues at the other end, "reflect" mirrors
                without the last element.
            value: the value of a constant pad: a number that the dtype can represent.

        Raises:
            ViewError: widths that do not fit or are negative, an unknown mode, a value with another mode than
                "constant", or an empty dimension to repeat.
            FieldTypeError: a value that the dtype cannot represent.

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
        """The graph's numbers of its elements, int64 of shape `(*extents of axes, *shape)`; -1 for padding.

        Two positions hold the same number exactly if they view the same element, or if both are padding. For a view
        with a ragged dimension, the elements of all rows; `axes` need not cover the axes of the rows.

        Args:
            axes: the grid axes to evaluate it over, such as `i.axes`. Default: none, for a view without symbols.

        >>> import codelet as cl
        >>> x = cl.Graph().add_variable("x", (4,))
        >>> i = cl.grid(2)
        >>> x[1:3].elements().tolist(), x[i : i + 3].elements(i.axes).tolist()
        ([1, 2], [[0, 1, 2], [1, 2, 3]])
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
