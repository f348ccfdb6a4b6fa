"""Programs in files: a table in which each stands behind those that it is made of, which it names by their numbers.

A program that is at several places is written once, and is one object again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from codelet.errors import ProgramError
from codelet.jaxprs.plain import NotPlainError, Plain, check_form, listed, text, whole
from codelet.programs.compute_sets import ComputeSet
from codelet.programs.control import If, Repeat, RepeatWhile, Revolve, Switch
from codelet.programs.copies import Copy, Stream
from codelet.programs.functions import Call, Function
from codelet.programs.program import Execute, Program, Recording
from codelet.programs.program import Sequence as ProgramSequence
from codelet.programs.tensor_steps import AbortOn, Print, WriteUndef
from codelet.saved.saved_lines import LineReader, LineWriter
from codelet.views.tensor import Tensor

if TYPE_CHECKING:
    from codelet.saved.view_forms import ViewReader, ViewWriter

MOST_STEPS = 1 << 24
"""Steps that a program has where everything that is at several places counts as often."""


# --- writing ----------------------------------------------------------------------------------------------------


class ProgramWriter:
    """Writes programs.

    Args:
        views: writes tensors.
        lines: writes lines.
        recordings: those of the graph.
        functions: those of the graph, which programs call.
        streams: those of the graph.
    """

    def __init__(
        self,
        views: ViewWriter,
        lines: LineWriter,
        recordings: Sequence[Any],
        functions: Sequence[Function],
        streams: Sequence[Stream],
    ):
        self._views, self._lines = views, lines
        self._recordings = {id(item): k for k, item in enumerate(recordings)}
        self._functions = {item: k for k, item in enumerate(functions)}
        self._streams = {item: k for k, item in enumerate(streams)}
        self.plain: list[Plain] = []
        self._numbers: dict[int, tuple[int, Program]] = {}

    def program(self, program: Program) -> int:
        """The number of a program."""
        if id(program) not in self._numbers:
            item = self._one(program)
            line = None if isinstance(program, Recording) else self._lines.number(program.line)
            self._numbers[id(program)] = len(self.plain), program
            self.plain.append([*item, line])
        return self._numbers[id(program)][0]

    def side(self, side: Tensor | Stream) -> Plain:
        """One side of a copy."""
        return ["stream", self._streams[side]] if isinstance(side, Stream) else ["view", self._views.tensor(side)]

    def _one(self, program: Program) -> list[Plain]:
        item, tensor = self.program, self._views.tensor
        match program:
            case Execute(compute_set):
                return ["execute", [compute_set.number]]
            case Recording():
                return ["recording", [self._recordings[id(program)]]]
            case Copy(source, destination):
                return ["copy", [self.side(source), self.side(destination)]]
            case ProgramSequence(programs):
                return ["sequence", list(map(item, programs))]
            case Repeat(count, body, index, recompute):
                retained = ["revolve", recompute.snapshots] if isinstance(recompute, Revolve) else recompute
                return ["repeat", [count, item(body), None if index is None else tensor(index), retained]]
            case RepeatWhile(condition, predicate, body, until, most, turns, bound):
                return ["while", [item(condition), tensor(predicate), item(body), until, most, turns, bound]]
            case If(predicate, then, otherwise):
                return ["if", [tensor(predicate), item(then), item(otherwise)]]
            case Switch(control, cases, default):
                return ["switch", [tensor(control), [[k, item(case)] for k, case in cases.items()], item(default)]]
            case Call(function, arguments):
                return ["call", [self._functions[function], [[k, tensor(view)] for k, view in arguments.items()]]]
            case Print(view, label):
                return ["print", [tensor(view), label]]
            case AbortOn(predicate, message):
                return ["abort", [tensor(predicate), message]]
            case WriteUndef(view):
                return ["undefine", [tensor(view)]]
        raise NotPlainError(f"a program of the kind {type(program).__name__}")


# --- reading ----------------------------------------------------------------------------------------------------


class ProgramReader:
    """Reads programs, by the classes that users make them of.

    Args:
        plain: as `ProgramWriter` wrote it.
        views: reads tensors.
        lines: reads lines.
        compute_sets: those of the graph.
        recordings: those of the graph.
        streams: those of the graph.

    Attributes:
        functions: those of the graph that were read so far; calls name these.
    """

    def __init__(
        self,
        plain: Plain,
        views: ViewReader,
        lines: LineReader,
        compute_sets: Sequence[ComputeSet],
        recordings: Sequence[Recording],
        streams: Sequence[Stream],
    ):
        self._plain, self._views, self._lines = listed(plain), views, lines
        self._compute_sets, self._recordings, self._streams = compute_sets, recordings, streams
        self.functions: list[Function] = []
        self._programs: list[Program] = []
        self._steps: list[int] = []
        self._readers: Mapping[str, Callable[..., Program]] = {
            "execute": lambda number: Execute(self._compute_sets[whole(number, 0, len(self._compute_sets) - 1)]),
            "recording": lambda number: self._recordings[whole(number, 0, len(self._recordings) - 1)],
            "copy": lambda source, destination: Copy(self.side(source), self.side(destination)),
            "sequence": lambda *programs: ProgramSequence(*map(self._part, programs)),
            "repeat": self._repeat,
            "while": self._while,
            "if": lambda predicate, then, otherwise: If(
                self._views.tensor(predicate), self._part(then), self._part(otherwise)
            ),
            "switch": self._switch,
            "call": self._call,
            "print": lambda view, label: Print(self._views.tensor(view), None if label is None else text(label)),
            "abort": lambda predicate, message: AbortOn(self._views.tensor(predicate), text(message)),
            "undefine": lambda view: WriteUndef(self._views.tensor(view)),
        }

    def program(self, number: Plain) -> Program:
        """A program by its number: those before it are read first."""
        place = whole(number, 0, len(self._plain) - 1)
        while len(self._programs) <= place:
            self._read(self._plain[len(self._programs)])
        return self._programs[place]

    def _read(self, plain: Plain) -> None:
        kind, parts, line = listed(plain, 3)
        check_form(text(kind) in self._readers, f"the kind of program {kind!r:.40}")
        self._inside = 1
        try:
            program = self._readers[kind](*listed(parts))
        except ProgramError as error:
            check_form(False, f"a program: {str(error).splitlines()[0]:.200}")
            raise
        check_form(self._inside <= MOST_STEPS, "a program of too many steps")
        if not isinstance(program, Recording):
            object.__setattr__(program, "line", self._lines.line(line))
        self._steps.append(self._inside)
        self._programs.append(program)

    def _part(self, number: Plain) -> Program:
        place = whole(number, 0, len(self._programs) - 1)
        self._inside += self._steps[place]
        return self._programs[place]

    def side(self, plain: Plain) -> Tensor | Stream:
        """One side of a copy."""
        kind, item = listed(plain, 2)
        if kind == "stream":
            return self._streams[whole(item, 0, len(self._streams) - 1)]
        check_form(kind == "view", "a side of a copy")
        return self._views.tensor(item)

    def _repeat(self, count: Plain, body: Plain, index: Plain, recompute: Plain) -> Program:
        retained: Any = recompute
        if type(recompute) is list:
            word, number = listed(recompute, 2)
            check_form(word == "revolve", "how a loop is differentiated")
            retained = Revolve(whole(number))
        view = None if index is None else self._views.tensor(index)
        return Repeat(whole(count), self._part(body), index=view, recompute=retained)

    def _while(
        self, condition: Plain, predicate: Plain, body: Plain, until: Plain, most: Plain, turns: Plain, bound: Plain
    ) -> Program:
        check_form(all(item is None or type(item) is int for item in (most, turns, bound)), "the bounds of a loop")
        condition_, view = self._part(condition), self._views.tensor(predicate)
        loop = RepeatWhile(condition_, view, self._part(body), until=until, max_iterations=most, trip_count=turns)
        return loop.told(bound)

    def _switch(self, control: Plain, cases: Plain, default: Plain) -> Program:
        pairs = [listed(item, 2) for item in listed(cases)]
        read = {whole(value, -(1 << 62)): self._part(body) for value, body in pairs}
        check_form(len(read) == len(pairs), "a case that is there twice")
        return Switch(self._views.tensor(control), read, self._part(default))

    def _call(self, function: Plain, arguments: Plain) -> Program:
        called = self.functions[whole(function, 0, len(self.functions) - 1)]
        pairs = [listed(item, 2) for item in listed(arguments)]
        views = {text(name, 1000): self._views.tensor(view) for name, view in pairs}
        check_form(len(views) == len(pairs), "an argument that is there twice")
        return Call(called, **views)
