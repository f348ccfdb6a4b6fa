"""Patterns, what their rules have to keep, and the rows that need them: `python -m tests.patterns [--write]`.

Without `--write` the table is printed; with it, it is put into docs/passes.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.patterns.every import PATTERNS
from tests.patterns.pattern import Pattern

PAGE = Path(__file__).parents[2] / "docs" / "passes.md"
BEGIN, END = "<!-- the table of python -m tests.patterns --write -->", "<!-- end of the table of patterns -->"


def _line(pattern: Pattern) -> str:
    rules, rows = (", ".join(f"`{name}`" for name in names) for names in (pattern.rules, pattern.rows))
    return f"| `{pattern.name}` | {pattern.meaning} | {rules} | {rows or 'none that is counted'} |"


def table() -> str:
    """The table of all patterns."""
    return "\n".join(["| pattern | property | rules | rows |", "|---|---|---|---|", *map(_line, PATTERNS.values())])


def page() -> str:
    """The page with the table in it."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(prog="python -m tests.patterns", description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table into docs/passes.md")
    if parser.parse_args().write:
        PAGE.write_text(page())
    else:
        print(table())


if __name__ == "__main__":
    main()
