"""The mistakes a user can make, one class for each, and the one form of their messages.

Every message states the mistake, the offending value, a valid value, a fix, and the user's line. A bug of codelet
itself is an assertion, never one of these.
"""

from __future__ import annotations

import contextlib
import linecache
import pickle
import sys
import threading
from collections.abc import Iterator
from pathlib import Path, PurePath
from types import CodeType, FrameType
from typing import Any, NamedTuple

__all__ = [
    "ArrayError",
    "CapturedTracerError",
    "CheckpointError",
    "CodeletDefinitionError",
    "CodeletError",
    "CodeletTraceError",
    "CollectiveError",
    "DrawError",
    "DuplicateNameError",
    "EngineInUseError",
    "FieldTypeError",
    "FileError",
    "FileFormatError",
    "ForeignGraphError",
    "GradientError",
    "MissingExtraError",
    "MissingFieldError",
    "ModelError",
    "NotEqualError",
    "NotFiniteError",
    "NotInGraphError",
    "OneVertexWarning",
    "OperationError",
    "OutOfBoundsError",
    "OutOfInterleavedMemoryError",
    "OutOfTileMemoryError",
    "PlacementError",
    "ProcessesError",
    "ProgramAbortedError",
    "ProgramError",
    "ReadWriteRaceError",
    "SavingError",
    "SelfAliasError",
    "SizeError",
    "StateLostError",
    "StaticFamiliesWarning",
    "StreamError",
    "SymbolError",
    "TensorError",
    "TileError",
    "TraceError",
    "UndecidedWarning",
    "UninitializedReadError",
    "UnknownFieldError",
    "UnnamedError",
    "VariableError",
    "ViewError",
    "WriteRaceError",
]


class SavedLine(NamedTuple):
    """A line of the user's program after pickling, without its code object."""

    place: str
    text: str


class Line(NamedTuple):
    """A line of the user's program: its code object and line number, cheap enough to store for every vertex."""

    code: CodeType | SavedLine
    number: int

    @property
    def text(self) -> str:
        """The source of the line, stripped; empty where the source is not at hand."""
        if isinstance(self.code, SavedLine):
            return self.code.text
        return linecache.getline(self.code.co_filename, self.number).strip()

    @property
    def place(self) -> str:
        """The file, or the notebook's cell, and the number of the line."""
        if isinstance(self.code, SavedLine):
            return self.code.place
        cell = _notebook_cell(self.code.co_filename)
        return f"{self.code.co_filename}:{self.number}" if cell is None else f"{cell}, line {self.number}"

    @property
    def written_place(self) -> str:
        """The place without the folders of this machine, for files that others may read."""
        file, colon, number = self.place.rpartition(":")
        return f"{without_folders(file)}:{number}" if colon and number.isdigit() else self.place

    @property
    def written(self) -> str:
        """The line without the folders of this machine, for files that others may read."""
        return self._at(self.written_place)

    def __repr__(self) -> str:
        return f"<Line {self}>"

    def __str__(self) -> str:
        return self._at(self.place)

    def _at(self, place: str) -> str:
        return place + (f": {self.text}" if self.text else "")

    def __deepcopy__(self, memo: dict[int, object]) -> Line:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return Line, (SavedLine(self.written_place, self.text), self.number)


def written(line: Line | None) -> str:
    """A line for files that others may read; "" if it is unknown."""
    return "" if line is None else line.written


def without_folders(file: str) -> str:
    """The path of a source file relative to its installed package, or to the working directory; else its name."""
    if file.startswith("<") or not PurePath(file).is_absolute():
        return file
    path, folders = PurePath(file), sorted(filter(None, sys.path), key=len, reverse=True)
    installed = [own for own in folders if own.endswith("-packages")]  # site-packages, dist-packages
    for folder in (*installed, str(Path.cwd()), *folders):
        if path.is_relative_to(folder):
            return path.relative_to(folder).as_posix()
    return path.name


def _notebook_cell(filename: str) -> str | None:
    """IPython's name of the notebook cell that it runs as a file of this name; `None` for other files."""
    if "IPython" not in sys.modules:
        return None
    shell = sys.modules["IPython"].get_ipython()
    named = shell and shell.compile.format_code_name(filename)
    return " ".join(named) if named else None


_NOT_THE_USERS = ("codelet", "lowering", "ipu_backend", "jax", "equinox", "contextlib", "functools", "numpy")
"""The packages whose lines a user did not write: codelet's own, and those that call codelet on a user's behalf."""


def _is_the_users(frame: FrameType) -> bool:
    """True if a frame runs code of the user. Models that ship with codelet are written as a user writes."""
    module = frame.f_globals.get("__name__", "")
    return module.split(".")[0] not in _NOT_THE_USERS or module.startswith("codelet.models")


class _ThreadLine(threading.local):
    """The line that a thread works for, where it is not on the stack."""

    line: Line | None = None


_told = _ThreadLine()


@contextlib.contextmanager
def at_line(line: Line | None) -> Iterator[None]:
    """Attribute additions to a graph inside to this line of the user's; `None` changes nothing."""
    before = _told.line
    _told.line = before if line is None else line
    try:
        yield
    finally:
        _told.line = before


def user_line() -> Line | None:
    """The innermost line of the user's code on the stack, or the line of `at_line`."""
    if _told.line is not None:
        return _told.line
    frame = sys._getframe(1)
    while frame is not None:
        if _is_the_users(frame):
            return Line(frame.f_code, frame.f_lineno)
        frame = frame.f_back
    return None


_ADDING = "codelet.ops.", "codelet.graphs.operations", "codelet.graphs.graph"
"""Modules of operations, and of what calls them."""


def adding_line(frame: FrameType) -> Line:
    """The user's line for vertices that a frame adds: for an operation of codelet, the line of its caller."""
    if _told.line is not None:
        return _told.line
    caller: FrameType | None = frame
    while caller is not None and caller.f_globals.get("__name__", "").startswith(_ADDING):
        caller = caller.f_back
    found = frame if caller is None else caller
    return Line(found.f_code, found.f_lineno)


class CodeletError(Exception):
    r"""A mistake in the use of codelet. Its message has four parts, each omitted if unknown, and the user's line.

    Args:
        problem: the mistake, in one sentence.
        given: the offending value.
        expected: a valid value.
        fix: a correction, as code.
        line: the user's line. Default: the innermost line of the user's code on the stack.

    >>> import codelet as cl
    >>> try:
    ...     cl.IPU(8)
    ... except cl.CodeletError as error:
    ...     print("\n".join(str(error).splitlines()[:4]))
    there is no such chip
      given:    8
      expected: mk1, mk2, bow
      fix:      cl.IPU(num_tiles=8)
    """

    def __init__(
        self,
        problem: str,
        *,
        given: object = None,
        expected: object = None,
        fix: str | None = None,
        line: Line | None = None,
    ):
        self.problem = problem
        self.line = user_line() if line is None else line
        rows = [problem]
        for label, content in (("given", given), ("expected", expected), ("fix", fix), ("at", self.line)):
            if content is not None:
                text = str(content).replace("\n", "\n" + " " * 12)
                rows.append(f"  {label + ':':9} {text}")
        super().__init__("\n".join(rows))


class MissingExtraError(CodeletError, ImportError):
    """A library of an optional extra that is not installed."""


class DrawError(CodeletError, ValueError):
    """A picture with an invalid option."""


class SavingError(CodeletError, pickle.PicklingError):
    """Something that cannot be pickled or saved: it contains a function that has no name, or that no file can hold."""


# --- codelets -----------------------------------------------------------------------------------------


class CodeletDefinitionError(CodeletError, TypeError):
    """A function that cannot be a codelet: its parameters or their names do not fit."""


class CodeletTraceError(CodeletError, TypeError):
    """A codelet that JAX cannot trace for the shapes and dtypes of its fields."""


class CapturedTracerError(CodeletError, TypeError):
    """A codelet that closes over a value of an enclosing JAX transformation."""


# --- symbols and views --------------------------------------------------------------------------------


class SymbolError(CodeletError, TypeError):
    """A symbol used where a plain number is needed, or an index expression that cannot be formed."""


class ModelError(CodeletError, ValueError):
    """An invalid model file, or one with an unsupported operation."""


class ViewError(CodeletError, ValueError):
    """An invalid view: shapes that do not fit, or a slice of variable length."""


class TensorError(CodeletError, ValueError):
    """A tensor used as a number, before the program runs.

    It is a ValueError, as NumPy's for the boolean of an array. A TypeError would not reach the user, since JAX replaces
    the message of any that it catches.
    """


class UnnamedError(ViewError, AttributeError):
    """The name of a view that is not one whole variable."""


class OutOfBoundsError(ViewError, IndexError):
    """A view that reaches outside its tensor."""


class OperationError(CodeletError, ValueError):
    """An operation of `cl.ops` with shapes, dtypes, axes or options that do not fit."""


# --- vertices and graphs ------------------------------------------------------------------------------


class UnknownFieldError(CodeletError, TypeError):
    """A field that the codelet does not have."""


class MissingFieldError(CodeletError, TypeError):
    """A field of the codelet without a value."""


class FieldTypeError(CodeletError, TypeError):
    """A field whose value has another shape, dtype or kind."""


class TileError(CodeletError, ValueError):
    """A tile that the target does not have, or a tile mapping that does not fit its tensor."""


class PlacementError(CodeletError, ValueError):
    """Constraints on a placement that no placement meets."""


class StaticFamiliesWarning(UserWarning):
    """A codelet with so many static values in one compute set that compiling a family for each is slow."""


class TraceError(CodeletError, TypeError):
    """Something that cannot be traced as a graph."""


class NotEqualError(CodeletError, ArithmeticError):
    """A graph or lowered function that does not compute the same as the original program; see `cl.equal`."""


class UndecidedWarning(UserWarning):
    """An inconclusive check of equality; see `cl.equal`."""


class OneVertexWarning(UserWarning):
    """A primitive of a traced function without a tiling rule, which one vertex on one tile runs."""


class CollectiveError(CodeletError, NotImplementedError):
    """A traced function that communicates with other devices along a named axis."""


class DuplicateNameError(CodeletError, ValueError):
    """A name used twice in one graph."""


class ForeignGraphError(CodeletError, ValueError):
    """Something that belongs to another graph."""


class NotInGraphError(CodeletError, LookupError):
    """A name or a vertex that is not in the graph."""


class VariableError(CodeletError, ValueError):
    """A variable, constant or stream with an invalid name, shape, dtype or value."""


# --- programs and lowering ----------------------------------------------------------------------------


class ProgramError(CodeletError, ValueError):
    """An invalid program."""


class WriteRaceError(CodeletError, ValueError):
    """An element that two vertices of one compute set write."""


class ReadWriteRaceError(CodeletError, ValueError):
    """An element that one vertex writes and another of the same compute set reads."""


class SelfAliasError(CodeletError, ValueError):
    """An output field that names one element twice."""


class UninitializedReadError(CodeletError, RuntimeError):
    """An element that is read before it is written."""


class GradientError(CodeletError, ArithmeticError):
    """A gradient that differs from finite differences.

    Attributes:
        check: all findings, a `cl.GradientCheck`.
    """

    def __init__(self, problem: str, check: Any, **said: Any):
        super().__init__(problem, **said)
        self.check = check


# --- the machine --------------------------------------------------------------------------------------


class OutOfTileMemoryError(CodeletError, MemoryError):
    """A tile that needs more than its memory."""


class OutOfInterleavedMemoryError(OutOfTileMemoryError):
    """A tile that needs more interleaved memory than it has."""


class SizeError(CodeletError, MemoryError):
    """A computation too large for the memory of this computer, refused before it starts."""


# --- running ------------------------------------------------------------------------------------------


class ProgramAbortedError(CodeletError, RuntimeError):
    """A program that aborted, with the message of its `AbortOn`, or a loop that exceeded its `max_iterations`."""


class StreamError(CodeletError, RuntimeError):
    """A stream that is not connected, or that ends before the program is done."""


class ArrayError(CodeletError, ValueError):
    """Host data whose structure, shape or dtype does not fit the variable it is for."""


class NotFiniteError(CodeletError, FloatingPointError):
    """NaN or infinity in host data or results, with `check_finite`."""


class EngineInUseError(CodeletError, RuntimeError):
    """An engine used from a function that its run calls: one connected to a stream, or a codelet's callback."""


class StateLostError(CodeletError, RuntimeError):
    """A run that failed on the device while it was overwriting the engine's state."""


class ProcessesError(CodeletError, RuntimeError):
    """Processes that should run the same graph together and run different ones."""


class CheckpointError(CodeletError, ValueError):
    """A checkpoint that is missing, damaged, or of another graph."""


class FileError(CodeletError, OSError):
    """A file that cannot be written."""


class FileFormatError(CodeletError, ValueError):
    """A file that `cl.load` does not read: it is damaged, was not written by `cl.save`, or needs a newer release."""
