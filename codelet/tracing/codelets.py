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
from jax.extend import core as jax_core

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
from codelet.tracing.lengths import Answers, fresh_lengths, length_symbols, watched
from codelet.tracing.parameters import is_a_librarys, parameters_of, wrapped
from codelet.tracing.returned import returned_fields
from codelet.tracing.statics import check_static, trace_settings
from codelet.tracing.traced_codelet import TracedCodelet

if TYPE_CHECKING:
    from codelet.tracing.adjoints import AdjointCodelet


class Codelet(Unchanging, Capturing):
    """The function of vertices. Made by the decorator `cl.codelet`; calling it calls the function.

    Attributes:
        function: the decorated function.
        name: the function's name.
        inputs: its positional parameters, the input fields.
        static: its keyword-only parameters, each with its default or `inspect.Parameter.empty`.
        hints: the options of `cl.codelet`, for the cost model.

    >>> import codelet as cl
    >>> @cl.codelet
    ... def scale(x, *, factor=2.0):
    ...     return factor * x
    >>> scale.name, scale.inputs, scale.static, scale(3.0)
    ('scale', ('x',), {'factor': 2.0}, 6.0)
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
        """The codelet with the present values of captured numbers; itself if it captures none.

        It is the same object as long as the values are the same, and again if they return.

        >>> import codelet as cl
        >>> def times(factor):
        ...     return cl.codelet(lambda x: factor * x)
        >>> double = times(2.0)
        >>> double.frozen() is double, double.frozen() is double.frozen(), double.frozen()(3.0)
        (False, True, 6.0)
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
        """The captured values of its functions when it was frozen last.

        >>> import codelet as cl
        >>> def times(factor):
        ...     return cl.codelet(lambda x: factor * x)
        >>> double = times(2.0)
        >>> frozen = double.frozen()
        >>> [captured.is_empty for captured in double.captured]
        [False]
        """
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
        """The original function, and its captured values if this is a frozen codelet.

        Codelets with the same function and the same key of captured values trace to the same jaxpr, whatever their
        hints.

        >>> import codelet as cl
        >>> def times(factor):
        ...     return cl.codelet(lambda x: factor * x)
        >>> double = times(2.0)
        >>> function, captured = double.frozen().of_function
        >>> function is double.function, captured.is_empty
        (True, False)
        """
        return self._of_function

    @property
    def function_now(self) -> Callable[..., Any]:
        """The function with captured arrays in the precision that JAX allows now; see `apart`.

        >>> import codelet as cl
        >>> halve = cl.codelet(lambda x: x / 2)
        >>> halve.function_now is halve.function, halve.function_now(3.0)
        (True, 1.5)
        """
        captures = self._of_function[1]
        if captures is None or not captures.arrays:
            return self.function
        bits = jax.dtypes.canonicalize_dtype(np.int64).itemsize
        if bits not in self._by_bits:
            self._by_bits[bits] = apart(self.function)
        return self._by_bits[bits]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, as Python does.

        Args:
            args: its positional arguments.
            kwargs: its keyword arguments.

        Raises:
            Exception: those of the function.
        """
        return self.function_now(*args, **kwargs)

    def static_values(self, given: Mapping[str, Any]) -> tuple[dict[str, Hashable], Hashable]:
        """The static values of a vertex, defaults included, and their hashable keys.

        Args:
            given: the static values of a vertex, by name.

        Raises:
            MissingFieldError: a static value without a default that was not given.
            FieldTypeError: one that cannot be hashed, or is an array.

        >>> import codelet as cl
        >>> @cl.codelet
        ... def scale(x, *, factor, bias=0.0):
        ...     return factor * x + bias
        >>> values, key = scale.static_values({"factor": 2.0})
        >>> values
        {'factor': 2.0, 'bias': 0.0}
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
        """Names for the sizes of its fields, if its function is the same for all sizes (`sizes_named`), or `None`.

        Args:
            static: its static values.
            ranks: the number of dimensions of each field.

        >>> import codelet as cl
        >>> cl.codelet(lambda x: x + 1).size_names({}, ranks=[1]) is None
        True
        """
        named = getattr(self.function, "size_names", None)
        return None if named is None else named(static, ranks)

    def known_jaxpr(
        self, structs: Sequence[jax.ShapeDtypeStruct], static: Mapping[str, Any]
    ) -> tuple[list[str], jax_core.ClosedJaxpr] | None:
        """The names of its outputs and its jaxpr, where these are known for some inputs without tracing it; else None.

        Args:
            structs: the types of its inputs, whose sizes may be JAX's symbols.
            static: its static values.

        >>> import codelet as cl, jax
        >>> cl.codelet(lambda x: x + 1).known_jaxpr([jax.ShapeDtypeStruct((3,), "float32")], {}) is None
        True
        """
        return None

    trace = old_attribute("Codelet.trace", "specialise")

    def specialise(
        self, inputs: Mapping[str, FieldType], static: Mapping[str, Hashable] | None = None, least: int = 1
    ) -> TracedCodelet:
        """Trace the codelet for fields of some types, once for each combination of types and static values.

        Args:
            inputs: the type of every input field.
            static: static values; those with defaults may be omitted.
            least: the least value of the first symbol for a length.

        Returns:
            The traced codelet, with its jaxpr and the types of its outputs.

        Raises:
            CodeletTraceError: JAX cannot trace the function, or it returns something else than arrays.
            CapturedTracerError: the function closes over a tracer.

        >>> import codelet as cl, jax.numpy as jnp
        >>> graph = cl.Graph()
        >>> y = graph.add_vertex("norm", cl.codelet(lambda x: jnp.sum(x * x)), x=graph.add_variable("x", (3,)))
        >>> kind = graph.families[0].codelet.inputs["x"]
        >>> str(cl.codelet(lambda x: jnp.sum(x * x)).specialise({"x": kind}).outputs["out"])
        'float32[]'
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
        """The adjoint codelet: from cotangents of outputs to cotangents of inputs, as `jax.vjp` computes them.

        Its fields are the inputs and outputs that the derivative reads, under their names; `d_out`, the cotangent of
        `out`; and `d_x`, the cotangent of `x`. An in-out field `acc` has an in-out `d_acc`. See its attribute `fields`.

        Args:
            fields: for every input an array, or any object with a shape and dtype; and static values.
            wrt: the inputs to differentiate with respect to. Default: all floating-point inputs.
            of: the outputs with cotangents. Default: all floating-point outputs.

        Raises:
            UnknownFieldError, MissingFieldError: fields that are not the codelet's.
            FieldTypeError: a field without a shape and dtype.
            CodeletTraceError: JAX cannot trace or differentiate it for these fields, or `of` does not depend on `wrt`.

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
        is_watched: bool = True,
    ) -> TracedCodelet:
        """Trace it for types whose sizes may be any of JAX's symbols, without caching; see `any_size.py`.

        Args:
            inputs: the type of every input field.
            static: all its static values.
            least: the least value of the first symbol for a length.
            function: a copy of its function, to trace instead.
            is_watched: whether it is seen what is asked about symbols, which takes longer.

        >>> import codelet as cl
        >>> double, graph = cl.codelet(lambda x: 2 * x), cl.Graph()
        >>> y = graph.add_vertex("double", double, x=graph.add_variable("x", (3,)))
        >>> inputs = graph.families[0].codelet.inputs
        >>> cached = double.specialise(inputs)
        >>> double.specialise(inputs) is cached, double.trace_fresh(inputs, {}) is cached
        (True, False)
        """
        return self._trace(dict(inputs), dict(static), least, function, is_watched)

    def _trace(
        self,
        inputs: dict[str, FieldType],
        static: dict[str, Hashable],
        least: int,
        function: Callable[..., Any] | None = None,
        is_watched: bool = True,
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
            if (known := self.known_jaxpr(structs, static)) is not None:
                (names, jaxpr), answers = known, Answers() if ragged else None
            elif ragged and is_watched:
                sizes = [size for struct in structs for size in struct.shape if not isinstance(size, int)]
                jaxpr, answers = watched(make, sizes)
            else:
                jaxpr, answers = make(), None
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
        """Check that every input is given.

        Args:
            given: the fields of a vertex, by name.

        Raises:
            MissingFieldError: an input that is not among `given`.

        >>> import codelet as cl
        >>> add = cl.codelet(lambda a, b: a + b)
        >>> add.check_names({"a": 1, "b": 2})
        >>> try:
        ...     add.check_names({"a": 1})
        ... except cl.MissingFieldError as error:
        ...     print(str(error).splitlines()[0])
        codelet '<lambda>' was given nothing for its field 'b'
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
        """How it is pickled: by the name of its function, or else by the equations that it was traced to."""
        try:
            return self._by_name()
        except SavingError:
            if not self._traced:
                raise
            return importlib.import_module("codelet.tracing.saved_codelets").twin_of(self).__reduce__()

    def _by_name(self) -> tuple[Any, ...]:
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
        """The error for a field that the codelet does not have.

        Args:
            name: that of the field.
            outputs: the types of the codelet's outputs, by name.

        >>> import codelet as cl
        >>> error = cl.codelet(lambda a, b: a + b).unknown_field("c", {})
        >>> type(error).__name__, str(error).splitlines()[0]
        ('UnknownFieldError', "codelet '<lambda>' has no field 'c'")
        """
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

    Positional parameters are input fields, keyword-only parameters static values. A single returned array is the field
    `out`; a returned dict names several fields. A returned name that is also a parameter is an in-out field.

    A static value is part of the trace. Use it for values that shapes, loops and branches depend on, and that most
    vertices share: vertices with different static values are different families, each traced and compiled separately. A
    number that differs between vertices is better a positional parameter. Given a number, an index expression or an
    array over the grid, it is state of the vertices of one family.

    Args:
        function: the function to decorate.
        cycles: the vertex's cycles on one worker, as a function of its fields and static values, by name. Of a field it
            sees `shape`, `size` and `dtype`. Default: the cost model counts the equations of the jaxpr.
        workers: how many workers of a tile share each vertex, as for Poplar's MultiVertex.
        issue: how instructions are scheduled. `"assembly"`: loads and stores are issued together with arithmetic.
            `"compiled"`: one instruction after another. Default: the target decides. The IPU assumes assembly for
            codelets that PopLibs has as vertices, and compiled C++ for all others.
        vectorised: True if its compiled loops use vectors, as C++ written with `float2` and `half4` does.
        trip_count: the number of iterations of each of its while loops: an integer, or a function as `cycles` is. Like
            the four options before, it changes the profile and no value.

    Raises:
        CodeletDefinitionError: parameters that cannot be fields, or invalid options.

    Source: Vertex, MultiVertex and setPerfEstimate of Poplar's API reference.

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
