"""Row rules: what a primitive does to the elements of rows.

For each primitive that can be run on the elements of all rows at once, every parameter that it is known to have:
an equation with another that is not None, which a later release of JAX may have, is of none of these rules. A
parameter that says along which dimensions a primitive works decides whether it treats the elements of a row alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core as jax_core

from codelet.jaxprs import primitives
from codelet.jaxprs.rebuild import inline
from codelet.tracing.lengths import Symbol, is_length


class NoRule(Exception):
    """A codelet does to its rows what no segment rule does: why, in words. No user sees it raised."""


# --- shapes ---------------------------------------------------------------------------------------------


def shape_of(atom: Any) -> tuple[Any, ...]:
    """The shape of a value of a jaxpr."""
    return atom.aval.shape


def dtype_of(atom: Any) -> Any:
    """The dtype of a value of a jaxpr."""
    return atom.aval.dtype


def ragged_place(shape: Sequence[Any]) -> int | None:
    """The dimension of a shape that is as long as the row."""
    found = [d for d, size in enumerate(shape) if isinstance(size, Symbol)]
    if len(found) > 1 or any(not is_length(shape[d]) for d in found):
        raise NoRule("the codelet has a value whose size is not that of the row")
    return found[0] if found else None


def _places(atoms: Sequence[Any]) -> list[int | None]:
    return [ragged_place(shape_of(atom)) for atom in atoms]


# --- parameters -----------------------------------------------------------------------------------------

_ALONG = (
    *("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"),
    *("split", "sort", "concatenate", "argmax", "argmin", "rev", *primitives.REDUCTIONS),
)
"""What works along some dimensions, which `axis`, `axes`, `dimension` or `dimensions` names."""

_RESHAPING = ("transpose", "squeeze", "broadcast_in_dim", "reshape", "stack", "slice")

ROW_RULES = (*primitives.ELEMENTWISE, *_ALONG, *_RESHAPING, *primitives.CUSTOM, "dot_general", "iota", "dim_as_value")
"""Every primitive that there is a rule for."""

SIZES = {"broadcast_in_dim": "shape", "reshape": "new_sizes", "slice": "limit_indices", "iota": "shape"}
"""The parameter that holds a shape, which may name the length of the row."""


def check_understood(eqn: jax_core.JaxprEqn) -> None:
    """See that an equation is of a primitive that there is a rule for, and has no parameter unknown to it.

    Raises:
        NoRule: it is not, or has one.
    """
    if eqn.effects or not primitives.is_understood(eqn, *ROW_RULES):
        raise NoRule(f"there is no rule of segments for its {eqn.primitive.name}")


# --- rules ----------------------------------------------------------------------------------------------


def _goes_along(pairs: tuple[Sequence[int], Sequence[int]], at: Sequence[int | None]) -> bool:
    """Whether dimensions of the two operands of a dot that go together are, among others, those that are ragged."""
    return tuple(at) in list(zip(*pairs, strict=True))


def _dot_is_elementwise(eqn: jax_core.JaxprEqn) -> bool:
    contracted, batch = eqn.params["dimension_numbers"]
    at = _places(eqn.invars)
    if None not in at:
        return _goes_along(batch, at)
    return not any(d in own for own, d in zip(contracted, at, strict=True))


def _keeps_rows(eqn: jax_core.JaxprEqn) -> bool:
    """Whether a broadcast, a reshape or a slice keeps every row in a dimension of its own, element by element."""
    params, (at, *_) = eqn.params, _places(eqn.invars)
    to = ragged_place(shape_of(eqn.outvars[0]))
    match eqn.primitive.name:
        case "broadcast_in_dim":
            return at is None or params["broadcast_dimensions"][at] == to
        case "reshape":
            before, after = shape_of(eqn.invars[0]), shape_of(eqn.outvars[0])
            in_order = params["dimensions"] is None and at is not None and to is not None
            return in_order and math.prod(before[:at]) == math.prod(after[:to])
        case _:
            strides = params["strides"]
            whole = at is not None and params["start_indices"][at] == 0 and (strides is None or strides[at] == 1)
            return whole and at == to


def is_elementwise(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation treats the elements of a row alike: each as it would in a row of one element.

    Raises:
        NoRule: one that there is no rule for.
    """
    check_understood(eqn)
    name, params = eqn.primitive.name, eqn.params
    ragged = {d for d in _places(eqn.invars) if d is not None}
    _places(eqn.outvars)
    if name in primitives.ELEMENTWISE or name in ("transpose", "squeeze", "stack"):
        return True
    if name in ("broadcast_in_dim", "reshape", "slice"):
        return _keeps_rows(eqn)
    if name in _ALONG:
        (along,) = params.keys() & {"axis", "axes", "dimension", "dimensions"}
        own = params[along]
        return not ragged & set(own if isinstance(own, tuple) else (own,))
    if name == "dot_general":
        return _dot_is_elementwise(eqn)
    if name in primitives.CUSTOM:
        return all(is_elementwise(part) for part in inline(params["call_jaxpr"]).jaxpr.eqns)
    return False


COMBINE: dict[str, Callable[..., Any]] = {
    "reduce_sum": jax.ops.segment_sum,
    "dot_general": jax.ops.segment_sum,
    "reduce_max": jax.ops.segment_max,
    "reduce_min": jax.ops.segment_min,
    "reduce_or": jax.ops.segment_max,
    "reduce_and": jax.ops.segment_min,
}
"""What reduces rows, and how the parts of elements are combined to what it makes of their row."""


def reduces_rows(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation reduces every row: to the sum, or the like, of its elements."""
    name, params = eqn.primitive.name, eqn.params
    if name not in COMBINE:
        return False
    at = _places(eqn.invars)
    if name == "dot_general":
        reduces = _goes_along(params["dimension_numbers"][0], at)
    else:
        bits = name in ("reduce_or", "reduce_and") and dtype_of(eqn.invars[0]) != np.dtype(bool)
        reduces = at[0] is not None and at[0] in params["axes"] and not bits
    if reduces:
        check_understood(eqn)
    return reduces


def _has_size(param: Any) -> bool:
    """Whether a size that is not known stands in a parameter."""
    if isinstance(param, (jax_core.Jaxpr, jax_core.ClosedJaxpr)):
        inner = param.jaxpr if isinstance(param, jax_core.ClosedJaxpr) else param
        atoms = [*inner.invars, *inner.outvars, *(v for e in inner.eqns for v in (*e.invars, *e.outvars))]
        shapes = [size for atom in atoms for size in getattr(atom.aval, "shape", ())]
        return any(map(_has_size, [*shapes, *(p for e in inner.eqns for p in e.params.values())]))
    if isinstance(param, (tuple, list)):
        return any(map(_has_size, param))
    return isinstance(param, Symbol)


def of_one_element(eqn: jax_core.JaxprEqn) -> jax_core.JaxprEqn:
    """An equation where rows have one element.

    Raises:
        NoRule: the length of the row is in a parameter that is no shape.
    """
    params = dict(eqn.params)
    name = SIZES.get(eqn.primitive.name)
    if name is not None:
        params[name] = tuple(1 if is_length(size) else size for size in params[name])
    if any(map(_has_size, params.values())):
        raise NoRule(f"its {eqn.primitive.name} knows the length of the row")
    return eqn.replace(params=params)
