"""Jaxprs in files: plain data, with arrays beside it, and the jaxpr that it is.

This is the one way in which a jaxpr is written: in the files of `cl.save`, in pickles, and in keys of caches.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from jax.extend import core as jax_core

from codelet.errors import SavingError
from codelet.jaxprs import saved_rules, structured  # noqa: F401 (they register primitives)
from codelet.jaxprs.jaxpr_codec import JaxprReader, JaxprWriter
from codelet.jaxprs.plain import NotPlainError, Plain


class SavedJaxpr(NamedTuple):
    """A jaxpr as plain data, with the arrays that this refers to."""

    plain: Plain
    arrays: tuple[np.ndarray, ...]


def saved_jaxpr(jaxpr: jax_core.ClosedJaxpr, name: str) -> SavedJaxpr:
    """A jaxpr as plain data.

    Args:
        jaxpr: the jaxpr to write.
        name: the codelet's, for errors.

    Raises:
        SavingError: it holds a function of Python's, or primitives that are not of the set.
    """
    writer = JaxprWriter()
    try:
        return SavedJaxpr(writer.jaxpr(jaxpr), tuple(writer.arrays))
    except NotPlainError as error:
        raise refused_codelet(name, str(error)) from None


def refused_codelet(name: str, what: str, where: str = "") -> SavingError:
    """The error of a codelet whose jaxpr cannot be written."""
    return SavingError(
        f"codelet {name!r}{where} cannot be saved: its jaxpr holds something that files have no form for",
        given=what,
        expected="equations of JAX's public primitives, whose parameters are numbers, text and jaxprs",
        fix="compute without a callback to Python: what the host does belongs before the run, after it, or in a stream",
    )


def read_jaxpr(saved: SavedJaxpr) -> jax_core.ClosedJaxpr:
    """The jaxpr that plain data is.

    >>> import pickle
    >>> saved = saved_jaxpr(jax.make_jaxpr(lambda x: 2 * x)(np.ones(3)), "double")
    >>> print(read_jaxpr(pickle.loads(pickle.dumps(saved))))
    { lambda ; a:f32[3]. let b:f32[3] = mul 2.0:f32[] a in (b,) }
    """
    with jax.enable_x64(bool(saved.plain["is_wide"])):
        return JaxprReader(saved.arrays).closed(saved.plain)
