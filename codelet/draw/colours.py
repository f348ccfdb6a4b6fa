"""Colours by layer and phase, in OKLCH: equal steps look equal, and no layer is brighter for its hue alone.

Source: Ottosson, A perceptual color space for image processing (2020).
"""

from __future__ import annotations

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


def oklch(lightness: np.ndarray, chroma: np.ndarray, hue: np.ndarray) -> np.ndarray:
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


def class_colours(num_layers: int, num_phases: int) -> np.ndarray:
    """A colour for each layer in each phase: layers around the circle of hues, phases a little apart.

    Returns:
        float32 of shape (layers * phases, 3), linear sRGB.
    """
    hue = 18 + (335 - 18) * (np.arange(num_layers) + 0.5) / max(1, num_layers)
    shift = np.array([0.0, 14.0, -14.0])[:num_phases]
    lightness = np.array([0.72, 0.66, 0.78])[:num_phases]
    return oklch(np.tile(lightness, num_layers), 0.2, np.add.outer(hue, shift).reshape(-1))
