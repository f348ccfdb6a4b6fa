"""Drawn: how graphs, and functions that were traced into graphs, are drawn."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from codelet.draw.diagram import Diagram
    from codelet.draw.picture import Picture


class Drawn:
    """Something that `cl.draw` draws: a graph, or a traced function."""

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
        """Draw all vertices and links. This calls `cl.draw`.

        Args:
            path: the file to write, if any.
            program: the program that links follow. Default: that of the graph, or of the traced function.
            profile: the result of `Engine.profile`, for the tiles of vertices that the graph does not place.
            size: height and width in pixels, a multiple of 64.
            style: "dark", or "light" for paper.
            colour: "layer", "codelet", "tile" or "cycles".
            palette: "hue", or "colour-blind".
            highlight: a pattern for names of compute sets; all others are grey.
            title: a heading on the picture.
            packed: from 0 to 1, how strongly all points attract each other.
            old: deprecated options of `cl.draw`.

        Raises:
            DrawError, FileError, ProgramError, ForeignGraphError, MissingExtraError: those of `cl.draw`.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
        >>> graph.draw(size=256, colour="codelet")
        <Picture of 4 vertices   ·   4 links, 256 x 256>
        """
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
        """Draw a small graph as a readable diagram of boxes and lines, in SVG.

        Args:
            path: the file to write, which ends in .svg, if any.
            program: the program that links follow. Default: that of the graph, or of the traced function.
            profile: the result of `Engine.profile`, for the tiles of vertices that the graph does not place.
            style: "dark", or "light" for paper.
            palette: "hue", or "colour-blind".
            title: a heading on the diagram.

        Raises:
            DrawError, FileError, ProgramError, ForeignGraphError: those of `cl.draw`.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, i = graph.add_variable("x", (2,)), cl.grid(2)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
        >>> graph.diagram()
        <Diagram of 2 vertices and 2 links>
        """
        draw_small = importlib.import_module("codelet.draw.drawing").draw_small
        return draw_small(self, program, path=path, profile=profile, style=style, palette=palette, title=title)
