"""Passes: from jaxpr to jaxpr, before anything is added to a graph.

Each is a plain function, in a file of its name:

open_primitives   primitives of other libraries become what they are made of
inline_small      calls of jitted functions that are no functions of the graph become what they call
pads_of_windows   zeros that windows sum over are options of the sum
outer_products    products that sum over nothing are elementwise
known_turns       what turns of scans make of known floats alone is made apart, for the next one
fold_constants    what only depends on what is known is known
share_equal       the same work on the same operands is done once
drop_unused       what no output needs is left out
fuse_elementwise  neighbouring elementwise equations of one shape are one
free_early        what frees memory is done as soon as it can be
bodies            the jaxprs of loops, choices and calls, to which each pass is applied as well
contraction       which equations may be one without a cycle
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from jax.extend import core as jax_core

from codelet.frontends.passes.drop_unused import drop_unused
from codelet.frontends.passes.fold_constants import fold_constants
from codelet.frontends.passes.free_early import free_early
from codelet.frontends.passes.fuse_elementwise import fuse_elementwise
from codelet.frontends.passes.inline_small import inline_small
from codelet.frontends.passes.open_primitives import open_primitives
from codelet.frontends.passes.outer_products import outer_products
from codelet.frontends.passes.pads_of_windows import pads_of_windows
from codelet.frontends.passes.share_equal import share_equal


def simplify(closed: jax_core.ClosedJaxpr, paths: Sequence[str], owned: Collection[int] = ()) -> jax_core.ClosedJaxpr:
    """A jaxpr after all passes, in order.

    Args:
        closed: the traced jaxpr.
        paths: where each of its inputs is in the arguments of the user's function.
        owned: of its inputs, by position, those that are not needed afterwards.
    """
    changes = (open_primitives, inline_small, pads_of_windows, outer_products, fold_constants, share_equal, drop_unused)
    for change in changes:
        closed = change(closed)
    fused = fuse_elementwise(closed, dict(zip(closed.jaxpr.invars, paths, strict=True)))
    return free_early(fused, owned)
