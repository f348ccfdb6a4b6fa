"""The questions of a graph to the machine it is built for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from codelet.errors import VariableError

if TYPE_CHECKING:
    from codelet.tracing.traced_codelet import TracedCodelet


@dataclass(frozen=True)
class VertexCycles:
    """The cost of one vertex on its tile.

    Attributes:
        worker: cycles of each worker that runs it.
        supervisor: cycles of the tile besides, in which no worker runs.
        shared: whether all workers of the tile run it together, as Poplar's MultiVertex; else one does.
        fitted: how many of `worker` and `supervisor` together rest on constants fitted to measurements.
        guessed: how many rest on guesses; the others have a source.
        if_assembly: `worker` and `supervisor` together, were it not assumed that the codelet is compiled; None where
            nothing is supposed.
    """

    worker: int
    supervisor: int = 0
    shared: bool = False
    fitted: int = 0
    guessed: int = 0
    if_assembly: int | None = None

    @property
    def counted(self) -> int:
        """Its cycles on one worker and on the supervisor."""
        return self.worker + self.supervisor

    def tile_cycles(self, num_workers: int) -> int:
        """Its cost alone on a tile, whose workers each run at one `num_workers`-th of the clock.

        >>> VertexCycles(worker=50, supervisor=11, shared=True).tile_cycles(6)
        311
        """
        return self.supervisor + num_workers * self.worker


_COUNTED = attrgetter("counted")


@dataclass(frozen=True, eq=False)
class FamilyCycles:
    """The costs of the vertices of a family, each on its tile.

    Attributes:
        distinct: the distinct costs.
        of_vertex: which of them each vertex takes, int32, in row-major order over the family's axes; None
            where all take the first.
    """

    distinct: tuple[VertexCycles, ...]
    of_vertex: np.ndarray | None = None

    def numbers(self, what: Callable[[VertexCycles], int] = _COUNTED) -> np.ndarray:
        """A number of each that occurs, int64."""
        return np.array([what(own) for own in self.distinct], np.int64)

    def of_each(self, num_vertices: int, what: Callable[[VertexCycles], int] = _COUNTED) -> np.ndarray:
        """A number of every vertex, int64."""
        numbers = self.numbers(what)
        return np.full(num_vertices, numbers[0]) if self.of_vertex is None else numbers[self.of_vertex]

    def total(self, num_vertices: int, what: Callable[[VertexCycles], int] = _COUNTED) -> int:
        """A number of all vertices together."""
        numbers = self.numbers(what)
        if self.of_vertex is None:
            return int(numbers[0]) * num_vertices
        return int(np.bincount(self.of_vertex, minlength=len(numbers)) @ numbers)


@runtime_checkable
class Target(Protocol):
    """A machine of tiles. `ipu_backend.Machine` implements it, by data alone.

    Attributes:
        num_tiles: of all chips; numbered from 0 to `num_tiles - 1`.
        num_chips: chips, each with as many tiles, one after another.
        num_workers: worker contexts that share a tile's pipeline.
        bytes_per_tile: memory of one tile, in bytes.
        interleaved_bytes: how many of them lie in memory that is read twice as wide; 0 for no such difference.
        clock_hertz: cycles per second.
        word_bytes: exchange moves whole words of so many bytes.
        exchange_bytes_per_cycle: the bytes that one tile receives in a cycle, and those that it sends.
        paired_exchange: whether tiles 2k and 2k + 1 share a bus. If so, words for both alone move at twice the rate,
            where the sender's partner sends nothing.
        max_message_words: longer transfers are sent in several messages.
        sync_cycles: of the synchronization before an exchange.
        exchange_overhead_cycles: of every exchange, whatever it moves.
        launch_cycles: of a tile that starts the vertices of a compute set.
        host_bytes_per_cycle: the bytes that streams from and to the host move, of all tiles of a chip together.
        host_overhead_cycles: of every copy from or to a stream, whatever it moves.
        link_bytes_per_second: of one link between chips, without the overhead of its protocol.
        hop_seconds: of a sync from one chip to the next.
        stack_bytes: the memory of a tile for the stacks of its workers and its supervisor.
        control_code_bytes: of the code that steps through a program, on every tile.
        host_code_bytes: of the code of exchanges with the host, on a tile that takes part in any.
    """

    @property
    def num_tiles(self) -> int: ...
    @property
    def num_chips(self) -> int: ...
    @property
    def num_workers(self) -> int: ...
    @property
    def bytes_per_tile(self) -> int: ...
    @property
    def interleaved_bytes(self) -> int: ...
    @property
    def clock_hertz(self) -> float: ...

    @property
    def word_bytes(self) -> int: ...
    @property
    def exchange_bytes_per_cycle(self) -> int: ...
    @property
    def paired_exchange(self) -> bool: ...
    @property
    def max_message_words(self) -> int: ...
    @property
    def sync_cycles(self) -> int: ...
    @property
    def exchange_overhead_cycles(self) -> int: ...
    @property
    def launch_cycles(self) -> int: ...

    @property
    def host_bytes_per_cycle(self) -> float: ...
    @property
    def host_overhead_cycles(self) -> int: ...
    @property
    def link_bytes_per_second(self) -> float: ...
    @property
    def hop_seconds(self) -> float: ...

    @property
    def stack_bytes(self) -> int: ...
    @property
    def control_code_bytes(self) -> int: ...
    @property
    def host_code_bytes(self) -> int: ...

    def arrival_cycles(self) -> np.ndarray:
        """From when a tile sends a word until it arrives, for each tile that it may go to: int64, (num_tiles,)."""
        ...

    def estimate_cycles(self, codelet: TracedCodelet) -> VertexCycles:
        """The cost of a vertex of a codelet, whose fields' lengths are all known.

        Planners ask of many lengths at once. Sizes are then columns that compute and compare as integers do, and a
        function that branches on them is called again for those that go another way (`codelet/tracing/cases.py`).
        """
        ...

    def interleaved_fields(self, codelet: TracedCodelet) -> tuple[str, ...]:
        """The fields of such a vertex that must lie in interleaved memory for that, in their order."""
        ...


_MAKERS: dict[str, Callable[[], Target]] = {}


def register_default_target(make: Callable[[], Target]) -> None:
    """Set the default target of graphs."""
    _MAKERS["default"] = make


def default_target() -> Target:
    """The target of a graph that names none, as registered."""
    return _MAKERS["default"]()


def checked_target(target: object) -> Target | None:
    """The machine given to a graph: None for the default.

    Raises:
        VariableError: something that is no target.
    """
    if target is None or isinstance(target, Target):
        return target
    meant = {str: f"cl.IPU({target!r})", int: f"cl.IPU(num_tiles={target})"}
    raise VariableError(
        "a graph's target is not a machine",
        given=repr(target),
        expected="cl.IPU(...), or another Target",
        fix=next((fix for kind, fix in meant.items() if isinstance(target, kind)), None),
    )
