"""The graph: variables, compute sets, and vertices stored in columns.

In come calls of `add_variable`, `add_compute_set` and `add_vertex`, as in Poplar's `Graph`. Out come
variables, and families of vertices; see `codelet/graphs/family.py`. There is never a Python object for each
vertex.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as Sequence_
from typing import Any, Never

import jax
import jax.numpy as jnp
import numpy as np

from codelet.deprecated import old_attribute, warn_old
from codelet.errors import Line, PlacementError, ProgramError, SavingError, TileError, VariableError
from codelet.graphs.connect import own_tensor
from codelet.graphs.declared import checked_constant, checked_depth, checked_dtype, checked_shape
from codelet.graphs.drawn import Drawn
from codelet.graphs.edge_blocks import EdgeBlock, edge_blocks
from codelet.graphs.edge_counts import count_edges, counted_together
from codelet.graphs.family import Family
from codelet.graphs.graph_text import graph_html, graph_text
from codelet.graphs.names import Names
from codelet.graphs.operations import Operation, OperationList, Operations, recognised, recorded
from codelet.graphs.recordings import Recordings
from codelet.graphs.stages import Stage
from codelet.graphs.tiles import Constraint, Tiles
from codelet.graphs.variables import Variables
from codelet.graphs.vertex_columns import WHOLE_NUMBER, VertexColumns, not_a_vertex
from codelet.graphs.vertices import Edge, Vertex, family_vertices, find_vertex, touching_vertices
from codelet.programs.compute_sets import ComputeSet
from codelet.programs.copies import Stream
from codelet.programs.functions import Function, checked_derivative, named_parameters
from codelet.programs.program import Program, Recording, Sequence, as_program
from codelet.programs.walk import check_program
from codelet.schema import COUNT, FLAG, SIZE, accepts
from codelet.target import Target, checked_target, default_target
from codelet.tracing.codelets import Codelet
from codelet.version import VERSION
from codelet.views.index import Index
from codelet.views.sources import Variable
from codelet.views.tensor import Tensor, whole_view

_config = jax.config


class Graph(Drawn):
    """Variables, compute sets and vertices, for one target.

    Several threads may build one graph: scopes and recordings belong to the thread that enters them.

    Args:
        target: the machine. Default: `cl.IPU()`, the second generation.

    Raises:
        VariableError: a target that is not a machine, such as `Graph("mk2")`.

    >>> import codelet as cl
    >>> @cl.codelet
    ... def add(a, b):
    ...     return a + b
    >>> graph = cl.Graph()
    >>> x = graph.add_variable("x", (8,))
    >>> i = cl.grid(4)
    >>> y = graph.add_vertex("sum", add, a=x[i], b=x[i + 4])
    >>> graph.num_vertices, graph.num_edges, y.shape
    (4, 12, (4,))
    """

    def __init__(self, target: Target | None = None):
        self._target = checked_target(target)
        self._names = Names()
        self._recordings = Recordings()
        self._variables = Variables()
        self._tiles = Tiles(self)
        self._compute_sets: dict[str, ComputeSet] = {}
        self._vertices = VertexColumns(self, self._compute_sets, self._names, self._recordings, self._tiles)
        self._streams: dict[str, Stream] = {}
        self._functions: list[Function] = []
        self._operations = Operations()
        self._lock = threading.RLock()  # around all that counts, or looks for a name and then takes it

    def __getstate__(self) -> dict[str, Any]:
        return {"version": VERSION, **{name: held for name, held in self.__dict__.items() if name != "_lock"}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        version = state.pop("version", "an older one")
        if version != VERSION:
            raise SavingError(
                "a pickle was written by another version of codelet",
                given=f"a graph of codelet {version}",
                expected=f"one of codelet {VERSION}: pickles are for copies and processes of one version",
                fix="cl.save(path, graph), and cl.load(path), which reads files of older versions",
            )
        self.__dict__.update(state, _lock=threading.RLock())

    # --- names ----------------------------------------------------------------------------------------

    @property
    def target(self) -> Target:
        """The machine the graph is for.

        >>> import codelet as cl
        >>> cl.Graph(cl.IPU(num_tiles=4)).target
        IPU('mk2', num_tiles=4)
        """
        if self._target is None:
            self._target = default_target()
        return self._target

    def scope(self, name: str, *, unique: bool = False) -> contextlib.AbstractContextManager[None]:
        """Names given inside are prefixed with `name/`.

        Args:
            name: of the scope. Scopes nest: `outer/inner/`.
            unique: use `name_2`, `name_3`, ... if the name is taken, so that a function that builds something may be
                called again.

        Raises:
            VariableError: an invalid name, such as an empty one.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> with graph.scope("layer"):
        ...     w = graph.add_variable("w", (3,))
        >>> w.name
        'layer/w'
        """
        return self._names.scope(name, unique)

    @property
    def lines(self) -> Mapping[str, Line | None]:
        """The user's line that gave each name, by the name with its scopes.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> with graph.scope("layer"):
        ...     x = graph.add_variable("x", (4,))
        >>> list(graph.lines)
        ['layer/x']
        """
        return self._names.lines

    def free_name(self, name: str) -> str:
        """The first of `name`, `name_2`, `name_3`, ... that is free in the current scopes.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x = graph.add_variable("x", ())
        >>> graph.free_name("x"), graph.free_name("y")
        ('x_2', 'y')
        """
        with self._lock:
            return self._names.free(name)

    # --- variables ------------------------------------------------------------------------------------

    def _new_variable(self, name: str, shape: object, dtype: object, value: np.ndarray | None, what: str) -> Tensor:
        whose = f"{what} {name!r}"
        extents, canonical = checked_shape(shape, whose), checked_dtype(dtype, whose)
        with self._lock:
            recording = self._recordings.current
            is_aside = recording is not None and recording.is_aside
            name = self._names.claim(name, what)
            return self._variables.add(self, name, extents, canonical, value, is_aside=is_aside)

    def add_variable(self, name: str, shape: tuple[int, ...] | int, dtype: object = jnp.float32) -> Tensor:
        """Add state of the given shape and dtype, and return a view of all of it.

        The elements hold no value until the host, a vertex or a copy writes them: nothing is zero at the start, and
        reading an unwritten element is an error.

        Args:
            name: unique in the graph, together with the scopes it is added in.
            shape: its extents; () for a scalar.
            dtype: anything `jnp.dtype` takes; 64 bits become 32 unless x64 is on, as in `jnp.asarray`.

        Raises:
            DuplicateNameError: a name that is taken.
            VariableError: an invalid name, shape or dtype.

        Source: Graph::addVariable of Poplar's API reference.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> graph.add_variable("x", (2, 3))
        Tensor(float32[2,3] of x: 3*f0 + f1)
        >>> graph.add_variable("count", (), "int32").dtype
        dtype('int32')
        """
        return self._new_variable(name, shape, dtype, None, "variable")

    def add_variables(self, name: str, like: Any) -> Any:
        """Add a variable for each leaf of a pytree, such as the parameters of a network.

        Args:
            name: the prefix of the path of each leaf: `parameters/layers/0/w`.
            like: a pytree of arrays, of `jax.ShapeDtypeStruct`, or of other tensors, of which only shapes and dtypes
                are used. `None` stays `None`.

        Returns:
            The same pytree, of views of the variables.

        Raises:
            DuplicateNameError: a name that is taken.
            VariableError: a leaf without a shape or dtype.

        >>> import codelet as cl, jax
        >>> graph = cl.Graph()
        >>> layer = graph.add_variables("layer", {"w": jax.ShapeDtypeStruct((3, 2), "float32"), "b": np.zeros(3)})
        >>> layer["w"]
        Tensor(float32[3,2] of layer/w: 2*f0 + f1)
        """
        paths, structure = jax.tree_util.tree_flatten_with_path(like)
        made = []
        for path, leaf in paths:
            full = "/".join(part for part in (name, jax.tree_util.keystr(path, simple=True, separator="/")) if part)
            shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
            if shape is None or dtype is None:
                raise VariableError(
                    f"what variable {full!r} is to be like has no shape and dtype",
                    given=f"{type(leaf).__name__}: {leaf!r:.60}",
                    expected="a pytree of arrays, or of jax.ShapeDtypeStruct",
                )
            made.append(self._new_variable(full, shape, dtype, None, "variable"))
        return jax.tree.unflatten(structure, made)

    def add_constant(self, name: str, value: object, dtype: object = None) -> Tensor:
        """Add an array that never changes, and return a view of all of it.

        Args:
            name: unique in the graph, together with the scopes it is added in.
            value: anything `jnp.asarray` takes, with the dtype it would give; of typed random keys their data, uint32
                with one more dimension at the end.
            dtype: convert to this dtype. Default: none.

        Raises:
            DuplicateNameError: a name that is taken.
            VariableError: a value that is not an array of numbers.

        Source: Graph::addConstant of Poplar's API reference.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> w = graph.add_constant("w", [[1, 2], [3, 4]], "float16")
        >>> w.dtype, cl.interpret(graph, values={}, outputs=w)[w].tolist()
        (dtype('float16'), [[1.0, 2.0], [3.0, 4.0]])
        """
        held = checked_constant(value, dtype, name)
        return self._new_variable(name, held.shape, held.dtype, held, "constant")

    def copied_constant(self, value: np.ndarray, destination: Tensor | Stream) -> Tensor:
        """The constant for numbers that a program copies. Equal numbers share one constant.

        Args:
            value: the numbers.
            destination: the first destination, whose tile holds the constant.

        >>> import codelet as cl, numpy as np
        >>> graph = cl.Graph()
        >>> x = graph.add_variable("x", ())
        >>> graph.copied_constant(np.float32(1.0), x) is graph.copied_constant(np.float32(1.0), x)
        True
        """
        with self._lock:
            made = lambda: self.add_constant(self._names.free("copied"), value)  # noqa: E731
            return self._variables.of_numbers(value, destination, made)

    @property
    def variables(self) -> tuple[Tensor, ...]:
        """Whole views of all variables and constants, in the order in which they were added.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, y = graph.add_variable("x", ()), graph.add_variable("y", ())
        >>> [each.name for each in graph.variables]
        ['x', 'y']
        """
        return tuple(map(whole_view, self.sources))

    @property
    def sources(self) -> tuple[Variable, ...]:
        """All variables and constants, as the `Variable` objects behind these views, in which passes are written.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x = graph.add_variable("x", (2, 3))
        >>> graph.sources[0] is x.source, graph.sources[0].name, graph.sources[0].shape
        (True, 'x', (2, 3))
        """
        return self._variables.in_order()

    @property
    def num_elements(self) -> int:
        """The number of elements of all variables and constants.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, y = graph.add_variable("x", (2, 3)), graph.add_variable("y", ())
        >>> graph.num_elements
        7
        """
        return sum(own.size for own in self.sources)

    def locate(self, element: int) -> tuple[Variable, int]:
        """The variable of an element, and its flat position there.

        Args:
            element: the graph's number of the element, as of `Tensor.elements`.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, y = graph.add_variable("x", (4,)), graph.add_variable("y", (4,))
        >>> variable, position = graph.locate(int(y[3].elements()))
        >>> variable.name, position
        ('y', 3)
        """
        return self._variables.locate(element)

    def element_text(self, element: int) -> str:
        """An element as the user would write it: `y[3, 2]`.

        Args:
            element: the graph's number of the element, as of `Tensor.elements`.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> y = graph.add_variable("y", (4, 3))
        >>> graph.element_text(int(y[3, 2].elements()))
        'y[3, 2]'
        """
        return self._variables.element_text(element)

    def variable(self, name: str) -> Tensor:
        """A view of a whole variable, by its full name.

        Args:
            name: with its scopes: `layer/w`.

        Raises:
            NotInGraphError: no variable has this name.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x = graph.add_variable("x", (4,))
        >>> graph.variable("x").shape
        (4,)
        """
        return self._variables.whole(name)

    # --- compute sets and programs --------------------------------------------------------------------

    def add_compute_set(self, name: str) -> ComputeSet:
        """Add an empty compute set.

        Args:
            name: unique in the graph, together with the scopes it is added in.

        Raises:
            DuplicateNameError: a name that is taken.

        Source: Graph::addComputeSet of Poplar's API reference.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> step = graph.add_compute_set("step")
        >>> y = graph.add_vertex(step, cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> step, y.name
        (compute set step, 'step/out')
        """
        with self._lock:
            full, recording = self._names.claim(name, "compute set"), self._recordings.current
            made = ComputeSet(self, full, len(self._compute_sets), self._names.lines[full], recording)
            self._compute_sets[full] = made
        self._operations.made(made)
        if recording is not None:
            recording.compute_sets.append(made)
        return made

    @property
    def compute_sets(self) -> tuple[ComputeSet, ...]:
        """All compute sets, in the order in which they were added.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> first, second = graph.add_compute_set("first"), graph.add_compute_set("second")
        >>> graph.compute_sets
        (compute set first, compute set second)
        """
        return tuple(self._compute_sets.values())

    @property
    def operations(self) -> OperationList:
        """The calls of operations that added vertices, in order. A call inside another is one of its parts. They print.

        They are followed by vertices that no call added, as operations that `cl.describe` recognises. Operations add no
        vertices. A copied or saved graph has no calls.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> a, b = graph.add_variable("a", (4, 6)), graph.add_variable("b", (6, 2))
        >>> c = cl.ops.matmul(graph, a, b)
        >>> [operation.kind for operation in graph.operations], graph.operations[0].operands["b"].shape
        (['matmul'], (6, 2))
        """
        return OperationList([*recorded(self), *recognised(self)])

    def operation_of(self, compute_set: ComputeSet) -> Operation | None:
        """The innermost operation whose call made a compute set, or `None`.

        Args:
            compute_set: one of `graph.compute_sets`.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> y = cl.ops.softmax(graph, graph.add_variable("x", (4,)))
        >>> graph.operation_of(graph.compute_sets[0]).kind
        'softmax'
        """
        found: Operation | None = None
        inside: Iterable[Operation] = recorded(self)
        while (own := next((own for own in inside if compute_set in own.compute_sets), None)) is not None:
            found, inside = own, own.parts
        return found

    def note_stage(self, stage: Stage) -> None:
        """Note how the vertices added last partition an operation: a `Stage`. Operations call it, users need not.

        Args:
            stage: along which axes of the operation each field moves.

        >>> import codelet as cl, jax.numpy as jnp
        >>> graph = cl.Graph()
        >>> z = cl.ops.map(graph, jnp.add, graph.add_variable("x", (4,)), 1.0, grain=2)
        >>> str(graph.operations[0]).splitlines()[-1].strip()
        'add of x0[elements], out0[elements]; elements 4 in 2 x 2'
        """
        self._operations.staged(self._vertices.entries[-1].compute_set, stage)

    def note_intermediates(self, **tensors: Tensor) -> None:
        """Note intermediate tensors of the current operation that its gradient may read, by name.

        Args:
            tensors: the intermediates, by keyword.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, one = graph.add_variable("x", (2, 4)), graph.add_variable("one", (4,))
        >>> y = cl.ops.layer_norm(graph, x, one, one)
        >>> sorted(graph.operations[0].intermediates)
        ['mean', 'variance']
        """
        self._operations.made_on_the_way(tensors)

    def call(self, operation: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call an operation as `operation(graph, *args, **kwargs)`, and record it if it adds vertices.

        Args:
            operation: a function of a graph, then of tensors and options.
            args: its positional arguments, without the graph.
            kwargs: its keyword arguments.

        >>> import codelet as cl
        >>> def double(graph, x):
        ...     return cl.ops.map(graph, cl.codelet(lambda x: 2 * x), x)
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> y = graph.call(double, graph.add_variable("x", (4,)))
        >>> [operation.kind for operation in graph.operations]
        ['double']
        """
        return self._operations.call(operation, self, args, kwargs)

    def record(self, *, aside: bool = False) -> contextlib.AbstractContextManager[Recording]:
        """Record the compute sets made inside as a program, which runs them in the order in which they were made.

        Compute sets and vertices may be added inside, by name or by operations. Vertices may not be added to a compute
        set that was made outside.

        Args:
            aside: exclude them from `default_program`, so that they run only where a program names them.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> n = graph.add_variable("n", (), "int32")
        >>> with graph.record() as step:
        ...     graph.add_vertex("count", cl.codelet(lambda n: {"n": n + 1}), n=n)
        >>> int(cl.interpret(graph, cl.Repeat(10, step), values={n: 0}, outputs=n)[n])
        10
        """
        return self._recordings.record(aside)

    @accepts(ProgramError, same_values=FLAG)
    def add_function(
        self,
        body: object,
        parameters: Mapping[str, Tensor] | Iterable[Tensor] = (),
        *,
        name: str | None = None,
        derivative: Codelet | None = None,
        same_values: bool = False,
    ) -> Function:
        """Define a body once, to be called on different tensors by `Call`.

        Args:
            body: a program or a compute set. It may read and write other variables of the graph as well.
            parameters: the variables of the body that stand for arguments. A mapping gives the names that calls use; in
                a list they have the names of the variables, without scopes.
            name: its printed name.
            derivative: a codelet with the parameters as fields that computes the values written by `body`. Its JAX
                derivative replaces that of `body`. The body then may not touch other variables that hold a value before
                the call.
            same_values: for gradients, use the values that `derivative` computes for those of the body. Default:
                compute both.

        Raises:
            DuplicateNameError: a name that is taken.
            ProgramError: a parameter that is not a whole variable, or one that is given twice; a `derivative` whose
                fields do not match.
            ForeignGraphError: something of another graph.

        Source: Graph::addFunction of Poplar's API reference.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> a, x = graph.add_variable("a", ()), graph.add_variable("x", (2,))
        >>> sign = cl.codelet(lambda a: {"a": abs(a) / a})
        >>> with graph.record() as body:
        ...     graph.add_vertex("sign", sign, a=a)
        >>> straight_through = cl.codelet(lambda a: {"a": a})
        >>> function = graph.add_function(body, [a], derivative=straight_through)
        >>> program = [cl.Call(function, a=x[0]), cl.Call(function, a=x[1])]
        >>> cl.interpret(graph, program, values={x: [3.0, -4.0]}, outputs=x)[x].tolist()
        [1.0, -1.0]
        """
        program = as_program(body)
        check_program(program, self)
        named = named_parameters(parameters)
        for parameter in named.values():
            own_tensor(self, parameter)
        with self._lock:
            full = self._names.claim(self._names.free("function") if name is None else name, "function")
            function = Function(self, full, program, named, checked_derivative(derivative, named), same_values)
            self._functions.append(function)
        return function

    def _new_stream(self, name: str, shape: object, dtype: object, is_input: bool, depth: object) -> Stream:
        what = "input stream" if is_input else "output stream"
        whose = f"{what} {name!r}"
        own = checked_shape(shape, whose), checked_dtype(dtype, whose), is_input, checked_depth(depth, whose)
        with self._lock:
            stream = Stream(self, self._names.claim(name, what), *own)
            self._streams[stream.name] = stream
        return stream

    def add_input_stream(
        self, name: str, shape: tuple[int, ...] | int, dtype: object = jnp.float32, *, buffering_depth: int = 1
    ) -> Stream:
        """Add a stream of values from the host: each copy from it takes the next value.

        The host gives the values as one array of shape `(number of values, *shape)`, or one by one: see
        `Engine.connect`.

        Args:
            name: unique in the graph, together with the scopes it is added in.
            shape: the shape of one value.
            dtype: anything `jnp.dtype` takes.
            buffering_depth: how many values the buffer holds. From 2, a profile overlaps transfers with the computation
                of a loop; see `lowering/machine/host.py`. It changes no value.

        Raises:
            DuplicateNameError: a name that is taken.
            VariableError: an invalid shape or dtype, or a depth that is not a positive integer.

        Source: Graph::addHostToDeviceFIFO of Poplar's API reference, with its option bufferingDepth.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> batches, x = graph.add_input_stream("batches", (2,)), graph.add_variable("x", (2,))
        >>> program = [cl.Copy(batches, x), cl.Copy(batches, x)]
        >>> cl.interpret(graph, program, values={batches: [[1, 2], [3, 4]]}, outputs=x)[x].tolist()
        [3.0, 4.0]
        """
        return self._new_stream(name, shape, dtype, True, buffering_depth)

    def add_output_stream(
        self, name: str, shape: tuple[int, ...] | int, dtype: object = jnp.float32, *, buffering_depth: int = 1
    ) -> Stream:
        """Add a stream of values to the host: each copy to it sends one value.

        The host gets the values as one array of shape `(number of values, *shape)`, or one by one: see
        `Engine.connect`.

        Args:
            name: unique in the graph, together with the scopes it is added in.
            shape: the shape of one value.
            dtype: anything `jnp.dtype` takes.
            buffering_depth: how many values the buffer holds, as of `add_input_stream`.

        Raises:
            DuplicateNameError: a name that is taken.
            VariableError: an invalid shape or dtype, or a depth that is not a positive integer.

        Source: Graph::addDeviceToHostFIFO of Poplar's API reference.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, losses = graph.add_variable("x", ()), graph.add_output_stream("losses", ())
        >>> program = cl.Repeat(3, cl.Copy(x, losses))
        >>> cl.interpret(graph, program, values={x: 0.5}, outputs=losses)[losses].tolist()
        [0.5, 0.5, 0.5]
        """
        return self._new_stream(name, shape, dtype, False, buffering_depth)

    @property
    def streams(self) -> tuple[Stream, ...]:
        """All streams, in the order in which they were added.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> batches, losses = graph.add_input_stream("batches", (2,)), graph.add_output_stream("losses", ())
        >>> [(stream.name, stream.is_input) for stream in graph.streams]
        [('batches', True), ('losses', False)]
        """
        return tuple(self._streams.values())

    @property
    def functions(self) -> tuple[Function, ...]:
        """All functions, in the order in which they were added.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, y = graph.add_variable("x", ()), graph.add_variable("y", ())
        >>> move = graph.add_function(cl.Copy(x, y), [x, y], name="move")
        >>> [function.name for function in graph.functions]
        ['move']
        """
        return tuple(self._functions)

    @property
    def default_program(self) -> Program:
        """All compute sets in the order in which they were added: the program if none is given.

        Compute sets of gradients, and others recorded with `aside=True`, are excluded.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> first, second = graph.add_compute_set("first"), graph.add_compute_set("second")
        >>> print(graph.default_program)
        Execute(first)
        Execute(second)
        """
        return Sequence(*(own for own in self.compute_sets if not getattr(own.recording, "is_aside", False)))

    # --- vertices -------------------------------------------------------------------------------------

    def add_vertex(
        self,
        compute_set: ComputeSet | str,
        codelet: Codelet,
        /,
        *unnamed: Never,
        tile: int | Index | np.ndarray | Any = None,
        **fields: Any,
    ) -> Tensor | Any:
        """Add a vertex; with symbols in the fields, add all vertices of a family at once.

        Args:
            compute_set: the compute set, or its name; a new name makes one.
            codelet: the codelet of the vertex.
            unnamed: nothing; fields are given by name.
            tile: its tile: a number, an index expression, or an array over the grid. Default: the placement pass
                chooses.
            fields: for an input, a tensor (an edge), or an index expression, a number or an array over the grid (a
                constant of the vertex, no edge). For an output, a tensor; if omitted, a variable is made. For a static
                parameter, its value.

        Returns:
            The variable made for an omitted output: a tensor of shape `(*grid, *field)`. A dict of them by field if
                there are several, and `None` if there is none.

        Raises:
            UnknownFieldError, MissingFieldError: fields that do not match the codelet's.
            FieldTypeError: a shape, dtype or kind that does not fit.
            CodeletTraceError: JAX cannot trace the codelet for these fields.
            TileError: a tile that does not exist.
            ForeignGraphError: something of another graph.

        Source: Graph::addVertex and Graph::connect of Poplar's API reference.

        >>> import codelet as cl
        >>> add = cl.codelet(lambda a, b: a + b)
        >>> graph = cl.Graph()
        >>> x, y = graph.add_variable("x", (4,)), graph.add_variable("y", (4,))
        >>> one = graph.add_vertex("one", add, a=x[0], b=x[1], tile=0)
        >>> one.name, one.shape
        ('one/out', ())
        >>> i = cl.grid(4)
        >>> graph.add_vertex("family", add, a=x[i], b=i, out=y[3 - i], tile=i)    # `b` is vertex state
        >>> graph.num_vertices
        5
        """
        if not isinstance(codelet, Codelet) or unnamed:
            raise not_a_vertex(compute_set, codelet, unnamed)
        frame = sys._getframe(1)
        vertices = self._vertices
        if (site := vertices.sites.get(frame.f_lasti)) is not None:
            # A graph that is built one vertex at a time is built here: a vertex like the last one that the same
            # instruction added is a few integers in columns.
            code, its_set, its_codelet, names, expected, columns, line, x64 = site
            if (
                code is frame.f_code
                and its_set is compute_set
                and its_codelet is codelet
                and tuple(fields) == names
                and columns.has_tile is not (tile is None)
                and (not codelet.captures or codelet.frozen() is columns.codelet.codelet)
                and (not self._recordings.num_open or self._recordings.is_open(its_set))
            ):
                row = []
                for kind, value in zip(expected, fields.values()):  # noqa: B905 - as many, and it takes longer to say so
                    if type(value) is Tensor:
                        if value.layout is not kind:
                            break
                        row.append(value.offset)
                    elif type(value) is int and kind is WHOLE_NUMBER:
                        row.append(value)
                    elif value is not kind:
                        break
                else:
                    if tile is not None:
                        row.append(tile)
                    if (tile is None or (type(tile) is int and 0 <= tile < self._tiles.num_tiles)) and (
                        _config.jax_enable_x64 is x64  # type: ignore[attr-defined]
                    ):
                        if line != columns.line:
                            with self._lock:
                                columns.begin_line(line)
                        columns.integers.fromlist(row)
                        return None
        with self._lock:
            return vertices.add(compute_set, codelet, tile, fields, frame)

    @property
    def families(self) -> tuple[Family, ...]:
        """All vertices, as families, in the order in which their first vertices were added.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
        >>> [(family.compute_set.name, family.num_vertices) for family in graph.families]
        [('double', 4)]
        """
        return self._vertices.families()

    @property
    def num_vertices(self) -> int:
        """The exact number of vertices.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, i = graph.add_variable("x", (1000,)), cl.grid(1000)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
        >>> graph.num_vertices
        1000
        """
        return self._vertices.num_vertices

    @property
    def num_edges(self) -> int:
        """The exact number of edges: maximal runs of consecutive elements of one variable, in the order of a field.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x = graph.add_variable("x", (6,))
        >>> y = graph.add_vertex("sum", cl.codelet(lambda x: x.sum()), x=x[::2])    # three runs in, one out
        >>> graph.num_vertices, graph.num_edges
        (1, 4)
        """
        return sum(map(count_edges, counted_together(self.families)))

    # --- tiles ----------------------------------------------------------------------------------------

    def set_tile_mapping(self, tensor: Tensor | str, tile: int | Index | np.ndarray | Any) -> None:
        """Place the elements of a view on tiles. A later mapping of an element replaces an earlier one.

        The placement pass places everything without a tile: elements, and vertices without `tile=`.

        Args:
            tensor: a view, which may depend on symbols, or the name of a variable.
            tile: a tile number, an index expression over the view's symbols, or an integer array of the view's shape.

        Raises:
            TileError: a tile that does not exist, an array of another shape, not a tensor, or a view of padding.

        Source: Graph::setTileMapping of Poplar's API reference.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=4))
        >>> x, y = graph.add_variable("x", (4,)), graph.add_variable("y", (2,))
        >>> i = cl.grid(4)
        >>> graph.set_tile_mapping(x[i], i)        # element i on tile i
        >>> graph.set_tile_mapping(y, 3)           # all of y on tile 3
        >>> graph.tile_mapping(x).tolist(), graph.tile_mapping("y").tolist()
        ([0, 1, 2, 3], [3, 3])
        """
        self._tiles.map(tensor, tile)

    @accepts(TileError, grain=COUNT, least=SIZE)
    def map_linearly(
        self,
        tensor: Tensor | str,
        *,
        tiles: int | Iterable[int] | None = None,
        grain: int = 1,
        least: int = 0,
    ) -> None:
        """Lay the elements of a view on tiles in order, in ranges of nearly equal length.

        Args:
            tensor: a view without symbols, or the name of a variable.
            tiles: how many tiles to use, from tile 0 on, or the numbers of tiles in the order in which they are
                filled. Default: all of the target.
            grain: a range has a multiple of so many elements, but for the last.
            least: a tile that has any has so many, where there are as many.

        Raises:
            TileError: a tile that does not exist, no tile, not a tensor, or a view of padding.

        Source: poputil::mapTensorLinearly and mapTensorLinearlyWithOffset of Poplar's API reference.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=8))
        >>> x, y = graph.add_variable("x", (8,)), graph.add_variable("y", (8,))
        >>> graph.map_linearly(x, tiles=4)
        >>> graph.map_linearly(y, tiles=range(7, 3, -1), grain=3)
        >>> graph.tile_mapping(x).tolist(), graph.tile_mapping(y).tolist()
        ([0, 0, 1, 1, 2, 2, 3, 3], [7, 7, 7, 6, 6, 6, 5, 5])
        """
        self._tiles.map_linearly(tensor, tiles, grain, least)

    def place(
        self,
        *,
        together: Sequence_[Tensor | str] | None = None,
        apart: Sequence_[Tensor | str] | None = None,
    ) -> None:
        """Constrain the placement pass: views to be on one tile, or on tiles apart.

        A vertex without `tile=` goes with the first element that it writes.

        Args:
            together: views, or names of variables, all elements of which are to be on one tile. Views with symbols are
                together for each position of these, as `[x[i], y[i]]` for each `i`.
            apart: views no two of which may have elements on one tile, for each position of their symbols.

        Raises:
            PlacementError: neither is given, no list, or more views are to be apart than there are tiles. Constraints
                that contradict each other, or tiles that were given, are found when the graph is lowered.
            TileError: something that is not a tensor, or a view of padding or ragged rows.
            ForeignGraphError: a tensor of another graph.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=4))
        >>> x, y, z = (graph.add_variable(name, (4,)) for name in "xyz")
        >>> i = cl.grid(4)
        >>> graph.place(together=[x[i], y[3 - i]], apart=[x[i], z[i]])
        >>> placement = cl.Engine(graph, cl.Sequence(cl.Copy(x, y), cl.Copy(x, z))).machine().placement
        >>> tiles = [placement.tiles_of(tensor.source) for tensor in (x, y, z)]
        >>> bool((tiles[0] == tiles[1][::-1]).all()), bool((tiles[0] != tiles[2]).all())
        (True, True)
        """
        if together is None and apart is None:
            raise PlacementError(
                "graph.place is told nothing",
                given="neither `together=` nor `apart=`",
                expected="a list of tensors for one of them",
                fix="graph.place(together=[x[i], y[i]])",
            )
        with self._lock:
            for tensors, is_together in ((together, True), (apart, False)):
                if tensors is not None:
                    self._tiles.constrain(tensors, is_together=is_together)

    @property
    def placement_constraints(self) -> tuple[Constraint, ...]:
        """The constraints on the placement pass, in the order in which they were given.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, y = graph.add_variable("x", (4,)), graph.add_variable("y", (4,))
        >>> graph.place(apart=[x, y])
        >>> print(*graph.placement_constraints)
        graph.place(apart=[Tensor(float32[4] of x: f0), Tensor(float32[4] of y: f0)])
        """
        return tuple(self._tiles.constraints)

    def tile_mapping(self, tensor: Tensor | str | None = None) -> np.ndarray:
        """The tile of each element of a view, as `set_tile_mapping` gave it.

        Args:
            tensor: a view without symbols, or the name of a variable.

        Returns:
            int32 of the view's shape; -1 for unmapped elements and for padding.

        Raises:
            TileError: not a tensor.
            ForeignGraphError: a tensor of another graph.

        Source: Graph::getTileMapping of Poplar's API reference.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=4))
        >>> x = graph.add_variable("x", (2, 3))
        >>> graph.set_tile_mapping(x[1], 3)
        >>> graph.tile_mapping(x).tolist()
        [[-1, -1, -1], [3, 3, 3]]
        """
        if tensor is None:
            warn_old("Graph.tile_mapping()", "Graph.element_tiles, or tile_mapping(tensor) for one tensor")
            return self.element_tiles
        tiles, elements = self.element_tiles, self._tiles.named(tensor).elements()
        return np.where(elements < 0, np.int32(-1), tiles[elements])

    @property
    def element_tiles(self) -> np.ndarray:
        """The tile of every element, by the graph's number for it: int32 of shape (numbers,), -1 where none is given.

        One number is skipped after each variable, so that no run of numbers spans two variables.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=4))
        >>> x, y = graph.add_variable("x", (2,)), graph.add_variable("y", (2,))
        >>> graph.set_tile_mapping(y, 3)
        >>> graph.element_tiles.tolist()
        [-1, -1, -1, 3, 3, -1]
        """
        return self._tiles.of_elements(self._variables)

    @property
    def has_tile_mapping(self) -> bool:
        """True if any element was given a tile.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x = graph.add_variable("x", (2,))
        >>> graph.set_tile_mapping(x, 0)
        >>> graph.has_tile_mapping
        True
        """
        return bool(self._tiles.mappings)

    # --- looking inside -------------------------------------------------------------------------------

    vertices = old_attribute("Graph.vertices", "iter_vertices")
    edges = old_attribute("Graph.edges", "iter_edges")
    edge_blocks = old_attribute("Graph.edge_blocks", "iter_edge_blocks")

    def iter_vertices(self) -> Iterator[Vertex]:
        """Iterate over all vertices. Each `Vertex` is made on demand.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, i = graph.add_variable("x", (2,)), cl.grid(2)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
        >>> [vertex.symbols for vertex in graph.iter_vertices()]
        [{'i': 0}, {'i': 1}]
        """
        for family in self.families:
            yield from family_vertices(family)

    def iter_edges(self) -> Iterator[Edge]:
        """Iterate over all edges. Each `Edge` is made on demand; `Edge` has an example.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> y = graph.add_vertex("sum", cl.codelet(lambda x: x.sum()), x=graph.add_variable("x", (4,))[1:3])
        >>> [(edge.variable.name, edge.start, edge.length) for edge in graph.iter_edges()]
        [('x', 1, 2), ('sum/out', 0, 1)]
        """
        for vertex in self.iter_vertices():
            yield from vertex.iter_edges()

    def iter_edge_blocks(self) -> Iterator[EdgeBlock]:
        """Iterate over all edges in columns, many vertices at once; see `EdgeBlock`.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(2)
        >>> y = graph.add_vertex("sum", cl.codelet(lambda x: x.sum()), x=x[2 * i : 2 * i + 2])
        >>> [(block.field.name, block.first.tolist(), block.length.tolist()) for block in graph.iter_edge_blocks()][0]
        ('x', [0, 2], [[2]])
        """
        for family in self.families:
            yield from edge_blocks(family)

    def vertex(self, compute_set: ComputeSet | str, number: int | None = None, /, **symbols: int) -> Vertex:
        """One vertex of a compute set: by the values of its symbols, or by its number.

        Args:
            compute_set: the compute set or its full name.
            number: its place among all vertices of the compute set, in the order they were added.
            symbols: the value of every symbol of the grid, by name. Its name is that of the Python variable with the
                symbol where the vertices were added, or the one given to `cl.grid`.

        Raises:
            NotInGraphError: there is no such vertex, or more than one.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
        >>> graph.vertex("double", i=2).symbols, graph.vertex("double", 3).symbols
        ({'i': 2}, {'i': 3})
        """
        return find_vertex(self, compute_set, number, symbols)

    def writers(self, tensor: Tensor) -> list[Vertex]:
        """The vertices that write any element of a view.

        Args:
            tensor: a view of this graph.

        Raises:
            ForeignGraphError: a tensor of another graph.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
        >>> [vertex.symbols for vertex in graph.writers(y[1:3])]
        [{'i': 1}, {'i': 2}]
        """
        return list(touching_vertices(self, own_tensor(self, tensor), written=True))

    def readers(self, tensor: Tensor) -> list[Vertex]:
        """The vertices that read any element of a view.

        Args:
            tensor: a view of this graph.

        Raises:
            ForeignGraphError: a tensor of another graph.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(3)
        >>> y = graph.add_vertex("differences", cl.codelet(lambda a, b: b - a), a=x[i], b=x[i + 1])
        >>> [vertex.symbols for vertex in graph.readers(x[1])]
        [{'i': 0}, {'i': 1}]
        """
        return list(touching_vertices(self, own_tensor(self, tensor), written=False))

    def __str__(self) -> str:
        return graph_text(self)

    def __repr__(self) -> str:
        return f"<Graph: {self.num_vertices:,} vertices, {len(self._variables.by_name)} variables>"

    def _repr_html_(self) -> str:
        return graph_html(self)
