"""The answers of the checks' arithmetic and stamps against sets and dictionaries, and how long they take."""

import math
import time
from collections import defaultdict
from collections.abc import Callable
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering.check import races, subset_sums
from lowering.check.races import (
    Digits,
    Image,
    aliased_address,
    enumerate_addresses,
    shared_across_vertices,
    shared_by_families,
    shared_by_vertices,
)
from lowering.check.stamps import aliased_table_address, by_rows, shared_by_table_vertices, shared_by_tables
from tests.examples import examples

thorough = examples(100)


# The meaning, one address at a time


def touches(table: np.ndarray) -> dict[int, set[int]]:
    """The vertices (rows) that touch each address of a table."""
    found: defaultdict[int, set[int]] = defaultdict(set)
    for vertex, row in enumerate(table.tolist()):
        for address in row:
            found[address].add(vertex)
    return found


def brute_aliased(table: np.ndarray) -> set[int]:
    return {address for row in table.tolist() for address in row if row.count(address) > 1}


def brute_by_vertices(table: np.ndarray) -> set[int]:
    return {address for address, vertices in touches(table).items() if len(vertices) > 1}


def brute_by_families(first: np.ndarray, second: np.ndarray) -> set[int]:
    return set(first.flat) & set(second.flat)


def brute_across_vertices(first: np.ndarray, second: np.ndarray) -> set[int]:
    a, b = touches(first), touches(second)
    return {address for address in a.keys() & b.keys() if any(g != h for g in a[address] for h in b[address])}


def assert_witness(address: int | None, expected: set[int]):
    """`address` is one of those `expected`, or None because there are none."""
    assert address in expected if expected else address is None, (address, sorted(expected))


# Images and tables

EFFORTS = {
    "as shipped": subset_sums.EFFORTS,
    "all sums tabulated": ((0, 0), (math.inf, 2**30)),
    "few sums tabulated": ((0, 0), (1, 10), (math.inf, 40)),
    "search only": ((math.inf, 0),),
}

strides = st.integers(-12, 12) | st.sampled_from([-64, -36, 16, 24, 36, 48, 64, 144])
offsets = st.integers(-20, 20)


@st.composite
def extents(draw: st.DrawFn, max_axes: int) -> list[int]:
    """Extents of at most `max_axes` axes, 1000 indices or fewer in all."""
    found = draw(st.lists(st.integers(1, 5), max_size=max_axes))
    while math.prod(found) > 1000:
        found.pop()
    return found


@st.composite
def axes(draw: st.DrawFn, max_axes: int) -> Digits:
    return tuple((draw(strides), extent) for extent in draw(extents(max_axes)))


@st.composite
def images(draw: st.DrawFn) -> Image:
    found = draw(axes(max_axes=6))
    cut = draw(st.integers(0, len(found)))
    return Image(draw(offsets), found[:cut], found[cut:])


@st.composite
def fields_of_a_family(draw: st.DrawFn) -> tuple[Image, Image]:
    """Two fields over one grid; the strides of an axis are often the same, the offsets often close."""
    grid = draw(extents(max_axes=6))
    a = Image(draw(offsets), tuple((draw(strides), extent) for extent in grid), draw(axes(max_axes=1)))
    vertex = tuple((draw(st.just(stride) | strides), extent) for stride, extent in a.vertex)
    return a, Image(a.offset + draw(st.integers(-3, 3) | offsets), vertex, draw(axes(max_axes=1)))


NUM_ELEMENTS = 40


@st.composite
def tables(draw: st.DrawFn, num_vertices: int | None = None) -> np.ndarray:
    """Addresses of shape (vertices, elements per vertex), which may be 0; all different, or crowded."""
    rows = draw(st.integers(0, 6)) if num_vertices is None else num_vertices
    columns = draw(st.integers(0, 5))
    size, unique = rows * columns, draw(st.booleans())
    last = NUM_ELEMENTS - 1 if unique else draw(st.integers(0, NUM_ELEMENTS - 1))
    values = draw(st.lists(st.integers(0, last), min_size=size, max_size=size, unique=unique))
    return np.array(values, np.int64).reshape(rows, columns)


@st.composite
def tables_of_a_family(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Two tables over one grid; the second is often the first, or the first with its columns turned round."""
    first = draw(tables())
    return first, draw(st.just(first) | st.just(first[:, ::-1]) | tables(len(first)))


# Against brute force


@pytest.mark.parametrize("efforts", EFFORTS.values(), ids=EFFORTS.keys())
@thorough
@given(image=images())
def test_one_image(efforts, image: Image):
    table = enumerate_addresses(image)
    assert (table.min(), table.max()) == image.ends
    with mock.patch.object(subset_sums, "EFFORTS", efforts):
        assert_witness(shared_by_vertices(image), brute_by_vertices(table))
        assert_witness(aliased_address(image), brute_aliased(table))


@pytest.mark.parametrize("efforts", EFFORTS.values(), ids=EFFORTS.keys())
@thorough
@given(a=images(), b=images())
def test_two_families(efforts, a: Image, b: Image):
    expected = brute_by_families(enumerate_addresses(a), enumerate_addresses(b))
    with mock.patch.object(subset_sums, "EFFORTS", efforts):
        assert_witness(shared_by_families(a, b), expected)


@pytest.mark.parametrize("efforts", EFFORTS.values(), ids=EFFORTS.keys())
@thorough
@given(fields=fields_of_a_family())
def test_two_fields_of_a_family(efforts, fields: tuple[Image, Image]):
    expected = brute_across_vertices(*map(enumerate_addresses, fields))
    with mock.patch.object(subset_sums, "EFFORTS", efforts):
        assert_witness(shared_across_vertices(*fields), expected)


@thorough
@given(table=tables())
def test_one_table(table: np.ndarray):
    assert_witness(shared_by_table_vertices(by_rows(table), NUM_ELEMENTS), brute_by_vertices(table))
    assert_witness(aliased_table_address(by_rows(table), NUM_ELEMENTS), brute_aliased(table))


@pytest.mark.slow
@thorough
@given(family=tables_of_a_family(), other=tables())
def test_two_tables(family: tuple[np.ndarray, np.ndarray], other: np.ndarray):
    first, second = family
    across = shared_by_tables(by_rows(first), by_rows(second), NUM_ELEMENTS, same_family=True)
    assert_witness(across, brute_across_vertices(first, second))
    between = shared_by_tables(by_rows(first), by_rows(other), NUM_ELEMENTS, same_family=False)
    assert_witness(between, brute_by_families(first, other))


def test_a_table_address_of_two_vertices_is_shared_with_either():
    first = np.array([[0], [0]])
    for second in (
        [[0], [1]],
        [[1], [0]],
    ):  # the reader is one of the two, so that it is the other that counts
        assert shared_by_tables(by_rows(first), by_rows(np.array(second)), 2, same_family=True) == 0


@thorough
@given(extent=st.integers(1, 70))
def test_decreasing_pairs_are_each_pair_once(extent: int):
    found: list[tuple[int, int]] = []
    for g0, h0, unknowns in races.decreasing_pairs(extent):
        pairs = [(g0, h0)]
        for step_g, step_h, count in unknowns:
            pairs = [(g + step_g * v, h + step_h * v) for g, h in pairs for v in range(count)]
        found += pairs
    assert sorted(found) == [(g, h) for g in range(extent) for h in range(g)]


def test_an_address_outside_the_variable_is_our_own_bug():
    for address in (-1, 4):
        with pytest.raises(AssertionError):
            shared_by_table_vertices(by_rows(np.array([[0], [address]])), num_elements=4)
    with pytest.raises(AssertionError):
        shared_across_vertices(Image(0, ((1, 4),), ()), Image(0, ((1, 5),), ()))


# What people write

N = 2048
ORDINARY: dict[str, tuple[Callable[..., int | None], tuple[Image, ...], bool]] = {
    # name: (question, images, whether an address is shared)
    "matvec partials": (shared_by_vertices, (Image(0, ((576, 4096), (1, 576)), ()),), False),
    "matvec partials read by rows": (
        shared_by_vertices,
        (Image(0, ((576, 4096),), ((1, 576),)),),
        False,
    ),
    "convolution outputs": (
        shared_by_vertices,
        (Image(0, ((64 * 3025, 8), (3025, 64), (55, 55), (1, 55)), ()),),
        False,
    ),
    "8 x 8 blocks": (shared_by_vertices, (Image(0, ((8192, 128), (8, 128)), ((1024, 8), (1, 8))),), False),
    "8 x 9 blocks": (shared_by_vertices, (Image(0, ((8192, 127), (8, 127)), ((1024, 8), (1, 9))),), True),
    "an axis that no index uses": (shared_by_vertices, (Image(0, ((1, 3), (0, 2)), ()),), True),
    "overlapping windows": (shared_by_vertices, (Image(0, ((3, 10**6),), ((1, 7),)),), True),
    "a field that overlaps itself": (aliased_address, (Image(0, ((9, 100),), ((1, 3), (1, 3))),), True),
    "a broadcast field": (aliased_address, (Image(0, ((9, 100),), ((0, 3),)),), True),
    "a reversed field": (aliased_address, (Image(8, ((9, 100),), ((-1, 9),)),), False),
    "stencil interior and top row": (
        shared_by_families,
        (Image(N + 1, ((N, N - 2), (1, N - 2)), ()), Image(0, ((1, N),), ())),
        False,
    ),
    "stencil interior and left column": (
        shared_by_families,
        (Image(N + 1, ((N, N - 2), (1, N - 2)), ()), Image(0, ((N, N),), ())),
        False,
    ),
    "stencil interior and second column": (
        shared_by_families,
        (Image(N + 1, ((N, N - 2), (1, N - 2)), ()), Image(1, ((N, N),), ())),
        True,
    ),
    "stencil read of what it writes": (
        shared_across_vertices,
        (Image(N + 1, ((N, N - 2), (1, N - 2)), ()), Image(0, ((N, N - 2), (1, N - 2)), ((N, 3), (1, 3)))),
        True,
    ),
    "even and odd": (
        shared_by_families,
        (Image(0, ((2, 5 * 10**6),), ()), Image(1, ((2, 5 * 10**6),), ())),
        False,
    ),
    "checkerboard: rows above": (
        shared_across_vertices,
        (Image(N + 1, ((2 * N, 1000), (2, 1000)), ()), Image(1, ((2 * N, 1000), (2, 1000)), ((2 * N, 2),))),
        False,
    ),
    "checkerboard: left and right": (
        shared_across_vertices,
        (Image(N + 2, ((2 * N, 1000), (2, 1000)), ()), Image(N + 1, ((2 * N, 1000), (2, 1000)), ((2, 2),))),
        False,
    ),
    "checkerboard: two to the right": (
        shared_across_vertices,
        (Image(N + 2, ((2 * N, 1000), (2, 1000)), ()), Image(N + 4, ((2 * N, 1000), (2, 1000)), ())),
        True,
    ),
    "in place": (
        shared_across_vertices,
        (Image(0, ((N, N), (1, N)), ()), Image(0, ((N, N), (1, N)), ())),
        False,
    ),
    "in place, halves swapped": (
        shared_across_vertices,
        (Image(0, ((2, 10**6),), ((1, 2),)), Image(1, ((2, 10**6),), ((-1, 2),))),
        False,
    ),
    "read x[i+1], write x[i]": (
        shared_across_vertices,
        (Image(0, ((1, 10**6),), ()), Image(1, ((1, 10**6),), ())),
        True,
    ),
    "read x[2i], write x[i]": (
        shared_across_vertices,
        (Image(0, ((1, 10**6),), ()), Image(0, ((2, 10**6),), ())),
        True,
    ),
    "read x[2i+1], write x[-2i]": (
        shared_across_vertices,
        (Image(2 * 10**6, ((-2, 10**6),), ()), Image(1, ((2, 10**6),), ())),
        False,
    ),
    "read x[0], write x[i+1]": (
        shared_across_vertices,
        (Image(1, ((1, 10**6),), ()), Image(0, ((0, 10**6),), ())),
        False,
    ),
    "read x[i], another family writes x[2i]": (
        shared_by_families,
        (Image(0, ((1, 10**6),), ()), Image(0, ((2, 5 * 10**5),), ())),
        True,
    ),
    "transposed in place": (
        shared_across_vertices,
        (Image(0, ((N, N), (1, N)), ()), Image(0, ((1, N), (N, N)), ())),
        True,
    ),
    "butterfly": (
        shared_across_vertices,
        (Image(0, ((N, N), (1, N // 2)), ((N // 2, 2),)), Image(N // 2, ((N, N), (1, N // 2)), ())),
        False,
    ),
    "elimination: the pivot's column": (
        shared_across_vertices,
        (Image(N + 1, ((N, N - 1), (1, N - 1)), ()), Image(N, ((N, N - 1), (0, N - 1)), ())),
        False,
    ),
    "elimination: the pivot's row": (
        shared_across_vertices,
        (Image(N + 1, ((N, N - 1), (1, N - 1)), ()), Image(1, ((0, N - 1), (1, N - 1)), ())),
        False,
    ),
    "elimination: one column late": (
        shared_across_vertices,
        (Image(N + 1, ((N, N - 1), (1, N - 1)), ()), Image(N + 1, ((N, N - 1), (0, N - 1)), ())),
        True,
    ),
}

NASTY: dict[str, tuple[Callable[..., int | None], tuple[Image, ...], bool]] = {
    "7 and 11, just injective": (shared_by_vertices, (Image(0, ((7, 11), (11, 10**6)), ()),), False),
    "7 and 11, just not": (shared_by_vertices, (Image(0, ((7, 12), (11, 10**6)), ()),), True),
    "coprime": (shared_by_vertices, (Image(0, ((1000003, 3000), (999983, 3000)), ()),), False),
    "four close primes": (
        shared_by_vertices,
        (Image(0, tuple((prime, 50) for prime in (10007, 10009, 10037, 10039)), ()),),
        True,
    ),
    "six close strides": (
        shared_by_vertices,
        (Image(0, tuple((1000 + k, 14) for k in (0, 1, 3, 7, 13, 19)), ()),),
        True,
    ),
    "thirds and fifths": (
        shared_by_families,
        (Image(0, ((3, 10**6),), ()), Image(1, ((5, 10**6),), ())),
        True,
    ),
    "two pairs": (
        shared_by_families,
        (Image(0, ((1000003, 3000), (7919, 3000)), ()), Image(12345, ((999983, 3000), (7907, 3000)), ())),
        True,
    ),
    "two pairs, short": (
        shared_by_families,
        (Image(0, ((1000003, 30), (7919, 30)), ()), Image(12345, ((999983, 30), (7907, 30)), ())),
        False,
    ),
    "a vertex that only meets itself, at 0": (
        shared_across_vertices,
        (Image(0, ((1000003, 10**5),), ()), Image(0, ((999983, 10**5),), ())),
        False,
    ),
    "vertices that only meet themselves, in 10**6 ways": (
        shared_across_vertices,
        (Image(0, ((N, 1000), (1, 1000)), ((3 * N**2, 2),)), Image(0, ((N, 1000), (1, 1000)), ())),
        False,
    ),
}


@pytest.mark.parametrize("name", [*ORDINARY, *NASTY])
def test_named_cases_are_right_and_quick(name: str):
    question, given_images, is_shared = (ORDINARY | NASTY)[name]
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        address = question(*given_images)
        seconds.append(time.perf_counter() - start)
    assert (address is not None) == is_shared
    assert all(image.ends[0] <= address <= image.ends[1] for image in given_images if address is not None)
    assert min(seconds) < 0.050


def test_a_search_out_of_nodes_tabulates_sums():
    image = Image(0, tuple((2**20 + k, 5) for k in (0, 1, 9, 70, 400, 3000, 20000, 150000)), ())
    with (
        mock.patch.object(subset_sums, "EFFORTS", subset_sums.EFFORTS[:1]),
        pytest.raises(AssertionError, match="effort"),
    ):
        shared_by_vertices(image)
    addresses = enumerate_addresses(image)
    assert len(np.unique(addresses)) == addresses.size
    assert shared_by_vertices(image) is None


@pytest.mark.parametrize("seed", range(20))
def test_images_agree_with_tables(seed: int):
    """Thousands of vertices whose strides have no pattern, with efforts so small that all are made."""
    random = np.random.default_rng(seed)
    grid = random.integers(2, 12, 4).tolist()
    a = Image(30_000, tuple((int(random.integers(-900, 900)), extent) for extent in grid), ((1, 3),))
    b = Image(30_001, tuple((int(random.integers(-900, 900)), extent) for extent in grid), ())
    num_elements = 70_001 + max(a.ends[1], b.ends[1])
    first, second = by_rows(enumerate_addresses(a) + 70_000), by_rows(enumerate_addresses(b) + 70_000)
    with mock.patch.object(subset_sums, "EFFORTS", ((10, 0), (20, 2**10), (math.inf, 2**14))):
        answers = shared_by_vertices(b), shared_by_families(a, b), shared_across_vertices(a, b)
    expected = (
        shared_by_table_vertices(second, num_elements),
        shared_by_tables(first, second, num_elements, same_family=False),
        shared_by_tables(first, second, num_elements, same_family=True),
    )
    assert [x is None for x in answers] == [x is None for x in expected]


@pytest.mark.slow
def test_ten_million_addresses():
    num_elements = 10**7
    table = np.random.default_rng(0).permutation(num_elements).reshape(-1, 10)
    start = time.perf_counter()
    assert shared_by_table_vertices(by_rows(table), num_elements) is None
    assert shared_by_tables(by_rows(table), by_rows(table), num_elements, same_family=True) is None
    assert aliased_table_address(by_rows(table), num_elements) is None
    table[-1, -1] = table[0, 0]
    assert shared_by_table_vertices(by_rows(table), num_elements) == table[0, 0]
    assert time.perf_counter() - start < 8
