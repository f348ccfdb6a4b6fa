"""Writes `onnx_operators.md`, of what the code has: `python docs/onnx_operators.py`."""

from pathlib import Path

import onnx

import codelet.onnx.operators  # noqa: F401 (they enter themselves in the table)
from codelet.onnx.operator_table import known_operators
from codelet.onnx.run_nodes import has_definition

HEAD = """# Operators of ONNX

`cl.onnx.load` computes these operators, each by a function for the opsets from those that are named on. Written by
`python docs/onnx_operators.py`, of the table that is used.

| operator | functions from opset |
|---|---|
"""

BY_DEFINITION = """
What ONNX defines by other operators is computed by its definition, and needs no function of its own:
"""

REFUSED = """
Refused by name: what is of strings (`StringNormalizer`, `StringConcat`, `StringSplit`, `RegexFullMatch`,
`TfIdfVectorizer`, `LabelEncoder` of strings), whose results' shapes depend on data (`Unique`, `NonMaxSuppression`,
`NonZero` and `Compress` of what is not known), what decodes images, and ensembles of trees.
"""


def main() -> None:
    """Write the page."""
    rows = list(known_operators())
    lines = [
        f"| {domain + '.' if domain else ''}{name} | {', '.join(map(str, since))} |" for domain, name, since in rows
    ]
    names = {(domain, name) for domain, name, _ in rows}
    newest = onnx.defs.onnx_opset_version()
    others = sorted(
        {own.name for own in onnx.defs.get_all_schemas() if own.domain == ""}
        - {name for domain, name in names if not domain}
    )
    defined = ", ".join(f"`{name}`" for name in others if has_definition("", name, newest))
    page = HEAD + "\n".join(lines) + "\n" + BY_DEFINITION + defined + ".\n" + REFUSED
    Path(__file__).with_suffix(".md").write_text(page)


if __name__ == "__main__":
    main()
