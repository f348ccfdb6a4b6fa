"""`cl.jit`: a function that runs as a graph of vertices, in place of `jax.jit`.

JAX's own `jit` caches traces and compiled functions, for each signature and configuration. It traces the graph rather
than the function. Static and donated arguments, `jax.grad`, `jax.vmap` and `jax.lax.scan` therefore work as with any
jitted function.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from jax.core import Tracer
from jax.extend import core as jax_core

from codelet.errors import CapturedTracerError, TraceError
from codelet.frontends.arguments import Flat, flatten, together, type_of
from codelet.frontends.trace import is_tracing, trace
from codelet.frontends.traced import Traced
from codelet.ops.arguments import checked_grain
from codelet.schema import is_index
from codelet.target import Target
from codelet.tracing.statics import static_key

_SETTINGS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_numpy_dtype_promotion",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_softmax_custom_jvp",
)
"""Settings of JAX that a trace depends on."""

_LIKE_JAX = ("lower", "trace", "eval_shape")
"""What a function of `jax.jit` has besides, and this one too."""


@jax.tree_util.register_static
class _Static:
    """A hashable wrapper of something that is not an array."""

    def __init__(self, held: Any, key: Hashable):
        self.held, self._key = held, key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Static) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


class _Which(NamedTuple):
    """Some arguments of a function: by position, and by name."""

    positions: frozenset[int]
    names: frozenset[str]

    @classmethod
    def of(cls, signature: inspect.Signature | None, argnums: Sequence[int], argnames: Sequence[str]) -> _Which:
        """Those that are given, and the same ones the other way where they are given in one, as `jax.jit` has it."""
        known = {} if signature is None else signature.parameters
        places = [own.name for own in known.values() if own.kind in (own.POSITIONAL_ONLY, own.POSITIONAL_OR_KEYWORD)]
        positions, names = set(argnums), set(argnames)
        if not argnames:
            by_position = {places[k] for k in positions if 0 <= k < len(places)}
            names = {name for name in by_position if known[name].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD}
        elif not argnums:
            positions = {k for k, name in enumerate(places) if name in names}
        return cls(frozenset(positions), frozenset(names))

    def places(self, count: int) -> set[int]:
        """The positions of them among so many that are given by position."""
        return {k + count if k < 0 else k for k in self.positions}


class _Given(NamedTuple):
    """The arguments of a call.

    Attributes:
        static: static arguments, by position or name.
        donated: the positions of donated arguments.
        places: the positions of positional arguments that are not static.
        positional: these arguments.
        keywords: keyword arguments that are not static.
        flat: both, flattened.
    """

    static: dict[Any, Any]
    donated: set[int]
    places: tuple[int, ...]
    positional: tuple[Any, ...]
    keywords: dict[str, Any]
    flat: Flat

    @property
    def has_others(self) -> bool:
        """Whether anything but static arguments and arrays is given, such as the functions that a module holds."""
        return not all(leaf.is_array for leaf in self.flat.leaves)

    def with_arrays(self, arrays: Sequence[Any]) -> _Given:
        """It with others in the place of its arrays."""
        filled = self.flat.filled(arrays)
        keywords = filled[-1] if self.keywords else {}
        return self._replace(
            positional=filled[: len(self.places)], keywords=keywords, flat=self.flat.with_arrays(arrays)
        )

    def function_of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function of the arguments that are not static."""
        if not self.static:
            return function
        count = len(self.places) + sum(isinstance(k, int) for k in self.static)
        named = {name: own for name, own in self.static.items() if isinstance(name, str)}

        @functools.wraps(function)
        def of_others(*arguments: Any, **keywords: Any) -> Any:
            left = iter(arguments)
            first = [self.static[k] if k in self.static else next(left) for k in range(count)]
            return function(*first, *left, **named, **keywords)

        with contextlib.suppress(TypeError, ValueError):  # of what Python knows no signature
            signature = inspect.signature(function)
            own = [
                p for k, p in enumerate(signature.parameters.values()) if k not in self.static and p.name not in named
            ]
            of_others.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
        return of_others


class _CompiledCalls(NamedTuple):
    """Functions of `jax.jit`: one for static arguments and arrays, and one for pytrees with other leaves."""

    of_arrays: Any
    of_others: Any


class Jitted:
    """A function that runs as a graph of vertices. Made by `cl.jit`; called, and transformed, as the function itself.

    It has `lower`, `trace` and `eval_shape`, as a function of `jax.jit` does.
    """

    def __init__(self, function: Callable[..., Any], named: Mapping[str, Any], options: Mapping[str, Any]):
        functools.update_wrapper(self, function, updated=())
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self._function, self._options = function, options
        self._kept: dict[Hashable, Traced] = {}
        self._has_others = False  # whether an argument was given that `jax.jit` does not take

        static = {name: value for name, value in named.items() if name.startswith("static")}
        try:
            self._graphs, self._plain = self._compiled(self._run, named), self._compiled(self._run_plainly, static)
        except (TypeError, ValueError) as error:
            raise TraceError(
                f"arguments of {self.__name__!r} are to be static or donated, and it has none such",
                given=str(error),
                expected="numbers of its parameters by position, from 0, or their names",
            ) from None
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            signature = None
        self._static, self._donated = (
            _Which.of(signature, named[f"{word}_argnums"] or (), named[f"{word}_argnames"] or ())
            for word in ("static", "donate")
        )

    # --- calls ------------------------------------------------------------------------------------------------

    def _compiled(self, run: Callable[[_Given], Any], named: Mapping[str, Any]) -> _CompiledCalls:
        """Both functions of `jax.jit` for a way to run it."""

        @functools.wraps(self._function)
        def of_arrays(*arguments: Any, **keywords: Any) -> Any:
            return run(self._given(arguments, keywords))

        def of_others(static: _Static, donated: Sequence[Any], kept: Sequence[Any]) -> Any:
            given, is_donated = static.held
            parts = {True: iter(donated), False: iter(kept)}
            result = flatten(run(given.with_arrays([next(parts[own]) for own in is_donated])))
            return result.arrays, _Static(result.described, object())

        return _CompiledCalls(jax.jit(of_arrays, **named), jax.jit(of_others, static_argnums=0, donate_argnums=1))

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """The result of the function, computed by its graph."""
        compiled = self._plain if is_tracing() else self._graphs  # there it is a part of the graph that is made
        if not self._has_others:
            try:
                return compiled.of_arrays(*arguments, **keywords)
            except (TypeError, TraceError):
                if not self._given(arguments, keywords).has_others:
                    raise
                self._has_others = True
        given = self._given(arguments, keywords)
        if not given.has_others:
            return compiled.of_arrays(*arguments, **keywords)
        is_donated = [self._donates(given, path) for path in given.flat.paths]
        blank = given.flat.with_arrays([None] * len(is_donated))
        held = given._replace(positional=(), keywords=dict.fromkeys(given.keywords), flat=blank), is_donated
        parts: dict[bool, list[Any]] = {True: [], False: []}
        for array, own in zip(given.flat.arrays, is_donated, strict=True):
            parts[own].append(array)
        arrays, rest = compiled.of_others(_Static(held, self._key_of_others(given)), parts[True], parts[False])
        return rest.held.filled(arrays)

    def _donates(self, given: _Given, path: str) -> bool:
        """True if an array belongs to a donated argument, by its path among the arguments that are not static."""
        place, _, rest = path.partition("/")
        if int(place) < len(given.places):
            return given.places[int(place)] in given.donated
        return rest.partition("/")[0] in self._donated.names

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        return self if owner is None else _BoundMethod(self, owner)

    def __getattr__(self, name: str) -> Any:
        if name in _LIKE_JAX:
            return getattr(self._graphs.of_arrays, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def clear_cache(self) -> None:
        """Clear the caches of traces and compiled functions."""
        self._kept.clear()
        for own in (*self._graphs, *self._plain):
            own.clear_cache()

    def __repr__(self) -> str:
        return f"<cl.jit of {self.__name__}>"

    # --- graphs -----------------------------------------------------------------------------------------------

    def traced(self, *arguments: Any, **keywords: Any) -> Traced:
        """The graph for arguments like these: arrays, or `jax.ShapeDtypeStruct`s.

        Raises:
            TraceError: something that cannot be traced.

        >>> import codelet as cl, jax.numpy as jnp
        >>> cl.jit(jnp.tanh).traced(jnp.ones(3)).graph
        <Graph: 3 vertices, 2 variables>
        """
        given = self._given(arguments, keywords)
        key = self._key(given)
        return self._kept[key] if key in self._kept else self._trace(given, key)

    def profile(self, *arguments: Any, **keywords: Any) -> Any:
        """The cost of the graph for arguments like these on its machine. For options use `traced(...).profile(...)`.

        >>> import codelet as cl, jax.numpy as jnp
        >>> cl.jit(jnp.tanh, target=cl.IPU(num_tiles=4)).profile(jnp.ones(3)).num_vertices
        3
        """
        return self.traced(*arguments, **keywords).profile()

    def draw(self, *arguments: Any, **keywords: Any) -> Any:
        """A picture of the graph for arguments like these. To write a file use `traced(...).draw(path)`."""
        return self.traced(*arguments, **keywords).draw()

    def _given(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> _Given:
        count = len(arguments)
        static: dict[Any, Any] = {k: arguments[k] for k in sorted(self._static.places(count)) if k < count}
        static.update((name, own) for name, own in sorted(keywords.items()) if name in self._static.names)
        places = tuple(k for k in range(count) if k not in static)
        rest = {name: own for name, own in keywords.items() if name not in static}
        positional = tuple(arguments[k] for k in places)
        donated = self._donated.places(count)
        return _Given(static, donated, places, positional, rest, flatten(together(positional, rest)))

    def _key(self, given: _Given) -> Hashable:
        """The key of a trace: all that it depends on.

        Raises:
            TraceError: a leaf that is neither an array nor hashable.
        """
        types = tuple((own.shape, str(own.dtype), own.weak_type) for own in map(type_of, given.flat.arrays))
        settings = tuple(str(getattr(jax.config, name, None)) for name in _SETTINGS)
        return types, settings, self._key_of_others(given)

    def _key_of_others(self, given: _Given) -> Hashable:
        """The key of leaves that are not arrays, and the tree of the arguments."""
        others = [(k, leaf.value) for k, leaf in enumerate(given.flat.leaves) if not leaf.is_array]
        try:
            return given.flat.tree, static_key((*given.static.items(), *others))
        except TypeError as error:
            raise TraceError(
                f"an argument of {self.__name__!r} that is no array cannot be told from others",
                given=str(error),
                expected="static values that can be hashed",
            ) from None

    def _trace(self, given: _Given, key: Hashable) -> Traced:
        donated = [n for n, k in enumerate(given.places) if k in given.donated]
        function = given.function_of(self._function)
        self._kept[key] = trace(
            function, *given.positional, kwargs=given.keywords, donate_argnums=donated, **self._options
        )
        return self._kept[key]

    def _run(self, given: _Given) -> Any:
        """The result of the graph, while JAX traces it."""
        try:
            traced = self._trace(given, self._key(given))
        except CapturedTracerError:
            return _with_captured(given, self._function, self._options)
        return traced(*given.positional, **given.keywords)

    def _run_plainly(self, given: _Given) -> Any:
        return given.function_of(self._function)(*given.positional, **given.keywords)


class _BoundMethod:
    """A method: a function of `cl.jit` with its first argument."""

    def __init__(self, function: Jitted, owner: Any):
        self._function, self._owner = function, owner
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._function(self._owner, *arguments, **keywords)

    def __getattr__(self, name: str) -> Any:
        if name in ("traced", "profile", "draw", *_LIKE_JAX):
            return functools.partial(getattr(self._function, name), self._owner)
        raise AttributeError(f"a bound function of cl.jit has no attribute {name!r}")


def _with_captured(given: _Given, function: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """The result of a graph whose function captures tracers of an enclosing transformation, as its inputs."""
    arrays_given, kept = given.flat.arrays, []

    def of_arrays(*arrays: Any) -> list[Any]:
        own = given.with_arrays(arrays)
        kept.append(flatten(own.function_of(function)(*own.positional, **own.keywords)))
        return kept[-1].arrays

    closed = jax.make_jaxpr(of_arrays)(*arrays_given)
    captured = [own for own in closed.consts if isinstance(own, Tracer)]

    @functools.wraps(function)
    def of_captured(others: Sequence[Any], *arrays: Any) -> list[Any]:
        left = iter(others)
        constants = [next(left) if isinstance(own, Tracer) else own for own in closed.consts]
        return jax_core.jaxpr_as_fun(jax_core.ClosedJaxpr(closed.jaxpr, constants))(*arrays)

    of_captured.__signature__ = inspect.signature(lambda captured, *arrays: None)  # type: ignore[attr-defined]
    traced = trace(of_captured, captured, *arrays_given, **options)
    return kept[-1].filled(traced(captured, *arrays_given))


def jit(
    function: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Sequence[str] | None = None,
    target: Target | None = None,
    grain: int | None = None,
    replace: Mapping[Any, Callable[..., Any]] | None = None,
) -> Any:
    """Run a JAX function as a graph of vertices: `jax.jit` of the result of `cl.trace`.

    The function is traced for each new signature: the shapes and dtypes of its arguments, and its static values.
    Arguments may be pytrees; leaves that are not arrays, such as functions in an Equinox module, are static. Inside
    `cl.trace`, and inside another such function, it becomes part of that graph.

    Args:
        function: any function that JAX traces. If omitted, `cl.jit(...)` is a decorator.
        static_argnums: as of `jax.jit`.
        static_argnames: as of `jax.jit`.
        donate_argnums: as of `jax.jit`; on the machine, results may use the memory of these arguments.
        donate_argnames: as of `jax.jit`.
        target: the machine of the graphs. Default: `cl.IPU()`.
        grain: as of `cl.trace`.
        replace: as of `cl.trace`.

    Returns:
        The function. `traced(*arguments)` is the graph for arguments like these, `profile(*arguments)` its cost,
        `draw(*arguments)` a picture of it.

    Raises:
        TraceError: not a function, or it has no such static or donated arguments; in calls, something that cannot be
            traced.

    >>> import codelet as cl, jax, jax.numpy as jnp
    >>> @cl.jit
    ... def loss(w, x):
    ...     return jnp.sum((w @ x) ** 2)
    >>> float(loss(jnp.eye(3), jnp.arange(3.0)))
    5.0
    >>> jax.grad(loss, 1)(jnp.eye(3), jnp.arange(3.0)).tolist()
    [0.0, 2.0, 4.0]
    >>> loss.traced(jnp.eye(3), jnp.arange(3.0))
    <Traced loss: 7 vertices in 3 compute sets>
    """
    options = {"target": target, "grain": checked_grain("jit", grain), "replace": replace}
    given = {
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
    }
    named = {name: _listed(name, value) for name, value in given.items()}
    if function is None:
        return functools.partial(Jitted, named=named, options=options)
    if not callable(function):
        raise TraceError(
            "something other than a function is to run as a graph",
            given=f"{function!r:.80}",
            expected="cl.jit(function), of a function that takes arrays",
        )
    return Jitted(function, named, options)


def _listed(name: str, given: Any) -> tuple[Any, ...] | None:
    """The positions of arguments, or their names, as an option of that name has them; None of none.

    Raises:
        TraceError: something else.
    """
    if given is None:
        return None
    is_names = name.endswith("names")
    is_one = (lambda own: isinstance(own, str)) if is_names else is_index
    several = isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping))
    listed: list[Any] = list(given) if several else [given]
    if not all(map(is_one, listed)):
        raise TraceError(
            f"{name} {'names' if is_names else 'numbers'} no arguments",
            given=f"{name}={given!r:.80}",
            expected="names of parameters" if is_names else "positions, from 0",
        )
    return tuple(listed if is_names else map(operator.index, listed)) or None
