"""Any size: the traces of a codelet for fields of one size after another, made once for all of them where they are the
same.

In come a codelet and the types of its fields, as a planner asks for them: thousands, which differ in sizes alone. Out
comes the trace for these types, or the value of a function of it, of all sizes at once (`cases.py`). After one trace
the codelet is traced with a symbol for every size; the jaxpr for other sizes is that one with numbers, or columns of
numbers, for its symbols.

It is the same where no question about the symbols has another answer for these sizes (`lengths.py`). Only traces that
were seen to be the same equations for the sizes at hand (`alike.py`) are used at all. An extent of one is no symbol,
and sizes that are one size in the trace are one size in all that stand for it. A codelet whose function is the same
whatever its sizes are says so (`sizes_named`), and is traced with symbols alone, ones among them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax.export
import numpy as np
from jax.extend import core as jax_core

from codelet.errors import CodeletTraceError
from codelet.jaxprs.equations import inner_jaxprs, with_parts
from codelet.tracing.alike import alike
from codelet.tracing.captured import Captured
from codelet.tracing.cases import of_cases
from codelet.tracing.codelets import Codelet
from codelet.tracing.field_types import FieldType
from codelet.tracing.lengths import Symbol, numbers_of
from codelet.tracing.statics import trace_settings
from codelet.tracing.traced_codelet import TracedCodelet

_FEW = 3
"""So many types are asked for before it is tried to trace a codelet for all sizes, which takes as long as some."""

_FAILURES = 4
"""After so many that were in vain it is not tried again."""

_DEBUG_INFO = jax_core.DebugInfo("codelet", "of any size", None, None)

_PLAIN = (str, bytes, bool, int, float, complex, type(None))
"""Parameters that hold no size."""


def _shape_of(atom: Any) -> tuple[Any, ...]:
    return getattr(atom.aval, "shape", ())


def _sizes_in(value: Any) -> Iterator[Any]:
    """The symbolic sizes in a parameter."""
    if isinstance(value, Symbol):
        yield value
    elif isinstance(value, jax_core.ClosedJaxpr):
        yield from _sizes(value.jaxpr)
    elif isinstance(value, jax_core.Jaxpr):
        yield from _sizes(value)
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _sizes_in(part)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _sizes_in(part)


def _sizes(jaxpr: jax_core.Jaxpr) -> Iterator[Any]:
    """The symbolic sizes in a jaxpr."""
    atoms = [*jaxpr.invars, *jaxpr.constvars, *jaxpr.outvars, *(var for eqn in jaxpr.eqns for var in eqn.outvars)]
    for atom in atoms:
        yield from (size for size in _shape_of(atom) if isinstance(size, Symbol))
    for eqn in jaxpr.eqns:
        for value in eqn.params.values():
            yield from _sizes_in(value)


class _SizedType(NamedTuple):
    """The type of a value whose sizes are numbers, or `Many`: JAX's types of arrays take no others."""

    shape: tuple[Any, ...]
    dtype: Any
    weak_type: bool = False

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return len(self.shape)


@dataclass(frozen=True, eq=False)
class _SizedVar:
    """A variable of such a type."""

    aval: _SizedType


Numbers = Mapping[int, Any]
"""What each symbolic size is, by its identity."""


Sized = Mapping[int, tuple[str, ...]]
"""The parameters of equations, by the identity of each, that have sizes in them."""


def _parameter(value: Any, numbers: Numbers, sized: Sized) -> Any:
    """A parameter with numbers for its sizes; itself where it has none."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Symbol):
        return numbers[id(value)]
    if isinstance(value, jax_core.ClosedJaxpr):
        return jax_core.ClosedJaxpr(_with_numbers(value.jaxpr, numbers, sized), value.consts)
    if isinstance(value, jax_core.Jaxpr):
        return _with_numbers(value, numbers, sized)
    if isinstance(value, (tuple, list)):
        return with_parts(value, (_parameter(part, numbers, sized) for part in value))
    if type(value) is dict:
        return {name: _parameter(part, numbers, sized) for name, part in value.items()}
    return value


def _sized(jaxpr: jax_core.Jaxpr) -> dict[int, tuple[str, ...]]:
    """The parameters of the equations of a jaxpr, and of all within it, that have sizes in them."""
    found = {}
    for eqn in jaxpr.eqns:
        found[id(eqn)] = tuple(name for name, value in eqn.params.items() if next(_sizes_in(value), None) is not None)
        for inner in inner_jaxprs(eqn):
            found.update(_sized(inner))
    return found


def _with_numbers(jaxpr: jax_core.Jaxpr, numbers: Numbers, sized: Sized) -> jax_core.Jaxpr:
    """A jaxpr with numbers for its sizes."""
    known: dict[Any, Any] = {}

    def made(var: Any) -> Any:
        shape = _shape_of(var)
        if all(type(size) is int for size in shape):
            return var
        own = tuple(size if type(size) is int else numbers[id(size)] for size in shape)
        known[var] = _SizedVar(_SizedType(own, var.aval.dtype, var.aval.weak_type))
        return known[var]

    def at(atom: Any) -> Any:
        return atom if isinstance(atom, jax_core.Literal) else known.get(atom, atom)

    constvars, invars = list(map(made, jaxpr.constvars)), list(map(made, jaxpr.invars))
    eqns = []
    for eqn in jaxpr.eqns:
        operands = list(map(at, eqn.invars))
        params = {name: _parameter(eqn.params[name], numbers, sized) for name in sized[id(eqn)]}
        changed = {**eqn.params, **params} if params else eqn.params
        eqns.append(eqn.replace(invars=operands, outvars=list(map(made, eqn.outvars)), params=changed))
    return jax_core.Jaxpr(constvars, invars, list(map(at, jaxpr.outvars)), eqns, debug_info=_DEBUG_INFO)


def _shapes(inputs: Mapping[str, FieldType]) -> list[tuple[int, ...]]:
    return [kind.shape for kind in inputs.values()]


def _outline(jaxpr: jax_core.Jaxpr) -> tuple[Any, ...]:
    """The primitives of a jaxpr in order, with the shapes of their operands and results."""
    return tuple(
        (eqn.primitive.name, *map(_shape_of, (*eqn.invars, *eqn.outvars)), *map(_outline, inner_jaxprs(eqn)))
        for eqn in jaxpr.eqns
    )


def _are_same(made: jax_core.ClosedJaxpr, traced: jax_core.ClosedJaxpr) -> bool:
    """Whether two jaxprs compute the same by the same equations, so that no length is an equation in one alone."""
    return _outline(made.jaxpr) == _outline(traced.jaxpr) and alike(traced, {}, made)


@dataclass(frozen=True, eq=False)
class _AnySize:
    """A codelet traced with symbols for sizes.

    Attributes:
        traced: it.
        shapes: of each field the name of each size, or its value where that is one.
        least: the least value of the size of each name.
        sizes: the sizes that occur, by the identities of those that the trace has.
        numbers: the sizes, given those of the names.
        sized: where they are in its equations.
        is_for_all: whether the function sees none of the sizes, so that nothing that was asked about them matters.
        limits: of which sums of the sizes the first is as much as the second, or more, where it is for all.
    """

    traced: TracedCodelet
    shapes: tuple[tuple[Any, ...], ...]
    least: Mapping[str, int]
    sizes: tuple[int, ...]
    numbers: Callable[[Mapping[str, Any]], Sequence[Any]]
    sized: Sized
    is_for_all: bool = False
    limits: tuple[tuple[str, str], ...] = ()

    def names(self, shapes: Sequence[Sequence[int]]) -> dict[str, int] | None:
        """The values of the symbols in fields of some shapes; None where it does not stand for these."""
        found: dict[str, int] = {}
        for own, shape in zip(self.shapes, shapes, strict=True):
            for name, size in zip(own, shape, strict=True):
                if isinstance(name, int):
                    if name != size:
                        return None
                elif size < self.least[name] or found.setdefault(name, size) != size:
                    return None
        answers = self.traced.answers
        if self.is_for_all:
            return found if np.all(self._is_within(found)) else None
        return found if answers is not None and answers.hold_at(found) else None

    def _is_within(self, named: Mapping[str, Any]) -> Any:
        """Whether sizes keep to the limits: numbers, or columns."""
        ends = iter(self._ends(named))
        return functools.reduce(np.logical_and, (a >= b for a, b in zip(ends, ends, strict=True)), np.True_)

    @functools.cached_property
    def _ends(self) -> Callable[[Mapping[str, Any]], Sequence[Any]]:
        """Both sums of each limit."""
        return numbers_of([end for limit in self.limits for end in limit])

    @functools.cached_property
    def _denied(self) -> Callable[[Mapping[str, Any]], Sequence[Any]]:
        """The sizes that were said not to be equal, in pairs."""
        denied = () if self.traced.answers is None else self.traced.answers.denied
        return numbers_of([size for pair in denied for size in pair])

    def stands_for(self, sizes: np.ndarray) -> np.ndarray:
        """Whether it stands for fields of some sizes, of shape (dimensions of all fields, cases); bool."""
        names, count = [name for shape in self.shapes for name in shape], sizes.shape[1]
        named, holds = self.named(sizes), np.ones(count, bool)
        for name, column in zip(names, sizes, strict=True):
            if isinstance(name, int):
                holds &= column == name
            else:
                holds &= (column >= self.least[name]) & (column == named[name])
        answers = self.traced.answers
        if self.is_for_all:
            return holds & self._is_within(named)
        if answers is None or not answers.are_all:
            return holds & False
        try:
            with np.errstate(divide="raise"):
                pairs = iter(self._denied(named))
                for a, b in zip(pairs, pairs, strict=True):
                    holds &= np.not_equal(a, b)
        except FloatingPointError:  # of some there is no such size, as `5 // n` at 0
            return np.array([self.names(self._in_shapes(case)) is not None for case in sizes.T.tolist()], bool)
        return holds

    def named(self, sizes: Sequence[Any] | np.ndarray) -> dict[str, Any]:
        """The sizes of all dimensions of all fields by the names that it has for them."""
        names = [name for shape in self.shapes for name in shape]
        return {name: sizes[k] for k, name in enumerate(names) if isinstance(name, str)}

    def _in_shapes(self, sizes: Sequence[int]) -> list[tuple[int, ...]]:
        left = iter(sizes)
        return [tuple(itertools.islice(left, len(shape))) for shape in self.shapes]

    def at(self, codelet: Codelet, inputs: Mapping[str, FieldType], names: Mapping[str, Any]) -> TracedCodelet:
        """The trace of a codelet of its function for some types, of sizes that are numbers, or `Many`."""
        numbers = dict(zip(self.sizes, self.numbers(names), strict=True))
        traced, opened = self.traced, self.traced.jaxpr
        jaxpr = jax_core.ClosedJaxpr(_with_numbers(opened.jaxpr, numbers, self.sized), opened.consts)
        pairs = zip(traced.outputs, jaxpr.jaxpr.outvars, strict=True)
        outputs = {name: traced.outputs[name]._replace(shape=tuple(_shape_of(var))) for name, var in pairs}
        return TracedCodelet(codelet, dict(inputs), traced.static, outputs, jaxpr)


Known = Sequence[tuple[FieldType, ...]]
"""The types of fields that a codelet was asked for."""


def _names(types: tuple[FieldType, ...], others: Known) -> list[list[Any]]:
    """A name for each size of some types, the same where they are equal in all of these and others; 1 as it is."""
    places = [(k, d) for k, kind in enumerate(types) for d in range(len(kind.shape))]
    groups: dict[tuple[int, ...], str] = {}
    found: list[list[Any]] = [[] for _ in types]
    for k, d in places:
        if types[k].shape[d] < 2:
            found[k].append(types[k].shape[d])
        else:
            everywhere = tuple(own[k].shape[d] for own in (types, *others))
            found[k].append(groups.setdefault(everywhere, f"size{len(groups)}"))
    return found


_LEASTS = (2, 3, 5, 7)
"""What sizes are said to be at least, one after another until a codelet traces so: windows of three fit into three."""


def _leasts(names: Sequence[Sequence[Any]], asked: Known) -> Iterator[dict[str, int]]:
    """The least values to assume for sizes of some names: so many as stand for most others, or the least asked for."""
    places = [(name, k, d) for k, shape in enumerate(names) for d, name in enumerate(shape) if isinstance(name, str)]
    known = {name: min(size for own in asked if (size := own[k].shape[d]) > 1) for name, k, d in places}
    tried = [{name: min(least, own) for name, own in known.items()} for least in (*_LEASTS, max(known.values()))]
    yield from (own for k, own in enumerate(tried) if own not in tried[:k])


def _symbolic(
    codelet: Codelet,
    types: Mapping[str, FieldType],
    static: Mapping[str, Hashable],
    names: Sequence[Sequence[Any]],
    least: Mapping[str, int],
    limits: Sequence[tuple[str, str]] = (),
    is_watched: bool = True,
) -> _AnySize | None:
    """A codelet with symbols of some names for its sizes, within limits; None where it does not trace so.

    What its function asks about the sizes is seen where that is asked for.
    """
    constraints = [*(f"{name} >= {size}" for name, size in [*least.items(), *limits])]
    symbols = dict(zip(least, jax.export.symbolic_shape(", ".join(least), constraints=constraints), strict=True))
    inputs = {
        name: kind._replace(shape=tuple(symbols.get(size, size) for size in shape))
        for (name, kind), shape in zip(types.items(), names, strict=True)
    }
    try:
        traced = codelet.trace_fresh(inputs, static, is_watched=is_watched)
    except CodeletTraceError:
        return None
    if traced.has_effects:
        return None
    jaxpr = traced.jaxpr.jaxpr
    found = {id(size): size for size in _sizes(jaxpr)}
    numbers = numbers_of(list(found.values()))
    return _AnySize(traced, tuple(map(tuple, names)), least, tuple(found), numbers, _sized(jaxpr))


def _with_names(own: TracedCodelet, names: Sequence[Sequence[Any]], least: Mapping[str, int]) -> _AnySize | None:
    """A codelet with symbols of some names for its sizes; None where it does not trace so, or differs."""
    made = _symbolic(own.codelet, own.inputs, own.static, names, least)
    here = None if made is None else made.names(_shapes(own.inputs))
    if made is None or here is None:
        return None
    return made if _are_same(made.at(own.codelet, own.inputs, here).jaxpr, own.jaxpr) else None


def _by_its_names(codelet: Codelet, types: Mapping[str, FieldType], static: Mapping[str, Hashable]) -> _AnySize | None:
    """A codelet that says itself which sizes there are, since its function sees none of them; None of any other."""
    named = codelet.size_names(static, [len(kind.shape) for kind in types.values()])
    if named is None or not any(named.names):
        return None
    least = {name: 1 for shape in named.names for name in shape}
    made = _symbolic(codelet, types, static, named.names, least, named.limits, is_watched=False)
    return None if made is None else replace(made, is_for_all=True, limits=named.limits)


def _of_any_size(own: TracedCodelet, others: Known) -> _AnySize | None:
    """A codelet with symbols for sizes, as few of them the same as may be, given other types that it was asked for."""
    types = tuple(own.inputs.values())
    if own.has_effects or not any(size > 1 for shape in _shapes(own.inputs) for size in shape):
        return None
    apart, alone = _names(types, others), _names(types, ())
    for names in (apart, alone) if apart != alone else (apart,):
        for least in _leasts(names, (types, *others)):
            made = _with_names(own, names, least)
            if made is not None:
                return made
    return None


@dataclass(eq=False)
class _Variant:
    """The known facts about a function for some static values, ranks and dtypes.

    Attributes:
        held: the values that the function captured, which keeps alive the objects that its key names by identity.
        traced: the types for which it was traced.
        of_any_size: its traces for any size.
        failures: how many of these were in vain.
    """

    held: Captured | None
    traced: list[tuple[FieldType, ...]] = field(default_factory=list)
    of_any_size: list[_AnySize] = field(default_factory=list)
    failures: int = 0

    def known(self, codelet: Codelet, inputs: Mapping[str, FieldType]) -> TracedCodelet | None:
        """The trace of a codelet for some types, as far as is known."""
        shapes = _shapes(inputs)
        for own in self.of_any_size:
            names = own.names(shapes)
            if names is not None:
                return own.at(codelet, inputs, names)
        return None


_VARIANTS: WeakKeyDictionary[Callable[..., Any], dict[Hashable, _Variant]] = WeakKeyDictionary()
"""By the function, since how many workers share it and how it is issued changes nothing of a trace."""


def _asks_no_truth(codelet: Codelet, static: Mapping[str, Any]) -> bool:
    """Whether a codelet is one of this library, and runs no user's function on blocks.

    Nobody sees a user's function ask `if x.shape[0] % 2`: every symbol is true. Those of single elements see no size.
    """
    module = str(getattr(codelet.function, "__module__", None))
    return module.split(".")[0] == "codelet" and not any(map(callable, static.values()))


_SEEN = 64
"""At so many of the sizes that are asked for at once it is looked which are the same."""

_ONE_BY_ONE = 3
"""Up to so many sizes that one trace stands for, each is looked at by itself, which takes less time."""


class OfSizes:
    """A codelet with its static values, which is asked for its traces for fields of one size after another.

    Good for asking for its cost; vertices are made of separate traces.

    Attributes:
        codelet: as it was when it was first asked for.
        values: its static values; those with defaults may be left out.
        keys: distinguish these from others.
    """

    def __init__(self, codelet: Codelet, static: Mapping[str, Any] | None = None):
        self.codelet = codelet.frozen()
        self.values, self.keys = self.codelet.static_values(static or {})
        self._asks_no_truth = _asks_no_truth(self.codelet, self.values)
        self._settings = trace_settings()
        self._variants: dict[tuple[Any, ...], _Variant] = {}

    def _variant(self, types: Mapping[str, FieldType]) -> _Variant:
        """The known facts about it for fields of these ranks and dtypes."""
        kinds = tuple([(len(kind.shape), kind.dtype, kind.weak) for kind in types.values()])
        if kinds not in self._variants:
            function, held = self.codelet.of_function
            key = held and held.key, kinds, self.keys, self._settings
            self._variants[kinds] = _VARIANTS.setdefault(function, {}).setdefault(key, _Variant(held))
        return self._variants[kinds]

    def traced(self, inputs: Mapping[str, FieldType], more: Known = ()) -> TracedCodelet:
        """Its trace for fields of some types, none of them ragged, or one for any size with these put in.

        Args:
            inputs: the types.
            more: others that will be asked for, in the codelet's order, which a trace for any size is to cover.

        Raises:
            CodeletTraceError: it does not trace for these.
        """
        own, values = self.codelet, self.values
        if not self._asks_no_truth:
            return own.specialise(inputs, values)
        own.check_names(inputs)
        types = {name: inputs[name] for name in own.inputs}
        variant = self._variant(types)
        found = variant.known(own, types)
        if found is None and not variant.of_any_size and (made := _by_its_names(own, types, values)) is not None:
            variant.of_any_size.append(made)
            found = variant.known(own, types)
        if found is None:
            found = own.specialise(types, values)
            asked = tuple(types.values())
            others = [*variant.traced, *(own for own in more if own not in variant.traced and own != asked)]
            if len(others) + 1 >= _FEW and variant.failures < _FAILURES and asked not in variant.traced:
                made = _of_any_size(found, others)
                variant.failures += made is None
                variant.of_any_size += [] if made is None else [made]
            variant.traced += [] if asked in variant.traced else [asked]
        return found

    def of_each(
        self,
        kinds: Mapping[str, tuple[int, Any]],
        sizes: np.ndarray,
        function: Callable[[TracedCodelet], Sequence[Any]],
        results: int,
    ) -> np.ndarray:
        """The value of a function of its traces for fields of each of some sizes, int64 of shape (results, cases).

        Args:
            kinds: of each field, in the codelet's order, how many dimensions it has, and its dtype.
            sizes: of all dimensions of all fields, int64 of shape (dimensions, cases).
            function: of a trace whose sizes are numbers, or `Many`; to so many numbers.
            results: how many.

        Raises:
            CodeletTraceError: it does not trace for one of these.
        """
        answers, left = np.zeros((results, sizes.shape[1]), np.int64), np.arange(sizes.shape[1])

        def types(numbers: Sequence[Any]) -> dict[str, FieldType]:
            of_fields = iter(numbers)
            shapes = {name: tuple(itertools.islice(of_fields, rank)) for name, (rank, _) in kinds.items()}
            return {name: FieldType(shapes[name], np.dtype(dtype)) for name, (_, dtype) in kinds.items()}

        while len(left):
            if (
                self.codelet.hints.cycles is None
                and not callable(self.codelet.hints.trip_count)
                and self._asks_no_truth
            ):
                left = self._by_any_size(types, sizes, function, left, answers)
            if len(left):
                first, left = left[0], left[1:]
                more = [tuple(types(numbers).values()) for numbers in sizes[:, left[:_SEEN]].T.tolist()]
                answers[:, first] = function(self.traced(types(sizes[:, first].tolist()), more))
        return answers

    def _by_any_size(
        self,
        types: Callable[[Sequence[Any]], dict[str, FieldType]],
        sizes: np.ndarray,
        function: Callable[[TracedCodelet], Sequence[Any]],
        left: np.ndarray,
        answers: np.ndarray,
    ) -> np.ndarray:
        """Those of some cases for which no trace for any size stands, the others answered."""
        for trace in self._variant(types(sizes[:, left[0]].tolist())).of_any_size:
            stands = trace.stands_for(sizes[:, left])
            cases, left = left[stands], left[~stands]

            def of_many(*numbers: Any, trace: _AnySize = trace) -> Sequence[Any]:
                return function(trace.at(self.codelet, types(numbers), trace.named(numbers)))

            for case in cases if len(cases) <= _ONE_BY_ONE else ():
                answers[:, case] = of_many(*sizes[:, case].tolist())
            if len(cases) > _ONE_BY_ONE:
                answers[:, cases] = of_cases(of_many, list(sizes[:, cases]), len(cases), len(answers))
            if not len(left):
                break
        return left
