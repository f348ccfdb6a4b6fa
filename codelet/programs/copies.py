"""Copies: between views, and between views and the streams of the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from codelet.errors import ForeignGraphError, ProgramError
from codelet.hostdata import as_array
from codelet.programs.checks import check_plain, check_variables
from codelet.programs.program import Program
from codelet.views.sources import source_text, type_text
from codelet.views.tensor import Tensor, views_padding

if TYPE_CHECKING:
    from codelet.graphs.graph import Graph


@dataclass(frozen=True, eq=False)
class Stream:
    """Values from the host or to it, one for each copy from or to the stream.

    Made by `Graph.add_input_stream` and `Graph.add_output_stream`.

    Attributes:
        graph: the graph it belongs to.
        name: unique within the graph, scopes included.
        shape: the shape of one value.
        dtype: its NumPy dtype.
        is_input: True if it comes from the host.
        buffering_depth: how many values the buffer holds.

    >>> import codelet as cl
    >>> graph = cl.Graph()
    >>> batches, x = graph.add_input_stream("batches", (2,)), graph.add_variable("x", (2,))
    >>> program = cl.Repeat(3, cl.Copy(batches, x))
    >>> cl.interpret(graph, program, values={batches: [[1, 2], [3, 4], [5, 6]]}, outputs=x)[x].tolist()
    [5.0, 6.0]
    """

    graph: Graph
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    is_input: bool
    buffering_depth: int = 1

    @property
    def type_text(self) -> str:
        """Shape and dtype of one value, as text.

        >>> import codelet as cl
        >>> cl.Graph().add_input_stream("batches", (32, 784)).type_text
        'float32[32,784]'
        """
        return type_text(self.dtype, self.shape)

    def __repr__(self) -> str:
        return f"{self.name}: {'input' if self.is_input else 'output'} stream of {self.type_text}"


def _check_side(side: object, is_source: bool) -> None:
    """One side of a copy: a view without symbols, or a stream that goes its way."""
    if isinstance(side, Stream):
        if side.is_input != is_source:
            way = "comes from the host: nothing is copied to it" if side.is_input else "goes to the host: nothing comes"
            raise ProgramError(f"stream {side.name!r} {way}", given=side, fix="change the sides of the copy")
    elif not isinstance(side, Tensor):
        raise ProgramError(
            "a copy is to a tensor or a stream",
            given=f"{side!r:.80}",
            expected="a tensor or an output stream of the graph, behind what is copied",
            fix="graph.variable(name) gives a variable by its name" if isinstance(side, str) else None,
        )
    else:
        check_plain(side, "a copy")


class _Destination(NamedTuple):
    """The destination of copied numbers, without its shape: they may be broadcast."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype


def _is_numbers(value: object) -> bool:
    """Whether a value is a number, an array, or numbers in lists."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_numbers, value))
    return isinstance(value, (bool, int, float, complex)) or (hasattr(value, "__array__") and hasattr(value, "dtype"))


def _constant(value: Any, destination: Tensor | Stream) -> Tensor:
    """Numbers as a constant of the graph, broadcast to the shape of their destination."""
    if isinstance(value, Tracer):
        raise ProgramError(
            "a traced value is copied",
            given=value,
            expected="a tensor, or numbers known while the program is made",
            fix="make it a variable and pass the value as an input",
        )
    name = destination.name if isinstance(destination, Stream) else source_text(destination.source)
    try:
        shape = np.shape(value)
        if not _is_numbers(value) or np.broadcast_shapes(shape, destination.shape) != destination.shape:
            raise ValueError
    except ValueError:
        raise ProgramError(
            "what is copied is neither a tensor nor numbers that fit",
            given=f"{value!r:.80}",
            expected=f"a tensor, an input stream, a number, or an array that broadcasts to "
            f"{type_text(destination.dtype, destination.shape)}",
            fix="graph.variable(name) gives a variable by its name" if isinstance(value, str) else None,
        ) from None
    with jax.ensure_compile_time_eval():
        array = np.asarray(as_array(value, _Destination(name, shape, destination.dtype)))
    return destination.graph.copied_constant(array, destination).broadcast_to(destination.shape)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Copy(Program):
    """Copy the elements of one view to another, as if the whole source were read first; or copy one value of a stream.

    Args:
        source: a view, which may be of several variables; an input stream, which gives its next value; or a number
            or an array, which becomes a constant of the graph, broadcast to the destination. With a tile mapping, the
            constant is placed on the tile of the first element that it is copied to.
        destination: a view without repeated elements, or an output stream, to which the value is sent.

    Raises:
        ProgramError: views that differ in shape or dtype, or depend on symbols; padding as destination.
        ForeignGraphError: views of different graphs.
        ArrayError: numbers whose dtype does not fit.
        VariableError: a destination that is a constant.
        SelfAliasError: a destination that names an element twice; raised when the program is lowered.

    Source: program::Copy of Poplar's API reference.

    >>> import codelet as cl
    >>> graph = cl.Graph()
    >>> x = graph.add_variable("x", (2, 3))
    >>> cl.interpret(graph, values={}, outputs=[x], program=[cl.Copy(0, x), cl.Copy([1.0, 2.0], x[:, 1])])["x"].tolist()
    [[0.0, 1.0, 0.0], [0.0, 2.0, 0.0]]
    """

    source: Tensor | Stream
    destination: Tensor | Stream

    def __init__(self, source: Any, destination: Tensor | Stream):
        _check_side(destination, False)
        if not isinstance(source, (Tensor, Stream)):
            source = _constant(source, destination)
        _check_side(source, True)
        if isinstance(source, Stream) and isinstance(destination, Stream):
            raise ProgramError(
                "a copy goes from a stream to a stream",
                given=f"{source} to {destination}",
                expected="a tensor on one side",
                fix="copy to a variable, and from there",
            )
        if source.graph is not destination.graph:
            raise ForeignGraphError(
                "a copy joins two graphs",
                given=f"{source} to {destination}",
                expected="two tensors, or a stream and a tensor, of one graph",
            )
        if source.shape != destination.shape or source.dtype != destination.dtype:
            raise ProgramError(
                "the two sides of a copy differ",
                given=f"{source} to {destination}",
                expected="one shape and dtype",
                fix="a vertex that converts, for another dtype"
                if source.dtype != destination.dtype
                else "a view of as many elements: x[...], x.reshape(...), x.broadcast_to(...)",
            )
        if isinstance(destination, Tensor) and views_padding(destination):
            raise ProgramError(
                "a copy would write padding, which is an element of no variable",
                given=destination,
                expected="a destination of elements of variables alone",
                fix="copy to the tensor that was padded, or slice the padding off both sides",
            )
        if isinstance(destination, Tensor):
            check_variables(destination, "a copy")
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "destination", destination)

    def lines(self) -> Iterator[str]:
        yield f"Copy({self.source} -> {self.destination})"
