"""The plots of a page, as models of Bokeh without data: what the page is told chosen decides what they show.

Each is a figure by a name, and has sources by names, which `page/views.js` fills. Hover tools read columns of them.
"""

from __future__ import annotations

import importlib
from typing import Any

from codelet.errors import MissingExtraError

COLOURS = {
    "compute": "#2f7fd1",
    "exchange": "#f0a030",
    "sync": "#8a8a8a",
    "host": "#3a9a5b",
    "external exchange": "#c04f2f",
    "external sync": "#5f5f5f",
}
"""Of what cycles are for; the lightness of each differs as well, for grey paper and for eyes that see fewer colours."""

MEMORY_COLOURS = ("#00204d", "#31446b", "#575d6d", "#7c7b78", "#a69d75", "#d3c164", "#ffea46", "#c04f2f", "#f0a030")
"""Of kinds of memory, from dark to light, then two more."""


def bokeh(module: str) -> Any:
    """A module of Bokeh, which the extra `report` brings.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return importlib.import_module(f"bokeh.{module}")
    except ImportError:
        raise MissingExtraError(
            "reports need a library that is not installed",
            given="a Python without bokeh",
            expected="the extra `report`",
            fix="pip install 'codelet-graphs[report]' (in a checkout: pip install -e '.[report]')",
        ) from None


def _source(name: str, *columns: str) -> Any:
    return bokeh("models").ColumnDataSource({column: [] for column in columns}, name=name)


def _figure(name: str, x: str, y: str, **options: Any) -> Any:
    """A figure that fills the width it is given, with wheel zoom along x alone."""
    models = bokeh("models")
    figure = bokeh("plotting").figure(
        name=name,
        height=options.pop("height", 300),
        sizing_mode="stretch_width",
        x_axis_label=x,
        y_axis_label=y,
        tools="xpan,xwheel_zoom,xbox_zoom,reset,tap",
        active_scroll=None,
        active_drag="xbox_zoom",
        toolbar_location="above",
        output_backend="canvas",
        **options,
    )
    figure.toolbar.logo = None
    for axis in figure.axis:
        axis.formatter = models.NumeralTickFormatter(format="0,0")
    return figure


def _hover(figure: Any, renderers: list[Any], *rows: tuple[str, str]) -> None:
    figure.add_tools(bokeh("models").HoverTool(renderers=renderers, tooltips=list(rows)))


def _cells(figure: Any, name: str, x: str, y: str, value: str, *columns: str, size: float = 1) -> Any:
    """Squares of a figure, coloured by a column, and beside them what the colours stand for."""
    models = bokeh("models")
    palette = bokeh("palettes").Cividis256
    mapper = models.LinearColorMapper(palette=palette, low=0, high=1, name=f"{name}_colours")
    colour = {"field": value, "transform": mapper}
    source = _source(f"{name}_source", x, y, value, *columns)
    cells = figure.rect(x, y, width=size, height=size, source=source, fill_color=colour, line_color=None)
    key = models.ColorBar(color_mapper=mapper, formatter=models.NumeralTickFormatter(format="0,0"))
    figure.add_layout(key, "right")
    figure.grid.visible = False
    return cells


def memory_plot(kinds: list[str]) -> Any:
    """Bytes on each tile, or stretch of tiles, stacked by kind, and what a tile has as a line."""
    figure = _figure("memory", "tile", "bytes")
    columns = [f"kind{k}" for k in range(len(kinds))]
    source = _source("memory_source", "tile", "width", "last", *columns, "total")
    colours = [MEMORY_COLOURS[k % len(MEMORY_COLOURS)] for k in range(len(kinds))]
    bars = figure.vbar_stack(columns, x="tile", width="width", color=colours, source=source, legend_label=kinds)
    line = bokeh("models").Span(name="memory_there", dimension="width", line_dash="dashed", line_color="#d04040")
    figure.add_layout(line)
    named = [(kind, f"@{column}{{0,0}}") for kind, column in zip(kinds, columns, strict=True)]
    _hover(figure, bars, ("tile", "@tile to @last"), *named, ("total", "@total{0,0}"))
    legend = figure.legend[0]
    figure.add_layout(legend, "right")
    figure.y_range.start = 0
    return figure


def chip_plot() -> Any:
    """The tiles in rows and columns, coloured by a number."""
    figure = _figure("chip", "", "", height=330)
    cells = _cells(figure, "chip", "x", "y", "value", "tile", size=0.94)
    figure.axis.visible = False
    _hover(figure, [cells], ("tile", "@tile"), ("", "@value{0,0}"))
    return figure


def live_plot() -> Any:
    """Bytes live at each moment: what always is, what the step uses, and what else is live."""
    figure = _figure("live", "moment of the program", "bytes on all tiles")
    source = _source("live_source", "moment", "last", "width", "always", "others", "name", "total")
    bars = figure.vbar_stack(
        ["always", "others"],
        x="moment",
        width="width",
        color=["#7c7b78", "#2f7fd1"],
        source=source,
        legend_label=["always live", "not always"],
    )
    peak = _source("live_peak", "x", "y", "text")
    figure.scatter("x", "y", source=peak, marker="inverted_triangle", size=10, color="#d04040")
    figure.text("x", "y", text="text", source=peak, x_offset=8, y_offset=4, text_font_size="11px", name="live_text")
    _hover(figure, bars, ("moment", "@moment"), ("", "@name"), ("live", "@total{0,0}"))
    figure.add_layout(figure.legend[0], "right")
    figure.y_range.start = 0
    figure.y_range.range_padding = 0.3  # for the word at the peak
    return figure


def timeline_plot() -> Any:
    """Tiles over cycles, coloured by what they do; drawn as an image anew for what is seen of it."""
    figure = _figure("timeline", "cycles", "tile", height=360)
    figure.image_rgba(
        "image", x="x", y="y", dw="dw", dh="dh", source=_source("timeline_source", "image", "x", "y", "dw", "dh")
    )
    figure.x_range = bokeh("models").Range1d(0, 1, name="cycles_range")
    return figure


def flame_plot(cycles: Any) -> Any:
    """Scopes of steps over cycles, the outermost at the bottom.

    Args:
        cycles: the range that the timeline shows.
    """
    figure = _figure("flame", "cycles", "", height=260, x_range=cycles)
    columns = ("left", "right", "bottom", "top", "middle", "name", "cycles", "turns", "colour", "step", "label")
    source = _source("flame_source", *columns)
    boxes = figure.quad(
        left="left",
        right="right",
        bottom="bottom",
        top="top",
        fill_color="colour",
        line_color="#ffffff",
        line_width=0.5,
        source=source,
    )
    figure.text(
        "left",
        "middle",
        text="label",
        source=source,
        x_offset=3,
        text_baseline="middle",
        text_font_size="10px",
        text_color="#ffffff",
    )
    figure.yaxis.visible = False
    figure.grid.visible = False
    _hover(figure, [boxes], ("", "@name"), ("cycles", "@cycles{0,0}"), ("turns", "@turns{0,0}"))
    return figure


def exchange_plot() -> Any:
    """Bytes that move in each step, all its iterations."""
    figure = _figure("exchange", "step", "bytes received, all turns")
    source = _source("exchange_source", "step", "last", "width", "bytes", "cycles", "name")
    bars = figure.vbar(x="step", top="bytes", width="width", color=COLOURS["exchange"], source=source)
    named = ("step", "@step"), ("", "@name"), ("bytes", "@bytes{0,0}"), ("cycles", "@cycles{0,0}")
    _hover(figure, [bars], *named)
    figure.y_range.start = 0
    return figure


def _two_lines(name: str, first: tuple[str, str], second: tuple[str, str]) -> Any:
    """Two numbers of each tile, or stretch of tiles, as lines: the column and colour of each, the first dashed."""
    figure = _figure(name, "tile", "bytes", height=260)
    source = _source(f"{name}_source", "tile", "last", first[0], second[0])
    lines = [
        figure.step("tile", column, source=source, mode="center", color=colour, line_dash=dash, legend_label=column)
        for (column, colour), dash in ((first, "dashed"), (second, "solid"))
    ]
    _hover(figure, lines[1:], ("tile", "@tile to @last"), *((own, f"@{own}{{0,0}}") for own, _ in (first, second)))
    figure.add_layout(figure.legend[0], "right")
    figure.y_range.start = 0
    return figure


def moved_plot() -> Any:
    """Bytes that each tile, or stretch of tiles, sends and receives."""
    return _two_lines("moved", ("sent", "#2f7fd1"), ("received", COLOURS["exchange"]))


def regions_plot() -> Any:
    """Which region of tiles sends how much to which."""
    figure = _figure("regions", "receives", "sends", height=380)
    cells = _cells(figure, "regions", "receiver", "sender", "bytes", "from_tiles", "to_tiles")
    _hover(figure, [cells], ("from tiles", "@from_tiles"), ("to tiles", "@to_tiles"), ("bytes", "@bytes{0,0}"))
    return figure


def compared_plot() -> Any:
    """Bytes, or cycles, of each tile before and after."""
    figure = _two_lines("compared", ("before", "#8a8a8a"), ("after", "#2f7fd1"))
    figure.yaxis[0].name = "compared_axis"
    return figure


def plots(kinds: list[str]) -> dict[str, Any]:
    """All plots by the names of the elements of the page that they stand in, as Bokeh's JSON.

    Args:
        kinds: of memory.
    """
    item = bokeh("embed").json_item
    # Two plots that share a range are one item.
    timeline = timeline_plot()
    column = bokeh("layouts").column(timeline, flame_plot(timeline.x_range), sizing_mode="stretch_width")
    found = {
        "plot-memory": memory_plot(kinds),
        "plot-chip": chip_plot(),
        "plot-live": live_plot(),
        "plot-execution": column,
        "plot-exchange": exchange_plot(),
        "plot-moved": moved_plot(),
        "plot-regions": regions_plot(),
        "plot-compared": compared_plot(),
    }
    return {target: item(model, target) for target, model in found.items()}
