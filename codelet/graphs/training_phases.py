"""The phases of a training step: what a compute set is for, by the scopes in its name."""

from __future__ import annotations

import re

PHASES = ("forward", "backward", "update")


def phase_of_part(part: str) -> int | None:
    """The place in `PHASES` that a part of a name says; of `backward_2`, the scope of a second gradient, too."""
    name = re.sub(r"_\d+$", "", part)
    return PHASES.index(name) if name in PHASES else None


def phase_of(name: str) -> int:
    """The place in `PHASES` of a compute set, by its name.

    >>> [PHASES[phase_of(name)] for name in ("conv 1/dot", "backward_2/conv 1/dot", "update/conv 1")]
    ['forward', 'backward', 'update']
    """
    found = {phase_of_part(part) for part in re.split(r"[/ ]", name)}
    return next((place for place in (2, 1) if place in found), 0)


def without_phases(name: str) -> str:
    """A name without the parts that say a phase.

    >>> without_phases("backward/conv 1/dot")
    'conv 1/dot'
    """
    return "/".join(part for part in name.split("/") if phase_of_part(part) is None)
