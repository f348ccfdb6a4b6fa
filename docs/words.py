"""Counts of English in the documentation: long sentences, and five words that tend to circle the thing.

In come the pages (README.md and docs/**/*.md) and the docstrings of the three packages. Out come, for each, the number
of sentences of more than 30 words and of the words `what`, `told`, `held`, `own` and `turn` (and `turns`). Code, tables
that a program writes, and links' targets are left out.

    python docs/words.py                 totals, and a line for each page
    python docs/words.py --show          the long sentences as well
"""

import argparse
import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("codelet", "lowering", "ipu_backend")
WORDS = {"what": r"what", "told": r"told", "held": r"held", "own": r"own", "turn": r"turns?"}
LONGEST = 30
"""Words of a sentence that is not long."""


def prose(page: str) -> str:
    """A page of Markdown without code, written tables, comments and targets of links; a table's cells end sentences."""
    page = re.sub(r"\A---\n.*?\n---\n", "", page, flags=re.S)
    page = re.sub(r"<!-- .*? -->\n(?:.*\n)*?<!-- end of .*? -->", "", page)
    page = re.sub(r"<!--.*?-->", "", page, flags=re.S)
    page = re.sub(r"^(`{3,}|:{3,}).*?^\1\s*$", "", page, flags=re.S | re.M)
    page = re.sub(r"`[^`]*`", "code", page)
    page = re.sub(r"\]\([^)]*\)", "]", page)
    page = re.sub(r"^\|?[-:| ]+\|[-:| ]*$", "", page, flags=re.M)
    page = re.sub(r"^ {4,}(?![-*]).*$", "", page, flags=re.M)
    page = re.sub(r"^(#.*)$", r"\1.\n", page, flags=re.M)
    page = re.sub(r"^\s*[-*] ", "\n\n", page, flags=re.M)
    return re.sub(r"\|", "\n\n", page)


def docstrings(path: Path) -> str:
    """The docstrings of a module, without examples; each argument's line is a paragraph."""
    texts = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            text = re.sub(r"^\s*(>>>|\.\.\.).*?(\n\s*\n|\Z)", "\n", text, flags=re.S | re.M)
            texts.append(re.sub(r"^( *\w[\w, ]*:)", r"\n\n\1", text, flags=re.M))
    return re.sub(r"`[^`\n]*`", "code", "\n\n".join(texts))


def sentences(text: str) -> list[str]:
    """The sentences of a text: a paragraph, a colon before a new line, a semicolon or a full stop ends one."""
    found = []
    for paragraph in re.split(r"\n\s*\n", text):
        flat = re.sub(r"\s+", " ", paragraph).strip()
        found += [part for part in re.split(r"(?<=[.!?;])[\")*]* (?=\S)", flat) if part]
    return found


def counts(text: str) -> Counter:
    """Long sentences and the five words of a text."""
    found = Counter({"long": sum(len(re.findall(r"[\w'-]+", s)) > LONGEST for s in sentences(text))})
    for name, pattern in WORDS.items():
        found[name] = len(re.findall(rf"\b{pattern}\b", text, flags=re.I))
    return found


def pages() -> dict[str, str]:
    """The pages that people write, by name, as prose."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    brought = [ROOT / "docs" / name for name in ("tutorials", "reference", "project")]
    return {
        str(path.relative_to(ROOT)): prose(path.read_text(encoding="utf-8"))
        for path in found
        if not any(path.is_relative_to(directory) for directory in brought)
    }


def main(arguments: list[str] | None = None) -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--show", action="store_true", help="print the long sentences")
    options = parser.parse_args(arguments)
    texts = pages()
    modules = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    texts["docstrings"] = "\n\n".join(docstrings(path) for path in modules)
    columns = ["long", *WORDS]
    print(f"{'':32}" + "".join(f"{name:>7}" for name in columns) + "    all")
    total: Counter = Counter()
    for name, text in texts.items():
        found = counts(text)
        if name != "docstrings":
            total.update(found)
        row = [found[column] for column in columns]
        if name == "docstrings":
            row_total = [total[column] for column in columns]
            print(f"{'all pages':32}" + "".join(f"{n:7}" for n in row_total) + f"{sum(row_total):7}")
        print(f"{name:32}" + "".join(f"{n:7}" for n in row) + f"{sum(row):7}")
        if options.show and name != "docstrings":
            print(*(f"    - {s}" for s in sentences(text) if len(re.findall(r"[\w'-]+", s)) > LONGEST), sep="\n")


if __name__ == "__main__":
    main()
