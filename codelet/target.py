"""What a graph asks of the machine it is built for."""

from __future__ import annotations

import importlib
from typing import Protocol, runtime_checkable

from codelet.tracing.codelets import TracedCodelet


@runtime_checkable
class Target(Protocol):
    """A machine of tiles. `ipu_backend.IPU` implements it.

    Attributes:
        num_tiles: tiles are numbered from 0 to `num_tiles - 1`.
        num_workers: worker contexts that share a tile's pipeline.
        bytes_per_tile: memory of one tile, in bytes.
        clock_hertz: cycles per second.
        exchange_bytes_per_cycle: what one tile receives in a cycle, in bytes.
        sync_cycles: what every step takes for its synchronization.
        paired_exchange: whether tiles 2k and 2k + 1 receive at twice the rate what both receive.
    """

    @property
    def num_tiles(self) -> int: ...
    @property
    def num_workers(self) -> int: ...
    @property
    def bytes_per_tile(self) -> int: ...
    @property
    def clock_hertz(self) -> float: ...
    @property
    def exchange_bytes_per_cycle(self) -> int: ...

    @property
    def sync_cycles(self) -> int: ...
    @property
    def paired_exchange(self) -> bool: ...

    def estimate_cycles(self, codelet: TracedCodelet) -> int:
        """Cycles one worker takes for a vertex of a codelet, whose fields' lengths are all known."""
        ...


def default_target() -> Target:
    """The target of a graph that names none: the IPU of the second generation.

    Looked up by name, since the machine's package builds on this one.
    """
    return importlib.import_module("ipu_backend").IPU()
