"""Phases: the purposes of the compute sets and variables of a training step, by their names alone.

In come names with scopes, as users, `cl.trace` and `cl.gradient` give them. A name in a scope of a phase is of that
phase; a residual is in the scope of the backward pass, but the forward pass writes it.
"""

from __future__ import annotations

import re

PHASES = ("forward", "backward", "update")

SAVED = "saved"
"""The scope, within that of a backward pass, of what the forward pass does for it."""


def phase_of_part(part: str) -> int | None:
    """The place in `PHASES` that a part of a name says; of `backward_2`, the scope of a second gradient, too."""
    name = re.sub(r"_\d+$", "", part)
    return PHASES.index(name) if name in PHASES else None


def phase_of(name: str) -> int:
    """The place in `PHASES` of a compute set or a variable, by its name.

    >>> [PHASES[phase_of(name)] for name in ("conv 1/dot", "backward_2/conv 1/dot", "update/conv 1")]
    ['forward', 'backward', 'update']
    >>> PHASES[phase_of("backward/saved/put")]
    'forward'
    """
    parts = re.split(r"[/ ]", name)
    found = [phase_of_part(part) for part in parts]
    if 2 in found:
        return 2
    return int(1 in found and SAVED not in parts[found.index(1) + 1 : found.index(1) + 2])


def without_phase(name: str) -> list[str]:
    """The parts of a name but those that say its phase.

    >>> without_phase("backward_2/convs/0/dot")
    ['convs', '0', 'dot']
    """
    parts = name.split("/")
    phases = [phase_of_part(part) for part in parts]
    return [
        part
        for part, phase, before in zip(parts, phases, [None, *phases], strict=False)
        if phase is None and not (before == 1 and part == SAVED)
    ]
