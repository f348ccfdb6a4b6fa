"""Strategies: graphs, programs and views that are valid by construction.

A family is drawn as a recipe: functions of the grid's positions that give each field its view. The
functions use nothing but operators that numbers and symbols share, so that one recipe builds the family
by symbols or vertex by vertex in Python loops.
"""

from __future__ import annotations

import functools
import itertools
import operator
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax.extend import core as jax_core

import codelet as cl
from codelet.tracing.codelet_from_jaxpr import JaxprCodelet
from codelet.tracing.field_types import FieldType
from codelet.tracing.statics import static_key
from codelet.views.grids import whole_grids
from lowering.check.initialized import read_and_written
from lowering.plan.collect import collect
from lowering.plan.dataflow import flow
from lowering.plan.streams import Sent
from lowering.plan.timeline import without_calls
from tests.blocks import blocked, staged
from tests.bounded import squash
from tests.drawn_views import padding
from tests.host_arrays import aligned
from tests.library import operated
from tests.masks import masked
from tests.ragged_codelets import (
    BY_CASES,
    HOW,
    OF_ROWS,
    ROWS_OF_ROWS,
    row_chosen,
    row_dot,
    row_looked_up,
    row_mean,
    row_order,
)
from tests.rewriting import rewritten
from tests.undefined import undefined

# --- codelets of many shapes ----------------------------------------------------------------------------


@cl.codelet
def dot(x, w):
    return jnp.dot(x, w)


@cl.codelet
def total(x):
    return jnp.sum(x)


@cl.codelet
def gather_up(x, y):
    return squash(jnp.sum(x) + 2 * jnp.sum(y)).astype(x.dtype)


@cl.codelet
def dot_product(x, y):
    return squash(jnp.vdot(x, jnp.broadcast_to(jnp.sum(y), x.shape))).astype(x.dtype)


class ByNumberOfFields(NamedTuple):
    """Codelets of one function, of one field to five."""

    one: cl.Codelet
    two: cl.Codelet
    three: cl.Codelet
    four: cl.Codelet
    five: cl.Codelet


def _of_fields(function: Callable[..., Any]) -> ByNumberOfFields:
    return ByNumberOfFields(
        cl.codelet(lambda a: function(a)),
        cl.codelet(lambda a, b: function(a, b)),
        cl.codelet(lambda a, b, c: function(a, b, c)),
        cl.codelet(lambda a, b, c, d: function(a, b, c, d)),
        cl.codelet(lambda a, b, c, d, e: function(a, b, c, d, e)),
    )


def _weighted(*fields: Any) -> Any:
    total = functools.reduce(operator.add, (weight * field for weight, field in enumerate(fields, 1)))
    return total / 16 if jnp.issubdtype(fields[0].dtype, jnp.floating) else total.astype(fields[0].dtype)


def _bent(*fields: Any) -> Any:
    return squash(_weighted(*fields) + fields[0] * fields[-1]).astype(fields[0].dtype)


WEIGHTED_BY_ELEMENT, BENT_BY_ELEMENT = _of_fields(_weighted), _of_fields(_bent)
WEIGHTED = _of_fields(lambda *fields: _weighted(*(jnp.sum(field) for field in fields)).astype(fields[0].dtype))
BENT = _of_fields(
    lambda *fields: _bent(*(jnp.sum(squash(k + own)) for k, own in enumerate(fields))).astype(fields[0].dtype)
)


STATICS = [1, 1.0, True, (1,), (1.0,), 0.0, -0.0, float("nan"), np.int32(1), np.float32(1), "one", frozenset({1}), None]
"""Static values of every kind, many of them equal to one another."""


@cl.codelet
def shift_all(x, y, *, by=1):
    """A static integer is a factor; any other value is another one, whatever it is equal to."""
    factor = by if type(by) is int else zlib.crc32(repr(by).encode()) % 5 - 2
    return squash(x + factor * jnp.sum(y)).astype(x.dtype)


@cl.codelet
def two_results(x, y):
    return {"out": (jnp.sum(y) - x).astype(x.dtype), "the sum, Σ/x": squash(jnp.sum(x)).astype(x.dtype)}


@cl.codelet
def accumulate(x, acc):
    return {"acc": squash(acc + jnp.sum(x)).astype(acc.dtype)}


@cl.codelet
def stateful(x, site, scale, table):
    return squash(jnp.sum(x) * scale + site + jnp.sum(table)).astype(x.dtype)


@cl.codelet
def laid_out(x, y):
    """What depends on the order in which elements are read: here by columns."""
    columns = jnp.stack([x, x + jnp.sum(y).astype(x.dtype)]).reshape(-1, order="F")
    return squash(jnp.sum(columns * (jnp.arange(columns.size) % 5).astype(x.dtype))).astype(x.dtype)


@cl.codelet
def nothing_in(*, level):
    return jnp.full((2,), level, jnp.float32)


# --- codelets that may, or may not, write a result where they have read their input ---------------------


@cl.codelet
def each_alone(x):
    """Each element of the result depends on one of the input."""
    return (2 * x - x[0:1].shape[0]).astype(x.dtype)


@cl.codelet
def backwards(x):
    return x[::-1]


@cl.codelet
def running(x):
    return squash(jnp.cumsum(x)).astype(x.dtype)


@cl.codelet
def and_its_sum(x):
    """The first result needs each element alone, the second needs all of them."""
    return {"out": x + 1, "sum": jnp.sum(x).astype(x.dtype)}


@cl.codelet
def add_to_both(x, acc):
    """A field that is read and written needs what another result is written over."""
    return {"acc": squash(acc + jnp.sum(x)).astype(acc.dtype), "out": x + 1}


@cl.codelet
def as_dtype(x, *, to):
    return x.astype(to)


# --- codelets without their functions --------------------------------------------------------------------


class FromJaxprs(JaxprCodelet):
    """A codelet of the jaxprs of another, one for each combination of types that it is asked for."""

    def __init__(self, of: cl.Codelet, static: dict[str, Any]):
        self.of, self.settled = of, static
        super().__init__((), tuple(of.inputs), (), of.name)

    def fitting(self, kinds: Sequence[FieldType]) -> tuple[jax_core.ClosedJaxpr, tuple[FieldType, ...]]:
        if not any(kind.is_ragged for kind in kinds) and tuple(kinds) not in self.types:
            traced = self.of.specialise(dict(zip(self.inputs, kinds, strict=True)), self.settled)
            self.outputs = tuple(traced.outputs)
            self.types, self.jaxprs = (*self.types, tuple(kinds)), (*self.jaxprs, traced.jaxpr)
        return super().fitting(kinds)


# --- index expressions ----------------------------------------------------------------------------------


def lookup(values: np.ndarray, position: Any) -> Any:
    """A table's entry, at a number or a symbol."""
    return cl.table(values)[position] if isinstance(position, cl.Index) else int(values[position])


BITS = {1: lambda a, b: (a & 6) + (b << 1), 2: lambda a, b: (a - low_bit(a)) ^ b, 3: lambda a, b: (a >> 1) | (1 << b)}
CHOICES = {
    1: lambda a, b: cl.where((a < 2) | (b == 1), b, a),
    2: lambda a, b: cl.minimum(a, b + 1) + cl.maximum(b, 1),
    3: lambda a, b: cl.where((b > 0) & (a != 3), abs(a - b), 2),
}
CANCELS = (lambda a: 0 * a, lambda a: a % 1, lambda a: a // 64, lambda a: a - a, lambda a: (3 - a) * 0)
"""Operators that numbers and symbols share: on bits, choices, and what leaves nothing of a symbol."""


def low_bit(value: Any) -> Any:
    """The lowest bit that is set, as programs find the parent of a node."""
    return value & -value


@st.composite
def nested(draw: Any, least: int = 1) -> tuple[list[int], Callable[[], Any], Callable[[], Sequence[Any]]]:
    """A nest of loops, the ranges of some of which depend on the loop around them, and its symbols.

    Out come extents that hold all ranges, what gives the numbers of every turn, and what gives the symbols.
    """
    extents = draw(st.lists(st.integers(1, 4), min_size=least, max_size=3))
    kinds = [draw(st.sampled_from(["whole", "whole", "below", "above", "wide"])) for _ in extents]

    def ends(k: int, outer: Any) -> tuple[Any, Any]:
        if k == 0 or kinds[k] == "whole":
            return 0, extents[k]
        if kinds[k] == "below":
            return 0, cl.minimum(outer, extents[k])
        if kinds[k] == "above":
            return cl.minimum(outer + 1, extents[k]), extents[k]
        return cl.maximum(outer - 1, 0), cl.minimum(outer + 2, extents[k])

    def numbers(before: tuple[int, ...] = ()) -> Any:
        k = len(before)
        if k == len(extents):
            yield before
            return
        for number in range(*ends(k, before[-1] if before else 0)):
            yield from numbers((*before, number))

    def symbols() -> Sequence[Any]:
        found: list[Any] = []
        while (k := len(found)) < len(extents):
            # Those that depend on nothing, up to the next that does, are of one grid.
            free = list(itertools.takewhile(lambda n: n == k or kinds[n] == "whole", range(k, len(extents))))
            made = cl.grid(slice(*ends(k, found[-1] if found else 0)), *(extents[n] for n in free[1:]))
            found += made if isinstance(made, tuple) else (made,)
        return tuple(found)

    return extents, numbers, symbols


@st.composite
def positions(draw: Any, extents: Sequence[int], bound: int) -> Callable[[Sequence[Any]], Any]:
    """A function of the grid's positions with values from 0 to `bound - 1`."""
    terms = [(k, draw(st.integers(-2, 3))) for k in range(len(extents)) if draw(st.booleans())]
    constant = draw(st.integers(0, 3))
    kind = draw(st.sampled_from(["affine", "divided", "table", "product", "bits", "chosen", "cancelled"]))
    divisor = draw(st.integers(1, 3))
    low = constant + sum(min(0, c * (extents[k] - 1)) for k, c in terms)
    high = constant + sum(max(0, c * (extents[k] - 1)) for k, c in terms)
    entries = np.asarray(draw(st.lists(st.integers(0, bound - 1), min_size=high - low + 1, max_size=high - low + 1)))

    def position(symbols: Sequence[Any]) -> Any:
        value: Any = constant
        for k, coefficient in terms:
            value = value + coefficient * symbols[k]
        if kind == "table":
            return lookup(entries, value - low)
        if kind == "divided":
            value = value // divisor
        if kind == "product" and len(symbols) > 1:
            value = value + symbols[0] * symbols[1]
        if kind == "bits":
            value = BITS[divisor](value, symbols[0] if symbols else 2)
        if kind == "chosen":
            value = CHOICES[divisor](value, symbols[-1] if symbols else 1)
        if kind == "cancelled":
            value = sum((CANCELS[(divisor + k) % len(CANCELS)](symbol) for k, symbol in enumerate(symbols)), value % 2)
        fits = kind == "affine" and low >= 0 and high < bound
        return value if fits else value % bound

    return position


@dataclass
class Recipe:
    """How one field of a family is connected, as a function of the grid's positions."""

    view: Callable[[Sequence[Any]], Any]
    shape: tuple[int, ...]


@st.composite
def readings(draw: Any, tensor: cl.Tensor, extents: Sequence[int]) -> Recipe:
    """A way to read a tensor: per dimension a position, a run of elements, or all of it."""
    parts, shape = [], []
    for size in tensor.shape:
        kind = draw(
            st.sampled_from(["at", "run", "stride", "all", "back", "at", "run", "stride", "all", "back", "none"])
        )
        if kind == "none":
            parts.append(lambda _: slice(0, 0))
            shape.append(0)
        elif kind == "all":
            parts.append(lambda _: slice(None))
            shape.append(size)
        elif kind == "back":
            parts.append(lambda _: slice(None, None, -1))
            shape.append(size)
        elif kind == "at":
            parts.append(draw(positions(extents, size)))
        else:
            step = draw(st.integers(1, 2)) if kind == "stride" else 1
            length = draw(st.integers(1, (size - 1) // step + 1))
            start = draw(positions(extents, size - (length - 1) * step))
            parts.append(
                lambda symbols, start=start, n=length, s=step: (
                    slice(start(symbols), start(symbols) + n * s, s)
                    if s == 1
                    else slice(start(symbols), start(symbols) + (n - 1) * s + 1, s)
                )
            )
            shape.append(length)
    flip = draw(st.booleans())
    view = lambda symbols: tensor[tuple(part(symbols) for part in parts)]  # noqa: E731
    if flip and len(shape) > 1:
        return Recipe(lambda symbols: view(symbols).T, tuple(shape[::-1]))
    return Recipe(view, tuple(shape))


@st.composite
def rearranged(draw: Any, tensor: cl.Tensor) -> cl.Tensor:
    """The elements of a tensor in another order, each once, through joins and pads of one another and more."""
    for _ in range(draw(st.integers(2, 4))):
        at = draw(st.integers(0, tensor.ndim - 1))
        n = tensor.shape[at]
        before, inside = (slice(None),) * at, (slice(1, -1),) * tensor.ndim
        kind = draw(st.sampled_from(["joined", "joined", "padded", "turned", "table", "flat", "twice"]))
        cut = draw(st.integers(0, n))
        if kind == "joined":
            tensor = cl.concatenate([tensor[(*before, slice(cut, None))], tensor[(*before, slice(cut))]], at)
        elif kind == "padded":
            mode = draw(st.sampled_from(["constant", "constant", "wrap"])) if tensor.size else "constant"
            tensor = tensor.pad(1, mode)[inside]
        elif kind == "turned":
            tensor = tensor.T.pad(1, value=cut)[inside].reverse(tensor.ndim - 1 - at).T
        elif kind == "table":
            tensor = tensor[(*before, np.asarray(draw(st.permutations(range(n))), int))]
        elif kind == "flat":
            line = tensor.flatten()
            tensor = cl.concatenate([line[cut:], line[:cut]]).reshape(tensor.shape)
        else:
            tensor = cl.concatenate([tensor, tensor], at)[(*before, slice(cut, cut + n))]
    return tensor


@st.composite
def writing(
    draw: Any, make: Callable[[tuple[int, ...]], cl.Tensor], extents: Sequence[int], shape: tuple[int, ...]
) -> Callable:
    """A way to write a field of `shape` at every position, no element twice, into a variable that `make` makes."""
    kind = draw(st.sampled_from(["spread", "table", "joined", "doubled", "padded", "nested"]))
    count = int(np.prod(extents))
    if kind == "table":
        places = np.asarray(draw(st.permutations(range(count + draw(st.integers(0, 2)))))).astype(np.int32)
        target = make((len(places), *shape))
        weights = [int(np.prod(extents[k + 1 :])) for k in range(len(extents))]

        def at_entry(symbols: Sequence[Any]) -> Any:
            number = 0
            for weight, symbol in zip(weights, symbols, strict=True):
                number = number + weight * symbol
            return target[lookup(places, number)]

        return at_entry
    steps = [draw(st.integers(1, 2)) for _ in extents]
    starts = [draw(st.integers(0, 1)) for _ in extents]
    backwards = [draw(st.booleans()) for _ in extents]
    sizes = [a + (n - 1) * s + 1 + draw(st.integers(0, 1)) for n, s, a in zip(extents, steps, starts, strict=True)]
    order = draw(st.permutations(range(len(extents))))
    full = tuple(sizes[k] for k in order) + shape
    if kind == "joined" and full and full[0] > 1:
        cut = draw(st.integers(1, full[0] - 1))
        target = cl.concatenate([make((cut, *full[1:])), make((full[0] - cut, *full[1:]))])
    elif kind == "doubled" and full:
        # A view that names every element twice, of which one half is written.
        half = make(full)
        target = cl.concatenate([half, half.reverse(0)])[full[0] :]
    elif kind == "padded":
        target = make(full).pad(1)[(slice(1, -1),) * len(full)]
    elif kind == "nested" and full:
        target = draw(rearranged(make(full)))
    else:
        target = make(full)

    def at_place(symbols: Sequence[Any]) -> Any:
        places = []
        for k in order:
            position = extents[k] - 1 - symbols[k] if backwards[k] else symbols[k]
            places.append(starts[k] + steps[k] * position)
        return target[tuple(places)]

    return at_place


# --- graphs and programs ----------------------------------------------------------------------------------


@cl.codelet
def is_left(left):
    return left > 0


@cl.codelet
def one_less(left):
    return {"left": left - 1}


@cl.codelet
def bent_to(a, b):
    return squash(a * b + b).astype(a.dtype)


@cl.codelet
def mixed(a, b, c):
    return {"c": squash(a + 2 * b - c).astype(c.dtype)}


WIDER = {"i": ["int8", "int16", "int32", "int64"], "f": ["float32", "float64"]}
"""Dtypes that hold what a case computes with, by the kind of its dtype; those of 64 bits where x64 is on."""

MANY_TURNS = 2**14
"""A bound of turns from which on the backward pass runs them again, whatever they write."""

checkpoints = st.sampled_from([None, None, None, None, 1, 2, 4, cl.Revolve(1), cl.Revolve(3)])
"""After how many turns the state of a loop is kept for its derivatives, which changes no value."""

UNSURE = ("parameter", "short")
"""What the names of variables begin with that do not hold values throughout."""


@dataclass
class Case:
    """A graph, a program, and values for its inputs.

    Attributes:
        graph: with vertices and variables.
        inputs: values of variables and input streams, by name.
        program: steps.
        outputs: names of variables.
        lent: arrays that the graph or the program was given, which may be written to.
    """

    graph: cl.Graph
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    program: list[Any] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    lent: list[np.ndarray] = field(default_factory=list)

    def graph_dtype(self, name: str) -> Any:
        """The dtype of a variable; None of a stream."""
        return next((own.dtype for own in self.graph.variables if own.name == name), None)

    def sequence(self) -> cl.Program:
        return cl.Sequence(*self.program)


_NAMES = ("v{}", "first turn{}", "v {}", "größe/{}/out", "aborted{}", "set {}/√/out", "memory of int32{}", "a.b[{}]")
"""What variables may be called, names of the project's own variables among them."""


def _name(number: int) -> str:
    """The name of the variable of a number, another for each."""
    return _NAMES[number % len(_NAMES)].format(number if number >= len(_NAMES) else "")


def arrived(results: dict[str, Any]) -> dict[str, Any]:
    """What a lowered function gives, of streams just what was sent."""
    return {k: np.asarray(v.values)[: int(v.count)] if isinstance(v, Sent) else v for k, v in results.items()}


BESIDE: dict[str, Callable[[Any], list[Any]]] = {
    own.__name__: own for own in (rewritten, blocked, staged, operated, masked, undefined)
}
"""Kinds of steps that have files of their own."""


class _Builder:
    """Draws the parts of a case and keeps what of it holds values."""

    def __init__(self, draw: Any, dtype: Any, bounded: bool = False):
        self.draw = draw
        self.bounded = bounded  # whether loops on a condition have a bound, so that reverse mode goes through them
        self.dtype = dtype
        self.case = Case(cl.Graph(cl.IPU(num_tiles=8)))
        self.random = np.random.default_rng(draw(st.integers(0, 2**16)))
        self.numbers = itertools.count()
        self.times = 1  # how often the steps that are being drawn run, at most
        self.static = 0  # in how many loops and choices that depend on data they are
        self.unbounded = 0  # in how many of these loops there is no bound
        self.from_jaxprs: dict[Any, FromJaxprs] = {}

    def values(self, shape: tuple[int, ...]) -> np.ndarray:
        if np.issubdtype(self.dtype, np.integer):
            return self.random.integers(-9, 10, shape).astype(self.dtype)
        return self.random.uniform(-1.5, 1.5, shape).astype(self.dtype)

    def lend(self, values: np.ndarray) -> np.ndarray:
        """An array for the graph or the program, which is written to once they have it."""
        self.case.lent.append(aligned(values))
        return self.case.lent[-1]

    def variable(self, shape: tuple[int, ...]) -> cl.Tensor:
        """A variable whose values come from outside."""
        name = _name(next(self.numbers))
        made = self.case.graph.add_variable(name, shape, self.dtype)
        self.case.inputs[name] = self.values(shape)
        return made

    def readable(self) -> cl.Tensor:
        """A view of something that holds values: a variable, a constant, or several joined."""
        draw, graph = self.draw, self.case.graph
        held = [v for v in graph.variables if v.size and v.shape and not v.name.startswith(UNSURE)]
        names = [v.name for v in held if v.dtype == np.dtype(self.dtype)]
        choice = draw(st.integers(0, 7))
        if choice == 0 or not names:
            shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
            return self.variable(shape)
        if choice == 1:
            shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=2)))
            return graph.add_constant(f"c{next(self.numbers)}", self.lend(self.values(shape)))
        tensor = graph.variable(draw(st.sampled_from(names)))
        if choice == 2:
            tensor = cl.concatenate([tensor.flatten(), graph.variable(draw(st.sampled_from(names))).flatten()])
        if choice == 3:
            tensor = tensor.T.flatten() if draw(st.booleans()) else tensor.expand(0)
        if choice == 4:
            tensor = cl.concatenate([self.padded(tensor.flatten()), self.padded(tensor.flatten())])
        if choice == 5:
            tensor = self.padded(draw(rearranged(self.padded(tensor) if draw(st.booleans()) else tensor)))
        if choice >= 6:
            tensor = self.padded(self.padded(tensor) if draw(st.booleans()) else tensor)
        return tensor

    def padded(self, tensor: cl.Tensor) -> cl.Tensor:
        """A tensor with a little of any padding."""
        widths = self.draw(padding(tensor.ndim))
        mode = self.draw(st.sampled_from(["constant", "constant", "edge", "wrap", "reflect"]))
        return tensor.pad(widths, mode, int(self.random.integers(0, 3)) if mode == "constant" else 0)

    def state(self, extents: Sequence[int]) -> tuple[Callable, Callable, Callable]:
        """An index expression, a number, and an array over the grid."""
        coefficients = [self.draw(st.integers(-2, 2)) for _ in extents]
        number = 0.5 if not np.issubdtype(self.dtype, np.integer) else 3
        array = self.values((*extents, 2))

        def site(symbols: Sequence[Any]) -> Any:
            total: Any = 7
            for coefficient, symbol in zip(coefficients, symbols, strict=True):
                total = total + coefficient * symbol
            return total

        def entry(symbols: Sequence[Any]) -> Any:
            if not any(isinstance(s, cl.Index) for s in symbols):
                return self.lend(array[tuple(symbols)] if symbols else array)
            axes = cl.Index(0).mentioning([axis for symbol in symbols for axis in symbol.axes]).axes
            return self.lend(array[tuple(symbol.over(axes).values(axes) for symbol in symbols)])

        return site, lambda _: number, entry

    def compute_set(self) -> list[Any]:
        """One compute set of one or two families; what they write is read by none of them."""
        draw, graph = self.draw, self.case.graph
        compute_set = graph.add_compute_set(f"set {next(self.numbers)}/√")
        sources = [self.readable() for _ in range(2)]
        for _ in range(draw(st.integers(1, 2))):
            self.family(compute_set, sources)
        return [cl.Execute(compute_set)]

    def codelet(self, kind: cl.Codelet, static: dict[str, Any]) -> tuple[cl.Codelet, dict[str, Any]]:
        """A codelet with static values; or now and then one without, of its jaxprs."""
        if self.draw(st.integers(0, 4)):
            return kind, static
        key = kind, static_key(tuple(static.items()))
        if key not in self.from_jaxprs:
            self.from_jaxprs[key] = FromJaxprs(kind, static)
        return self.from_jaxprs[key], {}

    def family(self, compute_set: Any, sources: Sequence[cl.Tensor]) -> None:
        draw = self.draw
        extents, numbers, make_symbols = draw(nested(0))
        kinds = [gather_up, dot_product, shift_all, two_results, accumulate, stateful, laid_out]
        kind = draw(st.sampled_from(kinds))
        x, y = (draw(readings(draw(st.sampled_from(sources)), extents)) for _ in range(2))
        fields: dict[str, Callable[[Sequence[Any]], Any]] = {"x": x.view}
        static = {}
        if kind in (gather_up, dot_product, shift_all, two_results, laid_out):
            fields["y"] = y.view
        if kind is shift_all and draw(st.booleans()):
            static["by"] = draw(st.sampled_from(STATICS))
        if kind is stateful:
            fields["site"], fields["scale"], fields["table"] = self.state(extents)
        results = {"out": x.shape if kind in (shift_all, two_results) else ()}
        if kind is two_results:
            results["the sum, Σ/x"] = ()
        if kind is accumulate:
            results = {"acc": ()}
        by_loops = draw(st.booleans())
        left_off = not by_loops and not self.static and kind is not accumulate and draw(st.booleans())
        if not left_off:
            for result, shape in results.items():
                fields[result] = draw(writing(self.variable, extents, shape))
        spread = draw(st.booleans())
        tile = lambda symbols: sum(symbols, 0) % 8  # noqa: E731
        graph, (kind, static) = self.case.graph, self.codelet(kind, static)
        if by_loops:
            for symbols in numbers():
                views = {name: make(symbols) for name, make in fields.items()}
                graph.add_vertex(compute_set, kind, **views, **static, tile=tile(symbols) if spread else None)
            return
        symbols = make_symbols()
        views = {name: make(symbols) for name, make in fields.items()}
        named = [v.axes for v in views.values() if isinstance(v, (cl.Tensor, cl.Index))]
        if extents and whole_grids(itertools.chain(*named)) != whole_grids(itertools.chain(*(s.axes for s in symbols))):
            # Something has to name all symbols, or there would be fewer vertices.
            spread = True
        graph.add_vertex(compute_set, kind, **views, **static, tile=tile(symbols) if spread else None)

    def patchwork(self) -> list[Any]:
        """Families that read parts of one variable, and write parts of another; some parts may be left."""
        draw, graph = self.draw, self.case.graph
        compute_set = graph.add_compute_set(f"set{next(self.numbers)}")
        sizes = draw(st.lists(st.integers(1, 3), min_size=2, max_size=4))
        across, dimension = draw(st.integers(1, 3)), draw(st.integers(0, 1))
        shape = (sum(sizes), across) if dimension == 0 else (across, sum(sizes))
        source, target = self.variable(shape), self.variable(shape)
        factor = self.variable((1,))
        starts = np.cumsum([0, *sizes])
        for part in draw(st.permutations(range(len(sizes)))):
            if draw(st.integers(0, 5)) == 0:
                continue
            i, j = cl.grid(sizes[part], across)
            at = lambda t, start, i=i, j=j: t[start + i, j] if dimension == 0 else t[j, start + i]  # noqa: E731
            graph.add_vertex(
                compute_set,
                shift_all,
                x=at(source, int(starts[part])),
                y=factor[0],
                out=at(target, int(starts[part])),
                by=part,
            )
        return [cl.Execute(compute_set)]

    def stencil(self) -> list[Any]:
        """Families whose vertices read one variable several times: at shifted places, in windows, or by tables.

        Inside a border or strided, element by element or in rows, with constant weights or not.
        """
        draw, graph = self.draw, self.case.graph
        compute_set = graph.add_compute_set(f"around{next(self.numbers)}")
        shape = draw(st.sampled_from([(9,), (12,), (30,), (4, 5), (6, 6), (5, 3), (2, 4, 4)]))
        source = self.variable(shape)
        source = self.padded(source) if draw(st.integers(0, 3)) == 0 else source
        for _ in range(draw(st.integers(1, 2))):
            stride, window = draw(st.sampled_from([1, 1, 1, 2, 3])), draw(st.sampled_from([1, 1, 1, 2, 3, 5]))
            reach = draw(st.integers(0, 2))  # of shifts
            counts = [max(1, (n - window - reach) // stride + 1) for n in source.shape]
            if draw(st.booleans()) and len(counts) > 1:
                counts[-1] = 0  # vertices of rows
            extents = [n for n in counts if n]
            symbols = cl.grid(*extents)
            symbols = symbols if isinstance(symbols, tuple) else (symbols,)
            views = []
            for _ in range(draw(st.integers(1, 5))):
                places = zip(source.shape, itertools.zip_longest(symbols, counts), strict=True)
                views.append(
                    source[tuple(self.around(n, at, count, stride, window, reach) for n, (at, count) in places)]
                )
            of_elements = len({view.shape for view in views}) == 1 and draw(st.booleans())
            kind = draw(st.sampled_from([WEIGHTED_BY_ELEMENT, BENT_BY_ELEMENT] if of_elements else [WEIGHTED, BENT]))
            shape = views[0].shape if of_elements else ()
            out = draw(writing(self.variable, extents, shape))(symbols)
            graph.add_vertex(compute_set, kind[len(views) - 1], **dict(zip("abcde", views, strict=False)), out=out)
        return [cl.Execute(compute_set)]

    def around(self, n: int, symbol: Any, count: int, stride: int, window: int, reach: int) -> Any:
        """What is read along a dimension of extent `n`: near a symbol, or, where there is none, a part of all."""
        draw = self.draw
        if symbol is None or not count:
            start = draw(st.integers(0, min(1, n - 1)))
            return slice(start, max(start + 1, n - draw(st.integers(0, 1))))
        shift = draw(st.integers(0, max(0, min(reach, n - (count - 1) * stride - 1))))
        way = draw(st.sampled_from(["forward"] * 5 + ["backward", "fixed", "table"]))
        if way == "fixed":
            return shift
        if way == "table":
            entries = self.random.integers(0, max(1, n // draw(st.sampled_from([1, 4]))), count)
            return cl.table(entries)[symbol]
        at = stride * (symbol if way == "forward" else count - 1 - symbol) + shift
        longest = n - (count - 1) * stride - shift
        return slice(at, at + min(window, longest)) if window > 1 else at

    def rows(self, count: int, size: int, *, disjoint: bool) -> Callable[[Any], Any]:
        """Of `size` positions, rows for `count` vertices: what stands between brackets, for a symbol or a number."""
        draw = self.draw
        if not size:
            nothing = cl.table(np.zeros(0, np.int32), offsets=[0] * (count + 1))
            return lambda i: nothing[i]
        if not disjoint and draw(st.booleans()):
            width = size + 1
            return draw(
                st.sampled_from(
                    [
                        lambda i: slice(i * size // count, (i + 1) * size // count),
                        lambda i: slice(i * size // count, None),
                        lambda i: slice(None, width * (i + 1) // (count + 1)),
                        lambda i: slice(size - 1 - i * size // count, None, -1),
                    ]
                )
            )
        if disjoint and draw(st.booleans()):
            return lambda i: slice(i * size // count, (i + 1) * size // count)
        most = size if disjoint else 2 * size
        entries = draw(st.permutations(range(size))) if disjoint or draw(st.booleans()) else None
        if entries is None:
            entries = draw(st.lists(st.integers(0, size - 1), min_size=most, max_size=most))
        ends = sorted(draw(st.lists(st.integers(0, len(entries)), min_size=count - 1, max_size=count - 1)))
        rows = cl.table(np.asarray(entries), offsets=[0, *ends, len(entries)])
        return lambda i: rows[i]

    def ragged(self) -> list[Any]:
        """A family whose fields have as many elements as the vertex's row is long."""
        draw, graph = self.draw, self.case.graph
        compute_set = graph.add_compute_set(f"set{next(self.numbers)}")
        count, size = draw(st.integers(1, 7)), draw(st.sampled_from([*range(1, 10), 0]))
        across = draw(st.sampled_from([None, 1, 2]))  # another axis of the grid, if any
        first = draw(st.booleans())
        shape = (size,) if across is None else (across, size) if first else (size, across)
        kind = draw(st.sampled_from([*OF_ROWS, *ROWS_OF_ROWS]))
        writes_rows = kind is row_order or kind in ROWS_OF_ROWS
        if kind not in (row_mean, row_order, row_dot, row_chosen, row_looked_up):  # elements that are arrays, or none
            shape += draw(st.sampled_from([(), (), (), (2,), (0,)]))
        static: dict[str, Any] = {}
        if kind in BY_CASES:
            static = {"how": draw(st.sampled_from(sorted(HOW))), "of": draw(st.integers(0, 3))}
        runs, static = self.codelet(kind, static)
        row = self.rows(count, size, disjoint=writes_rows)
        source = self.variable(shape)
        if draw(st.booleans()):
            source = source.pad(1)[(slice(1, -1),) * len(shape)]
        target = self.variable(shape) if writes_rows else self.variable((count,) if across is None else (across, count))
        others = self.variable((count,))
        z, other_row = self.variable((size,)), row
        sums = self.variable((count,) if across is None else (across, count))

        def at(tensor: cl.Tensor, where: Any, h: Any) -> cl.Tensor:
            return tensor[where] if across is None else tensor[h, where] if first else tensor[where, h]

        def connect(h: Any, i: Any) -> None:
            fields: dict[str, Any] = {"x": at(source, row(i), h)}
            if kind is row_dot:
                fields["z"] = z[other_row(i)]
            else:
                fields["y"] = others[i]
            fields["out"] = at(target, row(i), h) if writes_rows else target[i] if across is None else target[h, i]
            if kind is row_order:
                fields["sum"] = sums[i] if across is None else sums[h, i]
            graph.add_vertex(compute_set, runs, **fields, **static)

        if draw(st.integers(0, 2)) == 0:
            for h, i in itertools.product(range(across or 1), range(count)):
                connect(h, i)
        elif across is None:
            connect(0, cl.grid(count))
        else:
            connect(*(cl.grid(across, count) if draw(st.booleans()) else reversed(cl.grid(count, across))))
        return [cl.Execute(compute_set)]

    def copied(self) -> list[Any]:
        """A number or an array, which is broadcast, to some view of a variable that names no element twice."""
        draw = self.draw
        shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=2)))
        target = self.variable(shape)
        view = draw(
            st.sampled_from(
                [
                    *(target, target[0], target[::2], target[::-1].T, target[[-1]]),
                    target.pad(1)[(slice(1, -1),) * len(shape)],
                    cl.concatenate([target[1:].flatten(), target[:1].flatten()]),
                    draw(rearranged(target)),
                ]
            )
        )
        few = tuple(draw(st.sampled_from([n, 1])) for n in view.shape)[draw(st.integers(0, view.ndim)) :]
        return [cl.Copy(draw(st.sampled_from([3, self.lend(self.values(few)), self.values(few).tolist()])), view)]

    def copy(self) -> list[Any]:
        kind = self.draw(st.integers(0, 3))
        if kind == 3:
            return self.copied()
        source = self.readable()
        if kind == 0:
            return [cl.Copy(source, self.variable(source.shape))]
        target = self.variable((2, *source.shape))
        if kind == 1:
            return [cl.Copy(source, target[self.draw(st.integers(0, 1))])]
        # Overlapping views of one variable: as if the source were read whole first.
        return [cl.Copy(target[::-1], target)]

    def short(self, shape: tuple[int, ...], dtype: Any = None) -> cl.Tensor:
        """A variable that nobody gives a value from outside, nor reads in the end: its memory may be another's too."""
        return self.case.graph.add_variable(f"short{next(self.numbers)}", shape, dtype or self.dtype)

    def chained(self) -> list[Any]:
        """From variable to variable, each vertex where it has read, by codelets of which some may write there."""
        draw, graph = self.draw, self.case.graph
        count, size = draw(st.integers(1, 3)), draw(st.integers(1, 4))
        first, last = self.variable((count, size)), self.variable((count, size))
        other = draw(st.sampled_from(WIDER["i" if np.issubdtype(self.dtype, np.integer) else "f"]))
        program, now = [], first
        kinds = draw(st.lists(st.sampled_from([each_alone, backwards, running, and_its_sum, add_to_both, as_dtype])))
        for kind in [each_alone, *kinds[:4], each_alone]:
            compute_set, i = graph.add_compute_set(f"link{next(self.numbers)}"), cl.grid(count)
            more: dict[str, Any] = {}
            if kind is and_its_sum:
                more["sum"] = self.variable((count,))[i]
            if kind is add_to_both:
                more["acc"] = self.variable((count,))[i]
            if kind is as_dtype:
                wide, back = self.short((count, size), other), graph.add_compute_set(f"link{next(self.numbers)}")
                graph.add_vertex(back, as_dtype, x=now[i], out=wide[i], to=wide.dtype.name)
                program.append(cl.Execute(back))
                now, i, more["to"] = wide, cl.grid(count), np.dtype(self.dtype).name
            new = self.short((count, size))
            graph.add_vertex(compute_set, kind, x=now[i], out=new[i], **more)
            program.append(cl.Execute(compute_set))
            now = new
        return [*program, cl.Copy(now, last)]

    def either(self) -> list[Any]:
        """A choice of which one branch reads what the other writes first, behind something that passes."""
        graph, size = self.case.graph, self.draw(st.integers(1, 4))
        held, out, given = self.variable((size,)), self.variable((size,)), self.variable((size,))
        before, passing = self.short((size,)), graph.add_compute_set(f"pass by{next(self.numbers)}")
        i = cl.grid(size)
        graph.add_vertex(passing, each_alone, x=before[i : i + 1], out=out[i : i + 1])
        ways = [cl.Copy(held, out), cl.Sequence(cl.Copy(given, held), cl.Copy(held[::-1], out))]
        self.draw(st.randoms(use_true_random=False)).shuffle(ways)
        control = self.number(self.draw(st.integers(0, 1)))
        return [cl.Copy(given, before), passing, cl.If(control, *ways), cl.Copy(out, given)]

    def empty(self) -> list[Any]:
        """Fields without elements, families without vertices, and beside them some with."""
        draw, graph = self.draw, self.case.graph
        count, none = draw(st.integers(1, 3)), graph.add_variable(f"short{next(self.numbers)}", (3, 0), self.dtype)
        x, compute_set = self.variable((count,)), graph.add_compute_set(f"little{next(self.numbers)}")
        i, j = cl.grid(count), cl.grid(0)
        tile = draw(st.sampled_from([None, 5]))
        graph.add_vertex(compute_set, gather_up, x=x[i : i + 1], y=none[i], out=self.variable((count,))[i], tile=tile)
        if draw(st.booleans()):
            graph.add_vertex(compute_set, gather_up, x=x, y=x[j], out=self.variable((2,))[j], tile=tile)
        if draw(st.booleans()):
            graph.add_vertex(compute_set, backwards, x=none[i], out=self.short((3, 0))[i])
        return [cl.Execute(compute_set), cl.Copy(none, self.short((3, 0)))]

    def counted(self) -> list[Any]:
        """A repeat whose body reads the count and adds it up."""
        graph = self.case.graph
        number = next(self.numbers)
        dtype = self.draw(st.sampled_from(["int32", "int32", "int8", "uint8", "uint32"]))
        turn = graph.add_variable(f"turn{number}", (), dtype)
        total = self.variable((2,))
        adder = graph.add_compute_set(f"count{number}")
        k = cl.grid(2)
        graph.add_vertex(adder, accumulate, x=self.variable((3,)), acc=total[k])
        seen = graph.add_variable(f"seen{number}", (4,), dtype)
        self.case.inputs[f"seen{number}"] = np.zeros(4, dtype)
        body: Any = [adder, cl.Copy(seen[1:], seen[:3]), cl.Copy(turn.reshape(1), seen[3:])]
        if self.draw(st.booleans()):
            # The same variable counts within: what it holds afterwards is for the rest of the turn.
            body = [cl.Repeat(self.draw(st.integers(0, 2)), cl.Sequence(*body), index=turn), *body[1:]]
        return [cl.Repeat(self.draw(st.integers(0, 3)), body, index=turn, recompute=self.draw(checkpoints))]

    def passing(self) -> list[Any]:
        """A repeat that steps from a variable to another and copies it back, maybe two turns back, and variations.

        Many of them may be rotated, many just not: something reads or writes where it must not.
        """
        draw, graph = self.draw, self.case.graph
        number, size = next(self.numbers), draw(st.integers(3, 5))
        new, now, old = (self.variable((size,)) for _ in range(3))
        step, watch = graph.add_compute_set(f"pass{number}"), graph.add_compute_set(f"watch{number}")
        i = cl.grid(size if draw(st.integers(0, 3)) == 0 else range(1, size - 1))
        near = now.pad(1, "wrap")[i : i + 3]
        graph.add_vertex(step, gather_up, x=near, y=draw(st.sampled_from([old, old, now, new]))[i : i + 1], out=new[i])
        graph.add_vertex(watch, accumulate, x=draw(st.sampled_from([new, now, old])), acc=self.variable(()))
        copies = [cl.Copy(now, old), cl.Copy(new, now)]
        copies = draw(st.sampled_from([copies, copies[1:], copies[::-1]]))
        body = [cl.Execute(step), *copies]
        if draw(st.booleans()):
            body = [*copies, cl.Execute(step)]
        extra = draw(st.sampled_from(["none", "none", "watch", "border", "whole", "again", "count"]))
        place = draw(st.integers(0, len(body)))
        if extra == "watch":
            body.insert(place, cl.Execute(watch))
        elif extra == "border":
            body.insert(place, cl.Copy(self.variable((1,)), draw(st.sampled_from([new, now, old]))[:1]))
        elif extra == "whole":
            body.insert(place, cl.Copy(*draw(st.permutations([new, now, old]))[:2]))
        elif extra == "again":
            body.insert(place, cl.Repeat(draw(st.integers(0, 5)), cl.Sequence(cl.Execute(step), *copies)))
        turn = graph.add_variable(f"turn{number}", (), "int32") if extra == "count" else None
        if turn is not None:
            kept = graph.add_variable(f"kept{number}", (3,), "int32")
            self.case.inputs[f"kept{number}"] = np.zeros(3, np.int32)
            body += [cl.Copy(kept[1:], kept[:2]), cl.Copy(turn.reshape(1), kept[2:])]
        alike = draw(st.sampled_from([[], [cl.Copy(now, new)], [cl.Copy(now, old), cl.Copy(now, new)]]))
        kept = draw(checkpoints)
        return [*alike, cl.Repeat(draw(st.integers(0, 9)), cl.Sequence(*body), index=turn, recompute=kept)]

    def number(self, value: int) -> cl.Tensor:
        """A variable that comes from outside and holds an integer."""
        name = f"number{next(self.numbers)}"
        made = self.case.graph.add_variable(name, (), "int32")
        self.case.inputs[name] = np.asarray(value, np.int32)
        return made

    def body(self, depth: int) -> cl.Program:
        return cl.Sequence(*[part for _ in range(self.draw(st.integers(1, 2))) for part in self.step(depth + 1)])

    def loop(self, depth: int) -> list[Any]:
        """A loop that a number in a variable ends, which the body counts down."""
        draw, graph, number = self.draw, self.case.graph, next(self.numbers)
        most = draw(st.sampled_from([3, 5, 7, MANY_TURNS] if self.bounded else [None, 3, 5]))
        left, goes_on = (
            self.number(draw(st.integers(0, min(most or 3, 7)))),
            graph.add_variable(f"goes_on{number}", (), "bool"),
        )
        self.case.inputs[f"goes_on{number}"] = np.asarray(True)
        look, count = graph.add_compute_set(f"look{number}"), graph.add_compute_set(f"down{number}")
        graph.add_vertex(look, is_left, left=left, out=goes_on)
        graph.add_vertex(count, one_less, left=left)
        self.static += 1
        is_many = most not in (3, 5, 7)  # more than values of streams are made for
        self.unbounded += is_many
        self.times *= 1 if is_many else most
        body = cl.Sequence(self.body(depth), count)
        self.times //= 1 if is_many else most
        self.unbounded -= is_many
        self.static -= 1
        turns = draw(st.sampled_from([None, 0, 2]))  # which changes no value
        return [cl.RepeatWhile(look, goes_on, body, max_iterations=most, trip_count=turns)]

    def choice(self, depth: int) -> list[Any]:
        draw = self.draw
        control, is_if = self.number(draw(st.integers(-1, 2))), draw(st.booleans())
        self.static += 1
        bodies = [self.body(depth) for _ in range(draw(st.integers(1, 2 if is_if else 3)))]
        self.static -= 1
        if is_if:
            return [cl.If(control, *bodies)]
        return [cl.Switch(control, dict(enumerate(bodies[1:])), bodies[0])]

    def called(self, size: int, *, writes_a: bool, begins: bool = False, depth: int = 0) -> cl.Function:
        """A function of a, b and c, which writes c, and a if that is said, and variables of the graph that it names.

        One that `begins` writes c before it reads it, and maybe those variables, through functions within it perhaps.
        """
        draw, graph, number = self.draw, self.case.graph, next(self.numbers)
        own = {name: graph.add_variable(f"parameter{number}{name}", (size,), self.dtype) for name in "abc"}
        alike = [v.name for v in graph.sources if v.shape == (size,) and v.dtype == self.dtype and v.value is None]
        alike = [name for name in alike if not name.startswith(UNSURE)]
        outside = (
            graph.variable(draw(st.sampled_from(alike))) if alike and draw(st.booleans()) else self.variable((size,))
        )
        held, local = self.variable((size,)), self.short((size,))
        nests = depth < 2 and draw(st.booleans())
        inner: Any = self.called(size, writes_a=False, begins=begins, depth=depth + 1) if nests else None
        i, j = cl.grid(size), cl.grid(draw(st.integers(1, size)))
        flip = (lambda t, i: t[size - 1 - i]) if draw(st.booleans()) else (lambda t, i: t[i])
        body: list[Any] = [cl.Copy(own["b"], local)]

        def mix(a: cl.Tensor, b: cl.Tensor, c: cl.Tensor, i: Any = i) -> Any:
            made = graph.add_compute_set(f"work{next(self.numbers)}")
            graph.add_vertex(made, mixed, a=a[i], b=flip(b, i), c=flip(c, i))
            return made

        def first(to: cl.Tensor) -> Any:
            way = draw(st.sampled_from(["copy", "vertices", *["call"] * 3 * (inner is not None)]))
            if way == "call":
                return cl.Call(inner, a=own["a"], b=own["b"], c=to)
            if way == "copy":
                return cl.Copy(own[draw(st.sampled_from("ab"))], to)
            made = graph.add_compute_set(f"first{next(self.numbers)}")
            graph.add_vertex(made, bent_to, a=own["a"][i], b=flip(own["b"], i), out=to[i])
            return made

        for tensor in [own["c"], *draw(st.sampled_from([[], [held], [local]]))] if begins else []:
            body.append(first(tensor))
        kinds = ["plain", "plain", "part", "state", "reads", "local", "copy", "loop", "choice"]
        for kind in draw(
            st.lists(st.sampled_from(kinds + ["calls"] * 2 * (inner is not None)), min_size=int(not begins), max_size=4)
        ):
            body += {
                "plain": lambda: [mix(own["a"], own["b"], own["c"])],
                "part": lambda: [mix(own["b"], own["a"], own["c"], j)],
                "state": lambda: [mix(own["c"], own["a"], outside)],
                "reads": lambda: [mix(held, outside, own["c"])],
                "local": lambda: [mix(own["a"], held, local), mix(local, own["a"], own["c"])],
                "copy": lambda: [
                    cl.Copy(own["c"][::-1], local),
                    cl.Copy(draw(st.sampled_from([held, own["a"]])), own["c"]),
                ],
                "loop": lambda: [
                    cl.Repeat(
                        draw(st.integers(0, 3)),
                        cl.Sequence(mix(own["c"], held, local), mix(local, own["a"], own["c"])),
                        recompute=draw(checkpoints),
                    )
                ],
                "choice": lambda: [cl.If(self.number(draw(st.integers(0, 1))), mix(local, own["a"], own["c"]))],
                "calls": lambda: [
                    cl.Call(inner, a=own["a"], b=held, c=local),
                    cl.Call(inner, a=draw(st.sampled_from([local, own["b"]])), b=local, c=own["c"]),
                ],
            }[kind]()
        body += [mix(own["b"], own["c"], own["a"])] * writes_a
        return graph.add_function(body, own)

    def calls(self) -> list[Any]:
        """A function called several times: on the same tensors, on parts of one, in a chain, or on any; in a loop."""
        draw, size = self.draw, self.draw(st.integers(1, 3))
        kinds = {name: draw(st.sampled_from(["same", "own", "back", "next", "any"])) for name in "abc"}
        begins = draw(st.booleans())
        if begins and draw(st.booleans()):
            kinds["c"] = "alone"
        # Two arguments are written, which must be apart; what is only read may be any of them.
        apart = kinds["a"] in ("same", "own", "back") and kinds["c"] != "any"
        function = self.called(size, writes_a=apart and draw(st.booleans()), begins=begins)
        count = draw(st.integers(1, 5))
        parts = {name: self.variable((count + 1, size)) for name in "abc"}
        alone = self.variable((size,))

        def argument(name: str, kind: str, turn: int) -> cl.Tensor:
            tensor = parts[name]
            return {
                "same": lambda: tensor[0],
                "alone": lambda: alone,
                "own": lambda: tensor[turn],
                "back": lambda: tensor[count - turn],
                "next": lambda: parts["c"][turn + 1] if name == "c" else parts["c"][turn],
                "any": lambda: self.draw(st.sampled_from([parts["a"], parts["c"]]))[self.draw(st.integers(0, count))],
            }[kind]()

        calls: list[Any] = [
            cl.Call(function, **{name: argument(name, kinds[name], turn) for name in "abc"}) for turn in range(count)
        ]
        if draw(st.booleans()):
            cut = draw(st.integers(0, count))
            calls = [*calls[:cut], cl.Repeat(draw(st.integers(1, 3)), calls[cut:], recompute=draw(checkpoints))]
        if draw(st.integers(0, 2)) == 0:
            # Several calls in a branch, in a loop there perhaps; the other has one of them, or none.
            control, cut = self.number(draw(st.integers(0, 1))), draw(st.integers(0, 1))
            inside = cl.Repeat(draw(st.integers(1, 2)), calls) if draw(st.booleans()) else cl.Sequence(*calls)
            calls = [cl.If(control, *draw(st.permutations([inside, cl.Sequence(*calls[:cut])])))]
        return calls

    def streamed(self) -> list[Any]:
        """Values in, something done with them, and a value out: as many values in as may be taken."""
        graph, number = self.case.graph, next(self.numbers)
        shape = tuple(self.draw(st.lists(st.sampled_from([1, 2, 3, 3, 0]), min_size=0, max_size=2)))
        depth = self.draw(st.sampled_from([1, 2]))  # which changes no value
        incoming = graph.add_input_stream(f"in{number}", shape, self.dtype, buffering_depth=depth)
        self.case.inputs[incoming.name] = self.values((self.times * 2, *shape))
        outgoing = graph.add_output_stream(f"out{number}", shape, self.dtype)
        held, last = self.variable(shape), self.variable(shape)
        return [cl.Copy(incoming, held), cl.Copy(incoming, last), *self.compute_set(), cl.Copy(held, outgoing)]

    def updated(self) -> list[Any]:
        """Writes to parts of a variable from itself."""
        return rewritten(self)

    def sent(self) -> list[Any]:
        """Values out, wherever there is a bound on how many there may be: in loops and some cases of choices too."""
        view = self.draw(st.sampled_from([self.variable((2,)), self.variable((2, 2))[1], self.variable((2,))[::-1]]))
        outgoing = self.case.graph.add_output_stream(f"sent{next(self.numbers)}", (2,), self.dtype)
        return [*self.compute_set(), cl.Copy(view, outgoing), *[cl.Copy(1, outgoing)] * self.draw(st.integers(0, 1))]

    def nested(self, depth: int) -> list[Any]:
        """Something in repeats, loops, choices and sequences in one another."""
        draw, inside = self.draw, self.static
        self.static += 1
        body: Any = self.body(depth)
        self.static = inside
        other = self.variable((2,))
        control = self.number(draw(st.integers(0, 1)))
        for kind in draw(st.lists(st.sampled_from(["repeat", "if", "else", "switch", "list", "none"]), max_size=6)):
            body = {
                "repeat": lambda body: cl.Repeat(1, body),
                "if": lambda body: cl.If(control, body, cl.Copy(0, other)),
                "else": lambda body: cl.If(control, [], body),
                "switch": lambda body: cl.Switch(control, {0: body, 1: [body, []]}),
                "list": lambda body: [[body], cl.Copy(other[::-1], other)],
                "none": lambda body: cl.Sequence(cl.Repeat(0, body), body),
            }[kind](body)
        return [cl.Sequence(body)]

    def ended(self) -> list[Any]:
        """A variable that ends, and begins again; and an abort that never comes."""
        name = f"short{next(self.numbers)}"
        short, other = self.case.graph.add_variable(name, (2,), self.dtype), self.variable((2,))
        return [
            cl.Copy(other, short),
            cl.Copy(short[::-1], other),
            cl.WriteUndef(short),
            cl.AbortOn(self.number(0), "never"),
            cl.Copy(other, short),
        ]

    def step(self, depth: int = 0) -> list[Any]:
        kinds = [
            "set",
            "set",
            "set",
            "copy",
            "repeat",
            "counted",
            "patchwork",
            "rewritten",
            "passing",
            "ragged",
            "blocked",
            "staged",
            "operated",
            "stencil",
            "stencil",
        ]
        kinds += ["loop", "choice"] * (depth < 2) + ["calls", "ended", "blocked"]
        kinds += ["chained", "either", "empty", "masked", "undefined"] + ["nested"] * (depth < 1)
        kinds += ["streamed", "sent"] * (not self.unbounded)
        kind = self.draw(st.sampled_from(kinds))
        if kind == "passing":
            return self.passing()
        if kind == "copy":
            return self.copy()
        if kind == "counted" and depth == 0:
            return self.counted()
        if kind in ("patchwork", "stencil"):
            return getattr(self, kind)()
        if kind in BESIDE:
            return BESIDE[kind](self)
        if kind == "ragged":
            return self.ragged()
        if kind == "loop":
            return self.loop(depth)
        if kind == "choice":
            return self.choice(depth)
        if kind == "nested":
            return self.nested(depth)
        if kind in ("calls", "ended", "streamed", "chained", "either", "empty", "sent"):
            return getattr(self, kind)()
        if kind == "repeat" and depth < 2:
            count = self.draw(st.integers(1, 3))
            self.times *= count
            body = self.body(depth)
            self.times //= count
            return [cl.Repeat(count, body, recompute=self.draw(checkpoints))]
        return self.compute_set()


def written_first(case: Case) -> set[str]:
    """The variables all elements of which a case's program writes on every way, and before anything reads them."""
    plan = without_calls(flow(collect(case.graph, case.sequence(), (), ())))
    constants = [own for own in plan.variables if own.value is not None]
    read, written = read_and_written(plan, constants)
    return {own.name for own in plan.variables if own not in read and own not in constants and written.of(own).is_all}


@st.composite
def cases(
    draw: Any,
    dtype: Any = np.float32,
    max_iterations: int = 3,
    loops: bool = False,
    bounded: bool = False,
    ragged: bool = False,
    calls: bool = False,
    updates: bool = False,
) -> Case:
    """A graph with a program, and values for its inputs; `loops` are repeats that pass variables on, alone.

    `bounded` programs can be differentiated in reverse mode; of `ragged` ones every compute set is ragged; those of
    `calls` are of calls, or of steps with calls between; those of `updates` write variables in part from themselves,
    alone. Of some, what is written before it is read has no value before.
    """
    builder = _Builder(draw, dtype, bounded)
    case = builder.case
    only = [("passing", loops), ("ragged", ragged), ("updated", updates)]
    step = getattr(builder, next((kind for kind, is_only in only if is_only), "step"))
    for _ in range(draw(st.integers(1, max_iterations))):
        case.program += step()
        case.program += builder.calls() if calls else []
    if loops and draw(st.booleans()):
        case.program = [cl.Repeat(draw(st.integers(1, 3)), cl.Sequence(*case.program))]
    unwritten = {v.name for v in case.graph.variables if v.name.startswith(("turn", *UNSURE))}
    names = [v.name for v in case.graph.sources if v.value is None and v.name not in unwritten]
    own = [name for name in names if case.graph.variable(name).dtype == np.dtype(dtype)]
    # All, or few: what no output needs is not run.
    few = {draw(st.sampled_from(own)), draw(st.sampled_from(names))}
    case.outputs = names if draw(st.booleans()) else [name for name in names if name in few]
    if calls or draw(st.integers(0, 3)) == 0:
        late = written_first(case)
        kept = draw(st.sets(st.sampled_from(sorted(late)))) if late and draw(st.booleans()) else set()
        case.inputs = {name: value for name, value in case.inputs.items() if name not in late - kept}
    return case
