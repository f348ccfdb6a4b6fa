"""Diagrams of small graphs: a box for each vertex with its fields, a line for each link, as SVG.

Vertices stand in columns, each to the right of all that it reads, and near its links within a column. Hovering a line
shows its source and target.
"""

from __future__ import annotations

import html
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from codelet.deprecated import old_attribute
from codelet.draw.colours import class_colours, to_hex
from codelet.draw.groups import LayerOf, group_points
from codelet.draw.links import LinkSearch
from codelet.draw.paths import check_path
from codelet.draw.point_lists import Points
from codelet.files import written_whole
from codelet.graphs.family import Family, Field
from codelet.graphs.graph import Graph
from codelet.graphs.vertices import Vertex, family_vertices
from codelet.views.sources import Variable

MOST = 200
"""Below how many vertices a graph is drawn as a diagram."""

_WIDE, _LINE, _GAP, _ROW_GAP = 190, 18, 110, 16
_LETTERS = 26
"""How many letters have room in a box."""
_ARROWS = {"in": "→", "out": "←", "inout": "↔"}
_GROUNDS = {"dark": ("#101014", "#f0f0f4", "#1c1c24"), "light": ("#ffffff", "#18181c", "#f4f4f6")}


@dataclass(frozen=True)
class _DiagramBox:
    """A box of the diagram: its text, its fields, and its place."""

    title: str
    about: str
    fields: tuple[str, ...]
    colour: str
    column: int

    @property
    def height(self) -> int:
        return _LINE * (1 + len(self.fields)) + 10


@dataclass(frozen=True, eq=False)
class Diagram:
    """A diagram of a small graph, which notebooks show. Made by `graph.diagram`.

    Attributes:
        svg: the diagram, as text.
        num_vertices: how many boxes of vertices it has.
        num_links: how many lines.

    >>> import codelet as cl
    >>> graph = cl.Graph()
    >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
    >>> graph.diagram().svg[:4]
    '<svg'
    """

    svg: str
    num_vertices: int
    num_links: int

    save = old_attribute("Diagram.save", "write_picture")

    def write_picture(self, path: str | os.PathLike[str]) -> None:
        """Write the diagram to a file.

        Args:
            path: the file; its name ends in .svg.

        Raises:
            DrawError: another ending.
            FileError: the file cannot be written.

        >>> import codelet as cl, pathlib, tempfile
        >>> graph = cl.Graph()
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     graph.diagram().write_picture(pathlib.Path(directory) / "double.svg")
        """
        check_path(path, diagram=True)
        with written_whole(path) as file:
            file.write(self.svg)

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<Diagram of {self.num_vertices:,} vertices and {self.num_links:,} links>"


class _FieldSearch(LinkSearch):
    """A search for links that keeps apart through which field each vertex reads."""

    def __init__(self, graph: Graph):
        super().__init__(graph)
        self.by_field: dict[tuple[Family, str], list[Points]] = {}

    def read(self, family: Family, field: Any, row: np.ndarray) -> Points:
        found = super().read(family, field, row)
        self.by_field.setdefault((family, field.name), []).append(found)
        return found


def _columns(first: np.ndarray, source: np.ndarray, num_points: int) -> list[int]:
    """The column of every point: to the right of all that it reads, except through loops."""
    count = len(first) - 1
    column = [0] * num_points
    # Vertices are numbered about as they run: links from later ones are those of loops.
    for v in range(count):
        before = [int(s) for s in source[first[v] : first[v + 1]] if s < v or s >= count]
        column[v] = 1 + max((column[s] for s in before), default=0)
    for v in range(count):
        for s in source[first[v] : first[v + 1]].tolist():
            if s >= count:
                column[s] = max(column[s], 0)
    return column


def _rows(columns: list[list[int]], neighbours: Callable[[int], list[int]]) -> dict[int, int]:
    """The place of each box in its column: near the middle of those that it is linked with, by a few sweeps."""
    place = {box: k for column in columns for k, box in enumerate(column)}
    for _ in range(6):
        for column in columns:
            middle = {box: float(np.mean([place[n] for n in neighbours(box)] or [place[box]])) for box in column}
            for k, box in enumerate(sorted(column, key=lambda own: (middle[own], own))):
                place[box] = k
    return place


def _heights(columns: list[list[int]], tall: list[int], linked: dict[int, list[int]]) -> dict[int, int]:
    """The upper edge of each box: as near to the middle of those that it is linked with as the order leaves room."""
    y: dict[int, float] = {}
    for column in columns:
        edges = np.cumsum([0, *(tall[box] for box in column)])
        y.update(zip(column, (edges - edges[-1] / 2).tolist(), strict=False))
    middle = lambda box: y[box] + tall[box] / 2  # noqa: E731
    for _ in range(8):
        for column in columns:
            wished = [
                float(np.mean([middle(n) for n in linked[box]] or [middle(box)])) - tall[box] / 2 for box in column
            ]
            # What the boxes above leave, and what those below do: between the two there is room as well.
            down, up = list(wished), list(wished)
            for k in range(1, len(column)):
                down[k] = max(down[k], down[k - 1] + tall[column[k - 1]])
            for k in range(len(column) - 2, -1, -1):
                up[k] = min(up[k], up[k + 1] - tall[column[k]])
            y.update((box, (a + b) / 2) for box, a, b in zip(column, down, up, strict=True))
    least = min(y.values(), default=0.0)
    return {box: round(own - least) + 50 for box, own in y.items()}


def _field_text(vertex: Vertex, field: Field) -> str:
    """A field, its direction, and its elements."""
    runs = [edge for edge in vertex.iter_edges() if edge.field == field.name]
    text = _run_text(runs[0].variable.name, runs[0].start, runs[0].length) if runs else "nothing"
    return f"{_ARROWS[field.kind]} {field.name}: {text}{', ...' * (len(runs) > 1)}"


def _stretch_text(variable: Variable, elements: np.ndarray) -> str:
    """Elements of a variable that are read together."""
    start = int(elements[0]) - variable.first_element
    return _run_text(variable.name, start, int(elements[-1] - elements[0]) + 1)


def _run_text(name: str, start: int, length: int) -> str:
    return f"{name}[{start}]" if length == 1 else f"{name}[{start}:{start + length}]"


def _about(vertex: Vertex, tile: int) -> str:
    """The tooltip of a vertex, with its tile if the profile placed it."""
    placed = f"\nplaced on tile {tile}" if vertex.tile is None and tile >= 0 else ""
    return f"{vertex}\n{vertex.family.compute_set.name}{placed}"


def draw_diagram(
    graph: Graph,
    program: object,
    *,
    style: str,
    palette: str,
    title: str,
    layer_of: LayerOf | None,
    tile: np.ndarray | None,
) -> Diagram:
    """The diagram of a graph and program; the arguments are those of `cl.draw`, and the result of `tiles_of`."""
    search = _FieldSearch(graph)
    links = search.links(program)
    groups = group_points(links, layer_of)
    ground, ink, panel = _GROUNDS[style]
    colours = class_colours(len(groups.layers), 3, style, palette)
    layer, phase = (np.repeat(own, groups.sizes) for own in (groups.layer, groups.phase))
    column = _columns(links.first, links.source, links.num_points)
    vertices: list[Vertex] = [vertex for family in graph.families for vertex in family_vertices(family)]
    names = {variable.number: variable for variable in graph.sources}
    claimed = np.flatnonzero(search.claimed)
    stretches = {point: claimed[search.claimed[claimed] == point] for point in range(len(vertices), links.num_points)}
    boxes = []
    for point in range(links.num_points):
        colour = to_hex(colours[3 * layer[point] + phase[point]])
        if point < len(vertices):
            vertex = vertices[point]
            family = vertex.family
            where = ", ".join(f"{name}={value}" for name, value in vertex.symbols.items())
            fields = tuple(_field_text(vertex, field) for field in family.fields if field.tensor is not None)
            name = f"{family.codelet.name}({where})" if where and not family.is_gathered else family.codelet.name
            about = _about(vertex, -1 if tile is None else int(tile[point]))
            boxes.append(_DiagramBox(name, about, fields, colour, column[point]))
        else:
            name = _stretch_text(names[int(links.input_variable[point - len(vertices)])], stretches[point])
            boxes.append(_DiagramBox(name, f"{name}, which nobody writes", (), colour, column[point]))
    linked: dict[int, list[int]] = {point: [] for point in range(links.num_points)}
    for s, t in zip(links.source.tolist(), links.target.tolist(), strict=True):
        linked[s].append(t)
        linked[t].append(s)
    order: list[list[int]] = [[] for _ in range(1 + max(column, default=0))]
    for point in range(links.num_points):
        order[column[point]].append(point)
    place = _rows(order, linked.__getitem__)
    x = {point: 20 + number * (_WIDE + _GAP) for number, members in enumerate(order) for point in members}
    ordered = [sorted(members, key=place.__getitem__) for members in order]
    y = _heights(ordered, [box.height + _ROW_GAP for box in boxes], linked)
    width = 40 + len(order) * (_WIDE + _GAP) - _GAP
    height = 20 + max((y[p] + boxes[p].height for p in y), default=60)
    lines = list(_lines(search, vertices, boxes, x, y))
    body = [*lines, *(_box(boxes[p], x[p], y[p], ink, panel) for p in range(len(boxes)))]
    style_text = (
        "path{fill:none;stroke-width:1.4;opacity:.65}path:hover{stroke-width:4;opacity:1}"
        f"text{{font:12px sans-serif;fill:{ink}}}.head{{font-weight:bold}}"
    )
    heading = f'<text x="20" y="30" style="font-size:18px">{html.escape(title)}</text>' if title else ""
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        f'<style>{style_text}</style><rect width="100%" height="100%" fill="{ground}"/>{heading}{"".join(body)}</svg>'
    )
    return Diagram(svg, len(vertices), len(lines))


def _fitted(text: str) -> str:
    """The part of a text that fits in a box."""
    return html.escape(text if len(text) <= _LETTERS else text[: _LETTERS - 1] + "…")


def _box(box: _DiagramBox, x: int, y: int, ink: str, panel: str) -> str:
    rows = "".join(
        f'<text x="{x + 10}" y="{y + _LINE * (k + 2) - 2}">{_fitted(field)}</text>'
        for k, field in enumerate(box.fields)
    )
    about = "\n".join([box.title, box.about, *box.fields])
    return (
        f"<g><title>{html.escape(about)}</title>"
        f'<rect x="{x}" y="{y}" width="{_WIDE}" height="{box.height}" rx="6" fill="{panel}" stroke="{box.colour}" '
        f'stroke-width="2"/><text class="head" x="{x + 10}" y="{y + _LINE - 2}">{_fitted(box.title)}</text>'
        f"{rows}</g>"
    )


def _lines(
    search: _FieldSearch, vertices: list[Vertex], boxes: list[_DiagramBox], x: dict[int, int], y: dict[int, int]
) -> Any:
    """A line for each vertex, field and point that it reads there."""
    numbers = {(vertex.family, vertex.number): point for point, vertex in enumerate(vertices)}
    for (family, name), found in search.by_field.items():
        fields = [field.name for field in family.fields if field.tensor is not None]
        row = fields.index(name)
        drawn = set()
        for points in found:
            ends = np.concatenate([[0], np.cumsum(points.counts)])
            for number in range(family.num_vertices):
                target = numbers[family, number]
                for source in points.points[ends[number] : ends[number + 1]].tolist():
                    if (source, target) in drawn:
                        continue
                    drawn.add((source, target))
                    x0, y0 = x[source] + _WIDE, y[source] + _LINE // 2 + 4
                    x1, y1 = x[target], y[target] + _LINE * (row + 2) - 6
                    bend = max(40, abs(x1 - x0) // 2)
                    about = f"{boxes[source].title} to {name} of {boxes[target].title}"
                    yield (
                        f'<path d="M{x0},{y0} C{x0 + bend},{y0} {x1 - bend},{y1} {x1},{y1}" '
                        f'stroke="{boxes[source].colour}"><title>{html.escape(about)}</title></path>'
                    )
