"""The table of the meanings of primitives over the field, made of the meanings themselves, for docs/equal.md.

python -m lowering.equality.meaning_table --write
"""

from __future__ import annotations

import argparse
from pathlib import Path

import codelet.field.evaluate  # noqa: F401 (it registers the meanings)
from codelet.field.devices import COLLECTIVES
from codelet.field.meanings import MEANINGS

PAGE = Path(__file__).parents[2] / "docs" / "equal.md"
BEGIN, END = "<!-- the table of python -m lowering.equality.meaning_table --write -->", "<!-- end of the table -->"


def meaning_table() -> str:
    """Which primitives are understood, by their meanings: rows of a table."""
    rows: dict[str, list[str]] = {}
    for name, own in MEANINGS.items():
        rows.setdefault(own.said, []).append(name)
    rows["what crosses between the devices of a `shard_map`"] = [*COLLECTIVES]
    lines = [f"| {', '.join(f'`{name}`' for name in sorted(names))} | {said} |" for said, names in sorted(rows.items())]
    return "\n".join(["| primitives | what they are taken for |", "|---|---|", *lines])


def page_with_table(page: str) -> str:
    """The page with the table as it is now."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{meaning_table()}\n{END}{rest.split(END)[1]}"


def main() -> None:
    """Print the table, or put it into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table into docs/equal.md")
    if parser.parse_args().write:
        PAGE.write_text(page_with_table(PAGE.read_text()))
    else:
        print(meaning_table())


if __name__ == "__main__":
    main()
