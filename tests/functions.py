"""Functions of JAX, composed of primitives: what passes on jaxprs and `cl.trace` are held against.

A function is drawn as steps, each of which makes new values of those that are there; its results are some of these.
Values stay within bounds, and nothing is compared that rounding could turn: integers and booleans are alike exactly,
floats up to a tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

from tests.ops_cases import assert_alike

Step = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Drawn:
    """A function and arguments for it.

    Attributes:
        steps: what is done, with the positions of the values that it is done to.
        arguments: what it is called with.
        results: positions of the values that it returns.
    """

    steps: tuple[tuple[str, Step, tuple[int, ...]], ...]
    arguments: tuple[np.ndarray, ...]
    results: tuple[int, ...]

    def __call__(self, *arguments: Any) -> list[Any]:
        values = list(arguments)
        for _, step, operands in self.steps:
            values += step(*(values[k] for k in operands))
        return [values[k] for k in self.results]

    def __repr__(self) -> str:
        given = ", ".join(f"{own.dtype}{list(own.shape)}" for own in self.arguments)
        return "; ".join([given, *(f"{name}{operands}" for name, _, operands in self.steps), f"-> {self.results}"])


def is_float(x: Any) -> bool:
    """Whether a value holds floats."""
    return jnp.issubdtype(x.dtype, jnp.floating)


# --- by element ----------------------------------------------------------------------------------------------

FLOAT_ONE = {
    "sin": jnp.sin,
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "half": lambda x: x * 0.5,
    "square": jnp.square,
    "away": lambda x: jnp.where(x > 0, x, 2 * x),
}
WHOLE_ONE = {"negative": lambda x: -x, "plus": lambda x: x + 3, "even": lambda x: x % 2 == 0, "parts": lambda x: x // 2}
BOOL_ONE = {"not": jnp.logical_not, "number": lambda x: x.astype(jnp.int32), "float": lambda x: x.astype(jnp.float16)}
FLOAT_TWO = {"add": jnp.add, "subtract": jnp.subtract, "multiply": jnp.multiply, "maximum": jnp.maximum}
WHOLE_TWO = {"add": jnp.add, "multiply": jnp.multiply, "less": jnp.less, "xor": jnp.bitwise_xor}
BOOL_TWO = {"and": jnp.logical_and, "or": jnp.logical_or}


def _kind(table: tuple[dict[str, Step], ...], x: Any) -> dict[str, Step]:
    floats, whole, boolean = table
    return boolean if x.dtype == bool else floats if is_float(x) else whole


def _bounded(x: Any) -> Any:
    return jnp.sin(x) if is_float(x) else x


# --- what takes more than one equation -----------------------------------------------------------------------


def _scan(x: Any, *, reverse: bool) -> list[Any]:
    start = x[0]
    body = lambda carry, row: ((_bounded(carry[0] + row), carry[1] + 1), (row, carry[0]))  # noqa: E731
    (last, count), (rows, before) = lax.scan(body, (start, 0), x, reverse=reverse)
    return [last, rows, before, jnp.asarray(count)]


def _while(x: Any) -> list[Any]:
    more = lambda held: held[0] < 3  # noqa: E731
    turn = lambda held: (held[0] + 1, _bounded(held[1] + held[1]), held[2] * 3)  # noqa: E731
    return list(lax.while_loop(more, turn, (jnp.asarray(0), x, jnp.asarray(1)))[1:])


def _cond(x: Any, chosen: Any) -> list[Any]:
    other = lambda own: (own[..., ::-1] if own.ndim else own, own + own)  # noqa: E731
    return list(lax.cond(jnp.sum(chosen) > 1, other, lambda own: (own, _bounded(own)), x))


@jax.jit
def jitted(x: Any) -> Any:
    """A function that is called from several places."""
    with jax.named_scope("inside"):
        return (_bounded(x + x) + jnp.ones(x.shape, x.dtype)).sum(0)


def _known(x: Any) -> list[Any]:
    row = jnp.arange(x.shape[-1]) * 2 + 1
    return [x + row.astype(x.dtype), jnp.eye(x.shape[-1], dtype=x.dtype) + jnp.full((), 2, x.dtype)]


def _named(step: Step) -> Step:
    def named(*operands: Any) -> Any:
        with jax.named_scope("layer"):
            return step(*operands)

    return named


def _list(step: Step) -> Step:
    return lambda *operands: [step(*operands)]


@st.composite
def drawn_functions(draw: Any, most_steps: int = 8) -> Drawn:
    """A function composed of primitives, on floats, float16, integers and booleans, and arguments for it."""
    shapes = ((3,), (2, 3), (3, 3), ())
    types = draw(st.lists(st.sampled_from(["float32", "int32", "float16", "bool"]), min_size=2, max_size=3))
    seed = np.random.default_rng(draw(st.integers(0, 99)))
    arguments = []
    for dtype in ("float32", *types):
        shape = draw(st.sampled_from(shapes))
        held = seed.uniform(-2, 2, shape) if "float" in dtype else seed.integers(0, 2 if dtype == "bool" else 5, shape)
        arguments.append(np.asarray(held, dtype))
    avals: list[Any] = [jax.ShapeDtypeStruct(own.shape, own.dtype) for own in arguments]
    steps: list[tuple[str, Step, tuple[int, ...]]] = []
    for _ in range(draw(st.integers(1, most_steps))):
        name, step, operands = draw(_steps(avals))
        if draw(st.booleans()):
            step = _named(step)
        steps.append((name, step, operands))
        avals += jax.eval_shape(step, *(avals[k] for k in operands))
    places = st.integers(len(arguments), len(avals) - 1)
    results = draw(st.lists(places, min_size=1, max_size=3))
    return Drawn(tuple(steps), tuple(arguments), tuple(results))


@st.composite
def _steps(draw: Any, avals: Sequence[Any]) -> tuple[str, Step, tuple[int, ...]]:
    """A step that is valid on some of the values."""
    k = draw(st.integers(0, len(avals) - 1))
    x = avals[k]
    other = draw(st.sampled_from([j for j, own in enumerate(avals) if (own.shape, own.dtype) == (x.shape, x.dtype)]))
    one = _kind((FLOAT_ONE, WHOLE_ONE, BOOL_ONE), x)
    two = _kind((FLOAT_TWO, WHOLE_TWO, BOOL_TWO), x)
    found: list[tuple[str, Step, tuple[int, ...]]] = [
        *((name, _list(function), (k,)) for name, function in one.items()),
        *((name, _list(function), (k, other)) for name, function in two.items()),
    ]
    masks = [j for j, own in enumerate(avals) if own.shape == x.shape and own.dtype == bool]
    if masks:
        found.append(("where", _list(jnp.where), (draw(st.sampled_from(masks)), k, other)))
    if x.shape:
        axis = draw(st.integers(0, len(x.shape) - 1))
        reduce = jnp.any if x.dtype == bool else jnp.max
        found += [
            ("reduce", _list(lambda own: reduce(own, axis)), (k,)),
            ("flip", _list(lambda own: jnp.flip(own, axis)), (k,)),
            ("transpose", _list(jnp.transpose), (k,)),
            ("flatten", _list(lambda own: own.reshape(-1)), (k,)),
            ("slice", _list(lambda own: lax.slice_in_dim(own, 1, None, axis=axis)), (k,))
            if x.shape[axis] > 1
            else found[0],
            (
                "concatenate",
                _list(lambda a, b: jnp.concatenate([a, b])[: a.shape[0]]),
                (k, other),
            ),
            ("broadcast", _list(lambda own: jnp.broadcast_to(own[0], own.shape)), (k,)),
        ]
        if x.dtype != bool:
            reverse = draw(st.booleans())
            found += [
                ("sum", _list(lambda own: _bounded(own.sum(axis))), (k,)),
                ("scan", lambda own: _scan(own, reverse=reverse), (k,)),
                ("known", _known, (k,)),
                ("jitted", lambda own: [_bounded(jitted(own))], (k,)),
                ("dot", _list(lambda a, b: _bounded(jnp.tensordot(a, b, a.ndim))), (k, other)),
                ("outer", _list(lambda a, b: _bounded(jnp.tensordot(a[:1], b[:1], ((0,), (0,))) * a[0])), (k, other)),
            ]
    if x.dtype != bool:
        whole = [j for j, own in enumerate(avals) if not is_float(own)]
        found += [("while", _while, (k,))]
        found += [("cond", _cond, (k, draw(st.sampled_from(whole))))] if whole else []
    return draw(st.sampled_from(found))


def assert_same(ours: Sequence[Any], plain: Sequence[Any]) -> None:
    """See that results of functions are alike: floats up to what their rounding may come to in a few steps."""
    for own, expected in zip(ours, plain, strict=True):
        assert_alike(own, expected, 2e-2 if expected.dtype == np.float16 else 1e-5)
