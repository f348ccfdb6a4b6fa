"""Plans that are kept on the disk: an operation that was planned once for a machine is planned.

Each plan is a file, named by the digest of all that it depends on (`plan_keys.py`): sizes, machine, codelets, options
and versions. It is written beside and renamed, so that processes that plan the same at once end with one good file. A
file that is damaged in any way is as none. The folder is bounded: files that were not read for the longest go first.

The folder is `CODELET_CACHE`; where that is not set, one within the folder of JAX's compilation cache
(`jax_compilation_cache_dir`), if that is used; else `~/.cache/codelet`. `CODELET_CACHE=0` disables it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from codelet.graphs.stages import Cut
from codelet.jaxprs.plain import (
    MalformedError,
    NotPlainError,
    Plain,
    PlainReader,
    PlainWriter,
    check_form,
    listed,
    text,
    whole,
)
from codelet.jaxprs.strict_json import parsed_json, written_json
from codelet.ops.plan_keys import plan_key
from codelet.ops.planning import Plan
from codelet.ops.prices import StepCost

MOST_BYTES = 1 << 26
"""Bytes of all files together; a plan takes one or two thousand."""

_OFF = ("0", "off", "false", "no")

_SUFFIX = ".plan"

_DAY = 86_400

_BETWEEN = 256
"""After so many plans that were written it is looked how large the folder is."""


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


# --- plans as plain data --------------------------------------------------------------------------------------

_STEP = ("num_vertices", "num_tiles", "sync", "exchange", "compute", "tile_bytes", "there_bytes")


def _written(plan: Plan | None, writer: PlainWriter) -> Plain:
    if plan is None:
        return None
    steps = [[item.name, *(writer.value(getattr(item, name)) for name in _STEP)] for item in plan.steps]
    cuts = [[item.name, *(writer.value(size) for size in (item.extent, item.block, item.grain))] for item in plan.cuts]
    return [
        plan.operation,
        cuts,
        steps,
        writer.value(tuple(plan.details)),
        _written(plan.next_best, writer),
        writer.value(plan.num_options),
        [_written(part, writer) for part in plan.parts],
    ]


def _number(value: Any) -> Any:
    check_form(isinstance(value, (int, np.integer, float, np.floating)), "a number of a plan")
    return value


def _read(plain: Plain, reader: PlainReader, depth: int = 0) -> Plan:
    operation, cuts, steps, details, other, options, parts = listed(plain, 7)
    check_form(depth < 10, "plans that are nested too deep")
    read_cuts, read_steps = [], []
    for item in listed(cuts):
        name, *sizes = listed(item, 4)
        extent, block, grain = (_number(reader.value(size)) for size in sizes)
        check_form(1 <= grain <= block <= max(1, extent), "how a dimension is cut")
        check_form(block % grain == 0 or block >= extent, "how a dimension is cut")
        read_cuts.append(Cut(text(name), extent, block, grain))
    for item in listed(steps):
        name, *numbers = listed(item, 1 + len(_STEP))
        read_steps.append(StepCost(text(name), *(_number(reader.value(number)) for number in numbers)))
    chosen = reader.value(details)
    check_form(isinstance(chosen, tuple) and all(type(item) is tuple and len(item) == 2 for item in chosen), "details")
    return Plan(
        text(operation),
        tuple(read_cuts),
        tuple(read_steps),
        chosen,
        None if other is None else _read(other, reader, depth + 1),
        whole(options),
        tuple(_read(part, reader, depth + 1) for part in listed(parts)),
    )


# --- files ----------------------------------------------------------------------------------------------------


class _Writes:
    """How many plans this process has written."""

    count = 0


def _path(folder: Path, key: str) -> Path:
    return folder / f"{key}{_SUFFIX}"


def _looked_up(folder: Path, key: str) -> Plan | None:
    """A plan that was kept; None where there is none, or one that is not as it was written."""
    path = _path(folder, key)
    try:
        data = path.read_bytes()
        digest, _, body = data.partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != digest:
            return None
        plan = _read(parsed_json(body), PlainReader(()))
        if time.time() - path.stat().st_mtime > _DAY:
            os.utime(path)  # it is used
        return plan
    except FileNotFoundError:
        return None
    except (OSError, MalformedError, ValueError, TypeError, AssertionError):
        return None


def _keep(folder: Path, key: str, plan: Plan) -> None:
    """Keep a plan, if that can be: where it cannot, it is planned again the next time."""
    writer = PlainWriter()
    try:
        body = written_json(_written(plan, writer))
        if writer.arrays:
            return
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
        folder: of plans.
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


Planner = TypeVar("Planner", bound=Callable[..., Plan])


def kept_on_disk(planner: Planner) -> Planner:
    """A planner whose plans are kept on the disk, and looked up there first.

    Args:
        planner: a function whose plans depend on its arguments alone, and on JAX's settings.
    """

    @functools.wraps(planner)
    def planned(*args: Any, **kwargs: Any) -> Plan:
        folder = cache_folder()
        key = None if folder is None else plan_key(f"{planner.__module__}.{planner.__name__}", (args, kwargs))
        if folder is None or key is None:
            return planner(*args, **kwargs)
        plan = _looked_up(folder, key)
        if plan is None:
            plan = planner(*args, **kwargs)
            _keep(folder, key, plan)
        return plan

    return planned  # type: ignore[return-value]
