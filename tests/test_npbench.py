"""Kernels of the benchmark `npbench`: what they compute, and that graphs of them compute the same as plain JAX."""

from itertools import pairwise

import jax
import numpy as np
import pytest

import codelet as cl
from benchmarks.harness import check_same
from benchmarks.loops import LOOPS, compare_loop
from benchmarks.npbench import compare_graph, compare_kernel
from benchmarks.npbench_graphs import GRAPHS
from benchmarks.npbench_kernels import KERNELS
from benchmarks.traced_ways import WAYS
from tests.at_once import at_once
from tests.examples import few


def drawn(name):
    return KERNELS[name].arguments("small", np.random.default_rng(0))


def computed(name, *arguments):
    return jax.jit(KERNELS[name].at("small"))(*arguments)


def check_comparison(comparison):
    arguments = jax.device_put(comparison.arguments(np.random.default_rng(0)))
    ours, plain = at_once(comparison.side("ours"), comparison.side("plain"))(*arguments)
    assert all(np.isfinite(own).all() for own in jax.tree.leaves(plain))
    check_same(comparison.name, ours, plain, comparison.tolerance)


# --- graphs beside plain JAX ----------------------------------------------------------------------------


LONG = {
    *("scattering_self_energies", "nussinov", "cavity_flow", "channel_flow", "resnet", "lenet", "contour_integral"),
    "deriche",
}
"""Kernels that take half a second or more, of operations that others have."""


@few("name", KERNELS, quick=[name for name in KERNELS if name not in LONG])
def test_traced_kernel_is_plain_jax(name):
    check_comparison(compare_kernel(name, "small", ""))


@pytest.mark.slow
@pytest.mark.parametrize("way", [way for way in WAYS if way])
@pytest.mark.parametrize("name", [name for name, kernel in KERNELS.items() if kernel.wrt])
def test_gradient_of_traced_kernel_is_plain_jax(name, way):
    check_comparison(compare_kernel(name, "small", way))


@pytest.mark.parametrize("name", [pytest.param(own, marks=[pytest.mark.slow] * (own == "seidel_2d")) for own in GRAPHS])
def test_graph_by_hand_is_plain_jax(name):
    check_comparison(compare_graph(name, "small"))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", LOOPS)
def test_traced_loop_is_plain_jax(name, way):
    if LOOPS[name].has_gradient or not way:
        for turns, row in ((9, (1,)), (11, (5,)), (8, (2, 3))):
            check_comparison(compare_loop(name, turns, row, way))


# --- what kernels compute -------------------------------------------------------------------------------


def lu_product(a):
    found = np.asarray(computed("lu", a), float)
    return (np.tril(found, -1) + np.eye(len(a))) @ np.triu(found), a


def gramschmidt_products(a):
    q, r = (np.asarray(own, float) for own in computed("gramschmidt", a))
    return np.stack([*(q @ r).T, *np.pad(q.T @ q, ((0, 0), (0, len(a) - q.shape[1])))]), np.stack(
        [*a.T, *np.eye(q.shape[1], len(a))]
    )


def durbin_system(r):
    """The equations of a symmetric Toeplitz matrix with a diagonal of ones."""
    whole, n = np.concatenate([[1.0], r]), len(r)
    toeplitz = whole[np.abs(np.subtract.outer(np.arange(n), np.arange(n)))]
    return toeplitz @ np.asarray(computed("durbin", r), float), -r


def shortest(path):
    expected = np.array(path)
    for k in range(len(path)):
        for i, j in np.ndindex(path.shape):
            expected[i, j] = min(expected[i, j], expected[i, k] + expected[k, j])
    return computed("floyd_warshall", path), expected


def seidel(a):
    expected = np.array(a, float)
    for _, i, j in np.ndindex(2, len(a) - 2, len(a) - 2):
        expected[i + 1, j + 1] = expected[i : i + 3, j : j + 3].mean()
    return computed("seidel_2d", a), expected


def rows_of_csr(values, x, columns, starts):
    expected = [values[a:b] @ x[columns[a:b]] for a, b in pairwise(starts)]
    return computed("spmv", values, x, columns, starts), expected


def self_energies(green, slope, phonons, neighbours):
    expected = np.zeros_like(green)
    momenta, energies, atoms = green.shape[:3]
    for k, e, q, w, i, j, a, b in np.ndindex(momenta, energies, *phonons.shape[:2], 3, 3, atoms, neighbours.shape[1]):
        if e >= w:
            near = green[k, e - w, neighbours[a, b]]
            expected[k, e, a] += near @ slope[a, b, i] @ (slope[a, b, j] * phonons[q, w, a, b, i, j])
    return computed("scattering_self_energies", green, slope, phonons, neighbours), expected


MATHEMATICS = {
    "lu": lu_product,
    "cholesky": lambda a: (computed("cholesky", a), np.linalg.cholesky(a.astype(float))),
    "gramschmidt": gramschmidt_products,
    "trisolv": lambda a, b: (np.tril(a) @ np.asarray(computed("trisolv", a, b)), b),
    "durbin": durbin_system,
    "floyd_warshall": shortest,
    "seidel_2d": seidel,
    "spmv": rows_of_csr,
    "stockham_fft": lambda x: (computed("stockham_fft", x), np.fft.fft(x)),
    "correlation": lambda x: (computed("correlation", x), np.corrcoef(x.T)),
    "covariance": lambda x: (computed("covariance", x), np.cov(x.T)),
    "scattering_self_energies": self_energies,
}


@pytest.mark.parametrize("name", MATHEMATICS)
def test_kernel_is_its_mathematics(name):
    found, expected = MATHEMATICS[name](*drawn(name))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def test_checksum_of_nine_digits():
    """The value that tables of checksums have for CRC-16/X-25, its bytes exchanged."""
    digits = np.frombuffer(b"123456789", np.uint8).astype(np.int32)
    assert computed("crc16", digits) == 0x6E90


def test_folds_of_a_strand():
    strand = np.array([0, 0, 0, 1, 2, 3, 3, 3, 1, 0], np.int32)
    n = len(strand)
    best = np.zeros((n + 1, n + 1), int)
    for i in reversed(range(n)):
        for j in range(i + 1, n):
            pair = strand[i] + strand[j] == 3 and i < j - 1
            best[i, j] = max([best[i + 1, j - 1] + pair, *(best[i, k] + best[k + 1, j] for k in range(i, j))])
    np.testing.assert_array_equal(computed("nussinov", strand), best[:n, :n])


def test_implicit_columns_of_vertical_advection():
    """What the velocities change by solves the tridiagonal system that they are a step of."""
    stage_tendency, stage, position, tendency, wind, rate = (np.asarray(own, float) for own in drawn("vadv"))
    change = np.asarray(computed("vadv", *drawn("vadv")), float)
    new = change / rate + position
    through = np.pad(0.125 * (wind[1:] + wind[:-1])[..., 1:], ((0, 0), (0, 0), (1, 1)))
    carried = lambda x: np.pad(np.diff(x), ((0, 0), (0, 0), (1, 1))) * through  # noqa: E731
    down = lambda x: carried(x)[..., :-1] + carried(x)[..., 1:]  # noqa: E731
    expected = tendency + stage_tendency - down(stage)
    np.testing.assert_allclose(rate * (new - position) + down(new), expected, rtol=1e-4, atol=1e-5)


def test_every_size_has_extents_that_do_not_divide():
    for name, kernel in KERNELS.items():
        assert list(kernel.sizes) == ["", "odd", "small"], name
        assert len({frozenset(own) for own in kernel.sizes.values()}) == 1, name
        assert any(own % 2 or own % 64 == 1 for own in kernel.sizes["odd"].values()), name


def test_graph_by_hand_has_a_vertex_for_each_point():
    graph = GRAPHS["jacobi_2d"](n=7, steps=3).graph
    assert isinstance(graph, cl.Graph)
    assert graph.num_vertices == 2 * 5**2
