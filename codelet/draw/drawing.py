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

    A link goes from the vertex that last wrote an element to each that reads it, through whatever copies, calls and
    loops of the program; what no vertex wrote (weights, inputs) is a point for each stretch that is read together.
    Links pull their ends together, points push each other apart. Light is drawn, and toned so that faint links are
    seen beside dense cores. `graph.diagram()` draws small graphs by boxes and lines, which can be read.

    Args:
        graph: a graph, or what `cl.trace` gives.
        program: what runs when; all compute sets in the order they were added, or the traced program, when left off.
        path: where the picture is written, if it is; see `Picture.write_picture`.
        profile: what `Engine.profile` gives: it says on which tiles vertices are that the graph gives none.
        size: height and width in pixels, a multiple of 64.
        style: "dark", or "light" for paper.
        colour: what is told apart by colour: "layer", "codelet", "tile" or "cycles".
        palette: "hue", or "colour-blind".
        highlight: a pattern for names of compute sets, such as "conv2/*": all else is grey.
        title: what is written on it.
        packed: from 0 to 1, how strongly all is held together.
        diagram: deprecated: `graph.diagram()` draws a diagram, and this function none.
        note: told what is done, as `STAGES` has it.

    Raises:
        DrawError: a size, style, colour, palette or highlight that there is none of, a graph without vertices, a
            profile that is none, or colours of tiles where nobody says where any vertex is.
        FileError: a path at which no file can be written.
        ProgramError, ForeignGraphError: a program that is none of this graph, or a profile of another.
        MissingExtraError: a library that the extra `draw` brings is not installed.
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
    """Draw a small graph as a diagram, by boxes and lines that can be read; see `Graph.diagram`.

    Args:
        graph: a graph, or what `cl.trace` gives.
        program: as of `draw`, as are the others.
        path: where the diagram is written, as SVG, if it is.
        profile: as of `draw`.
        style: as of `draw`.
        palette: as of `draw`.
        title: as of `draw`.

    Raises:
        DrawError, FileError, ProgramError, ForeignGraphError: as `draw` does.
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
    """What is drawn: a graph with vertices, its program, and the layers of its compute sets where these are known."""
    own, given, layer_of = (graph, program, None) if isinstance(graph, Graph) else _of_traced(graph, program)
    if not own.num_vertices:
        raise DrawError("a graph without vertices is drawn", given=own)
    return own, given, layer_of


def _of_traced(traced: Any, program: object) -> tuple[Graph, object, Callable[[str], str] | None]:
    """The graph and program of what a traced function has."""
    graph = getattr(traced, "graph", None)
    if not isinstance(graph, Graph):
        raise DrawError(
            "something is drawn that is no graph", given=f"{traced!r:.80}", expected="a graph, or what cl.trace gives"
        )
    return graph, getattr(traced, "program", None) if program is None else program, getattr(traced, "layer_of", None)


def _weights(links: Any) -> np.ndarray:
    """The light of each point: of vertices by their cycles, of what nobody wrote as of the lightest vertices."""
    cycles = cycles_of(links).astype(float)
    middle = max(1.0, float(np.median(cycles))) if len(cycles) else 1.0
    weight = np.full(links.num_points, 0.3, np.float32)
    weight[: links.num_vertices] = np.clip((cycles / middle) ** 0.45, 0.3, 10)
    return weight
