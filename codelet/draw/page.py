"""An interactive view as one file of HTML, which needs no server and no network."""

from __future__ import annotations

import html
import json
import os
from typing import TYPE_CHECKING

from codelet.draw.view import SCRIPT, SHEET, view_of
from codelet.files import written_whole

if TYPE_CHECKING:
    from codelet.draw.picture import Picture

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; script-src 'unsafe-inline'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>html, body {{ margin: 0; height: 100%; background: {ground}; }}
{sheet}</style>
</head>
<body>
<main id="view" style="height: 100%"><noscript>This picture is shown by a script.</noscript></main>
<script type="application/json" id="data">{data}</script>
<script type="module">
{script}
show(document.getElementById("view"), JSON.parse(document.getElementById("data").textContent));
</script>
</body>
</html>
"""


def page_of(picture: Picture) -> str:
    """A page that shows a picture: moved, enlarged, layer by layer, with names."""
    view = view_of(picture)
    return _PAGE.format(
        title=html.escape(picture.title or "A graph"),
        ground=view["ground"],
        # A name may be anything, also the end of a script: no tag begins in what JSON says.
        data=json.dumps(view, separators=(",", ":")).replace("<", "\\u003c"),
        sheet=SHEET,
        script=SCRIPT,
    )


def write_page(picture: Picture, path: str | os.PathLike[str]) -> None:
    """Write the page of a picture to a file."""
    text = page_of(picture)
    with written_whole(path) as file:
        file.write(text)
