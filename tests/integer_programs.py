"""Integer programs: functions of integers and booleans, with loops and choices, drawn by hypothesis.

A program holds values in a list and makes another of some of them at every step, with every primitive that
`codelet/jaxprs/intervals.py` knows and some that it does not. Its arguments come with ends between
which they are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

DTYPES = (np.int8, np.uint8, np.int32, np.uint32)
SHAPES = ((), (3,), (2, 3), (1, 1), (5, 17))
"""Of values; the last has more elements than have an interval each."""

Made = Callable[[Sequence[Any]], Any]
"""What a step makes of the values before it."""


class IntegerProgram(NamedTuple):
    """A function of integers, with arguments for it and the ends that these lie between.

    Attributes:
        name: what it does, as text.
        function: of `arguments`; a list of all that it made.
        arguments: several times, each within `ends`.
        ends: the least and the greatest of each argument.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[tuple[np.ndarray, ...], ...]
    ends: tuple[tuple[int, int], ...]

    def __repr__(self) -> str:
        return f"{self.name} of {self.ends} at {self.arguments}"


def _as(value: Any, like: Any) -> Any:
    """A value in the dtype and shape of another."""
    flat, size = lax.reshape(value, (np.size(value),)), np.size(like)
    filled = lax.concatenate([flat] * -(-size // flat.size), 0) if flat.size < size else flat
    return lax.convert_element_type(lax.reshape(lax.slice(filled, (0,), (size,)), np.shape(like)), like.dtype)


def _several(made: Any) -> list[Any]:
    """What a step makes, as a list: loops make several values."""
    return made if isinstance(made, list) else [made]


def _counted(value: Any) -> Any:
    """A value that is no boolean."""
    return value.astype(np.int8) if value.dtype == bool else value


TWO: dict[str, Callable[[Any, Any], Any]] = {
    "add": lax.add,
    "sub": lax.sub,
    "mul": lax.mul,
    "div": lax.div,
    "rem": lax.rem,
    "max": lax.max,
    "min": lax.min,
    "lt": lax.lt,
    "le": lax.le,
    "gt": lax.gt,
    "ge": lax.ge,
    "eq": lax.eq,
    "ne": lax.ne,
    "xor": lax.bitwise_xor,
}
ONE: dict[str, Callable[[Any], Any]] = {
    "neg": lambda a: lax.neg(a) if a.dtype.kind == "i" else lax.sub(lax.full_like(a, 7), a),
    "abs": lambda a: lax.abs(a) if a.dtype.kind == "i" else a,
    "sign": lax.sign,
    "argmax": lambda a: lax.argmax(a.ravel(), 0, np.int8),
    "argmin": lambda a: lax.argmin(a.ravel(), 0, np.uint8),
    "cummax": lambda a: lax.cummax(a, reverse=a.size == 3) if a.ndim else a,
    "cummin": lambda a: lax.cummin(a) if a.ndim else a,
    "cumsum": lambda a: lax.cumsum(a) if a.ndim else a,
    "reduce_max": lambda a: jnp.max(a, initial=None),
    "reduce_min": lambda a: jnp.min(a, axis=tuple(range(a.ndim))[:1]),
    "reduce_sum": lambda a: jnp.sum(a, dtype=a.dtype),
    "transpose": lambda a: a.T,
    "reshape": lambda a: a.reshape(-1),
    "in the order of columns": lambda a: a.reshape(-1, order="F"),
    "squeeze": lambda a: jnp.squeeze(a),
    "broadcast": lambda a: jnp.broadcast_to(a, (2, *a.shape)),
    "broadcast ones": lambda a: lax.broadcast_in_dim(a.ravel()[:1], (2, 3), (0,)),
    "slice": lambda a: a[::2] if a.ndim else a,
    "slice to the end": lambda a: a.ravel()[-2:],
    "rev": lambda a: a[::-1] if a.ndim else a,
    "split": lambda a: jnp.split(a, [1], axis=0)[0] if a.ndim else a,
    "pad": lambda a: lax.pad(a, lax.full((), 3, a.dtype), [(1, -1, 1)] * a.ndim) if a.ndim else a,
    "stop_gradient": lax.stop_gradient,
    "jit": lambda a: jax.jit(lambda a: lax.max(a, lax.full_like(a, 2)))(a),
    "float": lambda a: lax.convert_element_type(lax.convert_element_type(a, np.float32), np.int32),
    "shift": lambda a: lax.shift_right_arithmetic(a, lax.full_like(a, 1)),
}


@st.composite
def _steps(draw: Any, depth: int) -> tuple[str, Made]:
    """One step, with a loop or a choice in it as deep as that."""
    kinds = ["two", "two", "two", "one", "one", "constant", "convert", "choice of values", "clamp", "logic", "move"]
    kind = draw(st.sampled_from((*kinds, *(["scan", "while", "cond", "scan"] * (depth > 0)))))
    i, j, k = (draw(st.integers(0, 30)) for _ in range(3))
    number = draw(st.one_of(st.integers(-4, 9), st.sampled_from((-128, 127, 100, 255))))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))

    def at(n: int, values: Sequence[Any]) -> Any:
        return values[-1 - n % len(values)]

    def literal(like: Any) -> Any:
        return np.asarray(number).astype(like.dtype)

    if kind == "two":
        name = draw(st.sampled_from(sorted(TWO)))
        by_number = draw(st.booleans())

        def two(values: Sequence[Any]) -> Any:
            a = _counted(at(i, values))
            b = lax.full_like(a, literal(a)) if by_number and a.ndim else literal(a) if by_number else at(j, values)
            return TWO[name](a, b if by_number else _as(b, a))

        return f"{name} {i} {number if by_number else j}", two
    if kind == "one":
        name = draw(st.sampled_from(sorted(ONE)))
        return f"{name} {i}", lambda values: ONE[name](_counted(at(i, values)))
    if kind == "constant":
        shape = draw(st.sampled_from(SHAPES))
        made = np.random.default_rng(i).integers(-3, 9, shape).astype(dtype)
        count = draw(st.sampled_from((3, 5, 200)))
        if draw(st.booleans()):
            return f"iota {dtype}[{count}]", lambda values: lax.iota(dtype, count)
        return f"constant {i} {dtype}{shape}", lambda values: jnp.asarray(made) if j % 2 else made + 0 * literal(made)
    if kind == "convert":
        to = draw(st.sampled_from((*DTYPES, np.bool_)))
        return f"as {np.dtype(to)} {i}", lambda values: lax.convert_element_type(at(i, values), to)
    if kind == "choice of values":
        several = draw(st.booleans())

        def choice(values: Sequence[Any]) -> Any:
            a, b = at(i, values), at(j, values)
            if several:  # of three, by a number that lies within
                which = lax.clamp(np.int32(0), _as(at(k, values), jnp.int32(0)), np.int32(2))
                return lax.select_n(which, a, _as(b, a), _as(at(k, values), a))
            return lax.select_n(_as(at(k, values), lax.full_like(a, False, bool)), a, _as(b, a))

        return f"{'select of three' if several else 'select'} {i} {j} {k}", choice
    if kind == "clamp":

        def clamp(values: Sequence[Any]) -> Any:
            a = _counted(at(i, values))
            low, high = (_as(at(n, values), literal(a)) for n in (j, k))
            return lax.clamp(literal(a) if j % 2 else low, a, high)

        return f"clamp {i} {number if j % 2 else j} {k}", clamp
    if kind == "logic":
        name = draw(st.sampled_from(("and", "or", "not")))

        def logic(values: Sequence[Any]) -> Any:
            a = at(i, values)
            a = lax.lt(a, lax.full_like(a, literal(a))) if k % 4 else a
            if name == "not":
                return lax.bitwise_not(a)
            return (lax.bitwise_and if name == "and" else lax.bitwise_or)(a, _as(at(j, values), a))

        return f"{name} {i} {j}", logic
    if kind == "move":
        name = draw(st.sampled_from(("concatenate", "dynamic_slice", "dynamic_update_slice")))

        def move(values: Sequence[Any]) -> Any:
            a = at(i, values)
            a = a.reshape(1) if not a.ndim else a
            starts = [_as(at(k, values), jnp.int32(0))] * a.ndim
            if name == "concatenate":
                return lax.concatenate([a, _as(at(j, values), a[:1])], 0)
            if name == "dynamic_slice":
                return lax.dynamic_slice(a, starts, (1,) * a.ndim)
            return lax.dynamic_update_slice(a, _as(at(j, values), a[-1:]), starts)

        return f"{name} {i} {j} {k}", move
    inner = [draw(_steps(depth - 1)) for _ in range(draw(st.integers(1, 4)))]
    text = f"{kind} {i} {j} {k} ({'; '.join(name for name, _ in inner)})"
    step, start = draw(st.sampled_from((1, 1, -1, 3, 0, 100))), draw(st.integers(-3, 3))

    def within(values: Sequence[Any]) -> list[Any]:
        values = list(values)
        for _, own in inner:
            values += _several(own(values))
        return values

    def counter(values: Sequence[Any]) -> Any:
        begin = np.asarray(start).astype(dtype)
        return jnp.asarray(begin) if k % 2 else _as(at(k, values), begin)

    def added(held: Any) -> Any:
        by = np.asarray(step).astype(dtype)
        return lax.sub(held, np.asarray(-step).astype(dtype)) if j % 3 == 0 else lax.add(held, by)

    if kind == "cond":

        def cond(values: Sequence[Any]) -> Any:
            a = at(i, values)
            branches = [lambda a: _as(within([*values, a])[-1], a), lambda a: a]
            if k % 2:
                branches.append(lambda a: _as(at(j, values), a))
            return lax.switch(_as(at(k, values), jnp.int32(0)), branches, a)

        return text, cond
    if kind == "scan":
        length = draw(st.sampled_from((0, 1, 2, 3, 5)))
        of_rows, reverse = draw(st.booleans()), draw(st.booleans())

        def scan(values: Sequence[Any]) -> Any:
            a, b = at(i, values), at(j, values)
            rows = _as(b, np.zeros((length, *b.shape[1:]), b.dtype)) if of_rows and b.ndim else None

            def turn(held: Any, row: Any) -> Any:
                made = within([*values, *held[:2], *([] if row is None else [row])])
                return (added(held[0]), _as(made[-1], a), held[2]), (made[-1], held[0])

            held, stacked = lax.scan(turn, (counter(values), a, b), rows, length=length, reverse=reverse)
            return [held[0], held[1], *([own for own in stacked if own.size])]

        return f"{text} by {step} from {start} {dtype} in {length} turns", scan
    name, length = draw(st.sampled_from(("lt", "le", "gt", "ge", "ne"))), draw(st.integers(0, 6))
    by, flips = draw(st.sampled_from(("literal", "carried", "held"))), draw(st.booleans())

    def loop(values: Sequence[Any]) -> Any:
        a, limit = at(i, values), np.asarray(number).astype(dtype)
        begin = counter(values)

        def goes_on(held: Any) -> Any:
            other = limit if by == "literal" else held[3] if by == "carried" else jnp.asarray(limit) + 0 * begin
            pair = (other, held[0]) if flips else (held[0], other)
            # A second count ends what would go on for ever.
            return TWO[name](*pair) & (held[2] < length)

        def turn(held: Any) -> Any:
            return added(held[0]), _as(within([*values, *held[:2]])[-1], a), held[2] + 1, held[3]

        return list(lax.while_loop(goes_on, turn, (begin, a, 0, jnp.asarray(limit)))[:3])

    return f"{text} by {step} from {start} while {name} {number} {by} {flips} {dtype}, {length} at most", loop


@st.composite
def integer_programs(draw: Any, most: int = 10, depth: int = 2) -> IntegerProgram:
    """A program of at most so many steps, with loops so deep."""
    kinds = [(np.dtype(draw(st.sampled_from(DTYPES))), draw(st.sampled_from(SHAPES[:4]))) for _ in range(2)]
    ends = []
    for dtype, _ in kinds:
        info = np.iinfo(dtype)
        number = st.one_of(st.integers(-5, 9), st.sampled_from((info.min, info.max)))
        low, high = sorted(min(max(draw(number), info.min), info.max) for _ in range(2))
        ends.append((low, high))
    steps = [draw(_steps(depth)) for _ in range(draw(st.integers(1, most)))]

    def function(*arguments: Any) -> Any:
        values = list(map(jnp.asarray, arguments))
        for _, own in steps:
            values += _several(own(values))
        return values

    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    several = []
    for _ in range(2):
        own = (
            random.integers(low, high, shape, np.int64, endpoint=True)
            for (low, high), (_, shape) in zip(ends, kinds, strict=True)
        )
        several.append(tuple(array.astype(dtype) for array, (dtype, _) in zip(own, kinds, strict=True)))
    text = ", ".join(f"{dtype}{list(shape)}" for dtype, shape in kinds)
    name = f"{'; '.join(name for name, _ in steps)} of {text}"
    return IntegerProgram(name, function, tuple(several), tuple(ends))
