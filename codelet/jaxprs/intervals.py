"""Intervals: between which integers the values of a jaxpr lie.

Interval arithmetic (R. E. Moore, Interval Analysis, 1966), through loops by the step that an iteration adds to its
carry. A small array has an interval for each of its elements, so that the columns of an index are distinguished; any
other has one for all. Numbers that may leave the range of their dtype are not known, and nothing is known of floats.
`within_bounds.py` asks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.extend import core as jax_core

from codelet.hostcopies import lies_here
from codelet.jaxprs.equations import CALLS, Atomic, Makers, bodies_of, scan_counts
from codelet.jaxprs.primitives import is_understood

SMALL = 64
"""Elements of an array that have an interval each, at most."""

_LOOKED_AT = 1 << 24
"""A constant of more elements is not looked at."""

_ROUNDS = 3
"""How often a loop's body is looked at for what it carries, at most."""


class Interval(NamedTuple):
    """The least and the greatest that elements are, Python's integers: of the array's shape, or of () for all."""

    low: np.ndarray
    high: np.ndarray

    @property
    def hull(self) -> Interval:
        """One for all elements."""
        return interval(min(self.low.flat), max(self.high.flat))

    def lies_in(self, other: Interval) -> bool:
        """Whether it is a part of another, of every element."""
        return bool(np.all(self.low >= other.low) and np.all(self.high <= other.high))


Known = Interval | None


def only(own: Known) -> int | None:
    """The number that all elements are; None where that is not known."""
    hull = None if own is None else own.hull
    return int(hull.low) if hull is not None and hull.low == hull.high else None


def interval(low: Any, high: Any) -> Interval:
    """From integers, or arrays of them."""
    return Interval(np.asarray(low, object), np.asarray(high, object))


def _joined(parts: Sequence[Known]) -> Known:
    """The interval that contains several values."""
    known = [own for own in parts if own is not None]
    if len(known) < len(parts) or not known:
        return None
    if len({own.low.shape for own in known}) > 1:
        known = [own.hull for own in known]
    return interval(np.minimum.reduce([own.low for own in known]), np.maximum.reduce([own.high for own in known]))


def _shape(atom: Atomic) -> tuple[int, ...]:
    return tuple(getattr(atom.aval, "shape", ()))


def _is_counted(atom: Atomic) -> bool:
    """Whether a value has elements, and these are integers or booleans."""
    dtype = getattr(atom.aval, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.kind in "biu" and 0 not in _shape(atom)


def _checked(own: Known, atom: Atomic) -> Known:
    """An interval of a value; None where the value may have left its dtype, one for all where it is large."""
    if own is None or not _is_counted(atom):
        return None
    shape, dtype = _shape(atom), np.dtype(atom.aval.dtype)
    if own.low.shape != shape or math.prod(shape) > SMALL:
        own = own.hull
    least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return own if own.lies_in(interval(least, most)) else None


def _constant(value: Any, atom: Atomic) -> Known:
    """The interval of a constant."""
    if not _is_counted(atom) or not lies_here(value) or np.size(value) > _LOOKED_AT:
        return None
    array = np.asarray(value)
    if array.size > SMALL:
        return _checked(interval(int(array.min()), int(array.max())), atom)
    return _checked(interval(array.astype(object), array.astype(object)), atom)


# --- by element -------------------------------------------------------------------------------------------


def _products(a: Interval, b: Interval) -> Interval:
    ends = [x * y for x in a for y in b]
    return interval(np.minimum.reduce(ends), np.maximum.reduce(ends))


def _quotient(a: Interval, b: Interval) -> Known:
    """Towards zero, by a positive number."""
    divisor = b.hull
    if divisor.low != divisor.high or divisor.low <= 0:
        return None
    by = int(divisor.low)
    towards_zero = np.frompyfunc(lambda n: n // by if n >= 0 else -(-n // by), 1, 1)
    return interval(towards_zero(a.low), towards_zero(a.high))


def _remainder(a: Interval, b: Interval) -> Known:
    """With the sign of the dividend, by a positive number."""
    divisor, own = b.hull, a.hull
    if divisor.low <= 0:
        return None
    most = int(divisor.high) - 1
    if own.low >= 0 and own.high < divisor.low:
        return a
    return interval(0 if own.low >= 0 else -most, most if own.high > 0 else 0)


def _absolute(a: Interval) -> Interval:
    ends = np.abs(a.low), np.abs(a.high)
    crosses = (a.low <= 0) & (a.high >= 0)
    return interval(np.where(crosses, 0, np.minimum(*ends)), np.maximum(*ends))


def _answer(always: Any, never: Any) -> Interval:
    """A boolean that is true where it always is, false where it never is."""
    return interval(np.where(always, 1, 0), np.where(never, 0, 1))


def _is_less(a: Interval, b: Interval) -> Interval:
    return _answer(a.high < b.low, a.low >= b.high)


def _is_at_most(a: Interval, b: Interval) -> Interval:
    return _answer(a.high <= b.low, a.low > b.high)


def _is_equal(a: Interval, b: Interval) -> Interval:
    one = (a.low == a.high) & (b.low == b.high) & (a.low == b.low)
    return _answer(one, (a.high < b.low) | (a.low > b.high))


def _opposite(a: Interval) -> Interval:
    return interval(1 - a.high, 1 - a.low)


_BY_ELEMENT: dict[str, Callable[..., Known]] = {
    "add": lambda a, b: interval(a.low + b.low, a.high + b.high),
    "sub": lambda a, b: interval(a.low - b.high, a.high - b.low),
    "mul": _products,
    "neg": lambda a: interval(-a.high, -a.low),
    "abs": _absolute,
    "max": lambda a, b: interval(np.maximum(a.low, b.low), np.maximum(a.high, b.high)),
    "min": lambda a, b: interval(np.minimum(a.low, b.low), np.minimum(a.high, b.high)),
    "clamp": lambda low, a, high: interval(
        np.minimum(np.maximum(a.low, low.low), high.low), np.minimum(np.maximum(a.high, low.high), high.high)
    ),
    "div": _quotient,
    "rem": _remainder,
    "lt": _is_less,
    "le": _is_at_most,
    "gt": lambda a, b: _is_less(b, a),
    "ge": lambda a, b: _is_at_most(b, a),
    "eq": _is_equal,
    "ne": lambda a, b: _opposite(_is_equal(a, b)),
    "convert_element_type": lambda a: a,
    "stop_gradient": lambda a: a,
}
"""What integers become; what leaves a dtype is found afterwards."""

_OF_BOOLEANS: dict[str, Callable[..., Known]] = {
    "and": lambda a, b: interval(np.minimum(a.low, b.low), np.minimum(a.high, b.high)),
    "or": lambda a, b: interval(np.maximum(a.low, b.low), np.maximum(a.high, b.high)),
    "not": _opposite,
}


def _chosen(operands: Sequence[Known]) -> Known:
    """The interval of a selection among values: of one of them, where it is always that one."""
    which, cases = operands[0], operands[1:]
    number = only(which)
    return cases[number] if number is not None and 0 <= number < len(cases) else _joined(cases)


# --- moved ------------------------------------------------------------------------------------------------


def _spread(eqn: jax_core.JaxprEqn, array: np.ndarray) -> np.ndarray:
    shape, places = eqn.params["shape"], eqn.params["broadcast_dimensions"]
    own = [array.shape[places.index(d)] if d in places else 1 for d in range(len(shape))]
    return np.broadcast_to(array.reshape(own), shape)


def _cut(eqn: jax_core.JaxprEqn, array: np.ndarray) -> np.ndarray:
    strides = eqn.params["strides"] or (1,) * array.ndim
    cuts = zip(eqn.params["start_indices"], eqn.params["limit_indices"], strides, strict=True)
    return array[tuple(slice(*own) for own in cuts)]


_IN_NUMPY: dict[str, Callable[..., np.ndarray]] = {
    "reshape": lambda eqn, array: array.reshape(eqn.params["new_sizes"]),
    "squeeze": lambda eqn, array: array.reshape(_shape(eqn.outvars[0])),
    "transpose": lambda eqn, array: array.transpose(eqn.params["permutation"]),
    "broadcast_in_dim": _spread,
    "slice": _cut,
    "concatenate": lambda eqn, *arrays: np.concatenate(arrays, eqn.params["dimension"]),
}
"""What moves the elements of small arrays, each of which has its own interval."""

_HELD = {
    "dynamic_slice": 1,
    "dynamic_update_slice": 2,
    "rev": 1,
    "split": 1,
    "pad": 2,
    "reduce_max": 1,
    "reduce_min": 1,
    "cummax": 1,
    "cummin": 1,
}
"""What makes nothing but elements of its first operands, and of how many."""


def _moved(eqn: jax_core.JaxprEqn, operands: Sequence[Known]) -> Known:
    """The interval of the result of an equation on the elements of its operands."""
    name = eqn.primitive.name
    known = [own for own in operands[: _HELD.get(name)] if own is not None]
    if len(known) < len(operands[: _HELD.get(name)]):
        return None
    shapes = [_shape(atom) for atom in (*eqn.invars, *eqn.outvars)]
    plain = name in _IN_NUMPY and not (name == "reshape" and eqn.params["dimensions"] is not None)
    if not plain or max(map(math.prod, shapes)) > SMALL:
        return _joined([own.hull for own in known])
    each = [[np.broadcast_to(end, shape) for end in own] for own, shape in zip(known, shapes, strict=False)]
    return interval(*(_IN_NUMPY[name](eqn, *ends) for ends in zip(*each, strict=True)))


# --- equations --------------------------------------------------------------------------------------------


class Intervals:
    """The known intervals of the values of a jaxpr.

    Attributes:
        of: the interval of each variable that has one.
        entered: for each loop and branch, by its identity, the known intervals of the inputs of each of its bodies, in
            order.
    """

    def __init__(self, closed: jax_core.ClosedJaxpr, given: Sequence[Known] = ()):
        jaxpr = closed.jaxpr
        self.of: dict[Any, Interval] = {}
        self.entered: dict[int, tuple[list[Known], ...]] = {}
        for var, own in zip(jaxpr.invars, given, strict=False):
            self._keep(var, own)
        for var, value in zip(jaxpr.constvars, closed.consts, strict=True):
            self._keep(var, _constant(value, var))
        for eqn in jaxpr.eqns:
            for var, own in zip(eqn.outvars, self._results(eqn), strict=True):
                self._keep(var, own)
        self.results = [self.at(atom) for atom in jaxpr.outvars]

    def _keep(self, var: Any, own: Known) -> None:
        checked = _checked(own, var)
        if checked is not None:
            self.of[var] = checked

    def at(self, atom: Atomic) -> Known:
        """The interval of a variable or a literal."""
        return _constant(atom.val, atom) if isinstance(atom, jax_core.Literal) else self.of.get(atom)

    def _results(self, eqn: jax_core.JaxprEqn) -> Sequence[Known]:
        name, nothing = eqn.primitive.name, [None] * len(eqn.outvars)
        if not bodies_of(eqn) and not any(map(_is_counted, eqn.outvars)):
            return nothing
        operands = list(map(self.at, eqn.invars))
        if name == "scan":
            return self._scan(eqn, operands)
        if name == "while":
            return self._while(eqn, operands)
        if name == "cond":
            return self._cond(eqn, operands)
        if name in CALLS and is_understood(eqn, *CALLS):
            return Intervals(eqn.params["jaxpr"], operands).results
        if name in _BY_ELEMENT and is_understood(eqn, name):
            return [None if None in operands or not all(map(_is_counted, eqn.invars)) else _BY_ELEMENT[name](*operands)]
        if name in _OF_BOOLEANS and is_understood(eqn, name) and eqn.outvars[0].aval.dtype == bool:  # type: ignore[attr-defined]
            return [None if None in operands else _OF_BOOLEANS[name](*operands)]
        if name == "select_n" and is_understood(eqn, name):
            return [_chosen(operands)]
        if name == "iota" and is_understood(eqn, name):
            return [interval(0, max(_shape(eqn.outvars[0])[eqn.params["dimension"]] - 1, 0))]
        if name in ("argmax", "argmin") and is_understood(eqn, name):
            return [interval(0, math.prod(_shape(eqn.invars[0])[axis] for axis in eqn.params["axes"]) - 1)]
        if (name in _IN_NUMPY or name in _HELD) and is_understood(eqn, name):
            return [_moved(eqn, operands)] * len(eqn.outvars)
        return nothing

    # --- loops and choices ----------------------------------------------------------------------------------

    def _cond(self, eqn: jax_core.JaxprEqn, operands: Sequence[Known]) -> Sequence[Known]:
        branches = eqn.params["branches"]
        self.entered[id(eqn)] = tuple(list(operands[1:]) for _ in branches)
        made = [Intervals(own, operands[1:]).results for own in branches]
        return [_joined(own) for own in zip(*made, strict=True)]

    def _scan(self, eqn: jax_core.JaxprEqn, operands: Sequence[Known]) -> Sequence[Known]:
        body, length, (first, carried) = eqn.params["jaxpr"], eqn.params["length"], scan_counts(eqn)
        rows = [None if own is None else own.hull for own in operands[first + carried :]]
        start = operands[first : first + carried]
        steps = [step_of(body.jaxpr, first + k, k) for k in range(carried)]

        def after(turns: int) -> list[Known]:
            return [
                own if step is None or own is None else _steps_on(own, step, turns)
                for own, step in zip(start, steps, strict=True)
            ]

        inputs = lambda held: [*operands[:first], *held, *rows]  # noqa: E731
        held, made = _carried(body, inputs, after(max(length - 1, 0)), steps)
        self.entered[id(eqn)] = (inputs(held),)
        stacked = [None if own is None else own.hull for own in made[carried:]]
        last = [was if step is None else own for was, own, step in zip(held, after(length), steps, strict=True)]
        return [*last, *stacked]

    def _while(self, eqn: jax_core.JaxprEqn, operands: Sequence[Known]) -> Sequence[Known]:
        params = eqn.params
        cond, body, of_cond, of_body = (
            params[name] for name in ("cond_jaxpr", "body_jaxpr", "cond_nconsts", "body_nconsts")
        )
        start, own = operands[of_cond + of_body :], operands[of_cond : of_cond + of_body]
        steps = [step_of(body.jaxpr, of_body + k, k) for k in range(len(start))]
        same = [begin if step == 0 else None for begin, step in zip(start, steps, strict=True)]
        limits = _limits(cond.jaxpr, [*operands[:of_cond], *same])
        inside, outside = list(start), list[Known]([None] * len(start))
        for k, (begin, step) in enumerate(zip(start, steps, strict=True)):
            if begin is not None and step:
                limit, low = limits.get(of_cond + k), begin.hull.low
                most = max(int(begin.hull.high), limit - 1) if limit is not None and step > 0 else None
                # Counted up until it is no longer less; where that may leave its dtype, it may begin again below.
                end = None if most is None else _checked(interval(low, most + step), eqn.outvars[k])
                inside[k], outside[k] = None if end is None else interval(low, most), end
        inputs = lambda held: [*own, *held]  # noqa: E731
        held, _ = _carried(body, inputs, inside, steps)
        last = [was if end is None else end for was, end in zip(held, outside, strict=True)]
        self.entered[id(eqn)] = ([*operands[:of_cond], *last], inputs(held))
        return last


def _steps_on(own: Interval, step: int, turns: int) -> Interval:
    """The interval of a carry in so many iterations, to which each adds a step."""
    return interval(own.low + min(0, step * turns), own.high + max(0, step * turns))


def step_of(body: jax_core.Jaxpr, at: int, k: int) -> int | None:
    """The step by which an iteration changes a number from input `at` to result `k`; None where it is not so."""
    given, made = body.invars[at], body.outvars[k]
    if made is given:
        return 0
    makers = [eqn for eqn in body.eqns if made in eqn.outvars] if isinstance(made, jax_core.Var) else []
    if not makers or _shape(given) or not _is_counted(given) or given.aval.dtype != made.aval.dtype:  # type: ignore[attr-defined]
        return None
    (eqn,) = makers
    if not is_understood(eqn, "add", "sub"):
        return None
    left, right = eqn.invars
    if eqn.primitive.name == "add" and right is given:
        left, right = right, left
    if left is not given or not isinstance(right, jax_core.Literal):
        return None
    return int(right.val) if eqn.primitive.name == "add" else -int(right.val)


def _limits(cond: jax_core.Jaxpr, known: Sequence[Known]) -> dict[int, int]:
    """The inputs of a loop's condition that are less than a number while it holds: their places, and that number."""
    makers = Makers(cond.eqns)
    place = {var: k for k, var in enumerate(cond.invars)}
    found: dict[int, int] = {}
    open_ = [cond.outvars[0]]
    while open_:
        atom = open_.pop()
        eqn = makers.of(atom)
        if eqn is None:
            continue
        if is_understood(eqn, "and"):
            open_ += eqn.invars
        elif is_understood(eqn, "lt", "le", "gt", "ge"):
            less, more = eqn.invars if eqn.primitive.name in ("lt", "le") else eqn.invars[::-1]
            own = (
                _constant(more.val, more)
                if isinstance(more, jax_core.Literal)
                else (known[place[more]] if more in place else None)
            )
            if own is not None and not isinstance(less, jax_core.Literal) and less in place:
                most = int(own.hull.high) + (eqn.primitive.name in ("le", "ge"))
                found[place[less]] = min(most, found.get(place[less], most))
    return found


def _carried(
    body: jax_core.ClosedJaxpr,
    inputs: Callable[[Sequence[Known]], list[Known]],
    begin: Sequence[Known],
    steps: Sequence[int | None],
) -> tuple[list[Known], list[Known]]:
    """The intervals of a loop's carry in every iteration, and of the results of an iteration.

    A carry that a number is added to is known from its steps; another is guessed to stay as it begins, or to be that or
    the result of one iteration, and not known where neither is so.
    """
    held = list(begin)
    for turn in range(_ROUNDS):
        made = Intervals(body, inputs(held)).results
        wrong = [
            k
            for k, (own, step) in enumerate(zip(held, steps, strict=True))
            if step is None and own is not None and ((after := made[k]) is None or not after.lies_in(own))
        ]
        if not wrong:
            return held, made
        for k in wrong:
            held[k] = _joined([held[k], made[k]]) if turn == 0 else None
    held = [own if step is not None else None for own, step in zip(held, steps, strict=True)]
    return held, Intervals(body, inputs(held)).results
