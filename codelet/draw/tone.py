"""From light to a picture: many powers of ten are brought into the range of a screen or of paper.

Points and lines are toned apart, each by the logarithm of its brightest channel: a blurred base is compressed and the
detail kept; tops go to white. Bright parts spread over several scales, and all is screened together.

Source: Durand and Dorsey, Fast bilateral filtering for the display of high-dynamic-range images (2002), for base and
detail, here with a plain blur.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from codelet.draw.libraries import compiled, need, shares_of, side_by_side

_SAMPLE = 5


class Curve(NamedTuple):
    """How light becomes brightness.

    Attributes:
        base: the share kept of the variation of the blurred logarithm.
        detail: the share kept of the variation above and below that.
        blur: the standard deviation of the blur, in pixels of a picture of 2,048.
        power: the exponent of the result.
        gain: the brightness of the brightest.
        white: from which brightness on colour fades to white.
    """

    base: float
    detail: float
    blur: float
    power: float
    gain: float
    white: float


LINES = Curve(base=0.33, detail=1.3, blur=50, power=0.62, gain=1.1, white=0.8)
POINTS = Curve(base=0.6, detail=1.0, blur=40, power=0.9, gain=1.15, white=0.4)
BLOOM = ((3, 0.30), (9, 0.22), (36, 0.14), (120, 0.07))
"""What glows: standard deviations in pixels of a picture of 2,048, and how much of the light spreads so far."""


class Exposure(NamedTuple):
    """The statistics of a whole picture's light that its tone rests on, so that a part of it is toned alike.

    Attributes:
        dark: the logarithm of light below which is darkness.
        middle: the logarithm about which the base is compressed.
        bright: the toned logarithm that is brightest.
    """

    dark: float
    middle: float
    bright: float

    def shifted(self, by: float) -> Exposure:
        """That of a picture whose light is `exp(by)` times as much."""
        return Exposure(self.dark + by, self.middle + by, self.bright + by)


def _blurred(values: np.ndarray, deviation: float) -> np.ndarray:
    """A Gaussian blur of a picture of one channel, on a coarser grid where it is wide."""
    ndimage = need("scipy.ndimage")

    factor = max(1, int(deviation // 4))
    if factor == 1:
        return ndimage.gaussian_filter(values, deviation, mode="nearest")
    height, width = values.shape
    tall, wide = -(-height // factor) * factor, -(-width // factor) * factor
    padded = np.pad(values, ((0, tall - height), (0, wide - width)), mode="edge")
    small = padded.reshape(tall // factor, factor, wide // factor, factor).mean(axis=(1, 3))
    small = ndimage.gaussian_filter(small, deviation / factor, mode="nearest")
    out = np.empty((height, width), np.float32)
    side_by_side(lambda share: _stretch(small.astype(np.float32), factor, *share, out), shares_of(height))
    return out


@compiled
def _stretch(small: np.ndarray, factor: int, begin: int, end: int, out: np.ndarray) -> None:
    """Write lines of a picture that is `factor` times as large, between the pixels of the small one as they lie."""
    height, width = small.shape
    for y in range(begin, end):
        v = (y + 0.5) / factor - 0.5
        b = min(max(int(np.floor(v)), 0), height - 1)
        b1 = min(b + 1, height - 1)
        fv = np.float32(min(max(v - b, 0.0), 1.0))
        for x in range(out.shape[1]):
            u = (x + 0.5) / factor - 0.5
            a = min(max(int(np.floor(u)), 0), width - 1)
            a1 = min(a + 1, width - 1)
            fu = np.float32(min(max(u - a, 0.0), 1.0))
            low = small[b, a] * (1 - fu) + small[b, a1] * fu
            high = small[b1, a] * (1 - fu) + small[b1, a1] * fu
            out[y, x] = low * (1 - fv) + high * fv


def expose(light: np.ndarray, curve: Curve) -> Exposure:
    """The exposure of a picture."""
    brightest = _brightest(light)
    sample = brightest[::_SAMPLE, ::_SAMPLE]
    lit = sample > 1e-7
    if not lit.any():
        lit, sample = brightest > 1e-7, brightest
    if not lit.any():
        return Exposure(0.0, 0.0, 0.0)
    low, high = np.log(np.percentile(sample[lit], [10, 99.8]))
    dark = float(low + np.log(0.05))
    logarithm, base = _parts(brightest, dark, curve)
    step = _SAMPLE if sample is not brightest else 1
    toned = _toned(logarithm[::step, ::step], base[::step, ::step], float(high), curve)
    return Exposure(dark, float(high), float(np.percentile(toned[lit], 99.8)))


def _brightest(light: np.ndarray) -> np.ndarray:
    """The brightest channel of every pixel; channel by channel, which numpy does much faster than pixel by pixel."""
    found = np.maximum(light[..., 0], light[..., 1])
    return np.maximum(found, light[..., 2], out=found)


def _parts(brightest: np.ndarray, dark: float, curve: Curve) -> tuple[np.ndarray, np.ndarray]:
    """The logarithm of light, and its blurred base."""
    logarithm = np.log(brightest + np.float32(np.exp(dark)))
    return logarithm, _blurred(logarithm, curve.blur * brightest.shape[0] / 2048)


def _toned(logarithm: Any, base: Any, middle: float, curve: Curve) -> Any:
    return middle + (base - middle) * curve.base + (logarithm - base) * curve.detail


@compiled
def _tone_pixels(light: np.ndarray, value: np.ndarray, gain: float, white: float, begin: int, end: int) -> None:
    """Bring pixels to a brightness, with their colour; above `white` they fade to white."""
    for y in range(begin, end):
        for x in range(light.shape[1]):
            top = max(light[y, x, 0], max(light[y, x, 1], light[y, x, 2]))
            if top <= 1e-12:
                for c in range(3):
                    light[y, x, c] = 0
                continue
            fade = min(max((value[y, x] - white) / max(1.3 - white, 1e-3), 0.0), 1.0)
            fade = fade**1.5 if fade > 0 else 0.0
            bright = min(value[y, x], np.float32(1)) * gain
            for c in range(3):
                light[y, x, c] = min((light[y, x, c] / top * (1 - fade) + fade) * bright, 1.0)


def tone(light: np.ndarray, curve: Curve, exposure: Exposure, gain: float = 1.0) -> np.ndarray:
    """Light as brightness from 0 to 1, in place.

    Args:
        light: float32 of shape (height, width, 3).
        curve: how.
        exposure: of this picture, or of the one that it is a part of.
        gain: the factor of the result.
    """
    logarithm, base = _parts(_brightest(light), exposure.dark, curve)
    value = np.exp((_toned(logarithm, base, exposure.middle, curve) - exposure.bright) * curve.power) * curve.gain
    value = value.astype(np.float32)
    side_by_side(lambda share: _tone_pixels(light, value, gain, curve.white, *share), shares_of(len(light)))
    return light


@compiled
def _shrink(points: np.ndarray, lines: np.ndarray, begin: int, end: int, hot: np.ndarray) -> None:
    """The light that glows, of four by four pixels each: of points the bright part, of lines a share."""
    for y in range(begin, end):
        for x in range(hot.shape[2]):
            for c in range(3):
                bright = np.float32(0)
                faint = np.float32(0)
                for line in range(4 * y, 4 * y + 4):
                    for column in range(4 * x, 4 * x + 4):
                        bright += points[line, column, c]
                        faint += lines[line, column, c]
                lit = max(bright * np.float32(1 / 16) - np.float32(0.1), np.float32(0))
                hot[c, y, x] = lit + np.float32(0.35 / 16) * faint


def bloom(points: np.ndarray, lines: np.ndarray) -> np.ndarray:
    """The glow of toned points and lines, at a quarter of the resolution and enlarged."""
    height, width, _ = points.shape
    hot = np.empty((3, height // 4, width // 4), np.float32)
    side_by_side(lambda share: _shrink(points, lines, *share, hot), shares_of(height // 4))
    out = np.empty((height, width, 3), np.float32)

    def channel(c: int) -> None:
        glow = sum(np.float32(share) * _blurred(hot[c], max(0.6, s * height / 2048 / 4)) for s, share in BLOOM)
        _stretch(np.asarray(glow, np.float32), 4, 0, height, out[..., c])

    side_by_side(channel, range(3))
    return out


@compiled
def _fraction(number: float) -> float:
    """The fractional part of a positive number: `number % 1`, many times as fast."""
    return number - np.floor(number)


@compiled
def _encoded(light: float, noise: float) -> np.uint8:
    """Linear light as a byte of sRGB, rounded down after `noise` is added."""
    encoded = 12.92 * light if light <= 0.0031308 else 1.055 * light ** (1 / 2.4) - 0.055
    return np.uint8(min(max(encoded * 255 + noise, 0.0), 255.0))


@compiled
def _screen(points: np.ndarray, lines: np.ndarray, glow: np.ndarray, begin: int, end: int, out: np.ndarray) -> None:
    """Lay layers of light over one another as screens, encode them as sRGB, and dither to bytes."""
    for y in range(begin, end):
        for x in range(out.shape[1]):
            # Interleaved gradient noise: even over any few pixels, and without a visible pattern.
            noise = _fraction(52.9829189 * _fraction(0.06711056 * x + 0.00583715 * y))
            for c in range(3):
                light = 1 - (1 - min(points[y, x, c], 1)) * (1 - min(lines[y, x, c], 1)) * (1 - min(glow[y, x, c], 1))
                out[y, x, c] = _encoded(light, noise)


@compiled
def _print(points: np.ndarray, lines: np.ndarray, begin: int, end: int, out: np.ndarray) -> None:
    """Lay layers of ink over one another on white, and encode them as sRGB: brightness is how much ink there is."""
    for y in range(begin, end):
        for x in range(out.shape[1]):
            for c in range(3):
                light = 1.0
                for ink in (points, lines):
                    much = max(ink[y, x, 0], max(ink[y, x, 1], ink[y, x, 2]))
                    if much > 0:
                        # On paper eyes tell faint inks apart as on black they do faint lights.
                        light *= 1 - much**0.45 * (1 - PAPER_INK * ink[y, x, c] / much)
                out[y, x, c] = _encoded(light, 0.5)


PAPER_INK = 0.7
"""How light the strongest channel of an ink is on paper."""


def develop(points: np.ndarray, lines: np.ndarray, exposures: tuple[Exposure, Exposure], style: str) -> np.ndarray:
    """A picture of the light of points and lines, which are overwritten.

    Args:
        points: float32 of shape (height, width, 3), of multiples of 4.
        lines: of the same shape.
        exposures: of points and lines.
        style: "dark", or "light": on paper, where nothing glows or fades to white.

    Returns:
        uint8 of shape (height, width, 3), sRGB.
    """
    out = np.empty(points.shape, np.uint8)
    if style == "light":
        never = float("inf")
        tone(points, POINTS._replace(white=never), exposures[0], 0.95)
        tone(lines, LINES._replace(white=never), exposures[1], 0.8)
        side_by_side(lambda share: _print(points, lines, *share, out), shares_of(len(out)))
        return out
    tone(points, POINTS, exposures[0], 0.95)
    tone(lines, LINES, exposures[1], 1.7)
    glow = bloom(points, lines)
    side_by_side(lambda share: _screen(points, lines, glow, *share, out), shares_of(len(out)))
    return out
