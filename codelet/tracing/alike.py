"""Alike: whether a codelet traced with symbols for its lengths is, at some lengths, the same as its trace at them.

In come both jaxprs. Every value of both gets a number, the same number for equal operations on equal values (Cocke and
Schwartz, Programming languages and their compilers, 1970), once the symbols stand for the lengths. Then a length that
became an equation is the literal it is where it was known. An equation that only changes the extents of 1 in a shape is
none at all. The jaxprs are alike when their results have the same numbers. Values that cannot be compared are never
alike.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet.jaxprs.equations import CALLS, may_run_early
from codelet.jaxprs.primitives import CUSTOM, says_nothing
from codelet.tracing.lengths import Symbol, size_at

_DEBUG_INFO = jax_core.DebugInfo("alike", "one equation", None, None)

_CALLS: dict[str, str] = dict.fromkeys(CALLS, "jaxpr")
"""Calls of functions, with the parameter that holds what is called."""

_CALLS_WITH_RULES = {**_CALLS, **dict.fromkeys(CUSTOM, "call_jaxpr")}
"""The same, with calls of functions that have derivative rules of their own."""

_RULES = ("jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd", "out_trees")
"""Parameters that hold a function's own derivative rules: made anew by every trace, each equal to itself alone."""

ROUNDING = 16
"""How many times a dtype's epsilon constants may differ: Python computes with a known length in float64."""


def _dtype(atom: Any) -> Any:
    return atom.aval.dtype


def _shape(atom: Any, size: Callable[[Any], int]) -> tuple[int, ...]:
    return tuple(map(size, atom.aval.shape))


class _ValueNumbers:
    """A number for each value that is computed in another way, and its shape.

    Args:
        calls: equations that are their bodies.
        of_one: whether all jaxprs are traces of one function: then constants that differ by rounding alone are one, and
            derivative rules are, which each trace makes anew.
    """

    def __init__(self, calls: Mapping[str, str] = _CALLS, *, of_one: bool) -> None:
        self.calls, self.of_one = calls, of_one
        self.known: dict[Hashable, int] = {}
        self.constants: dict[int, np.ndarray] = {}
        self.made: dict[int, tuple[Hashable, tuple[int, ...]]] = {}

    def number(self, key: Hashable) -> int:
        """The number of the value with a key."""
        return self.known.setdefault(key, len(self.known))

    def constant(self, value: Any, dtype: Any) -> int:
        """The number of a constant."""
        if not isinstance(dtype, np.dtype):
            return self.number(("constant", id(value)))
        if dtype.kind in "biufc":  # JAX may keep an array in a list or an object as it was with 64 bits: see `apart`
            dtype = jax.dtypes.canonicalize_dtype(dtype)
        array = np.asarray(value, dtype)
        if not self.of_one:
            number = self.number(("constant", str(dtype), array.shape, array.tobytes()))
            self.constants[number] = array
            return number
        inexact = jnp.issubdtype(dtype, jnp.inexact)
        near = ROUNDING * float(jnp.finfo(dtype).eps) if inexact else 0
        for number, other in self.constants.items():
            if other.dtype == array.dtype and other.shape == array.shape:
                same = np.array_equal(other, array)
                if same or (inexact and np.allclose(other, array, rtol=near, atol=0, equal_nan=True)):
                    return number
        number = self.number(("constant", len(self.constants), str(dtype)))
        self.constants[number] = array
        return number

    def parameter(self, value: Any, size: Callable[[Any], int]) -> Hashable:
        """A parameter of an equation as something to compare."""
        if isinstance(value, (jax_core.Jaxpr, jax_core.ClosedJaxpr)):
            return "jaxpr", tuple(self.results(value, size))
        if isinstance(value, Mapping):
            return "mapping", tuple((name, self.parameter(part, size)) for name, part in sorted(value.items()))
        if isinstance(value, (tuple, list)):
            return type(value).__name__, tuple(self.parameter(part, size) for part in value)
        if isinstance(value, np.ndarray):
            return "array", value.dtype.name, value.dtype.str, value.shape, value.tobytes()
        if isinstance(value, (int, float, complex, str, bytes, np.generic, type(None))):
            return type(value).__name__, repr(value)
        if isinstance(value, Symbol):
            return "int", repr(size(value))
        try:
            hash(value)
        except TypeError:  # what cannot be compared is its own alone: a rule of JAX's that holds static arguments, say
            return "object", id(value)
        return value

    def results(self, jaxpr: Any, size: Callable[[Any], int]) -> list[int]:
        """The numbers of a jaxpr's results."""
        closed = isinstance(jaxpr, jax_core.ClosedJaxpr)
        inner = jaxpr.jaxpr if closed else jaxpr
        values = self.inputs(inner.invars if closed else [*inner.constvars, *inner.invars], size)
        return self._run(inner, jaxpr.consts if closed else [], values, size)

    def inputs(self, variables: Sequence[Any], size: Callable[[Any], int]) -> dict[Any, int]:
        """The numbers of inputs: those at one place that have one type are the same."""
        return {v: self.number(("input", k, _shape(v, size), str(_dtype(v)))) for k, v in enumerate(variables)}

    def values(self, closed: jax_core.ClosedJaxpr, size: Callable[[Any], int]) -> tuple[dict[Any, int], list[int]]:
        """The numbers of all values of a jaxpr, but those inside of its equations; and of its results."""
        found = self.inputs(closed.jaxpr.invars, size)
        return found, self._run(closed.jaxpr, closed.consts, found, size)

    def _run(
        self, jaxpr: jax_core.Jaxpr, consts: Sequence[Any], values: dict[Any, int], size: Callable[[Any], int]
    ) -> list[int]:
        for var, const in zip(jaxpr.constvars if consts else [], consts, strict=True):
            values[var] = self.constant(const, _dtype(var))

        def value(atom: Any) -> int:
            return self.constant(atom.val, _dtype(atom)) if isinstance(atom, jax_core.Literal) else values[atom]

        for eqn in jaxpr.eqns:
            operands = [value(atom) for atom in eqn.invars]
            if eqn.primitive.name in self.calls:
                called = eqn.params[self.calls[eqn.primitive.name]]
                given = dict(zip(called.jaxpr.invars, operands, strict=True))
                results = self._run(called.jaxpr, called.consts, given, size)
            else:
                results = self._equation(eqn, operands, size)
            values.update(zip(eqn.outvars, results, strict=True))
        return [value(atom) for atom in jaxpr.outvars]

    def _equation(self, eqn: jax_core.JaxprEqn, operands: list[int], size: Callable[[Any], int]) -> list[int]:
        name, params = eqn.primitive.name, eqn.params
        shapes = [_shape(var, size) for var in eqn.outvars]
        if eqn.effects:  # what it gives another time may be something else
            return [self.number(("effect", len(self.known))) for _ in shapes]
        if name == "dim_as_value":
            return [self.constant(size(params["dim"]), _dtype(eqn.outvars[0]))]
        if name == "copy" or (name == "convert_element_type" and _keeps_dtype(eqn)):
            return operands
        if len(operands) == 1 and _keeps_order(eqn, size):
            return [self._reshaped(operands[0], _shape(eqn.invars[0], size), shapes[0])]
        if (same := self._unchanged(eqn, operands)) is not None:
            return [same]
        if operands and all(k in self.constants and not self.constants[k].shape for k in operands):
            computed = _computed(eqn, [self.constants[k] for k in operands]) if set(shapes) == {()} else None
            if computed is not None:
                return [self.constant(c, _dtype(v)) for c, v in zip(computed, eqn.outvars, strict=True)]
        ignored = _RULES if self.of_one else ()
        kept = sorted((key, self.parameter(part, size)) for key, part in params.items() if key not in ignored)
        what = name, tuple(kept), tuple(operands), tuple(shapes)
        return [self.number((*what, k)) for k in range(len(shapes))]

    def _unchanged(self, eqn: jax_core.JaxprEqn, operands: list[int]) -> int | None:
        """The operand that an equation gives back: integers times 1, or plus 0, as counting to a symbol is written."""
        neutral = {"mul": 1, "add": 0}.get(eqn.primitive.name)
        if neutral is None or not jnp.issubdtype(_dtype(eqn.outvars[0]), jnp.integer):
            return None
        for k, other in (operands, operands[::-1]):
            known = self.constants.get(k)
            if known is not None and not known.shape and known == neutral:
                return other
        return None

    def _reshaped(self, operand: int, before: tuple[int, ...], shape: tuple[int, ...]) -> int:
        root, first = self.made.get(operand, (operand, before))
        if first == shape:
            return root  # type: ignore[return-value]
        number = self.number(("reshape", root, shape))
        self.made[number] = root, first
        return number


def _keeps_dtype(eqn: jax_core.JaxprEqn) -> bool:
    return _dtype(eqn.invars[0]) == eqn.params["new_dtype"] and says_nothing(eqn.params.get("sharding"))


def _keeps_order(eqn: jax_core.JaxprEqn, size: Callable[[Any], int]) -> bool:
    """Whether an equation of one operand gives its elements, each once and in order, in another shape."""
    name, params = eqn.primitive.name, eqn.params
    before, after = _shape(eqn.invars[0], size), _shape(eqn.outvars[0], size)
    if name == "reshape":
        return params.get("dimensions") is None
    if name == "transpose":
        moved = [d for d in params["permutation"] if before[d] != 1]
        return moved == sorted(moved)
    if name == "broadcast_in_dim":
        return int(np.prod(before)) == int(np.prod(after)) and [n for n in before if n != 1] == [
            n for n in after if n != 1
        ]
    return name in ("squeeze", "expand_dims")


def _computed(eqn: jax_core.JaxprEqn, operands: Sequence[np.ndarray]) -> Sequence[Any] | None:
    """The result of an equation on known numbers."""
    if not may_run_early(eqn) or not all(isinstance(_dtype(var), np.dtype) for var in eqn.outvars):
        return None
    if eqn.primitive.name == "convert_element_type":
        return [operands[0].astype(eqn.params["new_dtype"])]
    variables, given = [], []
    for atom, operand in zip(eqn.invars, operands, strict=True):
        if not isinstance(atom, jax_core.Literal) and atom not in variables:
            variables.append(atom)
            given.append(operand)
    jaxpr = jax_core.Jaxpr((), variables, eqn.outvars, [eqn], debug_info=_DEBUG_INFO)
    with jax.ensure_compile_time_eval():
        return [np.asarray(value) for value in jax_core.jaxpr_as_fun(jax_core.ClosedJaxpr(jaxpr, ()))(*given)]


def alike(symbolic: jax_core.ClosedJaxpr, lengths: Mapping[str, int], known: jax_core.ClosedJaxpr) -> bool:
    """Whether a jaxpr is another once the symbols in its shapes stand for lengths.

    Args:
        symbolic: the one with symbols.
        lengths: the value of each symbol, by name.
        known: the one traced for these lengths.
    """

    def at(n: Any) -> int:
        return int(size_at(n, lengths))

    if symbolic.effects or known.effects:
        return False
    numbers = _ValueNumbers(of_one=True)
    try:
        types = [[(_shape(var, at), _dtype(var)) for var in jaxpr.jaxpr.outvars] for jaxpr in (known, symbolic)]
        return types[0] == types[1] and numbers.results(known, at) == numbers.results(symbolic, at)
    except ZeroDivisionError:  # a size of the symbols that there is none of at these lengths, as `5 // n` at 0
        return False


def computed_alike(first: jax_core.ClosedJaxpr, second: jax_core.ClosedJaxpr) -> list[dict[Any, None]]:
    """For each result of a jaxpr, the values of another whose equations compute the same from the same inputs.

    Args:
        first: the one with the results.
        second: the other; its first inputs are those of the first.
    """
    numbers = _ValueNumbers(_CALLS_WITH_RULES, of_one=False)
    _, results = numbers.values(first, int)
    values, _ = numbers.values(second, int)
    given = {values[var] for var in second.jaxpr.invars}
    made: dict[int, dict[Any, None]] = {}
    for eqn in second.jaxpr.eqns:
        for var in eqn.outvars:
            if values[var] not in given:
                made.setdefault(values[var], {})[var] = None
    return [
        {var: None for var in made.get(number, {}) if (var.aval.shape, var.aval.dtype) == (aval.shape, aval.dtype)}
        for number, aval in zip(results, first.out_avals, strict=True)
    ]


class Kinds:
    """Distinguishes jaxprs without symbols by their functions, many of them: each is looked at once."""

    def __init__(self) -> None:
        self._numbers = _ValueNumbers(of_one=False)
        self._jaxprs: list[jax_core.ClosedJaxpr] = []  # alive, since what cannot be compared is known by its identity

    def kind(self, jaxpr: jax_core.ClosedJaxpr) -> Hashable:
        """Equal for jaxprs of the same types that compute the same, of the very same constants and derivative rules.

        They have no effects.

        >>> kinds = Kinds()
        >>> twice, too, more = (jax.make_jaxpr(lambda x, k=k: k * x)(1.0) for k in (2.0, 2.0, 2.0000002))
        >>> kinds.kind(twice) == kinds.kind(too), kinds.kind(twice) == kinds.kind(more)
        (True, False)
        """
        self._jaxprs.append(jaxpr)
        types = tuple((_shape(var, int), str(_dtype(var))) for var in jaxpr.jaxpr.outvars)
        return types, tuple(self._numbers.results(jaxpr, int))
