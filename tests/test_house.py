"""The packages grow no larger, and their names no vaguer, than was agreed; and how that is counted."""

import ast
import json

from tests.house import KEPT, code_lines, measure


def test_no_number_rises():
    """Where one has to, the CHANGELOG says why, and `python -m tests.house --write` keeps it."""
    kept, numbers = json.loads(KEPT.read_text()), measure()
    assert numbers.keys() == kept.keys()
    assert {name: number for name, number in numbers.items() if number > kept[name]} == {}


def test_what_is_code():
    lines = ['"""What it is."""', "import os", "# Why.", "X = (", "    1", ")", '"""What X is."""', "", "def f():"]
    lines += ['    """Does it."""', "    return X"]
    text = "\n".join(lines)
    assert code_lines(text, ast.parse(text)) == {4, 5, 6, 9, 11}
