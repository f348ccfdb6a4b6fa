"""The mistakes a user can make, one class for each, and the one way in which all of them are worded.

Every message says what is wrong, what was given, what was expected, how to mend it, and which of the
user's lines it concerns. A bug of codelet's own is an assertion, never one of these.
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
    "PartlyMappedError",
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
    """What a line of the user's program was when it was pickled, in place of its code object."""

    place: str
    text: str


class Line(NamedTuple):
    """A line of the user's program: its code object and line number, cheap enough to keep for every vertex."""

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
        """The place as files have it that others may read: without the folders of this machine."""
        file, colon, number = self.place.rpartition(":")
        return f"{without_folders(file)}:{number}" if colon and number.isdigit() else self.place

    @property
    def written(self) -> str:
        """It as files have it that others may read."""
        return self._at(self.written_place)

    def __str__(self) -> str:
        return self._at(self.place)

    def _at(self, place: str) -> str:
        return place + (f": {self.text}" if self.text else "")

    def __deepcopy__(self, memo: dict[int, object]) -> Line:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return Line, (SavedLine(self.written_place, self.text), self.number)


def written(line: Line | None) -> str:
    """A line as files have it that others may read; "" where none is known."""
    return "" if line is None else line.written


def without_folders(file: str) -> str:
    """A source file from where its package is installed, or from the working directory; else its name."""
    if file.startswith("<") or not PurePath(file).is_absolute():
        return file
    path, folders = PurePath(file), sorted(filter(None, sys.path), key=len, reverse=True)
    installed = [own for own in folders if own.endswith("-packages")]  # site-packages, dist-packages
    for folder in (*installed, str(Path.cwd()), *folders):
        if path.is_relative_to(folder):
            return path.relative_to(folder).as_posix()
    return path.name


def _notebook_cell(filename: str) -> str | None:
    """What IPython calls the notebook cell that it runs as a file of this name; None for other files."""
    if "IPython" not in sys.modules:
        return None
    shell = sys.modules["IPython"].get_ipython()
    named = shell and shell.compile.format_code_name(filename)
    return " ".join(named) if named else None


_NOT_THE_USERS = ("codelet", "lowering", "ipu_backend", "jax", "equinox", "contextlib", "functools", "numpy")
"""The packages whose lines a user did not write: codelet's own, and those that call codelet on a user's behalf."""


def _is_the_users(frame: FrameType) -> bool:
    """Whether a user wrote what a frame runs. Models that ship with codelet are written as a user writes."""
    module = frame.f_globals.get("__name__", "")
    return module.split(".")[0] not in _NOT_THE_USERS or module.startswith("codelet.models")


class _ThreadLine(threading.local):
    """The line that a thread works for, where it is not on the stack."""

    line: Line | None = None


_told = _ThreadLine()


@contextlib.contextmanager
def at_line(line: Line | None) -> Iterator[None]:
    """What is added to a graph inside is of this line of the user's; None changes nothing."""
    before = _told.line
    _told.line = before if line is None else line
    try:
        yield
    finally:
        _told.line = before


def user_line() -> Line | None:
    """The innermost line on the stack that the user wrote, or the one that is told by `at_line`."""
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
    """Of a frame that adds vertices, the line they are of: of an operation of codelet's, its caller's."""
    if _told.line is not None:
        return _told.line
    caller: FrameType | None = frame
    while caller is not None and caller.f_globals.get("__name__", "").startswith(_ADDING):
        caller = caller.f_back
    found = frame if caller is None else caller
    return Line(found.f_code, found.f_lineno)


class CodeletError(Exception):
    """A mistake in the use of codelet.

    Args:
        problem: one sentence saying what is wrong.
        given: what the user gave.
        expected: what would have been right.
        fix: what to change.
        line: the line it concerns; the innermost line of the user's on the stack when left off.
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
    """A library that an extra brings and that is not installed."""


class DrawError(CodeletError, ValueError):
    """A picture that cannot be drawn as it was asked for."""


class SavingError(CodeletError, pickle.PicklingError):
    """Something that cannot be pickled, as it holds a function without a name to import it by."""


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
    """A file of a model that is none, or that has what nothing here computes."""


class ViewError(CodeletError, ValueError):
    """A view that cannot be formed: shapes that do not fit, or a slice of no fixed length."""


class TensorError(CodeletError, ValueError):
    """A tensor used as the numbers that it will hold when the program runs.

    NumPy raises a ValueError as well where an array is asked for one truth value. A TypeError would not reach the user:
    JAX words those that it meets itself.
    """


class UnnamedError(ViewError, AttributeError):
    """The name asked of a view that is not one whole variable."""


class OutOfBoundsError(ViewError, IndexError):
    """A view that reaches outside its tensor."""


class OperationError(CodeletError, ValueError):
    """An operation of `codelet.ops` given shapes, dtypes, axes or options that do not fit."""


# --- vertices and graphs ------------------------------------------------------------------------------


class UnknownFieldError(CodeletError, TypeError):
    """A field that the codelet does not have."""


class MissingFieldError(CodeletError, TypeError):
    """A field of the codelet that was given nothing."""


class FieldTypeError(CodeletError, TypeError):
    """A field whose shape, dtype or kind does not fit what it was given."""


class TileError(CodeletError, ValueError):
    """A tile that the target does not have, or a tile mapping that does not fit its tensor."""


class PartlyMappedError(CodeletError, ValueError):
    """A variable, or a graph, of which some elements have a tile and others have none."""


class StaticFamiliesWarning(UserWarning):
    """A codelet with so many static values in one compute set that compiling a family for each takes long."""


class TraceError(CodeletError, TypeError):
    """Something that cannot be traced as a graph."""


class NotEqualError(CodeletError, ArithmeticError):
    """What the library made of a program computes something else; see `cl.equal`."""


class UndecidedWarning(UserWarning):
    """Nothing can be said of whether two programs are equal, where that was to be checked; see `cl.equal`."""


class OneVertexWarning(UserWarning):
    """A primitive of a traced function that one vertex runs on one tile, since no rule spreads it."""


class CollectiveError(CodeletError, NotImplementedError):
    """A function, traced as a graph, that speaks to other devices along a named axis."""


class DuplicateNameError(CodeletError, ValueError):
    """A name used twice in one graph."""


class ForeignGraphError(CodeletError, ValueError):
    """Something that belongs to another graph."""


class NotInGraphError(CodeletError, LookupError):
    """A name or a vertex that is not in the graph."""


class VariableError(CodeletError, ValueError):
    """A variable or constant that cannot be made as asked."""


# --- programs and lowering ----------------------------------------------------------------------------


class ProgramError(CodeletError, ValueError):
    """A program that is not well formed."""


class WriteRaceError(CodeletError, ValueError):
    """An element that two vertices of one compute set write."""


class ReadWriteRaceError(CodeletError, ValueError):
    """An element that one vertex writes and another of the same compute set reads."""


class SelfAliasError(CodeletError, ValueError):
    """An output field that names one element twice."""


class UninitializedReadError(CodeletError, RuntimeError):
    """An element that is read before anything has given it a value."""


class GradientError(CodeletError, ArithmeticError):
    """A gradient that is not the slope of what is computed.

    Attributes:
        check: all that was found, a `GradientCheck`.
    """

    def __init__(self, problem: str, check: Any, **said: Any):
        super().__init__(problem, **said)
        self.check = check


# --- the machine --------------------------------------------------------------------------------------


class OutOfTileMemoryError(CodeletError, MemoryError):
    """A tile that would have to hold more than its memory."""


class OutOfInterleavedMemoryError(OutOfTileMemoryError):
    """A tile that would have to hold more in interleaved memory than it has of it."""


class SizeError(CodeletError, MemoryError):
    """Something that this computer's memory does not hold, told before it is tried."""


# --- running ------------------------------------------------------------------------------------------


class ProgramAbortedError(CodeletError, RuntimeError):
    """A program that aborted, with the message of its `AbortOn`, or a loop that went on beyond its `max_iterations`."""


class StreamError(CodeletError, RuntimeError):
    """A stream that is not connected, or that ends before the program is done."""


class ArrayError(CodeletError, ValueError):
    """Host data whose structure, shape or dtype does not fit the variable it is for."""


class NotFiniteError(CodeletError, FloatingPointError):
    """Host data or results that hold NaN or infinity where finiteness is checked."""


class EngineInUseError(CodeletError, RuntimeError):
    """An engine that is used by what it calls itself: by a function connected to a stream, or a codelet's callback."""


class StateLostError(CodeletError, RuntimeError):
    """A run that failed in the machine, and took values of the engine's state with it."""


class ProcessesError(CodeletError, RuntimeError):
    """Processes that are to run one graph together and do not run the same."""


class CheckpointError(CodeletError, ValueError):
    """A checkpoint that is not there, is damaged, or is of something else."""


class FileError(CodeletError, OSError):
    """A file that cannot be written where it was to be."""
