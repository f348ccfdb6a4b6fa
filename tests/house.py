"""How large the packages are, and how their names read: `python -m tests.house [--write]`.

None of the numbers may rise from commit to commit: `tests/test_house.py` holds them to those of `house.json`, which
`--write` replaces. Where one has to rise, the CHANGELOG says why.

- `code`: lines that hold a token of code, no imports, docstrings or comments.
- `undoing the grain`: of those, the rooms that find again what operations were cut of.
- `class names again`, `file names again`: how many names stand for several things.
- `vague names`: how often variables, parameters and attributes have a name that says nothing.
- `long functions`, `branchy functions`: of more than 60 lines of code, of more than 25 branches.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
KEPT = Path(__file__).with_suffix(".json")
PACKAGES = ("codelet", "lowering", "ipu_backend")

UNDOING = ("join/*.py", "jaxprs/reduced_maps.py")
"""Files of the lowering that find again what operations were cut of."""

VAGUE = frozenset(("own", "found", "made", "given", "held", "told", "others", "thing", "kept", "here"))
MOST_LINES, MOST_BRANCHES = 60, 25

_NO_CODE = frozenset(
    (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.COMMENT)
)
_BRANCHES = (ast.If, ast.For, ast.While, ast.IfExp, ast.BoolOp, ast.comprehension)


def _lines(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _without_code(tree: ast.AST) -> Iterator[int]:
    """The lines of imports, and of strings that stand for themselves: docstrings."""
    for node in ast.walk(tree):
        is_text = (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        )
        if isinstance(node, (ast.Import, ast.ImportFrom)) or is_text:
            yield from _lines(node)  # type: ignore[arg-type]


def code_lines(text: str, tree: ast.Module) -> set[int]:
    """The numbers of the lines of a module that hold code, given its text and its tree."""
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    return code.difference(_without_code(tree))


def _name(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
            return name
    return None


def measure() -> dict[str, int]:
    """The numbers of the packages as they are."""
    numbers: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text()
            tree = ast.parse(text)
            code = code_lines(text, tree)
            numbers["code"] += len(code)
            if package == "lowering" and any(map(path.relative_to(ROOT / package).match, UNDOING)):
                numbers["undoing the grain"] += len(code)
            files[path.name] += path.name != "__init__.py"
            for node in ast.walk(tree):
                numbers["vague names"] += _name(node) in VAGUE
                if isinstance(node, ast.ClassDef):
                    classes[node.name.lstrip("_")] += 1
                elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    numbers["long functions"] += len(code.intersection(_lines(node))) > MOST_LINES
                    branches = sum(isinstance(inner, _BRANCHES) for inner in ast.walk(node))
                    numbers["branchy functions"] += branches > MOST_BRANCHES
    numbers["class names again"] = sum(count > 1 for count in classes.values())
    numbers["file names again"] = sum(count > 1 for count in files.values())
    return dict(sorted(numbers.items()))


def main() -> None:
    """Print the numbers beside those that are kept, or keep them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="keep the numbers as they are")
    numbers = measure()
    if parser.parse_args().write:
        KEPT.write_text(json.dumps(numbers, indent=1) + "\n")
    kept = json.loads(KEPT.read_text())
    for name, number in numbers.items():
        print(f"{name:20} {number:8,} {kept.get(name, 0):8,}")


if __name__ == "__main__":
    main()
