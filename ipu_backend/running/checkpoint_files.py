"""Checkpoint files: what a checkpoint says of itself, and whether its files are as they were written.

Beside the arrays of a checkpoint lies `codelet.json`: the version of the format and of codelet, the graph's variables,
which of them have values, the number of bytes and the checksum of every file, and its checksum. It is written last.
What it says is believed where all of it is as it is written here, and no file is looked for but in the checkpoint.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Literal, NamedTuple, get_args

from codelet.errors import CheckpointError
from codelet.version import VERSION
from codelet.views.sources import Variable, type_text
from ipu_backend.running.engine_state import EngineState
from lowering.plan.fingerprint import fingerprint

FORMAT = 2
"""The version of the format: it grows when what older versions of codelet cannot read is written. The first had no
checksum of `codelet.json` itself."""

ABOUT = "codelet.json"

_BLOCK = 1 << 22

Held = Literal["all", "some", "none", "constant"]


class SavedVariable(NamedTuple):
    """A variable of a checkpoint, and which of its elements have a value there: all, some, none; or it is constant."""

    name: str
    type: str
    held: Held

    @property
    def has_values(self) -> bool:
        """Whether any element has a value that is saved."""
        return self.held in ("all", "some")


class Checked(NamedTuple):
    """What a file has to be: its number of bytes, and their CRC-32."""

    size: int
    checksum: int


@dataclass(frozen=True)
class About:
    """What a checkpoint says of itself.

    Attributes:
        variables: those of the graph, in order.
        files: what its files have to be, by their paths in it.
        written_by: the version of codelet that wrote it.
    """

    variables: tuple[SavedVariable, ...]
    files: Mapping[str, Checked]
    written_by: str

    @property
    def graph(self) -> str:
        """Tells apart graphs of other variables."""
        return fingerprint(tuple((own.name, own.type, own.held == "constant") for own in self.variables)).hex()


def about_state(variables: Iterable[Variable], state: EngineState) -> About:
    """What a checkpoint of a state says of itself, before there are files."""

    def held(variable: Variable) -> Held:
        if variable.value is not None:
            return "constant"
        elements = state.written.of(variable)
        if variable not in state.arrays or (elements.first is None and variable.size):
            return "none"
        return "all" if elements.is_all or bool(elements.as_flags().all()) else "some"

    own = tuple(SavedVariable(v.name, type_text(v.dtype, v.shape), held(v)) for v in variables)
    return About(own, {}, VERSION)


# --- files ------------------------------------------------------------------------------------------------


def summed(directory: Path, names: Iterable[str]) -> dict[str, Checked]:
    """What files are, by their paths in a directory."""
    found = {}
    for name in names:
        size = checksum = 0
        with open(directory / name, "rb") as file:
            while block := file.read(_BLOCK):
                size, checksum = size + len(block), zlib.crc32(block, checksum)
        found[name] = Checked(size, checksum)
    return found


def files_in(directory: Path) -> list[str]:
    """The paths of all files in a directory, in order."""
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


def _counts(name: str) -> bool:
    """Whether a file is one of a checkpoint: systems leave files of their own, whose names begin with a dot."""
    return not PurePosixPath(name).name.startswith(".")


def check_files(directory: Path, files: Mapping[str, Checked], share: int = 0, shares: int = 1) -> None:
    """See that files are as they were written, of which each process of several looks at its share.

    Raises:
        CheckpointError: one is not, is reached by a link, or is one more.
    """
    more = [name for name in files_in(directory) if name not in files and name != ABOUT and _counts(name)]
    if more:
        raise CheckpointError(
            f"the checkpoint {directory} is damaged",
            given=f"a file that was not written: {more[0]}",
            expected=f"what {ABOUT} names",
            fix=_OTHER_STEP,
        )
    for name in sorted(files)[share::shares]:
        expected, path = files[name], directory / name
        if any(own.is_symlink() for own in (path, *path.parents[: len(PurePosixPath(name).parts)])):
            given, should = f"{name}, reached by a link", "a file of its own"
        elif not path.is_file():
            given, should = f"no file {name}", f"a file of {expected.size:,} bytes"
        elif path.stat().st_size != expected.size:
            given, should = f"{name} of {path.stat().st_size:,} bytes", f"{expected.size:,} bytes"
        elif summed(directory, [name])[name] != expected:
            given, should = f"{name}, of another checksum", "what was written"
        else:
            continue
        raise CheckpointError(f"the checkpoint {directory} is damaged", given=given, expected=should, fix=_OTHER_STEP)


_OTHER_STEP = "restore another step: checkpoints.restore(engine, step=...), one of checkpoints.steps"


# --- what it says -----------------------------------------------------------------------------------------


def _told(about: About) -> dict[str, Any]:
    """What a checkpoint says of itself, as JSON has it."""
    return {
        "format": FORMAT,
        "codelet": about.written_by,
        "graph": about.graph,
        "variables": [own._asdict() for own in about.variables],
        "files": {name: own._asdict() for name, own in about.files.items()},
    }


def _sum_of(told: Mapping[str, Any]) -> int:
    """The checksum of what a checkpoint says of itself, however it is laid out."""
    return zlib.crc32(json.dumps(told, sort_keys=True, separators=(",", ":")).encode())


def write_about(directory: Path, about: About) -> None:
    """Write what a checkpoint says of itself beside its files, safe on the disk."""
    told = _told(about)
    with open(directory / ABOUT, "w", encoding="utf-8") as file:
        json.dump({**told, "checksum": _sum_of(told)}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def _is_newer(told: Any) -> bool:
    return isinstance(told, dict) and type(told.get("format")) is int and told["format"] > FORMAT


def _is_inside(name: str) -> bool:
    """Whether a path names a file in a checkpoint, in one way alone."""
    path = PurePosixPath(name)
    plain = not path.is_absolute() and ".." not in path.parts and path.as_posix() == name and "\\" not in name
    return plain and name not in ("", ".", ABOUT) and not PureWindowsPath(name).drive


def _as_written(told: Any) -> About | None:
    """What a checkpoint says of itself, where it says all and nothing else; None where it does not."""
    keys = {"format", "codelet", "graph", "variables", "files"}
    if not isinstance(told, dict) or type(told.get("format")) is not int or not 1 <= told["format"] <= FORMAT:
        return None
    if told.keys() != (keys if told["format"] == 1 else {*keys, "checksum"}):
        return None
    variables = tuple(SavedVariable(**own) for own in told["variables"])
    files = {name: Checked(**own) for name, own in told["files"].items()}
    about = About(variables, files, told["codelet"])
    texts = [about.written_by, *(text for own in variables for text in (own.name, own.type))]
    numbers = [number for own in files.values() for number in own]
    is_right = (
        all(type(own) is str for own in texts)
        and all(own.held in get_args(Held) for own in variables)
        and all(type(own) is int and own >= 0 for own in numbers)
        and all(map(_is_inside, files))
        and (bool(files) or not any(own.has_values for own in variables))
        and about.graph == told["graph"]
        and ("checksum" not in told or told["checksum"] == _sum_of(_told(about)))
    )
    return about if is_right else None


def read_about(directory: Path) -> About:
    """What a checkpoint says of itself.

    Raises:
        CheckpointError: it says nothing that can be understood.
    """
    told: Any = None
    try:
        if directory.is_symlink() or (directory / ABOUT).is_symlink():
            raise ValueError("a link")
        told = json.loads((directory / ABOUT).read_text(encoding="utf-8"))
        about = None if _is_newer(told) else _as_written(told)
        if about is not None:
            return about
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError(
            f"{directory} is no checkpoint of codelet",
            given=f"no file {ABOUT} in it" if directory.is_dir() else "no directory",
            expected="what cl.Checkpoints(...).save wrote",
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    if _is_newer(told):
        raise CheckpointError(
            f"the checkpoint {directory} was written by a newer codelet",
            given=f"format {told['format']}, of codelet {told.get('codelet')}",
            expected=f"format {FORMAT} or an older one: this is codelet {VERSION}",
            fix="pip install --upgrade codelet",
        )
    raise CheckpointError(
        f"the checkpoint {directory} is damaged",
        given=f"{ABOUT} is not as it was written",
        expected="all that was written",
        fix=_OTHER_STEP,
    )


def check_graph(directory: Path, about: About, here: About) -> None:
    """See that a checkpoint is of an engine's graph.

    Raises:
        CheckpointError: it is of another.
    """
    if about.graph == here.graph:
        return
    saved, own = (
        {f"{v.name}: {v.type}" + (" (constant)" if v.held == "constant" else ""): None for v in each.variables}
        for each in (about, here)
    )
    only_there, only_here = [v for v in saved if v not in own], [v for v in own if v not in saved]

    def some(variables: list[str]) -> str:
        shown = ", ".join(variables[:4])
        return (
            f"{shown} and {len(variables) - 4:,} more" if len(variables) > 4 else shown or "the same in another order"
        )

    raise CheckpointError(
        f"the checkpoint {directory} is of another graph",
        given=f"a checkpoint with {some(only_there)}",
        expected=f"the variables of the engine's graph, with {some(only_here)}",
        fix="restore it into an engine of the graph that was saved, and take over what is wanted: "
        "other.load_state({...}) of parts of engine.state",
    )
