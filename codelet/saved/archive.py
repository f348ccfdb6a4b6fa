"""The archive of a file: an uncompressed zip of parts with known names, and a manifest that has their digests.

The manifest is read first, and nothing else of a file before its digest is right. No part is extracted to a disk, and
none is compressed, so that nothing is larger in memory than it is in the file.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

from codelet.errors import FileFormatError
from codelet.files import written_whole
from codelet.jaxprs.plain import MalformedError, Plain, check_form, listed, mapped, text, whole
from codelet.jaxprs.primitive_set import SET_NUMBER
from codelet.jaxprs.strict_json import parsed_json, written_json
from codelet.version import VERSION

FORMAT = 1
"""The number of the format: it grows when what older releases cannot read is written."""

LEAST_READER = "1.0"
"""The first release whose files of this format are read by all later ones of the same major number."""

MANIFEST, GRAPH, CODELETS, TENSORS = "manifest.json", "graph.json", "codelets.json", "tensors.safetensors"

PLAN = "plan.json"
"""The part with what planning has found, which is found again where it is not there."""

UNCUT = "uncut.json"
"""The part with the uncut graph of a traced function: where it is not there, the vertices run."""

_NEEDED = (GRAPH, CODELETS, TENSORS)

DROPPED = ("exported.json", PLAN, UNCUT)
"""Parts that a file may do without, beside those below `exported/`."""

_EXPORTED = "exported/"

_MOST_PARTS = 64

_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Archive:
    """The parts of a file.

    Attributes:
        contents: the kind of content: "graph", "traced", "lowered" or "engine".
        parts: their bytes, by name, without the manifest.
        libraries: the versions of its writer's libraries.
    """

    contents: str
    parts: Mapping[str, memoryview]
    libraries: Mapping[str, str]

    def json(self, name: str) -> Plain:
        """A part as plain data."""
        return parsed_json(bytes(self.parts[name]))


def _libraries() -> dict[str, str]:
    return {"codelet": VERSION, "jax": jax.__version__, "jaxlib": version("jaxlib"), "numpy": np.__version__}


def _digest(parts: Iterable[Any]) -> tuple[int, str]:
    """The number of bytes of some parts together, and their SHA-256."""
    digest, size = hashlib.sha256(), 0
    for part in parts:
        digest.update(part)
        size += len(part)
    return size, digest.hexdigest()


def _with_digest(manifest: dict[str, Plain]) -> dict[str, Plain]:
    return {**manifest, "digest": hashlib.sha256(written_json(manifest)).hexdigest()}


def needs() -> list[str]:
    """The least version of a reader of the files that this release writes."""
    return [f"format {FORMAT}", f"primitives {SET_NUMBER}"]


def _write_zip(file: Any, contents: str, parts: Mapping[str, Sequence[Any]]) -> None:
    """Write the bytes of a file.

    Args:
        file: where to.
        contents: the kind of content.
        parts: by name, their bytes, piece by piece.
    """
    digests = {name: _digest(pieces) for name, pieces in parts.items()}
    manifest = _with_digest(
        {
            "format": FORMAT,
            "least_reader": LEAST_READER,
            "needs": needs(),
            "contents": contents,
            "libraries": _libraries(),
            "parts": {name: {"bytes": size, "sha256": digest} for name, (size, digest) in digests.items()},
        }
    )
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, pieces in {MANIFEST: [written_json(manifest)], **parts}.items():
            info = zipfile.ZipInfo(name, _DATE)
            info.external_attr = 0o644 << 16
            with archive.open(info, "w", force_zip64=sum(map(len, pieces)) >= 1 << 31) as part:
                for piece in pieces:
                    part.write(piece)


def write_archive(path: str | os.PathLike[str], contents: str, parts: Mapping[str, Sequence[Any]]) -> None:
    """Write a file: all of it or nothing.

    Args:
        path: where.
        contents: the kind of content.
        parts: by name, their bytes, piece by piece.

    Raises:
        FileError: a path at which no file can be written.
    """
    with written_whole(path, binary=True) as file:
        _write_zip(file, contents, parts)


def archive_bytes(contents: str, parts: Mapping[str, Sequence[Any]]) -> bytes:
    """The bytes of a file, for a pickle."""
    file = io.BytesIO()
    _write_zip(file, contents, parts)
    return file.getvalue()


# --- reading ----------------------------------------------------------------------------------------------------


def damaged(path: object, what: str) -> FileFormatError:
    """The error of a file that is not as it was written."""
    return FileFormatError(
        f"the file {path!s} is damaged, or was not written by cl.save",
        given=what,
        expected="a file as cl.save writes it",
        fix="write it again: cl.save(path, graph)",
    )


def _is_part(name: str) -> bool:
    if name.startswith(_EXPORTED):
        rest = name[len(_EXPORTED) :]
        return rest.isascii() and rest.replace("_", "").isalnum()
    return name in (MANIFEST, *_NEEDED, *DROPPED)


def _stored(archive: zipfile.ZipFile, length: int) -> dict[str, zipfile.ZipInfo]:
    """The parts that an archive says it has, each of a name, a kind and a size that it may have."""
    listing = archive.infolist()
    check_form(len(listing) <= _MOST_PARTS, "the number of parts")
    for info in listing:
        check_form(_is_part(info.filename) and info.filename == info.orig_filename, f"the part {info.filename!r:.60}")
        check_form(info.compress_type == zipfile.ZIP_STORED, f"a part that is compressed, {info.filename!r:.60}")
        check_form(info.file_size == info.compress_size and not info.flag_bits & 1, f"the size of {info.filename!r}")
    check_form(len({info.filename for info in listing}) == len(listing), "a part that is there twice")
    check_form(sum(info.file_size for info in listing) <= length, "parts that are larger than the file")
    return {info.filename: info for info in listing}


def _check_version(path: object, manifest: Any) -> None:
    """See that a file needs nothing that this release does not know.

    Raises:
        FileFormatError: it needs more, by name.
    """
    check_form(isinstance(manifest, dict), "a manifest")
    wanted = [text(need, 100) for need in listed(manifest.get("needs"))[:100]]
    check_form(all(need.rpartition(" ")[2].isdecimal() for need in wanted), "the needs of a manifest")
    known = {need.rpartition(" ")[0]: int(need.rpartition(" ")[2]) for need in needs()}
    missing = [n for n in wanted if int(n.rpartition(" ")[2]) > known.get(n.rpartition(" ")[0], 0)]
    if missing:
        writer = manifest.get("libraries")
        by = writer.get("codelet") if type(writer) is dict else None
        raise FileFormatError(
            f"the file {path!s} needs a newer codelet",
            given=f"a file that needs {', '.join(missing)}, written by codelet {by!s:.40}",
            expected=f"at most {', '.join(needs())}: this is codelet {VERSION}",
            fix="pip install --upgrade codelet-graphs",
        )


def _read_manifest(path: object, data: bytes) -> dict[str, Plain]:
    manifest: Any = parsed_json(data)
    _check_version(path, manifest)
    names = ("format", "least_reader", "needs", "contents", "libraries", "parts", "digest")
    mapped(manifest, *names)
    rest = {name: value for name, value in manifest.items() if name != "digest"}
    check_form(_with_digest(rest) == manifest, "the digest of the manifest")
    whole(manifest["format"], 1, FORMAT)
    check_form(type(manifest["libraries"]) is dict and type(manifest["parts"]) is dict, "a manifest")
    return manifest


def read_archive(path: str | os.PathLike[str]) -> Archive:
    """The parts of a file, as they were written.

    Raises:
        FileFormatError: a file that is damaged, was not written by `cl.save`, or needs a newer release.
    """
    try:
        with open(path, "rb") as file:
            data = file.read()
    except (OSError, TypeError, ValueError) as error:
        raise FileFormatError(
            "a file cannot be read", given=f"{path!r}: {error}", expected="a file that cl.save wrote"
        ) from error
    return parsed_archive(path, data)


def parsed_archive(path: object, data: bytes) -> Archive:
    """The parts of the bytes of a file.

    Args:
        path: of the file, for errors.
        data: all of it.

    Raises:
        FileFormatError: as `read_archive` does.
    """
    try:
        return _parsed(path, data)
    except (MalformedError, zipfile.BadZipFile, NotImplementedError, ValueError, EOFError, OverflowError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise damaged(path, f"{error!s:.200}") from None


def _parsed(path: object, data: bytes) -> Archive:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        stored = _stored(archive, len(data))
        check_form(MANIFEST in stored, "an archive without a manifest")
        manifest = _read_manifest(path, archive.read(MANIFEST))
        parts = manifest["parts"]
        check_form({*_NEEDED} <= parts.keys() and {*stored} <= {MANIFEST, *parts}, "the parts that are there")
        result = {}
        for name, about in parts.items():
            known = mapped(about, "bytes", "sha256")
            if name not in stored and name not in _NEEDED:
                continue
            check_form(name in stored and _is_part(name), f"a file without its part {name!r:.60}")
            check_form(stored[name].file_size == whole(known["bytes"]), f"the size of the part {name!r:.60}")
            body = archive.read(name)
            check_form(_digest([body]) == (len(body), known["sha256"]), f"the digest of the part {name!r:.60}")
            result[name] = memoryview(body)
    libraries = {text(name, 100): text(item, 100) for name, item in manifest["libraries"].items()}
    return Archive(text(manifest["contents"], 100), result, libraries)
