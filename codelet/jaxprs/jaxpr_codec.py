"""The codec of jaxprs: equations as plain data, and equations that are bound again.

In comes a closed jaxpr, which neither JSON nor `pickle` takes. Out come its equations by the names of a numbered set of
primitives (`primitive_set.py`, `structured.py`), with their parameters. Derivative rules are included
(`saved_rules.py`). Reading them binds JAX's primitives again, in order, so that JAX itself checks every shape and
dtype. Scopes and source lines are not written, nor where the call of a jitted function is to run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet.jaxprs.equations import literal_value
from codelet.jaxprs.plain import (
    MalformedError,
    NotPlainError,
    Plain,
    PlainReader,
    PlainWriter,
    check_form,
    dtype_name,
    dtype_named,
    listed,
    mapped,
    text,
    whole,
)
from codelet.jaxprs.primitive_set import FORMS, is_default, public_primitives, wanted
from codelet.jaxprs.symbolic_sizes import size_from_text

MOST_NESTED = 40
"""How deep jaxprs in files are nested."""

Symbol = type(jax.export.symbolic_shape("n")[0])

ReadEquation = Callable[["JaxprReader", Mapping[str, Plain], list[Any]], Sequence[Any]]
"""Binds an equation: from the parameters in a file and the operands to the results."""

WriteEquation = Callable[["JaxprWriter", jax_core.JaxprEqn], Mapping[str, Plain]]
"""The parameters of an equation as plain data."""

STRUCTURED: dict[str, tuple[WriteEquation, ReadEquation]] = {}
"""Primitives in forms of the library's own, by name; `structured.py` and `saved_rules.py` register them."""

SAME_NAME = {"pjit": "jit"}
"""Names that releases of JAX have for one primitive."""


# --- writing ----------------------------------------------------------------------------------------------------


def _is_wide(aval: Any) -> bool:
    dtype = getattr(aval, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.kind in "iufc" and dtype.itemsize >= (16 if dtype.kind == "c" else 8)


class JaxprWriter(PlainWriter):
    """Makes plain data of jaxprs, and of values that may hold sizes with symbols and jaxprs.

    Attributes:
        rules: the functions with derivative rules that are being written, the outermost first; see `saved_rules.py`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rules: list[Any] = []
        self._depth = 0

    def other(self, value: Any) -> Plain:
        if isinstance(value, Symbol):
            return ["z", str(value)]
        if isinstance(value, (jax_core.ClosedJaxpr, jax_core.Jaxpr)):
            return ["j", self.jaxpr(value)]
        return super().other(value)

    def type_of(self, aval: Any) -> Plain:
        """The type of an array: shape, dtype, and whether it yields to others."""
        return [self.values(aval.shape), dtype_name(aval.dtype), bool(aval.weak_type)]

    def jaxpr(self, jaxpr: jax_core.ClosedJaxpr | jax_core.Jaxpr) -> Plain:
        """A jaxpr as plain data.

        Raises:
            NotPlainError: it has a primitive that is not of the set, or a parameter that files have no form for.
        """
        consts = jaxpr.consts if isinstance(jaxpr, jax_core.ClosedJaxpr) else ()
        inner = jaxpr.jaxpr if isinstance(jaxpr, jax_core.ClosedJaxpr) else jaxpr
        if len(inner.constvars) != len(consts):
            raise NotPlainError("an open jaxpr with constants")
        if self._depth >= MOST_NESTED:
            raise NotPlainError(f"jaxprs nested deeper than {MOST_NESTED}")
        self._depth += 1
        numbers: dict[Any, int] = {var: k for k, var in enumerate([*inner.constvars, *inner.invars])}
        count, equations, wide = len(numbers), [], any(_is_wide(var.aval) for var in numbers)

        def operand(atom: Any) -> Plain:
            return self._literal(atom) if isinstance(atom, jax_core.Literal) else numbers[atom]

        for eqn in inner.eqns:
            equations.append([*self._equation(eqn), list(map(operand, eqn.invars))])
            for var in eqn.outvars:
                wide = wide or _is_wide(var.aval)
                numbers[var] = count
                count += 1
            wide = wide or any(isinstance(item, jax_core.Literal) and _is_wide(item.aval) for item in eqn.invars)
        self._depth -= 1
        return {
            "inputs": [self.type_of(var.aval) for var in inner.invars],
            "constants": [self._constant(const) for const in consts],
            "equations": equations,
            "results": list(map(operand, inner.outvars)),
            "is_closed": isinstance(jaxpr, jax_core.ClosedJaxpr),
            "is_wide": wide or any(_holds_wide(params) for _, params, _ in equations),
            "name": str(inner.debug_info.func_name or ""),
        }

    def _constant(self, value: Any) -> Plain:
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            raise NotPlainError("random keys among the constants: jax.random.key inside the codelet")
        return [self.array(value), bool(getattr(value, "weak_type", False))]

    def _literal(self, atom: Any) -> Plain:
        value = literal_value(atom)
        plain = self.scalar(value) if not value.ndim else ["a", self.array(value)]
        return [plain, bool(atom.aval.weak_type)]

    def _equation(self, eqn: jax_core.JaxprEqn) -> list[Plain]:
        name = SAME_NAME.get(eqn.primitive.name, eqn.primitive.name)
        if name in STRUCTURED:
            return [name, dict(STRUCTURED[name][0](self, eqn))]
        if name not in FORMS or public_primitives().get(name) is not eqn.primitive:
            raise NotPlainError(f"the primitive {name}")
        form, params = FORMS[name], {}
        for key, value in eqn.params.items():
            if key in form.parameters or not is_default(form.optional.get(key), value):
                if key not in form.parameters and key not in form.optional:
                    raise NotPlainError(f"{name} with {key}={value!r:.60}")
                try:
                    params[key] = self.value(value)
                except NotPlainError as error:
                    raise NotPlainError(f"{name} with {key}: {error}") from None
        return [name, params]


def _holds_wide(plain: Plain) -> bool:
    """Whether any jaxpr in plain data has 64 bits."""
    if isinstance(plain, dict):
        return plain.get("is_wide") is True or any(map(_holds_wide, plain.values()))
    return isinstance(plain, list) and any(map(_holds_wide, plain))


# --- reading ----------------------------------------------------------------------------------------------------


class JaxprReader(PlainReader):
    """Makes jaxprs, and values that may hold them, of plain data.

    Args:
        arrays: those that plain data refers to by number.
        lengths: by name, the meaning of symbols in sizes.

    Attributes:
        rules: the functions with derivative rules that are being read, the outermost first.
    """

    def __init__(self, arrays: Sequence[np.ndarray], lengths: Mapping[str, Any] | None = None):
        super().__init__(arrays)
        self.lengths = lengths or {}
        self.rules: list[Any] = []
        self._depth = 0

    def other(self, tag: str, parts: list[Plain]) -> Any:
        if tag == "z":
            return size_from_text(text(listed(parts, 1)[0]), self.lengths)
        if tag == "j":
            return self.jaxpr(listed(parts, 1)[0])
        return super().other(tag, parts)

    def struct(self, plain: Plain) -> jax.ShapeDtypeStruct:
        """The type of an array."""
        shape, dtype, weak = listed(plain, 3)
        sizes = self.values(listed(shape))
        check_form(all(type(n) is not bool and (not isinstance(n, int) or n >= 0) for n in sizes), "a shape")
        check_form(all(isinstance(n, (int, Symbol)) for n in sizes) and type(weak) is bool, "the type of an array")
        return jax.ShapeDtypeStruct(tuple(sizes), dtype_named(dtype), weak_type=weak)

    def run(self, plain: Plain, inputs: Sequence[Any]) -> list[Any]:
        """The results of a jaxpr in plain data, by binding its equations."""
        parts = mapped(plain, "inputs", "constants", "equations", "results", "is_closed", "is_wide", "name")
        check_form(len(listed(parts["inputs"])) == len(inputs), "the number of operands")
        values = [*map(self._constant, listed(parts["constants"])), *inputs]

        def operand(number: Plain) -> Any:
            return values[whole(number, 0, len(values) - 1)] if type(number) is int else self._literal(number)

        for equation in listed(parts["equations"]):
            name, params, operands = listed(equation, 3)
            check_form(type(params) is dict, "the parameters of an equation")
            values += self._bind(text(name), params, [operand(number) for number in listed(operands)])
        return [operand(number) for number in listed(parts["results"])]

    def _constant(self, plain: Plain) -> Any:
        number, weak = listed(plain, 2)
        array = self.array(number)
        return (
            jax.lax.convert_element_type(array.item(), array.dtype) if weak and not array.ndim else jnp.asarray(array)
        )

    def _literal(self, plain: Plain) -> Any:
        number, weak = listed(plain, 2)
        value = self.value(number)
        check_form(isinstance(value, (np.generic, np.ndarray)) and type(weak) is bool, "a literal")
        python = value.item() if weak else None
        if python is not None and jnp.asarray(python).dtype == value.dtype:
            return python
        return value

    def _bind(self, name: str, params: Mapping[str, Plain], operands: list[Any]) -> list[Any]:
        if name in STRUCTURED:
            return list(STRUCTURED[name][1](self, params, operands))
        check_form(name in FORMS, f"the primitive {name!r:.40}")
        form = FORMS[name]
        if name not in public_primitives():
            raise MalformedError(f"the primitive {name!r}, which JAX {jax.__version__} does not have")
        mapped(dict(params), *form.parameters, optional=tuple(form.optional))
        read = {key: self.value(value) for key, value in params.items()}
        asked = wanted(name)
        for key in form.optional:
            if key in asked:
                read.setdefault(key, form.optional[key])
            elif key in read:
                raise MalformedError(f"{name} with {key}, which JAX {jax.__version__} does not have")
        results = public_primitives()[name].bind(*operands, **read)
        return list(results) if public_primitives()[name].multiple_results else [results]

    def jaxpr(self, plain: Plain) -> jax_core.ClosedJaxpr | jax_core.Jaxpr:
        """A jaxpr, closed or open as it was written."""
        closed = self.closed(plain)
        if plain["is_closed"]:
            return closed
        check_form(not closed.consts, "an open jaxpr with constants")
        return closed.jaxpr

    def closed(self, plain: Plain) -> jax_core.ClosedJaxpr:
        """A jaxpr with its constants."""
        check_form(self._depth < MOST_NESTED, "jaxprs that are nested too deep")
        self._depth += 1
        check_form(type(plain) is dict and type(plain.get("is_closed")) is bool, "a jaxpr")
        structs = [self.struct(item) for item in listed(plain.get("inputs"))]

        def run(*inputs: Any) -> list[Any]:
            return self.run(plain, inputs)

        run.__name__ = run.__qualname__ = text(plain.get("name"), 1000) or "run"
        built = jax.make_jaxpr(run)(*structs)
        self._depth -= 1
        return built
