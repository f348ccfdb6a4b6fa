"""Traced: a JAX function as a graph, with its inputs and outputs."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from codelet.errors import ArrayError, TraceError
from codelet.frontends.arguments import Convention, Flat, flatten
from codelet.frontends.layers import layer_of
from codelet.frontends.passes.fuse_elementwise import Saved
from codelet.frontends.values import is_key, returned, unwrapped
from codelet.graphs.by_tensor import Named
from codelet.graphs.drawn import Drawn
from codelet.graphs.graph import Graph
from codelet.hostcopies import on_device
from codelet.programs.program import Program
from codelet.schema import TEXT, accepts
from codelet.views.tensor import Tensor


class TracedGraph(NamedTuple):
    """A graph that was made of a function, with its ends.

    Attributes:
        graph: its vertices.
        program: its program.
        inputs: the variables of the arguments, in order.
        outputs: the tensors of the results, in order.
    """

    graph: Graph
    program: Program
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


class Traced(Drawn):
    """A JAX function as a graph of vertices. Made by `cl.trace`; call it as the function itself.

    The operations are cut into vertices, for the tiles of the target, when the graph is asked for. A call runs them
    uncut, each as one vertex, so that no plan is waited for.

    Args:
        function: the function.
        convention: how it is called.
        uncut: its graph with each operation as one vertex.
        cut: makes its graph.
        arguments: the structure of the arguments.
        results: the structure of the results.
        jaxpr: the traced jaxpr.
        fusion: the savings of elementwise fusion.

    Attributes:
        uncut: the graph that a call runs.
        jaxpr: the traced jaxpr.
        fusion: the savings of fusing neighbouring elementwise operations.

    >>> import codelet as cl, jax.numpy as jnp
    >>> traced = cl.trace(lambda w, x: jnp.tanh(w @ x), jnp.ones((2, 3)), jnp.ones(3))
    >>> traced, traced.outputs.shape
    (<Traced <lambda>: 4 vertices in 2 compute sets>, (2,))
    >>> engine = cl.Engine(traced)
    >>> engine.write(traced.arrays(jnp.ones((2, 3)), jnp.zeros(3)))
    >>> engine.run()
    >>> engine.read(traced.outputs).tolist()
    [0.0, 0.0]
    """

    def __init__(
        self,
        function: Callable[..., Any],
        convention: Convention,
        uncut: TracedGraph,
        cut: Callable[[], TracedGraph],
        arguments: Flat,
        results: Flat,
        jaxpr: Any,
        fusion: Saved,
    ):
        self.function, self.uncut, self.jaxpr, self.fusion = function, uncut, jaxpr, fusion
        self.__name__ = convention.name
        self.__doc__ = function.__doc__
        self._convention = convention
        self._make, self._cutting = cut, threading.Lock()
        self._cut: TracedGraph | None = None
        self._arguments, self._results = arguments, results
        self._lowered: dict[str, Any] = {}  # by platform

    @property
    def cut(self) -> TracedGraph:
        """The graph of vertices, for the tiles of the target, with its ends.

        >>> import codelet as cl, jax.numpy as jnp
        >>> traced = cl.trace(lambda x: x @ x, jnp.ones((64, 64)))
        >>> traced.cut.graph is traced.graph, traced.uncut.graph.num_vertices
        (True, 1)
        """
        with self._cutting:  # threads that ask for it have the same one
            if self._cut is None:
                self._cut = self._make()
            return self._cut

    @property
    def graph(self) -> Graph:
        """Its vertices. They are planned when they are first asked for.

        >>> import codelet as cl, jax.numpy as jnp
        >>> cl.trace(lambda x: 2 * x, jnp.ones(3)).graph
        <Graph: 3 vertices, 2 variables>
        """
        return self.cut.graph

    @property
    def program(self) -> Program:
        """Its program, of the compute sets of `graph`. It prints.

        >>> import codelet as cl, jax.numpy as jnp
        >>> print(cl.trace(lambda x: 2 * x, jnp.ones(3)).program)
        Execute(mul/map)
        """
        return self.cut.program

    @property
    def inputs(self) -> Any:
        """The variables of the arguments, in their structure: a tuple, followed by a dict if there are keyword
        arguments.

        >>> import codelet as cl, jax.numpy as jnp
        >>> cl.trace(lambda p: p["w"] * 2, {"w": jnp.ones(3)}).inputs[0]["w"].shape
        (3,)
        """
        return self._arguments.filled(self.flat_inputs)

    @property
    def outputs(self) -> Any:
        """The tensors of the results, in their structure.

        >>> import codelet as cl, jax.numpy as jnp
        >>> {name: y.shape for name, y in cl.trace(lambda x: {"y": x * 2}, jnp.ones(3)).outputs.items()}
        {'y': (3,)}
        """
        return self._results.filled(self.flat_outputs)

    @property
    def flat_inputs(self) -> tuple[Tensor, ...]:
        """The variables of the arguments, as a tuple in the order of `jax.tree.leaves`.

        >>> import codelet as cl, jax.numpy as jnp
        >>> ones = jnp.ones(3)
        >>> traced = cl.trace(lambda p, x: p["w"] * x + p["b"], {"w": ones, "b": ones}, ones)
        >>> [x.name for x in traced.flat_inputs]
        ['p/b', 'p/w', 'x']
        """
        return self.cut.inputs

    @property
    def flat_outputs(self) -> tuple[Tensor, ...]:
        """The tensors of the results, as a tuple in the order of `jax.tree.leaves`.

        >>> import codelet as cl, jax.numpy as jnp
        >>> traced = cl.trace(lambda x: {"sum": x.sum(), "max": x.max()}, jnp.ones(3))
        >>> len(traced.flat_outputs), traced.flat_outputs[0] is traced.outputs["max"]
        (2, True)
        """
        return self.cut.outputs

    @property
    def _result_types(self) -> Sequence[Any]:
        """The types of its results, as JAX has them."""
        return self.jaxpr.out_avals

    @property
    def lowered(self) -> Any:
        """The uncut graph as a pure function: the `cl.Lowered` that a call runs.

        That of the vertices, of the same values, is `cl.lower(traced.graph, traced.program, inputs=traced.flat_inputs,
        outputs=traced.flat_outputs)`.

        >>> import codelet as cl, jax.numpy as jnp
        >>> cl.trace(lambda x: 2 * x, jnp.ones(3)).lowered
        <Lowered: x: float32[3] -> mul/out>
        """
        platform = importlib.import_module("lowering.platforms").platform_now()
        if platform not in self._lowered:
            import codelet as cl

            self._lowered[platform] = cl.lower(self)
        return self._lowered[platform]

    def arrays(self, *arguments: Any, **keywords: Any) -> dict[Tensor, Any]:
        """The arrays of arguments, by variable, for an engine: `engine.write(traced.arrays(x, y))`.

        Args:
            arguments: as of a call.
            keywords: as of a call.

        Raises:
            ArrayError: arguments of other structure, shapes or dtypes than those that were traced.

        >>> import codelet as cl, jax.numpy as jnp
        >>> traced = cl.trace(lambda x: 2 * x, jnp.ones(3))
        >>> {tensor.name: array.tolist() for tensor, array in traced.arrays(jnp.arange(3.0)).items()}
        {'x': [0.0, 1.0, 2.0]}
        """
        return dict(zip(self.flat_inputs, self._given(arguments, keywords), strict=True))

    @property
    def ends(self) -> tuple[Tensor, ...]:
        """The tensors of arguments and results, which keep their memory: the default of `host_visible`.

        >>> import codelet as cl, jax.numpy as jnp
        >>> traced = cl.trace(lambda x: (x.sum(), x.max()), jnp.ones(3))
        >>> [tensor.shape for tensor in traced.ends]
        [(3,), (), ()]
        """
        return (*self.flat_inputs, *self.flat_outputs)

    def profile(
        self,
        *,
        placement: Any = None,
        host_visible: Named | Iterable[Named] | None = None,
        allow_out_of_memory: bool = False,
        **old: Any,
    ) -> Any:
        """The cost of the graph on its machine, as `cl.Engine(traced).profile` gives it.

        Args:
            placement: as of `cl.Engine.machine`. Default: "balanced".
            host_visible: as of `cl.Engine.machine`. Default: the arguments and results.
            allow_out_of_memory: as of `cl.Engine.machine`.
            old: deprecated options.

        Returns:
            A `cl.Profile`.

        Raises:
            OutOfTileMemoryError, NotInGraphError, ProgramError: as of `cl.Engine.profile`.

        >>> import codelet as cl, jax.numpy as jnp
        >>> cl.trace(lambda x: 2 * x, jnp.ones(3), target=cl.IPU(num_tiles=4)).profile().num_vertices
        3
        """
        import codelet as cl

        given: dict[str, Any] = {"placement": placement, "allow_out_of_memory": allow_out_of_memory, **old}
        if host_visible is not None:
            given["host_visible"] = host_visible
        return cl.Engine(self).profile(**given)

    @accepts(TraceError, name=TEXT)
    def layer_of(self, name: str) -> str:
        """The layer of a compute set: its `jax.named_scope`, or "".

        Args:
            name: that of the compute set.

        >>> import codelet as cl, jax, jax.numpy as jnp
        >>> def head(x):
        ...     with jax.named_scope("head"):
        ...         return jnp.tanh(x)
        >>> traced = cl.trace(head, jnp.ones(3))
        >>> [(step.name, traced.layer_of(step.name)) for step in traced.graph.compute_sets]
        [('head/tanh/map', 'head')]
        """
        return layer_of(name)

    def _given(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> list[Any]:
        """The arrays of arguments, which fit."""
        given = flatten(self._convention.arranged(arguments, keywords))
        self._arguments.check_like(given, self._convention)
        try:
            return [as_held(own, kind.dtype) for own, kind in zip(given.arrays, self._arguments.arrays, strict=True)]
        except OverflowError as error:
            raise ArrayError(
                f"the traced function {self.__name__!r} is given a number that its dtype does not hold",
                given=str(error),
                expected=", ".join(f"{own.dtype}" for own in self._arguments.arrays),
            ) from None

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Run the graph on arguments of the function.

        Args:
            arguments: arrays in pytrees, as those that were traced.
            keywords: the same, by keyword.

        Raises:
            ArrayError: arguments of other structure, shapes or dtypes than those that were traced.
        """
        results = self.lowered.flat(self._given(arguments, keywords))
        avals = self._result_types
        return self._results.filled([returned(own, aval) for own, aval in zip(results, avals, strict=True)])

    def __reduce__(self) -> tuple[Any, ...]:
        # As a file of `cl.save`, since the function itself and its trace cannot be.
        files = importlib.import_module("codelet.saved.traced_files")
        return files.traced_of_bytes, (files.bytes_of_traced(self),)

    def __repr__(self) -> str:
        graph = self.graph
        return f"<Traced {self.__name__}: {graph.num_vertices:,} vertices in {len(graph.compute_sets):,} compute sets>"

    def __str__(self) -> str:
        return f"{self!r}\n{self.fusion}\n{self.program}"


def as_held(value: Any, dtype: Any) -> Any:
    """The value of an argument for the graph: keys as their data, numbers as of the dtype that was traced."""
    return unwrapped(value) if is_key(dtype) else on_device(value).astype(dtype)
