"""Kept files: results that took long to find, on the disk, by the digest of all that they depend on.

A file is written beside and renamed, so that processes that find the same at once end with one good file. A file that
is damaged in any way is as none. The folder is bounded: files that were not read for the longest go first.

The folder is `CODELET_CACHE`; where that is not set, one within the folder of JAX's compilation cache
(`jax_compilation_cache_dir`), if that is used; else `~/.cache/codelet`. `CODELET_CACHE=0` disables it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from pathlib import Path

import jax

from codelet.jaxprs.plain import MalformedError, NotPlainError, Plain
from codelet.jaxprs.strict_json import parsed_json, written_json

MOST_BYTES = 1 << 26
"""Bytes of all files together; a plan takes one or two thousand."""

_OFF = ("0", "off", "false", "no")

_SUFFIX = ".plan"

_DAY = 86_400

_BETWEEN = 256
"""After so many files that were written it is looked how large the folder is."""


def cache_folder() -> Path | None:
    """Where plans are kept; None where they are not.

    >>> cache_folder() is None or isinstance(cache_folder(), Path)
    True
    """
    named = os.environ.get("CODELET_CACHE")
    if named is not None and named.strip().lower() in _OFF:
        return None
    if named:
        return Path(named).expanduser()
    of_jax = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    if of_jax and "://" not in of_jax:
        return Path(of_jax).expanduser() / "codelet"
    around = os.environ.get("XDG_CACHE_HOME")
    return (Path(around) if around else Path("~/.cache").expanduser()) / "codelet"


class _Writes:
    """How many files this process has written."""

    count = 0


def _path(folder: Path, key: str) -> Path:
    return folder / f"{key}{_SUFFIX}"


def looked_up(folder: Path, key: str) -> Plain:
    """What was kept, as plain data; None where there is nothing, or a file that is not as it was written.

    Args:
        folder: of kept files.
        key: a digest of all that it depends on.
    """
    path = _path(folder, key)
    try:
        data = path.read_bytes()
        digest, _, body = data.partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != digest:
            return None
        plain = parsed_json(body)
        if time.time() - path.stat().st_mtime > _DAY:
            os.utime(path)  # it is used
        return plain
    except (OSError, MalformedError, ValueError):
        return None


def keep(folder: Path, key: str, plain: Plain) -> None:
    """Keep plain data, if that can be: where it cannot, it is found again the next time.

    Args:
        folder: of kept files; it is made.
        key: a digest of all that it depends on.
        plain: what to keep.
    """
    try:
        body = written_json(plain)
        folder.mkdir(parents=True, exist_ok=True)
        number, beside = tempfile.mkstemp(dir=folder, prefix=".", suffix=_SUFFIX)
    except (NotPlainError, OSError):
        return
    try:
        with os.fdopen(number, "wb") as file:
            file.write(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
        os.replace(beside, _path(folder, key))
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        return
    if _Writes.count % _BETWEEN == 0:
        bound_folder(folder)
    _Writes.count += 1


def bound_folder(folder: Path, most_bytes: int = MOST_BYTES) -> None:
    """Remove the files of a folder that were not used for the longest, until it is three quarters full at most.

    Args:
        folder: of kept files.
        most_bytes: of all files together; with no more than these nothing is removed.
    """
    with contextlib.suppress(OSError):
        files = [(item.stat(), item.path) for item in os.scandir(folder) if item.name.endswith(_SUFFIX)]
        total = sum(about.st_size for about, _ in files)
        if total <= most_bytes:
            return
        for about, path in sorted(files, key=lambda file: file[0].st_mtime):
            if total <= 3 * most_bytes // 4:
                return
            with contextlib.suppress(OSError):  # another process was faster
                os.unlink(path)
            total -= about.st_size
