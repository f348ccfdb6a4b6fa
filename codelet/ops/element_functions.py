"""Elementwise functions as codelets: a function of single elements, made one of blocks of elements.

In comes a function that a user gives `ops.map`, and for each of its parameters the dtype of a tensor, or a number. Out
come codelets of blocks, the same object for the same function as long as its captured values are the same
(`codelet/tracing/captured.py`), so that nothing is traced or planned twice.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet.errors import CodeletError, OperationError, SavingError
from codelet.jaxprs.lifted import lifted
from codelet.ops.pairs import Pair, both
from codelet.ops.saved_functions import SavedFunction, saved_function
from codelet.tracing.captured import Captured, captured
from codelet.tracing.codelets import Codelet
from codelet.tracing.field_types import SizeNames
from codelet.tracing.hints import Hints
from codelet.tracing.statics import Settings, restored, static_key, trace_settings
from codelet.views.tensor import Tensor

Number = bool | int | float | complex | np.generic


@dataclass(frozen=True)
class ElementFunction:
    """A function of single elements.

    Attributes:
        operation: its operation, for errors.
        name: of the function.
        key: distinguishes it from others, and from itself at other times.
        dtypes: of its parameters; None for numbers.
        number_keys: distinguish the numbers among its parameters.
        settings: of JAX.
        numbers: the numbers, by position.
        given: the function as it was given, which a file names.
        held: the function as it was given, with its captured values, which keeps alive the objects that `key` names by
            identity.
    """

    operation: str
    name: str
    key: Hashable
    dtypes: tuple[np.dtype | None, ...]
    number_keys: Hashable
    settings: Settings
    numbers: dict[int, Any] = field(compare=False)
    given: Any = field(compare=False)
    held: Captured = field(compare=False)

    @property
    def num_fields(self) -> int:
        """How many of its parameters are tensors."""
        return sum(dtype is not None for dtype in self.dtypes)

    def on(self, *elements: Any) -> Any:
        """It, given elements for those of its parameters that are no numbers."""
        left = iter(elements)
        return self.held.function(
            *(self.numbers[k] if k in self.numbers else next(left) for k in range(len(self.dtypes)))
        )


def _element_function(
    operation: str, function: Any, dtypes: tuple[np.dtype | None, ...], numbers: dict[int, Any]
) -> ElementFunction:
    held = captured(function)
    keys = tuple((k, static_key(own)) for k, own in numbers.items())
    named = function
    while isinstance(named, functools.partial):
        named = named.func
    name = getattr(named, "__name__", type(named).__name__)
    return ElementFunction(operation, name, held.key, dtypes, keys, trace_settings(), numbers, function, held)


def element_function(operation: str, function: Any, operands: Sequence[Tensor | Number]) -> ElementFunction:
    """A function of single elements, as it is now.

    Args:
        operation: its operation, for errors.
        function: any that JAX traces.
        operands: the arguments of its parameters.
    """
    numbers = {k: own for k, own in enumerate(operands) if not isinstance(own, Tensor)}
    dtypes = tuple(own.dtype if isinstance(own, Tensor) else None for own in operands)
    return _element_function(operation, function, dtypes, numbers)


@functools.lru_cache(maxsize=1024)
def result_types(own: ElementFunction) -> tuple[Any, tuple[np.dtype, ...]]:
    """The structure of a function's result, and the dtypes of its leaves.

    Raises:
        OperationError: it fails for single elements, or gives more than one of each.
    """
    types = ", ".join(str(dtype) for dtype in own.dtypes if dtype is not None)
    elements = [jax.ShapeDtypeStruct((), dtype) for dtype in own.dtypes if dtype is not None]
    try:
        found = jax.eval_shape(lambda *given: jax.tree.map(jnp.asarray, own.on(*given)), *elements)
    except CodeletError:
        raise
    except Exception as error:
        message = str(error).strip().split("\n")[0]
        raise OperationError(
            f"the function of ops.{own.operation} fails for single elements: {type(error).__name__}: {message}",
            given=f"{own.name} of {types}",
            expected="a JAX function that takes one element of each operand",
        ) from error
    leaves, structure = jax.tree.flatten(found)
    if not leaves or any(leaf.shape for leaf in leaves):
        raise OperationError(
            f"the function of ops.{own.operation} does not give one element for one of each operand",
            given=f"{own.name} of {types}: {', '.join(str(leaf.shape) for leaf in leaves) or 'nothing'}",
            expected="an elementwise function, or a tuple or dict of several results",
        )
    return structure, tuple(np.dtype(leaf.dtype) for leaf in leaves)


def _results(own: ElementFunction, *elements: Any) -> list[Any]:
    return [jnp.asarray(leaf) for leaf in jax.tree.leaves(own.on(*elements))]


def is_smooth(dtype: np.dtype | None) -> bool:
    """Whether there are gradients by, and of, numbers of a dtype."""
    return dtype is not None and jnp.issubdtype(dtype, jnp.inexact)


def _slopes(own: ElementFunction, given: tuple[bool, ...], *elements: Any) -> list[Any]:
    """The gradients with respect to the smooth of a function's elements, from cotangents of those of its results that
    are given.
    """
    cotangents, elements = elements[: sum(given)], elements[sum(given) :]
    dtypes = [dtype for dtype in own.dtypes if dtype is not None]
    smooth = [k for k, dtype in enumerate(dtypes) if is_smooth(dtype)]

    def of_smooth(*values: Any) -> list[Any]:
        every = list(elements)
        for k, value in zip(smooth, values, strict=True):
            every[k] = value
        return [result for result, asked in zip(_results(own, *every), given, strict=True) if asked]

    _, pull = jax.vjp(of_smooth, *(elements[k] for k in smooth))
    return list(pull(list(cotangents)))


def _over_block(
    function: Callable[..., list[Any]], dimensions: Sequence[tuple[int, ...]], rank: int
) -> Callable[..., Any]:
    """A function of elements as one of blocks, each of which has some of `rank` dimensions."""
    for d in reversed(range(rank)):
        # The outer dimensions are taken off first, and so are in front when the inner ones are.
        axes = tuple(0 if d in own else None for own in dimensions)
        if any(axis == 0 for axis in axes):
            function = jax.vmap(function, in_axes=axes)
    return function


@dataclass(frozen=True)
class _CodeletResults:
    """The results of the codelets of a function of elements: its results, or some of its gradients.

    Attributes:
        own: the function.
        given: of which of its results there are cotangents: these are the first fields. None for the results.
        picked: which slopes.
        num_in_place: how many first fields the results take the place of; none where it is written elsewhere.
    """

    own: ElementFunction
    given: tuple[bool, ...] | None = None
    picked: tuple[int, ...] = ()
    num_in_place: int = 0

    def on(self, *elements: Any) -> list[Any]:
        """They, of single elements."""
        if self.given is None:
            return _results(self.own, *elements)
        slopes = _slopes(self.own, self.given, *elements)
        return [slopes[k] for k in self.picked]

    def names(self, count: int) -> list[str]:
        """The names of the fields that are the results, of which there are so many."""
        return [f"x{k}" if self.num_in_place else f"out{k}" for k in range(count)]

    @property
    def name(self) -> str:
        """The name of the codelets."""
        name = self.own.name if self.own.name.isidentifier() else "map"
        return name if self.given is None else f"{name}_gradient"


@functools.lru_cache(maxsize=2048)
def _jaxpr_of_elements(computed: _CodeletResults, types: tuple[tuple[np.dtype, bool], ...]) -> jax_core.ClosedJaxpr:
    """The jaxpr of the results of single elements of some dtypes, which may be weak."""
    return jax.make_jaxpr(computed.on)(*(jax.ShapeDtypeStruct((), own, weak_type=weak) for own, weak in types))


class _ElementCodelet(Codelet):
    """A codelet of blocks, which is named in a file by the function of elements that it was made of."""

    def __init__(self, function: Callable[..., Any], computed: _CodeletResults, hints: Hints):
        super().__init__(function, hints)
        self.computed = computed

    def _of(self, *functions: Callable[..., Any]) -> Codelet:
        function, *hinting = functions
        return _ElementCodelet(function, self.computed, self.hints.of(*hinting))

    def size_names(self, static: Mapping[str, Any], ranks: Sequence[int]) -> SizeNames | None:
        # The function sees single elements.
        return SizeNames(tuple(tuple(f"d{d}" for d in own) for own in static["dimensions"]))

    def known_jaxpr(
        self, structs: Sequence[jax.ShapeDtypeStruct], static: Mapping[str, Any]
    ) -> tuple[list[str], jax_core.ClosedJaxpr] | None:
        if trace_settings() != self.computed.own.settings:
            return None
        dimensions = static["dimensions"] if any(own.shape for own in structs) else ((),) * len(structs)
        pairs = zip(dimensions, structs, strict=True)
        sizes = {d: size for own, kind in pairs for d, size in zip(own, kind.shape, strict=True)}
        used = sorted(sizes)
        given = [tuple(map(used.index, own)) for own in dimensions]
        types = tuple((own.dtype, own.weak_type) for own in structs)
        jaxpr = lifted(_jaxpr_of_elements(self.computed, types), given, [sizes[d] for d in used])
        return None if jaxpr is None else (self.computed.names(len(jaxpr.out_avals)), jaxpr)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._origin is not None:
            return super().__reduce__()
        own = self.computed.own
        what = f"the function of ops.{own.operation}"
        function = saved_function(own.given, what)
        if captured(own.given).key != own.key:
            raise SavingError(
                f"{what} cannot be pickled: the numbers around it have changed since",
                given=f"{own.name}, as it was when it was given",
                expected="numbers that are found again where it is defined",
                fix="give them to it as operands: ops.map takes numbers beside tensors",
            )
        how, is_shared = (self.computed.given, self.computed.picked, self.computed.num_in_place), self.hints.workers > 1
        return _read_again, (own.operation, function, own.dtypes, own.numbers, own.settings, how, is_shared)


def _read_again(
    operation: str,
    function: SavedFunction,
    dtypes: tuple[np.dtype | None, ...],
    numbers: dict[int, Any],
    settings: Settings,
    how: tuple[tuple[bool, ...] | None, tuple[int, ...], int],
    is_shared: bool,
) -> Codelet:
    with restored(settings):
        own = _element_function(operation, function.found(), dtypes, numbers)
    pair = _codelets(_CodeletResults(own, *how))
    return pair.shared if is_shared else pair.worker


@functools.lru_cache(maxsize=2048)
def _codelets(computed: _CodeletResults) -> Pair:
    """Codelets that give the results of a function of elements for blocks of them.

    Their fields are x0, x1, ..., blocks of the operands, and out0, out1, ..., or the first of x0, x1, ... again in
    place; their static value says which dimensions each operand has.
    """

    def block(*fields: Any, dimensions: Any) -> dict[str, Any]:
        # An element of a block has no dimensions: fast execution asks for that where it joins blocks.
        dimensions = dimensions if any(map(jnp.ndim, fields)) else ((),) * len(fields)
        rank = 1 + max((d for own in dimensions for d in own), default=-1)
        results = _over_block(computed.on, dimensions, rank)(*fields)
        return dict(zip(computed.names(len(results)), results, strict=True))

    count = computed.own.num_fields + sum(computed.given or ())
    fields = [inspect.Parameter(f"x{k}", inspect.Parameter.POSITIONAL_OR_KEYWORD) for k in range(count)]
    static = inspect.Parameter("dimensions", inspect.Parameter.KEYWORD_ONLY)
    block.__signature__ = inspect.Signature([*fields, static])  # type: ignore[attr-defined]
    block.__name__ = block.__qualname__ = computed.name
    return Pair(*(_ElementCodelet(block, computed, own.hints) for own in both(block)))


def value_codelets(own: ElementFunction, num_in_place: int = 0) -> Pair:
    """Codelets that give the results of a function; in place of its first elements, where there are said to be any."""
    return _codelets(_CodeletResults(own, num_in_place=num_in_place))


class Slopes(NamedTuple):
    """The gradients of a function by its smooth operands.

    Attributes:
        codelets: make those that are neither fields nor like others; None where there are none.
        dtypes: of the results.
        sources: of each gradient: ("field", k) where it is a field as it is, else ("result", k) of the codelet; or
            ("nothing", 0) where the results do not vary with the operand.
    """

    codelets: Pair | None
    dtypes: tuple[np.dtype, ...]
    sources: tuple[tuple[str, int], ...]


@functools.lru_cache(maxsize=1024)
def slopes_of(own: ElementFunction, given: tuple[bool, ...]) -> Slopes:
    """The gradients with respect to the smooth operands of a function, from the cotangents of some of its results.

    Args:
        own: the function.
        given: of which of its results there are cotangents: these are the first fields.
    """
    _, results = result_types(own)
    cotangents = [dtype for dtype, there in zip(results, given, strict=True) if there]
    dtypes = [*cotangents, *(dtype for dtype in own.dtypes if dtype is not None)]
    jaxpr = jax.make_jaxpr(functools.partial(_slopes, own, given))(
        *(jax.ShapeDtypeStruct((), own) for own in dtypes)
    ).jaxpr
    sources: list[tuple[str, int]] = []
    picked: list[int] = []
    for k, out in enumerate(jaxpr.outvars):
        if isinstance(out, jax_core.Literal) and out.val == 0:
            sources.append(("nothing", 0))
            continue
        if any(out is field for field in jaxpr.invars):
            sources.append(("field", next(n for n, field in enumerate(jaxpr.invars) if out is field)))
            continue
        same = next((n for n, other in enumerate(picked) if jaxpr.outvars[other] is out), len(picked))
        sources.append(("result", same))
        picked += [k] * (same == len(picked))
    codelets = _codelets(_CodeletResults(own, given, tuple(picked))) if picked else None
    return Slopes(codelets, tuple(np.dtype(jaxpr.outvars[k].aval.dtype) for k in picked), tuple(sources))
