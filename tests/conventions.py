"""Functions of one array that a rule of the lowering may get wrong by ignoring a parameter or a convention of JAX.

`KINDS` has a strategy for each class: which triangle of a matrix counts, where a reduction begins, which of equal
elements a slope goes to, what happens beyond the ends of an array, in which dtype places are counted, loops over no
rows, and moves of short floats. A strategy is given the type of the array and draws a function of it, or `None` where
there is none for that type.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax


class Convention(NamedTuple):
    """A function of one array.

    Attributes:
        name: of the class and of what was drawn.
        function: takes an array and returns one.
        by_differences: whether finite differences say its slopes, which they do not where elements are equal.
        slopes: whether JAX differentiates it in reverse mode.
        computed_in: the dtype that it rounds to, where that is shorter than its argument's.
    """

    name: str
    function: Callable[[Any], Any]
    by_differences: bool = True
    slopes: bool = True
    computed_in: Any = None


SHORT_FLOATS = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "bfloat16", "float16"]
PLACES = ["uint8", "int8", "int16", "int32", "uint32"]
MODES = ["promise_in_bounds", "clip", "clip", "drop", "fill"]


def _is_float(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def _bounded(x: Any) -> Any:
    return jnp.sin(x) if _is_float(x) else x


# --- linear algebra ---------------------------------------------------------------------------------------------


def _away_from_singular(a: Any) -> Any:
    """A matrix with eigenvalues apart from each other and from zero, and as asymmetric as it was."""
    n = a.shape[-1]
    return jnp.tanh(a) / 4 + jnp.diag(2.0 + jnp.arange(n)).astype(a.dtype)


LINEAR_ALGEBRA: dict[str, Callable[..., Any]] = {
    "cholesky": lambda a, **how: lax.linalg.cholesky(a, symmetrize_input=how["flag"]),
    "log density": lambda a, **how: jnp.log(jnp.diagonal(jnp.linalg.cholesky(a))) * a[0],
    "eigh": lambda a, **how: lax.linalg.eigh(a, lower=how["lower"], symmetrize_input=how["flag"])[1],
    "eigenvectors": lambda a, **how: lax.linalg.eigh(a, lower=how["lower"], symmetrize_input=how["flag"])[0] ** 2,
    "singular values": lambda a, **how: jnp.linalg.svd(a, compute_uv=False),
    "svd": lambda a, **how: (lambda u, s, v: (u * jnp.sqrt(s)) @ v)(*jnp.linalg.svd(a, full_matrices=False)),
    "qr": lambda a, **how: jnp.abs(jnp.linalg.qr(a)[1]),
    "q": lambda a, **how: jnp.linalg.qr(a)[0] ** 2,
    "lu": lambda a, **how: lax.linalg.lu(a)[0],
    "det": lambda a, **how: jnp.linalg.slogdet(a)[1],
    "inverse": lambda a, **how: jnp.linalg.inv(a),
    "solve": lambda a, **how: jnp.linalg.solve(a, a[0]),
    "symmetric solve": lambda a, **how: jax.scipy.linalg.solve(a, a[0], assume_a="pos", lower=how["lower"]),
    "triangular": lambda a, **how: lax.linalg.triangular_solve(
        *(a, a), left_side=how["left"], lower=how["lower"], transpose_a=how["flag"], unit_diagonal=how["unit"]
    ),
    "cho_solve": lambda a, **how: jax.scipy.linalg.cho_solve((a, how["lower"]), a[0]),
}


def linear_algebra(draw: Any, x: Any) -> Convention | None:
    """A decomposition or a solution of an asymmetric matrix, by either of its triangles."""
    if x.dtype not in (np.float32, np.float64) or len(x.shape) != 2 or x.shape[0] != x.shape[1] or not x.shape[0]:
        return None
    name = draw(st.sampled_from(sorted(LINEAR_ALGEBRA)))
    how = {own: draw(st.booleans()) for own in ("lower", "flag", "left", "unit")}
    # JAX takes a matrix that it is told is symmetric at its word: its slope is one of symmetric matrices, and where
    # eigenvectors are differentiated it makes the matrix symmetric, of which they are others.
    as_told = name in ("cholesky", "eigh", "eigenvectors") and not how["flag"]
    of = (lambda a: (a + a.T) / 2) if as_told and name != "cholesky" else (lambda a: a)
    run = lambda a: LINEAR_ALGEBRA[name](of(_away_from_singular(a)), **how)  # noqa: E731
    return Convention(f"{name} {how}", run, name != "symmetric solve" and not as_told)


# --- equal elements -----------------------------------------------------------------------------------------------

OF_EQUALS: dict[str, Callable[..., Any]] = {
    "max": lambda x, axis: x.max(axis),
    "min": lambda x, axis: x.min(axis),
    "argmax": lambda x, axis: x.argmax(axis),
    "argmin": lambda x, axis: x.argmin(axis),
    "sort": lambda x, axis: jnp.sort(x, axis),
    "order": lambda x, axis: jnp.argsort(x, axis),
    "falling": lambda x, axis: jnp.sort(x, axis, descending=True),
    "cummax": lambda x, axis: lax.cummax(x, axis),
    "cummin from behind": lambda x, axis: lax.cummin(x, axis, reverse=True),
    "top": lambda x, axis: lax.top_k(jnp.moveaxis(x, axis, -1), 2)[0],
    "top places": lambda x, axis: lax.top_k(jnp.moveaxis(x, axis, -1), 2)[1],
    "clip": lambda x, axis: jnp.clip(x, x.ravel()[0], x.ravel()[-1]),
    "maximum": lambda x, axis: jnp.maximum(x, jnp.flip(x, axis)),
    "relu": lambda x, axis: jax.nn.relu(x - x.ravel()[0]),
    "median": lambda x, axis: jnp.median(x, axis),
}


def equals(draw: Any, x: Any) -> Convention | None:
    """What chooses among elements, of which every one occurs twice."""
    if not x.shape or not math.prod(x.shape) or x.dtype == bool:
        return None
    names = sorted(OF_EQUALS) if _is_float(x) else sorted(set(OF_EQUALS) - {"median"})
    name, axis = draw(st.sampled_from(names)), draw(st.integers(0, len(x.shape) - 1))
    twice = lambda own: jnp.concatenate([own, jnp.flip(own, axis)], axis)  # noqa: E731
    return Convention(f"{name} of equals along {axis}", lambda own: OF_EQUALS[name](twice(own), axis), False)


# --- where reductions begin ---------------------------------------------------------------------------------------


def _by_own_product(a: Any, b: Any) -> Any:
    """Associative, of which 0 changes nothing, and none of those that JAX knows."""
    return a + b + a * b


def _last_of_two(a: Any, b: Any) -> Any:
    """The larger by the first of two numbers, with its second: associative."""
    takes = a[0] >= b[0]
    return jnp.where(takes, a[0], b[0]), jnp.where(takes, a[1], b[1])


MONOIDS: dict[str, tuple[Callable[..., Any], float]] = {
    "add": (lax.add, 0),
    "max": (lax.max, -math.inf),
    "min": (lax.min, math.inf),
    "mul": (lax.mul, 1),
    "own": (_by_own_product, 0),
    "own sum": (lambda a, b: (a + b) + 0 * a, 0),
}


def _neutral(value: float, dtype: Any) -> Any:
    if jnp.issubdtype(dtype, jnp.floating) or math.isfinite(value):
        return np.asarray(value, dtype)
    return np.asarray(jnp.iinfo(dtype).min if value < 0 else jnp.iinfo(dtype).max, dtype)


def beginnings(draw: Any, x: Any) -> Convention | None:
    """A reduction, or one of windows, that begins with a number which may be neutral or not, or an array's."""
    if not x.shape or x.dtype == bool or jnp.dtype(x.dtype).itemsize < 2:
        return None
    name, ndim, extents = draw(st.sampled_from(sorted(MONOIDS))), len(x.shape), st.integers(1, 3)
    function, neutral = MONOIDS[name]
    begins = draw(st.sampled_from(["neutral", "other", "other", "of the array"]))
    number = draw(st.integers(-1, 3))
    several, is_window = draw(st.integers(0, 4)) == 0, draw(st.booleans())

    def start(own: Any) -> Any:
        if begins == "of the array" and own.size:
            return own.ravel()[0]
        return _neutral(neutral, own.dtype) if begins == "neutral" else np.asarray(number, own.dtype)

    axes = tuple(d for d in range(ndim) if draw(st.booleans())) or (0,)
    window = tuple(draw(extents) for _ in x.shape)
    strides, base, dilated = (tuple(draw(st.integers(1, 2)) for _ in x.shape) for _ in range(3))
    padding = [(draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in x.shape]
    how: Any = (axes,) if not is_window else (window, strides, padding, base, dilated)
    reduce: Any = lax.reduce_window if is_window else lax.reduce
    told = f"{'windows' if is_window else 'reduce'} {name} from {begins} {number} {how}"

    def run(own: Any) -> Any:
        own = own / 4 if _is_float(own) else own
        if several:
            second = jnp.flip(own, 0)
            least = _neutral(-math.inf, own.dtype) if begins == "neutral" else np.asarray(number, own.dtype)
            return sum(map(_bounded, reduce((own, second), (least, start(second)), _last_of_two, *how)))
        made = reduce(own, start(own), function, *how)
        return jnp.clip(made, -9, 9).astype(made.dtype) if name in ("max", "min") else made

    plain = name == "add" and begins == "neutral" and not several
    return Convention(told + " of two" * several, run, name in ("add", "mul"), plain)


# --- beyond the ends ----------------------------------------------------------------------------------------------


def dynamic(draw: Any, x: Any) -> Convention | None:
    """Slices and updates that begin before an array, within it, or beyond its end."""
    if not x.shape or not math.prod(x.shape):
        return None
    sizes = tuple(draw(st.integers(1, max(1, n - 1))) for n in x.shape)
    starts = [draw(st.integers(-2 * n - 1, 2 * n + 1)) for n in x.shape]
    dtype, negative = draw(st.sampled_from(["int32", "int8", "int16"])), draw(st.booleans())
    name = draw(st.sampled_from(["slice", "update", "mapped slice", "mapped update", "in dim"]))
    known = draw(st.booleans())

    def places(own: Any) -> list[Any]:
        # Known to the trace, or not.
        unknown = 0 if known else (own.ravel()[0] != own.ravel()[0]).astype(dtype)
        return [jnp.asarray(start, dtype) + unknown for start in starts]

    def run(own: Any) -> Any:
        at = places(own)
        if name == "slice":
            return lax.dynamic_slice(own, at, sizes, allow_negative_indices=negative)
        if name == "in dim":
            return lax.dynamic_slice_in_dim(own, at[0], sizes[0], allow_negative_indices=negative)
        update = lax.slice(jnp.flip(own), (0,) * own.ndim, sizes)
        if name == "update":
            return lax.dynamic_update_slice(own, update, at, allow_negative_indices=negative)
        rows = jnp.stack([own, jnp.flip(own, 0)])
        mapped = [jnp.stack([k, k + 1]) for k in at]
        if name == "mapped slice":
            return jax.vmap(lambda a, *k: lax.dynamic_slice(a, k, sizes, allow_negative_indices=negative))(
                rows, *mapped
            )
        return jax.vmap(
            lambda a, *k: lax.dynamic_update_slice(a, update, k, allow_negative_indices=negative)  # type: ignore[arg-type]
        )(rows, *mapped)

    return Convention(f"dynamic {name} of {sizes} from {starts} {dtype} {negative=} {known=}", run)


SCATTERS = ["add", "set", "max", "max", "min", "min", "multiply"]


def scattered(draw: Any, x: Any) -> Convention | None:
    """Gathers and scatters of every mode, places beyond the ends included, of any dtype of places."""
    if not x.shape or not x.shape[0] or x.dtype == bool:
        return None
    n, mode = x.shape[0], draw(st.sampled_from(MODES))
    within = st.integers(0, n - 1)
    anywhere = within if mode == "promise_in_bounds" else st.integers(-2 * n - 1, 2 * n + 1)
    name = draw(st.sampled_from([*SCATTERS, "gather"]))
    # Which of several writes to one place counts, JAX leaves open.
    unique = name in ("set", "multiply") or (name in ("max", "min") and draw(st.booleans()))
    taken = draw(st.lists(anywhere, min_size=1, max_size=3, unique=True))
    if unique:
        ends = {min(max(k, 0), n - 1) if mode == "clip" else k % n: k for k in taken}
        taken = list(ends.values())
    dtype = draw(st.sampled_from(["int32", "int8", "int16"]))
    known = draw(st.booleans())

    def run(own: Any) -> Any:
        unknown = 0 if known else (own.ravel()[0] != own.ravel()[0]).astype(dtype)
        at = jnp.asarray(taken, dtype) + unknown
        if name == "gather":
            return own.at[at].get(mode=mode, **({"fill_value": 3} if mode == "fill" else {}))
        updates = (jnp.flip(own).reshape(-1)[jnp.arange(len(taken)) % own.size] * 2 + 1).astype(own.dtype)
        updates = jnp.broadcast_to(updates.reshape(-1, *[1] * (own.ndim - 1)), (len(taken), *own.shape[1:]))
        return getattr(own.at[at], name)(updates, mode="drop" if mode == "fill" else mode)

    # A promise that does not hold is nobody's to keep.
    smooth = name in ("add", "set", "gather") or unique
    # JAX differentiates those products alone that are said to be unique. Its slopes of the greatest and the least are
    # infinite where a place is beyond the ends and clipped; see docs/frontends.md.
    clipped = mode == "clip" and any(not -n <= k < n for k in taken)
    slopes = name != "multiply" and not (name in ("max", "min") and clipped)
    return Convention(f"{name} {mode} at {taken} {dtype} {known=}", run, smooth, slopes)


def many_rows(draw: Any, x: Any) -> Convention | None:
    """Lookups in more rows than the dtype of their places counts, or at places beyond it."""
    if not x.shape or not math.prod(x.shape):
        return None
    dtype = draw(st.sampled_from([*["uint8", "int8"] * 4, "int16"]))
    rows = {"uint8": 300, "int8": 150, "int16": 33000}[dtype] + draw(st.integers(-60, 60))
    name = draw(st.sampled_from(["mapped", "mapped update", "along", "mapped slice", "mapped add"]))

    def run(own: Any) -> Any:
        flat = own.reshape(-1)
        width = min(3, flat.size)
        number = jnp.arange(rows, dtype=jnp.int32)
        held = flat[(number[:, None] * 7 + jnp.arange(width)) % flat.size]
        at = (number % width).astype(dtype)
        if name == "along":
            found = jnp.take_along_axis(held, at[:, None], 1)[:, 0]
        elif name == "mapped":
            found = jax.vmap(lambda row, k: row[k])(held, at)
        elif name == "mapped slice":
            found = jax.vmap(lambda row, k: lax.dynamic_slice(row, (k,), (1,)))(held, at)[:, 0]
        elif name == "mapped add":
            change = jax.vmap(lambda row, k: row.at[k].set(row[0]))
            found = change(held, at)[:, -1]
        else:
            found = jax.vmap(lambda row, k: lax.dynamic_update_slice(row, row[:1], (k,)))(held, at)[:, -1]
        return found[-7:]

    # The backward pass of so many lookups as vertices holds the whole table for each: many GB.
    return Convention(f"{name} of {rows} rows by {dtype}", run, slopes=dtype != "int16")


# --- no rows, and grains that do not divide -----------------------------------------------------------------------


def no_rows(draw: Any, x: Any) -> Convention | None:
    """Loops over few rows or none, and what is made of arrays without elements."""
    if not x.shape or x.dtype == bool:
        return None
    count, reverse = draw(st.sampled_from([0, 0, 1, 3])), draw(st.booleans())
    name = draw(st.sampled_from(["scan", "map", "sum", "concatenate", "vmap", "pad", "cumsum", "batched", "fori"]))
    if name == "batched":  # JAX itself divides by the number of whole batches, and of elements of a row
        if not x.size:
            return None
        count = max(count, 2)

    def run(own: Any) -> Any:
        rows = jnp.broadcast_to(own, (count, *own.shape)) * jnp.arange(count).astype(own.dtype).reshape(
            -1, *[1] * own.ndim
        )
        if name == "scan":
            body = lambda carry, row: (_bounded(carry + row), carry * 2)  # noqa: E731
            last, stacked = lax.scan(body, own, rows, reverse=reverse)
            return jnp.concatenate([last[None], stacked])
        if name == "fori":
            return lax.fori_loop(0, count, lambda k, held: _bounded(held + held[:1]), own)
        if name == "batched":
            return jnp.concatenate([own[None], lax.map(lambda row: _bounded(row + 1), rows, batch_size=2)])
        if name == "sum":
            return rows.sum(0) + rows.max(0, initial=1)
        if name == "pad":
            return jnp.pad(rows, [(1, 0)] + [(0, 1)] * own.ndim)
        if name == "cumsum":
            return jnp.concatenate([jnp.cumsum(rows, 0), own[None]]).astype(own.dtype)
        over = jax.vmap if name == "vmap" else (lambda function: lambda held: lax.map(function, held))
        made = rows if name == "concatenate" else over(lambda row: _bounded(row + row[:1]))(rows)
        return jnp.concatenate([made, own[None]])

    return Convention(f"{name} of {count} rows, {reverse=}", run, name != "sum")


# --- short floats -------------------------------------------------------------------------------------------------


def short_floats(draw: Any, x: Any) -> Convention | None:
    """Moves, and products with what else holds numbers, of floats of one or two bytes."""
    if not math.prod(x.shape) or not x.shape or not _is_float(x):
        return None
    short = draw(st.sampled_from(SHORT_FLOATS))
    other = draw(st.sampled_from([*SHORT_FLOATS, "int8", "float32"]))
    name = draw(st.sampled_from(["moves", "moves", "product", "sort", "where", "reduce", "loop"]))
    if name in ("sort", "reduce", "loop") and short.startswith("float8"):
        name = "moves"
    axis = draw(st.integers(0, len(x.shape) - 1))

    def run(own: Any) -> Any:
        held = own.astype(short)
        if name == "moves":
            turned = jnp.flip(jnp.concatenate([held, held], axis), axis).T
            return jnp.pad(turned, 1, mode="edge").astype(own.dtype)
        if name == "product":
            a, b = held.reshape(-1), (own * 3).astype(other).reshape(-1)
            return lax.dot_general(a, b, (((0,), (0,)), ((), ())), preferred_element_type=jnp.float32)
        if name == "where":
            return jnp.where(own > 0, held, jnp.zeros((), short)).astype(jnp.float32)
        if name == "loop":
            return lax.fori_loop(0, 3, lambda _, c: jnp.where(c > 0, c * 2, c), held)
        return jnp.sort(held, axis) if name == "sort" else held.sum(axis) + held.max(axis)

    is_exact = name in ("moves", "product", "where")
    slopes = name != "product" and not short.startswith("float8")
    rounded = None if is_exact and not slopes else np.dtype(short)
    return Convention(f"{name} of {short}, {other} along {axis}", run, False, slopes, rounded)


KINDS = {
    own.__name__: own
    for own in (linear_algebra, equals, beginnings, dynamic, scattered, many_rows, no_rows, short_floats)
}


@st.composite
def conventions(draw: Any, x: Any, kinds: Any = tuple(KINDS)) -> Convention | None:
    """A function of an array of some type; `None` where the kind that is drawn has none."""
    return KINDS[draw(st.sampled_from(list(kinds)))](draw, x)
