"""Codelets of jaxprs, which have no Python function: equations of another program, or of a file.

In come a jaxpr, or one for each combination of types its fields may have, and names for its inputs and outputs. Out
comes a `Codelet` that is traced by looking up the jaxpr that fits, and that runs plainly by running it.
"""

from __future__ import annotations

import inspect
import keyword
import uuid
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend import core as jax_core

from codelet.deprecated import old_arguments
from codelet.errors import CapturedTracerError, CodeletDefinitionError, CodeletTraceError
from codelet.jaxprs.batchable import batchable
from codelet.jaxprs.own_constants import with_own_constants
from codelet.jaxprs.saved_jaxprs import SavedJaxpr, read_jaxpr, saved_jaxpr
from codelet.saving import reduced
from codelet.tracing.codelets import Codelet
from codelet.tracing.field_types import FieldType
from codelet.tracing.hints import NO_HINTS, Hints, Issue, check_hints
from codelet.tracing.traced_codelet import TracedCodelet

_PLAIN_NUMBERS = {"b": bool, "i": int, "f": float, "c": complex}
"""Of plain numbers, whose dtype yields to others, the type by the kind of that dtype."""


def _type_of(value: Any) -> FieldType:
    """The type of an array, or of a variable of a jaxpr."""
    return FieldType(tuple(value.shape), np.dtype(value.dtype), bool(value.weak_type))


def _yields_to(kind: FieldType, expected: FieldType) -> bool:
    """Whether a field of some type may be given to an input: of the same, or plain numbers that become its dtype."""
    if kind.shape != expected.shape:
        return False
    number = _PLAIN_NUMBERS.get(kind.dtype.kind) if kind.weak else None
    return kind.dtype == expected.dtype or (
        number is not None and jnp.result_type(number, expected.dtype) == expected.dtype
    )


def _types_text(names: Iterable[str], kinds: Iterable[FieldType]) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in zip(names, kinds, strict=True)) or "no fields"


class JaxprCodelet(Codelet):
    """A codelet that runs jaxprs. Made by `codelet_from_jaxpr`.

    Attributes:
        jaxprs: one for each combination of types of the inputs.
        outputs: names for the results, in order.
        types: of each of them those of its inputs.
    """

    def __init__(
        self,
        jaxprs: Sequence[jax_core.ClosedJaxpr],
        inputs: Sequence[str],
        outputs: Sequence[str],
        name: str,
        hints: Hints = NO_HINTS,
    ):
        def run(*args: Any, **kwargs: Any) -> Any:
            fields = [jnp.asarray(field) for field in signature.bind(*args, **kwargs).args]
            jaxpr, kinds = self.fitting([_type_of(jax.typeof(field)) for field in fields])
            given = [jax.lax.convert_element_type(f, k.dtype) for f, k in zip(fields, kinds, strict=True)]
            results = dict(zip(self.outputs, jax_core.jaxpr_as_fun(jaxpr)(*given), strict=True))
            return results["out"] if list(results) == ["out"] else results

        parameters = [inspect.Parameter(field, inspect.Parameter.POSITIONAL_OR_KEYWORD) for field in inputs]
        signature = run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__name__ = run.__qualname__ = name
        self.jaxprs = tuple(jaxprs)
        self.outputs = tuple(outputs)
        self.types = tuple(tuple(map(_type_of, jaxpr.in_avals)) for jaxpr in jaxprs)
        self._identity = uuid.uuid4().hex  # in files
        super().__init__(run, hints)

    def fitting(self, kinds: Sequence[FieldType]) -> tuple[jax_core.ClosedJaxpr, tuple[FieldType, ...]]:
        """The jaxpr for inputs of some types, and the types that it expects.

        Raises:
            CodeletTraceError: there is none.
        """
        found = [k for k, own in enumerate(self.types) if all(map(_yields_to, kinds, own))]
        if not found:
            several = len(self.types) > 1
            raise CodeletTraceError(
                f"codelet {self.name!r} has no jaxpr for these fields",
                given=_types_text(self.inputs, kinds),
                expected=" or ".join(_types_text(self.inputs, own) for own in self.types[:4])
                + (f" or {len(self.types) - 4} others" if len(self.types) > 4 else ""),
                fix="views of these shapes and dtypes; or "
                + ("a jaxpr for these types too" if several else "one jaxpr for each: cl.codelet_from_jaxpr([...])"),
            )
        same = [k for k in found if all(a.dtype == b.dtype for a, b in zip(self.types[k], kinds, strict=True))]
        best = (same or found)[0]
        return self.jaxprs[best], self.types[best]

    def _functions(self) -> tuple[Callable[..., Any], ...]:
        return self.hints.functions

    def _of(self, *functions: Callable[..., Any]) -> Codelet:
        return JaxprCodelet(self.jaxprs, tuple(self.inputs), self.outputs, self.name, self.hints.of(*functions))

    def _trace(
        self,
        inputs: dict[str, FieldType],
        static: dict[str, Any],
        least: int,
        function: Callable[..., Any] | None = None,
    ) -> TracedCodelet:
        kinds = tuple(inputs.values())
        jaxpr, expected = self.fitting(kinds)
        if kinds != expected or any(aval.weak_type for aval in jaxpr.out_avals):
            return super()._trace(inputs, static, least, function)  # plain numbers become arrays on the way in or out
        outputs = dict(zip(self.outputs, map(_type_of, jaxpr.out_avals), strict=True))
        has_effects = bool(jaxpr.effects)
        return TracedCodelet(self, inputs, static, outputs, batchable(jaxpr), has_effects=has_effects)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._origin is not None:
            return super().__reduce__()
        for own in self.hints.functions:
            what = "cycles" if own is self.hints.cycles else "trip_count"
            reduced(own, own, (), f"the {what} of codelet {self.name!r}")
        jaxprs = tuple(saved_jaxpr(jaxpr, self.name) for jaxpr in self.jaxprs)
        _by_identity[self._identity] = self
        return _read_again, (self._identity, jaxprs, tuple(self.inputs), self.outputs, self.name, self.hints)

    def __str__(self) -> str:
        for own in self.types:
            self.specialise(dict(zip(self.inputs, own, strict=True)))
        return super().__str__()


_by_identity: weakref.WeakValueDictionary[str, JaxprCodelet] = weakref.WeakValueDictionary()
"""Codelets that were written or read, so that one that is read again is the same object."""


def _read_again(identity: str, jaxprs: Sequence[SavedJaxpr], *others: Any) -> JaxprCodelet:
    """A codelet as it was before it was pickled."""
    found = _by_identity.get(identity)
    if found is None:
        found = JaxprCodelet(tuple(map(read_jaxpr, jaxprs)), *others)
        found._identity = identity
        found = _by_identity.setdefault(identity, found)
    return found


# --- what may be one ----------------------------------------------------------------------------------


def _listed(jaxprs: Any) -> list[jax_core.ClosedJaxpr]:
    """The jaxprs that a user gives.

    Raises:
        CodeletDefinitionError: something else.
    """
    several = isinstance(jaxprs, (list, tuple))
    found = list(jaxprs) if several else [jaxprs]
    others = [own for own in found if not isinstance(own, jax_core.ClosedJaxpr)]
    if found and not others:
        return found
    wrong = others[0] if others else None
    fix = "jax.make_jaxpr(function)(*arguments)"
    if isinstance(wrong, jax_core.Jaxpr):
        fix = "jax.extend.core.ClosedJaxpr(jaxpr, constants)"
    elif callable(wrong):
        fix = f"{fix}, or cl.codelet(function), which traces it for the fields of each vertex"
    raise CodeletDefinitionError(
        "a codelet is made of something other than a jaxpr",
        given=f"{wrong!r:.80}" if found else "an empty list",
        expected="a closed jaxpr, or a list of them, one for each combination of types",
        fix=fix,
    )


def _named(names: Any, count: int, name: str, what: str) -> tuple[str, ...]:
    """Names of a jaxpr's inputs or outputs.

    Raises:
        CodeletDefinitionError: not as many, none at all, one twice, or one that a field may not have.
    """
    found = tuple(names) if isinstance(names, Sequence) and not isinstance(names, str) else (names,)
    strange = [own for own in found if not isinstance(own, str) or own == "tile" or found.count(own) > 1]
    if what == "inputs":
        strange += [own for own in found if not strange and (not own.isidentifier() or keyword.iskeyword(own))]
    if strange or len(found) != count:
        raise CodeletDefinitionError(
            f"the {what} of codelet {name!r} are not named as its jaxpr has them",
            given=f"{what}={names!r:.80}",
            expected=f"{count} {'name' if count == 1 else 'names'}, each once, other than 'tile'"
            + (", as parameters may be called" if what == "inputs" else ""),
            fix=f"another name than {strange[0]!r:.40}" if strange and len(found) == count else None,
        )
    return found


def _check_arrays(jaxpr: jax_core.ClosedJaxpr, inputs: Sequence[str], outputs: Sequence[str], name: str) -> None:
    """Check that the inputs and outputs of a jaxpr can be fields.

    Raises:
        CodeletDefinitionError: something other than arrays of known shapes; or an in-out field of two types.
        CapturedTracerError: constants that are traced.
    """
    before, after = dict(zip(inputs, jaxpr.in_avals, strict=True)), dict(zip(outputs, jaxpr.out_avals, strict=True))
    for field, aval in [*before.items(), *after.items()]:
        dtype = getattr(aval, "dtype", None)
        if not isinstance(dtype, np.dtype) or not all(type(n) is int for n in aval.shape):
            is_key = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
            raise CodeletDefinitionError(
                f"what the jaxpr of codelet {name!r} has for its field {field!r} is no array of a known shape",
                given=aval,
                expected="numbers, of a shape without symbols",
                fix="uint32 data: jax.random.wrap_key_data and jax.random.key_data inside" if is_key else None,
            )
    for field in before.keys() & after.keys():
        took, made = _type_of(before[field]), _type_of(after[field])
        if took[:2] != made[:2]:
            raise CodeletDefinitionError(
                f"the jaxpr of codelet {name!r} changes the type of its in-out field {field!r}",
                given=f"{took} in, {made} out",
                expected="one shape and dtype",
                fix="a name of its own for what comes out, if it is another field",
            )
    if any(isinstance(const, Tracer) for const in jaxpr.consts):
        raise CapturedTracerError(
            f"the jaxpr of codelet {name!r} holds a value of the jax transformation around it",
            given="a traced constant",
            expected="constants that are not traced",
            fix="make the value an input of the jaxpr, and pass it in as a field",
        )


@old_arguments(turns="trip_count")
def codelet_from_jaxpr(
    jaxpr: jax_core.ClosedJaxpr | Sequence[jax_core.ClosedJaxpr],
    inputs: Sequence[str] | str,
    outputs: Sequence[str] | str = "out",
    *,
    name: str | None = None,
    cycles: Callable[..., int] | None = None,
    workers: int = 1,
    issue: Issue | None = None,
    vectorised: bool = False,
    trip_count: Callable[..., int] | int | None = None,
) -> JaxprCodelet:
    """Make a codelet of a jaxpr, such as an equation or part of another program.

    `inputs` and `outputs` name its fields; a name in both is an in-out field. It has no static values, which were fixed
    when the jaxpr was made. A plain number for an input is converted to the input's dtype.

    Args:
        jaxpr: the jaxpr of a vertex; or several, one for each combination of shapes and dtypes of its fields, as for
            each length of a ragged field. Vertices of each are compiled separately. For hundreds of lengths use a
            function instead, which is traced once for all.
        inputs: a name for each of its inputs, in order.
        outputs: a name for each of its results, in order.
        name: that of the codelet. Default: the name of the function that the jaxpr was made of.
        cycles: as of `cl.codelet`.
        workers: as of `cl.codelet`.
        issue: as of `cl.codelet`.
        vectorised: as of `cl.codelet`.
        trip_count: as of `cl.codelet`.

    Raises:
        CodeletDefinitionError: not a jaxpr, invalid options, or names or types that cannot be fields.
        CapturedTracerError: the jaxpr holds traced constants.

    >>> import codelet as cl, jax, jax.numpy as jnp
    >>> jaxpr = jax.make_jaxpr(lambda w, g: w - 0.5 * g)(jnp.ones(3), jnp.ones(3))
    >>> descend = cl.codelet_from_jaxpr(jaxpr, inputs=["w", "g"], outputs=["w"], name="descend")
    >>> descend
    codelet descend(w, g)
    >>> graph = cl.Graph()
    >>> w, g, i = graph.add_variable("w", (6,)), graph.add_variable("g", (6,)), cl.grid(2)
    >>> graph.add_vertex("step", descend, w=w[3 * i:3 * i + 3], g=g[3 * i:3 * i + 3])
    >>> cl.interpret(graph, values={"w": jnp.ones(6), "g": jnp.arange(6.0)}, outputs=[w])["w"].tolist()
    [1.0, 0.5, 0.0, -0.5, -1.0, -1.5]
    """
    hints = Hints(cycles, workers, issue, vectorised, trip_count)
    check_hints(hints)
    jaxprs = _listed(jaxpr)
    called = jaxprs[0].jaxpr.debug_info.func_name if name is None else name
    if not isinstance(called, str):
        raise CodeletDefinitionError("the name of a codelet is no string", given=f"name={name!r:.60}", expected="text")
    for own in jaxprs:
        if not own.out_avals:
            raise CodeletDefinitionError(
                f"the jaxpr of codelet {called!r} returns nothing",
                given=f"{own!s:.80}",
                expected="at least one result: what it only prints or checks still needs one",
            )
        took = _named(inputs, len(own.in_avals), called, "inputs")
        made = _named(outputs, len(own.out_avals), called, "outputs")
        _check_arrays(own, took, made, called)
    codelet = JaxprCodelet([with_own_constants(own) for own in jaxprs], took, made, called, hints)
    twice = next((own for own in codelet.types if codelet.types.count(own) > 1), None)
    if twice is not None:
        raise CodeletDefinitionError(
            f"codelet {called!r} has several jaxprs for the same fields",
            given=_types_text(took, twice),
            expected="one for each combination of types",
        )
    return codelet
