"""Unchanged: whether a codelet's function still computes the same as when it was traced.

In comes a traced codelet. Nothing comes out, but an error where its function, traced anew, says something else. Names
that it captures are frozen (`captured.py`), so this is about changes inside of a list, a dict or an object. A lowered
graph has the old content, and a function that is called has the present one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jax.extend import core as jax_core

from codelet.errors import CodeletTraceError, Line
from codelet.tracing.alike import alike
from codelet.tracing.captured import apart_within
from codelet.tracing.field_types import Lengths
from codelet.tracing.statics import restored
from codelet.tracing.traced_codelet import TracedCodelet


def _silent(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr without the equations that only print, or do something else of which nothing is computed."""
    kept = [eqn for eqn in closed.jaxpr.eqns if eqn.outvars or not eqn.effects]
    effects = frozenset[object]().union(*(eqn.effects for eqn in kept))
    return jax_core.ClosedJaxpr(closed.jaxpr.replace(eqns=kept, effects=effects), closed.consts)


def _traced_now(
    traced: TracedCodelet, lengths: Lengths, function: Callable[..., Any] | None
) -> jax_core.ClosedJaxpr | None:
    """The jaxpr of its function as it is now, as it was traced for some lengths; None where it cannot be any more."""
    is_apart = tuple(lengths.values()) in traced.apart
    types = {name: kind.at(lengths) if is_apart else kind for name, kind in traced.inputs.items()}
    try:
        return _silent(traced.codelet.trace_fresh(types, traced.static, traced.least, function).jaxpr)
    except Exception:
        return None


def _traces(traced: TracedCodelet, lengths: Sequence[Lengths]) -> Iterator[tuple[jax_core.ClosedJaxpr, Lengths]]:
    """Its traces, each with the lengths that it stands
    for: those that are apart, and one of the others.
    """
    together = [some for some in lengths if tuple(some.values()) not in traced.apart]
    if together or not lengths:
        yield _silent(traced.jaxpr), together[-1] if together else {}
    for some in lengths:
        if tuple(some.values()) in traced.apart:
            yield _silent(traced.at(some).jaxpr), some


def _has_changed(
    traced: TracedCodelet,
    then: jax_core.ClosedJaxpr,
    lengths: Lengths,
    function: Callable[..., Any] | None = None,
) -> bool:
    """True if its function, or a copy of it, says now, and says again, something else than then."""
    known = {str(symbol): length for symbol, length in lengths.items()}
    now = _traced_now(traced, lengths, function)
    if now is not None and alike(then, known, now):
        return False
    again = _traced_now(traced, lengths, function)
    if now is None or again is None:  # a copy may fail where the function does not
        return now is again and function is None
    return alike(now, known, again)


def check_unchanged(traced: TracedCodelet, line: Line | None = None, lengths: Sequence[Lengths] = ()) -> None:
    """Check that a codelet's function computes the same as when it was traced.

    A function that computes by an effect is not checked, nor one that captures nothing; and a function that says
    something else every time, as one that makes a callback anew, is none that changed.

    Args:
        traced: its trace.
        line: the user's, for an error.
        lengths: of a codelet with ragged fields those that are looked at.

    Raises:
        CodeletTraceError: it computes something else.
    """
    if not traced.codelet.may_hold_more or (traced.is_ragged and not lengths):
        return
    for then, some in _traces(traced, lengths):
        with restored(traced.settings):
            has_changed = not then.effects and _has_changed(traced, then, some)
            if not then.effects and not has_changed and (function := apart_within(traced.codelet.function)) is not None:
                has_changed = _has_changed(traced, then, some, function)  # by no array that JAX remembers
        if has_changed:
            raise CodeletTraceError(
                f"codelet {traced.name!r} uses a value that has changed since its vertices were added",
                given="something else in a list, a dict or an object that it captures",
                expected="what was there when it was traced, as a lowered graph has it",
                fix="a static value or vertex state, or a number or a tuple, which are taken as they are then",
                line=line,
            )


def _is_near(a: np.ndarray, b: np.ndarray) -> bool:
    """True if no element is further from another than rounding would take it."""
    if a.dtype.kind in "biu":
        return np.array_equal(a, b)
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    return bool(np.allclose(a.astype(wide), b.astype(wide), rtol=0.05, atol=1e-5, equal_nan=True))


def check_as_traced(
    traced: TracedCodelet,
    inputs: Sequence[Any],
    results: Mapping[str, np.ndarray],
    line: Line | None = None,
    lengths: Sequence[Lengths] = (),
) -> None:
    """Check that a call of a codelet's function gave about the results of its trace, where it captures something.

    JAX keeps some arrays of the host as they were when it first traced with them, so that even a new trace may not
    see that they have changed; a call does.

    Args:
        traced: its trace.
        inputs: the arguments of the call.
        results: its results, by field.
        line: the user's, for an error.
        lengths: those of the ragged fields among the inputs, if there are any.

    Raises:
        CodeletTraceError: it gave something else.
    """
    if not traced.codelet.may_hold_more or traced.has_effects:
        return
    own = traced.at(lengths[0]) if lengths else traced
    made = {name: np.asarray(value) for name, value in own.call(*inputs).items()}
    is_same = all(made[name].tobytes() == value.tobytes() for name, value in results.items())
    if lengths or not is_same:
        check_unchanged(traced, line, lengths)
    if not is_same and not all(_is_near(made[name], value) for name, value in results.items()):
        raise CodeletTraceError(
            f"codelet {traced.name!r} computes something else when it is called than when it was traced",
            given="a function that uses an array in a list, a dict or an object, or that is not pure",
            expected="what was there when it was traced, as a lowered graph has it",
            fix="a static value or vertex state in its place; XLA may also begin a reduction of one element anew",
            line=line,
        )
