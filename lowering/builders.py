"""Builders: `cl.lower`, of a graph, or of a function that builds one.

A function that takes a graph and tensors and returns tensors is a layer: a pure function of arrays. It is called once
for each kind of arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, overload

import jax
import numpy as np
from jax.core import eval_context
from jax.sharding import Mesh

from codelet.display import as_html
from codelet.errors import ArrayError, FieldTypeError, ForeignGraphError, ProgramError
from codelet.frontends.traced import Traced
from codelet.graphs.by_tensor import Named, several
from codelet.graphs.graph import Graph
from codelet.hostdata import as_array, is_of_keys
from codelet.programs.compute_sets import ComputeSet
from codelet.programs.copies import Stream
from codelet.programs.program import Program, as_program
from codelet.programs.walk import check_program
from codelet.saving import Unchanging, reduced
from codelet.target import Target
from codelet.tracing.statics import check_static, static_key, structure_key, trace_settings
from codelet.views.tensor import Tensor
from lowering.equality import checks
from lowering.lower import Lowered, lower_graph, lower_over
from lowering.mesh.checked_mesh import checked_mesh
from lowering.mesh.replicas import Replicas, check_shared, checked_replicas, row_shape
from lowering.pipeline import plan_graph
from lowering.plan.streams import copied_by_stream
from lowering.platforms import checked_platform, lowering_for, platform_now


class _Built(NamedTuple):
    """A graph that a function has built.

    Attributes:
        lowered: from all arguments to the returned tensors, and the values of streams.
        returned: the returned tensors and streams, in order.
        tree: their structure.
    """

    lowered: Lowered
    returned: tuple[Tensor | Stream, ...]
    tree: Any


def _is_program(value: object) -> bool:
    """Whether a value stands for a program."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(map(_is_program, value))
    return isinstance(value, (Program, ComputeSet))


class LoweredFunction(Unchanging):
    """A function that builds a graph, as a pure function of arrays: pytrees in, pytrees out. Made by `cl.lower`.

    The graph is built once for each structure, shapes and dtypes of the arguments, and for each combination of keyword
    arguments, which are static. Two that were made of the same function, for the same target, are equal.

    Args:
        build: the function of a graph and tensors.
        target: the machine of its graphs. Default: `cl.IPU()`.
        mesh: as of `cl.lower`.
        replicas: as of `cl.lower`.
        check: as of `cl.lower`.
        platform: as of `cl.lower`.

    >>> import codelet as cl, jax.numpy as jnp
    >>> def doubles(graph, x, *, factor=2.0):
    ...     i = cl.grid(*x.shape)
    ...     return graph.add_vertex("scale", cl.codelet(lambda x, *, factor: factor * x), x=x[i], factor=factor)
    >>> layer = cl.lower(doubles)
    >>> layer(jnp.arange(3.0)).tolist(), layer(jnp.arange(2.0), factor=5.0).tolist()
    ([0.0, 2.0, 4.0], [0.0, 5.0])
    """

    def __init__(
        self,
        build: Callable[..., Any],
        target: Target | None = None,
        mesh: Mesh | None = None,
        replicas: Replicas | None = None,
        check: bool = False,
        platform: str | None = None,
    ):
        self.build, self.check, self.platform = build, check, platform
        self.target = target
        self.mesh = mesh
        self.replicas = replicas
        self.__name__ = getattr(build, "__name__", type(build).__name__)
        self.__doc__ = build.__doc__
        self._lowered: dict[Hashable, _Built] = {}
        try:
            self._identity: Hashable = static_key(build), target, mesh, replicas, check, platform
            hash(self._identity)
        except TypeError:  # an object that may change is equal to itself alone
            self._identity = id(build)

    def _built(self, args: tuple[Any, ...], static: Mapping[str, Hashable]) -> _Built:
        leaves, tree = jax.tree.flatten(args)
        types = tuple(map(self._leaf_type, leaves))
        key = self._key(tree, types, static)
        if key not in self._lowered:
            with lowering_for(self.platform):
                self._lowered[key] = self._lower(args, types, static)
        return self._lowered[key]

    def _leaf_type(self, leaf: Any) -> tuple[tuple[int, ...], Any]:
        """The shape and dtype of the variable that an array given is for."""
        if is_of_keys(getattr(leaf, "dtype", None)):
            raise ArrayError(
                f"an argument of the function {self.__name__!r} is of typed PRNG keys",
                given=f"{leaf.dtype}",
                expected="uint32: keys are data here, and wrapped inside codelets",
                fix="give jax.random.key_data(key), and in the codelet jax.random.wrap_key_data(data)",
            )
        try:
            if isinstance(leaf, str):
                raise TypeError("no array")
            return np.shape(leaf), jax.dtypes.canonicalize_dtype(jax.numpy.result_type(leaf))
        except (TypeError, ValueError):
            raise ArrayError(
                f"an argument of the function {self.__name__!r} is not an array",
                given=f"{type(leaf).__name__}: {leaf!r:.80}",
                expected="arrays and numbers, or pytrees of them",
                fix="what is no array is a keyword argument, which is static",
            ) from None

    def _check_signature(self, args: tuple[Any, ...], static: Mapping[str, Hashable]) -> None:
        signature = inspect.signature(self.build)
        try:
            signature.bind(None, *args, **static)
        except TypeError as error:
            raise ArrayError(
                f"the arguments do not fit the function {self.__name__!r}: {error}",
                given=", ".join([f"{len(args)} after the graph", *(f"{name}=" for name in static)]),
                expected=f"{self.__name__}{signature}, without the graph",
            ) from None

    def _key(self, tree: Any, types: Any, static: Mapping[str, Any]) -> Hashable:
        """The key of a graph: the structure of the arguments, and the static values."""
        named = f"of the function {self.__name__!r}"
        otherwise = "arrays are positional arguments"
        values = tuple(
            (name, check_static(static[name], f"keyword argument {name!r} {named}", otherwise))
            for name in sorted(static)
        )
        try:
            return structure_key(tree), types, values, trace_settings(), self.platform or platform_now()
        except TypeError as error:
            raise FieldTypeError(
                f"an argument {named} holds beside its arrays a value that may change: {error}",
                given=f"{tree!s:.200}",
                expected="static fields of modules that can be hashed",
            ) from None

    def _lower(self, args: tuple[Any, ...], types: Any, static: Mapping[str, Hashable]) -> _Built:
        graph = Graph(self.target)
        self._check_signature(args, static)
        names = [p.name for p in inspect.signature(self.build).parameters.values()][1:]
        names += [f"argument{k}" for k in range(len(names), len(args))]
        check_shared(self.replicas, names[: len(args)])
        paths, tree = jax.tree_util.tree_flatten_with_path(args)
        tensors: list[Tensor] = []
        replicas = self.replicas if self.replicas is None else replace(self.replicas, shared=frozenset())
        for ((argument, *path), _), (shape, dtype) in zip(paths, types, strict=True):
            within = jax.tree_util.keystr(tuple(path), simple=True, separator="/")
            name = "/".join(part for part in (names[argument.idx], within) if part)
            if self.replicas is not None and replicas is not None:
                if names[argument.idx] in self.replicas.shared:
                    replicas = replace(replicas, shared=replicas.shared | {name})
                else:
                    shape = row_shape(name, shape, replicas.count)
            tensors.append(graph.add_variable(name, shape, dtype))
        arguments = jax.tree.unflatten(tree, tensors)
        # Under an outer trace too, what the function computes of numbers it knows is known.
        with eval_context():
            returned = self.build(graph, *arguments, **static)
        program: object = None
        if isinstance(returned, tuple) and len(returned) == 2 and _is_program(returned[1]):
            returned, program = returned
        outputs, tree = jax.tree.flatten(returned)
        for output in outputs:
            self._check_output(graph, output)
        chosen = graph.default_program if program is None else as_program(program)
        check_program(chosen, graph)
        sources = [tensor.source for tensor in tensors]
        wanted = [output for output in outputs if isinstance(output, Tensor)]
        plan = plan_graph(graph, chosen, sources, wanted)  # type: ignore[arg-type]
        for stream in plan.streams:
            if stream.is_input:
                raise ProgramError(
                    f"the function {self.__name__!r} builds a program that takes values of a stream",
                    given=stream,
                    expected="values that are arguments of the function",
                    fix="an argument with an axis of iterations, or cl.lower(graph, program, inputs=..., outputs=...)",
                )
        for output in outputs:
            if isinstance(output, Stream) and output not in plan.streams:
                raise ProgramError(
                    f"the function {self.__name__!r} returns a stream that its program sends nothing to",
                    given=output,
                    expected="streams that are copied to",
                    fix="return outputs, program",
                )
        made = lower_over(plan, None, self.mesh, replicas)
        return _Built(checks.check_lowered(made, replicas) if self.check else made, tuple(outputs), tree)

    def _check_output(self, graph: Graph, output: object) -> None:
        """Check that a result of the function is of its graph."""
        sent = isinstance(output, Stream) and not output.is_input
        if not sent and (not isinstance(output, Tensor) or output.axes):
            raise FieldTypeError(
                f"the function {self.__name__!r} returns something other than tensors",
                given=f"{output!r:.80}",
                expected="tensors of the graph, without symbols, in any pytree",
                fix="return outputs, program" if _is_program(output) else None,
            )
        if output.graph is not graph:  # type: ignore[union-attr]
            raise ForeignGraphError(f"the function {self.__name__!r} returns a tensor of another graph", given=output)

    def __call__(self, *args: Any, **static: Hashable) -> Any:
        """Run the graph on arrays.

        Args:
            args: pytrees of arrays.
            static: static values, by keyword.

        Raises:
            ProgramError, ArrayError and others: those of `cl.lower`, for the graph that is built.
        """
        lowered, returned, tree = self._built(args, static)
        leaves = jax.tree.leaves(args)
        arrays = [as_array(leaf, place) for leaf, place in zip(leaves, lowered.arguments, strict=True)]
        results = lowered.flat(arrays)
        count = len(lowered.plan.outputs)
        sent, tensors = copied_by_stream(lowered.plan, results[count:]), iter(results[:count])
        values = [sent[output] if isinstance(output, Stream) else next(tensors) for output in returned]
        return jax.tree.unflatten(tree, values)

    def at(self, *args: Any, **static: Hashable) -> Lowered:
        """The lowered graph for arguments of these shapes and dtypes: a `cl.Lowered`.

        Its `graph`, `program`, `plan`, `families` and `jaxpr` print.

        Args:
            args: pytrees of arrays, or of `jax.ShapeDtypeStruct`.
            static: static values, by keyword.

        Raises:
            ProgramError and others: those of `cl.lower`, for the graph that is built.

        >>> import codelet as cl, jax
        >>> def double(graph, x):
        ...     return graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[cl.grid(*x.shape)])
        >>> run = cl.lower(double).at(jax.ShapeDtypeStruct((3,), "float32"))
        >>> run, run.graph
        (<Lowered: x: float32[3] -> double/out>, <Graph: 3 vertices, 2 variables>)
        """
        return self._built(args, static).lowered

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LoweredFunction) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced(
            self,
            self.build,
            (LoweredFunction, (self.build, self.target, self.mesh, self.replicas, self.check, self.platform)),
            f"the lowered function {self.__name__!r}",
        )

    def __repr__(self) -> str:
        return f"<LoweredFunction {self.__name__}, built for {len(self._lowered)} kinds of arguments>"

    def _repr_html_(self) -> str:
        inside = "".join(built.lowered._repr_html_() for built in self._lowered.values())
        return as_html(repr(self), inside)


def _advice(given: object, program: object) -> str | None:
    """The fix where something else is lowered, or a function with options that only a graph takes."""
    if isinstance(given, Program):
        return "cl.lower(graph, program, inputs=[...], outputs=[...]): the graph comes first"
    if callable(given) and program is not None:
        return "let the function return its outputs and the program: `return y, program`"
    if callable(given):
        return "its arguments are the inputs, and what it returns are the outputs: cl.lower(function)"
    return None


def _names_of(shared: Any) -> list[str]:
    """The names of inputs that are shared by replicas.

    Raises:
        ProgramError: something that is no tensor, stream or name.
    """
    listed = several(shared)
    if listed is None or not all(isinstance(own, (str, Tensor, Stream)) for own in listed):
        raise ProgramError(
            "shared names something other than an input",
            given=f"shared={shared!r:.80}",
            expected="tensors or streams of the graph, or their names, in a list",
        )
    return [own if isinstance(own, str) else own.name for own in listed]


@overload
def lower(
    graph: Graph,
    program: Program | None = None,
    *,
    inputs: Named | Iterable[Named],
    outputs: Named | Iterable[Named],
    mesh: Mesh | None = None,
    replicas: str | None = None,
    shared: Named | Iterable[Named] = (),
    check: str | None = None,
    platform: str | None = None,
) -> Lowered: ...
@overload
def lower(
    graph: Callable[..., Any],
    *,
    target: Target | None = None,
    mesh: Mesh | None = None,
    replicas: str | None = None,
    shared: str | Iterable[str] = (),
    check: str | None = None,
    platform: str | None = None,
) -> LoweredFunction: ...
def lower(
    graph: Graph | Callable[..., Any],
    program: object = None,
    *,
    inputs: Named | Iterable[Named] | None = None,
    outputs: Named | Iterable[Named] | None = None,
    target: Target | None = None,
    mesh: Mesh | None = None,
    replicas: str | None = None,
    shared: Named | Iterable[Named] = (),
    check: str | None = None,
    platform: str | None = None,
) -> Lowered | LoweredFunction:
    """Lower a graph, or a function that builds one, to a pure JAX function.

    The result works under `jax.jit`, `jax.grad`, `jax.vmap` and inside `lax.scan`, and is not jitted itself.

    Args:
        graph: a graph; or a function of a graph and tensors (in any pytrees) that returns tensors (in any pytree), and
            output streams for values sent. A returned pair `(results, program)` sets the program. Otherwise all compute
            sets run in the order in which they were added.
        program: the program of a graph. Default: all compute sets in the order they were added.
        inputs: for a graph, the variables that are arguments, one or several, by tensor or name. The program's input
            streams are arguments in any case, and may be listed or not.
        outputs: for a graph, the views that are results, one or several, by tensor or name. The program's output
            streams are results in any case.
        target: for a function, the machine of its graphs. `cl.Engine(layer.at(x).graph, layer.at(x).program)` plans
            them on it.
        mesh: a `jax.sharding.Mesh` of devices of this process; its axes are used as one. Default: one device. Variables
            are sharded by the graph's tile mapping, or at the lowest modelled cost. A vertex runs on the device that
            owns its output. Devices exchange only elements that vertices read. An argument that is already sharded so
            is not moved; results are returned sharded.
        replicas: an axis of the mesh for data parallelism. The graph runs once per position along it, each replica on
            the devices of the other axes. Arguments and results have an additional first axis, with one row per
            replica.
        shared: the inputs (the arguments of a function) with one value for all replicas, without that axis. Their
            gradients are summed over the replicas.
        check: "equal", to check each family of vertices: that the lowered function computes the meaning of the graph;
            see `cl.equal`.
        platform: "cpu", "gpu" or "tpu": the platform to lower for. Values do not depend on it, and the result runs on
            every device. Default: that of JAX's default device.

    Returns:
        A `cl.Lowered` of a graph: a dict of arrays by tensor or name in, a `cl.Results` by tensor or name out. A
        `cl.LoweredFunction` of a function: arrays in, arrays out.

    Raises:
        NotEqualError: the check fails.
        ProgramError: a graph without inputs or outputs, ones that are not of it, an invalid mesh, or replicas along no
            axis of it; a platform that there is not.
        ForeignGraphError: a program, input or output of another graph.
        WriteRaceError, ReadWriteRaceError, SelfAliasError: vertices of a compute set write an element twice, or one
            reads it while another writes it.
        UninitializedReadError: an element is read before it is written.
        PlacementError: constraints on the placement that contradict each other.

    Warns:
        UndecidedWarning: the check is inconclusive.

    >>> import codelet as cl, jax
    >>> @cl.codelet
    ... def square(x):
    ...     return x * x
    >>> def squares(graph, x):
    ...     i = cl.grid(*x.shape)
    ...     return graph.add_vertex("squares", square, x=x[i])
    >>> layer = cl.lower(squares)
    >>> jax.grad(lambda x: layer(x).sum())(jax.numpy.arange(3.0)).tolist()
    [0.0, 2.0, 4.0]

    A function that returns a program as well:

    >>> @cl.codelet
    ... def newton(y, x):
    ...     return {"y": (y + x / y) / 2}
    >>> def roots(graph, x, *, iterations):
    ...     y, i = graph.add_variable("y", x.shape), cl.grid(*x.shape)
    ...     with graph.record() as step:
    ...         graph.add_vertex("step", newton, y=y[i], x=x[i])
    ...     return y, [cl.Copy(1.0, y), cl.Repeat(iterations, step)]
    >>> cl.lower(roots)(jax.numpy.array([4.0, 9.0]), iterations=8).tolist()
    [2.0, 3.0]
    """
    is_checked, mesh = checks.for_word(check) is not None, checked_mesh(mesh)
    over, platform = checked_replicas(mesh, replicas, _names_of(shared)), checked_platform(platform)
    if isinstance(graph, Traced):
        # Devices share vertices; a single one runs the operations as they are.
        built = graph.uncut if mesh is None else graph.cut
        sources = [tensor.source for tensor in built.inputs]
        with lowering_for(platform):
            made = lower_over(plan_graph(built.graph, built.program, sources, built.outputs), None, mesh, over)  # type: ignore[arg-type]
        return checks.check_lowered(made, over) if is_checked else made
    if isinstance(graph, Graph):
        if target is not None:
            raise ProgramError(
                "a graph is lowered for another machine than its own",
                given=f"target={target!r:.80}",
                expected="target= for a function that builds a graph",
                fix="cl.Graph(target)",
            )
        if inputs is None or outputs is None:
            raise ProgramError(
                "a graph is lowered without saying what goes in and out",
                given="lower(graph)",
                expected="lower(graph, inputs=[...], outputs=[...])",
            )
        with lowering_for(platform):
            made = lower_graph(graph, program, inputs, outputs, mesh, over)
        return checks.check_lowered(made, over) if is_checked else made
    if not callable(graph) or program is not None or inputs is not None or outputs is not None:
        raise ProgramError(
            "only a graph, or a function that builds one, can be lowered",
            given=f"{graph!r:.80}",
            expected="lower(graph, inputs=[...], outputs=[...]) or lower(function)",
            fix=_advice(graph, program),
        )
    if target is not None and not isinstance(target, Target):
        raise ProgramError("a target is not a machine", given=f"{target!r:.80}", expected="cl.IPU(...)")
    return LoweredFunction(graph, target, mesh, over, is_checked, platform)
