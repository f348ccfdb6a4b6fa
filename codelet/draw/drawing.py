"""Drawing a graph: `cl.draw`, and diagrams of small ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from codelet.deprecated import old_order, warn_old
from codelet.draw.colouring import KINDS, colour_by, cycles_of, highlighted
from codelet.draw.diagram import Diagram, draw_diagram
from codelet.draw.layout import OPEN, PACKED, lay_out
from codelet.draw.libraries import check_there
from codelet.draw.links import find_links
from codelet.draw.paths import check_path
from codelet.draw.picture import INKS, Picture, picture_of
from codelet.draw.tiles import KnowsTiles, tiles_of
from codelet.errors import DrawError
from codelet.graphs.graph import Graph
from codelet.schema import FLAG, FUNCTION, TEXT, Kind, accepts, is_number, is_whole, one_of

PALETTES = ("hue", "colour-blind")
STAGES = ("find links", "place layers", "place stretches", "place vertices", "draw", "save")
"""What `note` is told of, in order."""

_SIZES = range(256, 16_384 + 1, 64)

_ARGUMENTS = {
    "size": Kind(
        f"a multiple of {_SIZES.step} from {_SIZES.start} to {_SIZES.stop - 1:,}",
        lambda value: is_whole(value) and value in _SIZES,
    ),
    "style": one_of(*INKS),
    "colour": one_of(*KINDS),
    "palette": one_of(*PALETTES),
    "highlight": TEXT,
    "title": TEXT,
    "packed": Kind("a number from 0 to 1", lambda value: is_number(value, 0, 1)),
    "diagram": FLAG,
    "note": FUNCTION,
}


@old_order(("path",), lambda second: isinstance(second, (str, os.PathLike)))
@accepts(DrawError, **_ARGUMENTS)
def draw(
    graph: Any,
    program: object = None,
    *,
    path: str | os.PathLike[str] | None = None,
    profile: KnowsTiles | None = None,
    size: int = 2048,
    style: str = "dark",
    colour: str = "layer",
    palette: str = "hue",
    highlight: str | None = None,
    title: str = "",
    packed: float = 0.5,
    diagram: bool | None = None,
    note: Callable[[str], None] = lambda stage: None,
) -> Picture:
    """Draw every vertex of a graph and every link between two.

    A link joins the last writer of an element to each of its readers; copies, calls and loops are traced through.
    Weights and inputs, which no vertex writes, are points, one for each run of elements that is read together. A
    force-directed layout places the points; brightness is density, toned so that faint links are visible beside dense
    cores. For a readable diagram of a small graph use `graph.diagram()`.

    Args:
        graph: a graph, or a `cl.Traced`.
        program: the program that links follow. Default: all compute sets in the order they were added, or the traced
            program.
        path: the file to write, if any; see `Picture.write_picture`.
        profile: the result of `Engine.profile`, for the tiles of vertices that the graph does not place.
        size: height and width in pixels, a multiple of 64.
        style: "dark", or "light" for paper.
        colour: the property shown by colour: "layer", "codelet", "tile" or "cycles".
        palette: "hue", or "colour-blind".
        highlight: a pattern for names of compute sets, such as "conv2/*"; all others are grey.
        title: a heading on the picture.
        packed: from 0 to 1, how strongly all points attract each other.
        diagram: deprecated; `graph.diagram()` draws a diagram.
        note: called with each stage of the drawing: `STAGES`.

    Raises:
        DrawError: an unknown size, style, colour, palette or highlight, a graph without vertices, an invalid profile,
            or colours by tile if no tiles are known.
        FileError: the file cannot be written.
        ProgramError, ForeignGraphError: a program that is not of this graph, or a profile of another.
        MissingExtraError: a library of the extra `draw` is not installed.

    >>> import codelet as cl, pathlib, tempfile
    >>> graph = cl.Graph()
    >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
    >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     print(cl.draw(graph, path=pathlib.Path(directory) / "graph.png", size=256))
    <Picture of 4 vertices   ·   4 links, 256 x 256>
    """
    if diagram is not None:
        warn_old(f"draw(diagram={diagram})", "graph.diagram()" if diagram else "what draw does without it")
    if diagram:
        drawn: Any = draw_small(graph, program, path=path, profile=profile, style=style, palette=palette, title=title)
        return drawn
    own, given, layer_of = _parts_of(graph, program)
    if path is not None:  # before anything is drawn, which may take long
        check_path(path)
    tile = tiles_of(own, profile)
    if colour == "tile" and tile is None:
        raise DrawError(
            "a picture is coloured by tile where no vertex has one",
            given=own,
            expected="vertices that are added with tile=, or a profile, which says where they are placed",
            fix="cl.draw(graph, colour='tile', profile=cl.Engine(graph).profile())",
        )
    check_there(("numba", "scipy", "PIL", "matplotlib"))
    note("find links")
    links = find_links(own, given)
    layout = lay_out(links, OPEN * (PACKED / OPEN) ** packed, note, layer_of, tile)
    note("draw")
    colouring = colour_by(colour, links, layout.groups, tile, style=style, palette=palette)
    if highlight is not None:
        colouring = highlighted(colouring, highlight, links, layout.groups)
    picture = picture_of(layout, colouring, _weights(links), size=size, style=style, title=title)
    if path is not None:
        note("save")
        picture.write_picture(path)
    return picture


@accepts(DrawError, **{name: _ARGUMENTS[name] for name in ("style", "palette", "title")})
def draw_small(
    graph: Any,
    program: object = None,
    *,
    path: str | os.PathLike[str] | None = None,
    profile: KnowsTiles | None = None,
    style: str = "dark",
    palette: str = "hue",
    title: str = "",
) -> Diagram:
    """Draw a small graph as a readable diagram of boxes and lines; see `Graph.diagram`.

    Args:
        graph: a graph, or a `cl.Traced`.
        program: as of `draw`.
        path: the file to write, which ends in .svg, if any.
        profile: as of `draw`.
        style: as of `draw`.
        palette: as of `draw`.
        title: as of `draw`.

    Raises:
        DrawError, FileError, ProgramError, ForeignGraphError: those of `draw`.
    """
    own, given, layer_of = _parts_of(graph, program)
    if path is not None:
        check_path(path, diagram=True)
    tile = tiles_of(own, profile)
    drawn = draw_diagram(own, given, style=style, palette=palette, title=title, layer_of=layer_of, tile=tile)
    if path is not None:
        drawn.write_picture(path)
    return drawn


def _parts_of(graph: Any, program: object) -> tuple[Graph, object, Callable[[str], str] | None]:
    """The graph to draw, its program, and its function from compute sets to layers, if known."""
    own, given, layer_of = (graph, program, None) if isinstance(graph, Graph) else _of_traced(graph, program)
    if not own.num_vertices:
        raise DrawError("a graph without vertices is drawn", given=own)
    return own, given, layer_of


def _of_traced(traced: Any, program: object) -> tuple[Graph, object, Callable[[str], str] | None]:
    """The graph and program of a traced function."""
    graph = getattr(traced, "graph", None)
    if not isinstance(graph, Graph):
        raise DrawError(
            "something other than a graph is drawn", given=f"{traced!r:.80}", expected="a graph, or what cl.trace gives"
        )
    return graph, getattr(traced, "program", None) if program is None else program, getattr(traced, "layer_of", None)


def _weights(links: Any) -> np.ndarray:
    """The light of each point: of vertices by their cycles; unwritten elements are like the lightest vertices."""
    cycles = cycles_of(links).astype(float)
    middle = max(1.0, float(np.median(cycles))) if len(cycles) else 1.0
    weight = np.full(links.num_points, 0.3, np.float32)
    weight[: links.num_vertices] = np.clip((cycles / middle) ** 0.45, 0.3, 10)
    return weight
