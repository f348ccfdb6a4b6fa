"""In place: updates that XLA would miscompile are made in another way.

In comes a jaxpr, out comes one without the updates that are in danger: of `dynamic_update_slice`, and of scatters to
one place, which XLA makes the same of. XLA's CPU backend runs an update in place, fused with what computes the new
values and the place. It looks whether these read the array that is overwritten, but not whether they read it in
another shape: where the array is another one's elements, and they are computed from that other one, the fusion reads
what it has overwritten (jax 0.10.2, and 0.12.0 as reported; `tests/test_in_place.py` has it in five lines).

Which shape an array has there is XLA's own matter: it multiplies, gathers and slices in shapes of its own, moves
reshapes past operations by element, and leaves out what does nothing. So an update is in danger unless one of these
holds, which no rewriting changes:

- its array is pinned: carried by a loop that XLA keeps, a constant, what an update in place or a scatter of elements
  made, or computed from such by element. XLA knows it in its shape, and compiles the update rightly;
- its new values and its place depend on nothing whose elements the array may hold, itself above all. An array may
  hold those of whatever it is computed from through values with at least as many elements, and, where parts are put
  together, through values with at least as many as a part;
- it writes one element, of which all is read before.

Functions of the graph are inlined, and their inputs may be anything of each other. What the whole is given may be
computed in any way, in whatever program it is jitted in, but each array by itself.

Known weaknesses: whoever jits the whole together with reshapes of their own, and gives it one array twice in two
shapes, may meet XLA's mistake, as in plain JAX (to count on it would make the stencil of 64 x 64 three times as slow,
and an update of 64 rows of a donated array of 2048 x 2048 twelve times); two arrays that a loop carries count as two,
though XLA joins those that never differ; and updates inside derivative rules of a codelet's own are left as they are.

In danger, what is an eighth of the array or more is padded to its whole and chosen by a mask, what is less is
scattered to known positions; the array is pinned by either. Measured with jax 0.10.2 on two cores of a CPU, in ms for
20 updates in a loop of float32, 2048 x 2048 or 2^22, in which new values are computed from old ones (and, in brackets,
from others):

                   in place     pad, select   concatenate   scatter, flat   scatter, by dimension
    [:, 1::2]      62 (7)         22 (20)        30 (23)         60 (40)         490 (450)
    [1::2, ::2]    51 (4)         24 (25)        20 (24)         18 (15)          17 (18)
    [1::4]         58 (5)         27 (22)        41 (28)         22 (15)
    [1::8]         64 (4)         27 (27)        29 (26)         13 (9)
    [1::128]       57 (2)         42 (24)        22 (15)          4 (3)

Values computed from others are not in danger, and stay in place. In the gradient a scatter takes about twice as
long as the others (4.4 to 1.7 for [1::2], 1.8 to 1.0 for [1::8]), and it runs on one core alone: so it is
chosen only where little is written.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import bodies_of, evaluate, is_function, scan_counts, variables
from codelet.jaxprs.primitives import ELEMENTWISE, SCATTERS, is_understood
from codelet.jaxprs.rebuild import rewrite
from lowering.arrays import SMALL, Array, constant
from lowering.platforms import is_meant

MOST_SCATTERED = 1 / 8
"""The part of an array from which on an update is padded and chosen by a mask rather than scattered."""

_JOINING = ("concatenate", "stack")
"""Primitives that put parts together: of the parts of an array, XLA sees that they make the array."""

Item = TypeVar("Item")


def _size(kind: Any) -> int:
    return math.prod(kind.shape) if hasattr(kind, "shape") else 1


def _shape(atom: Any) -> tuple[int, ...]:
    return atom.aval.shape


def _in_place(eqn: jax_core.JaxprEqn) -> bool:
    """Whether XLA makes an update in place of an equation that writes to an array."""
    return eqn.primitive.name == "dynamic_update_slice" or math.prod(_shape(eqn.invars[1])[:-1]) == 1


def _is_by_element(eqn: jax_core.JaxprEqn) -> bool:
    """Whether a scatter writes single elements, which XLA does in a loop that carries the array in its shape."""
    numbers, every = eqn.params["dimension_numbers"], tuple(range(len(_shape(eqn.invars[0]))))
    return numbers.inserted_window_dims == numbers.scatter_dims_to_operand_dims == every


def _grows(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation's result has more elements than what it is made of."""
    return _size(eqn.outvars[0].aval) > _size(eqn.invars[0].aval)


def _written(eqn: jax_core.JaxprEqn) -> int:
    """How many elements an update writes."""
    return _size(eqn.invars[1 if eqn.primitive.name == "dynamic_update_slice" else 2].aval)


def _is_scattered(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an update in danger is scattered: a small one to places that are known."""
    if eqn.primitive.name != "dynamic_update_slice" or variables(eqn.invars[2:]):
        return False
    return _written(eqn) < MOST_SCATTERED * _size(eqn.invars[0].aval)


# --- what is in danger ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _InlinedValue:
    """A value that XLA sees, after it has inlined what it inlines.

    Attributes:
        size: how many elements it has.
        sources: what it is computed from, unless XLA surely makes it before whatever reads it.
        held: those of the sources whose very elements it may hold.
        is_joined: whether it may hold those of another value where each of its parts holds some of them.
        is_written: whether it is a part written to something, or padded.
        is_pinned: whether XLA surely knows it in its shape.
        is_known: whether it is computed from constants alone, so that XLA may know its elements.
        number: greater than those of all that it is computed from.
    """

    size: float
    sources: tuple[_InlinedValue, ...] = ()
    held: tuple[_InlinedValue, ...] = ()
    is_joined: bool = False
    is_written: bool = False
    is_pinned: bool = False
    is_known: bool = False
    number: int = field(default_factory=itertools.count().__next__)


def _reached(first: Iterable[Item], following: Callable[[Item], Iterable[Item]]) -> set[Item]:
    """What is reached from some items, themselves with them."""
    found, left = set(first), [*first]
    while left:
        fresh = set(following(left.pop())) - found
        found |= fresh
        left.extend(fresh)
    return found


def _held_by(array: _InlinedValue) -> set[_InlinedValue]:
    """The values whose elements an array may hold all of, itself among them."""

    def following(own: tuple[_InlinedValue, float]) -> list[tuple[_InlinedValue, float]]:
        value, least = own
        each = [(held, min(least, held.size) if value.is_joined else least) for held in value.held]
        return [(held, size) for held, size in each if held.size >= size]

    return {held for held, _ in _reached([(array, array.size)], following) if held.size >= array.size}


def _is_in_danger(array: _InlinedValue, others: Sequence[_InlinedValue]) -> bool:
    """Whether an update of an array may run where it still reads what it overwrites, for its values or its place."""
    if array.is_pinned:
        return False
    overwritten = _held_by(array)
    first = min(own.number for own in overwritten)

    def recent(values: Iterable[_InlinedValue]) -> list[_InlinedValue]:
        return [own for own in values if own.number >= first]

    def following(own: _InlinedValue) -> list[_InlinedValue]:
        return recent(own.sources)

    return not overwritten.isdisjoint(_reached(recent(others), following))


def _constant(value: Any) -> _InlinedValue:
    return _InlinedValue(np.size(value), is_pinned=True, is_known=True)


def _pinned(var: Any) -> _InlinedValue:
    """What XLA makes before whatever reads it, in its shape."""
    return _InlinedValue(_size(var.aval), is_pinned=True)


def _anything(var: Any, sources: Sequence[_InlinedValue], **attributes: bool) -> _InlinedValue:
    """What may have been made of its sources."""
    own = tuple(sources)
    return _InlinedValue(_size(var.aval), own, own, is_known=all(source.is_known for source in own), **attributes)


def _of_one_origin(variables: Iterable[Any], sources: Iterable[_InlinedValue] = ()) -> list[_InlinedValue]:
    """What may have been made of its sources in any way, and each of them of another."""
    own = tuple(sources)
    origin = _InlinedValue(math.inf, own, own, is_known=bool(own) and all(source.is_known for source in own))
    return [_anything(var, [origin]) for var in variables]


def _keeps_pins(eqn: jax_core.JaxprEqn, inputs: Sequence[_InlinedValue]) -> bool:
    """Whether a result is pinned: by element of pinned operands or one number, or a part that is chosen."""
    if is_understood(eqn, "select_n") and inputs[0].is_written and any(own.is_written for own in inputs[1:]):
        return True  # it is no part alone, and XLA moves reshapes past an operation where all its operands are such
    if not is_understood(eqn, *ELEMENTWISE, "broadcast_in_dim"):
        return False
    shapes, own = [*map(_shape, eqn.invars)], _shape(eqn.outvars[0])
    return all(not shape or (shape == own and value.is_pinned) for shape, value in zip(shapes, inputs, strict=True))


def _is_counted(eqn: jax_core.JaxprEqn, inputs: Sequence[_InlinedValue]) -> bool:
    """Whether XLA may know how often a loop on a condition runs: it leaves out one that runs once, or never."""
    condition, num_consts = eqn.params["cond_jaxpr"].jaxpr, eqn.params["cond_nconsts"]
    used = {atom for one in condition.eqns for atom in variables(one.invars)} | set(variables(condition.outvars))
    given = [*inputs[:num_consts], *inputs[num_consts + eqn.params["body_nconsts"] :]]
    return all(value.is_known for var, value in zip(condition.invars, given, strict=True) if var in used)


class _DangerSearch:
    """Looks for updates in danger, through the jaxprs within a jaxpr."""

    def __init__(self) -> None:
        self.found: set[jax_core.JaxprEqn] = set()

    def run(self, jaxpr: jax_core.ClosedJaxpr, inputs: Iterable[_InlinedValue]) -> list[_InlinedValue]:
        """What a jaxpr makes of its inputs."""
        return evaluate(jaxpr, list(inputs), self.results, known=_constant)

    def results(self, eqn: jax_core.JaxprEqn, inputs: Sequence[_InlinedValue]) -> list[_InlinedValue]:
        name = eqn.primitive.name
        if is_function(eqn):
            return _DangerSearch().run(eqn.params["jaxpr"], inputs)  # its own updates were looked at when it was made
        if name == "while" and not _is_counted(eqn, inputs):
            return self.loop(eqn, inputs)
        if name == "scan" and eqn.params["length"] // eqn.params["unroll"] > 1:
            return self.loop(eqn, inputs)
        if name == "cond":
            made = zip(*(self.run(body, inputs[1:]) for body in bodies_of(eqn)), strict=True)
            return [
                _anything(var, (inputs[0], *own), is_pinned=all(value.is_pinned for value in own))
                for var, own in zip(eqn.outvars, made, strict=True)
            ]
        if is_understood(eqn, "dynamic_update_slice", *SCATTERS):
            return [self.update(eqn, inputs)]
        if bodies := bodies_of(eqn):  # a loop of which XLA makes none
            made = [one for body in bodies for one in self.run(body, _of_one_origin(body.jaxpr.invars, inputs))]
            return _of_one_origin(eqn.outvars, [*inputs, *made])
        is_pinned, is_joined = _keeps_pins(eqn, inputs), name in _JOINING
        return [
            _anything(var, inputs, is_joined=is_joined, is_written=name == "pad" and _grows(eqn), is_pinned=is_pinned)
            for var in eqn.outvars
        ]

    def update(self, eqn: jax_core.JaxprEqn, inputs: Sequence[_InlinedValue]) -> _InlinedValue:
        """What comes of an update."""
        (var,), array, written = eqn.outvars, inputs[0], _written(eqn)
        if written in (0, array.size):
            return _anything(var, inputs)  # XLA sees that it is the array, or the new values
        if _in_place(eqn) and written > 1 and _is_in_danger(array, inputs[1:]):
            self.found.add(eqn)
            if not _is_scattered(eqn):
                return _anything(var, inputs, is_pinned=True)
        is_pinned, is_known = _in_place(eqn) or _is_by_element(eqn), all(own.is_known for own in inputs)
        return _InlinedValue(array.size, tuple(inputs), is_written=True, is_pinned=is_pinned, is_known=is_known)

    def loop(self, eqn: jax_core.JaxprEqn, inputs: Sequence[_InlinedValue]) -> list[_InlinedValue]:
        """What comes of a loop that XLA keeps. What never changes in it is what it was before."""
        params = eqn.params
        if eqn.primitive.name == "scan":
            (body,), (kept, num_carried) = bodies_of(eqn), scan_counts(eqn)
            carried = range(kept, kept + num_carried)
            outside = list(inputs)
        else:
            condition, body = bodies_of(eqn)
            outside, kept = list(inputs[params["cond_nconsts"] :]), params["body_nconsts"]
            self.run(condition, _of_one_origin(condition.jaxpr.invars, inputs))
            carried = range(kept, len(outside))
        jaxpr = body.jaxpr
        inside = list(outside)
        for k, var in enumerate(jaxpr.invars):
            if k in carried and jaxpr.outvars[k - kept] is not var:
                inside[k] = _pinned(var)
            elif k >= kept and k not in carried:
                inside[k] = _anything(var, [outside[k]])  # a part of what is scanned over
        self.run(body, inside)
        return [_pinned(var) for var in eqn.outvars]


Inputs = Literal["carried", "apart", "any"]
"""What the inputs of a jaxpr are: carried by a loop; arrays computed in any way, but each by itself; or anything."""


def updates_in_danger(closed: jax_core.ClosedJaxpr, inputs: Inputs = "any") -> set[jax_core.JaxprEqn]:
    """The equations of a jaxpr, and of those within it, that update an array as XLA would miscompile it.

    Args:
        closed: what is to run.
        inputs: what its inputs are.
    """
    search, own = _DangerSearch(), closed.jaxpr.invars
    made: dict[Inputs, Callable[[], list[_InlinedValue]]] = {
        "carried": lambda: [_pinned(var) for var in own],
        "apart": lambda: [_InlinedValue(_size(var.aval)) for var in own],
        "any": lambda: _of_one_origin(own),
    }
    search.run(closed, made[inputs]())
    return search.found


# --- another way ----------------------------------------------------------------------------------------


def scattered(array: Array, value: Array, starts: Sequence[int]) -> Array:
    """An array with a value at known positions, element by element."""
    kind = np.int32 if max(array.shape) < 2**31 else np.int64
    if value.size <= SMALL:
        known = np.indices(value.shape, kind) + np.asarray(starts, kind).reshape(-1, *[1] * value.ndim)
        places = [constant(own) for own in known]
    else:
        places = [
            lax.broadcasted_iota(kind, value.shape, d) + np.asarray(start, kind)
            if value.shape[d] > 1
            else np.full(value.shape, start, kind)
            for d, start in enumerate(starts)
        ]
    return array.at[tuple(places)].set(
        value,
        mode="promise_in_bounds",
        unique_indices=True,
        indices_are_sorted=True,
        wrap_negative_indices=False,
    )


def _chosen(array: Array, value: Array, starts: Sequence[int]) -> Array:
    """An array with a value padded to its shape where a mask says so."""
    sides = zip(array.shape, value.shape, starts, strict=True)
    widths = [(start, extent - start - length, 0) for extent, length, start in sides]
    padded = lax.pad(value, jnp.zeros((), value.dtype), widths)
    return lax.select(lax.pad(jnp.ones(value.shape, bool), np.bool_(False), widths), padded, array)


def _chosen_late(array: Array, value: Array, starts: Sequence[Array]) -> Array:
    """An array with a value at positions that data give, clamped, where comparisons say so.

    A mask that is updated itself is read twice as quickly on a CPU, but gradients keep it for every turn of a loop.
    """
    kind = np.int32 if max(array.shape) < 2**31 else np.int64
    inside: Any = None
    is_thin = True
    for d, (start, extent, length) in enumerate(zip(starts, array.shape, value.shape, strict=True)):
        if length < extent:
            last = min(extent - length, int(jnp.iinfo(start.dtype).max))
            first = lax.clamp(np.zeros((), start.dtype), start, np.asarray(last, start.dtype)).astype(kind)
            places = lax.broadcasted_iota(kind, array.shape, d) - first
            own = places == 0 if length == 1 else (places >= 0) & (places < length)
            inside = own if inside is None else inside & own
            is_thin &= length == 1
    if is_thin:
        new = lax.broadcast_in_dim(value, array.shape, range(value.ndim))
    else:  # what is updated here is new, and so no other array
        new = lax.dynamic_update_slice(jnp.zeros_like(array), value, starts, allow_negative_indices=False)
    return lax.select(inside, new, array)


def _combined(eqn: jax_core.JaxprEqn, old: Array, new: Array) -> Array:
    """What an update makes of old elements, if it wrote everywhere."""
    if eqn.params.get("update_jaxpr") is None:
        return new
    by_element = jax_core.jaxpr_as_fun(jax_core.ClosedJaxpr(eqn.params["update_jaxpr"], eqn.params["update_consts"]))
    return lax.reshape(jax.vmap(by_element)(lax.reshape(old, (old.size,)), lax.reshape(new, (new.size,)))[0], old.shape)


def _updated(eqn: jax_core.JaxprEqn, inputs: Sequence[Any]) -> Array:
    """What an equation that updates an array gives, not in place."""
    array, *others = (jnp.asarray(operand) for operand in inputs)
    if eqn.primitive.name != "dynamic_update_slice":
        indices, value = others
        names = ("dimension_numbers", "indices_are_sorted", "unique_indices", "mode")
        settings = {name: eqn.params[name] for name in names}
        write = lambda empty, value: lax.scatter(empty, indices, value, **settings)  # noqa: E731
    elif variables(eqn.invars[2:]):
        value, *starts = others
        if is_meant("updates by comparisons"):
            return _chosen_late(array, value, starts)
        # Its starts are the equation's, which only clamps them.
        write = lambda empty, value: lax.dynamic_update_slice(empty, value, starts, allow_negative_indices=False)  # noqa: E731
    else:
        value, shape = others[0], array.shape
        spans = zip(eqn.invars[2:], shape, value.shape, strict=True)
        known = [min(max(0, int(atom.val)), extent - length) for atom, extent, length in spans]  # type: ignore[union-attr]
        return (scattered if _is_scattered(eqn) else _chosen)(array, value, known)
    # What is updated here is new, and so no other array.
    padded, mask = write(jnp.zeros_like(array), value), write(jnp.zeros(array.shape, bool), jnp.ones(value.shape, bool))
    return lax.select(mask, _combined(eqn, array, padded), array)


def update_safely(closed: jax_core.ClosedJaxpr, inputs: Inputs = "any") -> jax_core.ClosedJaxpr:
    """A jaxpr with the updates that XLA would miscompile made in another way, in the bodies of loops as well.

    Args:
        closed: what is to run.
        inputs: what its inputs are.
    """
    found = updates_in_danger(closed, inputs)
    rule = lambda eqn: (lambda *operands: [_updated(eqn, operands)]) if eqn in found else None  # noqa: E731
    return rewrite(closed, rule)
