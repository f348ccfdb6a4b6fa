"""Names: what of a graph the host means, by a tensor, a view, a stream, or the name of a variable or a stream."""

from __future__ import annotations

from typing import Any

from codelet.errors import ArrayError, ForeignGraphError, NotInGraphError, ViewError
from codelet.graphs.by_tensor import several
from codelet.graphs.graph import Graph
from codelet.programs.copies import Stream
from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import Tensor


class Names:
    """What there was in a graph when an engine was made of it.

    Attributes:
        graph: the graph, which may have grown since.
        variables: its variables, in order.
        by_name: the same, by name.
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        self.variables: tuple[Variable, ...] = tuple(graph.sources)
        self.by_name = {variable.name: variable for variable in self.variables}
        self._streams = {stream.name: stream for stream in graph.streams}

    def is_stream(self, given: object) -> bool:
        """Whether something means a stream."""
        return isinstance(given, Stream) or (isinstance(given, str) and given in self._streams)

    def stream(self, given: object) -> Stream:
        """The stream that the host means.

        Raises:
            NotInGraphError: one that is not there.
        """
        stream = self._streams.get(given) if isinstance(given, str) else given
        if not isinstance(stream, Stream) or self._streams.get(stream.name) is not stream:
            known = isinstance(given, Tensor) or (isinstance(given, str) and given in self.by_name)
            raise NotInGraphError(
                "a variable is no stream" if known else "the engine has no such stream",
                given=given,
                expected=", ".join(self._streams) or "none: the graph has no streams",
                fix="engine.write({...}) gives a variable its values" if known else None,
            )
        return stream

    def tensor(self, given: Any, what: str) -> Tensor:
        """The view that the host means, without symbols.

        Args:
            given: a tensor, or the name of a variable.
            what: what is done with it, as in an error: `read`.

        Raises:
            ArrayError: a stream.
            NotInGraphError: a name no variable has, or something that names none.
            ForeignGraphError: a tensor of another graph.
            ViewError: one that depends on symbols.
        """
        if self.is_stream(given):
            name = given.name if isinstance(given, Stream) else given
            raise ArrayError(
                f"{name!r} is a stream, not a variable",
                given=given,
                expected="a variable",
                fix=f"engine.connect({name!r}, values) before it runs",
            )
        tensor = self.graph.variable(given) if isinstance(given, str) else given
        if not isinstance(tensor, Tensor):
            raise NotInGraphError(
                f"what is {what} is neither a variable nor a view of one",
                given=f"{type(given).__name__}: {given!r:.80}",
                expected="a tensor of the graph, or the name of a variable",
            )
        if tensor.graph is not self.graph:
            raise ForeignGraphError(
                f"what is {what} belongs to another graph",
                given=tensor,
                expected="a tensor of the graph that the engine was made of",
            )
        for variable in source_variables(tensor.source):
            if self.by_name.get(variable.name) is not variable:
                raise NotInGraphError(
                    f"{variable.name!r} was added after the engine was made", given=tensor, expected="a new Engine"
                )
        if tensor.rows is not None or tensor.axes:
            raise ViewError(
                f"a view that depends on symbols is {what} by the host",
                given=tensor,
                expected="a view of numbers, slices and tables alone",
                fix="put numbers where the symbols are; `x[i]` for all i is x itself",
            )
        return tensor

    def kept(self, given: Any) -> list[Variable]:
        """The variables of which the host keeps any element, of a tensor or a name, or of some of them."""
        listed = several(given)
        return [
            variable
            for each in ([given] if listed is None else listed)
            for variable in source_variables(self.tensor(each, "kept").source)
        ]
