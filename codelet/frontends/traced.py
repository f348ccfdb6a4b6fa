"""Traced: a function as a graph, with what goes in and what comes out."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from codelet.errors import ArrayError, SavingError, TraceError
from codelet.frontends.arguments import Convention, Flat, flatten
from codelet.frontends.layers import layer_of
from codelet.frontends.passes.fuse_elementwise import Saved
from codelet.frontends.values import is_key, returned, unwrapped
from codelet.graphs.by_tensor import Named
from codelet.graphs.graph import Graph
from codelet.hostcopies import on_device
from codelet.programs.program import Program
from codelet.schema import TEXT, accepts
from codelet.views.tensor import Tensor

if TYPE_CHECKING:
    from codelet.draw.diagram import Diagram
    from codelet.draw.picture import Picture
    from ipu_backend.model.profile import Profile


class Traced:
    """A function of JAX as a graph of vertices. Made by `cl.trace`; called as the function is.

    Attributes:
        graph: its vertices.
        program: what runs when.
        jaxpr: what was traced.
        fusion: what was saved by making neighbouring elementwise operations one.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        convention: Convention,
        graph: Graph,
        program: Program,
        arguments: tuple[Flat, Sequence[Tensor]],
        results: tuple[Flat, Sequence[Tensor]],
        jaxpr: Any,
        fusion: Saved,
    ):
        self.function, self.graph, self.program, self.jaxpr, self.fusion = function, graph, program, jaxpr, fusion
        self.__name__ = convention.name
        self.__doc__ = function.__doc__
        self._convention = convention
        self._arguments, self._inputs = arguments[0], tuple(arguments[1])
        self._results, self._outputs = results[0], tuple(results[1])
        self._lowered: Any = None

    @property
    def inputs(self) -> Any:
        """The variables of the arguments, as these lie in them: a tuple, those by keyword in a dictionary behind."""
        return self._arguments.filled(self._inputs)

    @property
    def outputs(self) -> Any:
        """The tensors of the results, as these lie in them."""
        return self._results.filled(self._outputs)

    @property
    def flat_inputs(self) -> tuple[Tensor, ...]:
        """The variables of the arguments, in order."""
        return self._inputs

    @property
    def flat_outputs(self) -> tuple[Tensor, ...]:
        """The tensors of the results, in order."""
        return self._outputs

    @property
    def lowered(self) -> Any:
        """What runs: the graph as a pure function, by `cl.lower`."""
        if self._lowered is None:
            import codelet as cl

            self._lowered = cl.lower(self)
        return self._lowered

    def arrays(self, *arguments: Any, **keywords: Any) -> dict[Tensor, Any]:
        """What an engine is to write of arguments, by variable: `engine.write(traced.arrays(x, y))`.

        Raises:
            ArrayError: other arguments than those that were traced.
        """
        return dict(zip(self._inputs, self._given(arguments, keywords), strict=True))

    @property
    def ends(self) -> tuple[Tensor, ...]:
        """What goes in and what comes out: what keeps its memory, as it is the host's or the next step's."""
        return (*self._inputs, *self._outputs)

    def profile(
        self,
        *,
        placement: Any = None,
        host_visible: Named | Iterable[Named] | None = None,
        allow_out_of_memory: bool = False,
        **old: Any,
    ) -> Profile:
        """What the graph costs on its machine, as an engine of it says; see `cl.Engine.profile` for the arguments."""
        import codelet as cl

        given: dict[str, Any] = {"placement": placement, "allow_out_of_memory": allow_out_of_memory, **old}
        if host_visible is not None:
            given["host_visible"] = host_visible
        return cl.Engine(self).profile(**given)

    @accepts(TraceError, name=TEXT)
    def layer_of(self, name: str) -> str:
        """The layer of the model that a compute set is of, by its name; "" where it is of none."""
        return layer_of(name)

    def draw(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        program: object = None,
        profile: Any = None,
        size: int = 2048,
        style: str = "dark",
        colour: str = "layer",
        palette: str = "hue",
        highlight: str | None = None,
        title: str = "",
        packed: float = 0.5,
        **old: Any,
    ) -> Picture:
        """A picture of all its vertices and links; see `cl.draw`, which this calls, for the arguments and errors."""
        given = {"size": size, "style": style, "colour": colour, "palette": palette, "highlight": highlight}
        given = {**given, "title": title, "packed": packed, **old}
        return importlib.import_module("codelet").draw(self, program, path=path, profile=profile, **given)

    def diagram(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        program: object = None,
        profile: Any = None,
        style: str = "dark",
        palette: str = "hue",
        title: str = "",
    ) -> Diagram:
        """A diagram of a small graph, by boxes and lines that can be read; to a file as SVG.

        Args:
            path: where it is written, if it is.
            program: what runs when, as of `cl.draw`.
            profile: as of `cl.draw`, as are the others.
            style: "dark", or "light" for paper.
            palette: "hue", or "colour-blind".
            title: what is written on it.

        Raises:
            DrawError, FileError, ProgramError, ForeignGraphError: as `cl.draw` does.
        """
        draw_small = importlib.import_module("codelet.draw.drawing").draw_small
        return draw_small(self, program, path=path, profile=profile, style=style, palette=palette, title=title)

    def _given(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> list[Any]:
        """The arrays of arguments, which fit."""
        given = flatten(self._convention.arranged(arguments, keywords))
        self._arguments.check_like(given, self._convention)
        try:
            return [_array(own, kind.dtype) for own, kind in zip(given.arrays, self._arguments.arrays, strict=True)]
        except OverflowError as error:
            raise ArrayError(
                f"the traced function {self.__name__!r} is given a number that its dtype does not hold",
                given=str(error),
                expected=", ".join(f"{own.dtype}" for own in self._arguments.arrays),
            ) from None

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """What the function gives, computed by the graph."""
        results = self.lowered.flat(self._given(arguments, keywords))
        avals = self.jaxpr.out_avals
        return self._results.filled([returned(own, aval) for own, aval in zip(results, avals, strict=True)])

    def __reduce__(self) -> tuple[Any, ...]:
        raise SavingError(
            "a traced function cannot be pickled or copied, as the function itself and its trace cannot",
            given=self.__name__,
            fix="pickle traced.graph and traced.program together, or cl.lower(traced); cl.trace it again",
        )

    def __repr__(self) -> str:
        graph = self.graph
        return f"<Traced {self.__name__}: {graph.num_vertices:,} vertices in {len(graph.compute_sets):,} compute sets>"

    def __str__(self) -> str:
        return f"{self!r}\n{self.fusion}\n{self.program}"


def _array(value: Any, dtype: Any) -> Any:
    """What the graph is given of an argument: keys as their data, numbers as of the dtype that was traced."""
    return unwrapped(value) if is_key(dtype) else on_device(value).astype(dtype)
