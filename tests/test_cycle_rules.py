"""Rules for what is not elementwise, beside PopLibs' own estimators and by what holds of every size."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

import codelet as cl
from ipu_backend.model.body_cycles import jaxpr_cost
from ipu_backend.model.costs import FREE, Cost, Mode
from ipu_backend.model.cycle_rules import cycle_rules
from ipu_backend.model.equations import inlined
from tests import poplibs_oracle as oracle
from tests import poplibs_products as products
from tests.examples import examples, few

MK2 = cl.IPU()
F16, F32 = np.dtype(np.float16), np.dtype(np.float32)
NAMES = {F16: "f16", F32: "f32"}
SIZES = (16, 64, 1000)


def ones(*shape: int, dtype: Any = F32):
    return jax.ShapeDtypeStruct(shape, dtype)


def cost(function, *arguments, target=MK2, **mode) -> Cost:
    """What those of its equations take that are not elementwise."""
    equations = inlined(jax.make_jaxpr(function)(*arguments).jaxpr, {})
    found = [cycle_rules[eqn.primitive](eqn, Mode(target, **mode)) for eqn in equations]
    return sum((own for own in found if isinstance(own, Cost)), FREE)


def of_worker(function, *arguments, **mode):
    return cost(function, *arguments, **mode).worker


def of_tile(function, *arguments, workers=6, **mode):
    found = cost(function, *arguments, workers=workers, **mode)
    return found.supervisor + 6 * found.worker


# --- products --------------------------------------------------------------------------------------------


def test_the_matrix_unit_of_all_workers():
    rows = (16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 512, 1024, 2032, 2048)
    published = [353, 425, 473, 545, 617, 665, 737, 809, 857, 929, 1001, 1049, 1121, 1193, 1241, 1313]
    published += [2345, 4385, 8417, 8489]
    for n, expected in zip(rows, published, strict=True):
        # The supervisor waits 14 for the last worker where all have as many rows, which those leave out.
        same = 14 if n % 6 == 0 else 0
        assert of_tile(jnp.dot, ones(n, 16, dtype=F16), ones(16, 16, dtype=F16)) == expected + same
        assert products.matrix_unit_1x1("f16", n, 16, 16) == expected


@pytest.mark.parametrize("rows", [20, 100, 1000])
def test_the_matrix_unit_beside_its_estimator(rows):
    for dtype, out in ((F16, F16), (F16, F32), (F32, F32)):
        for depth, columns in ((16, 16), (64, 64)):

            def product(x, w, out=out):
                return lax.dot_general(x, w, (([1], [0]), ([], [])), preferred_element_type=out)

            found = of_tile(product, ones(rows, depth, dtype=dtype), ones(depth, columns, dtype=dtype))
            ways = (rows, columns), (columns, rows)  # the planner may have either operand as the weights
            expected = min(products.matrix_unit_1x1(NAMES[dtype], m, depth, n, NAMES[out]) for m, n in ways)
            assert found == pytest.approx(expected, rel=0.05)


def test_one_worker_loads_the_weights_at_its_own_pace():
    # four blocks of inputs and four passes; a load of 32 cycles of the tile; 37 or 38 for three rows, 4 for each more
    first, later = -(-(7 + 32) // 6) + 37 + 4 * 61, -(-(6 + 32) // 6) + 38 + 4 * 61
    assert of_worker(jnp.dot, ones(64, 64, dtype=F16), ones(64, 64, dtype=F16)) == 4 * (first + 3 * later)


def test_float8_where_the_chip_has_it():
    x, w = ones(100, 64, dtype=jnp.float8_e4m3fn), ones(64, 16, dtype=jnp.float8_e4m3fn)
    assert of_tile(jnp.dot, x, w, target=cl.IPU("bow")) == products.matrix_unit_float8(100, 64, 16)
    assert of_tile(jnp.dot, x, w) > of_tile(jnp.dot, ones(100, 64, dtype=F16), ones(64, 16, dtype=F16)) * 0.9


@pytest.mark.parametrize("n", [16, 64, 1000])
@pytest.mark.parametrize("dtype", [F32, F16])
def test_a_dot_product_of_the_vector_unit(n, dtype):
    name, found = NAMES[dtype], of_worker(jnp.dot, ones(n, dtype=dtype), ones(n, dtype=dtype))
    assert found == products.horizontal_mac(name, 1, n, 1).worker == 58 + products.dot_core(name, n)
    alone = of_tile(jnp.dot, ones(n, dtype=dtype), ones(n, dtype=dtype))
    assert alone == pytest.approx(products.dot_product(name, n).tile, rel=0.01)


def test_odd_channels_are_padded():
    found = [of_worker(jnp.dot, ones(n), ones(n)) for n in (15, 16, 17, 18)]
    assert found == [58 + 15, 58 + 15, 58 + 16, 58 + 16]


@pytest.mark.parametrize("sizes", [(3, 20), (8, 12), (40, 100)])
def test_an_outer_product(sizes):
    def outer(x, y):
        return lax.dot_general(x, y, (([1], [0]), ([], [])))

    width, channels = sizes
    assert of_worker(outer, ones(width, 1), ones(1, channels)) <= products.outer_product("f32", width, channels).worker
    bare = cl.IPU(float16_macs_per_cycle=0, float32_macs_per_cycle=0)
    for dtype in (F32, F16):
        found = of_worker(outer, ones(width, 1, dtype=dtype), ones(1, channels, dtype=dtype), target=bare)
        ways = [products.outer_product(NAMES[dtype], *own).worker for own in (sizes, sizes[::-1])]
        assert found <= min(ways)


def convolved(image: Any, kernel: Any, groups: int = 1, **parameters: Any) -> Any:
    def function(x, w):
        edge = [(w.shape[2] // 2 * apart,) * 2 for apart in parameters.get("rhs_dilation", (1, 1))]
        return lax.conv_general_dilated(x, w, (1, 1), edge, feature_group_count=groups, **parameters)

    return function, image, kernel


def test_convolutions():
    function, *arguments = convolved(ones(1, 16, 8, 8), ones(16, 16, 3, 3))
    # nine positions, two blocks of eight inputs, each a load of 32 + 18 and eight lines of eight; zeroing 512 vectors
    each = -(-(32 + 18) // 6) + 17 + 8 * (3 + 45 + 8 * 5)
    assert of_worker(function, *arguments) == 9 * 2 * each + 512 + 5
    alone = of_tile(function, *arguments)
    assert 9 * 2 * 64 * 8 < alone < of_worker(function, *arguments) * 6 / 3
    # of all workers: two lines each, which all take as long, so that the supervisor waits 9 for the last
    function, *arguments = convolved(ones(1, 16, 12, 8), ones(16, 16, 3, 3))
    worker, zeroing = 17 + 2 * (3 + 45 + 8 * 5 - 9), 6 * (128 + 5)
    inner = 3 * (14 + 3 * (12 + 32 + 15 + 3)) + 9 * (6 * worker + 9)
    assert of_tile(function, *arguments) == 109 + 6 * (9 + 9) + 18 + 1 + 16 + 2 * (14 + 14 + inner) + zeroing
    # a kernel of one position is a matrix product of all positions
    function, *arguments = convolved(ones(2, 16, 8, 8, dtype=F16), ones(16, 16, 1, 1, dtype=F16))
    assert of_tile(function, *arguments) == products.matrix_unit_1x1("f16", 128, 16, 16)
    # zeros between elements are not multiplied
    wide, *arguments = convolved(ones(1, 16, 8, 8), ones(16, 16, 3, 3), lhs_dilation=(2, 2))
    assert of_worker(wide, *arguments) < 2 * of_worker(*convolved(ones(1, 16, 8, 8), ones(16, 16, 3, 3)))
    # each channel by itself has a vertex of its own in float16
    deep, *arguments = convolved(ones(1, 64, 8, 8, dtype=F16), ones(64, 1, 3, 3, dtype=F16), groups=64)
    by_dots = 64 * (16 + 9 * (16 + 8 * (19 + 8 * (7 + 12))))
    assert of_worker(deep, *arguments) < by_dots / 10
    dilated, *arguments = convolved(ones(1, 4, 8, 8), ones(4, 4, 3, 3), rhs_dilation=(2, 2))
    assert of_worker(dilated, *arguments) == of_worker(*convolved(arguments[0], arguments[1]))


def test_compiled_products_use_no_matrix_unit():
    x = ones(64, 64, dtype=F16)
    found = cost(jnp.dot, x, x, compiled=True)
    assert found.worker == 17 + 64 * 64 * (12 + 4 * 64)
    assert found.fitted == 17 + 64 * 64 * 12  # what no source says of compiled code
    assert cost(jnp.dot, x, x, compiled=True, vectorised=True).worker == 17 + 64 * 64 * (12 + 4 * 16)
    whole = ones(8, 8, dtype=np.int32)
    found = cost(jnp.dot, whole, whole)
    assert found.worker == found.guessed == 17 + 64 * (12 + 4 * 8)


# --- reductions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [F32, F16])
@pytest.mark.parametrize("sizes", [(1, 100), (16, 64), (64, 16)])
def test_reductions_by_their_axes(dtype, sizes):
    outputs, each = sizes
    name = NAMES[dtype]
    rows, columns = ones(outputs, each, dtype=dtype), ones(each, outputs, dtype=dtype)
    for function, is_sum in ((lax.reduce_sum, True), (lax.reduce_max, False)):
        along, across = (
            of_worker(lambda x, f=function: f(x, (1,)), rows),
            of_worker(lambda x, f=function: f(x, (0,)), columns),
        )
        if outputs == 1:
            assert along == across == oracle.reduce_to_one(name, each, is_sum=is_sum).worker
        else:
            assert along == oracle.reduce_continuous(name, outputs, each).worker
            assert across == oracle.reduce_strided(name, outputs, each, is_sum=is_sum).worker


def test_reductions_along_several_axes():
    x = ones(4, 8, 16)
    continuous, strided = oracle.reduce_continuous("f32", 32, 16).worker, oracle.reduce_strided("f32", 8, 4).worker
    assert of_worker(lambda x: lax.reduce_sum(x, (0, 2)), x) == continuous + strided
    assert of_worker(lambda x: lax.reduce_sum(x, (1,)), x) == 4 * oracle.reduce_strided("f32", 16, 8).worker
    assert of_worker(lambda x: lax.reduce_sum(x, (1, 2)), x) == oracle.reduce_continuous("f32", 4, 128).worker
    assert of_worker(lambda x: lax.reduce_sum(x, (0, 1, 2)), x) == oracle.reduce_to_one("f32", 512).worker
    assert of_worker(lambda x: lax.reduce_sum(x, (1,)), ones(16, 1, 1, 4)) == 0  # a view


def test_workers_share_results_or_what_is_reduced():
    found = cost(lambda x: lax.reduce_sum(x, (1,)), ones(60, 64), workers=6)
    assert (found.worker, found.supervisor) == (oracle.reduce_continuous("f32", 10, 64).worker, 11)
    found = cost(lambda x: lax.reduce_sum(x, (0,)), ones(6000), workers=6)
    both = oracle.reduce_to_one("f32", 1000).worker + oracle.reduce_to_one("f32", 6).worker
    assert (found.worker, found.supervisor) == (both, 22)


def test_compiled_reductions():
    x = ones(1000)
    assert of_worker(lambda x: lax.reduce_sum(x, (0,)), x, compiled=True) == 17 + 12 + 1000 * (1 + 1)
    assert of_worker(lambda x: x.sum(), x, compiled=True, vectorised=True) == 17 + 12 + 500 * (1 + 1)


def test_truth_values_integers_and_nothing():
    assert of_worker(lambda x: x.all(), ones(100, dtype=np.bool_)) == 31 + 8 + 22 + 25 * 100
    assert of_worker(lambda x: x.sum(), ones(100, dtype=np.int32)) == 17 + 100 + 5
    for function in (jnp.sum, jnp.any, lambda x: x.sum(0), lambda x: x.sum(1)):
        for shape in ((0, 3), (3, 0), (0, 0)):
            assert of_worker(function, ones(*shape)) >= 0
            assert cost(function, ones(*shape), workers=6, compiled=True).worker >= 0


def test_positions_of_extrema():
    for dtype in (F32, F16, np.dtype(np.int32)):
        name = NAMES.get(dtype, "int32")
        for n in SIZES:
            assert (
                of_worker(lambda x: lax.argmax(x, 0, np.int32), ones(n, dtype=dtype)) == oracle.arg_max(name, n).worker
            )
    assert of_tile(lambda x: lax.argmin(x, 0, np.int32), ones(6000)) == oracle.arg_max("f32", 6000).tile


def pooled(kind, *shape, dtype=F32):
    start, operation = (-np.inf, lax.max) if kind == "max" else (0.0, lax.add)
    window = (1, 2, 2, 1)
    return lambda x: lax.reduce_window(x, dtype.type(start), operation, window, window, "VALID"), ones(
        *shape, dtype=dtype
    )


@pytest.mark.parametrize("sizes", [(4, 4, 8), (8, 16, 16), (32, 8, 64)])
@pytest.mark.parametrize("dtype", [F32, F16])
def test_pooling(sizes, dtype):
    height, width, channels = sizes
    for kind in ("max", "sum"):
        expected = oracle_pooling(NAMES[dtype], height // 2, channels, width // 2, is_sum=kind == "sum")
        function, x = pooled(kind, 1, height, width, channels, dtype=dtype)
        assert of_worker(function, x) == expected.worker
        if height // 2 >= 6:
            assert of_tile(function, x) == expected.tile
    gradient = of_worker(
        jax.grad(lambda x: pooled("max", *x.shape, dtype=dtype)[0](x).sum()), ones(1, *sizes, dtype=dtype)
    )
    assert gradient > of_worker(*pooled("max", 1, *sizes, dtype=dtype))


def oracle_pooling(name, rows, channels, width, *, is_sum):
    return products.pooling(name, rows, 4, channels, width, is_sum=is_sum)


def test_running_sums_are_guesses():
    found = cost(lambda x: lax.cumsum(x, 0), ones(100))
    assert found.worker == found.guessed == 17 + 3 * 100


# --- moving elements ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [F32, F16])
@pytest.mark.parametrize("sizes", [(1, 16), (16, 64), (100, 256)])
def test_rows_by_index(dtype, sizes):
    count, row = sizes
    table, at = ones(500, row, dtype=dtype), ones(count, dtype=np.int32)
    updates = ones(count, row, dtype=dtype)
    name = NAMES[dtype]
    gather = lambda x, i: lax.gather(  # noqa: E731
        x, i[:, None], lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, row), mode="promise_in_bounds"
    )
    assert of_worker(gather, table, at) == oracle.multi_slice(name, count, row).worker
    assert of_tile(gather, table, at) == oracle.multi_slice(name, count, row).tile
    numbers = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    add = lambda x, i, u: lax.scatter_add(x, i[:, None], u, numbers, mode="promise_in_bounds")  # noqa: E731
    put = lambda x, i, u: lax.scatter(x, i[:, None], u, numbers, mode="promise_in_bounds")  # noqa: E731
    assert of_worker(add, table, at, updates) == oracle.multi_update_add(name, count, row).worker
    assert of_worker(put, table, at, updates) == oracle.multi_slice(name, count, row, update=True).worker


@pytest.mark.parametrize("dtype", [F32, F16])
@pytest.mark.parametrize("n", [16, 100, 1000])
def test_fills_slices_and_iota(n, dtype):
    name = NAMES[dtype]
    x = ones(4, 2 * n, dtype=dtype)
    part = lambda x, i: lax.dynamic_slice(x, (0, i), (3, n))  # noqa: E731
    put = lambda x, u, i: lax.dynamic_update_slice(x, u, (0, i))  # noqa: E731
    index = ones(dtype=np.int32)
    assert of_worker(part, x, index) == oracle.dynamic_slice(name, 3, n).worker
    assert of_worker(put, x, ones(3, n, dtype=dtype), index) == oracle.dynamic_slice(name, 3, n).worker
    assert of_tile(part, x, index) <= oracle.dynamic_slice(name, 3, n).tile
    assert of_worker(lambda: lax.iota(np.int32, n)) == oracle.iota("int32", n).worker


def test_joining_costs_by_piece():
    x = ones(64)
    joined, stacked = (
        of_worker(f, x, x) for f in (lambda x, y: jnp.concatenate([x, y]), lambda x, y: jnp.stack([x, y]))
    )
    assert joined == stacked == 2 * (23 + 32)
    # Along the last axis each element is a piece: 8 cycles each, and never less than 80.
    assert of_worker(lambda x, y: jnp.stack([x, y], -1), x, x) == 2 * (16 + 8 * 64)
    assert of_worker(lambda x, y: jnp.stack([x, y], -1), ones(4), ones(4)) == 2 * 80
    assert of_worker(lambda x: x[::-1], x) == 16 + 8 * 64
    assert of_worker(lambda x: lax.pad(x, np.float32(0), [(2, 2, 0)]), x) == oracle.fill("f32", 4).worker + 23 + 32


@pytest.mark.parametrize("dtype", [F32, F16])
@pytest.mark.parametrize("sizes", [(4, 4), (16, 64), (32, 8)])
def test_transposes(sizes, dtype):
    rows, columns = sizes
    turn = lambda x: x.swapaxes(-1, -2)  # noqa: E731
    alone = oracle.transpose_2d(NAMES[dtype], rows, columns).worker
    assert of_worker(turn, ones(rows, columns, dtype=dtype)) == alone
    found = cost(turn, ones(12, rows, columns, dtype=dtype), workers=6)
    assert found.worker == oracle.transpose_2d(NAMES[dtype], rows, columns, 2).worker


def test_what_stays_together_moves_faster():
    blocks = [of_worker(lambda x: x.transpose(2, 1, 0, 3), ones(4, 3, 5, last)) for last in (1, 2, 8)]
    assert blocks[0] == 17 + 60
    assert blocks[1:] == [17 + 60, 17 + 4 * 60]
    assert cost(lambda x: x[None].transpose(1, 0, 2), ones(4, 4)).guessed == 0


def test_what_leaves_as_a_view_is_copied_by_its_runs():
    x, compiled = ones(16, 64), Mode(MK2, compiled=True)
    taken = {
        lambda x: x: 23 + 512,
        lambda x: x[2:6]: 23 + 128,
        lambda x: x[:, :32]: 16 + 16 * (7 + 16),
        lambda x: x[:, 3]: 16 + 16 * 8,
        lambda x: x[:, ::2]: 16 + 512 * 8,
        lambda x: x[::2].reshape(-1): 16 + 8 * (7 + 32),
        lambda x: jnp.broadcast_to(x[0], (4, 64)): 16 + 4 * (7 + 32),
        lambda x: jnp.full(100, 2.0): oracle.fill("f32", 100).worker,
    }
    for function, cycles in taken.items():
        assert jaxpr_cost(jax.make_jaxpr(function)(x), Mode(MK2)).worker == cycles
    assert jaxpr_cost(jax.make_jaxpr(lambda x: x[:, ::2])(x), compiled).worker == 17 + 512 * (1 + 1 + 3)
    assert jaxpr_cost(jax.make_jaxpr(lambda x: x[:2, 3])(x), Mode(MK2)).worker == 80


# --- libraries --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [8, 16, 64])
@pytest.mark.parametrize("dtype", [F32, F16])
def test_linear_algebra(n, dtype):
    name, a = NAMES[dtype], ones(n, n, dtype=dtype)
    cholesky = lambda x: lax.linalg.cholesky(x, symmetrize_input=False)  # noqa: E731
    try:
        jax.eval_shape(cholesky, a)
    except TypeError:
        pytest.skip("this release of JAX has no linear algebra in float16")
    cut_out = of_worker(lambda x: jnp.tril(x), a)
    assert 6 * (of_worker(cholesky, a) - cut_out) == pytest.approx(products.cholesky(name, n), rel=0.05)
    for is_lower in (True, False):

        def solve(a, b, is_lower=is_lower):
            return lax.linalg.triangular_solve(a, b, left_side=True, lower=is_lower)

        alone = products.triangular_solve(name, n, lower=is_lower)  # of the tile: a worker has a sixth
        assert of_worker(solve, a, ones(n, 3, dtype=dtype)) == 3 * -(-alone // 6)
        together = of_tile(solve, a, ones(n, 1, dtype=dtype))
        assert together <= products.triangular_solve_shared(name, n, lower=is_lower)


def test_sorting():
    assert of_worker(lambda x: lax.sort(x), ones(4)) <= oracle.heap_sort(4).worker
    keys = [of_worker(lambda x: lax.sort(x), ones(n)) for n in (16, 64, 256)]
    assert all(later > 4 * sooner for sooner, later in itertools.pairwise(keys))
    assert of_worker(lambda x: lax.sort((x, x), num_keys=1), ones(64)) > keys[1] / 2
    assert of_worker(lambda x: lax.top_k(x, 4), ones(1000)) < of_worker(lambda x: lax.sort(x), ones(1000))


def test_the_largest_by_a_heap():
    for n, k in ((100, 1), (1000, 10), (64, 64)):
        grown = sum(13 + 20 * np.log(i) for i in range(1, k))
        ordered = sum(10 + 20 * np.log(i) for i in range(1, k + 1))
        expected = 12 + 23 + grown + (n - k) * (13 + 20 * np.log(k)) + ordered + 8 * k
        assert of_worker(lambda x, k=k: lax.top_k(x, k), ones(n)) == pytest.approx(expected, abs=1)


def test_qr_by_its_vertices():
    n = 32
    worker = sum(
        products.householder_squares(m).worker + products.householder(m).worker for m in range(n, 1, -1)
    ) + sum((2 * n - k) * (76 + 7 * max(0, n - k - 16)) for k in range(n - 1))
    found = of_worker(lambda x: lax.linalg.qr(x), ones(n, n))
    assert found == pytest.approx(worker, rel=0.05)


# --- what holds of every size ---------------------------------------------------------------------------


FORMS = {
    "dot": lambda n, d: (jnp.dot, ones(n, dtype=d), ones(n, dtype=d)),
    "product": lambda n, d: (jnp.dot, ones(18 + n, 32, dtype=d), ones(32, n, dtype=d)),
    "sum": lambda n, d: (lambda x: lax.reduce_sum(x, (1,)), ones(12, n, dtype=d)),
    "maximum of columns": lambda n, d: (lambda x: lax.reduce_max(x, (0,)), ones(n, 12, dtype=d)),
    "gather": lambda n, d: (lambda x, i: jnp.take(x, i, axis=0), ones(9, n, dtype=d), ones(7, dtype=np.int32)),
    "slice": lambda n, d: (lambda x, i: lax.dynamic_slice(x, (i,), (n,)), ones(2 * n, dtype=d), ones(dtype=np.int32)),
    "join": lambda n, d: (lambda x: jnp.concatenate([x, x], 1), ones(3, n, dtype=d)),
    "sort": lambda n, d: (lax.sort, ones(n, dtype=d)),
    "argmax": lambda n, d: (lambda x: lax.argmax(x, 1, np.int32), ones(3, n, dtype=d)),
    "fft": lambda n, d: (jnp.fft.fft, ones(4, n, dtype=d)),
    "running sum": lambda n, d: (lambda x: lax.cumsum(x, 1), ones(3, n, dtype=d)),
    "transpose": lambda n, d: (lambda x: x.T, ones(4 * n, 16, dtype=d)),
    "turn": lambda n, d: (lambda x: x[:, ::-1], ones(3, n, dtype=d)),
    "pooling": lambda n, d: pooled("max", 1, 2 * n, 16, 8, dtype=d),
}


@few("form", FORMS, quick=["sort"])
@examples(8)
@given(st.integers(2, 60), st.sampled_from([F16, F32]))
def test_more_elements_never_take_less(form, n, dtype):
    """To a few cycles: PopLibs' remainders cost more than a whole vector."""
    for mode in ({}, {"compiled": True}, {"workers": 6}):
        less, more = (cost(*FORMS[form](size, dtype), **mode) for size in (n, n + 8))
        assert less.supervisor + 6 * less.worker <= more.supervisor + 6 * more.worker + 24
        assert less.worker > 0
        assert 0 <= less.fitted + less.guessed <= less.counted


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("compiled", [False, True])
def test_six_workers_take_between_a_sixth_and_all_of_the_time(form, compiled):
    for n in (16, 96):
        alone, together = (cost(*FORMS[form](n, F32), compiled=compiled, workers=w) for w in (1, 6))
        tile = together.supervisor + 6 * together.worker
        assert alone.worker <= tile <= 6 * alone.worker + 600
