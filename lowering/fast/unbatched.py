"""Unbatched: codelets with an equation that `jax.vmap` has no rule for, as those of some libraries' kernels.

Most that JAX lacks are written by other equations when a codelet is traced (`codelet/jaxprs/batchable.py`). What is
left is told when several vertices are to run at once: which primitive it is, and of which codelet.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import jax
from jax.extend import core as jax_core

from codelet.errors import CodeletTraceError, Line
from codelet.jaxprs.equations import bind, inner_jaxprs
from codelet.jaxprs.rebuild import struct
from codelet.tracing.traced_codelet import TracedCodelet


def _is_batched(eqn: jax_core.JaxprEqn, mapped: Sequence[bool]) -> bool:
    """Whether JAX runs an equation under `vmap` over some of its operands."""
    structs = [
        jax.ShapeDtypeStruct((2, *own.shape), own.dtype) if is_mapped else own
        for own, is_mapped in zip(map(struct, eqn.invars), mapped, strict=True)
    ]
    places = tuple(0 if is_mapped else None for is_mapped in mapped)
    try:
        jax.eval_shape(jax.vmap(lambda *own: bind(eqn, own), in_axes=places), *structs)
    except NotImplementedError:
        return False
    except Exception:  # which operands are mapped is tried, and JAX may refuse some for other reasons
        return True
    return True


def _unbatched(jaxpr: jax_core.Jaxpr) -> str | None:
    """The name of a primitive that JAX cannot run under `vmap`, within a jaxpr; None where there is none."""
    for eqn in jaxpr.eqns:
        for inner in inner_jaxprs(eqn):
            if (found := _unbatched(inner)) is not None:
                return found
        count = len(eqn.invars)
        each = [[own == k for own in range(count)] for k in range(count)]
        tried = [[True] * count, *each, *([not own for own in one] for one in each)] if count else []
        if not all(_is_batched(eqn, mapped) for mapped in tried if any(mapped)):
            return eqn.primitive.name
    return None


@contextlib.contextmanager
def telling_unbatched(codelet: TracedCodelet, line: Line | None = None) -> Iterator[None]:
    """Tell which primitive of a codelet it is that JAX has no batching rule for, where it says so meanwhile.

    Raises:
        CodeletTraceError: JAX did.
    """
    try:
        yield
    except NotImplementedError as error:
        primitive, message = _unbatched(codelet.jaxpr.jaxpr), str(error).strip().split("\n")[0]
        raise CodeletTraceError(
            f"codelet {codelet.name!r} cannot run for several vertices at once",
            given=f"primitive {primitive or 'unknown'!r}" + (f"; JAX says: {message}" if message else ""),
            expected="primitives that jax.vmap has a rule for, for these operands",
            fix="other functions of jax.numpy or jax.lax in its place; jax.vmap of the codelet's function shows it too",
            line=line,
        ) from error
