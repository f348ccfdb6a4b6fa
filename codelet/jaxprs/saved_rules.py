"""Derivative rules in files: the results of functions with custom derivative rules, and those of their rules, as
jaxprs.

A `custom_jvp` is its jaxpr, and that of its rule: from operands and the directions of those that are smooth to results
and their directions. A `custom_vjp` is its jaxpr, its forward rule, which also returns residuals, and its backward rule
from residuals and cotangents to cotangents. A rule that calls its function again refers to the function that is being
written: it would have no end otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet.jaxprs.equations import bind, with_every_result
from codelet.jaxprs.jaxpr_codec import STRUCTURED, JaxprReader, JaxprWriter
from codelet.jaxprs.plain import MalformedError, NotPlainError, Plain, check_form, listed, mapped, text, whole
from codelet.jaxprs.rebuild import Builder, rebuild, struct

Params = Mapping[str, Plain]

_PLACE = re.compile(r" at 0x[0-9a-f]+|<[^<>]*>")

_MOST_RULES = 8
"""How deep rules are nested that differentiate one another's functions."""


class _Rules(NamedTuple):
    """The parts of a function with derivative rules, as jaxprs.

    Attributes:
        kind: the primitive.
        name: the function's.
        value: from operands to results.
        rules: of a `custom_jvp` one; of a `custom_vjp` the forward and the backward one.
        num_residuals: how many residuals the forward rule returns, behind the results.
        inputs: the places of the smooth operands.
        outputs: the places of the smooth results.
    """

    kind: str
    name: str
    value: jax_core.ClosedJaxpr
    rules: tuple[jax_core.ClosedJaxpr, ...]
    num_residuals: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for functions that give the same, and whose rules do."""
        return self.kind, *(_PLACE.sub("", str(item)) for item in (self.value, *self.rules))


def _is_smooth(aval: Any) -> bool:
    return jnp.issubdtype(aval.dtype, jnp.inexact)


def _smooth(atoms: Sequence[Any]) -> tuple[int, ...]:
    return tuple(k for k, atom in enumerate(atoms) if _is_smooth(atom.aval))


def _rules_of(eqn: jax_core.JaxprEqn) -> _Rules:
    """The parts of an equation of a function with derivative rules: its rules are traced for it.

    Raises:
        NotPlainError: a rule that JAX cannot trace.
    """
    eqn = with_every_result(eqn)
    inputs, outputs = _smooth(eqn.invars), _smooth(eqn.outvars)
    structs = [struct(atom) for atom in eqn.invars]
    call = eqn.params["call_jaxpr"]
    value = call if isinstance(call, jax_core.ClosedJaxpr) else jax_core.ClosedJaxpr(call, ())

    def of_smooth(primals: Sequence[Any], smooth: Sequence[Any]) -> list[Any]:
        operands = list(primals)
        for k, operand in zip(inputs, smooth, strict=True):
            operands[k] = operand
        return bind(eqn, operands)

    def pushed(primals: Sequence[Any], directions: Sequence[Any]) -> list[Any]:
        smooth = [primals[k] for k in inputs]
        results, slopes = jax.jvp(lambda *item: of_smooth(primals, item), smooth, list(directions))
        return [*results, *(slopes[k] for k in outputs)]

    trees: list[Any] = []

    def forward(primals: Sequence[Any]) -> list[Any]:
        def smooth_and_rest(*item: Any) -> tuple[list[Any], list[Any]]:
            results = of_smooth(primals, item)
            return [results[k] for k in outputs], results

        _, pull, results = jax.vjp(smooth_and_rest, *(primals[k] for k in inputs), has_aux=True)
        leaves, tree = jax.tree.flatten(pull)
        trees.append(tree)
        return [*results, *leaves]

    try:
        if eqn.primitive.name == "custom_jvp_call":
            rule = jax.make_jaxpr(pushed)(structs, [structs[k] for k in inputs])
            return _Rules(eqn.primitive.name, _name(value), value, (_tidy(rule),), 0, inputs, outputs)
        first = jax.make_jaxpr(forward)(structs)
        residuals = [_struct_of(aval) for aval in first.out_avals[len(eqn.outvars) :]]
        cotangents = [struct(eqn.outvars[k]) for k in outputs]
        second = jax.make_jaxpr(lambda saved, passed: list(jax.tree.unflatten(trees[-1], saved)(list(passed))))(
            residuals, cotangents
        )
    except NotPlainError:
        raise
    except Exception as error:  # whatever a user's rule raises
        raise NotPlainError(f"a derivative rule of {_name(value)!r}: {type(error).__name__}: {error!s:.60}") from error
    return _Rules(
        eqn.primitive.name, _name(value), value, (_tidy(first), _tidy(second)), len(residuals), inputs, outputs
    )


def _name(closed: jax_core.ClosedJaxpr) -> str:
    return str(closed.jaxpr.debug_info.func_name or "")


def _tidy(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr without the equations that nothing needs."""
    return rebuild(closed, Builder.equation)


def _struct_of(aval: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)


def _write(writer: JaxprWriter, eqn: jax_core.JaxprEqn) -> Params:
    rules = _rules_of(eqn)
    if rules.key in writer.rules:
        return {"again": writer.rules.index(rules.key)}
    if len(writer.rules) >= _MOST_RULES:
        raise NotPlainError(f"derivative rules of {rules.name!r} that differentiate one another without end")
    value = writer.jaxpr(rules.value)
    writer.rules.append(rules.key)
    written = [writer.jaxpr(rule) for rule in rules.rules]
    writer.rules.pop()
    return {
        "name": rules.name,
        "rule": _rule_name(eqn),
        "value": value,
        "rules": written,
        "num_residuals": rules.num_residuals,
        "inputs": list(rules.inputs),
        "outputs": list(rules.outputs),
    }


def _rule_name(eqn: jax_core.JaxprEqn) -> str:
    """The name of a `custom_jvp`'s rule, where JAX says it."""
    about = getattr(eqn.params.get("jvp_jaxpr_fun"), "debug_info", None)
    return str(getattr(about, "func_name", None) or "rule")


def _no_direction(aval: Any) -> np.ndarray:
    return np.zeros(aval.shape, jax.dtypes.float0)


class _ReadRules:
    """A function with derivative rules that is read: its rules are read when JAX asks for them."""

    def __init__(self, reader: JaxprReader, params: Params, kind: str):
        mapped(dict(params), "name", "rule", "value", "rules", "num_residuals", "inputs", "outputs")
        self.reader, self.params = reader, params
        self.around = [*reader.rules, self]
        self.name = text(params["name"], 1000)
        self.value, self.rules = params["value"], listed(params["rules"], 1 if kind == "custom_jvp_call" else 2)
        self.num_residuals = whole(params["num_residuals"], 0, 1 << 20)
        self.inputs = [whole(k, 0, 1 << 20) for k in listed(params["inputs"])]
        self.outputs = [whole(k, 0, 1 << 20) for k in listed(params["outputs"])]
        self.function = self._with_jvp() if kind == "custom_jvp_call" else self._with_vjp()

    def _run(self, plain: Plain, inputs: Sequence[Any], around: list[Any]) -> list[Any]:
        before, self.reader.rules = self.reader.rules, around
        try:
            return self.reader.run(plain, inputs)
        finally:
            self.reader.rules = before

    def _plainly(self) -> Any:
        def function(*operands: Any) -> list[Any]:
            return self._run(self.value, operands, self.around[:-1])

        function.__name__ = function.__qualname__ = self.name
        return function

    def check(self) -> None:
        """See that the rules can be read, before anybody asks for them."""
        for rule in self.rules:
            before, self.reader.rules = self.reader.rules, self.around
            self.reader.closed(rule)
            self.reader.rules = before

    def _with_jvp(self) -> Any:
        function = jax.custom_jvp(self._plainly())

        def jvp(primals: Sequence[Any], directions: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            built = self._run(self.rules[0], [*primals, *(directions[k] for k in self.inputs)], self.around)
            count = len(built) - len(self.outputs)
            slopes, results = iter(built[count:]), built[:count]
            smooth = self.outputs
            return results, [next(slopes) if k in smooth else _no_direction(item) for k, item in enumerate(results)]

        jvp.__name__ = jvp.__qualname__ = text(self.params["rule"], 1000)
        function.defjvp(jvp)
        return function

    def _with_vjp(self) -> Any:
        function = jax.custom_vjp(self._plainly())

        def forward(*operands: Any) -> tuple[list[Any], Any]:
            built = self._run(self.rules[0], operands, self.around)
            count = len(built) - self.num_residuals
            return built[:count], (built[count:], operands)

        def backward(saved: Any, cotangents: Sequence[Any]) -> tuple[Any, ...]:
            residuals, operands = saved
            smooth = [cotangents[k] for k in self.outputs]
            slopes = iter(self._run(self.rules[1], [*residuals, *smooth], self.around))
            return tuple(next(slopes) if k in self.inputs else _no_direction(item) for k, item in enumerate(operands))

        function.defvjp(forward, backward)
        return function


def _reader_of(kind: str) -> Any:
    def read(reader: JaxprReader, params: Params, operands: list[Any]) -> Sequence[Any]:
        if "again" in params:
            mapped(dict(params), "again")
            check_form(reader.rules, "a rule outside of a function with rules")
            rules = reader.rules[whole(params["again"], 0, len(reader.rules) - 1)]
        else:
            if len(reader.rules) >= _MOST_RULES:
                raise MalformedError("derivative rules that are nested too deep")
            rules = _ReadRules(reader, params, kind)
            rules.check()
        return rules.function(*operands)

    return read


STRUCTURED["custom_jvp_call"] = _write, _reader_of("custom_jvp_call")
STRUCTURED["custom_vjp_call"] = _write, _reader_of("custom_vjp_call")
