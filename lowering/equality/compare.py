"""Comparison of two programs, given as what evaluates each.

Both are evaluated at the same random points of a prime field (`codelet/field`). Where they differ there, both are run
in float64 for a witness; without one nothing is said.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import eval_context

from codelet.errors import ProgramError
from codelet.field.arithmetic import PRIME
from codelet.field.evaluate import Evaluation
from codelet.field.meanings import NotUnderstood
from codelet.field.pairs import pair
from codelet.field.values import Unknown, Value, stored
from codelet.frontends.labels import line_of
from lowering.equality.answer import Equality, Witness
from lowering.equality.floats import Floats, in_float64
from lowering.equality.parting import parting_of
from lowering.equality.sides import Side, struct_of

DRAWS = 4
"""Random points, each of 31 bits."""

_TRIED, _SECONDS = 32, 10.0
"""How many inputs in float64 are tried for a witness, and for how long at most, but for the first two."""

_APART = 1e-6
"""By how much of the greater of two numbers they differ at least; constants in float32 are 6e-8 apart."""


def _check_alike(first: Side, second: Side) -> None:
    for what, one, other in (
        ("structure", first.tree, second.tree),
        ("shapes and dtypes", first.types, second.types),
    ):
        if one != other:
            raise ProgramError(
                f"the results of two programs are not of the same {what}",
                given=str(other)[:200],
                expected=str(one)[:200],
            )


def _is_unknown(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, np.inexact))


def _drawn(random: np.random.Generator, struct: Any) -> Value:
    """Random points for an example of floats or complex numbers."""
    parts = [random.integers(0, PRIME, (DRAWS, *struct.shape)) for _ in range(1 + (struct.dtype.kind == "c"))]
    return Unknown(parts[0] if len(parts) == 1 else pair(*parts), struct.dtype)


def _whole(leaf: Any, random: np.random.Generator) -> Any:
    """What stands for an example that is no float: itself, or drawn where only its type is given."""
    if not isinstance(leaf, jax.ShapeDtypeStruct):
        own = jnp.asarray(leaf)
        return own if jnp.issubdtype(own.dtype, jax.dtypes.extended) else np.asarray(own)
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jnp.broadcast_to(jax.random.key(int(random.integers(2**31))), leaf.shape)
    if leaf.dtype == bool:
        return random.integers(0, 2, leaf.shape).astype(bool)
    if np.issubdtype(leaf.dtype, np.integer):
        return random.integers(0, 3, leaf.shape).astype(leaf.dtype)
    raise ProgramError(
        "an example is of a dtype that cannot be drawn",
        given=leaf.dtype,
        expected="floats, whole numbers or truth values",
    )


def compared(first: Side, second: Side, examples: Any, *, casts: str = "identity", seed: int = 0) -> Equality:
    """Whether two sides compute the same of examples, in whatever structure; see `equal`.

    Raises:
        ProgramError: results of other structures, shapes or dtypes.
    """
    _check_alike(first, second)
    with eval_context():  # under an outer trace, too, all is known
        return _compared((first, second), examples, casts, seed)


def _compared(sides: tuple[Side, Side], examples: Any, casts: str, seed: int) -> Equality:
    random = np.random.default_rng(seed)
    leaves, tree = jax.tree.flatten(examples)
    structs = [struct_of(leaf) for leaf in leaves]
    known = [
        None if _is_unknown(own.dtype) else _whole(leaf, random) for leaf, own in zip(leaves, structs, strict=True)
    ]
    given: list[Value] = [
        _drawn(random, own) if value is None else value for value, own in zip(known, structs, strict=True)
    ]
    evaluation, found = Evaluation(DRAWS, casts == "exact"), list[list[np.ndarray]]()
    for side in sides:
        try:
            results = side.results(evaluation, given)
        except NotUnderstood as error:
            places = (line_of(eqn) for eqn in (error.eqn, *error.around) if eqn is not None)
            line = next((own for own in (error.line, *places) if own is not None), None)
            return Equality("undecided", reason=str(error), line=line)
        found.append([stored(own, DRAWS) for own in results])
        del results
    apart = [(a != b).any(0) for a, b in zip(*found, strict=True)]
    found.clear()
    elements = sum(own.size for own in apart)
    if not any(own.any() for own in apart):
        degrees = evaluation.hashed_degree, evaluation.degree
        of_pair, of_element = ((2.0 * degree / PRIME) ** DRAWS for degree in degrees)
        chance = float(evaluation.hashed) ** 2 * of_pair + elements * of_element
        if chance > 2.0**-40:
            return Equality(
                "undecided", reason=f"its degree is {evaluation.degree:,}: the chance of an error is {chance:.2g}"
            )
        return Equality("equal", chance, elements=elements, draws=DRAWS)
    found_apart = _witness(sides, apart, structs, known, tree, random, casts == "exact")
    parting = parting_of(sides, given, DRAWS, casts == "exact")
    if found_apart is None:
        return Equality(
            "undecided",
            reason="they are not equal by the laws of a field alone, and no floats were found that tell them apart"
            + ("" if parting is None else f"; they part in {parting}"),
            line=None if parting is None else parting.line,
        )
    path, element, values, inputs = found_apart
    return Equality("different", witness=Witness(path, element, values, inputs, parting))


def _floats(known: Sequence[Any], structs: Sequence[Any], random: np.random.Generator, is_positive: bool) -> list[Any]:
    """Inputs in float64."""
    real = (lambda shape: random.uniform(0.1, 2, shape)) if is_positive else random.standard_normal
    draw = lambda own: real(own.shape) + (1j * real(own.shape) if own.dtype.kind == "c" else 0)  # noqa: E731
    return [draw(own) if value is None else in_float64(value) for value, own in zip(known, structs, strict=True)]


def _witness(
    sides: Sequence[Side],
    apart: Sequence[np.ndarray],
    structs: Sequence[Any],
    known: Sequence[Any],
    tree: Any,
    random: np.random.Generator,
    casts: bool,
) -> tuple[Any, ...] | None:
    """A result, an element of it, what both compute there, and of what; None where no floats tell them apart."""
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        start = time.monotonic()
        for turn in range(_TRIED):
            if turn > 1 and time.monotonic() - start > _SECONDS:
                break
            given = _floats(known, structs, random, is_positive=turn % 2 == 1)
            try:
                first, second = (side.results(Floats(casts), given) for side in sides)
            except NotUnderstood:
                return None
            best = (0.0, None)
            for k, (a, b, differs) in enumerate(zip(first, second, apart, strict=True)):
                a, b = (np.asarray(own, np.complex128 if np.iscomplexobj(own) else np.float64) for own in (a, b))
                size = np.maximum(np.abs(a), np.abs(b))
                with np.errstate(invalid="ignore", divide="ignore"):
                    far = np.where(differs & (a != b), np.abs(a - b) / np.maximum(size, 1e-9 * size.max(initial=0)), 0)
                far = np.where(np.isnan(a) != np.isnan(b), np.where(differs, np.inf, 0), np.nan_to_num(far))
                if far.size and far.max() > best[0]:
                    at = np.unravel_index(int(far.argmax()), far.shape)
                    best = far.max(), (sides[0].paths[k], tuple(map(int, at)), (a[at].item(), b[at].item()))
            if best[1] is not None and best[0] > _APART:
                return (*best[1], jax.tree.unflatten(tree, given))
    return None
