"""The share of each layer in the light of a picture, pixel by pixel: a view subtracts it to switch layers off."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from codelet.draw.libraries import need
from codelet.draw.links_seen import draw_links_seen
from codelet.draw.raster import draw_points

if TYPE_CHECKING:
    from codelet.draw.picture import Picture

SIDE = 512
"""Of what says whose light it is, in pixels."""

_MOST_LINKS = 1 << 20
_GLOW = ((3, 0.02), (20, 0.002))
"""How far light spreads, in pixels, and how much of it: where none falls, the glow is that of what is near."""


def shares_of_light(picture: Picture) -> np.ndarray:
    """The share that each layer has of the light of each pixel, of all points and of a regular sample of the links.

    Returns:
        float32 of shape (layers, SIDE, SIDE); of a pixel all together one, or nothing where all is dark.
    """
    blurred = need("scipy.ndimage").gaussian_filter
    layout, colouring = picture.layout, picture.colouring
    count = len(layout.groups.layers)
    left, top, side = picture.window
    place = (layout.place - np.array([left, top], np.float32)) * np.float32(SIDE / side)
    # As the picture has it, links are of as much light as points.
    brightness = colouring.colours.max(axis=1)
    links_which = colouring.links_which
    lights = np.zeros((2, count, SIDE, SIDE), np.float32)
    for begin in range(0, count, 3):
        own = range(begin, min(begin + 3, count))
        channels = np.zeros((len(colouring.colours), 3), np.float32)
        for channel, layer in enumerate(own):
            channels[colouring.layer == layer, channel] = brightness[colouring.layer == layer]
        points = draw_points(place, colouring.which, picture.weight, channels, (SIDE, SIDE), SIDE / 200)
        seen = (place, layout.links, links_which, colouring.layer, channels, (SIDE, SIDE), _MOST_LINKS)
        for light, drawn in zip(lights, (points, draw_links_seen(*seen)), strict=True):
            light[own.start : own.stop] = drawn.transpose(2, 0, 1)[: len(own)]
    lights /= np.maximum(lights.sum(axis=(1, 2, 3), keepdims=True), 1e-12)
    light = lights.sum(axis=0)
    spread = sum(share * blurred(light, (0, width, width), mode="constant") for width, share in _GLOW)
    light = light + spread
    return (light / np.maximum(light.sum(axis=0), 1e-30)).astype(np.float32)
