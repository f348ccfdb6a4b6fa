"""Files: checked to be writable before long work begins, and there whole or not at all: written beside,
then renamed.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

from codelet.errors import FileError


def _refused(path: object, why: object) -> FileError:
    return FileError(
        "a file cannot be written there",
        given=f"{path!r}: {why}",
        expected="a path in a folder that is there and may be written to",
        fix="make the folder first: os.makedirs(folder, exist_ok=True)",
    )


def check_writable(path: object) -> str:
    """Check that a file can be written at a path, before its content is made: the path as a string.

    Raises:
        FileError: a path at which no file can be written.
    """
    try:
        target = os.path.abspath(os.fspath(path))  # type: ignore[arg-type]
        if "\0" in str(target):
            raise ValueError("a path has no null character")
    except (TypeError, ValueError) as error:
        raise _refused(path, error) from error
    if isinstance(target, bytes):
        raise _refused(path, "a path is text")
    folder, name = os.path.split(target)
    if not name or os.path.isdir(target):
        raise _refused(path, f"{target} is a folder")
    if not os.path.isdir(folder):
        raise _refused(path, f"{folder} is no folder")
    if not os.access(folder, os.W_OK | os.X_OK) or len(os.fsencode(name)) > _LONGEST:
        raise _refused(path, f"nothing of this name can be made in {folder}")
    return target


_LONGEST = 200
"""Bytes of a file's name: most file systems have 255, of which some are needed for the one that is written beside."""


@contextmanager
def written_whole(path: str | os.PathLike[str], *, binary: bool = False) -> Iterator[IO[Any]]:
    """A file to write text to. Once that is done it takes the place of the old file at `path`, if there was one.

    Args:
        path: where it is to be.
        binary: bytes are written in place of text, and are on the disk before the file takes its place.

    Raises:
        FileError: a path at which no file can be written.
    """
    target = check_writable(path)
    folder, name = os.path.split(target)
    try:
        number, beside = tempfile.mkstemp(dir=folder, prefix=f".{name}.", text=not binary)
    except OSError as error:
        raise _refused(path, error) from error
    try:
        with os.fdopen(number, "wb") if binary else os.fdopen(number, "w", encoding="utf-8") as file:
            yield file
            if binary:
                file.flush()
                os.fsync(file.fileno())
        # As a file that is simply opened: for others to read as far as the user lets them.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(beside, 0o666 & ~mask)
        os.replace(beside, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise
