"""Segments: a codelet on all rows of its ragged fields at once.

The codelet's jaxpr for rows of any length is run with three kinds of values: those that all vertices share, those with
one for each row, and those with one for each element of each row. Equations that treat the elements alike run once over
all of them, one that reduces a row is a segment reduction, and the rest runs once over the rows. The number of
equations does not depend on the lengths. A codelet that does something else to its rows, such as to sort them, is none
of these.

In an array of one for each element the ragged dimension comes first, and where the codelet has it there
is one of extent 1: each equation then means, for a row of one element, what it means in the codelet.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.errors import CodeletTraceError
from codelet.jaxprs.equations import bind, evaluate
from codelet.jaxprs.primitives import CUSTOM
from codelet.jaxprs.rebuild import inline
from codelet.tracing.alike import alike
from codelet.tracing.lengths import size_at, watched
from codelet.tracing.traced_codelet import TracedCodelet
from codelet.views.rows import LENGTH_NAMES, Rows
from lowering.arrays import Array, constant, take
from lowering.fast.row_rules import (
    COMBINE,
    NoRule,
    check_understood,
    dtype_of,
    is_elementwise,
    of_one_element,
    ragged_place,
    reduces_rows,
    shape_of,
)

SHARED, BY_ROW, BY_ELEMENT = range(3)


@dataclass(frozen=True, eq=False)
class Segments:
    """Rows as segments of a flat dimension, as arrays, which are made when they are first asked for.

    Attributes:
        rows: whose elements are whose.
        order: the order in which the elements of all rows lie; None where they follow each other, row by row.
    """

    rows: Rows
    order: np.ndarray | None

    def _ordered(self, values: np.ndarray) -> Array:
        values = values.astype(np.int32, copy=False)
        return constant(values if self.order is None else values[self.order])

    @functools.cached_property
    def owners(self) -> Array:
        """The row of each element, int32."""
        return self._ordered(self.rows.owners)

    @functools.cached_property
    def places(self) -> Array:
        """The place of each element within its row, int32."""
        return self._ordered(self.rows.places)

    def computed(self, size: Any, dtype: Any) -> Array:
        """A size that is computed from the length of a row, of each row."""
        return constant(
            np.broadcast_to(size_at(size, {LENGTH_NAMES[0]: self.rows.lengths}), self.rows.count).astype(dtype)
        )


class RowsValue(NamedTuple):
    """A value of the codelet for all vertices.

    Attributes:
        array: with a first dimension of rows or of elements unless it is shared.
        level: SHARED, BY_ROW or BY_ELEMENT.
        ragged: the dimension of the codelet's value that is as long as the row, of extent 1 in `array`; what is
            not by element is the same along it. None where there is none.
    """

    array: Any
    level: int
    ragged: int | None = None


_CUSTOM = "a derivative rule in it is not by element"

# --- running equations ----------------------------------------------------------------------------------


class _RowRun:
    """Runs the equations of a codelet on all rows."""

    def __init__(self, segments: Segments, custom: list[jax_core.JaxprEqn]):
        self.segments = segments
        self.custom = custom
        """Equations with derivative rules of their own that are still to come, as traced for a row of one element."""

    def spread(self, value: RowsValue, level: int) -> RowsValue:
        """A value with one for each row, or for each element of each row, as the level says; or for more already."""
        if value.level >= level:
            return value
        segments = self.segments
        if value.level == BY_ROW:
            array = take(value.array, segments.owners, is_sorted=segments.order is None)
        else:
            count = segments.rows.count if level == BY_ROW else segments.rows.total
            array = jnp.broadcast_to(value.array, (count, *jnp.shape(value.array)))
        return value._replace(array=array, level=level)

    def apply(self, eqn: jax_core.JaxprEqn, values: Sequence[RowsValue], level: int) -> list[RowsValue]:
        """An equation, as for a row of one element, at all rows or elements."""
        values = [value if value.level == SHARED else self.spread(value, level) for value in values]
        if eqn.primitive.name in CUSTOM:
            if not self.custom:
                raise NoRule(_CUSTOM)
            one = self.custom.pop(0)
        else:
            one = of_one_element(eqn)

        def run(*arrays: Array) -> list[Any]:
            return bind(one, arrays)

        if level != SHARED:
            axes = tuple(None if value.level == SHARED else 0 for value in values)
            run = jax.vmap(run, in_axes=axes, axis_size=None)
        arrays = run(*(value.array for value in values))
        return [
            RowsValue(array, level, ragged_place(shape_of(var))) for var, array in zip(eqn.outvars, arrays, strict=True)
        ]

    def reduce(self, eqn: jax_core.JaxprEqn, values: Sequence[RowsValue]) -> RowsValue:
        """A reduction of rows: each element's part of it, then that of the segments."""
        segments, name = self.segments, eqn.primitive.name
        values = [value if value.ragged is None else self.spread(value, BY_ELEMENT) for value in values]
        dtype = dtype_of(eqn.outvars[0])
        if COMBINE[name] is jax.ops.segment_sum and jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize < 4:
            # As XLA adds: every part rounded to so few bits, long rows would be far off.
            values = [value._replace(array=jnp.asarray(value.array, np.float32)) for value in values]
            if name == "dot_general":
                eqn = eqn.replace(params={**eqn.params, "preferred_element_type": np.dtype(np.float32)})
        (part,) = self.apply(eqn, values, BY_ELEMENT)
        array = part.array.astype(jnp.int8) if dtype == jnp.bool_ else part.array
        combined = COMBINE[name](
            array,
            segments.owners,
            segments.rows.count,
            indices_are_sorted=segments.order is None,
            mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS,
        )
        return RowsValue(combined > 0 if dtype == jnp.bool_ else combined.astype(dtype), BY_ROW)

    def equation(self, eqn: jax_core.JaxprEqn, values: Sequence[RowsValue]) -> list[RowsValue]:
        name = eqn.primitive.name
        out = ragged_place(shape_of(eqn.outvars[0]))
        if name == "dim_as_value":
            check_understood(eqn)
            return [RowsValue(self.segments.computed(eqn.params["dim"], dtype_of(eqn.outvars[0])), BY_ROW)]
        if name == "iota" and out is not None and eqn.params["dimension"] == out:
            check_understood(eqn)
            shape = [1 if d == out else n for d, n in enumerate(shape_of(eqn.outvars[0]))]
            places = self.segments.places.astype(dtype_of(eqn.outvars[0]))
            own = places.reshape(places.shape[0], *[1] * len(shape))
            return [RowsValue(jnp.broadcast_to(own, (places.shape[0], *shape)), BY_ELEMENT, out)]
        if reduces_rows(eqn):
            return [self.reduce(eqn, values)]
        concerned = out is not None or any(value.ragged is not None for value in values)
        if concerned and name == "iota":
            check_understood(eqn)
        elif concerned and not is_elementwise(eqn):
            raise NoRule(f"its {name} does not treat the elements of a row alike")
        return self.apply(eqn, values, max((value.level for value in values), default=SHARED))


def _derivative(eqn: jax_core.JaxprEqn) -> jax_core.ClosedJaxpr | None:
    """What an equation with a derivative rule does when it is differentiated; None where the rule fails."""
    structs = [jax.ShapeDtypeStruct(shape_of(atom), dtype_of(atom)) for atom in eqn.invars]

    def forward(*primals: Array) -> Any:
        return jax.jvp(lambda *own: bind(eqn, own), primals, primals)

    def reverse(*primals: Array) -> Any:
        results, back = jax.vjp(lambda *own: bind(eqn, own), *primals)
        return back(results)

    rule = forward if eqn.primitive.name == "custom_jvp_call" else reverse
    try:
        return jax.make_jaxpr(rule)(*structs)
    except Exception:  # only a rule of the user's runs here, which may raise anything for a length that is a symbol
        return None


ORDERS = 2
"""Up to which derivative rules are looked at: a rule that calls itself has one of every order."""


class _SegmentRule:
    """What a derivative rule does in a codelet traced with a symbol for the length, and traced for lengths."""

    def __init__(self, symbolic: jax_core.JaxprEqn, at: Callable[[int], jax_core.JaxprEqn | None]):
        """Of an equation with the rule; `at` gives the same one of the codelet traced for a length, if there is one."""
        sizes = [size for atom in symbolic.invars for size in shape_of(atom) if not isinstance(size, int)]
        self.jaxpr, self.answers = watched(lambda: _derivative(symbolic), sizes)

        @functools.cache
        def known(length: int) -> jax_core.ClosedJaxpr | None:
            eqn = at(length)
            return None if eqn is None else _derivative(eqn)

        self.known = known

    def is_alike(self, length: int) -> bool:
        """True if it does at a length what it does at the symbol."""
        own = self.known(length)
        return self.jaxpr is not None and own is not None and alike(self.jaxpr, {LENGTH_NAMES[0]: length}, own)

    def is_elementwise(self, lengths: Sequence[int], order: int = 1) -> bool:
        """True if it treats the elements of a row alike, and so do the rules in it, at all of some lengths.

        Both traces are compared at one element, which is the trace that runs, and at every length that is doubted.
        Doubt chooses nothing: more of it, as where caches ask by chance, compares more.
        """
        if self.jaxpr is None:
            return False
        doubted = self.answers.doubted([{LENGTH_NAMES[0]: length} for length in lengths])
        if not all(map(self.is_alike, {1, *(lengths[k] for k in doubted)})):
            return False
        opened = inline(self.jaxpr).jaxpr
        if not all(map(is_elementwise, opened.eqns)):
            return False
        inner = _custom(self.jaxpr)
        return order == ORDERS or all(
            _SegmentRule(eqn, functools.partial(self._inner, k)).is_elementwise(lengths, order + 1)
            for k, eqn in enumerate(inner)
        )

    def _inner(self, k: int, length: int) -> jax_core.JaxprEqn | None:
        own = self.known(length)
        found = [] if own is None else _custom(own)
        return found[k] if k < len(found) else None


def _custom(closed: jax_core.ClosedJaxpr) -> list[jax_core.JaxprEqn]:
    """The equations of a jaxpr with derivative rules of their own."""
    return [eqn for eqn in inline(closed).jaxpr.eqns if eqn.primitive.name in CUSTOM]


def _custom_of_one_element(codelet: TracedCodelet, lengths: Sequence[int]) -> list[jax_core.JaxprEqn]:
    """The codelet's equations with derivative rules of their own, traced for a row of one element.

    Their rules are kept by JAX as traced for one shape, so that those of the jaxpr for all lengths cannot be run. For
    the same reason what they ask of a length is seen in a separate trace alone.
    """
    count = len(_custom(codelet.jaxpr))
    if not count:
        return []

    symbols = {size for kind in codelet.inputs.values() for size in kind.shape if not isinstance(size, int)}

    @functools.cache
    def known(length: int) -> jax_core.ClosedJaxpr:
        return codelet.at(dict.fromkeys(symbols, length)).jaxpr

    def at(length: int) -> list[jax_core.JaxprEqn]:
        return _custom(known(length))

    def rule(k: int, eqn: jax_core.JaxprEqn) -> _SegmentRule:
        return _SegmentRule(eqn, lambda length: at(length)[k] if len(at(length)) == count else None)

    try:
        rules = [rule(k, eqn) for k, eqn in enumerate(_custom(codelet.anew().jaxpr))]
        is_alike = len(rules) == count and alike(codelet.jaxpr, {LENGTH_NAMES[0]: 1}, known(1))
        if not is_alike or not all(rule.is_elementwise(lengths) for rule in rules):
            raise NoRule(_CUSTOM)
        return at(1)
    except CodeletTraceError:
        raise NoRule(_CUSTOM) from None


def run_segments(codelet: TracedCodelet, segments: Segments, inputs: Sequence[RowsValue]) -> list[Array]:
    """What a codelet computes for all rows: outputs by row, and ragged ones by element.

    Args:
        codelet: traced for all lengths of its ragged fields, which all have the same rows.
        segments: the rows.
        inputs: the fields, in the codelet's order. Ragged ones are by element.

    Returns:
        For each output an array of shape `(rows, *shape)`, or if it is ragged `(elements, *shape)` with extent 1
        in the dimension that is ragged.

    Raises:
        NoRule: the codelet does something to its rows that no rule does.
    """
    if codelet.jaxpr.effects:
        raise NoRule("it has effects")
    run = _RowRun(segments, _custom_of_one_element(codelet, segments.rows.occurring.tolist()))
    results = evaluate(inline(codelet.jaxpr), inputs, run.equation, known=lambda value: RowsValue(value, SHARED))
    levels = [BY_ELEMENT if kind.is_ragged else BY_ROW for kind in codelet.outputs.values()]
    return [run.spread(value, level).array for value, level in zip(results, levels, strict=True)]
