"""The lines of a file: where the user added things, each once, without the folders of the machine that wrote it."""

from __future__ import annotations

from codelet.errors import Line, SavedLine
from codelet.jaxprs.plain import Plain, listed, text, whole


class LineWriter:
    """Writes lines."""

    def __init__(self) -> None:
        self.plain: list[Plain] = []
        self._numbers: dict[tuple[str, str, int], int] = {}

    def number(self, line: Line | None) -> int | None:
        """The number of a line, if there is one."""
        if line is None:
            return None
        key = line.written_place, line.text, line.number
        if key not in self._numbers:
            self._numbers[key] = len(self.plain)
            self.plain.append(list(key))
        return self._numbers[key]


class LineReader:
    """Reads lines."""

    def __init__(self, plain: Plain):
        entries = [listed(item, 3) for item in listed(plain)]
        self._lines = [Line(SavedLine(text(place), text(words)), whole(k)) for place, words, k in entries]

    def line(self, number: Plain) -> Line | None:
        """A line by its number, if there is one."""
        return None if number is None else self._lines[whole(number, 0, len(self._lines) - 1)]
