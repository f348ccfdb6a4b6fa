"""Plans that are kept on the disk: an operation that was planned once for a machine is planned.

Each plan is a kept file (`codelet/kept_files.py`), by the digest of all that it depends on (`plan_keys.py`): sizes,
machine, codelets, options and versions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

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
from codelet.kept_files import cache_folder, keep, looked_up
from codelet.ops.plan_keys import plan_key
from codelet.ops.planning import Plan, is_uncut
from codelet.ops.prices import StepCost

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


def _kept_plan(plain: Plain) -> Plan | None:
    """A plan that was kept; None of anything else."""
    if plain is None:
        return None
    try:
        return _read(plain, PlainReader(()))
    except (MalformedError, ValueError, TypeError, AssertionError):
        return None


def _plain(plan: Plan) -> Plain:
    """A plan as plain data; None where it has no such form."""
    writer = PlainWriter()
    try:
        plain = _written(plan, writer)
    except NotPlainError:
        return None
    return None if writer.arrays else plain


Planner = TypeVar("Planner", bound=Callable[..., Plan])


def kept_on_disk(planner: Planner) -> Planner:
    """A planner whose plans are kept on the disk, and looked up there first.

    Args:
        planner: a function whose plans depend on its arguments alone, and on JAX's settings.
    """

    @functools.wraps(planner)
    def planned(*args: Any, **kwargs: Any) -> Plan:
        if any(type(own) is int and is_uncut(own) for own in (*args, *kwargs.values())):
            return planner(*args, **kwargs)
        folder = cache_folder()
        key = None if folder is None else plan_key(f"{planner.__module__}.{planner.__name__}", (args, kwargs))
        if folder is None or key is None:
            return planner(*args, **kwargs)
        plan = _kept_plan(looked_up(folder, key))
        if plan is None:
            plan = planner(*args, **kwargs)
            if (plain := _plain(plan)) is not None:
                keep(folder, key, plain)
        return plan

    return planned  # type: ignore[return-value]
