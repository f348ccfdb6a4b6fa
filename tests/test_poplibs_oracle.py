"""The oracle itself: PopLibs' formulae as written out again, at values computed apart from it."""

import pytest

from tests import poplibs_oracle as oracle
from tests import poplibs_products as products

SIZES = (100, 1000, 6000)

GOLDEN = {
    "add f32": (lambda n: oracle.binary("add", "f32", n), 347, 1697, 9185),
    "add f16": (lambda n: oracle.binary("add", "f16", n), 257, 923, 4667),
    "add f32 in place": (lambda n: oracle.binary("add", "f32", n, in_place=True), 521, 1871, 9359),
    "add f16 in place": (lambda n: oracle.binary("add", "f16", n, in_place=True), 449, 1115, 4859),
    "divide f32": (lambda n: oracle.binary("div", "f32", n), 725, 5225, 30185),
    "divide f16": (lambda n: oracle.binary("div", "f16", n), 797, 5459, 31667),
    "maximum f32": (lambda n: oracle.binary("max", "f32", n), 347, 1697, 9185),
    "maximum f16": (lambda n: oracle.binary("max", "f16", n), 287, 1175, 6167),
    "maximum f32 in place": (lambda n: oracle.binary("max", "f32", n, in_place=True), 575, 2375, 12359),
    "add int32": (lambda n: oracle.binary("add", "int32", n), 881, 7181, 42167),
    "power int32": (lambda n: oracle.binary("pow", "int32", n), 3431, 32231, 192167),
    "greater f32": (lambda n: oracle.binary("gt", "f32", n), 605, 3713, 21185),
    "greater f16": (lambda n: oracle.binary("gt", "f16", n), 437, 2435, 13667),
    "scalar add f32": (lambda n: oracle.scalar_broadcast("add", "f32", n), 239, 1139, 6131),
    "scalar add f16": (lambda n: oracle.scalar_broadcast("add", "f16", n), 191, 635, 3131),
    "scalar divide f32": (lambda n: oracle.scalar_broadcast("div", "f32", n), 455, 3155, 18131),
    "scalar divide f16": (lambda n: oracle.scalar_broadcast("div", "f16", n), 563, 4163, 24131),
    "exp f32": (lambda n: oracle.unary("exp", "f32", n), 542, 3242, 18218),
    "exp f16": (lambda n: oracle.unary("exp", "f16", n), 338, 1226, 6218),
    "tanh f32": (lambda n: oracle.unary("tanh", "f32", n), 770, 6170, 36122),
    "tanh f16": (lambda n: oracle.unary("tanh", "f16", n), 242, 1130, 6122),
    "sqrt f32": (lambda n: oracle.unary("sqrt", "f32", n), 662, 5162, 30122),
    "sqrt f16": (lambda n: oracle.unary("sqrt", "f16", n), 812, 5918, 34622),
    "relu f32": (lambda n: oracle.unary("relu", "f32", n), 284, 1634, 9122),
    "relu f16": (lambda n: oracle.unary("relu", "f16", n), 212, 878, 4622),
    "log1p f32": (lambda n: oracle.unary("log1p", "f32", n), 1310, 11210, 66188),
    "log1p f16": (lambda n: oracle.unary("log1p", "f16", n), 782, 5732, 33218),
    "erf f32": (lambda n: oracle.unary("erf", "f32", n), 4304, 41204, 246122),
    "erf f16": (lambda n: oracle.unary("erf", "f16", n), 1448, 13148, 78122),
    "abs f32": (lambda n: oracle.unary("abs", "f32", n), 632, 5132, 30122),
    "abs f16": (lambda n: oracle.unary("abs", "f16", n), 632, 5132, 30122),
    "sin f16": (lambda n: oracle.unary("sin", "f16", n), 2672, 25172, 150122),
    "sin f32": (lambda n: oracle.unary("sin", "f32", n), 235130, 2308730, 13824122),
    "sqrt int32": (lambda n: oracle.unary("sqrt", "int32", n), 11750, 114350, 684122),
    "square int32": (lambda n: oracle.unary("square", "int32", n), 392, 2642, 15134),
    "cast f32 f16": (lambda n: oracle.cast("f32", "f16", n), 306, 762, 3246),
    "cast f16 f32": (lambda n: oracle.cast("f16", "f32", n), 300, 750, 3240),
    "cast int32 f32": (lambda n: oracle.cast("int32", "f32", n), 438, 2238, 12234),
    "scaled add f32": (lambda n: oracle.scaled_add("f32", n, as_written=True), 339, 1689, 9195),
    "scaled add f16": (lambda n: oracle.scaled_add("f16", n, as_written=True), 267, 933, 4695),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_vertices_of_all_workers(name):
    estimate, *golden = GOLDEN[name]
    assert [estimate(n).tile for n in SIZES] == golden


def test_fills_and_rows_by_index():
    assert [oracle.fill("f32", n).worker for n in SIZES] == [73, 523, 3023]
    assert [oracle.fill("f16", n).worker for n in SIZES] == [51, 276, 1526]
    sizes = ((1, 16), (16, 64), (100, 256))
    for dtype in ("f32", "f16"):
        assert [oracle.multi_slice(dtype, *size).tile for size in sizes] == [390, 8148, 165180]
    assert [oracle.multi_update_add("f32", *size).tile for size in sizes] == [384, 10176, 235392]
    assert [oracle.multi_update_add("f16", *size).tile for size in sizes] == [324, 5670, 120798]


def test_reductions():
    sizes = ((1, 100), (16, 64), (64, 16))
    golden = {
        (oracle.reduce_continuous, "f32", None, True): (79, 721, 1297),
        (oracle.reduce_continuous, "f16", None, True): (54, 465, 1041),
        (oracle.reduce_strided, "f32", "f32", True): (125, 607, 847),
        (oracle.reduce_strided, "f16", "f16", True): (128, 323, 479),
        (oracle.reduce_strided, "f16", "f32", True): (127, 319, 463),
        (oracle.reduce_strided, "f32", "f32", False): (124, 599, 815),
    }
    for (estimate, dtype, out, is_sum), expected in golden.items():
        kinds = {} if out is None else {"out": out, "is_sum": is_sum}
        assert tuple(estimate(dtype, *size, **kinds).worker for size in sizes) == expected
    assert [oracle.reduce_to_one("f32", n).worker for n in SIZES] == [67, 517, 3017]
    assert [oracle.reduce_to_one("f16", n, out="f32").worker for n in SIZES] == [46, 267, 1517]
    assert [oracle.reduce_to_one("f16", n).worker for n in SIZES] == [51, 272, 1522]
    # one vector of results, one turn: 33, the region's 24 and 4, its store, its partial, and the vector added to it
    assert oracle.reduce_default("f32", 4, [4]).worker == 33 + 24 + 4 + (5 + 5 + 1) + 10 + 9
    assert oracle.reduce_default("f16", 8, [8] * 3).worker == 33 + 24 + 6 + (5 + 9 + 1) + 30 + 3 * 9


def test_pooling_and_matrix_unit():
    for size, maximum, total in (
        ((1, 2, 4, 7), 563, 579),
        ((4, 3, 2, 15), 4704, 4776),
        ((8, 3, 8, 3), 11136, 11712),
    ):
        rows, side, vectors, repeats = size
        assert products.pooling_inner(rows, side**2, vectors, repeats) == maximum
        assert products.pooling_inner(rows, side**2, vectors, repeats, is_sum=True) == total
    rows = (16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 512, 1024, 2032, 2048)
    golden = [353, 425, 473, 545, 617, 665, 737, 809, 857, 929, 1001, 1049, 1121, 1193, 1241, 1313]
    golden += [2345, 4385, 8417, 8489]
    assert [products.matrix_unit_1x1("f16", n, 16, 16) for n in rows] == golden


def test_linear_algebra():
    assert [products.cholesky("f32", n) for n in (8, 16, 32, 64)] == [7950, 31926, 140550, 686502]
    inverses = [products.triangular_inverse("f32", n) for n in (8, 16, 32, 64)]
    assert inverses == [20472, 93288, 469320, 2659080]
    assert [products.triangular_solve("f32", n) for n in (16, 32, 64)] == [3138, 7170, 17538]
    assert [products.triangular_solve("f32", n, lower=False) for n in (16, 32, 64)] == [4398, 12198, 38166]


def test_exchange_and_syncs():
    assert (oracle.exchange(400), oracle.exchange(400, pairs_share=True)) == (100, 50)
    assert oracle.small_exchange(400) == 290
    assert [oracle.sync_of_chips(chips, 1.33e9) for chips in (1, 2, 4, 8, 16)] == [40, 40, 80, 120, 200]


def test_one_worker_takes_as_long_as_its_share_of_all():
    for name, (estimate, *_) in GOLDEN.items():
        found = estimate(6 * 64)
        assert found.worker > found.tile / 6 - 40, name
        assert estimate(1).tile > estimate(1).worker, name
