"""Unchanged: whether a codelet's function still computes what it computed when it was traced.

In comes a traced codelet. Nothing comes out, but an error where its function, traced anew, says something else. Names
that it captures are frozen (`captured.py`), so this is what changed inside of a list, a dict or an object: a lowered
graph has what was there then, and a function that is called has what is there now.
"""

from __future__ import annotations

from jax.extend import core as jax_core

from codelet.errors import CodeletTraceError, Line
from codelet.tracing.alike import alike
from codelet.tracing.statics import restored
from codelet.tracing.traced_codelet import TracedCodelet


def _traced_now(traced: TracedCodelet) -> jax_core.ClosedJaxpr | None:
    """The jaxpr of its function as it is now; None where it cannot be traced any more."""
    try:
        with restored(traced.settings):
            return traced.codelet.trace_fresh(traced.inputs, traced.static).jaxpr
    except Exception:
        return None


def check_unchanged(traced: TracedCodelet, line: Line | None = None) -> None:
    """See that a codelet's function computes what it computed when it was traced.

    What has effects, or fields of several lengths, is not looked at, nor what captures nothing; and a function that
    says something else every time, as one that makes a callback anew, is none that changed.

    Raises:
        CodeletTraceError: it computes something else.
    """
    ragged = any(kind.is_ragged for kind in traced.inputs.values())
    if not traced.codelet.may_hold_more or traced.has_effects or ragged:
        return
    now = _traced_now(traced)
    if now is not None and alike(now, {}, traced.jaxpr):
        return
    again = _traced_now(traced)
    is_settled = now is again is None or (now is not None and again is not None and alike(now, {}, again))
    if is_settled:
        raise CodeletTraceError(
            f"codelet {traced.name!r} uses a value that has changed since its vertices were added",
            given="something else in a list, a dict or an object that it captures",
            expected="what was there when it was traced, as a lowered graph has it",
            fix="a static value or vertex state, or a number or a tuple, which are taken as they are then",
            line=line,
        )
