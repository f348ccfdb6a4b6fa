"""Adjoints: of a codelet, the codelet that takes cotangents of its results back to cotangents of its inputs.

In comes a codelet as it is traced for some types. Out comes another: JAX's vector-Jacobian product of it, so that a
`custom_jvp` or `custom_vjp` within it holds. Only the equations and fields that a contribution needs are kept. A linear
field needs none of itself. Where the derivative can be made of a result, as of `exp` and `tanh`, the result is read and
not recomputed. Ragged fields are kept until they show all lengths.

Source: reverse accumulation, A. Griewank and A. Walther, Evaluating Derivatives (2008), chapter 3.
"""

from __future__ import annotations

import inspect
import keyword
import math
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet.errors import CodeletTraceError, FieldTypeError, MissingFieldError, UnknownFieldError
from codelet.jaxprs.equations import inner_jaxprs
from codelet.jaxprs.own_constants import with_own_constants
from codelet.jaxprs.smooth_sources import smooth_sources
from codelet.tracing.codelets import Codelet
from codelet.tracing.field_types import FieldType, Lengths
from codelet.tracing.lengths import fresh_lengths, length_symbols, watched
from codelet.tracing.products import Product, product_of
from codelet.tracing.statics import trace_settings
from codelet.tracing.traced_codelet import TracedCodelet

Names = Mapping[str, str]
"""Fields of a codelet, each with the name of the adjoint's own field for it."""


def is_smooth(kind: FieldType) -> bool:
    """Whether there are derivatives by fields of a type: there are none by integers and booleans."""
    return bool(jnp.issubdtype(kind.dtype, jnp.inexact))


@dataclass(frozen=True)
class AdjointFields:
    """Which fields of a codelet its adjoint has.

    Attributes:
        inputs: the codelet's inputs that it reads, as they were before; of some only the length.
        results: those of its results that it reads.
        cotangents: those of its results that it needs the cotangent of.
        contributions: those of its inputs that it gives a contribution for. Of an in-out field it is that of the
            cotangent too: the result takes the place of the operand.
    """

    inputs: Names
    results: Names
    cotangents: Names
    contributions: Names

    @property
    def primals(self) -> Names:
        """The codelet's fields that it reads, inputs and then results."""
        return {**self.inputs, **self.results}

    @property
    def given(self) -> tuple[str, ...]:
        """The adjoint's fields that are read, in order."""
        return (*self.inputs.values(), *self.results.values(), *self.cotangents.values())

    @property
    def key(self) -> Hashable:
        """Its key, by value."""
        places = (self.inputs, self.results, self.cotangents, self.contributions)
        return tuple(tuple(names.items()) for names in places)


def _lengths(kinds: Iterable[FieldType], shapes: Iterable[Sequence[Any]]) -> Lengths:
    """The values of the symbols for lengths in types, given the shapes of fields of these types."""
    found: dict[Any, Any] = {}
    for kind, shape in zip(kinds, shapes, strict=True):
        found.update((n, size) for n, size in zip(kind.shape, shape, strict=True) if not isinstance(n, int))
    return found


class AdjointCodelet(Codelet):
    """The adjoint of a codelet for some types. Made by `Codelet.adjoint` and `adjoint_of`.

    Attributes:
        forward: the codelet.
        types: those of its inputs, with symbols for lengths.
        settled: its static values.
        outputs: the types of its results.
        fields: which of its fields the adjoint has.
        added: the inputs whose contribution is added to the field for it, which is in-out.
    """

    def __init__(
        self,
        forward: Codelet,
        types: Mapping[str, FieldType],
        settled: Mapping[str, Hashable],
        outputs: Mapping[str, FieldType],
        fields: AdjointFields,
        added: frozenset[str] = frozenset(),
    ):
        self.forward, self.types, self.settled, self.outputs = forward, dict(types), dict(settled), dict(outputs)
        self.fields, self.added = fields, added
        self._jaxprs: dict[Hashable, jax_core.ClosedJaxpr] = {}
        self._adding: dict[frozenset[str], AdjointCodelet] = {}
        held = [own for name, own in fields.contributions.items() if name in added]
        names = dict.fromkeys([*fields.given, *held])
        parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        signature = inspect.Signature(parameters)

        def run(*args: Any, **kwargs: Any) -> dict[str, Any]:
            values = signature.bind(*args, **kwargs).arguments
            before = [jnp.asarray(values[name]) for name in fields.given]
            self._check_types(before)
            made = jax_core.jaxpr_as_fun(self._jaxpr([own.shape for own in before]))(*before)
            found = dict(zip(fields.contributions.values(), made, strict=True))
            return {name: values[name] + own if name in held else own for name, own in found.items()}

        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__name__ = run.__qualname__ = f"{forward.name}_adjoint"
        super().__init__(run, replace(forward.hints, cycles=None, trip_count=self._turns(forward.hints.trip_count)))

    def _turns(self, said: Callable[..., int] | int | None) -> Callable[..., int] | int | None:
        """The trip counts of loops, for the adjoint's fields: as the user says by those of the codelet itself."""
        if not callable(said):
            return said
        names, types, settled = dict(self.fields.inputs), self.types, self.settled

        def turns(**given: Any) -> int:
            fields = {own: given.get(names.get(own) or own, types[own].struct()) for own in types}
            return said(**fields, **settled)

        return turns

    @property
    def _kinds(self) -> list[FieldType]:
        """The types of its operands, in order."""
        results = (*self.fields.results, *self.fields.cotangents)
        return [*(self.types[name] for name in self.fields.inputs), *(self.outputs[name] for name in results)]

    def _check_types(self, values: Sequence[jax.Array]) -> None:
        """See that fields are of the types that it was made for.

        Raises:
            FieldTypeError: one that is not.
        """
        for name, own, kind in zip(self.fields.given, values, self._kinds, strict=True):
            fits = own.ndim == len(kind.shape) and all(
                n == size or not isinstance(n, int) for n, size in zip(kind.shape, own.shape, strict=True)
            )
            if not fits or own.dtype != kind.dtype:
                raise FieldTypeError(
                    f"the adjoint of codelet {self.forward.name!r} is for another type of its field {name!r}",
                    given=FieldType(own.shape, own.dtype),
                    expected=kind,
                    fix=f"{self.forward.name}.adjoint(...) makes one for fields of other shapes and dtypes",
                )

    def _jaxpr(self, shapes: Sequence[Sequence[Any]]) -> jax_core.ClosedJaxpr:
        """From operands of some shapes to the contributions."""
        fields, lengths = self.fields, _lengths(self._kinds, shapes)
        types = {name: kind.at(lengths) for name, kind in self.types.items()}
        key = tuple(types.values()), trace_settings()
        if key not in self._jaxprs:
            product = product_of(self.forward, types, self.settled, [*fields.contributions], [*fields.cotangents])
            made = product.closed([*fields.inputs], [*fields.results], [*fields.cotangents], [*fields.contributions])
            if any(kind.is_ragged for kind in types.values()):
                return made  # JAX's symbols are of one trace
            self._jaxprs[key] = with_own_constants(made)
        return self._jaxprs[key]

    @property
    def jaxpr(self) -> jax_core.ClosedJaxpr:
        """From the operands to the contributions, where no field is ragged."""
        return self._jaxpr([kind.shape for kind in self._kinds])

    @property
    def is_zero_at_zeros(self) -> bool:
        """Whether it contributes zeros where it reads zeros alone: not 0/0, as by a quotient."""
        jaxpr = self.jaxpr
        with jax.ensure_compile_time_eval(), jax.debug_nans(False):
            zeros = [jnp.zeros(own.shape, own.dtype) for own in jaxpr.in_avals]
            return not any(np.any(np.asarray(own) != 0) for own in jax_core.jaxpr_as_fun(jaxpr)(*zeros))

    def adding(self, names: Collection[str]) -> AdjointCodelet:
        """It with the contributions for some inputs added to the values of their fields."""
        added = self.added.union(names)
        if added == self.added:
            return self
        if added not in self._adding:
            self._adding[added] = AdjointCodelet(
                self.forward, self.types, self.settled, self.outputs, self.fields, added
            )
        return self._adding[added]

    def _functions(self) -> tuple[Callable[..., Any], ...]:
        return ()

    def __reduce__(self) -> tuple[Any, ...]:
        return AdjointCodelet, (self.forward, self.types, self.settled, self.outputs, self.fields, self.added)


# --- which fields it has --------------------------------------------------------------------------------


def _products(
    traced: TracedCodelet, wrt: Sequence[str], of: Sequence[str], lengths: Sequence[Lengths]
) -> Iterator[Product]:
    """The products for all lengths of ragged fields at once, and for those at which they may be others.

    Where JAX has no product for a symbol, as of `jnp.prod`, for each length by itself.
    """
    make = lambda types: product_of(traced.codelet, types, traced.static, wrt, of)  # noqa: E731
    symbols = list(dict.fromkeys(n for kind in traced.inputs.values() for n in kind.shape if not isinstance(n, int)))
    if not symbols:
        yield make(traced.inputs)
        return
    at = lambda own: make({name: kind.at(own) for name, kind in traced.inputs.items()})  # noqa: E731
    apart = {tuple(own[symbol] for symbol in symbols): own for own in lengths}
    if traced.answers is not None:
        fresh = dict(zip(length_symbols(), fresh_lengths(traced.least), strict=True))
        try:
            product, answers = watched(lambda: at(fresh), [fresh[symbol] for symbol in symbols])
        except Exception:
            if not lengths:
                raise
        else:
            yield product
            named = [{str(symbol): length for symbol, length in own.items()} for own in lengths]
            doubted = [lengths[k] for k in answers.doubted(named)]
            apart = {key: own for key, own in apart.items() if key in traced.apart or own in doubted}
    for key in sorted({*traced.apart, *apart}):
        yield at(dict(zip(symbols, key, strict=True)))


def _num_bytes(kinds: Iterable[FieldType]) -> int:
    """The types of fields, a ragged one as if of one row."""
    return sum(math.prod(n for n in kind.shape if isinstance(n, int)) * kind.dtype.itemsize for kind in kinds)


def _read_results(traced: TracedCodelet, product: Product, wanted: Sequence[str]) -> tuple[str, ...]:
    """The results that are worth reading: with them there is less to compute, and not more to read.

    An in-out field is overwritten, so that it would have to be kept: it counts twice.
    """
    without, given = product.needs(wanted), product.readable
    with_ = product.needs(wanted, given)
    chosen = tuple(name for name in given if product.results[name] in with_.used)

    def read(used: Collection[Any]) -> int:
        inputs = [name for name, var in product.fields.items() if var in used]
        twice = [name for name in inputs if name in traced.outputs]
        return _num_bytes(traced.inputs[name] for name in (*inputs, *twice))

    more = _num_bytes(traced.outputs[name] for name in chosen)
    is_less = len(with_.eqns) < len(without.eqns) or read(with_.used) < read(without.used)
    return chosen if chosen and is_less and read(with_.used) + more <= read(without.used) else ()


def _naming(traced: TracedCodelet) -> Callable[[str, str], str]:
    """Makes a name for a field of the adjoint, which a parameter may have and nothing else has."""
    taken = {*traced.inputs, "tile"}

    def name(prefix: str, field: str) -> str:
        found = prefix + re.sub(r"\W", "_", field)
        while found in taken or not found.isidentifier() or keyword.iskeyword(found):
            found = f"{found}_"
        taken.add(found)
        return found

    return name


def _with_lengths(traced: TracedCodelet, inputs: list[str], others: Iterable[FieldType]) -> None:
    """Add inputs until every length is seen: one function for all lengths may have another product at each.

    Those that take the least; last those that are in-out, whose old values would have to be kept.
    """
    known = {n for kind in (*(traced.inputs[name] for name in inputs), *others) for n in kind.shape}
    for name in sorted(traced.inputs, key=lambda name: (name in traced.outputs, _num_bytes([traced.inputs[name]]))):
        if not known.issuperset(n for n in traced.inputs[name].shape if not isinstance(n, int)):
            inputs.append(name)
            known.update(traced.inputs[name].shape)


_SMOOTH: WeakKeyDictionary[TracedCodelet, dict[str, frozenset[str]]] = WeakKeyDictionary()


def smooth_inputs(traced: TracedCodelet) -> dict[str, frozenset[str]]:
    """For each result of a codelet the inputs that it may vary smoothly with: not those whose slopes are stopped."""
    if traced not in _SMOOTH:
        names = list(traced.inputs)
        _SMOOTH[traced] = {
            name: frozenset(names[k] for k in own)
            for name, own in zip(traced.outputs, smooth_sources(traced.jaxpr.jaxpr), strict=True)
        }
    return _SMOOTH[traced]


_KNOWN: WeakKeyDictionary[TracedCodelet, dict[Hashable, AdjointCodelet | None]] = WeakKeyDictionary()


def adjoint_of(
    traced: TracedCodelet, wrt: Collection[str], of: Collection[str], lengths: Sequence[Lengths] = ()
) -> AdjointCodelet | None:
    """The adjoint of a codelet; None where no input that contributions are asked for has any.

    Args:
        traced: the codelet.
        wrt: the inputs that contributions are asked for; those of integers and booleans have none.
        of: the results whose cotangents there are; those of the others are zero.
        lengths: those of ragged fields that occur together, the shortest first.

    Raises:
        CodeletTraceError: JAX has no derivative of it.
    """
    inputs = tuple(name for name, kind in traced.inputs.items() if name in wrt and is_smooth(kind))
    outputs = tuple(name for name, kind in traced.outputs.items() if name in of and is_smooth(kind))
    if not inputs or not outputs:
        return None
    known = _KNOWN.setdefault(traced, {})
    key = inputs, outputs, tuple(tuple(own.values()) for own in lengths)
    if key not in known:
        fields = _fields(traced, inputs, outputs, lengths)
        if fields is not None and fields.key not in known:
            known[fields.key] = AdjointCodelet(traced.codelet, traced.inputs, traced.static, traced.outputs, fields)
        known[key] = None if fields is None else known[fields.key]
    return known[key]


def _fails(traced: TracedCodelet, name: str, outputs: Sequence[str], lengths: Sequence[Lengths]) -> bool:
    """Whether JAX has no derivative of a codelet by one input alone."""
    try:
        list(_products(traced, [name], outputs, lengths))
    except Exception:
        return True
    return False


def _asks_what_moves(jaxpr: jax_core.Jaxpr) -> bool:
    """Whether a derivative rule within a jaxpr sees which of its operands move, and may give others for others."""
    return any(
        eqn.params.get("symbolic_zeros", False) or any(map(_asks_what_moves, inner_jaxprs(eqn))) for eqn in jaxpr.eqns
    )


def _fields(
    traced: TracedCodelet, inputs: Sequence[str], outputs: Sequence[str], lengths: Sequence[Lengths]
) -> AdjointFields | None:
    """The fields of the adjoint of a codelet; None where there is nothing to contribute."""
    try:
        products = list(_products(traced, inputs, outputs, lengths))
    except Exception as error:
        message = str(error).strip().split("\n")[0]
        fields = [name for name in inputs if _fails(traced, name, outputs, lengths)] or inputs
        named = " or ".join(map(repr, fields))
        raise CodeletTraceError(
            f"codelet {traced.name!r} has no adjoint by its field {named}: {type(error).__name__}: {message}",
            given=", ".join(f"{name}: {kind}" for name, kind in traced.inputs.items()),
            expected="a function that jax.vjp differentiates",
            fix="a loop with a bound that is known, or a jax.custom_vjp around what has no derivative",
        ) from error
    wanted = [name for name in inputs if any(name in own.reached for own in products)]
    if len(inputs) > 1 and _asks_what_moves(traced.jaxpr.jaxpr):
        single = {name: list(_products(traced, [name], outputs, lengths)) for name in inputs}
        alone = [name for name, own in single.items() if any(name in product.reached for product in own)]
        if alone != wanted:
            raise CodeletTraceError(
                f"codelet {traced.name!r} has a derivative rule that gives others by several operands than by each",
                given=f"together by {', '.join(wanted)}; each alone by {', '.join(alone) or 'none'}",
                expected="a rule that does not ask which of its operands move",
                fix="jax.grad of the lowered graph, in which JAX knows what moves",
            )
    if not wanted:
        return None
    ragged = len(products) > 1 or traced.is_ragged
    results = () if ragged else _read_results(traced, products[0], wanted)
    used = [own.needs(wanted, results).used for own in products]
    is_used = lambda place, name: any(getattr(p, place)[name] in u for p, u in zip(products, used, strict=True))  # noqa: E731
    read = [name for name in traced.inputs if is_used("fields", name)]
    cotangents = [name for name in outputs if is_used("cotangents", name)]
    _with_lengths(traced, read, [traced.outputs[name] for name in cotangents])
    name = _naming(traced)
    both = {own: name("d_", own) for own in dict.fromkeys([*wanted, *cotangents])}
    return AdjointFields(
        {own: own for own in read},
        {own: name("result_" if own in traced.inputs else "", own) for own in results},
        {own: both[own] for own in cotangents},
        {own: both[own] for own in wanted},
    )


# --- for users ------------------------------------------------------------------------------------------


def _type_of(codelet: Codelet, name: str, given: Any) -> FieldType:
    try:
        kind = jax.typeof(given) if not hasattr(given, "dtype") else given
    except TypeError:
        raise FieldTypeError(
            f"what is given for field {name!r} of codelet {codelet.name!r} has no shape and dtype",
            given=f"{given!r:.80}",
            expected="an array, a number, a tensor, or a jax.ShapeDtypeStruct",
        ) from None
    return FieldType(tuple(kind.shape), jnp.dtype(kind.dtype))


def _chosen(codelet: Codelet, what: str, names: Iterable[str] | None, kinds: Mapping[str, FieldType]) -> list[str]:
    if isinstance(names, str) or not isinstance(names, Iterable | None):
        raise UnknownFieldError(
            f"{what} is not a list of fields", given=f"{names!r:.80}", expected=f"a list: {what}={[*kinds][:1]}"
        )
    chosen = [name for name, kind in kinds.items() if is_smooth(kind)] if names is None else list(names)
    for name in chosen:
        if name not in kinds:
            raise codelet.unknown_field(name, kinds)
    return chosen


def adjoint_for(
    codelet: Codelet, fields: Mapping[str, Any], wrt: Iterable[str] | None, of: Iterable[str] | None
) -> AdjointCodelet:
    """The adjoint of a codelet for given fields; see `Codelet.adjoint`."""
    if not isinstance(fields, Mapping):
        raise MissingFieldError(
            f"the fields of codelet {codelet.name!r} are given without names",
            given=f"{fields!r:.80}",
            expected=f"a dict of arrays, for {', '.join(codelet.inputs)}",
        )
    for name in fields:
        if name not in codelet.inputs and name not in codelet.static:
            raise codelet.unknown_field(name, {})
    codelet.check_names(fields)
    types = {name: _type_of(codelet, name, fields[name]) for name in codelet.inputs}
    traced = codelet.specialise(types, {name: fields[name] for name in codelet.static if name in fields})
    found = adjoint_of(traced, _chosen(codelet, "wrt", wrt, traced.inputs), _chosen(codelet, "of", of, traced.outputs))
    if found is None:
        raise CodeletTraceError(
            f"codelet {codelet.name!r} has no adjoint: no result of floats depends smoothly on an input of floats",
            given=", ".join(f"{name}: {kind}" for name, kind in (*traced.inputs.items(), *traced.outputs.items())),
            expected="inputs in `wrt`, and results in `of`, of which some depend on each other",
        )
    names = found.fields
    kinds = {own: traced.inputs[name] for name, own in names.inputs.items()}
    kinds |= {own: traced.outputs[name] for name, own in (*names.results.items(), *names.cotangents.items())}
    found.specialise(kinds, {})  # so that it prints
    return found
