"""The table of the primitives that have rules, made of the rules themselves, for docs/frontends.md.

python -m codelet.frontends.rule_table --write
"""

from __future__ import annotations

import argparse
from pathlib import Path

import codelet.frontends.trace  # noqa: F401 (it registers the rules)
from codelet.frontends.by_element import ALSO_BY_ELEMENT
from codelet.frontends.rules import RULES
from codelet.jaxprs.primitives import ELEMENTWISE

PAGE = Path(__file__).parents[2] / "docs" / "frontends.md"
BEGIN, END = "<!-- the table of python -m codelet.frontends.rule_table --write -->", "<!-- end of the table -->"

BY_ELEMENT = "`ops.map`: neighbours of one shape in one codelet"


def rule_table() -> str:
    """Which primitives have rules, by the operations that these add: rows of a table."""
    rows: dict[str, list[str]] = {BY_ELEMENT: sorted({*ELEMENTWISE, *ALSO_BY_ELEMENT})}
    for primitive, rule in RULES.items():
        rows.setdefault(rule.by, []).append(primitive)
    lines = [f"| {', '.join(f'`{name}`' for name in names)} | {by} |" for by, names in rows.items()]
    return "\n".join(["| primitives | what is added |", "|---|---|", *lines])


def page_with_table(page: str) -> str:
    """The page with the table as it is now."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{rule_table()}\n{END}{rest.split(END)[1]}"


def main() -> None:
    """Print the table, or put it into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table into docs/frontends.md")
    if parser.parse_args().write:
        PAGE.write_text(page_with_table(PAGE.read_text()))
    else:
        print(rule_table())


if __name__ == "__main__":
    main()
