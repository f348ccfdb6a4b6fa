"""An interactive view in a notebook: the visible part is drawn anew from the graph, as brightly as in the whole."""

from __future__ import annotations

import base64
import functools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from codelet.draw.libraries import need
from codelet.draw.view import SCRIPT, SHEET, NamedPoints, as_webp, view_of

if TYPE_CHECKING:
    from codelet.draw.picture import Picture

MOST_PIXELS = 1024
"""The side of what is drawn anew, at most: a second's work for a graph of millions."""

WIDE, WIDE_PIXELS = 0.5, 768
"""From which part of the whole's side on a window sees most of all links, and how many pixels its side has then."""

MODULE = SCRIPT + "\n" + Path(__file__).with_name("widget.js").read_text(encoding="utf-8")
"""The view as a module for anywidget."""

_MOST_NAMED = 20_000


class Viewport:
    """A picture of which parts are drawn when they are asked for.

    Attributes:
        picture: the whole.
        points: the properties of its points.
    """

    def __init__(self, picture: Picture):
        self.picture = picture
        self.points = NamedPoints(picture)

    def draw(self, asked: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
        """The request.

        Args:
            asked: `number` of the question, which the answer has again; `left`, `top` and `side` of a part, in shares
                of the picture's side; its `size` in pixels; `off`, the numbers of layers that give no light.

        Returns:
            The number, the window and the result of `NamedPoints.within`; the part in WebP, and columns of points.
        """
        wanted = float(asked["left"]), float(asked["top"]), float(np.clip(asked["side"], 1e-6, 8))
        whole = self.picture.window
        left, top = (edge + share * whole.side for edge, share in zip(whole, wanted[:2], strict=False))
        side = wanted[2] * whole.side
        most = MOST_PIXELS if side <= WIDE else WIDE_PIXELS
        size = int(np.clip(round(float(asked["size"]) / 64) * 64, 256, most))
        part = without_layers(self.picture, asked["off"]).zoom(left, top, side, size)
        about, columns = self.points.within(part.window, _MOST_NAMED)
        told = {"number": asked["number"], "window": list(wanted), "points": {**about, "window": list(wanted)}}
        return told, [as_webp(part.pixels), *columns]


def without_layers(picture: Picture, off: Sequence[int]) -> Picture:
    """A picture in which some layers, by number, give no light."""
    if not off:
        return picture
    colouring = picture.colouring
    lit = ~np.isin(colouring.layer, off)
    return replace(picture, colouring=replace(colouring, colours=colouring.colours * lit[:, None]))


@functools.cache
def _widget_class() -> Any:
    anywidget, traitlets = need("anywidget"), need("traitlets")

    class PictureWidget(anywidget.AnyWidget):
        """A picture in a notebook: moved, enlarged, layer by layer, with names."""

        _esm = MODULE
        _css = SHEET
        page = traitlets.Dict().tag(sync=True)
        height = traitlets.Int(600).tag(sync=True)

        def __init__(self, picture: Picture, height: int):
            viewport = Viewport(picture)
            super().__init__(page=view_of(picture, viewport.points), height=height)

            def answer(_: Any, asked: dict[str, Any], __: Any) -> None:
                told, buffers = viewport.draw(asked)
                self.send(told, buffers)

            self.on_msg(answer)
            self._picture = picture

        def _repr_mimebundle_(self, **options: Any) -> Any:
            """The view; beside it, for where no script runs, the picture as it is."""
            data, about = super()._repr_mimebundle_(**options)
            return {**data, "image/png": base64.b64encode(self._picture._repr_png_()).decode("ascii")}, about

        def __repr__(self) -> str:
            return f"<View of {self._picture!r}>"

    return PictureWidget


def picture_widget(picture: Picture, height: int) -> Any:
    """A widget that shows a picture.

    Args:
        picture: the picture shown.
        height: of the widget, in pixels of the screen.

    Raises:
        MissingExtraError: anywidget is not installed.
    """
    return _widget_class()(picture, height)
