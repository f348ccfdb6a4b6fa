"""`cl.trace` of every public function of `jax.lax`: nothing is refused, and nothing is computed otherwise."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import codelet as cl
from benchmarks.traced_steps import by_vertices
from codelet.frontends.rule_table import PAGE, page_with_table
from tests.examples import few
from tests.ops_cases import assert_alike
from tests.test_every_primitive import CASES, IMAGE, B, I, M, S, U, V, of

POSITIVE = ("linalg.cholesky", "linalg.cholesky_update")
"""Functions of positive definite matrices."""

DRAWN = ("rng_uniform",)
"""What draws other numbers at each call."""

LONG = ("linalg.qdwh",)
"""What takes seconds to build: only in the slow suite."""

UNMAPPED = ("ragged products of a batch", "ragged products of rows of rows")
"""What JAX maps over once more, and then does not compile."""

WINDOWS = (1, 1, 2, 3), (1, 1, 2, 1), ((0, 0), (0, 0), (1, 0), (2, 1)), (1, 1, 1, 2), (1, 1, 2, 1)
"""Windows, strides, padding, dilations of what they move over and of themselves."""

BATCHED = jax.vmap(
    lambda y: (lax.psum(y, "i"), lax.pmean(y, "i"), lax.pmax(y, "i"), y - lax.pmin(y, "i")), axis_name="i"
)

FURTHER: dict[str, tuple[Any, ...]] = {
    "collectives over what vmap maps": (lambda x: (BATCHED(x), lax.psum(x, ())), M),
    "sums of windows": (lambda x: lax.reduce_window(x, np.float32(0), lax.add, *WINDOWS), IMAGE),
    "greatest of windows": (lambda x: lax.reduce_window(x, -np.inf, lax.max, *WINDOWS), IMAGE),
    "least of windows": (lambda x: lax.reduce_window(x, np.inf, lax.min, *WINDOWS), IMAGE),
    "whole numbers of windows": (
        lambda x: lax.reduce_window(x, np.int32(0), lax.add, (2, 2), (2, 1), "SAME"),
        of(5, 6, dtype=I),
    ),
    "jvp of max pooling": (
        lambda x: jax.jvp(lambda y: lax.reduce_window(y, -np.inf, lax.max, (2,), (1,), "SAME"), (x,), (2 * x,)),
        V,
    ),
    "jvp of windows": (
        lambda x: [
            jax.jvp(lambda y: lax.reduce_window(y, start, op, *windows), (x,), (jnp.cos(3 * x),))[1]
            for start, op, windows in ((-np.inf, lax.max, WINDOWS), (np.inf, lax.min, WINDOWS))
        ],
        IMAGE,
    ),
    "jvp of equal elements": (
        lambda x: jax.jvp(lambda y: lax.reduce_window(jnp.round(y), -np.inf, lax.max, (3,), (2,), "SAME"), (x,), (x,)),
        of(16),
    ),
    "windows by functions": (
        lambda x, p, n: (
            lax.reduce_window(p, True, lax.bitwise_and, (2, 3), (1, 1), "SAME"),
            lax.reduce_window(p, False, lax.bitwise_or, (2, 1), (2, 1), "VALID"),
            lax.reduce_window(n, np.int32(1), lax.mul, (2, 2), (1, 2), ((0, 1), (2, -1)), (1, 2), (2, 1)),
            lax.reduce_window(
                (x, x[::-1]), (0.0, 1.0), lambda a, b: (a[0] + b[0], a[1] * b[1]), (2, 2), (1, 1), "SAME"
            ),
            jax.jvp(lambda y: lax.reduce_window(y, 1.0, lax.mul, (2, 2), (1, 1), "SAME"), (x,), (2 * x,)),
            lax.reduce_window(x, np.float32(0), lambda a, b: a + jnp.abs(b), (4, 6), (1, 1), "VALID"),
        ),
        *(of(4, 6), of(4, 6, dtype=B), of(4, 6, dtype=I)),
    ),
    "windows from a value": (lambda x: lax.reduce_window(x, x.min(), lax.max, (2, 2), (2, 2), "SAME"), of(4, 6)),
    "ragged products": (
        lambda x, w, n: (
            lax.ragged_dot(x, w, n, preferred_element_type=jnp.float32),
            jax.grad(lambda own, of: jnp.sin(lax.ragged_dot(own, of, n)).sum(), (0, 1))(x, w),
        ),
        *(of(9, 3), of(4, 3, 2), of(4, dtype=I)),
    ),
    "ragged products of a batch": (
        lambda x, w, n: jax.grad(lambda own, of: jnp.sin(jax.vmap(lax.ragged_dot)(own, of, n)).sum(), (0, 1))(x, w),
        *(of(2, 7, 3), of(2, 4, 3, 2), of(2, 4, dtype=I)),
    ),
    "ragged batches": (
        lambda x, y, n: lax.ragged_dot_general(
            *(x, y, n), lax.RaggedDotDimensionNumbers((([2], [1]), ([0], [0])), [0], [])
        ),
        *(of(5, 2, 3), of(5, 3, 2), of(4, dtype=I)),
    ),
    "ragged products of rows of rows": (
        lambda x, w, n: lax.ragged_dot_general(
            *(x, w, n), lax.RaggedDotDimensionNumbers((([3], [1]), ([1], [2])), [2], [0])
        ),
        *(of(2, 3, 5, 4), of(3, 4, 3, 2), of(3, 2, 3, dtype=I)),
    ),
    "products of dtypes": (
        lambda x, y: lax.dot_general(x, y, (([1], [0]), ([], [])), preferred_element_type=jnp.float32),
        *(of(3, 4, dtype=np.dtype(np.float16)), of(4, 2)),
    ),
    "products of dtypes that nothing promotes": (
        lambda a, b, c, i, j: (
            [
                lax.dot_general(x, y, (([1], [0]), ([], [])), preferred_element_type=jnp.float32)
                for x, y in ((a, b), (a, c), (i, c), (c, i))
            ],
            lax.dot_general(j, i, (([1], [0]), ([], [])), preferred_element_type=jnp.int32),
            lax.ragged_dot(a, b[None], jnp.array([4]), preferred_element_type=jnp.float32),
        ),
        *(of(4, 4, dtype=jnp.dtype(own)) for own in ("float8_e4m3fn", "float8_e5m2", "bfloat16", "int4", "int8")),
    ),
    "products of bytes of two kinds": (
        lambda i, j: lax.dot_general(100 * i, 100 * j, (([1], [0]), ([], []))),
        *(of(3, 4, dtype=np.dtype(np.int8)), of(4, 2, dtype=np.dtype(np.uint8))),
    ),
    "whole numbers of sums of floats": (
        lambda x: lax.dot_general(x, x, (([1], [1]), ([], [])), preferred_element_type=jnp.int32),
        of(2, 70),
    ),
    "products of booleans": (
        lambda p, q: (p @ q, lax.conv(p[None, None], q[None, None], (1, 1), "SAME")),
        *[of(4, 4, dtype=B)] * 2,
    ),
    "bits": (lambda x: lax.bitcast_convert_type(x, jnp.uint8), V),
    "bits of one": (lambda x: lax.bitcast_convert_type(x, jnp.uint8), S),
    "by lines": (
        lambda x, p: (lax.reduce_and(x, (0,)), lax.reduce_xor(x, (1,)), lax.reduce_or(p, (0, 1)), p.argmax(1)),
        *(of(3, 4, dtype=I), of(3, 4, dtype=B)),
    ),
    "reduced from any beginning": (
        lambda x, n, p: (
            [lax.reduce(x, np.float32(1.5), op, (1,)) for op in (lax.add, lax.mul, lax.max, lax.min)],
            [lax.reduce(x, x[0, 0], op, (0, 1)) for op in (lax.add, lax.max, lambda a, b: a + b * b)],
            [lax.reduce(n, np.int32(5), op, (0,)) for op in (lax.bitwise_and, lax.bitwise_or, lax.bitwise_xor)],
            [lax.reduce(p, p[0, 0], op, (1,)) for op in (lax.bitwise_and, lax.bitwise_or)],
            lax.reduce((x, n), (x[1, 1], np.int32(1)), lambda a, b: (a[0] + b[0], a[1] * b[1]), (1,)),
            lax.reduce(x[:0], np.float32(2), lax.add, (0,)),
            lax.reduce(x, np.float32(2), lax.add, ()),
        ),
        *(of(4, 24), of(4, 24, dtype=I), of(4, 24, dtype=B)),
    ),
    "one element reduced from any beginning": (
        lambda x, n, p: (
            [lax.reduce(x, np.float32(1.5), op, (1,)) for op in (lax.add, lax.mul, lax.max, lambda a, b: a + b * b)],
            [lax.reduce(x[:1], x[1, 0], op, (0, 1)) for op in (lax.add, lambda a, b: a + b * b)],
            [lax.reduce(n, np.int32(5), op, (1,)) for op in (lax.add, lax.bitwise_and)],
            lax.reduce(p, p[0, 0], lax.bitwise_or, (1,)),
            lax.reduce((x, n), (x[1, 0], np.int32(1)), lambda a, b: (a[0] + b[0], a[1] * b[1]), (1,)),
            [lax.reduce_window(x, np.float32(1.5), op, (1, 1), (1, 1), "VALID") for op in (lax.add, lax.mul)],
        ),
        *(of(4, 1), of(4, 1, dtype=I), of(4, 1, dtype=B)),
    ),
    "windows from any beginning": (
        lambda x, n, p: (
            [
                lax.reduce_window(own, start, op, *windows)
                for windows in (((2, 2), (1, 2), ((0, 1), (2, -1)), (1, 2), (2, 1)),)
                for own, start, op in (
                    *((x, np.float32(1.5), op) for op in (lax.add, lax.mul, lax.max, lax.min)),
                    *((x, x[0, 0], op) for op in (lax.add, lax.mul, lambda a, b: a + b * b)),
                    *((n, np.int32(5), op) for op in (lax.add, lax.bitwise_and, lax.bitwise_or, lax.bitwise_xor)),
                    *((p, start, op) for start in (True, False) for op in (lax.bitwise_and, lax.bitwise_or)),
                )
            ],
            lax.reduce_window(
                (x, n), (x[1, 1], np.int32(3)), lambda a, b: (a[0] + b[0], a[1] * b[1]), (2, 2), (1, 1), "SAME"
            ),
            lax.reduce_window(x, np.float32(2), lax.mul, (4, 6), (1, 1), "VALID"),
            lax.reduce_window(x, np.float32(2), lax.add, (5, 6), (1, 1), "VALID"),
        ),
        *(of(4, 6), of(4, 6, dtype=I), of(4, 6, dtype=B)),
    ),
    "reduced by a function": (
        lambda x: lax.reduce(x, np.float32(0), lambda a, b: a + 2 * b, (0, 2)),
        of(3, 4, 2),
    ),
    "matrices of a batch": (lambda x: (jnp.linalg.qr(x), jnp.linalg.det(x), jnp.fft.rfft(x)), of(2, 3, 3)),
    "keys": (
        lambda k, n: jax.vmap(
            lambda key, n: (
                jax.random.bits(key, (3,)),
                jax.random.key_data(jax.random.split(jax.random.fold_in(key, n))),
                jax.random.gamma(key, 2.0),
            )
        )(jax.random.wrap_key_data(k), n),
        *(of(3, 2, dtype=U), of(3, dtype=I)),
    ),
    "many keys": (lambda k: jax.random.key_data(jax.random.split(jax.random.wrap_key_data(k), 20)), of(2, dtype=U)),
    "other generators": (
        lambda k: jax.random.normal(jax.random.wrap_key_data(k, impl="rbg"), (3,)),
        of(4, dtype=U),
    ),
    "callback": (lambda x: jax.pure_callback(lambda y: np.sin(y), V, x, vmap_method="sequential"), V),
    "loops over nothing": (
        lambda x: (
            lax.scan(lambda c, row: (c + row, (c * row, row.sum())), jnp.ones(3), x),
            lax.scan(lambda c, row: (c + row, None), jnp.ones(3), x, reverse=True),
            lax.map(jnp.sin, x),
            lax.map(jnp.sum, jnp.zeros((2, 0))),
            lax.fori_loop(0, 0, lambda _, c: 2 * c, x),
            lax.scan(lambda c, key: (c, jax.random.split(key)), x, jax.random.split(jax.random.key(0), 0))[0],
        ),
        of(0, 3),
    ),
    "nothing reduced": (lambda x: (lax.reduce_max(x, ()), lax.psum(x, ())), V),
}


def values(struct: Any, seed: int, name: str) -> Any:
    """An array of a type: numbers between 0.1 and 1.6, places below 3, matrices that are positive definite."""
    random = np.random.RandomState(seed)
    if struct.dtype == bool:
        return jnp.asarray(random.rand(*struct.shape) < 0.5)
    if jnp.issubdtype(struct.dtype, jnp.integer):
        return jnp.asarray(random.randint(0, 3, struct.shape), struct.dtype)
    made = random.rand(*struct.shape) * 1.5 + 0.1
    if name in POSITIVE and len(struct.shape) == 2:
        made = made @ made.T + np.eye(len(made))
    return jnp.asarray(made + 0.5j * made if struct.dtype.kind == "c" else made, struct.dtype)


def arguments(name: str, table: Mapping[str, tuple[Any, ...]]) -> list[Any]:
    given = list(enumerate(table[name][1:]))
    return [jax.tree.map(lambda own, k=k: values(own, k, name), struct) for k, struct in given]


def smooth(leaves: list[Any]) -> list[int]:
    return [k for k, own in enumerate(leaves) if jnp.issubdtype(own.dtype, jnp.floating)]


def mapped(function: Callable[..., Any], *given: Any) -> tuple[Callable[..., Any], list[Any]]:
    """A function over a batch of two."""
    return jax.vmap(function), jax.tree.map(
        lambda own: jnp.stack([own, own[..., ::-1] if own.ndim else own]), list(given)
    )


def _of_smooth(function: Callable[..., Any], given: list[Any]) -> Callable[..., Any]:
    inputs = smooth(given)

    def run(*own: Any) -> list[Any]:
        every = list(given)
        for k, value in zip(inputs, own, strict=True):
            every[k] = value
        leaves = jax.tree.leaves(function(*every))
        return [leaves[k] for k in smooth(leaves)]

    return run


def pulled(function: Callable[..., Any], *given: Any) -> tuple[Callable[..., Any], list[Any]]:
    """The gradient of a function, traced as a function itself."""

    def gradient(*own: Any) -> Any:
        results, pull = jax.vjp(_of_smooth(function, list(own)), *(own[k] for k in smooth(list(own))))
        return pull([jnp.cos(jnp.arange(r.size, dtype=r.dtype)).reshape(r.shape) for r in results])

    return gradient, list(given)


def pushed(function: Callable[..., Any], *given: Any) -> tuple[Callable[..., Any], list[Any]]:
    """What a function does to directions, traced as a function itself."""

    def push(*own: Any) -> Any:
        inputs = smooth(list(own))
        # Known, since XLA may compute them of short floats with more precision in one program than in another.
        directions = [np.cos(np.arange(own[k].size)).reshape(own[k].shape).astype(own[k].dtype) for k in inputs]
        return jax.jvp(_of_smooth(function, list(own)), [own[k] for k in inputs], directions)

    return push, list(given)


def check(cases: list[tuple[str, Callable[..., Any], list[Any]]], grain: int | None = None) -> None:
    """See that functions, traced, are what they were, uncut and by their vertices: all of them in one program."""
    traced = []
    for _, function, given in cases:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.OneVertexWarning)
            traced.append(cl.trace(function, *given, target=cl.IPU(num_tiles=8), grain=grain))

    cut = list(map(by_vertices, traced))

    def both(every: list[Any]) -> Any:
        ours = [[own(*given), run(*given)] for own, run, given in zip(traced, cut, every, strict=True)]
        plain = [2 * [function(*given)] for (_, function, _), given in zip(cases, every, strict=True)]
        return ours, plain

    compiled = jax.jit(both, compiler_options={"xla_backend_optimization_level": 0})
    unlike = {}
    for (name, *_), ours, plain in zip(cases, *compiled([given for *_, given in cases]), strict=True):
        try:
            jax.tree.map(assert_alike, ours, plain)
        except AssertionError as error:
            unlike[name] = str(error)
    assert not unlike


_together = jax.custom_jvp(lambda a, b: a * b)
_together.defjvp(lambda own, to: (own[0] * own[1], 3 * to[0] * own[1] + 5 * own[0] * to[1]))

FURTHER |= {
    "one value twice, then two": (lambda x, y: (x * x, y + y, x * y, x + y, _together(x, x), _together(x, y)), V, V),
    "one value twice, differentiated": (
        lambda x, y: jax.grad(lambda a, b: (_together(a, a) + _together(a, b) + _together(a * b, b)).sum(), (0, 1))(
            x, y
        ),
        *(V, V),
    ),
    "booleans put": (lambda p, q, k: p.at[k].set(q), of(8, dtype=B), of(3, dtype=B), of(3, dtype=I)),
    "unique": (lambda x: (jnp.unique(x, size=3), jnp.histogram(x, 3), jnp.median(x)), V),
}

EVERY = {**CASES, **FURTHER}


QUICK = [
    *("betainc", "clamp", "select_n", "integer_pow", "reduce_precision", "convert_element_type"),
    *("bitcast_convert_type", "argmax", "broadcast_in_dim", "iota", "concatenate", "pad", "reshape", "rev", "split"),
    *("transpose", "dynamic_slice", "dynamic_update_slice", "gather", "scatter", "slice", "dot_general", "ragged_dot"),
    *("conv_general_dilated", "reduce", "reduce_window", "sort", "top_k", "fft", "rng_bit_generator", "cond", "scan"),
    *("while_loop", "switch", "custom_linear_solve", "linalg.cholesky", "linalg.triangular_solve"),
    *("greatest of windows", "windows from a value", "products of booleans", "by lines", "callback"),
    *("reduced by a function", "nothing reduced"),
]
"""A function of every kind that has a rule; others differ from it in their numbers."""


@few(
    "names",
    [QUICK, [name for name in EVERY if name not in (*QUICK, *DRAWN, *LONG)]],
    quick=["quick"],
    ids=lambda own: "quick" if own is QUICK else "others",
)
def test_every_function_has_the_values_that_it_has(names: list[str]):
    check([(name, EVERY[name][0], arguments(name, EVERY)) for name in names], grain=16)


@pytest.mark.slow
@few("grain", [3, 1, 5, 64, 1000], quick=["64"])
def test_rows_of_loops_of_any_grain(grain: int):
    def turns(x: Any) -> Any:
        return (
            lax.scan(lambda c, row: (c + row, jnp.tanh(row) * c), x[0], x, reverse=True),
            lax.map(lambda row: jnp.sum(row), x),
            lax.fori_loop(1, len(x), lambda k, own: own.at[k].add(own[k - 1]), x),
        )

    shapes = [(1, 5), (5, 7), (4, 100), (3, 4, 5)]
    check([(str(shape), turns, [jnp.linspace(0, 1, math.prod(shape)).reshape(shape)]) for shape in shapes], grain)


def test_the_page_has_the_table_of_rules():
    assert PAGE.read_text() == page_with_table(PAGE.read_text()), "python -m codelet.frontends.rule_table --write"


def test_collectives_over_devices_are_told():
    def of_device(x: Any) -> Any:
        return cl.trace(lambda own: lax.psum(own, "devices"), x)(x)

    with pytest.raises(cl.CollectiveError, match=r"(?s)'devices'.*fix: .*at: .*test_trace_primitives"):
        jax.pmap(of_device, axis_name="devices")(jnp.ones((1, 4)))


HELD = jax.new_ref(jnp.ones(3))
"""An array that is changed in place."""


def _changes_in_place(x):
    own = jax.new_ref(x)
    own[...] += 1.0
    return own[...]


def _changes_in_a_loop(x):
    def body(carry, _):
        own = jax.new_ref(carry)
        own[...] *= 2.0
        return own[...], None

    return lax.scan(body, x, None, length=3)[0]


def _changes_what_it_is_given(own, x):
    own[...] = x
    return x


def _changes_what_is_there(x):
    HELD[...] = x
    return x


@pytest.mark.parametrize(
    ("function", "given", "told"),
    [
        (_changes_in_place, (), r"'new_ref' .*jax.new_ref\(x\)"),
        (_changes_in_a_loop, (), r"'new_ref' .*jax.new_ref\(carry\)"),
        (_changes_what_it_is_given, (HELD,), r"'swap' .*own\[...\] = x"),
        (_changes_what_is_there, (), r"'swap' .*HELD\[...\] = x"),
    ],
)
def test_arrays_that_are_changed_in_place_are_told(function, given, told):
    with pytest.raises(cl.TraceError, match=f"(?s){told.replace(' .*', ' .*fix: .*set.*at: .*')}"):
        cl.trace(function, *given, jnp.ones(3))


@pytest.mark.slow
@pytest.mark.parametrize("transform", [mapped, pulled, pushed])
def test_every_function_is_itself_transformed(transform: Callable[..., Any]):
    cases = []
    for name in EVERY:
        given = arguments(name, EVERY)
        if name in DRAWN or not given or any(not hasattr(own, "dtype") for own in given):
            continue
        if transform is mapped and name in UNMAPPED:
            continue
        function, given = transform(EVERY[name][0], *given)
        try:  # what JAX itself does not transform
            jax.make_jaxpr(function)(*given)
        except (NotImplementedError, TypeError, ValueError):
            continue
        cases.append((name, function, given))
    check(cases)
