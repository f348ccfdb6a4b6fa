"""Sides: the two programs that are compared, each by its evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet.errors import CodeletError, ProgramError
from codelet.field.meanings import Field
from codelet.field.values import Value
from codelet.graphs.by_tensor import Results
from codelet.graphs.graph import Graph
from codelet.programs.program import Program, as_program
from codelet.programs.walk import check_program
from codelet.views.tensor import Tensor
from lowering.equality.graphs import Meaning


class EffectsError(ProgramError):
    """A program that does something else than to compute."""


class Side(Protocol):
    """One of two programs."""

    @property
    def tree(self) -> Any:
        """The structure of its results."""
        ...

    @property
    def paths(self) -> tuple[str, ...]:
        """Those of the results within it."""
        ...

    @property
    def types(self) -> list[tuple[tuple[int, ...], Any]]:
        """The shapes and dtypes of the results."""
        ...

    def results(self, evaluation: Field, given: Sequence[Value]) -> list[Value]:
        """Its results, of a value for each leaf of the examples."""
        ...


def struct_of(leaf: Any) -> jax.ShapeDtypeStruct:
    """The type of an example."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    try:
        own = leaf if isinstance(leaf, (np.ndarray, jax.Array)) else jnp.asarray(leaf)
        return jax.ShapeDtypeStruct(own.shape, jnp.asarray(own).dtype)
    except (TypeError, ValueError, OverflowError, CodeletError) as error:
        raise ProgramError(
            "an example is no array",
            given=f"{leaf!r:.80}",
            expected="arrays, or jax.ShapeDtypeStruct, in any structure",
        ) from error


@dataclass(frozen=True, eq=False)
class _OfFunction:
    """A function of JAX, and all that is called as one."""

    tree: Any
    paths: tuple[str, ...]
    types: list[tuple[tuple[int, ...], Any]]
    jaxpr: jax_core.ClosedJaxpr

    def results(self, evaluation: Field, given: Sequence[Value]) -> list[Value]:
        return evaluation.run(self.jaxpr, given)


@dataclass(frozen=True, eq=False)
class OfGraph:
    """A graph with a program, by its meaning.

    Attributes:
        inputs: the names of the variables that the leaves of the examples are for.
        outputs: its results, in order.
        tree: their structure.
    """

    graph: Graph
    program: Program
    inputs: tuple[str, ...]
    outputs: tuple[Tensor, ...]
    tree: Any

    @property
    def paths(self) -> tuple[str, ...]:
        leaves = jax.tree_util.tree_leaves_with_path(jax.tree.unflatten(self.tree, self.outputs))
        return tuple(jax.tree_util.keystr(path) for path, _ in leaves)

    @property
    def types(self) -> list[tuple[tuple[int, ...], Any]]:
        return [(own.shape, own.dtype) for own in self.outputs]

    def results(self, evaluation: Field, given: Sequence[Value]) -> list[Value]:
        meaning = Meaning(self.graph, dict(zip(self.inputs, given, strict=True)), evaluation)
        meaning.run(self.program)
        return [meaning.read(own, "the caller") for own in self.outputs]


def _as_dict(own: Any) -> Any:
    """The results of a lowered graph as the dict that another program may return in its place."""
    return dict(own) if isinstance(own, Results) else own


def function_side(name: str, function: Any, structs: Any) -> Side:
    """A function of JAX as a side.

    Args:
        name: which of two, for errors.
        function: of arrays.
        structs: their types.

    Raises:
        ProgramError: no function, or one that raises or has effects.
    """
    if not callable(function):
        raise ProgramError(
            f"the {name} of two programs is not a program",
            given=f"{function!r:.80}",
            expected="a function of JAX, a lowered graph, a traced function, or (graph, program)",
        )
    try:
        jaxpr, results = jax.make_jaxpr(function, return_shape=True)(*structs)
        results = jax.tree.map(_as_dict, results, is_leaf=lambda own: isinstance(own, Results))
    except CodeletError:
        raise
    except Exception as error:
        told = str(error).splitlines()[0] if str(error) else ""
        raise ProgramError(
            f"the {name} of two programs raises: {type(error).__name__}: {told}",
            given=f"{function!r:.80} of {', '.join(map(str, jax.tree.leaves(structs)))}",
            expected="a program of such arrays",
        ) from error
    if jaxpr.effects:
        raise EffectsError(
            f"the {name} of two programs does something else than to compute",
            given=", ".join(map(str, jaxpr.effects)),
            expected="a program without effects: prints, callbacks",
        )
    paths = tuple(jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(results))
    types = [(tuple(own.shape), own.dtype) for own in jax.tree.leaves(results)]
    return _OfFunction(jax.tree.structure(results), paths, types, jaxpr)


def jaxpr_side(jaxpr: jax_core.ClosedJaxpr) -> Side:
    """A jaxpr as a side, of a list of arrays to such a list."""
    avals = jaxpr.out_avals
    paths = tuple(f"[{k}]" for k in range(len(avals)))
    return _OfFunction(jax.tree.structure([0] * len(avals)), paths, [(a.shape, a.dtype) for a in avals], jaxpr)  # type: ignore[attr-defined]


def _names(graph: Graph, examples: Sequence[Any]) -> tuple[str, ...]:
    """The names of variables that examples are for, in the order of their leaves."""
    if len(examples) != 1 or not isinstance(examples[0], dict):
        raise ProgramError(
            "a graph is given values without names",
            given=", ".join(type(own).__name__ for own in examples) or "nothing",
            expected="one dict of arrays by the names of its variables",
        )
    leaves = jax.tree_util.tree_leaves_with_path(examples[0])
    names = [path[0].key for path, _ in leaves]
    for name, (_, leaf) in zip(names, leaves, strict=True):
        variable, own = graph.variable(name), struct_of(leaf)
        if variable.shape != tuple(own.shape) or variable.dtype != own.dtype:
            raise ProgramError(
                f"the example for variable {name!r} does not fit it",
                given=own,
                expected=f"{variable.dtype}{variable.shape}",
            )
    return tuple(names)


def _graph_of(given: Any) -> tuple[Graph, Program] | None:
    """A graph and a program; None of anything else."""
    if isinstance(given, Graph):
        return given, given.default_program
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], Graph):
        program = as_program(given[1])
        check_program(program, given[0])
        return given[0], program
    return None


def _written(graph: Graph) -> set[str]:
    """The names of the variables that a graph's vertices write, without the scratch of a gradient."""
    fields = (field for family in graph.families for field in family.fields if field.is_written)
    sources = [field.tensor.source for field in fields if isinstance(field.tensor, Tensor)]
    return {own.name for own in sources if hasattr(own, "name") and not own.is_aside}  # type: ignore[union-attr]


def sides_of(f: Any, g: Any, examples: Sequence[Any]) -> tuple[Side, Side]:
    """Two programs of the same examples.

    Raises:
        ProgramError: something that is no program of them.
    """
    graphs = [_graph_of(own) for own in (f, g)]
    structs = jax.tree.map(struct_of, tuple(examples))
    made: list[Any] = [None, None]
    for k, (name, own) in enumerate(zip(("first", "second"), (f, g), strict=True)):
        if graphs[k] is None:
            made[k] = function_side(name, own, structs)
    for k, own in enumerate(graphs):
        if own is None:
            continue
        graph, program = own
        other = made[1 - k]
        if other is None or isinstance(other, OfGraph):
            both = [_written(pair[0]) for pair in graphs if pair is not None]
            outputs = tuple(sorted(set.intersection(*both)))
        else:
            keys = jax.tree.unflatten(other.tree, range(other.tree.num_leaves))
            if not isinstance(keys, dict) or not all(isinstance(name, str) for name in keys):
                raise ProgramError(
                    "a graph is compared with what gives results without names",
                    given=str(other.tree)[:100],
                    expected="a function that returns a dict of arrays by the names of variables",
                )
            outputs = tuple(sorted(keys))
        tensors, tree = tuple(map(graph.variable, outputs)), jax.tree.structure(dict.fromkeys(outputs, 0))
        made[k] = OfGraph(graph, program, _names(graph, examples), tensors, tree)
    return made[0], made[1]
