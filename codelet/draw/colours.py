"""Colours by layer, phase and kind of vertex, in OKLCH.

Equal steps look equal there, and no layer is brighter for its hue alone.

Source: Ottosson, A perceptual color space for image processing (2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

_TO_CONES = np.array(
    [[1, 0.3963377774, 0.2158037573], [1, -0.1055613458, -0.0638541728], [1, -0.0894841775, -1.2914855480]]
)
_TO_RGB = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
)


LIGHTNESS = {"dark": (0.72, 0.66, 0.78), "light": (0.55, 0.48, 0.62)}
"""In OKLCH, of the phases, on each kind of ground."""

COLOUR_BLIND = ("#0077bb", "#ee7733", "#009988", "#cc3311", "#33bbee", "#ee3377", "#ddaa33")
"""Colours that those who see two of three kinds of light still tell apart. Source: Tol, Colour schemes (2021)."""


def oklch(lightness: Any, chroma: Any, hue: Any) -> np.ndarray:
    """Linear sRGB of colours in OKLCH, hues in degrees, of shape (colours, 3); as colourful as sRGB has them."""
    lightness, chroma, hue = np.broadcast_arrays(*map(np.asarray, (lightness, chroma, hue)))
    angle = np.radians(hue)
    low, high = np.zeros(lightness.shape), np.ones(lightness.shape)
    # The share of the chroma that is within sRGB, by halving.
    for _ in range(20):
        share = (low + high) / 2
        inside = _linear(lightness, share * chroma, angle)
        fits = ((inside >= -1e-9) & (inside <= 1 + 1e-9)).all(axis=-1)
        low, high = np.where(fits, share, low), np.where(fits, high, share)
    return np.clip(_linear(lightness, low * chroma, angle), 0, 1).astype(np.float32)


def _linear(lightness: np.ndarray, chroma: np.ndarray, angle: np.ndarray) -> np.ndarray:
    lab = np.stack([lightness, chroma * np.cos(angle), chroma * np.sin(angle)], axis=-1)
    return (lab @ _TO_CONES.T) ** 3 @ _TO_RGB.T


def from_hex(colours: Sequence[str]) -> np.ndarray:
    """Linear sRGB of colours written as `#rrggbb`, of shape (colours, 3)."""
    encoded = np.array([[int(text[k : k + 2], 16) for k in (1, 3, 5)] for text in colours]) / 255
    return np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4).astype(np.float32)


def to_hex(colour: np.ndarray) -> str:
    """A colour of linear sRGB as `#rrggbb`."""
    encoded = np.where(colour <= 0.0031308, 12.92 * colour, 1.055 * np.maximum(colour, 1e-9) ** (1 / 2.4) - 0.055)
    return "#" + "".join(f"{round(255 * float(np.clip(own, 0, 1))):02x}" for own in encoded)


class Shift(NamedTuple):
    """How a colour differs from that of its layer: by a part of the hues between two layers, lightness and chroma."""

    hue: float
    lightness: float = 0.0
    chroma: float = 1.0


PHASE_SHIFTS = (0.0, 0.3, -0.3)
"""By how many of the hues between two layers phases are apart from the first."""

KIND_SHIFTS = (Shift(0), Shift(0.2, 0.06), Shift(-0.2, -0.06), Shift(0.08, 0.11, 0.7), Shift(0, -0.03, 0.55))
"""Of the kinds of points of a layer; all of a phase and a kind together stay nearer to their layer than to others."""

FARTHEST = 14 / PHASE_SHIFTS[1]
"""How many degrees between two layers are counted at most, so that few layers are of one hue each."""


def class_colours(num_layers: int, num_phases: int, style: str, palette: str, num_kinds: int = 1) -> np.ndarray:
    """A colour for each layer in each phase and kind: layers around the circle of hues, the others a little apart.

    Args:
        num_layers: how many layers.
        num_phases: how many phases, at most three.
        style: "dark" or "light": the ground they stand on.
        palette: "hue", or "colour-blind": seven colours again and again, phases and kinds by their lightness alone.
        num_kinds: how many kinds, at most as there are `KIND_SHIFTS`.

    Returns:
        float32 of shape (layers * phases * kinds, 3), linear sRGB; kinds follow each other most closely.
    """
    kinds = np.array(KIND_SHIFTS[:num_kinds])
    lightness = np.add.outer(LIGHTNESS[style][:num_phases], kinds[:, 1])
    if palette == "colour-blind":
        base = from_hex([COLOUR_BLIND[k % len(COLOUR_BLIND)] for k in range(num_layers)])
        factor = (lightness / lightness[0, 0]) ** 3 * (1.0 if style == "dark" else 0.6)
        return np.clip(base[:, None] * factor.reshape(1, -1, 1), 0, 1).reshape(-1, 3).astype(np.float32)
    apart = (335 - 18) / max(1, num_layers)
    hue = 18 + apart * (np.arange(num_layers) + 0.5)
    shift = np.add.outer(PHASE_SHIFTS[:num_phases], kinds[:, 0]) * min(apart, FARTHEST)
    chroma = np.tile(0.2 * kinds[:, 2], num_layers * num_phases)
    return oklch(np.tile(lightness.reshape(-1), num_layers), chroma, np.add.outer(hue, shift.reshape(-1)).reshape(-1))


def shades(count: int, style: str, palette: str) -> np.ndarray:
    """Colours that follow each other around the circle of hues; for the colour-blind from blue by grey to orange."""
    if palette == "colour-blind":
        share = np.linspace(-1, 1, count)
        return oklch(LIGHTNESS[style][0], 0.16 * np.abs(share), np.where(share < 0, 250, 60))
    return oklch(LIGHTNESS[style][0], 0.2, np.linspace(18, 335, count))


def ramp(count: int, style: str) -> np.ndarray:
    """Colours from cool and faint to hot and strong, which lightness alone tells apart too."""
    share = np.linspace(0, 1, count)
    lightness = 0.35 + 0.55 * share if style == "dark" else 0.85 - 0.5 * share
    return oklch(lightness, 0.1 + 0.1 * share, 280 - 230 * share)
