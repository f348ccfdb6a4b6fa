"""Paths of pictures, seen to be such before anything is drawn."""

from __future__ import annotations

import os

from codelet.errors import DrawError
from codelet.files import check_writable

FORMATS = ("png", "webp", "jpg", "html")
"""What a picture can be saved as; a diagram is SVG."""


def check_path(path: str | os.PathLike[str], *, diagram: bool = False) -> str:
    """See that a picture, or a diagram, can be saved at a path: the ending of its name.

    Raises:
        DrawError: another ending than its kind has.
        FileError: a path at which no file can be written.
    """
    target = check_writable(path)
    ending = target.rpartition(".")[2].lower()
    formats = ("svg",) if diagram else FORMATS
    if ending not in formats:
        raise DrawError(
            f"a {'diagram' if diagram else 'picture'} is saved as something else",
            given=os.fspath(path),
            expected="a name that ends in " + ", ".join(f".{own}" for own in formats),
            fix="graph.draw(path) writes it as light" if diagram else "graph.diagram(path=...) writes SVG",
        )
    return ending
