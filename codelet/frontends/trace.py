"""`cl.trace`: a function of JAX as a graph of vertices."""

from __future__ import annotations

import functools
import importlib
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import jax
from jax.core import Tracer
from jax.extend import core as jax_core

from codelet.errors import CapturedTracerError, TraceError
from codelet.frontends import (  # noqa: F401 (they register the rules)
    calls,
    indexing,
    linear_algebra,
    loops,
    products,
    ragged_products,
    random_numbers,
    reductions,
    views,
    windows,
)
from codelet.frontends.arguments import Convention, Flat, Leaf, flatten, is_array, together
from codelet.frontends.functions import SharedFunctions
from codelet.frontends.passes import simplify
from codelet.frontends.passes.fuse_elementwise import saved_by_fusion
from codelet.frontends.references import check_no_references
from codelet.frontends.replaced import Replacements
from codelet.frontends.traced import Traced, TracedGraph
from codelet.frontends.values import data_type
from codelet.frontends.walk import Walk
from codelet.garbage import collecting_seldom
from codelet.graphs.graph import Graph
from codelet.jaxprs.own_constants import with_own_constants
from codelet.ops.arguments import checked_grain
from codelet.ops.planning import WHOLE
from codelet.programs.tensor_steps import WriteUndef
from codelet.schema import are_wholes, is_index
from codelet.target import Target
from codelet.tracing.captured import apart
from codelet.tracing.concrete import mend_of_asking
from codelet.tracing.statics import restored, trace_settings
from codelet.views.sources import source_variables

_is_tracing: ContextVar[bool] = ContextVar("is_tracing", default=False)


def is_tracing() -> bool:
    """True while a function is being traced, so that functions called by it become part of its graph."""
    return _is_tracing.get()


def trace(
    function: Callable[..., Any],
    *examples: Any,
    kwargs: Mapping[str, Any] | None = None,
    target: Target | None = None,
    grain: int | None = None,
    donate_argnums: int | Sequence[int] = (),
    replace: Mapping[Any, Callable[..., Any]] | None = None,
    check: str | None = None,
) -> Traced:
    """A JAX function as a graph of vertices: the inverse of `cl.lower`.

    Args:
        function: any function that JAX traces.
        examples: its arguments: arrays, or `jax.ShapeDtypeStruct`s, in any pytrees. Other leaves are static, as are
            numbers in Equinox modules.
        kwargs: its keyword arguments by name, likewise. Call the traced function with them as well.
        target: the machine of the graph. Default: `cl.IPU()`.
        grain: about how many elements, or multiply-adds, a vertex has. Default: the planners choose.
        donate_argnums: arguments that are not needed after a run, as in `jax.jit`: on the machine, results may use
            their memory. Values are the same.
        replace: `{function: builder}` adds a function by hand. The key is a jitted function, or its name. The builder
            is called as `builder(graph, *tensors)`, with the tensors of the arguments in the order of
            `jax.tree.leaves`, and returns those of the results, likewise.
        check: "equal", to check that the graph, and its lowered function, compute the same as the function; see
            `cl.equal`.

    Returns:
        A `cl.Traced`: the graph, its program, its inputs and outputs. Call it as the function itself.

    Raises:
        TraceError: something that cannot be traced.
        CollectiveError: the function communicates with other devices.
        CapturedTracerError: the function uses a traced value of an enclosing transformation.
        NotEqualError: the check fails.

    Warns:
        OneVertexWarning: a primitive without a tiling rule, which one vertex on one tile runs.
        UndecidedWarning: the check is inconclusive.

    >>> import codelet as cl, jax, jax.numpy as jnp
    >>> def layer(w, x):
    ...     return jax.nn.relu(w @ x)
    >>> traced = cl.trace(layer, jnp.ones((3, 4)), jnp.ones(4))
    >>> traced(jnp.ones((3, 4)), jnp.arange(4.0)).tolist()
    [6.0, 6.0, 6.0]
    """
    if not callable(function):
        raise TraceError(
            "something other than a function is traced",
            given=f"{function!r:.80}",
            expected="cl.trace(function, *examples), of a function that takes arrays",
        )
    keywords = {} if kwargs is None else kwargs
    if not isinstance(keywords, Mapping) or not all(isinstance(name, str) for name in keywords):
        raise TraceError(
            "keyword arguments are no mapping by name",
            given=f"kwargs={kwargs!r:.80}",
            expected='a mapping such as {"scale": 2.0}',
        )
    grain, donated = checked_grain("trace", grain), _donated(donate_argnums, len(examples))
    checks = None if check is None else importlib.import_module("lowering.equality.checks").for_word(check)
    with collecting_seldom():
        traced = _traced(function, examples, keywords, target, grain, donated, {} if replace is None else replace)
    if checks is not None:
        checks.check_traced(traced)
    return traced


def _donated(argnums: Any, count: int) -> frozenset[int]:
    """The numbers of the arguments that are donated, from 0.

    Raises:
        TraceError: a number that no argument has.
    """
    listed = [argnums] if is_index(argnums) else tuple(argnums) if isinstance(argnums, Iterator) else argnums
    if not are_wholes(listed, -count) or not all(operator.index(own) < count for own in listed):
        raise TraceError(
            "donate_argnums numbers no arguments",
            given=f"donate_argnums={argnums!r:.80}",
            expected=f"numbers of the {count} arguments by position, from 0",
        )
    return frozenset(operator.index(own) % count for own in listed)


def _traced(
    function: Callable[..., Any],
    examples: Sequence[Any],
    keywords: Mapping[str, Any],
    target: Target | None,
    grain: int | None,
    donated: frozenset[int],
    replaced: Mapping[Any, Callable[..., Any]],
) -> Traced:
    convention = Convention.of(function, examples, keywords)
    given = flatten(together(examples, keywords)).described
    kept: list[tuple[list[Any], list[bool], Any]] = []
    fresh = apart(function)

    def of_arrays(*arrays: Any) -> list[Any]:
        filled = given.filled(arrays)
        result = fresh(*filled[: len(examples)], **(filled[-1] if keywords else {}))
        leaves, tree = jax.tree.flatten(result)
        arrays_of = [is_array(leaf) for leaf in leaves]
        kept.append(([None if own else leaf for own, leaf in zip(arrays_of, leaves, strict=True)], arrays_of, tree))
        return [leaf for own, leaf in zip(arrays_of, leaves, strict=True) if own]

    token = _is_tracing.set(True)
    try:
        closed = jax.make_jaxpr(of_arrays)(*given.arrays)
    except Exception as error:
        mend = mend_of_asking(error)
        if mend is None:
            raise
        raise TraceError(
            f"the function {convention.name!r} asks for a value that is not known while it is traced",
            given=str(error).partition("\n")[0],
            expected="a function that JAX traces",
            fix=mend,
        ) from error
    finally:
        _is_tracing.reset(token)
    if any(isinstance(constant, Tracer) for constant in closed.consts):
        raise CapturedTracerError(
            f"the traced function {convention.name!r} closes over a value of an enclosing JAX transformation",
            given="a traced value",
            expected="values that are known, or arguments",
            fix="make the value an argument of the function",
        )
    check_no_references(closed.jaxpr)
    closed = with_own_constants(closed)
    result = Flat(tuple(Leaf("", own, array) for own, array in zip(*kept[-1][:2], strict=True)), kept[-1][2])
    owned = [k for k, path in enumerate(given.paths) if int(path.partition("/")[0]) in donated]
    simple = simplify(Replacements(replaced).marked(closed), given.paths, owned)
    names, settings = list(map(convention.named, given.paths)), trace_settings()
    build = functools.partial(_built, simple, names, given.paths, owned, target)

    def cut() -> TracedGraph:
        with collecting_seldom(), restored(settings):
            return build(grain, tells=False)

    # What the user has written by hand runs as it is written, and is made once.
    uncut = build(grain if replaced else WHOLE, tells=True)
    return Traced(
        function,
        convention,
        uncut,
        (lambda: uncut) if replaced else cut,
        given,
        result,
        closed,
        saved_by_fusion(simple),
    )


def _built(
    simple: jax_core.ClosedJaxpr,
    names: Sequence[str],
    paths: Sequence[str],
    owned: Sequence[int],
    target: Target | None,
    grain: int | None,
    *,
    tells: bool,
) -> TracedGraph:
    """The graph of a simplified jaxpr.

    Args:
        simple: the jaxpr.
        names: of its inputs.
        paths: of its inputs.
        owned: the numbers of inputs that are donated.
        target: the machine.
        grain: of vertices.
        tells: whether the user is warned of primitives that one vertex runs.
    """
    graph = Graph(target)
    walk = Walk(graph, SharedFunctions(simple), grain, tells=tells)
    inputs = [
        graph.add_variable(name, *data_type(var.aval)) for name, var in zip(names, simple.jaxpr.invars, strict=True)
    ]
    paths_of = dict(zip(simple.jaxpr.invars, paths, strict=True))
    outputs = [walk.tensor(own) for own in walk.closed(simple, inputs, paths_of)]
    held = {variable for tensor in outputs for variable in source_variables(tensor.source)}
    for tensor in (inputs[k] for k in owned):
        if tensor.source not in held:
            walk.run(WriteUndef(tensor))
    return TracedGraph(graph, walk.program, tuple(inputs), tuple(outputs))
