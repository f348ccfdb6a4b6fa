"""The graph: variables, compute sets, and vertices held in columns.

In come calls of `add_variable`, `add_compute_set` and `add_vertex`, as in Poplar's `Graph`. Out come
variables, and families of vertices; see `codelet/graphs/family.py`. There is never a Python object for each
vertex.
"""

from __future__ import annotations

import bisect
import contextlib
import sys
import threading
import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping
from types import CodeType, FrameType
from typing import Any, NamedTuple, Never

import jax
import jax.numpy as jnp
import numpy as np

from codelet.display import as_html, as_table
from codelet.errors import (
    DuplicateNameError,
    FieldTypeError,
    ForeignGraphError,
    Line,
    MissingFieldError,
    NotInGraphError,
    ProgramError,
    StaticFamiliesWarning,
    TileError,
    VariableError,
    user_line,
)
from codelet.graphs.connect import check_fits, check_no_padding, connect, own_tensor
from codelet.graphs.declared import checked_constant, checked_dtype, checked_shape
from codelet.graphs.family import Columns, Family, Field, counted
from codelet.graphs.vertices import count_edges, family_vertices, find_vertex, touching_vertices
from codelet.programs.compute_sets import ComputeSet
from codelet.programs.copies import Stream
from codelet.programs.functions import Function
from codelet.programs.program import Program, Recording, Sequence, as_program
from codelet.programs.walk import check_program
from codelet.target import Target, default_target
from codelet.tracing.codelets import MANY_VARIANTS, Codelet, FieldType, TracedCodelet, static_families_text
from codelet.tracing.statics import restored, static_key, trace_settings
from codelet.views.conditions import Condition
from codelet.views.grids import Axis, common_axes, union_axes, whole_grids
from codelet.views.index import Index, as_index, row_major
from codelet.views.symbols import symbol_names
from codelet.views.tensor import Tensor, Variable, source_text, views_padding


def _base_name(tensor: object) -> str:
    """The name of a variable without scopes."""
    return source_text(tensor.source).rpartition("/")[2] if isinstance(tensor, Tensor) else str(tensor)


def _over(value: Any, axes: tuple[Axis, ...]) -> Any:
    """What a field is given as a family over `axes` holds it: over these alone, without idle symbols."""
    if isinstance(value, Index):
        return value.over(axes).without_idle_symbols()
    return value.over(axes) if isinstance(value, (Tensor, Condition)) else value


class TileMapping(NamedTuple):
    """Tiles given to the elements of a view, both over the same axes."""

    tensor: Tensor
    tile: Index


_config = jax.config

_WHOLE_NUMBER = object()
"""What a `Site` expects where a field is given another whole number each time."""

Site = tuple[CodeType, ComputeSet, Codelet, tuple[object, ...], tuple[object, ...], Columns, int, bool]
"""What an instruction of the user's, the call of `add_vertex` in a loop, say, did last.

The code that it is in; the compute set; the codelet; the names of the fields; for each field the layout of its tensor,
its static value or `_WHOLE_NUMBER`; the columns it added to; the number of the line; and whether x64 was on.
Known weakness: other settings of JAX, which one instruction hardly ever meets both ways, are not looked at again.
"""


def _has_dtype(kind: type) -> bool:
    """Whether values of a type are numbers or arrays of NumPy's, or Python numbers other than whole ones."""
    return kind in (float, bool, complex) or issubclass(kind, (np.generic, np.ndarray))


def _not_a_vertex(compute_set: object, codelet: object, unnamed: tuple[object, ...]) -> FieldTypeError:
    """What is wrong with the positional arguments of `add_vertex`."""
    if isinstance(compute_set, Codelet) and not isinstance(codelet, Codelet):
        return FieldTypeError(
            "a vertex is given its codelet before its compute set",
            given=f"add_vertex({compute_set.name}, {codelet!r:.40}, ...)",
            expected="add_vertex(compute_set, codelet, field=..., ...)",
        )
    if not isinstance(codelet, Codelet):
        return FieldTypeError(
            "a vertex needs a codelet",
            given=f"{codelet!r:.80}",
            expected="a function decorated with @cl.codelet",
            fix="decorate it, or write cl.codelet(...) around it" if callable(codelet) else None,
        )
    names = [*codelet.inputs[: len(unnamed)], *["..."] * (len(unnamed) - len(codelet.inputs))]
    return FieldTypeError(
        f"the fields of codelet {codelet.name!r} are given by place",
        given=f"{len(unnamed)} after the codelet: {unnamed[0]!r:.60}, ..."[: None if unnamed[1:] else -5],
        expected="each field by its name",
        fix=f"add_vertex(compute_set, {codelet.name}, {', '.join(f'{name}=...' for name in names)})",
    )


class _Inside(threading.local):
    """The scopes and recordings that a thread is inside of."""

    def __init__(self) -> None:
        self.scope: list[str] = []
        self.recordings: list[Recording] = []


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
        if target is not None and not isinstance(target, Target):
            raise VariableError(
                "a graph's target is not a machine",
                given=repr(target),
                expected="cl.IPU(...), or another Target",
                fix=f"cl.IPU({target!r})"
                if isinstance(target, str)
                else f"cl.IPU(num_tiles={target})"
                if isinstance(target, int)
                else None,
            )
        self._target = target
        self._variables: dict[str, Variable] = {}
        self._compute_sets: dict[str, ComputeSet] = {}
        self._names: dict[str, Line | None] = {}
        self._next_element = 0
        self._families: list[Family | Columns] = []
        self._columns: dict[tuple[object, ...], Columns] = {}
        # By the identity of code, since equal code may be of different files; a line keeps its code alive.
        self._lines: list[Line] = []
        self._line_numbers: dict[tuple[int, int], int] = {}
        self._sites: dict[int, Site] = {}  # by the place of the instruction in its code; of two such places the last
        self._variants: dict[tuple[ComputeSet, Codelet], set[Hashable]] = {}
        self._tile_mappings: list[TileMapping] = []
        self._inside = _Inside()
        self._num_recordings = 0  # that any thread is inside of: mostly none, which is quicker to ask
        self._lock = threading.RLock()  # around all that counts, or looks for a name and then takes it
        self._streams: dict[str, Stream] = {}
        self._functions: list[Function] = []
        self._copied: dict[tuple[object, ...], tuple[Tensor, Tensor | Stream]] = {}
        self._num_tiles = 0  # known once a tile is checked, so that a target is asked for only then

    def __getstate__(self) -> dict[str, Any]:
        """A copy is built on outside of any scope or recording; lines of code are the user's, not the graph's."""
        kept = {name: held for name, held in self.__dict__.items() if name not in ("_inside", "_lock")}
        return {**kept, "_num_recordings": 0, "_line_numbers": {}, "_sites": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _inside=_Inside(), _lock=threading.RLock())

    # --- names ----------------------------------------------------------------------------------------

    @property
    def target(self) -> Target:
        """The machine the graph is for."""
        if self._target is None:
            self._target = default_target()
        return self._target

    @contextlib.contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Names given inside are prefixed with `name/`.

        Raises:
            VariableError: a name that is none.
        """
        if not isinstance(name, str) or not name:
            raise VariableError(
                "a scope's name is not a name", given=repr(name), expected="a string that is not empty", fix="str(name)"
            )
        scope = self._inside.scope
        scope.append(name)
        try:
            yield
        finally:
            scope.pop()

    def _scoped(self, name: str) -> str:
        return "/".join([*self._inside.scope, name])

    def _claim(self, name: str, what: str) -> str:
        """The full name of a new thing, which no other may have."""
        if not isinstance(name, str) or not name:
            raise VariableError(
                f"a {what}'s name is not a name", given=repr(name), expected="a string that is not empty"
            )
        full = self._scoped(name)
        if full in self._names:
            before, now = self._names[full], user_line()
            hint = "use another name, or `with graph.scope(...)`"
            if before is not None and now is not None and before == now:
                hint = (
                    "the same line ran twice, as a notebook cell does: make a new Graph in that cell first, or " + hint
                )
            raise DuplicateNameError(
                f"the name {full!r} is used twice in one graph",
                given=f"a {what}",
                expected=f"a name other than that given at {before}",
                fix=hint,
            )
        self._names[full] = user_line()
        return full

    def _free_name(self, name: str) -> str:
        """`name`, or `name_2`, `name_3`, ..., whichever is free."""
        if self._scoped(name) not in self._names:
            return name
        number = 2
        while self._scoped(f"{name}_{number}") in self._names:
            number += 1
        return f"{name}_{number}"

    # --- variables ------------------------------------------------------------------------------------

    def _new_variable(self, name: str, shape: object, dtype: object, value: np.ndarray | None, what: str) -> Tensor:
        whose = f"{what} {name!r}"
        extents, canonical = checked_shape(shape, whose), checked_dtype(dtype, whose)
        with self._lock:
            full = self._claim(name, what)
            variable = Variable(self, full, extents, canonical, len(self._variables), self._next_element, value)
            self._variables[full] = variable
            self._next_element += variable.size + 1
        return Tensor(variable, row_major(extents))

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

    def add_constant(self, name: str, value: object, dtype: object = None) -> Tensor:
        """Add an array that never changes, and return a view of all of it.

        Args:
            name: unique in the graph, together with the scopes it is added in.
            value: anything `jnp.asarray` takes, with the dtype it would give.
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
        key = (value.dtype.name, value.shape, value.tobytes())
        with self._lock:
            if key not in self._copied:
                self._copied[key] = self.add_constant(self._free_name("copied"), value), destination
        return self._copied[key][0]

    @property
    def variables(self) -> tuple[Variable, ...]:
        """All variables and constants, in the order in which they were added."""
        return tuple(self._variables.values())

    @property
    def num_elements(self) -> int:
        """The number of elements of all variables, with the number that is left out behind each."""
        return self._next_element

    def locate(self, element: int) -> tuple[Variable, int]:
        """The variable of an element, by the graph's number for it, and its flat position there."""
        at = bisect.bisect_right(self.variables, element, key=lambda variable: variable.first_element)
        found = self.variables[at - 1]
        return found, element - found.first_element

    def element_text(self, element: int) -> str:
        """An element as the user would write it: `y[3, 2]`."""
        found, position = self.locate(element)
        where = ", ".join(map(str, np.unravel_index(position, found.shape)))
        return f"{found.name}[{where}]"

    def variable(self, name: str) -> Tensor:
        """A view of all of a variable, by its full name.

        Raises:
            NotInGraphError: a name no variable has.
        """
        found = self._variables.get(name) if isinstance(name, str) else None
        if found is None:
            raise NotInGraphError(
                f"the graph has no variable {name!r:.80}",
                given=f"{name!r:.80}",
                expected=", ".join(self._variables) or "none: it has no variables",
            )
        return Tensor(found, row_major(found.shape))

    # --- compute sets and programs --------------------------------------------------------------------

    def add_compute_set(self, name: str) -> ComputeSet:
        """Add an empty compute set.

        Raises:
            DuplicateNameError: a name that is taken.
        """
        with self._lock:
            full = self._claim(name, "compute set")
            recording = self._inside.recordings[-1] if self._inside.recordings else None
            made = ComputeSet(self, full, len(self._compute_sets), self._names[full], recording)
            self._compute_sets[full] = made
        if recording is not None:
            recording.compute_sets.append(made)
        return made

    @property
    def compute_sets(self) -> tuple[ComputeSet, ...]:
        """All compute sets, in the order in which they were added."""
        return tuple(self._compute_sets.values())

    def _compute_set(self, given: object) -> ComputeSet:
        """A compute set from itself or its name; a new name makes one."""
        found = given
        if isinstance(given, str):
            found = self._compute_sets.get(self._scoped(given))
            if found is None:
                return self.add_compute_set(given)
        if not isinstance(found, ComputeSet):
            raise FieldTypeError(
                "a vertex is added to something else than a compute set",
                given=f"{given!r:.80}",
                expected="a compute set, or a name for one",
            )
        if found.graph is not self:
            raise ForeignGraphError(
                "a vertex is added to a compute set of another graph",
                given=found,
                expected="one of this graph: graph.add_compute_set, or a name",
            )
        if not self._is_open(found):
            raise ProgramError(
                f"a vertex is recorded into compute set {found.name!r}, which was made outside the recording",
                expected="compute sets that are made inside `with graph.record()`",
                fix="use another name, or `with graph.scope(...)` inside the recording",
            )
        return found

    def _is_open(self, compute_set: ComputeSet) -> bool:
        """Whether this thread may add vertices to a compute set: while it records, to those of the recording."""
        recordings = self._inside.recordings
        return not recordings or compute_set.recording is recordings[-1]

    @contextlib.contextmanager
    def record(self) -> Iterator[Recording]:
        """The compute sets made inside become a program: run them in the order in which they were made."""
        recording = Recording()
        recordings = self._inside.recordings
        recordings.append(recording)
        with self._lock:
            self._num_recordings += 1
        try:
            yield recording
        finally:
            recordings.pop()
            with self._lock:
                self._num_recordings -= 1

    def add_function(
        self, body: object, parameters: Mapping[str, Tensor] | Iterable[Tensor] = (), *, name: str | None = None
    ) -> Function:
        """Define a body once, to be called on different tensors by `Call`.

        Args:
            body: a program or a compute set. It may read and write other variables of the graph as well.
            parameters: the variables in it that stand for arguments: by the names that calls use, or in a list,
                and then by the variables' own names, without scopes.
            name: what it is called in print.

        Raises:
            DuplicateNameError: a name that is taken.
            ProgramError: a parameter that is no variable, or two that are one.
            ForeignGraphError: something of another graph.

        Source: Graph::addFunction of Poplar's API reference.
        """
        program = as_program(body)
        check_program(program, self)
        if isinstance(parameters, (str, Tensor)) or not isinstance(parameters, Iterable):
            raise ProgramError(
                "the parameters of a function are no list",
                given=f"{parameters!r:.80}",
                expected="a list of variables, [x, y], or a dict of them by name",
            )
        named: dict[str, Tensor] = {}
        if isinstance(parameters, Mapping):
            named.update(parameters)  # type: ignore[arg-type]
        else:
            listed = list(parameters)
            names = [_base_name(tensor) for tensor in listed]
            if len(set(names)) < len(names):
                raise ProgramError("two parameters of a function have one name", given=names, expected="a dict by name")
            named.update(zip(names, listed, strict=True))
        for name_of, parameter in named.items():
            if not isinstance(name_of, str):
                raise ProgramError("a parameter's name is no name", given=f"{name_of!r:.80}", expected="a string")
            is_variable = isinstance(parameter, Tensor) and parameter.is_whole_variable
            if not is_variable or parameter.source.value is not None:  # type: ignore[union-attr]
                raise ProgramError("a parameter of a function is no variable", given=parameter, expected="a variable")
            own_tensor(self, parameter)
        if len({tensor.source for tensor in named.values()}) < len(named):
            raise ProgramError("two parameters of a function are one variable", given=", ".join(named))
        with self._lock:
            full = self._claim(self._free_name("function") if name is None else name, "function")
            function = Function(self, full, program, named)
            self._functions.append(function)
        return function

    def _new_stream(self, name: str, shape: tuple[int, ...] | int, dtype: object, is_input: bool) -> Stream:
        what = "input stream" if is_input else "output stream"
        extents, canonical = checked_shape(shape, f"{what} {name!r}"), checked_dtype(dtype, f"{what} {name!r}")
        with self._lock:
            stream = Stream(self, self._claim(name, what), extents, canonical, is_input)
            self._streams[stream.name] = stream
        return stream

    def add_input_stream(self, name: str, shape: tuple[int, ...] | int, dtype: object = jnp.float32) -> Stream:
        """Add a stream of values from the host: each copy from it takes the next.

        Args:
            name: unique in the graph, together with the scopes it is added in.
            shape: the shape of one value.
            dtype: anything `jnp.dtype` takes.

        Raises:
            DuplicateNameError: a name that is taken.
            VariableError: a shape or dtype that is none.

        Source: Graph::addHostToDeviceFIFO of Poplar's API reference.
        """
        return self._new_stream(name, shape, dtype, True)

    def add_output_stream(self, name: str, shape: tuple[int, ...] | int, dtype: object = jnp.float32) -> Stream:
        """Add a stream of values to the host: each copy to it sends one. The arguments are as of `add_input_stream`.

        Source: Graph::addDeviceToHostFIFO of Poplar's API reference.
        """
        return self._new_stream(name, shape, dtype, False)

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
        """All compute sets in the order in which they were added: what runs when no program is given."""
        return Sequence(*self.compute_sets)

    # --- vertices -------------------------------------------------------------------------------------

    def add_vertex(
        self, compute_set: ComputeSet | str, codelet: Codelet, /, *unnamed: Never, tile: object = None, **fields: Any
    ) -> Any:
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
            raise _not_a_vertex(compute_set, codelet, unnamed)
        frame = sys._getframe(1)
        if (site := self._sites.get(frame.f_lasti)) is not None:
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
                and (not self._num_recordings or self._is_open(its_set))
            ):
                row = []
                for kind, value in zip(expected, fields.values()):  # noqa: B905 - as many, and it takes longer to say so
                    if type(value) is Tensor:
                        if value.layout is not kind:
                            break
                        row.append(value.offset)
                    elif type(value) is int and kind is _WHOLE_NUMBER:
                        row.append(value)
                    elif value is not kind:
                        break
                else:
                    if tile is not None:
                        row.append(tile)
                    if (tile is None or (type(tile) is int and 0 <= tile < self._num_tiles)) and (
                        _config.jax_enable_x64 is x64  # type: ignore[attr-defined]
                    ):
                        if line != columns.line:
                            with self._lock:
                                columns.begin_line(line)
                        columns.integers.fromlist(row)
                        return None
        with self._lock:
            return self._add(compute_set, codelet, tile, fields, frame)

    def _add(
        self,
        compute_set: ComputeSet | str,
        codelet: Codelet,
        tile: object,
        fields: Mapping[str, Any],
        frame: FrameType,
    ) -> Any:
        """Add a vertex to the columns of those like it, the first of its kind to new ones; or a family."""
        if type(compute_set) is not ComputeSet or compute_set.graph is not self or self._num_recordings:
            compute_set = self._compute_set(compute_set)
        key: list[object] = [compute_set, codelet.frozen(), tile is None, trace_settings()]
        row: list[int] = []
        objects: list[object] = []
        expected: list[object] = []
        for name, value in fields.items():
            kind = type(value)
            if kind is Tensor:
                layout = value.layout or value.find_layout()
                if layout is not None:
                    key += (name, layout)
                    row.append(value.offset)
                elif value.axes:
                    break
                else:
                    key += (name, value.source, value.shape)
                    objects.append(value)
                expected.append(layout)
            elif name in codelet.static:
                try:
                    key += (name, static_key(value))
                except TypeError:  # one that cannot be hashed: the full check words it
                    break
                expected.append(value)
            elif kind is int:
                key += (name, int)
                row.append(value)
                expected.append(_WHOLE_NUMBER)
            elif _has_dtype(kind):
                key += (name, kind, np.shape(value), getattr(value, "dtype", kind))
                objects.append(value.copy() if kind is np.ndarray else value)
                expected.append(None)
            else:
                break
        else:
            if isinstance(tile, np.integer):
                tile = int(tile)
            if tile is None or type(tile) is int:
                columns = self._columns.get(tuple(key)) or self._new_columns(tuple(key), fields, frame)
                if columns is not None:
                    for name in columns.padded_outputs:
                        check_no_padding(codelet, name, fields[name])
                    if tile is not None and not 0 <= tile < self._num_tiles:
                        self._check_tile(tile, tile)
                    line = self._number_line(frame)
                    columns.add(row if tile is None else [*row, tile], objects, line)
                    if None not in expected and not columns.padded_outputs:
                        names = tuple(fields)
                        x64 = columns.codelet.settings[0]
                        site = frame.f_code, compute_set, codelet, names, tuple(expected), columns, line, x64
                        self._sites[frame.f_lasti] = site
                    return None
        return self._add_family(compute_set, codelet, tile, fields, frame)

    def _number_line(self, frame: FrameType) -> int:
        """The number of the line that a frame is at."""
        number = self._line_numbers.setdefault((id(frame.f_code), frame.f_lineno), len(self._lines))
        if number == len(self._lines):
            self._lines.append(Line(frame.f_code, frame.f_lineno))
        return number

    def _check_tile(self, low: int, high: int) -> None:
        self._num_tiles = self.target.num_tiles
        if low < 0 or high >= self._num_tiles:
            raise TileError(
                "a tile does not exist",
                given=low if low < 0 else high,
                expected=f"0 to {self._num_tiles - 1}, on {self.target}",
                fix=f"for each i of n, `i % {self._num_tiles}` deals them out to the tiles in turn, and "
                f"`i * {self._num_tiles} // n` in blocks",
            )

    def _count_variant(self, compute_set: ComputeSet, traced: TracedCodelet, frame: FrameType) -> None:
        """Note the static values of vertices, and warn where there are too many to compile a family for each."""
        if not traced.static:
            return
        met = self._variants.setdefault((compute_set, traced.codelet), set())
        if traced.variant in met:
            return
        met.add(traced.variant)
        if len(met) == MANY_VARIANTS + 1:
            text = static_families_text(traced, compute_set.name, MANY_VARIANTS, Line(frame.f_code, frame.f_lineno))
            place = frame.f_code.co_filename, frame.f_lineno, frame.f_globals.get("__name__")
            warnings.warn_explicit(text, StaticFamiliesWarning, *place)

    def _new_columns(self, key: tuple[object, ...], fields: Mapping[str, Any], frame: FrameType) -> Columns | None:
        """Columns for vertices of a new kind; None when an output is left off, so that one must be made."""
        compute_set, codelet = key[0], key[1]
        assert isinstance(compute_set, ComputeSet)
        assert isinstance(codelet, Codelet)
        traced, connected = connect(self, codelet, fields, ())
        self._count_variant(compute_set, traced, frame)
        if any(name not in fields for name in traced.outputs):
            return None
        by_name = {field.name: field for field in connected}
        has_tile = not key[2]
        columns = Columns(compute_set, traced, [by_name[name] for name in fields if name in by_name], has_tile)
        self._columns[key] = columns
        self._families.append(columns)
        return columns

    def _add_family(
        self,
        compute_set: ComputeSet,
        codelet: Codelet,
        tile: object,
        fields: Mapping[str, Any],
        frame: FrameType,
    ) -> Any:
        place = self._tile_index(tile) if tile is not None else None
        # A symbol brings its whole grid: an axis that no field uses still multiplies the vertices.
        varying = [value for value in (*fields.values(), place) if isinstance(value, (Tensor, Index, Condition))]
        axes = whole_grids(axis for value in varying for axis in value.axes)
        fields = {name: _over(value, axes) for name, value in fields.items()}
        place = _over(place, axes)
        traced, connected = connect(self, codelet, fields, axes)
        self._count_variant(compute_set, traced, frame)
        extents = tuple(axis.extent for axis in axes)
        if place is not None:
            if place.shape:
                if place.shape != extents:
                    raise TileError(
                        "an array of tiles does not fit the grid",
                        given=f"shape {place.shape}",
                        expected=f"shape {extents}",
                    )
                place = place.bound(axes)
            if (ends := place.bounds()) is not None:
                self._check_tile(*ends)
        made = {}
        for name, kind in traced.outputs.items():
            if name not in fields:
                if kind.is_ragged:
                    raise MissingFieldError(
                        f"codelet {codelet.name!r} was given nothing for {name!r}, whose length depends on the vertex",
                        given=str(kind),
                        expected="a ragged view of a variable to write to",
                    )
                label = compute_set.name.removeprefix("/".join([*self._inside.scope, ""])) + "/" + name
                variable = self.add_variable(self._free_name(label), (*extents, *kind.shape), kind.dtype)
                made[name] = variable
                tensor = Tensor(variable.source, variable.index.bound(axes))
                connected.append(Field(name, "out", FieldType(kind.shape, kind.dtype), tensor))
        by_name = {field.name: field for field in connected}
        names = symbol_names(axes, frame.f_locals)
        family = Family(
            compute_set,
            traced,
            axes,
            names.of_axes,
            tuple(by_name[name] for name in traced.field_names),
            place,
            (Line(frame.f_code, frame.f_lineno),),
            inside=names.of_symbols,
        )
        if family.num_vertices:
            self._families.append(family)
        return None if not made else next(iter(made.values())) if len(made) == 1 else made

    def _tile_index(self, tile: object) -> Index:
        index = as_index(tile)
        if index is None:
            raise TileError(
                "a tile is not a whole number",
                given=repr(tile),
                expected="an integer, an index expression, or an integer array over the grid",
            )
        return index

    @property
    def families(self) -> tuple[Family, ...]:
        """All vertices, as families, in the order in which their first vertices were added."""
        entries = [entry for entry in self._families if entry.num_vertices]
        return tuple(self._gathered(entry) if isinstance(entry, Columns) else entry for entry in entries)

    def _gathered(self, columns: Columns) -> Family:
        """The family of vertices added one at a time, once the numbers in their columns are known to fit."""
        family = columns.family(self._lines)
        for field in family.fields:
            if field.state is not None and field.state.index is not None:
                with restored(family.codelet.settings):
                    check_fits(family.codelet.codelet, field.name, field.state.index, family.lines[0])
        return family

    @property
    def num_vertices(self) -> int:
        """The exact number of vertices."""
        return sum(entry.num_vertices for entry in self._families)

    @property
    def num_edges(self) -> int:
        """The exact number of edges: maximal runs of consecutive elements of one variable, in fields' order."""
        return sum(count_edges(family) for family in self.families)

    # --- tiles ----------------------------------------------------------------------------------------

    def set_tile_mapping(self, tensor: Tensor | str, tile: object) -> None:
        """Say on which tiles the elements of a view live. Later mappings of an element replace earlier ones.

        Args:
            tensor: a view, which may depend on symbols, or the name of a variable.
            tile: a tile number, an index expression over the view's symbols, or an integer array of the
                view's shape.

        Raises:
            TileError: a tile that does not exist, an array that does not fit, something that is no tensor, or a view
                of padding.
        """
        if isinstance(tensor, str):
            tensor = self.variable(tensor)
        if not isinstance(tensor, Tensor):
            raise TileError(
                "what is mapped to tiles is not a tensor",
                given=repr(tensor),
                expected="what graph.add_variable or graph.variable returns, or a view of it",
            )
        own_tensor(self, tensor)
        index = self._tile_index(tile)
        named = {symbol for axis in tensor.axes for symbol in (axis, *axis.ancestors)}
        stray = set(index.axes) - {axis for symbol in named for axis in (symbol, *symbol.grid.axes)}
        if stray:
            raise TileError(
                "a tile mapping has a symbol that its tensor does not have",
                given=f"{index} for {tensor}",
                expected="symbols of the view that is mapped",
                fix="map a view by the symbol, as in graph.set_tile_mapping(x[i], i // 4)",
            )
        axes = common_axes((*tensor.axes, *index.axes))
        tensor, index = tensor.over(axes), index.over(axes).without_idle_symbols()
        if tensor.rows is not None and not index.shape:
            shape: list[int] = [1] * tensor.ndim
            shape[tensor.ragged_dimension] = tensor.rows.total
            index = index.spread(tensor.rows).rekeyed({0: tensor.ragged_dimension}, tuple(shape))
            index = index.broadcast_to(tensor.shape)
        if index.shape not in ((), tensor.shape):
            raise TileError(
                "a tile mapping does not fit its tensor",
                given=f"an array of shape {index.shape}",
                expected=f"a tile, or an array of shape {tensor.shape}: a tile for each element",
            )
        if views_padding(tensor):
            raise TileError(
                "a tile mapping names padding, which is an element of no variable and lives nowhere",
                given=tensor,
                expected="a view of elements of variables alone",
                fix="map the tensor that was padded",
            )
        if (ends := index.bounds()) is not None:
            self._check_tile(*ends)
        self._tile_mappings.append(TileMapping(tensor, index.broadcast_to(tensor.shape)))

    def tile_mapping(self) -> np.ndarray:
        """The tile of every element, by the graph's element number; -1 where none is given."""
        tiles = np.full(self._next_element, -1, np.int32)
        for tensor, tile in self._tile_mappings:
            axes = union_axes([tensor.index.axes, tile.axes])
            keys, source = (*axes, *range(tensor.ndim)), tensor.source
            if (
                isinstance(source, Variable)
                and tensor.size
                and tensor.index.is_one_to_one
                and axes == tensor.index.axes
            ):
                own = tiles[source.first_element : source.first_element + source.size]
                tensor.index.strided_view(own, keys)[...] = tile.values_over(keys, np.int32)
            else:
                tiles[tensor.elements(axes)] = tile.values_over(keys, np.int32)
        for constant, destination in self._copied.values():
            own = constant.elements()
            if self._tile_mappings and (tiles[own] < 0).all():
                first = destination.elements().reshape(-1)[:1] if isinstance(destination, Tensor) else []
                tiles[own] = max(0, *tiles[first], 0)
        return tiles

    @property
    def has_tile_mapping(self) -> bool:
        """Whether any element was given a tile."""
        return bool(self._tile_mappings)

    # --- looking inside -------------------------------------------------------------------------------

    def vertices(self) -> Iterator[Any]:
        """All vertices, one small `Vertex` at a time, made on demand."""
        for family in self.families:
            yield from family_vertices(family)

    def edges(self) -> Iterator[Any]:
        """All edges, one small `Edge` at a time, made on demand."""
        for vertex in self.vertices():
            yield from vertex.edges()

    def vertex(self, compute_set: ComputeSet | str, number: int | None = None, /, **symbols: int) -> Any:
        """One vertex of a compute set: by the values of its symbols, or by its number.

        Args:
            compute_set: the compute set or its full name.
            number: its place among all vertices of the compute set, in the order they were added.
            symbols: the value of every symbol of the grid, by the name it has where the vertices are added.

        Raises:
            NotInGraphError: there is no such vertex, or more than one.
        """
        return find_vertex(self, compute_set, number, symbols)

    def writers(self, tensor: Tensor) -> list[Any]:
        """The vertices that write any element of a view."""
        return list(touching_vertices(self, own_tensor(self, tensor), written=True))

    def readers(self, tensor: Tensor) -> list[Any]:
        """The vertices that read any element of a view."""
        return list(touching_vertices(self, own_tensor(self, tensor), written=False))

    def __str__(self) -> str:
        vertices = counted(self.num_vertices, "vertex", "vertices")
        edges = counted(self.num_edges, "edge", "edges")
        sets = counted(len(self._compute_sets), "compute set", "compute sets")
        rows = [f"graph of {vertices} and {edges} in {sets}, for {self.target}"]
        rows += [f"{'constant' if v.value is not None else 'variable'} {v!r}" for v in self.variables]
        rows += [f"{'input' if s.is_input else 'output'} stream {s.name}: {s.type_text}" for s in self.streams]
        rows += [str(family) for family in self.families]
        rows += [str(function) for function in self.functions]
        return "\n".join(rows)

    def __repr__(self) -> str:
        return f"<Graph: {self.num_vertices:,} vertices, {len(self._variables)} variables>"

    def _repr_html_(self) -> str:
        rows = [(f.compute_set.name, f.codelet.name, f.num_vertices) for f in self.families]
        table = as_table(("compute set", "codelet", "vertices"), rows)
        return as_html(f"{self.num_vertices:,} vertices, {self.num_edges:,} edges", table, {"in full": self})
