"""The graph: variables, compute sets, and vertices held in columns.

In come calls of `add_variable`, `add_compute_set` and `add_vertex`, as in Poplar's `Graph`. Out come
variables, and families of vertices; see `codelet/graphs/family.py`. There is never a Python object for each
vertex.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Never

import jax
import jax.numpy as jnp
import numpy as np

from codelet.deprecated import old_attribute, warn_old
from codelet.errors import Line, ProgramError, VariableError
from codelet.graphs.connect import own_tensor
from codelet.graphs.declared import checked_constant, checked_depth, checked_dtype, checked_shape
from codelet.graphs.edge_blocks import EdgeBlock, edge_blocks
from codelet.graphs.edge_counts import count_edges
from codelet.graphs.family import Family
from codelet.graphs.graph_text import graph_html, graph_text
from codelet.graphs.names import Names
from codelet.graphs.operations import Operation, OperationList, Operations, recognised, recorded
from codelet.graphs.recordings import Recordings
from codelet.graphs.stages import Stage
from codelet.graphs.tiles import Tiles
from codelet.graphs.variables import Variables
from codelet.graphs.vertex_columns import WHOLE_NUMBER, VertexColumns, not_a_vertex
from codelet.graphs.vertices import Edge, Vertex, family_vertices, find_vertex, touching_vertices
from codelet.programs.compute_sets import ComputeSet
from codelet.programs.copies import Stream
from codelet.programs.functions import Function, checked_derivative, named_parameters
from codelet.programs.program import Program, Recording, Sequence, as_program
from codelet.programs.walk import check_program
from codelet.schema import FLAG, accepts
from codelet.target import Target, checked_target, default_target
from codelet.tracing.codelets import Codelet
from codelet.views.index import Index
from codelet.views.sources import Variable
from codelet.views.tensor import Tensor, whole_view

if TYPE_CHECKING:
    from codelet.draw.diagram import Diagram
    from codelet.draw.picture import Picture

_config = jax.config


class Graph:
    """Variables, compute sets and vertices, for one target.

    Several threads may build one: scopes and recordings are of the thread that enters them.

    Args:
        target: the machine; the IPU of the second generation when left off.

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
        return {name: held for name, held in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())

    # --- names ----------------------------------------------------------------------------------------

    @property
    def target(self) -> Target:
        """The machine the graph is for."""
        if self._target is None:
            self._target = default_target()
        return self._target

    def scope(self, name: str, *, unique: bool = False) -> contextlib.AbstractContextManager[None]:
        """Names given inside are prefixed with `name/`.

        Args:
            name: of the scope; the scopes that it is entered in stand before it.
            unique: take `name_2`, `name_3`, ... where the name is taken, so that a function that builds something may
                be called again.

        Raises:
            VariableError: a name that is none.
        """
        return self._names.scope(name, unique)

    @property
    def lines(self) -> Mapping[str, Line | None]:
        """The user's line that gave each name, by the name with its scopes."""
        return self._names.lines

    def free_name(self, name: str) -> str:
        """`name`, or `name_2`, `name_3`, ...: the first that nothing has in the scopes around it."""
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

        Args:
            name: unique in the graph, together with the scopes it is added in.
            shape: its extents.
            dtype: anything `jnp.dtype` takes; 64 bits become 32 unless x64 is on, as in `jnp.asarray`.

        Raises:
            DuplicateNameError: a name that is taken.
            VariableError: a shape or dtype that is none.
        """
        return self._new_variable(name, shape, dtype, None, "variable")

    def add_variables(self, name: str, like: Any) -> Any:
        """Add a variable for each leaf of a pytree, such as the parameters of a network.

        Args:
            name: before the place of each in the pytree: `parameters/layers/0/w`.
            like: a pytree of arrays, of `jax.ShapeDtypeStruct`, or of other tensors: what has a shape and a dtype.
                None and what it may hold besides stays.

        Returns:
            The pytree, of views of them.

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
            value: anything `jnp.asarray` takes, with the dtype it would give; of typed keys of random numbers their
                data, uint32 of a last dimension more.
            dtype: another dtype to convert to.

        Raises:
            DuplicateNameError: a name that is taken.
            VariableError: a value that is no array.
        """
        held = checked_constant(value, dtype, name)
        return self._new_variable(name, held.shape, held.dtype, held, "constant")

    def copied_constant(self, value: np.ndarray, destination: Tensor | Stream) -> Tensor:
        """A constant for numbers that a program copies; one for equal ones.

        Args:
            value: the numbers.
            destination: what they are copied to first, on whose tile the constant lies.
        """
        with self._lock:
            made = lambda: self.add_constant(self._names.free("copied"), value)  # noqa: E731
            return self._variables.of_numbers(value, destination, made)

    @property
    def variables(self) -> tuple[Tensor, ...]:
        """Views of all variables and constants, each whole, in the order in which they were added."""
        return tuple(map(whole_view, self.sources))

    @property
    def sources(self) -> tuple[Variable, ...]:
        """What these views view, which passes are written in: all variables and constants, as `Variable`s."""
        return self._variables.in_order()

    @property
    def num_elements(self) -> int:
        """The number of elements of all variables and constants."""
        return sum(own.size for own in self.sources)

    def locate(self, element: int) -> tuple[Variable, int]:
        """The variable of an element, by the graph's number for it, and its flat position there."""
        return self._variables.locate(element)

    def element_text(self, element: int) -> str:
        """An element as the user would write it: `y[3, 2]`."""
        return self._variables.element_text(element)

    def variable(self, name: str) -> Tensor:
        """A view of all of a variable, by its full name.

        Raises:
            NotInGraphError: a name no variable has.
        """
        return self._variables.whole(name)

    # --- compute sets and programs --------------------------------------------------------------------

    def add_compute_set(self, name: str) -> ComputeSet:
        """Add an empty compute set.

        Raises:
            DuplicateNameError: a name that is taken.
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
        """All compute sets, in the order in which they were added."""
        return tuple(self._compute_sets.values())

    @property
    def operations(self) -> OperationList:
        """The calls of operations that added vertices, in order; those that one is made of are its parts. They print.

        After these, vertices that no call added, as operations by what they are found to compute: see `cl.describe`.
        Operations stand for no vertices. A copy of the graph, or one that was saved, has no calls.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> a, b = graph.add_variable("a", (4, 6)), graph.add_variable("b", (6, 2))
        >>> c = cl.ops.matmul(graph, a, b)
        >>> [own.kind for own in graph.operations], graph.operations[0].operands["b"].shape
        (['matmul'], (6, 2))
        """
        return OperationList([*recorded(self), *recognised(self)])

    def operation_of(self, compute_set: ComputeSet) -> Operation | None:
        """The innermost call that made a compute set; None where none did."""
        found: Operation | None = None
        inside: Iterable[Operation] = recorded(self)
        while (own := next((own for own in inside if compute_set in own.compute_sets), None)) is not None:
            found, inside = own, own.parts
        return found

    def note_stage(self, stage: Stage) -> None:
        """Note how the vertices that were added last are cut, for the operations that they are added by."""
        self._operations.staged(self._vertices.entries[-1].compute_set, stage)

    def note_intermediates(self, **tensors: Tensor) -> None:
        """Note what an operation, within which this is called, has made on the way that its gradient may read."""
        self._operations.made_on_the_way(tensors)

    def call(self, operation: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call an operation, a function of a graph and of what follows, and remember it if it adds vertices."""
        return self._operations.call(operation, self, args, kwargs)

    def record(self, *, aside: bool = False) -> contextlib.AbstractContextManager[Recording]:
        """The compute sets made inside become a program: run them in the order in which they were made.

        Args:
            aside: whether they run only where a program names them, and are not part of what runs when none is given.
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
            parameters: the variables in it that stand for arguments: by the names that calls use, or in a list,
                and then by the variables' own names, without scopes.
            name: what it is called in print.
            derivative: a codelet that computes of the parameters, as its fields, what the body writes to them, and
                whose derivatives are those of the function, as JAX gives them: where the body's own are not what is
                wanted. The body then may touch no other variables that hold something before it.
            same_values: where derivatives are asked for, take the values of that codelet for the body's as well, which
                would else be computed beside them.

        Raises:
            DuplicateNameError: a name that is taken.
            ProgramError: a parameter that is no variable, or two that are one; a derivative of another function.
            ForeignGraphError: something of another graph.

        Source: Graph::addFunction of Poplar's API reference.
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
        """Add a stream of values from the host: each copy from it takes the next.

        Args:
            name: unique in the graph, together with the scopes it is added in.
            shape: the shape of one value.
            dtype: anything `jnp.dtype` takes.
            buffering_depth: how many values there is room for on their way. From 2, a profile counts that values move
                while a loop computes; see `lowering/machine/host.py`. It changes no value.

        Raises:
            DuplicateNameError: a name that is taken.
            VariableError: a shape or dtype that is none, or a depth that is no count.

        Source: Graph::addHostToDeviceFIFO of Poplar's API reference, with its option bufferingDepth.
        """
        return self._new_stream(name, shape, dtype, True, buffering_depth)

    def add_output_stream(
        self, name: str, shape: tuple[int, ...] | int, dtype: object = jnp.float32, *, buffering_depth: int = 1
    ) -> Stream:
        """Add a stream of values to the host: each copy to it sends one. The arguments are as of `add_input_stream`.

        Source: Graph::addDeviceToHostFIFO of Poplar's API reference.
        """
        return self._new_stream(name, shape, dtype, False, buffering_depth)

    @property
    def streams(self) -> tuple[Stream, ...]:
        """All streams, in the order in which they were added."""
        return tuple(self._streams.values())

    @property
    def functions(self) -> tuple[Function, ...]:
        """All functions, in the order in which they were added."""
        return tuple(self._functions)

    @property
    def default_program(self) -> Program:
        """All compute sets in the order in which they were added: what runs when no program is given.

        Those of a gradient, and what else is recorded aside, are left out.
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
        """Add a vertex, or with symbols in the fields all vertices of a family at once.

        Args:
            compute_set: the compute set, or a name, for which one is made if there is none yet.
            codelet: what the vertex runs.
            unnamed: nothing; fields are given by name.
            tile: where it is placed: a tile number, an index expression, or an array over the grid. The
                placement pass chooses when it is left off.
            fields: for an input, a tensor (an edge), or an index expression, a number or an array over
                the grid (a constant of the vertex, no edge); for an output, a tensor, or nothing, and a
                variable is made; for a static parameter, its value.

        Returns:
            What was made for outputs left off: a tensor, or a dict of them by field where there are
            several; None when there are none. Its shape is that of the grid, then that of the field.

        Raises:
            UnknownFieldError, MissingFieldError: fields that do not match the codelet's.
            FieldTypeError: a shape, dtype or kind that does not fit.
            CodeletTraceError: the codelet does not trace for these fields.
            TileError: a tile that does not exist.
            ForeignGraphError: something of another graph.

        Source: Graph::addVertex and Graph::connect of Poplar's API reference.
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
        """All vertices, as families, in the order in which their first vertices were added."""
        return self._vertices.families()

    @property
    def num_vertices(self) -> int:
        """The exact number of vertices."""
        return self._vertices.num_vertices

    @property
    def num_edges(self) -> int:
        """The exact number of edges: maximal runs of consecutive elements of one variable, in fields' order."""
        return sum(count_edges(family) for family in self.families)

    # --- tiles ----------------------------------------------------------------------------------------

    def set_tile_mapping(self, tensor: Tensor | str, tile: int | Index | np.ndarray | Any) -> None:
        """Say on which tiles the elements of a view live. Later mappings of an element replace earlier ones.

        Args:
            tensor: a view, which may depend on symbols, or the name of a variable.
            tile: a tile number, an index expression over the view's symbols, or an integer array of the
                view's shape.

        Raises:
            TileError: a tile that does not exist, an array that does not fit, something that is no tensor, or a view
                of padding.
        """
        self._tiles.map(tensor, tile)

    def tile_mapping(self, tensor: Tensor | str | None = None) -> np.ndarray:
        """The tiles that were given to the elements of a view.

        Args:
            tensor: a view without symbols, or the name of a variable.

        Returns:
            int32 of the view's shape; -1 where none was given, and for padding.

        Raises:
            TileError: something that is no tensor.
            ForeignGraphError: a tensor of another graph.

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
        """The tile of every element, by the graph's number for it, int32; -1 where none is given.

        Between two variables one number is left out, so that no run of numbers spans both.
        """
        return self._tiles.of_elements(self._variables)

    @property
    def has_tile_mapping(self) -> bool:
        """Whether any element was given a tile."""
        return bool(self._tiles.mappings)

    # --- looking inside -------------------------------------------------------------------------------

    vertices = old_attribute("Graph.vertices", "iter_vertices")
    edges = old_attribute("Graph.edges", "iter_edges")
    edge_blocks = old_attribute("Graph.edge_blocks", "iter_edge_blocks")

    def iter_vertices(self) -> Iterator[Vertex]:
        """All vertices, one small `Vertex` at a time, made on demand."""
        for family in self.families:
            yield from family_vertices(family)

    def iter_edges(self) -> Iterator[Edge]:
        """All edges, one small `Edge` at a time, made on demand."""
        for vertex in self.iter_vertices():
            yield from vertex.iter_edges()

    def iter_edge_blocks(self) -> Iterator[EdgeBlock]:
        """All edges, in columns over many vertices at once; see `EdgeBlock`."""
        for family in self.families:
            yield from edge_blocks(family)

    def vertex(self, compute_set: ComputeSet | str, number: int | None = None, /, **symbols: int) -> Vertex:
        """One vertex of a compute set: by the values of its symbols, or by its number.

        Args:
            compute_set: the compute set or its full name.
            number: its place among all vertices of the compute set, in the order they were added.
            symbols: the value of every symbol of the grid, by the name it has where the vertices are added.

        Raises:
            NotInGraphError: there is no such vertex, or more than one.
        """
        return find_vertex(self, compute_set, number, symbols)

    def writers(self, tensor: Tensor) -> list[Vertex]:
        """The vertices that write any element of a view."""
        return list(touching_vertices(self, own_tensor(self, tensor), written=True))

    def readers(self, tensor: Tensor) -> list[Vertex]:
        """The vertices that read any element of a view."""
        return list(touching_vertices(self, own_tensor(self, tensor), written=False))

    def draw(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        program: object = None,
        profile: Any = None,
        size: int = 2048,
        style: str = "dark",
        colour: str = "layer",
        palette: str = "hue",
        highlight: str | None = None,
        title: str = "",
        packed: float = 0.5,
        **old: Any,
    ) -> Picture:
        """A picture of all vertices and links; see `cl.draw`, which this calls, for the arguments and errors."""
        given = {"size": size, "style": style, "colour": colour, "palette": palette, "highlight": highlight}
        given = {**given, "title": title, "packed": packed, **old}
        return importlib.import_module("codelet").draw(self, program, path=path, profile=profile, **given)

    def diagram(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        program: object = None,
        profile: Any = None,
        style: str = "dark",
        palette: str = "hue",
        title: str = "",
    ) -> Diagram:
        """A diagram of a small graph, by boxes and lines that can be read; to a file as SVG.

        Args:
            path: where it is written, if it is.
            program: what runs when, as of `cl.draw`.
            profile: as of `cl.draw`, as are the others.
            style: "dark", or "light" for paper.
            palette: "hue", or "colour-blind".
            title: what is written on it.

        Raises:
            DrawError, FileError, ProgramError, ForeignGraphError: as `cl.draw` does.
        """
        draw_small = importlib.import_module("codelet.draw.drawing").draw_small
        return draw_small(self, program, path=path, profile=profile, style=style, palette=palette, title=title)

    def __str__(self) -> str:
        return graph_text(self)

    def __repr__(self) -> str:
        return f"<Graph: {self.num_vertices:,} vertices, {len(self._variables.by_name)} variables>"

    def _repr_html_(self) -> str:
        return graph_html(self)
