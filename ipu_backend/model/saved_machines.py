"""Machines in files: by their numbers, with the tables of cycles by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from codelet.jaxprs.plain import Plain, PlainReader, PlainWriter, check_form, listed, text, whole
from codelet.saved.target_forms import TARGET_FORMS, TargetForm
from codelet.target import Target
from ipu_backend.model.ipu import IPU
from ipu_backend.model.machine import Machine, Route
from ipu_backend.model.tables import POPLIBS, POPLIBS_FLOAT8, Tables

_TABLES: Mapping[str, Tables] = {"PopLibs": POPLIBS, "PopLibs with float8": POPLIBS_FLOAT8}

_KINDS: Mapping[str, type] = {"IPU": IPU, "Machine": Machine}


def _number(value: Any) -> Plain | None:
    if isinstance(value, Route):
        return ["route", value.cycles, value.row_cycles, value.rows]
    if isinstance(value, Tables):
        return next((["tables", name] for name, item in _TABLES.items() if item is value), None)
    return ["number", PlainWriter().value(value)]


def _write(target: Target) -> Plain | None:
    name = next((name for name, kind in _KINDS.items() if type(target) is kind), None)
    if name is None or not isinstance(target, Machine):
        return None
    numbers = {field.name: _number(getattr(target, field.name)) for field in fields(Machine)}
    return None if None in numbers.values() else [name, [[key, item] for key, item in numbers.items()]]


def _read_number(plain: Plain) -> Any:
    check_form(type(plain) is list and plain, "a number of a machine")
    match plain:
        case ["route", *numbers]:
            return Route(*listed(numbers, 3))
        case ["tables", str(name)] if name in _TABLES:
            return _TABLES[name]
        case ["number", item]:
            return PlainReader(()).value(item)
    check_form(False, f"{plain!r:.40} for a number of a machine")


def _read(plain: Plain) -> Machine:
    kind, pairs = listed(plain, 2)
    numbers = {text(listed(pair, 2)[0]): _read_number(pair[1]) for pair in listed(pairs)}
    check_form(numbers.keys() == {field.name for field in fields(Machine)}, "the numbers of a machine")
    whole(numbers["num_tiles"], 1, 1 << 24)
    if kind == "Machine":
        return Machine(**numbers)
    check_form(kind == "IPU", f"the machine {kind!r:.40}")
    name = numbers.pop("name")
    usual = IPU(name, num_chips=1)
    machine = IPU(name, **{key: item for key, item in numbers.items() if item != getattr(usual, key)})
    check_form(all(getattr(machine, key) == item for key, item in numbers.items()), "the numbers of an IPU")
    return machine


TARGET_FORMS["machine"] = TargetForm(_write, _read)
