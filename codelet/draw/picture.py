"""Pictures: a layout seen through a window, as light, as bytes, as a file."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np

from codelet.deprecated import old_attribute
from codelet.draw.coarse import order_of_tiles
from codelet.draw.colouring import Colouring
from codelet.draw.labels import write_labels
from codelet.draw.layout import Layout
from codelet.draw.libraries import need
from codelet.draw.links_seen import draw_links_seen
from codelet.draw.page import write_page
from codelet.draw.paths import check_path
from codelet.draw.raster import draw_links, draw_points, pixels_of
from codelet.draw.tone import LINES, POINTS, Exposure, develop, expose
from codelet.draw.widget import picture_widget
from codelet.errors import DrawError

INKS = {"dark": (255, 255, 255), "light": (20, 20, 24)}
"""The colour of text on each kind of ground."""

GROUNDS = {"dark": (0, 0, 0), "light": (255, 255, 255)}

SEEN = 1 << 23
"""Of how many links a window as large as the whole takes its sample; of more where it is smaller, as it sees fewer."""


class Viewport(NamedTuple):
    """The visible part of the layout: left edge, top edge and side, as fractions of the whole, from 0 to 1."""

    left: float = 0.0
    top: float = 0.0
    side: float = 1.0


@dataclass(frozen=True, eq=False)
class Picture:
    """A drawn graph, which notebooks show. Made by `cl.draw` and `graph.draw`.

    Attributes:
        layout: the positions of its points.
        colouring: the classes and colours of the points.
        weight: float32, the light of each point.
        size: height and width in pixels.
        style: "dark" or "light".
        title: the heading.
        window: the visible part of the layout.
        exposures: of points and links, for the tone.
        pixels: uint8 of shape (size, size, 3), sRGB, without text.
        part: the pattern of `zoom_to`, if the visible part was chosen by name.

    >>> import codelet as cl
    >>> graph = cl.Graph()
    >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
    >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
    >>> picture = cl.draw(graph, size=256)
    >>> picture, picture.pixels.shape, picture.zoom_to("double").size
    (<Picture of 4 vertices   ·   4 links, 256 x 256>, (256, 256, 3), 256)
    """

    layout: Layout
    colouring: Colouring
    weight: np.ndarray
    size: int
    style: str
    title: str
    window: Viewport
    exposures: tuple[Exposure, Exposure]
    pixels: np.ndarray
    part: str = ""

    @property
    def counts(self) -> str:
        """The numbers of vertices and links, as text.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
        >>> cl.draw(graph, size=256).counts
        '4 vertices   ·   4 links'
        """
        links = self.layout.links
        return f"{links.num_vertices:,} vertices   ·   {links.num_links:,} links"

    @property
    def about(self) -> str:
        """The counts of the whole, or the name of the visible part, as text.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
        >>> picture = cl.draw(graph, size=256)
        >>> picture.about, picture.zoom_to("double").about
        ('4 vertices   ·   4 links', 'double   ·   1 x   ·   8 of 8 points')
        """
        if self.window == Viewport():
            return self.counts
        place, window = self.layout.place, self.window
        inside = (place >= window[:2]) & (place < np.add(window[:2], window.side))
        seen, times = int(inside.all(axis=1).sum()), 1 / window.side
        part = f"{self.part}   ·   " if self.part else ""
        enlarged = f"{times:,.0f}" if times >= 10 else f"{times:.2g}"
        return f"{part}{enlarged} x   ·   {seen:,} of {len(place):,} points"

    def image(self) -> Any:
        """The picture as an image of PIL, with the names of the visible layers and the title.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> cl.draw(graph, size=256).image().size
        (256, 256)
        """
        image = need("PIL.Image").fromarray(self.pixels)
        colours = {"ink": INKS[self.style], "ground": GROUNDS[self.style]}
        write_labels(image, self.layout, self.window, self.title, self.about, **colours)
        return image

    def zoom(self, left: float, top: float, side: float, size: int | None = None) -> Picture:
        """A part of the picture, rendered again from the graph, at the brightness of the whole.

        Args:
            left: its left edge, as a fraction of the whole's side.
            top: its top edge, as a fraction of the whole's side.
            side: its side, as a fraction of the whole's side.
            size: in pixels. Default: the picture's.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> cl.draw(graph, size=256).zoom(0.0, 0.5, 0.5).window
        Viewport(left=0.0, top=0.5, side=0.5)
        """
        seen = replace(self, window=Viewport(left, top, side), size=size or self.size, part="")
        points, lines = light_of(seen.layout, seen.colouring, seen.weight, seen.size, seen.window)
        # A pixel of a part holds the light of a smaller part of the layout.
        share = float(np.log(side))
        shown = self.exposures[0].shifted(2 * share), self.exposures[1].shifted(share)
        return replace(seen, pixels=develop(points, lines, shown, self.style))

    def zoom_to(self, pattern: str, size: int | None = None) -> Picture:
        """The part around all vertices of compute sets, or layers, whose names match a pattern, rendered again.

        Args:
            pattern: for names, in which `*` matches anything.
            size: in pixels. Default: the picture's.

        Raises:
            DrawError: no compute set or layer matches.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> cl.draw(graph, size=256).zoom_to("doub*", size=320).size
        320
        """
        layout = self.layout
        families, groups = layout.links.graph.families, layout.groups
        wanted = [
            not is_input
            and (fnmatchcase(groups.layers[layer], pattern) or fnmatchcase(families[own].compute_set.name, pattern))
            for own, layer, is_input in zip(groups.family, groups.layer, groups.is_input, strict=True)
        ]
        place = layout.place[np.repeat(wanted, groups.sizes)]
        if not len(place):
            expected = "a layer, or a pattern such as 'conv2*': " + ", ".join(filter(None, groups.layers))
            raise DrawError("a picture has nothing of such a name", given=repr(pattern), expected=expected)
        low, high = np.percentile(place, [0.5, 99.5], axis=0)
        side = float(np.clip(1.15 * (high - low).max(), 0.01, 1.0))
        left, top = np.clip((low + high) / 2 - side / 2, 0, 1 - side).tolist()
        return replace(self.zoom(left, top, side, size), part=pattern)

    save = old_attribute("Picture.save", "write_picture")

    def write_picture(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file.

        An .html file is an interactive view of the whole, in one file: pan, zoom, layers, names.

        Args:
            path: the file; its name ends in .png, .webp, .jpg or .html.

        Raises:
            DrawError: another ending.
            FileError: the file cannot be written.

        >>> import codelet as cl, pathlib, tempfile
        >>> graph = cl.Graph()
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     cl.draw(graph, size=256).write_picture(pathlib.Path(directory) / "graph.png")
        """
        ending = check_path(path)
        if ending == "html":
            write_page(self, path)
            return
        self.image().save(path, **({"compress_level": 1} if ending == "png" else {"quality": 92}))

    def widget(self, height: int = 600) -> Any:
        """An interactive view for a notebook, which renders the visible part again from the graph.

        Without scripts the notebook shows the picture itself.

        Args:
            height: in pixels.

        Raises:
            MissingExtraError: anywidget is not installed.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
        >>> cl.draw(graph, size=256).widget(height=300)
        <View of <Picture of 4 vertices   ·   4 links, 256 x 256>>
        """
        return picture_widget(self, height)

    def _repr_png_(self) -> bytes:
        image = self.image()
        if self.size > 1200:
            image = image.resize((1200, 1200), need("PIL.Image").Resampling.LANCZOS)
        written = io.BytesIO()
        image.save(written, "PNG")
        return written.getvalue()

    def __repr__(self) -> str:
        return f"<Picture of {self.counts}, {self.size} x {self.size}>"


def light_of(
    layout: Layout, colouring: Colouring, weight: np.ndarray, size: int, window: Viewport
) -> tuple[np.ndarray, np.ndarray]:
    """The light of points, and that of links, inside a window."""
    # Links first: while many are drawn there is room for little else.
    lines = _light_of_links(layout, colouring, size, window)
    # Few points are discs, as wide as leaves room between them; in parts of a picture they grow a little.
    crowd = 0.25 * size / max(1, layout.links.num_points) ** 0.5
    radius = float(np.clip(crowd / window.side**0.5, 0, size / 80))
    place = _scaled(layout, size, window)
    return draw_points(place, colouring.which, weight, colouring.colours, (size, size), radius), lines


def _scaled(layout: Layout, size: int, window: Viewport) -> np.ndarray:
    """Where points lie, in pixels of a window."""
    return (layout.place - np.array(window[:2], np.float32)) * np.float32(size / window.side)


def _light_of_links(layout: Layout, colouring: Colouring, size: int, window: Viewport) -> np.ndarray:
    drawn = layout.links, colouring.links_which, colouring.layer, colouring.colours, (size, size)
    if window != Viewport():
        return draw_links_seen(_scaled(layout, size, window), *drawn, most=int(SEEN / window.side))
    # Vertices of near tiles lie together, with lines between the same pixels.
    order = order_of_tiles(layout.groups, layout.tile)
    return draw_links(pixels_of(layout.place, (size, size)), *drawn, order=order)


def picture_of(
    layout: Layout, colouring: Colouring, weight: np.ndarray, *, size: int, style: str, title: str
) -> Picture:
    """A picture of the whole of a layout; the arguments are attributes of it."""
    points, lines = light_of(layout, colouring, weight, size, Viewport())
    exposures = expose(points, POINTS), expose(lines, LINES)
    pixels = develop(points, lines, exposures, style)
    return Picture(layout, colouring, weight, size, style, title, Viewport(), exposures, pixels)
