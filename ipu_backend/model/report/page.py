"""Pages: a record as one file of HTML that needs no server and no network."""

from __future__ import annotations

import html
import json
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ipu_backend.model.report.advice import advice_of
from ipu_backend.model.report.packed import pack
from ipu_backend.model.report.plots import COLOURS, bokeh, plots
from ipu_backend.model.report.record import FORMAT, VERSION, Record

if TYPE_CHECKING:
    from ipu_backend.model.report.comparison import Comparison

_HOSTS = re.compile(r"""(["'`])https?://(?!www\.w3\.org/)[^/"'`$]*""")
"""Addresses of hosts in a script, but for names of vocabularies."""

_SCRIPTS = ("data.js", "state.js", "table.js", "plots.js", "views.js", "main.js")


def page_of(*records: Record, comparison: Comparison | None = None, picture: str = "") -> str:
    """The text of a page that shows a record, or two of which one is chosen.

    Args:
        records: what it shows.
        comparison: of two records, what differs.
        picture: HTML of a picture of the graph.

    Raises:
        MissingExtraError: bokeh is not installed.
    """
    kinds = list(dict.fromkeys(kind for record in records for kind in record.about["memory_kinds"]))
    tables = {f"{number} {name}": own for number, record in enumerate(records) for name, own in record.tables.items()}
    if comparison is not None:
        tables |= {"differences": comparison.differences, "tiles compared": comparison.tiles}
    packed = pack(tables)
    title = ", then ".join(str(record.about["title"]) for record in records)
    content = {
        "format": FORMAT,
        "version": VERSION,
        "title": title,
        "records": [{"about": dict(own.about), "advice": [vars(each) for each in advice_of(own)]} for own in records],
        "columns": packed.columns,
        "kinds": kinds,
        "plots": plots(kinds),
        "colours": COLOURS,
        "picture": picture,
    }
    parts = {
        "TITLE": html.escape(title),
        "STYLE": _part("page.css"),
        "LIBRARY": _library(),
        "SCRIPT": "\n".join(map(_part, _SCRIPTS)),
        "DATA": packed.data,
        "CONTENT": _as_script(content),
    }
    # At once, so that a name which looks like the place of a part is none.
    return re.sub("@(" + "|".join(parts) + ")@", lambda found: parts[found[1]], _part("page.html"))


class Page:
    """A page that shows itself in a notebook.

    Attributes:
        text: its HTML.
        height: in pixels, of what a notebook shows.
    """

    def __init__(self, text: str, height: int):
        self.text, self.height = text, height

    def _repr_html_(self) -> str:
        style = f"width: 100%; height: {self.height}px; border: none"
        return f'<iframe srcdoc="{html.escape(self.text)}" style="{style}" title="report"></iframe>'

    def __repr__(self) -> str:
        return f"<Page of {len(self.text):,} bytes>"


def _as_script(content: Any) -> str:
    """JSON that no name in it can end the script element of."""
    return json.dumps(content, allow_nan=False).replace("<", "\\u003c")


@cache
def _part(name: str) -> str:
    return files("ipu_backend.model.report").joinpath("page", name).read_text(encoding="utf-8")


@cache
def _library() -> str:
    """Bokeh's own script, which draws the plots, without the hosts of mathematics, maps and icons."""
    resources = bokeh("resources").Resources(mode="inline", components=["bokeh"], minified=True)
    scripts = [text for text in resources.js_raw if not text.startswith("Bokeh.set_log_level")]
    return "\n".join(_HOSTS.sub(r"\1about:blank", text).replace("</script", "<\\/script") for text in scripts)
