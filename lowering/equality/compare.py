"""Comparison of two programs, given as evaluators.

Both are evaluated at the same random points of a prime field (`codelet/field`). Where they differ there, both are run
in float64 for a witness; without one nothing is said.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

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

DRAWS = (4, 8, 16)
"""So many random points, each of 31 bits; more where the chance of an error is too great with fewer."""

_CHANCE = 2.0**-40
"""Of an error, at most."""

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


class _Examples(NamedTuple):
    """The inputs of both sides.

    Attributes:
        tree: the structure of it.
        structs: the shape and dtype of each leaf.
        known: each leaf that is no float; None for the others.
    """

    tree: Any
    structs: list[Any]
    known: list[Any]

    def points(self, random: np.random.Generator, draws: int) -> list[Value]:
        """Random points."""
        pairs = zip(self.known, self.structs, strict=True)
        return [_drawn(random, own, draws) if value is None else value for value, own in pairs]

    def floats(self, random: np.random.Generator, is_positive: bool) -> list[Any]:
        """Numbers in float64."""
        real = (lambda shape: random.uniform(0.1, 2, shape)) if is_positive else random.standard_normal
        draw = lambda own: real(own.shape) + (1j * real(own.shape) if own.dtype.kind == "c" else 0)  # noqa: E731
        pairs = zip(self.known, self.structs, strict=True)
        return [draw(own) if value is None else in_float64(value) for value, own in pairs]


def _examples(examples: Any, random: np.random.Generator) -> _Examples:
    leaves, tree = jax.tree.flatten(examples)
    structs = [struct_of(leaf) for leaf in leaves]
    pairs = zip(leaves, structs, strict=True)
    return _Examples(tree, structs, [None if _is_unknown(own.dtype) else _whole(leaf, random) for leaf, own in pairs])


def _is_unknown(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, np.inexact))


def _drawn(random: np.random.Generator, struct: Any, draws: int) -> Value:
    """Random points for an example of floats or complex numbers."""
    parts = [random.integers(0, PRIME, (draws, *struct.shape)) for _ in range(1 + (struct.dtype.kind == "c"))]
    return Unknown(parts[0] if len(parts) == 1 else pair(*parts), struct.dtype)


def _whole(leaf: Any, random: np.random.Generator) -> Any:
    """The input for an example that is no float: itself, or drawn where only its type is given."""
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
        expected="floats, integers or booleans",
    )


def compared(first: Side, second: Side, examples: Any, *, casts: str = "identity", seed: int = 0) -> Equality:
    """Whether two sides compute the same of examples, in whatever structure; see `equal`.

    Raises:
        ProgramError: results of other structures, shapes or dtypes.
    """
    _check_alike(first, second)
    with eval_context():  # under an outer trace, too, all is known
        return _compared((first, second), examples, casts, seed)


def _apart(sides: tuple[Side, Side], given: Sequence[Value], evaluation: Evaluation) -> list[np.ndarray]:
    """Which elements of the results differ at any of the points.

    Raises:
        NotUnderstood: an equation has no meaning over the field.
    """
    found = list[list[np.ndarray]]()
    for side in sides:
        results = side.results(evaluation, given)
        found.append([stored(own, evaluation.draws) for own in results])
        del results
    return [(a != b).any(0) for a, b in zip(*found, strict=True)]


def _chance(evaluation: Evaluation, elements: int) -> float:
    """That so many elements are equal at all points and the programs are not; see docs/equal.md."""
    degrees = evaluation.hashed_degree, evaluation.degree
    of_pair, of_element = ((2.0 * degree / PRIME) ** evaluation.draws for degree in degrees)
    return float(evaluation.hashed) ** 2 * of_pair + elements * of_element


def _compared(sides: tuple[Side, Side], examples: Any, casts: str, seed: int) -> Equality:
    random = np.random.default_rng(seed)
    drawn = _examples(examples, random)
    for draws in DRAWS:
        given, evaluation = drawn.points(random, draws), Evaluation(draws, casts == "exact")
        try:
            apart = _apart(sides, given, evaluation)
        except NotUnderstood as error:
            places = (line_of(eqn) for eqn in (error.eqn, *error.around) if eqn is not None)
            line = next((own for own in (error.line, *places) if own is not None), None)
            return Equality("undecided", reason=str(error), line=line)
        if any(each.any() for each in apart):
            return _parted(sides, apart, drawn, given, evaluation, random)
        elements = sum(each.size for each in apart)
        chance = _chance(evaluation, elements)
        if chance <= _CHANCE:
            return Equality("equal", chance, elements=elements, draws=draws)
    reason = f"its degree is {evaluation.degree:,}: the chance of an error is {chance:.2g}"
    return Equality("undecided", reason=reason)


def _parted(
    sides: tuple[Side, Side],
    apart: Sequence[np.ndarray],
    examples: _Examples,
    given: Sequence[Value],
    evaluation: Evaluation,
    random: np.random.Generator,
) -> Equality:
    """The report on programs whose residues differ."""
    found_apart = _witness(sides, apart, examples, random, evaluation.casts)
    parting = parting_of(sides, given, evaluation.draws, evaluation.casts)
    if found_apart is None:
        return Equality(
            "undecided",
            reason="they are not equal by the laws of a field alone, and no floats were found that tell them apart"
            + ("" if parting is None else f"; they part in {parting}"),
            line=None if parting is None else parting.line,
        )
    path, element, values, inputs = found_apart
    return Equality("different", witness=Witness(path, element, values, inputs, parting))


def _witness(
    sides: Sequence[Side],
    apart: Sequence[np.ndarray],
    examples: _Examples,
    random: np.random.Generator,
    casts: bool,
) -> tuple[Any, ...] | None:
    """A result, an element of it, the value of both there, and the input; None where no floats tell them apart."""
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        start = time.monotonic()
        for turn in range(_TRIED):
            if turn > 1 and time.monotonic() - start > _SECONDS:
                break
            given = examples.floats(random, is_positive=turn % 2 == 1)
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
                return (*best[1], jax.tree.unflatten(examples.tree, given))
    return None
