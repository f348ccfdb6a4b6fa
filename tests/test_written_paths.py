"""Whatever is written says nothing of the machine on which it was: no folder of its user's stands in it."""

from __future__ import annotations

import base64
import gzip
import pickle
import re
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from codelet.errors import Line as CodeLine
from codelet.errors import SavedLine, without_folders
from tests.fixtures_of_codelets import weighted_sum

FOLDERS = [
    str(Path.home()),
    str(Path(__file__).resolve().parents[1]),
    str(Path.cwd()),
    sys.prefix,
    tempfile.gettempdir(),
]
"""Folders of this machine's, none of which a file may name."""


def _contents(path: Path) -> list[bytes]:
    """The bytes of a file, or of all files of a folder, and what is packed into them."""
    if path.is_dir():
        return [own for inner in sorted(path.rglob("*")) if inner.is_file() for own in _contents(inner)]
    found = [path.read_bytes()]
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            found += [archive.read(name) for name in archive.namelist()]
    for packed in re.findall(rb"[A-Za-z0-9+/]{200,}={0,2}", found[0]):
        raw = base64.b64decode(packed[: len(packed) // 4 * 4])
        found.append(raw)
        for unpack in (zlib.decompress, gzip.decompress, lambda own: zlib.decompress(own, -15)):
            try:
                found.append(unpack(raw))
            except (zlib.error, OSError, EOFError):
                continue
    return found


def _named(path: Path) -> list[str]:
    """The folders of this machine's that a file names."""
    contents = _contents(path)
    assert any(contents)
    places = [(own, own.find(folder.encode())) for folder in FOLDERS for own in contents]
    return [str(own[max(0, place - 60) : place + 90]) for own, place in places if place >= 0]


def _traced() -> cl.Traced:
    def loss(w, x):
        return jnp.sum(jnp.tanh(x @ w) ** 2)

    return cl.trace(jax.grad(loss), jnp.ones((8, 4)), jnp.ones((3, 8)), target=cl.IPU(num_tiles=8))


def _by_hand() -> cl.Graph:
    graph = cl.Graph(cl.IPU(num_tiles=8))
    x = graph.add_variable("x", (8,))
    graph.add_vertex("weighted", weighted_sum, x=x, w=x)
    return graph


def _checkpoint(path: Path) -> None:
    engine = cl.Engine(_by_hand())
    engine.write({"x": np.ones(8, np.float32)})
    cl.Checkpoints(path).save(engine, 1)


WRITERS = {
    "a trace": lambda path: _traced().profile().write_trace(path),
    "a report": lambda path: _traced().profile().write_report(path, picture=True),
    "a record": lambda path: _traced().profile().tables().write_json(path),
    "a record by hand": lambda path: cl.Engine(_by_hand()).profile().tables().write_json(path),
    "a comparison": lambda path: cl.compare(*(_traced().profile() for _ in range(2))).write_report(path),
    "a picture": lambda path: cl.draw(_traced(), path=path.with_suffix(".png")),
    "a drawing": lambda path: _by_hand().diagram(path.with_suffix(".svg")),
    "a page": lambda path: cl.draw(_traced(), path=path.with_suffix(".html")),
    "a graph": lambda path: path.write_bytes(pickle.dumps(_by_hand())),
    "a lowered graph": lambda path: path.write_bytes(pickle.dumps(_traced().lowered)),
    "checkpoints": _checkpoint,
}


@pytest.mark.parametrize("name", WRITERS)
def test_no_folder_is_named(name, tmp_path):
    WRITERS[name](tmp_path / "written")
    (made,) = tmp_path.iterdir()
    assert _named(made) == []


def test_a_record_names_the_lines():
    """Without folders, but with them a reader finds the line."""
    tables = cl.Engine(_by_hand()).profile().tables().tables
    assert tables["vertices"]["line"][0].startswith("tests/test_written_paths.py:")
    assert tables["variables"]["line"][0].startswith("tests/test_written_paths.py:")
    assert tables["codelets"]["line"][0].startswith("tests/fixtures_of_codelets.py:")


@pytest.mark.parametrize(
    ("file", "written"),
    [
        (f"{Path.cwd()}/experiments/first.py", "experiments/first.py"),
        (jax.__file__, "jax/__init__.py"),
        ("/somewhere/else/entirely.py", "entirely.py"),
        ("<stdin>", "<stdin>"),
    ],
)
def test_files_are_named_from_where_they_are_found(file, written):
    assert without_folders(file) == written
    line = CodeLine(SavedLine(f"{file}:3", "a = 1"), 3)
    assert line.written == f"{written}:3: a = 1"
    assert pickle.loads(pickle.dumps(line)).place == f"{written}:3"
