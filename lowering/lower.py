"""Lowered graphs: a graph and program as a pure JAX function, a dict of arrays in and a dict out.

Functions that build graphs are lowered by `builders.py`, where `cl.lower` is too.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
from jax.extend import core as jax_core
from jax.sharding import Mesh

from codelet.display import as_html
from codelet.errors import ArrayError, ForeignGraphError, ProgramError, SavingError
from codelet.graphs.by_tensor import Named, Results, by_name, key_of, several
from codelet.graphs.family import Family
from codelet.graphs.graph import Graph
from codelet.hostdata import Place, as_array
from codelet.programs.copies import Stream
from codelet.programs.program import Program, as_program
from codelet.programs.walk import check_program
from codelet.saving import Unchanging
from codelet.tracing.statics import Settings, restored, trace_settings
from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import Tensor
from lowering.aborting import raising
from lowering.fast.work import work_of
from lowering.jaxprs.slopes import differentiable
from lowering.mesh.mesh_fused import MeshFused
from lowering.mesh.processes import check_alike
from lowering.mesh.replicas import Replicas, check_shared
from lowering.pipeline import compile_fast, plan_fast, plan_graph
from lowering.plan.arguments import arguments
from lowering.plan.plan import Plan
from lowering.plan.streams import copied_by_stream
from lowering.plan.structure import structure
from lowering.platforms import lowering_for, platform_now


class _Compiled:
    """The static part of a lowered graph: equal if the plans are equal in structure."""

    def __init__(
        self,
        plan: Plan,
        outputs: tuple[str, ...] | None,
        closed: jax_core.ClosedJaxpr | None = None,
        how: Hashable = "fused",
        places: Sequence[Place] | None = None,
        raises: bool = False,
    ):
        self.plan = plan
        self.has_flag = plan.abort is not None and not raises
        self.outputs = outputs
        self.how = how
        self.settings, self.platform = trace_settings(), platform_now()
        self.key: Hashable = (structure(plan), outputs is None, self.settings, self.platform, how)
        self.runs = plan_fast(plan) if closed is None else plan
        closed = compile_fast(self.runs) if closed is None else closed
        self.arguments = arguments(plan) if places is None else list(places)
        self.jaxpr = closed
        self.function, self.consts = differentiable(closed), tuple(closed.consts)

    @functools.cached_property
    def told(self) -> Plan:
        """The plan that runs, with the amount of data that each compute set moves."""
        if self.how != "fused":
            return self.runs
        return replace(self.runs, work={name: str(own) for name, own in work_of(self.runs, self.jaxpr).items()})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Compiled) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@jax.tree_util.register_pytree_node_class
class Lowered(Unchanging):
    """A graph as a pure function: a dict of arrays by tensor or name in, a `Results` by tensor or name out.

    Made by `cl.lower`. It works under `jax.jit`, `jax.grad`, `jax.vmap` and inside `lax.scan`, and is not jitted
    itself. Two that were lowered from graphs of equal structure are equal, so JAX and Equinox trace only the first.

    As a pytree its leaves are the tables and large constants of the graph. `eqx.filter_jit(run)` passes them as
    arguments. `jax.jit(run)` closes over them, and XLA embeds them as constants, which slows compilation if they are
    large.

    >>> import codelet as cl, jax.numpy as jnp
    >>> graph = cl.Graph()
    >>> x, i = graph.add_variable("x", (3,)), cl.grid(3)
    >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
    >>> run = cl.lower(graph, inputs=x, outputs=y)
    >>> run
    <Lowered: x: float32[3] -> double/out>
    >>> run({"x": jnp.arange(3.0)})[y].tolist()
    [0.0, 2.0, 4.0]
    """

    def __init__(self, compiled: _Compiled, tables: Sequence[Any]):
        self._compiled = compiled
        self._tables = tuple(tables)

    def tree_flatten(self) -> tuple[tuple[Any, ...], _Compiled]:
        """Its leaves and its static part, for JAX.

        >>> import codelet as cl, jax, numpy as np
        >>> graph = cl.Graph()
        >>> x, table = graph.add_variable("x", (4,)), graph.add_constant("table", np.arange(40000.0))
        >>> y = graph.add_vertex("sum", cl.codelet(lambda x, table: x + table.sum()), x=x, table=table)
        >>> [leaf.shape for leaf in jax.tree.leaves(cl.lower(graph, inputs=x, outputs=y))]
        [(40000,)]
        """
        return self._tables, self._compiled

    @classmethod
    def tree_unflatten(cls, compiled: _Compiled, tables: Sequence[Any]) -> Lowered:
        """The inverse of `tree_flatten`, for JAX.

        Args:
            compiled: the static part.
            tables: the leaves.

        >>> import codelet as cl, jax
        >>> graph = cl.Graph()
        >>> x = graph.add_variable("x", ())
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x)
        >>> leaves, structure = jax.tree.flatten(cl.lower(graph, inputs=x, outputs=y))
        >>> float(jax.tree.unflatten(structure, leaves)({x: 3.0})[y])
        6.0
        """
        return cls(compiled, tables)

    def __reduce__(self) -> tuple[Any, ...]:
        compiled = self._compiled
        if compiled.how != "fused":
            over_mesh = isinstance(compiled.how, tuple) and compiled.how[0] == "mesh"
            raise SavingError(
                "a function over a mesh cannot be pickled"
                if over_mesh
                else "a function of an engine cannot be pickled",
                given=f"its execution, {compiled.how!r:.80}",
                fix="pickle the graph and the program, and make it of these: "
                + (
                    "cl.lower(graph, program, inputs=[...], outputs=[...], mesh=mesh)"
                    if over_mesh
                    else "cl.Engine(graph, program, ...).function(inputs=[...], outputs=[...])"
                ),
            )
        own = len(self._tables) == len(compiled.consts) and all(map(operator.is_, self._tables, compiled.consts))
        how = compiled.settings, compiled.platform
        return _lowered_again, (compiled.plan, compiled.outputs, *how, None if own else self._tables)

    def flat(self, arrays: Sequence[Any]) -> list[Any]:
        """The function from lists to lists.

        Args:
            arrays: the inputs, in the order of `arguments`.

        Returns:
            The outputs, in order, then the values of output streams.

        >>> import codelet as cl, jax.numpy as jnp
        >>> graph = cl.Graph()
        >>> x, i = graph.add_variable("x", (3,)), cl.grid(3)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
        >>> [each.tolist() for each in cl.lower(graph, inputs=x, outputs=y).flat([jnp.arange(3.0)])]
        [[0.0, 2.0, 4.0]]
        """
        results = list(self._compiled.function(*self._tables, *arrays))
        return raising(results, self._compiled.plan.messages) if self._compiled.has_flag else results

    def __call__(self, values: Mapping[Any, Any]) -> Results:
        """Run the graph.

        Args:
            values: an array for every input, by name or tensor, and for every input stream its values, stacked along a
                first axis. As an argument of `jax.jit`, which sorts the keys of a dict, use names.

        Returns:
            The outputs by tensor or name, and the values of every output stream, stacked along a first axis. If data
                decide how many values are sent, in a branch or a loop, they are `Sent(values, count)`, padded with
                zeros to the maximum length. If data decide how many values of an input stream are read, pass the
                maximum number; `Taken(count)` is returned under its name, and the values after the first `count` were
                not used.

        Raises:
            ArrayError: inputs missing or unknown, or of the wrong shape or dtype.
            ForeignGraphError: a tensor of another graph.
        """
        plan, outputs = self._compiled.plan, self._compiled.outputs
        assert outputs is not None
        inputs = self.arguments
        names = [variable.name for variable in inputs]
        if isinstance(values, Mapping) and not all(isinstance(key, str) for key in values):
            values = by_name(self.graph, values)
        if not isinstance(values, Mapping) or set(values) != set(names):
            given = list(values) if isinstance(values, Mapping) else type(values).__name__
            raise ArrayError("the inputs are not those the graph was lowered for", given=given, expected=names)
        results = self.flat([as_array(values[variable.name], variable) for variable in inputs])
        made = Results(zip(outputs, results, strict=False))
        sent = copied_by_stream(plan, results[len(outputs) :])
        made.update({stream.name: values for stream, values in sent.items()})
        return made

    @property
    def arguments(self) -> list[Place]:
        """The inputs, then the input streams, in order: names, shapes and dtypes.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x = graph.add_variable("x", (3,))
        >>> y = graph.add_vertex("sum", cl.codelet(lambda x: x.sum()), x=x)
        >>> [(place.name, place.shape, str(place.dtype)) for place in cl.lower(graph, inputs=x, outputs=y).arguments]
        [('x', (3,), 'float32')]
        """
        return list(self._compiled.arguments)

    @property
    def graph(self) -> Graph:
        """The graph that was lowered.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x = graph.add_variable("x", (3,))
        >>> y = graph.add_vertex("sum", cl.codelet(lambda x: x.sum()), x=x)
        >>> cl.lower(graph, inputs=x, outputs=y).graph is graph
        True
        """
        return self._compiled.plan.graph

    @property
    def plan(self) -> Plan:
        """The plan of all passes: each step, how it runs and why, and how much data it moves. It prints.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, i = graph.add_variable("x", (3,)), cl.grid(3)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
        >>> print(cl.lower(graph, inputs=x, outputs=y, platform="cpu").plan)
        platform  cpu
        inputs  x
        execute double reads x writes double/out
          double / <lambda>: 3 vertices over i: 3
            in    x: float32[] = x at i
            out   out: float32[] = double/out at i
            runs under vmap over i
              reads x: x, as it lies
          writes double/out: all of it
        moved / touched in double: 6 / 6 = 1.00
        outputs Tensor(float32[3] of double/out: f0)
        """
        return self._compiled.told

    @property
    def program(self) -> Program:
        """The program. It prints. `cl.Engine(run.graph, run.program)` loads it on the machine.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x = graph.add_variable("x", (3,))
        >>> y = graph.add_vertex("sum", cl.codelet(lambda x: x.sum()), x=x)
        >>> print(cl.lower(graph, cl.Repeat(3, graph.default_program), inputs=x, outputs=y).program)
        Repeat(3)
          Execute(sum)
        """
        assert self._compiled.runs.program is not None
        return self._compiled.runs.program

    @property
    def families(self) -> tuple[Family, ...]:
        """Its families of vertices in normal form. Each prints.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, i = graph.add_variable("x", (3,)), cl.grid(3)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
        >>> [family.num_vertices for family in cl.lower(graph, inputs=x, outputs=y).families]
        [3]
        """
        return self._compiled.plan.families

    @property
    def jaxpr(self) -> jax_core.ClosedJaxpr:
        """The jaxpr of the lowered function. It prints.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, i = graph.add_variable("x", (3,)), cl.grid(3)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
        >>> cl.lower(graph, inputs=x, outputs=y).jaxpr
        { lambda ; a:f32[3]. let b:f32[3] = mul 2.0:f32[] a in (b,) }
        """
        return self._compiled.jaxpr

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lowered) and self._compiled == other._compiled

    def __hash__(self) -> int:
        return hash(self._compiled)

    def __repr__(self) -> str:
        types = lambda variables: ", ".join(map(repr, variables))  # noqa: E731
        results = ", ".join(v.name for tensor in self._compiled.runs.outputs for v in source_variables(tensor.source))
        return f"<Lowered: {types(self._compiled.runs.inputs)} -> {results}>"

    def _repr_html_(self) -> str:
        return as_html(repr(self), folded={"plan": self.plan, "jaxpr": self.jaxpr})


def _whole_variable(graph: Graph, given: Tensor | Stream | str) -> Variable:
    """The variable that an input names.

    Raises:
        ForeignGraphError: a tensor of another graph.
        ProgramError: a view that is not all of a variable.
    """
    tensor = graph.variable(given) if isinstance(given, str) else given
    if not isinstance(tensor, Tensor) or not tensor.is_whole_variable:
        is_view = isinstance(tensor, Tensor)
        raise ProgramError(
            "an input is not a variable",
            given=given,
            expected="a whole variable, or its name",
            fix="make the variable the input, and write a part of its array" if is_view else None,
        )
    if tensor.graph is not graph:
        raise ForeignGraphError("an input belongs to another graph", given=given)
    assert isinstance(tensor.source, Variable)
    return tensor.source


def _listed(given: Any, what: str) -> list[Any]:
    found = several(given)
    if found is None:
        raise ProgramError(
            f"the {what} are not a list", given=f"{given!r:.80}", expected=f"{what}=[x, ...], or by name {what}=['x']"
        )
    return found


def _viewed(graph: Graph, given: Tensor | str) -> Tensor:
    """The view that an output is.

    Raises:
        ForeignGraphError: a tensor of another graph.
        ProgramError: something that is no tensor, or a view that depends on symbols.
    """
    tensor = graph.variable(given) if isinstance(given, str) else given
    if not isinstance(tensor, Tensor) or tensor.axes or tensor.rows is not None:
        raise ProgramError(
            "an output is not a view without symbols",
            given=given,
            expected="a tensor of the graph, or the name of a variable",
            fix="name the whole range: x, and not x[i]" if isinstance(tensor, Tensor) else None,
        )
    if tensor.graph is not graph:
        raise ForeignGraphError("an output belongs to another graph", given=given)
    return tensor


def named_ends(
    graph: Graph, inputs: Named | Iterable[Named], outputs: Named | Iterable[Named]
) -> tuple[tuple[Variable, ...], tuple[Tensor, ...]]:
    """The variables of a graph's inputs, and the views of its outputs, one or several of each.

    Streams are skipped, since they are arguments and results in any case.

    Raises:
        ForeignGraphError: a tensor of another graph.
        ProgramError: an input that is not a whole variable or is a constant, or an output that depends on symbols.
    """
    inputs, outputs = _listed(inputs, "inputs"), _listed(outputs, "outputs")
    streams = {stream.name: stream for stream in graph.streams}
    for what, chosen in (("input", inputs), ("output", outputs)):
        for each in chosen:
            stream = streams.get(each) if isinstance(each, str) else each
            if isinstance(stream, Stream) and stream.graph is not graph:
                raise ForeignGraphError(f"an {what} belongs to another graph", given=each, expected="this graph's own")
            if isinstance(stream, Stream) and stream.is_input != (what == "input"):
                raise ProgramError(f"a stream that goes the other way is an {what}", given=stream)
    is_stream = lambda given: isinstance(given, Stream) or (isinstance(given, str) and given in streams)  # noqa: E731
    sources = [_whole_variable(graph, given) for given in inputs if not is_stream(given)]
    targets = [_viewed(graph, given) for given in outputs if not is_stream(given)]
    for variable in sources:
        if variable.value is not None:
            raise ProgramError("an input is a constant", given=variable, expected="a variable")
    return tuple(dict.fromkeys(sources)), tuple(targets)


def _lowered_again(
    plan: Plan, outputs: tuple[str, ...] | None, settings: Settings, platform: str, tables: tuple[Any, ...] | None
) -> Lowered:
    """A pickled function, compiled anew: a plan is pickled, and a jaxpr cannot be."""
    with restored(settings), lowering_for(platform):
        compiled = _Compiled(plan, outputs)
    return Lowered(compiled, compiled.consts if tables is None else tables)


def lower_plan(
    plan: Plan,
    outputs: tuple[str, ...] | None,
    closed: jax_core.ClosedJaxpr | None = None,
    how: Hashable = "fused",
    places: Sequence[Place] | None = None,
    raises: bool = False,
) -> Lowered:
    """A checked plan as a pure function.

    Args:
        plan: the plan.
        outputs: the names of its outputs; `None` if only `flat` is called.
        closed: the jaxpr from its inputs to its outputs. Default: `compile_plan(plan)`.
        how: distinguishes different `closed` of plans of one structure.
        places: the places of its arrays. Default: the plan's arguments.
        raises: True if the jaxpr itself raises on an abort, and returns no flag.
    """
    compiled = _Compiled(plan, outputs, closed, how, places, raises)
    return Lowered(compiled, compiled.consts)


def lower_over(
    plan: Plan, outputs: tuple[str, ...] | None, mesh: Mesh | None, replicas: Replicas | None = None
) -> Lowered:
    """A checked plan as a pure function, over a mesh of devices if one is given; see `lower_plan`."""
    if mesh is None:
        return lower_plan(plan, outputs)
    places = arguments(plan)
    check_shared(replicas, [own.name for own in places])
    execution = MeshFused(plan, mesh, replicas=replicas)
    check_alike(mesh, {"main": plan}, execution.where, () if replicas is None else replicas.key)
    closed = execution.compile_logical(plan)
    places = places if replicas is None else replicas.places(places)
    return lower_plan(execution.told(plan), outputs, closed, execution.key, places, raises=True)


def lower_graph(
    graph: Graph,
    program: object,
    inputs: Named | Iterable[Named],
    outputs: Named | Iterable[Named],
    mesh: Mesh | None = None,
    replicas: Replicas | None = None,
) -> Lowered:
    """A graph and program as a pure function of some variables to others; see `lower`."""
    chosen = graph.default_program if program is None else as_program(program)
    check_program(chosen, graph)
    sources, targets = named_ends(graph, inputs, outputs)
    return lower_over(plan_graph(graph, chosen, sources, targets), tuple(map(key_of, targets)), mesh, replicas)
