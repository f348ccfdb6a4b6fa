"""Machines in files: forms that packages of machines register, by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import NamedTuple

from codelet.errors import SavingError
from codelet.jaxprs.plain import MalformedError, Plain, listed, text
from codelet.target import Target


class TargetForm(NamedTuple):
    """How machines of a kind are written.

    Attributes:
        write: a machine as plain data; None for a machine of another kind.
        read: the machine again.
    """

    write: Callable[[Target], Plain | None]
    read: Callable[[Plain], Target]


TARGET_FORMS: dict[str, TargetForm] = {}
"""The kinds of machines that files may have, by name."""


def _forms() -> dict[str, TargetForm]:
    """The forms there are: those of the library's machines register themselves when they are first asked for."""
    importlib.import_module("ipu_backend.model.saved_machines")
    return TARGET_FORMS


def written_target(target: Target) -> Plain:
    """A machine as plain data.

    Raises:
        SavingError: a machine of a kind that no form is known for.
    """
    for name, form in _forms().items():
        plain = form.write(target)
        if plain is not None:
            return [name, plain]
    raise SavingError(
        "the machine of a graph cannot be saved",
        given=f"{target!r:.80}",
        expected="a cl.IPU, or a cl.Machine by its numbers, with the tables of an IPU",
        fix="cl.Graph(cl.Machine(...)): a class of your own is no data",
    )


def read_target(plain: Plain) -> Target:
    """A machine again.

    Raises:
        MalformedError: of a kind that no form is known for.
    """
    name, item = listed(plain, 2)
    if text(name) not in _forms():
        raise MalformedError(f"the kind of machine {name!r:.40}")
    return TARGET_FORMS[name].read(item)
