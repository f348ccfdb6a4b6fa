"""Docstrings: every public name has one, with an example that runs and every parameter by name.

Doctests themselves run with the suite (`--doctest-modules`). The rules here are on the names in `cl.__all__`, on public
methods and properties of these classes, on `cl.onnx` and `cl.stablehlo`, and on the operations of `cl.ops`. Errors have
a row in `docs/howto/errors.md` instead, which `test_docs.py` holds.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import codelet as cl

EXCEPTIONS = {
    "Lowered": "made by `cl.lower` alone, of what has no public names",
}
"""Names that keep a rule in another way, with the reason."""


class Public(NamedTuple):
    """Something public.

    Attributes:
        name: as a user writes it, after `cl.`.
        text: its docstring; of a class, with that of `__init__`.
        parameters: the names of its parameters, without `self`.
    """

    name: str
    text: str
    parameters: list[str]


def _parameters(function: Callable[..., Any], skipped: int = 0) -> list[str]:
    return [*inspect.signature(function).parameters][skipped:]


def _function_of(member: Any) -> tuple[Any, int]:
    """The function behind a member of a class, and how many of its first parameters Python fills in."""
    if isinstance(member, classmethod):
        return member.__func__, 1
    if isinstance(member, staticmethod):
        return member.__func__, 0
    if isinstance(member, property):
        return member.fget, 1
    if isinstance(member, functools.cached_property):
        return member.func, 1
    return member, 1


def _members(name: str, kind: type) -> Iterator[Public]:
    for each, member in vars(kind).items():
        function, skipped = _function_of(member)
        if each.startswith("_") or not inspect.isfunction(function) or function.__module__ == "codelet.deprecated":
            continue
        text = inspect.getdoc(getattr(kind, each)) or "" if inspect.isfunction(member) else inspect.getdoc(member) or ""
        yield Public(f"{name}.{each}", text, _parameters(function, skipped))


def _public(name: str, thing: Any) -> Iterator[Public]:
    if not inspect.isclass(thing):
        yield Public(name, inspect.getdoc(thing) or "", _parameters(thing))
        return
    made = thing.__dict__.get("__init__")
    of_init = inspect.getdoc(made) or "" if inspect.isfunction(made) else ""
    parameters = _parameters(made, 1) if inspect.isfunction(made) else []
    yield Public(name, f"{thing.__doc__ or ''}\n{of_init}", parameters)
    yield from _members(name, thing)


def all_public() -> Iterator[Public]:
    """All public names outside of `cl.ops`, but for errors and warnings, which `test_signatures.py` looks at."""
    for name in cl.__all__:
        thing = getattr(cl, name)
        is_error = inspect.isclass(thing) and issubclass(thing, Exception)
        if not inspect.ismodule(thing) and not is_error:
            yield from _public(name, thing)
    for room in (cl.onnx, cl.stablehlo):
        for name in room.__all__:
            yield from _public(f"{room.__name__.removeprefix('codelet.')}.{name}", getattr(room, name))


ALL = list(all_public())


def test_there_are_many():
    assert len(ALL) > 250
    assert len({each.name for each in ALL}) == len(ALL)
    assert {each.name for each in ALL} >= EXCEPTIONS.keys()
    assert len(EXCEPTIONS) <= 5


def test_every_name_has_a_docstring():
    assert [each.name for each in ALL if not each.text.strip()] == []


def test_every_name_has_an_example_of_its_own():
    """Of its own: that of its class does not count, nor one of a base."""
    assert [each.name for each in ALL if ">>> " not in each.text] == []


def test_every_operation_has_an_example_and_its_parameters():
    operations = [each for name in cl.ops.__all__ for each in _public(f"ops.{name}", getattr(cl.ops, name))]
    assert len(operations) > 100
    assert [each.name for each in operations if ">>> " not in each.text] == []
    assert [f"{e.name}({own}=)" for e in operations for own in e.parameters if not _names(e.text, own)] == []


def _names(text: str, parameter: str) -> bool:
    """True if a docstring has a line for a parameter, or names it in code."""
    of_line = rf"^ *\*{{0,2}}(\w+, )*{parameter}(, \w+)*: "
    return bool(re.search(of_line, text, re.M) or re.search(rf"`[^`\n]*\b{parameter}\b[^`\n]*`", text))


def test_every_parameter_is_named():
    found = [
        f"{each.name}({parameter}=)"
        for each in ALL
        if each.name not in EXCEPTIONS
        for parameter in each.parameters
        if not _names(each.text, parameter)
    ]
    assert found == []


@pytest.mark.parametrize("text", ["Args:\n    x: a tensor.", "Args:\n    w, x: tensors.", "Add `x` to it."])
def test_how_parameters_are_named(text):
    assert _names(text, "x")
    assert not _names(text, "y")
    assert not _names("An x, and a box.", "x")


def _raised(text: str) -> Iterator[str]:
    """The classes that the part `Raises:` of a docstring names at the beginning of its lines."""
    for part in re.findall(r"^ *(?:Raises|Warns):\n((?: +.*\n?)+)", text, re.M):
        for line in re.findall(r"^ *((?:\w+, )*\w+)(?: and others)?: ", part, re.M):
            yield from (name for name in line.split(", ") if name.endswith(("Error", "Warning", "Exception")))


def test_what_is_raised_exists():
    found = {name for each in ALL for name in _raised(each.text)}
    assert len(found) > 25
    assert {name for name in found if not hasattr(cl, name) and not hasattr(builtins, name)} == set()
