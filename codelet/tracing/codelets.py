"""Codelets: Python functions traced by JAX.

In comes a decorated function. Out comes, for each combination of field shapes, dtypes and static values,
a `TracedCodelet`: a jaxpr with named inputs and outputs. Poplar's codelets are C++ classes whose members
are fields; here the parameters are the input fields and the returned values the output fields.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import FunctionType
from typing import TYPE_CHECKING, Any, overload

import jax
import numpy as np
from jax.core import Tracer

from codelet.deprecated import old_arguments, old_attribute
from codelet.display import as_block
from codelet.errors import (
    CapturedTracerError,
    CodeletDefinitionError,
    CodeletError,
    CodeletTraceError,
    MissingFieldError,
    SavingError,
    UnknownFieldError,
)
from codelet.jaxprs.batchable import batchable
from codelet.jaxprs.own_constants import with_own_constants
from codelet.saving import Unchanging, reduced
from codelet.tracing.captured import Captured, Capturing, apart, captured
from codelet.tracing.concrete import mend_of_asking
from codelet.tracing.field_types import FieldType, SizeNames
from codelet.tracing.hints import NO_HINTS, Hints, Issue, check_hints
from codelet.tracing.lengths import fresh_lengths, length_symbols, watched
from codelet.tracing.parameters import is_a_librarys, parameters_of, wrapped
from codelet.tracing.returned import returned_fields
from codelet.tracing.statics import check_static, trace_settings
from codelet.tracing.traced_codelet import TracedCodelet

if TYPE_CHECKING:
    from codelet.tracing.adjoints import AdjointCodelet


class Codelet(Unchanging, Capturing):
    """A function that vertices are instances of. Made by the decorator `codelet`.

    Attributes:
        function: what was decorated. Calling the codelet calls it.
        name: the function's name.
        inputs: its positional parameters, the input fields.
        static: its keyword-only parameters, each with its default or `inspect.Parameter.empty`.
        hints: what the user says of how it runs on a tile.
    """

    def __init__(self, function: Callable[..., Any], hints: Hints = NO_HINTS):
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)
        self.hints = hints
        inputs, static = [], {}
        for parameter in parameters_of(function, self.name):
            if parameter.name == "tile":
                raise CodeletDefinitionError(
                    f"codelet {self.name!r} has a parameter named 'tile'",
                    expected="another name: `tile` says where a vertex is placed",
                )
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                static[parameter.name] = parameter.default
            elif parameter.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY):
                if parameter.default is not inspect.Parameter.empty:
                    raise CodeletDefinitionError(
                        f"codelet {self.name!r} has a default for its field {parameter.name!r}",
                        given=parameter,
                        expected="fields without defaults; static values are keyword-only parameters",
                        fix=f"write `*, {parameter}` to make it a static value"
                        if not is_a_librarys(function)
                        else wrapped(self.name, inputs),
                    )
                inputs.append(parameter.name)
            else:
                raise CodeletDefinitionError(
                    f"codelet {self.name!r} has the parameter {parameter}",
                    expected="named fields, and keyword-only static values",
                    fix="one parameter for each field; many of one kind are an array: a tensor joined by cl.concatenate"
                    if not is_a_librarys(function)
                    else wrapped(self.name, inputs),
                )
        self.inputs: tuple[str, ...] = tuple(inputs)
        self.static: dict[str, Any] = static
        self.captures = False  # anything that may change, as far as is known; see `frozen`
        self.may_hold_more = not isinstance(function, FunctionType)  # what changes inside, as far as is known
        self._traced: dict[Hashable, TracedCodelet] = {}
        self._captured: tuple[Captured, ...] = ()
        self._now: Codelet | None = None
        self._frozen: dict[Hashable, tuple[Codelet, tuple[Captured, ...]]] = {}
        self._origin: Codelet | None = None
        self._of_function: tuple[Callable[..., Any], Captured | None] = function, None
        self._by_bits: dict[int, Callable[..., Any]] = {}
        functools.update_wrapper(self, function)

    def frozen(self) -> Codelet:
        """The codelet as it is now, whatever becomes of the numbers that its functions capture; itself if of none.

        It is one object for as long as they are what they were, and again when they are so again.
        """
        if self._origin is not None:
            return self
        if self._now is None or not all(part.holds() for part in self._captured):
            self._captured = tuple(captured(function) for function in self._functions())
            self.captures = not all(part.is_empty for part in self._captured)
            self.may_hold_more = any(part.may_hold_more for part in self._captured)
            self._now = self._as_captured() if self.captures else self
        return self._now

    def _functions(self) -> tuple[Callable[..., Any], ...]:
        """Those of the user's functions that it runs."""
        return (self.function, *self.hints.functions)

    def _of(self, *functions: Callable[..., Any]) -> Codelet:
        """The same codelet of other functions."""
        function, *hinting = functions
        return Codelet(function, self.hints.of(*hinting))

    @property
    def captured(self) -> tuple[Captured, ...]:
        """Its functions, as they were when it was frozen last."""
        return self._captured

    def _as_captured(self) -> Codelet:
        key = tuple(part.key for part in self._captured)
        if key not in self._frozen:
            made = self._of(*(part.function for part in self._captured))
            made.name, made._origin, made._of_function = self.name, self, (self.function, self._captured[0])
            made.may_hold_more = self.may_hold_more
            self._frozen[key] = made, self._captured  # which keeps alive what keys name by identity
        return self._frozen[key][0]

    @property
    def of_function(self) -> tuple[Callable[..., Any], Captured | None]:
        """The function as it was given, and what it captured where this is the codelet as it was then.

        Codelets with the same, and the same key of that, trace to the same, whatever their hints.
        """
        return self._of_function

    @property
    def function_now(self) -> Callable[..., Any]:
        """The function with arrays that JAX has seen with as many bits as it allows now, if ever: see `apart`."""
        captures = self._of_function[1]
        if captures is None or not captures.arrays:
            return self.function
        bits = jax.dtypes.canonicalize_dtype(np.int64).itemsize
        if bits not in self._by_bits:
            self._by_bits[bits] = apart(self.function)
        return self._by_bits[bits]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself, called as Python calls it."""
        return self.function_now(*args, **kwargs)

    def static_values(self, given: Mapping[str, Any]) -> tuple[dict[str, Hashable], Hashable]:
        """The static values of a vertex, those given and the defaults of the others; and what they have in common.

        Raises:
            MissingFieldError: a static value without a default that was not given.
            FieldTypeError: one that cannot be hashed, or is no single value.
        """
        values: dict[str, Hashable] = {}
        keys = []
        for name, default in self.static.items():
            value = given.get(name, default)
            if value is inspect.Parameter.empty:
                raise MissingFieldError(
                    f"codelet {self.name!r} was given no value for its static {name!r}",
                    given=sorted(given),
                    expected=f"{name}=...",
                )
            signature = ", ".join([*self.inputs, name])
            otherwise = f"a positional parameter takes it, as an edge or as vertex state: def {self.name}({signature})"
            keys.append(check_static(value, f"static {name!r} of codelet {self.name!r}", otherwise))
            values[name] = value
        return values, tuple(keys)

    def size_names(self, static: Mapping[str, Any], ranks: Sequence[int]) -> SizeNames | None:
        """The sizes of its fields, of a codelet whose function is the same whatever these are: `sizes_named`; or None.

        Args:
            static: its static values.
            ranks: how many dimensions each field has.
        """
        named = getattr(self.function, "size_names", None)
        return None if named is None else named(static, ranks)

    trace = old_attribute("Codelet.trace", "specialise")

    def specialise(
        self, inputs: Mapping[str, FieldType], static: Mapping[str, Hashable] | None = None, least: int = 1
    ) -> TracedCodelet:
        """The codelet for fields of some types: a jaxpr, traced once for each combination of types and static values.

        Args:
            inputs: the type of every input field.
            static: static values; those with defaults may be left out.
            least: what the first symbol for a length stands for at least.

        Raises:
            CodeletTraceError: JAX cannot trace the function, or it returns something else than arrays.
            CapturedTracerError: the function closes over a tracer.
        """
        own = self.frozen()
        if own is not self:
            return own.specialise(inputs, static, least)
        self.check_names(inputs)
        values, keys = self.static_values(static or {})
        types = {name: inputs[name] for name in self.inputs}
        settings = trace_settings()
        variant = keys, settings
        key = tuple(types.values()), variant, least
        traced = self._traced.get(key)
        if traced is None:
            traced = replace(self._trace(types, values, least), variant=variant, settings=settings, least=least)
            self._traced[key] = traced
        return traced

    def adjoint(
        self, fields: Mapping[str, Any], *, wrt: Iterable[str] | None = None, of: Iterable[str] | None = None
    ) -> AdjointCodelet:
        """The codelet that takes cotangents of its results to what its inputs contribute, as JAX's `vjp` has it.

        Its fields are those inputs and results that the derivatives are made of, under their own names, `d_out` for
        the cotangent of `out`, and `d_x` for the contribution of `x`; see its attribute `fields`. A field that is
        in-out has a `d_acc` that is in-out.

        Args:
            fields: for every input an array, or what else has a shape and dtype; and static values.
            wrt: the inputs that contributions are wanted for; all of floats when left off.
            of: the results that cotangents are given of; all of floats when left off.

        Raises:
            UnknownFieldError, MissingFieldError: fields that are not the codelet's.
            FieldTypeError: something given for one that has no shape and dtype.
            CodeletTraceError: it does not trace for these, JAX has no derivative of it, or it depends on none of them.

        >>> import codelet as cl, jax.numpy as jnp
        >>> @cl.codelet
        ... def dot(x, w):
        ...     return jnp.dot(x, w)
        >>> dot.adjoint({"x": jnp.ones(3), "w": jnp.ones(3)}, wrt=["w"])
        codelet dot_adjoint(x, d_out)
        >>> _(jnp.arange(3.0), 2.0)["d_w"].tolist()
        [0.0, 2.0, 4.0]
        """
        adjoints = importlib.import_module("codelet.tracing.adjoints")  # which is made of codelets
        return adjoints.adjoint_for(self, fields, wrt, of)

    def trace_fresh(
        self,
        inputs: Mapping[str, FieldType],
        static: Mapping[str, Hashable],
        least: int = 1,
        function: Callable[..., Any] | None = None,
    ) -> TracedCodelet:
        """It traced for types whose sizes may be any of JAX's symbols, which nothing remembers; see `any_size.py`.

        Args:
            inputs: the type of every input field.
            static: all its static values.
            least: what the first symbol for a length stands for at least.
            function: a copy of its function, to be traced in its place.
        """
        return self._trace(dict(inputs), dict(static), least, function)

    def _trace(
        self,
        inputs: dict[str, FieldType],
        static: dict[str, Hashable],
        least: int,
        function: Callable[..., Any] | None = None,
    ) -> TracedCodelet:
        names: list[str] = []
        ragged = any(kind.is_ragged for kind in inputs.values())
        symbols = dict(zip(length_symbols(), fresh_lengths(least), strict=True)) if ragged else {}
        structs = [kind.at(symbols).struct() for kind in inputs.values()]

        run = self.function_now if function is None else function

        def by_name(*fields: Any) -> list[Any]:
            named = returned_fields(self.name, run(*fields, **static), self.static)
            names.extend(named)
            return list(named.values())

        types = ", ".join(f"{name}: {kind}" for name, kind in inputs.items())
        try:
            make = lambda: jax.make_jaxpr(by_name)(*structs)  # noqa: E731
            sizes = [size for struct in structs for size in struct.shape if not isinstance(size, int)]
            jaxpr, answers = watched(make, sizes) if ragged else (make(), None)
        except CodeletError:
            raise
        except Exception as error:
            message = str(error).strip().split("\n")[0]
            raise CodeletTraceError(
                f"codelet {self.name!r} fails for these fields: {type(error).__name__}: {message}",
                given=types,
                expected="a pure JAX function that returns an array, or a dict of arrays",
                fix=mend_of_asking(error) or f"jax.make_jaxpr({self.name})(...), of such arrays, shows where",
            ) from error
        if any(isinstance(const, Tracer) for const in jaxpr.consts):
            raise CapturedTracerError(
                f"codelet {self.name!r} uses a value of the jax transformation around it",
                given="a traced array, from outside the codelet",
                expected="fields, static values, and arrays that are not traced",
                fix="pass the value in as a field",
            )
        jaxpr = batchable(with_own_constants(jaxpr))
        own = {fresh: symbol for symbol, fresh in symbols.items()}
        outputs = {
            name: FieldType(tuple(aval.shape), np.dtype(aval.dtype)).at(own)
            for name, aval in zip(names, jaxpr.out_avals, strict=True)
        }
        for name in outputs.keys() & inputs.keys():
            if outputs[name][:2] != inputs[name][:2]:
                raise CodeletTraceError(
                    f"codelet {self.name!r} changes the type of its in-out field {name!r}",
                    given=f"{inputs[name]} in, {outputs[name]} out",
                    expected="one shape and dtype",
                )
        return TracedCodelet(self, inputs, static, outputs, jaxpr, answers=answers, has_effects=bool(jaxpr.effects))

    def check_names(self, given: Mapping[str, Any]) -> None:
        """See that every input is given and nothing is that cannot be a field.

        Raises:
            MissingFieldError: an input that is not among `given`.
        """
        for name in self.inputs:
            if name not in given:
                strange = [other for other in given if other not in self.inputs and other not in self.static]
                near = difflib.get_close_matches(name, strange, 1, 0.3) or (strange if len(self.inputs) == 1 else [])
                raise MissingFieldError(
                    f"codelet {self.name!r} was given nothing for its field {name!r}",
                    given=", ".join(given) or "no fields",
                    expected=", ".join(self.inputs),
                    fix=f"{name}=... in place of {near[0]}=..." if near else f"{name}=...",
                )

    def __reduce__(self) -> tuple[Any, ...]:
        if self._origin is not None:
            if self._origin.frozen() is not self:
                raise SavingError(
                    f"codelet {self.name!r} cannot be pickled: the numbers around its function have changed since",
                    given="vertices that were added before they changed",
                    expected="numbers that the codelet finds again where it is defined",
                    fix="give them to the codelet as static values or as vertex state",
                )
            return self._origin.__reduce__()
        return reduced(self, self.function, (Codelet, (self.function, self.hints)), f"codelet {self.name!r}")

    def unknown_field(self, name: str, outputs: Mapping[str, FieldType]) -> UnknownFieldError:
        """The error for a field the codelet does not have."""
        has = ", ".join(dict.fromkeys([*self.inputs, *self.static, *outputs]))
        return UnknownFieldError(f"codelet {self.name!r} has no field {name!r}", given=f"{name}=...", expected=has)

    def __repr__(self) -> str:
        static = [f"*, {', '.join(self.static)}"] if self.static else []
        return f"codelet {self.name}({', '.join([*self.inputs, *static])})"

    def __str__(self) -> str:
        every = (self, *(frozen for frozen, _ in self._frozen.values()))
        traces = "\n".join(str(traced) for codelet in every for traced in codelet._traced.values())
        return traces or f"{self!r}, not traced yet"

    def _repr_html_(self) -> str:
        return as_block(self)


@overload
def codelet(
    function: Callable[..., Any],
    /,
    *,
    cycles: Callable[..., int] | None = None,
    workers: int = 1,
    issue: Issue | None = None,
    vectorised: bool = False,
    trip_count: Callable[..., int] | int | None = None,
) -> Codelet: ...
@overload
def codelet(
    *,
    cycles: Callable[..., int] | None = None,
    workers: int = 1,
    issue: Issue | None = None,
    vectorised: bool = False,
    trip_count: Callable[..., int] | int | None = None,
) -> Callable[[Callable[..., Any]], Codelet]: ...
@old_arguments(turns="trip_count")
def codelet(
    function: Callable[..., Any] | None = None,
    /,
    *,
    cycles: Callable[..., int] | None = None,
    workers: int = 1,
    issue: Issue | None = None,
    vectorised: bool = False,
    trip_count: Callable[..., int] | int | None = None,
) -> Codelet | Callable[[Callable[..., Any]], Codelet]:
    """Make a codelet of a pure JAX function.

    Positional parameters are input fields, keyword-only parameters static values. A single returned
    array is the field `out`; a returned dict names several. A returned name that is also a parameter is
    an in-out field.

    A static value is part of what is traced: use it for what shapes, loops and choices of the function depend on, and
    for what most vertices share. Vertices that differ in one are families of their own, each traced and compiled
    by itself. A number that differs from vertex to vertex is better a positional parameter, given a number, an index
    expression or an array over the grid: state of the vertices of one family.

    Args:
        function: what to decorate.
        cycles: the vertex's cycles on one worker, as a function of the input fields, of which it sees
            `shape`, `size` and `dtype`, and of the static values, all by name. Left off, its equations are counted.
        workers: how many workers of a tile share the work of each vertex, as of Poplar's MultiVertex.
        issue: `"assembly"` where its loops load and store while they compute, as hand-written ones do, `"compiled"`
            where one instruction follows another. Left off, it is what the target supposes: the IPU takes a
            codelet that is one of PopLibs' vertices for assembly, and any other for compiled C++.
        vectorised: whether its compiled loops take vectors, as C++ written with `float2` and `half4` does.
        trip_count: of each of its while loops, a number or a function as `cycles` is. These five change what the
            profile counts, never values.

    Raises:
        CodeletDefinitionError: parameters that cannot be fields, or hints that cannot be meant.

    >>> import codelet as cl
    >>> @cl.codelet
    ... def scale(x, *, factor):
    ...     return factor * x
    >>> scale
    codelet scale(x, *, factor)
    >>> scale(3.0, factor=2.0)
    6.0
    """
    hints = Hints(cycles, workers, issue, vectorised, trip_count)
    check_hints(hints)
    if function is not None:
        return Codelet(function, hints)
    return lambda decorated: Codelet(decorated, hints)
