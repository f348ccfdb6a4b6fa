"""Files that are damaged, or made to harm: each is refused by an error of the library, or is what was written."""

import contextlib
import json
import random
import resource
import time
import zipfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from codelet import files
from codelet.jaxprs.plain import MalformedError
from codelet.jaxprs.strict_json import parsed_json
from codelet.jaxprs.symbolic_sizes import parsed_size
from codelet.saved import archive as archives
from codelet.saved.archive import CODELETS, GRAPH, MANIFEST, TENSORS
from codelet.saved.safetensors import read_arrays, written_arrays
from tests.damaged_files import by_chance, by_design, parts_of, with_digests, zipped
from tests.ragged_codelets import row_sum


@cl.codelet
def bent(x, *, by=2.0):
    return jax.nn.relu(jnp.sum(x) * by)


def _written(path: Path, *, planned: bool = False) -> str:
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, c, i = graph.add_variable("x", (4, 3)), graph.add_constant("c", np.arange(6.0)), cl.grid(4)
    y = graph.add_vertex("a", bent, x=x[i], tile=i)
    rows = cl.table([3, 1, 0, 2, 2, 1], offsets=[0, 2, 2, 5, 6])
    graph.add_vertex("r", row_sum, x=c[rows[i]], y=y[i], out=graph.add_variable("z", (4,))[i])
    n, goes_on = graph.add_variable("n", (), "int32"), graph.add_variable("goes_on", (), bool)
    with graph.record() as test:
        graph.add_vertex("test", cl.codelet(lambda n: n < 3), n=n, out=goes_on)
    sent = graph.add_output_stream("sent", (4,))
    loop = cl.RepeatWhile(test, goes_on, [cl.Copy(y, sent), cl.Copy(1, n)], max_iterations=4)
    program = [*graph.compute_sets[:2], cl.If(goes_on, loop), cl.Repeat(2, cl.Copy(y, x[:, 0]))]
    cl.save(path, (graph, program), planned=planned)
    return str(graph)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "model.codelet"
    return path, _written(path)


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "planned.codelet"
    return path, _written(path, planned=True)


def _loaded(path: Path, data: bytes) -> Any:
    """What a file holds; None where it is refused, as a bad file has to be: soon, and by an error of the library."""
    path.write_bytes(data)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    try:
        return cl.load(path)
    except cl.FileFormatError:
        return None
    finally:
        assert time.process_time() - start < 5
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 19, "half a gigabyte"


def _check_by_chance(written, path: Path, seeds: range) -> None:
    source, text = written
    data = source.read_bytes()
    refused = 0
    for seed in seeds:
        loaded = _loaded(path, by_chance(data, random.Random(seed)))
        refused += loaded is None
        if loaded is not None:
            assert str(loaded[0]) == text, seed
    assert refused > len(seeds) // 2


def _check_by_design(written, path: Path, seeds: range) -> None:
    parts = parts_of(written[0])
    refused = 0
    for seed in seeds:
        loaded = _loaded(path, by_design(parts, random.Random(seed)))
        refused += loaded is None
        if isinstance(loaded, tuple):  # then it is a graph as any other: checked where it is lowered
            with contextlib.suppress(cl.CodeletError):
                cl.lower(*loaded, inputs=["x"], outputs=["x"])
    assert refused > len(seeds) // 4


def test_files_with_bytes_changed_are_refused(planned, tmp_path):
    _check_by_chance(planned, tmp_path / "x", range(150))


def test_files_made_to_harm_are_refused(planned, tmp_path):
    _check_by_design(planned, tmp_path / "x", range(100))


@pytest.mark.slow
def test_very_many_damaged_files_are_refused(planned, tmp_path):
    _check_by_chance(planned, tmp_path / "x", range(1000, 3500))
    _check_by_design(planned, tmp_path / "y", range(1000, 3500))


def _archives(parts):
    """Files whose archives are odd, by what is odd."""
    entries = [*parts.items()]
    yield "no parts", zipped([])
    yield "no manifest", zipped(entries[1:])
    yield "a part less", zipped(entries[:-1])
    yield "a part twice", zipped([*entries, entries[-1]])
    yield "a part more", zipped([*entries, ("more.json", b"{}")])
    yield "a path", zipped([*entries, ("../../evil", b"x")])
    yield "an absolute path", zipped([*entries, ("/etc/passwd", b"x")])
    yield "a path below exported", zipped([*entries, ("exported/../x", b"x")])
    yield "compressed", zipped(entries, zipfile.ZIP_DEFLATED)
    yield "a bomb", zipped([*entries[:-1], (entries[-1][0], bytes(50_000_000))], zipfile.ZIP_DEFLATED)
    yield "many parts", zipped([*entries, *((f"exported/p{k}", b"") for k in range(100))])
    yield "not a zip", b"PK\x03\x04" + bytes(100)
    yield "empty", b""


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_odd_archives_are_refused(written, tmp_path):
    parts = parts_of(written[0])
    for what, data in _archives(parts):
        assert _loaded(tmp_path / "x", data) is None, what
    assert _loaded(tmp_path / "x", zipped(parts)) is not None


def test_a_file_that_needs_more_is_refused_by_its_name(written, tmp_path):
    path = tmp_path / "x"
    for need in ("format 2", "primitives 99", "sparsity 1"):
        path.write_bytes(zipped(with_digests(parts_of(written[0]), needs=["format 1", need], more=1)))
        with pytest.raises(cl.FileFormatError, match=f"needs a newer codelet(.|\n)*{need}"):
            cl.load(path)


def test_what_no_file_holds_is_refused(tmp_path):
    with pytest.raises(cl.FileFormatError, match="a file cannot be read"):
        cl.load(tmp_path / "none")
    with pytest.raises(cl.FileFormatError, match="cannot be read"):
        cl.load(tmp_path)


def test_json_is_strict():
    for text in ("1.5", "NaN", "Infinity", '{"a":1,"a":2}', "[" * 100_000, "{", "9" * 5000, "\xff"):
        with pytest.raises(MalformedError):
            parsed_json(text.encode("latin-1"))
    assert parsed_json(b'{"a":[1,null,true,"x"]}') == {"a": [1, None, True, "x"]}


def test_arrays_lie_as_their_header_says():
    arrays = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "y": np.zeros((0, 4), np.int8), "z": np.array(2.5)}
    arrays |= {"b": jnp.ones(3, jnp.bfloat16).__array__(), "c": np.array([1 + 2j], np.complex64)}
    data = b"".join(map(bytes, written_arrays(arrays)))
    for name, array in read_arrays(memoryview(data)).items():
        assert (array.dtype, array.shape, array.tobytes()) == (
            arrays[name].dtype,
            arrays[name].shape,
            arrays[name].tobytes(),
        )
        assert not array.flags.writeable
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    for entry in (
        {"shape": [3, 3]},
        {"data_offsets": [0, 20]},
        {"data_offsets": [4, 28]},
        {"dtype": "F128"},
        {"shape": [-2, -3]},
        {"shape": [2**62, 4]},
        {"shape": [True, 6]},
    ):
        changed = json.dumps({**header, "x": {**header["x"], **entry}}).encode()
        with pytest.raises(MalformedError):
            read_arrays(memoryview(len(changed).to_bytes(8, "little") + changed + data[-100:]))


def test_arrays_are_those_of_the_package_safetensors(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    arrays = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "y": np.zeros((0, 4), np.int8), "z": np.array(2.5)}
    data = b"".join(map(bytes, written_arrays(arrays)))
    for name, array in safetensors.load(data).items():
        np.testing.assert_array_equal(array, arrays[name])
    for name, array in read_arrays(memoryview(safetensors.save(arrays))).items():
        np.testing.assert_array_equal(array, arrays[name])


NO_SIZES = ["", "n +", "n^n", "n^99", "foo(n, 2)", "n n", "max(n)", "__import__", "n.real", "1" * 30, "(n"]


@pytest.mark.parametrize("text", NO_SIZES)
def test_sizes_are_no_code(text):
    with pytest.raises((MalformedError, KeyError)):
        parsed_size(text)({"n": 3})


# --- writing ------------------------------------------------------------------------------------------------


class _FullError(OSError):
    pass


@pytest.mark.parametrize("after", [0, 1, 3, 6])
def test_an_interrupted_write_leaves_the_file_that_was_there(written, tmp_path, monkeypatch, after):
    path = tmp_path / "model.codelet"
    text = _written(path)
    before = path.read_bytes()
    count = 0
    original = zipfile.ZipFile.open

    def opened(self, *args, **kwargs):
        nonlocal count
        count += 1
        if count > after:
            raise _FullError(28, "No space left on device")
        return original(self, *args, **kwargs)

    monkeypatch.setattr(archives.zipfile.ZipFile, "open", opened)
    if after < 4:
        with pytest.raises(cl.FileError, match="No space left"):
            cl.save(path, cl.Graph())
        monkeypatch.undo()
        assert path.read_bytes() == before
        assert str(cl.load(path)[0]) == text
    else:
        cl.save(path, cl.Graph())
    assert [own.name for own in tmp_path.iterdir()] == ["model.codelet"]


def test_a_write_that_is_stopped_before_the_rename_leaves_the_file(tmp_path, monkeypatch):
    path = tmp_path / "model.codelet"
    _written(path)
    before = path.read_bytes()

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "replace", stopped)
    with pytest.raises(KeyboardInterrupt):
        cl.save(path, cl.Graph())
    assert path.read_bytes() == before
    assert len([*tmp_path.iterdir()]) == 1
    with pytest.raises(cl.FileError, match="is no folder"):
        cl.save(tmp_path / "nowhere" / "x", cl.Graph())


def test_parts_have_the_names_that_the_documentation_says(written):
    assert [*parts_of(written[0])] == [MANIFEST, GRAPH, CODELETS, TENSORS]
