"""Carry extended: what every iteration of a loop reads extended beyond its ends is carried from iteration to iteration
extended.

In comes a jaxpr, out comes one whose scans carry an array extended where each iteration begins by extending it; see
`lowering/fast/extend.py`. The extension is then made where the array is computed, at the end of an iteration, and XLA
fuses the one into the other: an iteration is one pass through memory less. Before the loop the array is extended, and
after it the inside is cut out; that is one extension more than there were.

Dimensions are extended independently of each other, and so here in another order: the outermost first, since it is the
first join with which XLA fuses what is joined. Measured with jax 0.10.2 on two CPU cores, the game of life on 1024 x
1024 bytes, of the time of the best found in plain JAX: extended in each iteration 1.13, carried extended 1.00, the
innermost dimension first 1.23.

It is done only where

- all that reads the array itself computes element by element or takes slices: for these it is then a slice of what
  is carried, which costs nothing;
- the iteration makes the array by a few cheap equations: where elements are joined XLA computes one at a time, and tanh
  and exp of floats took 1.8 times as long so;
- the array has no gradient. Of floats the value gained as well (a sum of five of 2048 x 2048 float32 took 0.8 of
  the time, of 64 x 64 0.7), but the gradient took 1.2 times the time, and 6 times of 64 x 64, since XLA computes the
  cotangent of what is carried anew for every slice; a barrier for it did not help.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, Makers, bind, evaluate, needed, scan_counts, variables
from codelet.jaxprs.primitives import ELEMENTWISE, MOVING, is_understood
from codelet.jaxprs.rebuild import rewrite, struct
from lowering.arrays import Array, join
from lowering.jaxprs.recompute import LIGHT

_CHEAP_NAMES = """
abs add and clamp convert_element_type copy eq ge gt integer_pow le lt max min mul ne neg not or select_n
shift_left shift_right_arithmetic shift_right_logical sign square sub xor
"""
_CHEAP = frozenset(_CHEAP_NAMES.split())
"""Primitives by element that take hardly longer where XLA computes one element at a time."""

Run = tuple[int, int, int]
"""Positions of a dimension: the first, the step and how many."""


@dataclass(frozen=True)
class _Joint:
    """A dimension put together of runs, one of which is all of it."""

    dimension: int
    runs: tuple[Run, ...]
    offset: int  # of all of it
    length: int  # of all of it


@dataclass(frozen=True)
class _Carried:
    """An array that a loop is to carry extended.

    Attributes:
        joints: how it is extended, the outermost dimension first.
        barriers: the equations of the body that make the extension.
    """

    joints: tuple[_Joint, ...]
    barriers: tuple[jax_core.JaxprEqn, ...]

    def extend(self, array: Array) -> Array:
        """The array extended."""
        for joint in self.joints:
            array = join(array, joint.dimension, joint.runs)
        return lax.optimization_barrier(array)

    def inside(self, extended: Array) -> Array:
        """The array, from it extended."""
        for joint in reversed(self.joints):
            extended = lax.slice_in_dim(extended, joint.offset, joint.offset + joint.length, axis=joint.dimension)
        return extended


# --- what is extended ---------------------------------------------------------------------------------------


def _repeated(eqn: jax_core.JaxprEqn, at: int, makers: Makers) -> Atomic | None:
    """What a broadcast repeats along a dimension, of extent 1 there; None where it does anything else."""
    (one, *dynamic), shape = eqn.invars, tuple(eqn.params["shape"])
    kept = tuple(eqn.params["broadcast_dimensions"])
    others = tuple(d for d in range(len(shape)) if d != at)
    maker = makers.of(one)
    if kept == others and maker is not None and is_understood(maker, "reshape"):
        # The dimension was taken away first.
        (one, *more), kept = maker.invars, tuple(range(len(shape)))
        dynamic += more if maker.params["dimensions"] is None else maker.invars
        if tuple(maker.params["new_sizes"]) != tuple(shape[d] for d in others):
            return None
    if dynamic or kept != tuple(range(len(shape))):
        return None
    single: Any = one.aval
    return one if single.shape == (*shape[:at], 1, *shape[at + 1 :]) else None


def _part(atom: Atomic, at: int, makers: Makers) -> tuple[Atomic, Run]:
    """An operand of a concatenation along a dimension: of which value it is a run."""
    shape = atom.aval.shape
    eqn = makers.of(atom)
    if eqn is None:
        return atom, (0, 1, shape[at])
    if is_understood(eqn, "rev") and tuple(eqn.params["dimensions"]) == (at,):
        whole, (start, step, length) = _part(eqn.invars[0], at, makers)
        return whole, (start + step * (length - 1), -step, length)
    if is_understood(eqn, "broadcast_in_dim") and (one := _repeated(eqn, at, makers)) is not None:
        whole, (start, _, _) = _part(one, at, makers)
        return whole, (start, 0, shape[at])
    if is_understood(eqn, "slice"):
        whole: Any = eqn.invars[0]
        strides = eqn.params["strides"] or (1,) * len(shape)
        if all(n == whole.aval.shape[d] for d, n in enumerate(shape) if d != at):
            return whole, (int(eqn.params["start_indices"][at]), int(strides[at]), shape[at])
    return atom, (0, 1, shape[at])


def _joints(array: Any, extended: Atomic, makers: Makers) -> tuple[_Joint, ...] | None:
    """How an array is extended to another; None if that is anything else."""
    joints: list[_Joint] = []
    while extended is not array:
        eqn = makers.of(extended)
        if eqn is None or not is_understood(eqn, "concatenate"):
            return None
        at = int(eqn.params["dimension"])
        found = [_part(operand, at, makers) for operand in eqn.invars if not isinstance(operand, jax_core.Literal)]
        extended, runs = found[0][0], tuple(run for _, run in found)
        all_of_it = (0, 1, extended.aval.shape[at])
        if len(found) < len(eqn.invars) or any(own is not extended for own, _ in found) or all_of_it not in runs:
            return None
        offset = sum(length for _, _, length in runs[: runs.index(all_of_it)])
        joints.append(_Joint(at, runs, offset, all_of_it[2]))
    # What is done along other dimensions does not matter to one; along its own, the order stays.
    joints.reverse()
    return tuple(sorted(joints, key=lambda joint: joint.dimension))


def _needed(
    body: jax_core.Jaxpr, results: Iterable[Atomic], known: Collection[jax_core.JaxprEqn]
) -> set[jax_core.JaxprEqn]:
    """The equations of a body that some results need, where what some of them make is known."""
    return set(needed(body, lambda eqn: () if eqn in known else eqn.invars, results))


def _is_light(made: Any, body: jax_core.Jaxpr, extensions: Collection[jax_core.JaxprEqn]) -> bool:
    """Whether what an iteration makes is computed by a few cheap equations from what is given, or known as extended."""
    own = _needed(body, [made], extensions).difference(extensions)
    costly = [eqn for eqn in own if eqn.primitive.name not in MOVING]
    return len(costly) <= LIGHT and all(eqn.primitive.name in _CHEAP for eqn in costly)


def _reads_slices(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation reads a slice as quickly as an array."""
    return eqn.primitive.name in ELEMENTWISE or is_understood(eqn, "slice")


def _carried(eqn: jax_core.JaxprEqn) -> dict[int, _Carried]:
    """What a loop is to carry extended, by its place among what it carries."""
    if eqn.primitive.name != "scan" or eqn.params["length"] // eqn.params["unroll"] < 2 or eqn.effects:
        return {}
    body, (first, num_carried) = eqn.params["jaxpr"].jaxpr, scan_counts(eqn)
    makers = Makers(body.eqns)
    barriers = [own for own in body.eqns if is_understood(own, "optimization_barrier") and len(own.invars) == 1]
    results = set(variables(body.outvars))
    found: dict[int, _Carried] = {}
    for k in range(num_carried) if barriers else ():
        array, made = body.invars[first + k], body.outvars[k]
        if isinstance(made, jax_core.Literal) or made not in makers or array in results:
            continue
        if jnp.issubdtype(array.aval.dtype, jnp.inexact):  # type: ignore[union-attr]
            continue
        extensions = {own: joints for own in barriers if (joints := _joints(array, own.invars[0], makers))}
        if len(set(extensions.values())) != 1:
            continue
        readers = (own for own in _needed(body, results, extensions).difference(extensions) if array in own.invars)
        if all(map(_reads_slices, readers)) and _is_light(made, body, extensions):
            found[k] = _Carried(next(iter(extensions.values())), tuple(extensions))
    return found


# --- what is carried ----------------------------------------------------------------------------------------


def _turn(closed: jax_core.ClosedJaxpr, first: int, carried: dict[int, _Carried]) -> jax_core.ClosedJaxpr:
    """A body that is given, and gives, some of what it carries extended."""
    body = closed.jaxpr
    makers = {eqn: k for k, own in carried.items() for eqn in own.barriers}
    wanted = _needed(body, body.outvars, makers)

    def turn(*inputs: Any) -> list[Any]:
        given = list(inputs)
        for k, own in carried.items():
            given[first + k] = own.inside(inputs[first + k])

        def run(eqn: jax_core.JaxprEqn, operands: list[Any]) -> list[Any]:
            if eqn in makers:
                return [inputs[first + makers[eqn]]]
            return bind(eqn, operands) if eqn in wanted else [None] * len(eqn.outvars)

        results = evaluate(closed, given, run)
        return [carried[k].extend(result) if k in carried else result for k, result in enumerate(results)]

    structs = list(map(struct, body.invars))
    for k, own in carried.items():
        structs[first + k] = jax.eval_shape(own.extend, structs[first + k])
    return jax.make_jaxpr(turn)(*structs)


def _extended(eqn: jax_core.JaxprEqn) -> Callable[..., list[Any]] | None:
    """The loop that carries some of what it carries extended; None where an equation is none that should."""
    carried = _carried(eqn)
    if not carried:
        return None

    def run(*inputs: Any) -> list[Any]:
        params, (first, _), given = dict(eqn.params), scan_counts(eqn), list(inputs)
        params["jaxpr"] = carry_extended(_turn(params["jaxpr"], first, carried))
        for k, own in carried.items():
            given[first + k] = own.extend(inputs[first + k])
        primitive: Any = eqn.primitive
        results = primitive.bind(*given, **params)
        return [carried[k].inside(result) if k in carried else result for k, result in enumerate(results)]

    return run


def carry_extended(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr whose scans carry what each iteration extends extended, in the bodies of loops as well."""
    return rewrite(closed, _extended)
