"""Forces on points: links attract, points repel, and gravity holds all together; and steps along them.

    attraction  weight * distance along every link
    repulsion   m1 * m2 / distance between any two points, by particle mesh: masses are laid on a grid, the grid is
                convolved with the force of a unit mass by FFTs, and the result is looked up between grid points
    gravity     mass * distance to the middle

The repulsion that falls with the distance is that of charges in the plane, and with linear springs ForceAtlas2's.
Source: Hockney and Eastwood, Computer Simulation Using Particles (1988), ch. 5, for the mesh and the padding of it
with zeros, so that the field is that of points alone in the plane; Jacomy et al., ForceAtlas2 (PLOS ONE 2014).
"""

from __future__ import annotations

import numpy as np

from codelet.draw.libraries import SHARES, compiled, need, shares_of, side_by_side, summed

SOFTENING = 0.7
"""In cells of the mesh, the distance below which two points no longer repel more."""


@compiled
def _deposit(
    place: np.ndarray, mass: np.ndarray, begin: int, end: int, x0: float, y0: float, cell: float, grid: np.ndarray
) -> None:
    """Lay masses on the four grid points around each place."""
    for n in range(begin, end):
        u = (place[n, 0] - x0) / cell
        v = (place[n, 1] - y0) / cell
        a = min(max(int(u), 0), grid.shape[1] - 2)
        b = min(max(int(v), 0), grid.shape[0] - 2)
        fu = u - a
        fv = v - b
        grid[b, a] += mass[n] * (1 - fu) * (1 - fv)
        grid[b, a + 1] += mass[n] * fu * (1 - fv)
        grid[b + 1, a] += mass[n] * (1 - fu) * fv
        grid[b + 1, a + 1] += mass[n] * fu * fv


@compiled
def attract_pairs(
    place: np.ndarray,
    source: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray,
    begin: int,
    end: int,
    pull: np.ndarray,
) -> None:
    """Add to `pull` the attraction between pairs of points from `begin` to `end`."""
    for k in range(begin, end):
        i = source[k]
        j = target[k]
        dx = weight[k] * (place[j, 0] - place[i, 0])
        dy = weight[k] * (place[j, 1] - place[i, 1])
        pull[i, 0] += dx
        pull[i, 1] += dy
        pull[j, 0] -= dx
        pull[j, 1] -= dy


@compiled
def attract_links(
    place: np.ndarray, first: np.ndarray, source: np.ndarray, begin: int, end: int, stride: int, pull: np.ndarray
) -> None:
    """Add to `pull` the attraction of every `stride`-th link to points from `begin` to `end`, `stride` times."""
    for j in range(begin, end):
        sx = np.float32(0)
        sy = np.float32(0)
        start = first[j] + (-first[j]) % stride
        for k in range(start, first[j + 1], stride):
            i = source[k]
            dx = (place[j, 0] - place[i, 0]) * np.float32(stride)
            dy = (place[j, 1] - place[i, 1]) * np.float32(stride)
            pull[i, 0] += dx
            pull[i, 1] += dy
            sx += dx
            sy += dy
        pull[j, 0] -= sx
        pull[j, 1] -= sy


@compiled
def _between(values: np.ndarray, a: int, b: int, fu: float, fv: float) -> float:
    """The value between the four grid points from column `a` and line `b` on, weighted by their distances."""
    near = values[b, a] * (1 - fu) * (1 - fv) + values[b, a + 1] * fu * (1 - fv)
    return near + (values[b + 1, a] * (1 - fu) * fv + values[b + 1, a + 1] * fu * fv)


@compiled
def _step(
    place: np.ndarray,
    pulls: np.ndarray,
    field: np.ndarray,
    mass: np.ndarray,
    begin: int,
    end: int,
    x0: float,
    y0: float,
    cell: float,
    repulsion: float,
    gravity: float,
    longest: float,
) -> None:
    """Move points along the forces on them, each by the force over its stiffness, and no further than `longest`."""
    height, width = field.shape[1:]
    for n in range(begin, end):
        x = place[n, 0]
        y = place[n, 1]
        u = (x - x0) / cell
        v = (y - y0) / cell
        a = min(max(int(u), 0), width - 2)
        b = min(max(int(v), 0), height - 2)
        fu = u - a
        fv = v - b
        m = mass[n]
        push_x = repulsion * m * _between(field[0], a, b, fu, fv) / cell - gravity * m * x
        push_y = repulsion * m * _between(field[1], a, b, fu, fv) / cell - gravity * m * y
        for share in range(len(pulls)):
            push_x += pulls[share, n, 0]
            push_y += pulls[share, n, 1]
        # A point's links weigh as much as its mass.
        stiffness = m + gravity * m + 1e-9
        sx = STEP * push_x / stiffness
        sy = STEP * push_y / stiffness
        length = np.sqrt(sx * sx + sy * sy)
        if length > longest:
            sx *= longest / length
            sy *= longest / length
        place[n, 0] = x + sx
        place[n, 1] = y + sy


STEP = 0.7
"""The share of the way to where the forces on a point would vanish, which it goes in a step."""


class Mesh:
    """The repulsion of masses, on a square grid."""

    def __init__(self, size: int):
        fft = need("scipy.fft")
        self._fft = fft
        self.size = size
        line = np.arange(2 * size, dtype=np.float32)
        line[size:] -= 2 * size
        squared = line[:, None] ** 2 + line**2 + SOFTENING**2
        self._forces = [fft.rfft2(axis / squared) for axis in np.broadcast_arrays(line, line[:, None])]

    def field(self, density: np.ndarray) -> np.ndarray:
        """The force on a unit mass at every grid point, along x and y; distances are in cells."""
        size, fft = self.size, self._fft
        own = {"workers": SHARES, "overwrite_x": True}
        # Line by line, then column by column, and back: lines of padding are never transformed, as `rfft2` would.
        wide = fft.fft(fft.rfft(density, 2 * size, workers=SHARES), 2 * size, axis=0, **own)
        found = np.empty((2, size, size), np.float32)
        # One after the other, each by several threads: side by side they would take twice the memory.
        for axis, force in enumerate(self._forces):
            lines = fft.ifft(wide * force, axis=0, **own)[:size]
            found[axis] = fft.irfft(lines, 2 * size, **own)[:, :size]
        return found


def bounds(place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest x and y of points; column by column, which numpy does much faster than along rows."""
    return np.array([own.min() for own in place.T]), np.array([own.max() for own in place.T])


def step(
    place: np.ndarray,
    pulls: np.ndarray,
    mass: np.ndarray,
    mesh: Mesh,
    *,
    repulsion: float,
    gravity: float,
    longest: float,
) -> None:
    """Move all points one step.

    Args:
        place: float32 of shape (points, 2), which is written to.
        pulls: float32 of shape (shares, points, 2): the attraction of links on each, to be added up.
        mass: float32, for each point the number of its links.
        mesh: the mesh for the repulsion.
        repulsion: of two unit masses at distance 1.
        gravity: of a unit mass at distance 1 from the middle.
        longest: the furthest that a point moves.
    """
    low, high = bounds(place)
    side = float((high - low).max()) * 1.04 + 1e-9
    x0, y0 = ((low + high) / 2 - side / 2).astype(float).tolist()
    cell = side / (mesh.size - 1)

    def deposit(share: tuple[int, int]) -> np.ndarray:
        grid = np.zeros((mesh.size, mesh.size), np.float32)
        _deposit(place, mass, *share, x0, y0, cell, grid)
        return grid

    field = mesh.field(summed(deposit, shares_of(len(place))))
    move = lambda share: _step(  # noqa: E731
        place, pulls, field, mass, *share, x0, y0, cell, repulsion, gravity, longest
    )
    side_by_side(move, shares_of(len(place)))
