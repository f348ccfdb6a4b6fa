"""Pairs of codelets: the same function for all workers of a tile together, and for one of them alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from codelet.tracing.codelets import Codelet, codelet


class Pair(NamedTuple):
    """A codelet whose vertices the workers of a tile share, and the same of one worker."""

    shared: Codelet
    worker: Codelet

    def for_vertices(self, vertices: int, num_workers: int) -> Codelet:
        """Which of them a tile runs that has so many vertices: that of one worker where there is one for each."""
        return self.worker if vertices >= num_workers else self.shared

    def of(self, workers: object) -> Codelet:
        """That which a plan has chosen: by how many workers share a vertex."""
        return self.shared if workers == self.shared.hints.workers else self.worker


def told(codelet: Codelet) -> tuple[tuple[str, object], ...]:
    """The name in a plan of the chosen codelet."""
    return ("codelet", codelet.name), ("workers", codelet.hints.workers)


def both(function: Callable[..., Any]) -> Pair:
    """The pair of a function."""
    return Pair(codelet(function, workers=6, issue="assembly"), codelet(function, issue="assembly"))
