"""Display: how things show themselves in a notebook, all in one style.

A heading, a table, and long parts folded away. There are no colours of its own, so that it can be read on light and on
dark.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence


class Text(str):
    """Text that shows as it is where a plain string would show quoted: as the last line of a cell, and at a prompt."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _cell(content: object, tag: str) -> str:
    is_number = isinstance(content, (int, float))
    text = f"{content:,}" if isinstance(content, int) else str(content)
    aligned = "right" if is_number else "left"
    return f"<{tag} style='text-align:{aligned}'>{html.escape(text)}</{tag}>"


def as_table(heads: Sequence[str], rows: Sequence[Sequence[object]], most: int = 40) -> str:
    """Rows as a table, numbers to the right; rows beyond the first `most` are counted."""
    lines = [heads, *rows[:most]]
    body = "".join(
        f"<tr>{''.join(_cell(content, 'th' if k == 0 else 'td') for content in line)}</tr>"
        for k, line in enumerate(lines)
    )
    more = f"<p>and {len(rows) - most:,} more</p>" if len(rows) > most else ""
    return f"<table>{body}</table>{more}"


def as_html(heading: str, table: str = "", folded: Mapping[str, object] | None = None) -> str:
    """A heading, a table, and texts that unfold, each under a word."""
    details = "".join(
        f"<details><summary>{html.escape(word)}</summary><pre>{html.escape(str(text))}</pre></details>"
        for word, text in (folded or {}).items()
    )
    return f"<b>{html.escape(heading)}</b>{table}{details}"


def in_one_line(thing: object, kind: str = "", most: int = 100) -> str:
    r"""A repr of one line of something whose text has several: the first, and how many more there are.

    Args:
        thing: with a text, `str(thing)`. A short text of one line stays as it is.
        kind: the kind of thing, where the text does not begin with it.
        most: how many characters of the first line are shown.

    >>> in_one_line("Repeat(3)")
    'Repeat(3)'
    >>> in_one_line("Repeat(3)\n  Execute(step)", "Program")
    '<Program: Repeat(3), and 1 more line>'
    """
    first, *rest = str(thing).split("\n")
    if not rest and 0 < len(first) <= most:
        return first
    shown = first if len(first) <= most else first[: most - 3] + "..."
    kind = "" if kind and first.startswith(kind) else kind
    more = f", and {len(rest)} more {'line' if len(rest) == 1 else 'lines'}" if rest else ""
    return f"<{kind}{': ' if kind else ''}{shown or 'empty'}{more}>"


def as_block(text: object) -> str:
    """Text as it is."""
    return f"<pre>{html.escape(str(text))}</pre>"
