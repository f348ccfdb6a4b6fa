"""Segments: a codelet on all rows of its ragged fields at once.

The codelet's jaxpr for rows of any length is run with three kinds of values: those that all vertices
share, those with one for each row, and those with one for each element of each row. What treats the
elements alike runs once over all of them, what reduces a row is a segment reduction, and what depends on
no row's elements runs once over the rows. The number of equations does not depend on the lengths. A
codelet that does something else to its rows, such as to sort them, is none of these.

In an array of one for each element the ragged dimension comes first, and where the codelet has it there
is one of extent 1: each equation then means, for a row of one element, what it means in the codelet.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.codelets import TracedCodelet, length_symbols
from codelet.ragged import Rows
from lowering.rewrite import CALLS, bind
from lowering.views import Array, constant, take

SHARED, BY_ROW, BY_ELEMENT = range(3)


class NoRule(Exception):
    """A codelet does to its rows what no segment rule does. Never seen by a user: other ways are tried."""


class Segments:
    """Rows as segments of a flat dimension, as arrays, which are made when they are first asked for.

    Attributes:
        count: the number of rows.
        in_order: whether the elements of a row follow each other, row by row.
    """

    def __init__(self, rows: Rows, order: np.ndarray | None):
        self.rows = rows
        self.order = order
        self.count = rows.count
        self.in_order = order is None

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

    @functools.cached_property
    def lengths(self) -> Array:
        """The length of each row, int32."""
        return constant(self.rows.lengths.astype(np.int32))


class Value(NamedTuple):
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


# --- which primitives treat the elements of a row alike -------------------------------------------------

ELEMENTWISE = frozenset(
    {
        "abs",
        "acos",
        "acosh",
        "add",
        "add_any",
        "and",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "cbrt",
        "ceil",
        "clamp",
        "conj",
        "convert_element_type",
        "copy",
        "cos",
        "cosh",
        "digamma",
        "div",
        "eq",
        "erf",
        "erf_inv",
        "erfc",
        "exp",
        "exp2",
        "expm1",
        "floor",
        "ge",
        "gt",
        "imag",
        "integer_pow",
        "is_finite",
        "le",
        "lgamma",
        "log",
        "log1p",
        "logistic",
        "lt",
        "max",
        "min",
        "mul",
        "ne",
        "neg",
        "nextafter",
        "not",
        "or",
        "pow",
        "real",
        "reduce_precision",
        "rem",
        "round",
        "rsqrt",
        "select_n",
        "shift_left",
        "shift_right_arithmetic",
        "shift_right_logical",
        "sign",
        "sin",
        "sinh",
        "sqrt",
        "square",
        "stop_gradient",
        "sub",
        "tan",
        "tanh",
        "xor",
    }
)

REDUCTIONS: dict[str, Callable[..., Array]] = {
    "reduce_sum": jax.ops.segment_sum,
    "reduce_max": jax.ops.segment_max,
    "reduce_min": jax.ops.segment_min,
}

ALONG_ONE = {
    **dict.fromkeys(["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "split"], "axis"),
    **dict.fromkeys(["sort", "concatenate"], "dimension"),
}
"""Primitives that work along one dimension, and the parameter that says which."""

CUSTOM = ("custom_jvp_call", "custom_vjp_call")


def _aval(atom: Any) -> Any:
    return atom.aval


def _shape(atom: Any) -> tuple[Any, ...]:
    return atom.aval.shape


def _place(shape: Sequence[Any]) -> int | None:
    """The dimension of a shape that is as long as the row."""
    found = [d for d, size in enumerate(shape) if not isinstance(size, int)]
    if len(found) > 1 or any(shape[d] not in length_symbols() for d in found):
        raise NoRule
    return found[0] if found else None


def _is_elementwise(eqn: jax_core.JaxprEqn) -> bool:
    name, params = eqn.primitive.name, eqn.params
    at = [_place(_shape(atom)) for atom in eqn.invars]
    ragged = [d for d in at if d is not None]
    to = _place(_shape(eqn.outvars[0]))
    if name in ELEMENTWISE or name in ("transpose", "squeeze", "expand_dims", "stack"):
        return True
    if name == "broadcast_in_dim":
        return not ragged or params["broadcast_dimensions"][ragged[0]] == to
    if name == "reshape":
        before, after = _shape(eqn.invars[0]), _shape(eqn.outvars[0])
        return bool(ragged) and to is not None and math.prod(before[: ragged[0]]) == math.prod(after[:to])
    if name in ALONG_ONE:
        return params[ALONG_ONE[name]] not in ragged
    if name.startswith("reduce_") or name in ("argmax", "argmin"):
        return not set(params["axes"]) & set(ragged)
    if name == "rev":
        return not set(params["dimensions"]) & set(ragged)
    if name == "dot_general":
        contracted, batch = params["dimension_numbers"]
        if None not in at:
            places = [list(own).index(d) if d in own else None for own, d in zip(batch, at, strict=True)]
            return places[0] is not None and places[0] == places[1]
        return not any(d in own for own, d in zip(contracted, at, strict=True))
    if name in CUSTOM:
        inner = params["call_jaxpr"].jaxpr
        return all(_is_elementwise(part) for part in _inlined(inner))
    return False


def _inlined(jaxpr: jax_core.Jaxpr) -> list[jax_core.JaxprEqn]:
    """The equations of a jaxpr and of the functions it calls, in order."""
    found = []
    for eqn in jaxpr.eqns:
        found += _inlined(eqn.params["jaxpr"].jaxpr) if eqn.primitive.name in CALLS else [eqn]
    return found


def _reduces_rows(eqn: jax_core.JaxprEqn) -> bool:
    name = eqn.primitive.name
    at = [_place(_shape(atom)) for atom in eqn.invars]
    if name in REDUCTIONS or name in ("reduce_or", "reduce_and"):
        return at[0] in eqn.params["axes"]
    if name == "dot_general":
        contracted, _ = eqn.params["dimension_numbers"]
        places = [list(own).index(d) if d in own else None for own, d in zip(contracted, at, strict=True)]
        return places[0] is not None and places[0] == places[1]
    return False


# --- running equations ----------------------------------------------------------------------------------


def _of_one_element(param: Any) -> Any:
    """A parameter of an equation where rows have one element."""
    if isinstance(param, (jax_core.Jaxpr, jax_core.ClosedJaxpr)):
        inner = param.jaxpr if isinstance(param, jax_core.ClosedJaxpr) else param
        shapes = [_shape(atom) for eqn in _inlined(inner) for atom in (*eqn.invars, *eqn.outvars)]
        if any(_place(shape) is not None for shape in shapes):
            raise NoRule
        return param
    if type(param) is tuple:
        return tuple(_of_one_element(part) for part in param)
    if type(param) is type(length_symbols()[0]):
        _place((param,))
        return 1
    return param


class _Run:
    """Runs the equations of a codelet on all rows."""

    def __init__(self, segments: Segments, custom: list[jax_core.JaxprEqn]):
        self.segments = segments
        self.custom = custom
        """Equations with derivative rules of their own that are still to come, as traced for a row of one element."""

    def by_element(self, value: Value) -> Value:
        """A value of rows repeated for each of their elements."""
        if value.level != BY_ROW:
            return value
        segments = self.segments
        return value._replace(
            array=take(value.array, segments.owners, is_sorted=segments.in_order),
            level=BY_ELEMENT,
        )

    def apply(self, eqn: jax_core.JaxprEqn, values: Sequence[Value], level: int) -> list[Value]:
        """An equation, as for a row of one element, at all rows or elements."""
        if level == BY_ELEMENT:
            values = [self.by_element(value) for value in values]
        if eqn.primitive.name in CUSTOM:
            if not self.custom:
                raise NoRule
            one = self.custom.pop(0)
        else:
            one = eqn.replace(params={name: _of_one_element(param) for name, param in eqn.params.items()})

        def run(*arrays: Array) -> list[Any]:
            return bind(one, arrays)

        if level != SHARED:
            axes = tuple(None if value.level == SHARED else 0 for value in values)
            run = jax.vmap(run, in_axes=axes, axis_size=None)
        arrays = run(*(value.array for value in values))
        return [Value(array, level, _place(_shape(var))) for var, array in zip(eqn.outvars, arrays, strict=True)]

    def reduce(self, eqn: jax_core.JaxprEqn, values: Sequence[Value]) -> Value:
        """A reduction of rows: each element's part of it, then that of the segments."""
        segments, name = self.segments, eqn.primitive.name
        values = [value if value.level != SHARED or value.ragged is None else self._repeated(value) for value in values]
        (part,) = self.apply(eqn, values, BY_ELEMENT)
        combine = REDUCTIONS.get(name, jax.ops.segment_sum)
        array = part.array
        if name in ("reduce_or", "reduce_and"):
            array, combine = array.astype(jnp.int8), jax.ops.segment_max if name == "reduce_or" else jax.ops.segment_min
        combined = combine(
            array,
            segments.owners,
            segments.count,
            indices_are_sorted=segments.in_order,
            mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS,
        )
        if name in ("reduce_or", "reduce_and"):
            combined = combined > 0
        return Value(combined, BY_ROW)

    def _repeated(self, value: Value) -> Value:
        """A shared value with a ragged dimension, at each element."""
        total = self.segments.rows.total
        return value._replace(array=jnp.broadcast_to(value.array, (total, *jnp.shape(value.array))), level=BY_ELEMENT)

    def equation(self, eqn: jax_core.JaxprEqn, values: Sequence[Value]) -> list[Value]:
        name = eqn.primitive.name
        out = _place(_shape(eqn.outvars[0]))
        if name == "dim_as_value":
            dim = eqn.params["dim"]
            if not eqn.outvars or _place((dim,)) is None:
                raise NoRule
            return [Value(self.segments.lengths.astype(_aval(eqn.outvars[0]).dtype), BY_ROW)]
        if name == "iota" and out is not None and eqn.params["dimension"] == out:
            shape = [1 if d == out else n for d, n in enumerate(_shape(eqn.outvars[0]))]
            places = self.segments.places.astype(_aval(eqn.outvars[0]).dtype)
            own = places.reshape(places.shape[0], *[1] * len(shape))
            return [Value(jnp.broadcast_to(own, (places.shape[0], *shape)), BY_ELEMENT, out)]
        if _reduces_rows(eqn):
            return [self.reduce(eqn, values)]
        concerned = out is not None or any(value.ragged is not None for value in values)
        if concerned and name != "iota" and not _is_elementwise(eqn):
            raise NoRule
        return self.apply(eqn, values, max((value.level for value in values), default=SHARED))

    def jaxpr(self, jaxpr: jax_core.Jaxpr, consts: Sequence[Any], values: Sequence[Value]) -> list[Value]:
        known: dict[Any, Value] = dict(zip(jaxpr.invars, values, strict=True))
        known.update({var: Value(const, SHARED) for var, const in zip(jaxpr.constvars, consts, strict=True)})
        value = lambda atom: Value(atom.val, SHARED) if isinstance(atom, jax_core.Literal) else known[atom]  # noqa: E731
        for eqn in jaxpr.eqns:
            operands = [value(atom) for atom in eqn.invars]
            if eqn.primitive.name in CALLS:
                inner = eqn.params["jaxpr"]
                results = self.jaxpr(inner.jaxpr, inner.consts, operands)
            else:
                results = self.equation(eqn, operands)
            known.update(zip(eqn.outvars, results, strict=True))
        return [value(atom) for atom in jaxpr.outvars]


def _custom_of_one_element(codelet: TracedCodelet) -> list[jax_core.JaxprEqn]:
    """The codelet's equations with derivative rules of their own, traced for a row of one element.

    Their rules are kept by JAX as traced for one shape, so that those of the jaxpr for all lengths cannot be run.
    """
    wanted = [eqn for eqn in _inlined(codelet.jaxpr.jaxpr) if eqn.primitive.name in CUSTOM]
    if not wanted:
        return []
    symbols = {size for kind in codelet.inputs.values() for size in kind.shape if not isinstance(size, int)}
    try:
        one = codelet.at(dict.fromkeys(symbols, 1))
    except Exception:
        raise NoRule from None
    found = [eqn for eqn in _inlined(one.jaxpr.jaxpr) if eqn.primitive.name in CUSTOM]
    shapes = lambda eqn, atoms: [tuple(n if isinstance(n, int) else 1 for n in _shape(atom)) for atom in atoms(eqn)]  # noqa: E731
    for atoms in (lambda eqn: eqn.invars, lambda eqn: eqn.outvars):
        if [(e.primitive.name, shapes(e, atoms)) for e in wanted] != [
            (e.primitive.name, shapes(e, atoms)) for e in found
        ]:
            raise NoRule
    return found


def run_segments(codelet: TracedCodelet, segments: Segments, inputs: Sequence[Value]) -> list[Array]:
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
    if not codelet.for_all_lengths:
        raise NoRule
    run = _Run(segments, _custom_of_one_element(codelet))
    outputs = []
    for value, kind in zip(
        run.jaxpr(codelet.jaxpr.jaxpr, codelet.jaxpr.consts, inputs), codelet.outputs.values(), strict=True
    ):
        if kind.is_ragged:
            value = run.by_element(value)
            value = run._repeated(value) if value.level == SHARED else value
            outputs.append(value.array)
        elif value.level == SHARED:
            outputs.append(jnp.broadcast_to(value.array, (segments.count, *jnp.shape(value.array))))
        else:
            outputs.append(value.array)
    return outputs
