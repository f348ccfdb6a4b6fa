"""Intervals: every value of a jaxpr lies in the one that is found for it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import CALLS, evaluate, scan_counts
from codelet.jaxprs.intervals import SMALL, Intervals, interval, step_of
from tests.examples import examples
from tests.integer_programs import DTYPES, integer_programs


def _starts(array, part, starts):
    """The slice of an array where `lax` has a part of it."""
    pairs = zip(starts, array.shape, part, strict=True)
    begins = [int(np.clip(int(k), 0, extent - size)) for k, extent, size in pairs]
    return tuple(slice(k, k + size) for k, size in zip(begins, part, strict=True))


def _updated(array, update, *starts):
    made = array.copy()
    made[_starts(array, update.shape, starts)] = update
    return made


def _spread(array, shape, places):
    own = [array.shape[places.index(d)] if d in places else 1 for d in range(len(shape))]
    return np.broadcast_to(array.reshape(own), shape)


def _truncated(a, b):
    """A quotient towards zero, in arithmetic without ends; what is divided by zero is none."""
    towards_zero = np.frompyfunc(lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else a, 2, 1)
    return np.asarray(towards_zero(a.astype(object), b.astype(object)), object)


IN_NUMPY = {
    "add": lambda eqn, a, b: a + b,
    "sub": lambda eqn, a, b: a - b,
    "mul": lambda eqn, a, b: a * b,
    "neg": lambda eqn, a: -a,
    "abs": lambda eqn, a: np.abs(a),
    "sign": lambda eqn, a: np.sign(a),
    "max": lambda eqn, a, b: np.maximum(a, b),
    "min": lambda eqn, a, b: np.minimum(a, b),
    "clamp": lambda eqn, low, a, high: np.minimum(np.maximum(a, low), high),
    "div": lambda eqn, a, b: np.asarray(_truncated(a, b)).astype(np.int64),
    "rem": lambda eqn, a, b: np.asarray(a.astype(object) - _truncated(a, b) * b.astype(object)).astype(np.int64),
    "convert_element_type": lambda eqn, a: a != 0 if np.dtype(eqn.params["new_dtype"]).kind == "b" else a,
    "lt": lambda eqn, a, b: a < b,
    "le": lambda eqn, a, b: a <= b,
    "gt": lambda eqn, a, b: a > b,
    "ge": lambda eqn, a, b: a >= b,
    "eq": lambda eqn, a, b: a == b,
    "ne": lambda eqn, a, b: a != b,
    "and": lambda eqn, a, b: a & b,
    "or": lambda eqn, a, b: a | b,
    "xor": lambda eqn, a, b: a ^ b,
    "not": lambda eqn, a: ~a,
    "select_n": lambda eqn, which, *cases: np.choose(which.astype(int), cases),
    "iota": lambda eqn: _spread(
        np.arange(eqn.params["shape"][eqn.params["dimension"]]), eqn.params["shape"], (eqn.params["dimension"],)
    ),
    "broadcast_in_dim": lambda eqn, a: _spread(a, eqn.params["shape"], eqn.params["broadcast_dimensions"]),
    "reshape": lambda eqn, a: a if eqn.params["dimensions"] is None else a.transpose(eqn.params["dimensions"]),
    "squeeze": lambda eqn, a: a,
    "transpose": lambda eqn, a: a.transpose(eqn.params["permutation"]),
    "rev": lambda eqn, a: np.flip(a, eqn.params["dimensions"]),
    "concatenate": lambda eqn, *own: np.concatenate(own, eqn.params["dimension"]),
    "slice": lambda eqn, a: a[
        tuple(
            slice(*own)
            for own in zip(
                eqn.params["start_indices"],
                eqn.params["limit_indices"],
                eqn.params["strides"] or (1,) * a.ndim,
                strict=True,
            )
        )
    ],
    "dynamic_slice": lambda eqn, a, *starts: a[_starts(a, eqn.params["slice_sizes"], starts)],
    "dynamic_update_slice": lambda eqn, a, update, *starts: _updated(a, update, *starts),
}
"""Primitives in NumPy, on integers and booleans that wrap: JAX would compile a program for every shape and dtype."""


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_numpy_makes_of_primitives_is_what_jax_does(dtype):
    """Of these that are not plain: of negative numbers, and where a dtype ends."""
    info = np.iinfo(dtype)
    some = np.array([-7, -2, -1, 0, 1, 3, 8, info.min, info.max], np.int64).astype(dtype)
    a, b = np.repeat(some, len(some)), np.tile(some, len(some))
    a, b = a[b != 0], b[b != 0]

    def function(a, b):
        own = [lax.add(a, b), lax.sub(a, b), lax.mul(a, b), lax.div(a, b), lax.rem(a, b), lax.clamp(b, a, a[::-1])]
        others = [lax.convert_element_type(a, other) for other in (*DTYPES, np.bool_)]
        return *own, *others, *([lax.neg(a), lax.abs(a)] if info.min < 0 else ())

    closed = jax.make_jaxpr(function)(a, b)
    for own, other in zip(run_within(closed, [a, b], Intervals(closed)), jax.jit(function)(a, b), strict=True):
        np.testing.assert_array_equal(own, other)


def assert_lies_in(value, own, what):
    """That an array lies in an interval, where there is one."""
    if own is None:
        return
    array = np.asarray(value).astype(object)
    assert own.low.shape in ((), array.shape)
    assert np.all((array >= own.low) & (array <= own.high)), f"{what}: {value} beyond {own}"


def run_within(closed, inputs, known):
    """The results of a jaxpr, every value of which lies in its interval, and of its loops in every turn."""
    for value, var in zip(inputs, closed.jaxpr.invars, strict=True):
        assert_lies_in(value, known.of.get(var), "an input")

    def run(eqn, operands):
        made = _run(eqn, operands, known)
        for var, value in zip(eqn.outvars, made, strict=True):
            if not isinstance(var, jax_core.DropVar):
                assert_lies_in(value, known.of.get(var), eqn)
        return made

    made = evaluate(closed, inputs, run)
    for value, own in zip(made, known.results, strict=True):
        assert_lies_in(value, own, "a result")
    return made


def _run(eqn, operands, known):
    """What an equation makes of operands: of loops and choices, turn by turn."""
    name, params = eqn.primitive.name, eqn.params
    if name in CALLS:
        return run_within(params["jaxpr"], operands, Intervals(params["jaxpr"], list(map(known.at, eqn.invars))))
    if name == "cond":
        which = int(np.clip(operands[0], 0, len(params["branches"]) - 1))
        branch = params["branches"][which]
        return run_within(branch, operands[1:], Intervals(branch, known.entered[id(eqn)][which]))
    if name == "while":
        of_cond, of_body = params["cond_nconsts"], params["body_nconsts"]
        fixed, own, held = operands[:of_cond], operands[of_cond : of_cond + of_body], operands[of_cond + of_body :]
        cond, body = params["cond_jaxpr"], params["body_jaxpr"]
        in_cond, in_body = map(Intervals, (cond, body), known.entered[id(eqn)])
        while run_within(cond, [*fixed, *held], in_cond)[0]:
            held = run_within(body, [*own, *held], in_body)
        return held
    if name == "scan":
        (first, carried), body, (inside,) = scan_counts(eqn), params["jaxpr"], known.entered[id(eqn)]
        inside = Intervals(body, inside)
        held, turns, stacked = operands[first : first + carried], range(params["length"]), []
        for k in reversed(turns) if params["reverse"] else turns:
            rows = [array[k] for array in operands[first + carried :]]
            made = run_within(body, [*operands[:first], *held, *rows], inside)
            held = made[:carried]
            stacked.append(made[carried:])
        stacked = stacked[::-1] if params["reverse"] else stacked
        none = [np.zeros(var.aval.shape, var.aval.dtype) for var in eqn.outvars[carried:]]
        return [*held, *([np.stack(own) for own in zip(*stacked, strict=True)] or none)]
    ((kind, shape),) = ((var.aval.dtype, var.aval.shape) for var in eqn.outvars[:1])
    arrays = [np.asarray(own, atom.aval.dtype) for own, atom in zip(operands, eqn.invars, strict=True)]
    if name in IN_NUMPY and all(own.dtype.kind in "biu" for own in arrays):
        with np.errstate(all="ignore"):
            return [np.asarray(IN_NUMPY[name](eqn, *arrays)).astype(kind).reshape(shape)]
    made = eqn.primitive.bind(*operands, **params)
    return made if eqn.primitive.multiple_results else [made]


def lie_within(program):
    closed = jax.make_jaxpr(program.function)(*program.arguments[0])
    known = Intervals(closed, [interval(*ends) for ends in program.ends])
    for arguments in program.arguments:
        run_within(closed, list(arguments), known)


@examples(30)
@given(integer_programs(most=8, depth=1))
def test_every_value_lies_in_its_interval(program):
    lie_within(program)


@pytest.mark.slow
@examples(600)
@given(integer_programs())
def test_every_value_of_many_programs_lies_in_its_interval(program):
    lie_within(program)


# --- what is found ---------------------------------------------------------------------------------------------------

I8, U8 = jnp.int8, jnp.uint8


def found(function, *ends, dtype=np.int32, shape=()):
    """The ends of a function's first result, of arguments between some ends; None where they are not known."""
    closed = jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(shape, dtype) for _ in ends))
    own = Intervals(closed, [interval(*each) for each in ends]).results[0]
    return None if own is None else (int(own.hull.low), int(own.hull.high))


def counted(length, step, dtype: Any = np.int32, start=0):
    """The counter of a loop after its turns."""
    return lambda a: lax.fori_loop(
        0, length, lambda _, k: k + np.asarray(step).astype(dtype), jnp.asarray(start, dtype)
    )


def until(compared, step, start=0, dtype=np.int32):
    """A counter when it no longer compares."""
    return lambda a: lax.while_loop(
        lambda k: compared(k, a), lambda k: k + np.asarray(step, dtype), jnp.asarray(start, dtype)
    )


EXAMPLES = {
    "a sum": (lambda a, b: a + b, [(0, 3), (-1, 5)], (-1, 8)),
    "a sum that leaves int8": (lambda a: lax.convert_element_type(a, I8) + I8(1), [(0, 127)], None),
    "a difference below zero": (lambda a: lax.convert_element_type(a, U8) - U8(1), [(0, 3)], None),
    "a product of signs": (lambda a, b: a * b, [(-2, 3), (-5, 4)], (-15, 12)),
    "a quotient": (lambda a: lax.div(a, 3), [(-7, 8)], (-2, 2)),
    "a quotient by a negative number": (lambda a: lax.div(a, -3), [(-7, 8)], None),
    "a quotient by zero": (lambda a, b: lax.div(a, b), [(-7, 8), (0, 3)], None),
    "a remainder": (lambda a: lax.rem(a, 5), [(-7, 8)], (-4, 4)),
    "a remainder of less": (lambda a, b: lax.rem(a, b), [(1, 2), (3, 9)], (1, 2)),
    "a remainder below zero": (lambda a: lax.rem(a, 5), [(-7, -1)], (-4, 0)),
    "what is wrapped": (lambda a: a % 5, [(-7, 8)], (-4, 9)),
    "the least of int8 made positive": (lambda a: lax.abs(lax.convert_element_type(a, I8)), [(-128, 0)], None),
    "as int8": (lambda a: lax.convert_element_type(a, I8), [(-128, 128)], None),
    "as booleans": (lambda a: lax.convert_element_type(a, bool), [(0, 2)], None),
    "of floats": (
        lambda a: lax.convert_element_type(lax.convert_element_type(a, np.float32), np.int32),
        [(0, 3)],
        None,
    ),
    "a choice": (lambda a, b: jnp.where(a < 4, a, b), [(0, 3), (9, 9)], (0, 3)),
    "a choice of a number beyond": (lambda a: lax.select_n(a, a, a + 1, a + 2), [(7, 7)], (7, 9)),
    "counted from the end": (lambda a: jnp.where(a < 0, a + 8, a), [(-3, -1)], (5, 7)),
    "limited": (lambda a: jnp.clip(a, 0, 7), [(-3, 99)], (0, 7)),
    "not less": (lambda a: ~(a < 4), [(0, 3)], (0, 0)),
    "a shift": (lambda a: a << 1, [(0, 3)], None),
    "a place of the most": (lambda a: lax.argmax(jnp.zeros(5) + a, 0, np.int32), [(0, 3)], (0, 4)),
    "iota of int8": (lambda a: lax.iota(np.int8, 200), [(0, 3)], None),
    "no turn": (counted(0, 3), [(0, 0)], (0, 0)),
    "turns": (counted(4, 3), [(0, 0)], (0, 12)),
    "turns down": (counted(4, -3), [(0, 0)], (-12, 0)),
    "turns of int8": (counted(200, 1, np.int8), [(0, 0)], None),
    "turns of uint8 down": (counted(2, -1, np.uint8, 1), [(0, 0)], None),
    "until it is as much": (until(lax.lt, 3), [(-5, 7)], (0, 9)),
    "until it is more": (until(lax.le, 3), [(-5, 7)], (0, 10)),
    "until another is as little": (until(lambda k, a: lax.gt(a, k), 2), [(5, 7)], (0, 8)),
    "until another is less": (until(lambda k, a: lax.ge(a, k), 2), [(5, 7)], (0, 9)),
    "until it is the same": (until(lax.ne, 1), [(5, 7)], None),
    "while it is more": (until(lax.gt, 1), [(5, 7)], None),
    "down while it is less": (until(lax.lt, -1), [(5, 7)], None),
    "until the end of int32": (until(lax.le, 1), [(0, 2**31 - 1)], None),
    "while both": (until(lambda k, a: (k < a) & (k < 3), 1), [(0, 7)], (0, 3)),
    "while either": (until(lambda k, a: (k < a) | (k < 3), 1), [(0, 7)], None),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_found(name):
    function, ends, expected = EXAMPLES[name]
    assert found(function, *ends) == expected


def test_columns_have_intervals_of_their_own():
    def columns(a, b):
        return jnp.concatenate([a[None], b[None], jnp.full(1, 3)]).reshape(1, 3)

    closed = jax.make_jaxpr(columns)(jnp.int32(0), jnp.int32(0))
    (own,) = Intervals(closed, [interval(0, 1), interval(5, 9)]).results
    assert own is not None
    assert (own.low.tolist(), own.high.tolist()) == ([[0, 5, 3]], [[1, 9, 3]])


def test_a_large_array_has_one_interval():
    values = np.arange(SMALL + 1)
    (own,) = Intervals(jax.make_jaxpr(lambda: lax.add(values, 1))()).results
    assert own is not None
    assert (own.low.shape, own.low, own.high) == ((), 1, SMALL + 1)
    assert found(lambda a: jnp.concatenate([values, a[None]]), (-3, 100)) == (-3, 100)


@pytest.mark.parametrize("values", [jnp.arange(5000), np.arange(5000, dtype=np.int16), jnp.arange(30) > 3])
def test_constants_have_intervals_wherever_they_lie(values):
    (own,) = Intervals(jax.make_jaxpr(lambda: lax.rev(values, (0,)))()).results
    assert own is not None
    assert (own.hull.low, own.hull.high) == (int(values[0]), int(values[-1]))


@pytest.mark.parametrize(
    "step",
    [
        (lambda k: k + 1, 1),
        (lambda k: k - 3, -3),
        (lambda k: 2 + k, 2),
        (lambda k: k, 0),
        (lambda k: lax.sub(jnp.int32(2), k), None),
        (lambda k: k + k, None),
        (lambda k: k * 1, None),
        (lambda k: jnp.int32(4), None),
    ],
)
def test_steps_are_what_a_turn_adds(step):
    function, expected = step
    assert step_of(jax.make_jaxpr(function)(jnp.int32(0)).jaxpr, 0, 0) == expected
