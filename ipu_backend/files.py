"""Files that are there whole or not at all: written beside, then renamed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from codelet.errors import FileError


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[IO[str]]:
    """A file to write text to. Once that is done it takes the place of what was at `path`, if anything was.

    Raises:
        FileError: a path at which no file can be written.
    """
    try:
        target = os.path.abspath(os.fspath(path))
        folder = os.path.dirname(target)
        if os.path.isdir(target):
            raise IsADirectoryError(f"{target} is a folder")
        number, beside = tempfile.mkstemp(dir=folder, prefix=f".{os.path.basename(target)}.", text=True)
    except (OSError, TypeError, ValueError) as error:
        raise FileError(
            "a file cannot be written there",
            given=f"{path!r}: {error}",
            expected="a path in a folder that is there and may be written to",
            fix="make the folder first: os.makedirs(folder, exist_ok=True)",
        ) from error
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            yield file
        # As a file that is simply opened: for others to read as far as the user lets them.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(beside, 0o666 & ~mask)
        os.replace(beside, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise
