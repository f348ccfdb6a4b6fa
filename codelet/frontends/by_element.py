"""By element: equations that make each element of their results from the elements at the same place.

In comes an equation on arrays of one shape: of an elementwise primitive, or of a call whose jaxpr has nothing else. The
call may be of a jitted function or of one with a derivative rule. Out comes its function of single elements, its
derivative rules kept, and a key that distinguishes it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core
from jax.extend.random import threefry2x32_p

from codelet.frontends.structure import constant_key, dtype_of, parameter_key, shape_of
from codelet.jaxprs.equations import CALLS, bind, evaluate, with_every_result
from codelet.jaxprs.primitives import CUSTOM, ELEMENTWISE, is_understood
from codelet.jaxprs.rebuild import Builder, rebuild, struct

Elements = Sequence[Any]

ALSO_BY_ELEMENT = ("threefry2x32", "bitcast_convert_type")
"""Primitives that are by element too: of keys, and where dtypes are of one width."""


def _fits(shape: tuple[int, ...], atoms: Sequence[Any]) -> bool:
    """Whether values are scalars, or of a shape, or of one where they are spread out along whole dimensions."""
    shapes = {shape_of(atom) for atom in atoms} - {()}
    return all(len(own) == len(shape) and all(a in (1, n) for a, n in zip(own, shape, strict=True)) for own in shapes)


def is_by_element(eqn: jax_core.JaxprEqn, numbers: Container[Any] = ()) -> bool:
    """Whether an equation makes each element from the elements at the same place, and from scalars.

    Args:
        eqn: which.
        numbers: variables that are one number in all their places, whatever their shape.
    """
    return has_values_by_element(eqn, numbers) and (eqn.primitive.name not in CUSTOM or rule_of(eqn) is not None)


def has_values_by_element(eqn: jax_core.JaxprEqn, numbers: Container[Any] = ()) -> bool:
    """Whether an equation is by element but for its own derivative rule, which need not be: that takes long to find."""
    atoms = [atom for atom in (*eqn.invars, *eqn.outvars) if isinstance(atom, jax_core.Literal) or atom not in numbers]
    shape = shape_of(eqn.outvars[0]) if eqn.outvars else ()
    if not eqn.outvars or eqn.effects or not _fits(shape, atoms):
        return False
    if any(shape_of(var) != shape for var in eqn.outvars):
        return False
    if not all(isinstance(dtype_of(atom), np.dtype) for atom in atoms):  # keys
        return False
    if is_understood(eqn, *ELEMENTWISE, *ALSO_BY_ELEMENT):
        same_width = dtype_of(eqn.invars[0]).itemsize == dtype_of(eqn.outvars[0]).itemsize
        return same_width or eqn.primitive.name != "bitcast_convert_type"
    if is_understood(eqn, "broadcast_in_dim"):
        return not shape_of(eqn.invars[0])
    if is_understood(eqn, *CALLS):
        return _all_by_element(eqn.params["jaxpr"], shape)
    if is_understood(eqn, *CUSTOM):
        return _all_by_element(eqn.params["call_jaxpr"], shape)
    return False


def _all_by_element(closed: jax_core.ClosedJaxpr, shape: tuple[int, ...]) -> bool:
    """Whether all equations of a jaxpr are by element, of a shape or of scalars."""
    numbers: set[Any] = set()
    for eqn in closed.eqns:
        if is_understood(eqn, "broadcast_in_dim"):
            (operand,) = eqn.invars
            if not shape_of(operand) or (not isinstance(operand, jax_core.Literal) and operand in numbers):
                numbers.update(eqn.outvars)
                continue
        if not is_by_element(eqn, numbers):
            return False
    results = [atom for atom in closed.jaxpr.outvars if isinstance(atom, jax_core.Literal) or atom not in numbers]
    scalars = all(np.ndim(constant) == 0 for constant in closed.consts)
    whole = all(shape_of(atom) == shape for atom in closed.jaxpr.outvars)
    made = [var for eqn in closed.eqns for var in eqn.outvars if var not in numbers]
    return whole and scalars and _fits(shape, [*closed.jaxpr.invars, *results, *made])


# --- what it does to elements --------------------------------------------------------------------------------


def threefry(*elements: Any) -> list[Any]:
    """Two words of two words of a key and two of a counter, which JAX maps over only where it maps over all of them."""
    nothing = functools.reduce(lax.bitwise_xor, (own ^ own for own in elements))
    return threefry2x32_p.bind(*(own ^ nothing for own in elements))


def of_elements(closed: jax_core.ClosedJaxpr, elements: Elements) -> list[Any]:
    """The results of a jaxpr that is by element, for single elements."""
    return evaluate(closed, elements, on_elements, jnp.asarray)


def on_elements(eqn: jax_core.JaxprEqn, elements: Elements) -> Elements:
    """The results of an equation that is by element, for single elements."""
    if eqn.primitive.name == "threefry2x32":
        return threefry(*elements)
    if eqn.primitive.name == "broadcast_in_dim":
        return elements
    if eqn.primitive.name in CALLS:
        return of_elements(eqn.params["jaxpr"], elements)
    if eqn.primitive.name in CUSTOM:
        rule = rule_of(eqn)
        assert rule is not None
        return rule.function(*elements)
    return bind(eqn, elements)


def element_key(eqn: jax_core.JaxprEqn) -> Hashable:
    """The key that distinguishes an equation by element, whatever its shape."""
    name = eqn.primitive.name
    if name == "broadcast_in_dim":
        return name
    if name in CALLS:
        return name, _closed_key(eqn.params["jaxpr"])
    if name in CUSTOM:
        rule = rule_of(eqn)
        assert rule is not None
        return name, _closed_key(eqn.params["call_jaxpr"]), _closed_key(rule.slopes)
    types = tuple(str(dtype_of(atom)) for atom in (*eqn.invars, *eqn.outvars))
    return name, types, parameter_key(tuple(sorted(eqn.params.items())))


def _closed_key(closed: jax_core.ClosedJaxpr) -> Hashable:
    own = closed.jaxpr
    defined = (*own.constvars, *own.invars, *(var for eqn in own.eqns for var in eqn.outvars))
    numbers = {var: k for k, var in enumerate(defined)}

    def name(atom: Any) -> Hashable:
        return constant_key(atom.val) if isinstance(atom, jax_core.Literal) else numbers[atom]

    equations = tuple((element_key(eqn), tuple(map(name, eqn.invars))) for eqn in own.eqns)
    return len(own.invars), tuple(map(constant_key, closed.consts)), equations, tuple(map(name, own.outvars))


def called(eqn: jax_core.JaxprEqn) -> str:
    """The name of an equation: of a function its name."""
    if "call_jaxpr" in eqn.params:
        return eqn.params["call_jaxpr"].jaxpr.debug_info.func_name or eqn.primitive.name
    return str(eqn.params.get("name", eqn.primitive.name))


# --- functions with derivative rules of their own ------------------------------------------------------------


class ElementRule(NamedTuple):
    """A function of single elements with a derivative rule.

    Attributes:
        is_jvp: whether the rule is of directions, as of `jax.custom_jvp`; else of cotangents.
        value: the result of the function.
        slopes: the result of the rule, from the elements and the directions, or cotangents, of those that are smooth.
        inputs: the elements that are smooth.
        outputs: the results that are.
        function: all of it, as JAX takes it.
    """

    is_jvp: bool
    value: jax_core.ClosedJaxpr
    slopes: jax_core.ClosedJaxpr
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    function: Callable[..., Any]


def _smooth(atoms: Sequence[Any]) -> list[int]:
    return [k for k, atom in enumerate(atoms) if jnp.issubdtype(dtype_of(atom), jnp.inexact)]


@dataclass(frozen=True)
class _SameRule:
    """An equation of a function with a derivative rule, distinguished by its parameters and its types."""

    key: Hashable
    equation: jax_core.JaxprEqn = field(compare=False)


def rule_of(eqn: jax_core.JaxprEqn) -> ElementRule | None:
    """A function with a derivative rule, of single elements; None where the rule is not by element, or refuses."""
    types = tuple(map(struct, (*eqn.invars, *eqn.outvars)))
    literals = tuple(constant_key(own.val) if isinstance(own, jax_core.Literal) else None for own in eqn.invars)
    parameters = tuple((name, id(value)) for name, value in sorted(eqn.params.items()))  # the equation keeps them
    return _found_rule(_SameRule((eqn.primitive.name, types, literals, parameters), eqn))


@functools.lru_cache(maxsize=1024)
def _found_rule(same: _SameRule) -> ElementRule | None:
    eqn = with_every_result(same.equation)
    inputs, outputs = _smooth(eqn.invars), _smooth(eqn.outvars)

    def smooth_part(primals: Elements) -> Callable[..., list[Any]]:
        def of_smooth(*own: Any) -> list[Any]:
            given = list(primals)
            for k, value in zip(inputs, own, strict=True):
                given[k] = value
            results = bind(eqn, given)
            return [results[k] for k in outputs]

        return of_smooth

    is_jvp = eqn.primitive.name == "custom_jvp_call"

    def slopes(primals: Elements, directions: Elements) -> list[Any]:
        smooth = [primals[k] for k in inputs]
        if is_jvp:
            return jax.jvp(smooth_part(primals), smooth, list(directions))[1]
        return list(jax.vjp(smooth_part(primals), *smooth)[1](list(directions)))

    structs = [struct(atom) for atom in eqn.invars]
    directions = [
        struct(atoms[k])
        for atoms, k in ([(eqn.invars, k) for k in inputs] if is_jvp else [(eqn.outvars, k) for k in outputs])
    ]
    try:
        asked = jax.make_jaxpr(slopes)(structs, directions)
    except Exception:  # a rule that refuses does so when it is asked for: the function alone never asks
        return None
    traced = rebuild(asked, Builder.equation)  # without values it only passes by
    if any(own.primitive.name in CUSTOM for own in traced.eqns):  # its own rule may use it, and so on
        return None
    if not _all_by_element(traced, shape_of(eqn.outvars[0])):
        return None
    return element_rule(is_jvp, eqn.params["call_jaxpr"], traced, tuple(inputs), tuple(outputs))


def _none() -> Any:
    return np.zeros((), jax.dtypes.float0)


def _with_jvp(value: Any, slopes: Any, inputs: Sequence[int], outputs: Sequence[int]) -> Callable[..., Any]:
    @jax.custom_jvp
    def function(*elements: Any) -> list[Any]:
        return of_elements(value, elements)

    @function.defjvp
    def _(primals: Elements, tangents: Elements) -> tuple[list[Any], list[Any]]:
        results = function(*primals)
        found = iter(of_elements(slopes, [*primals, *(tangents[k] for k in inputs)]))
        return results, [next(found) if k in outputs else _none() for k in range(len(results))]

    return function


def _with_vjp(value: Any, slopes: Any, inputs: Sequence[int], outputs: Sequence[int]) -> Callable[..., Any]:
    @jax.custom_vjp
    def function(*elements: Any) -> list[Any]:
        return of_elements(value, elements)

    def forward(*elements: Any) -> tuple[list[Any], Any]:
        return function(*elements), elements

    def backward(elements: Elements, cotangents: Elements) -> tuple[Any, ...]:
        found = iter(of_elements(slopes, [*elements, *(cotangents[k] for k in outputs)]))
        return tuple(next(found) if k in inputs else _none() for k in range(len(elements)))

    function.defvjp(forward, backward)
    return function


def element_rule(
    is_jvp: bool,
    value: jax_core.ClosedJaxpr,
    slopes: jax_core.ClosedJaxpr,
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
) -> ElementRule:
    """A function of single elements by its value, with its derivative rule."""
    make = _with_jvp if is_jvp else _with_vjp
    return ElementRule(is_jvp, value, slopes, inputs, outputs, make(value, slopes, inputs, outputs))
