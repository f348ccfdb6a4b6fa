"""Machines as data: the numbers of tiles, memory, workers, exchange, host and links, and the tables of cycles."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from codelet.errors import CodeletError
from codelet.target import VertexCycles
from codelet.tracing.traced_codelet import TracedCodelet
from ipu_backend.model.cost import codelet_cycles, interleaved_fields
from ipu_backend.model.tables import POPLIBS, Tables


class TargetError(CodeletError, ValueError):
    """An unknown target, or an invalid number of a machine."""


@dataclass(frozen=True)
class Route:
    """The latency of a word between tiles, by the tile that receives it.

    Attributes:
        cycles: to a tile of the first row.
        row_cycles: more for each further row.
        rows: pairs of tiles in a column; pairs are numbered along columns, in alternating directions.

    Raises:
        TargetError: a negative number, or a fraction.

    >>> Route(cycles=50, row_cycles=2, rows=2).arrival_cycles(10)
    array([50, 50, 52, 52, 52, 52, 50, 50, 50, 50])
    """

    cycles: int
    row_cycles: int
    rows: int

    def __post_init__(self) -> None:
        for name, least in (("cycles", 0), ("row_cycles", 0), ("rows", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise TargetError(f"{name} of a route is not an integer from {least}", given=value)

    def arrival_cycles(self, num_tiles: int) -> np.ndarray:
        """Latency to each tile of a chip in cycles, int64 of shape (num_tiles,).

        Args:
            num_tiles: of one chip.

        >>> Route(cycles=50, row_cycles=2, rows=2).arrival_cycles(4).tolist()
        [50, 50, 52, 52]
        """
        column, row = np.divmod(np.arange(num_tiles) // 2, self.rows)
        return self.cycles + self.row_cycles * np.where(column % 2, self.rows - 1 - row, row)


_MAY_BE_ZERO = {
    *(
        "sync_cycles",
        "exchange_overhead_cycles",
        "launch_cycles",
        "host_overhead_cycles",
        "hop_seconds",
        "interleaved_bytes",
    ),
    *("stack_bytes", "control_code_bytes", "host_code_bytes", "float16_macs_per_cycle", "float32_macs_per_cycle"),
    "float8_macs_per_cycle",
}
_OTHER = {"name": str, "paired_exchange": bool, "route": Route | None, "tables": Tables}
_REAL = {"clock_hertz", "host_bytes_per_cycle", "link_bytes_per_second", "hop_seconds"}


def check_number(name: str, value: Any) -> None:
    """Check the value of an attribute of a machine.

    Raises:
        TargetError: an invalid value.
    """
    if name in _OTHER:
        if not isinstance(value, _OTHER[name]):
            wanted = {"paired_exchange": "neither True nor False"}.get(name, f"not of the type {_OTHER[name]}")
            raise TargetError(f"{name} is {wanted}", given=value)
        return
    least = 0 if name in _MAY_BE_ZERO else 1
    is_number = isinstance(value, (int, float) if name in _REAL else int) and not isinstance(value, bool)
    if not is_number or not value >= least:
        expected = f"{'a number' if name in _REAL else 'an integer'} from {least}"
        raise TargetError(f"{name} is not {expected}", given=value)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine of tiles, by its numbers and tables. `cl.IPU` has those of Graphcore's chips.

    Attributes:
        name: its printed name.
        num_tiles: of all chips.
        bytes_per_tile: memory of a tile, in bytes.
        clock_hertz: cycles per second.
        num_chips: chips, with equally many tiles.
        num_workers: worker contexts of a tile, which share its pipeline round-robin.
        interleaved_bytes: bytes of a tile in memory that is read twice as wide, where operands and results of the
            matrix unit must lie; 0 if memory is uniform.
        vector_bytes: width of a vector instruction, in bytes per operand.
        float16_macs_per_cycle: multiply-accumulates of a tile's matrix unit per cycle, in float16; 0 without one.
        float32_macs_per_cycle: the same, in float32.
        float8_macs_per_cycle: the same, in float8.
        word_bytes: the unit of exchange, in bytes.
        exchange_bytes_per_cycle: bytes that a tile receives per cycle, and bytes that it sends.
        paired_exchange: True if two tiles of a pair share a bus, so that data for both moves at twice the rate.
        max_message_words: longer data is sent in several messages.
        sync_cycles: of the synchronisation before an exchange.
        exchange_overhead_cycles: fixed cost of each exchange.
        route: the latency of a word; `None` for zero.
        launch_cycles: of a tile that starts the vertices of a compute set.
        host_bytes_per_cycle: bandwidth of streams, over all tiles of a chip.
        host_overhead_cycles: fixed cost of each copy from or to a stream.
        link_bytes_per_second: bandwidth of one link between chips, net of its protocol.
        hop_seconds: latency of a sync from one chip to the next.
        stack_bytes: stacks of a tile.
        control_code_bytes: code of the program's control flow, on every tile.
        host_code_bytes: code of exchanges with the host, on a tile that takes part in any.
        tables: the cycles of operations on a worker.

    Raises:
        TargetError: an invalid number.

    >>> import codelet as cl
    >>> cl.Machine(name="four", num_tiles=4, bytes_per_tile=2**16, clock_hertz=1e9)
    Machine('four', num_tiles=4)
    """

    name: str
    num_tiles: int
    bytes_per_tile: int
    clock_hertz: float
    num_chips: int = 1
    num_workers: int = 1
    interleaved_bytes: int = 0
    vector_bytes: int = 8
    float16_macs_per_cycle: int = 0
    float32_macs_per_cycle: int = 0
    float8_macs_per_cycle: int = 0
    word_bytes: int = 4
    exchange_bytes_per_cycle: int = 4
    paired_exchange: bool = False
    max_message_words: int = 2**31
    sync_cycles: int = 0
    exchange_overhead_cycles: int = 0
    route: Route | None = None
    launch_cycles: int = 0
    host_bytes_per_cycle: float = 4.0
    host_overhead_cycles: int = 0
    link_bytes_per_second: float = 1e9
    hop_seconds: float = 0.0
    stack_bytes: int = 0
    control_code_bytes: int = 0
    host_code_bytes: int = 0
    tables: Tables = POPLIBS

    def __post_init__(self) -> None:
        for field in fields(self):
            check_number(field.name, getattr(self, field.name))
        if self.num_tiles % self.num_chips:
            raise TargetError(
                "the tiles do not divide among the chips",
                given=f"num_tiles={self.num_tiles}, num_chips={self.num_chips}",
                expected="as many tiles on each",
            )

    def arrival_cycles(self) -> np.ndarray:
        """Latency of a word to each tile in cycles, int64 of shape (num_tiles,).

        >>> import codelet as cl
        >>> cl.IPU(num_tiles=4).arrival_cycles().tolist()
        [52, 52, 54, 54]
        """
        per_chip = self.num_tiles // self.num_chips
        each = np.zeros(per_chip, np.int64) if self.route is None else self.route.arrival_cycles(per_chip)
        return np.tile(each, self.num_chips)

    def estimate_cycles(self, codelet: TracedCodelet) -> VertexCycles:
        """The modelled cycles of a vertex: the codelet's `cycles=`, or the rules for the equations of its jaxpr.

        Args:
            codelet: a traced codelet, such as `graph.families[0].codelet`.

        Raises:
            CyclesError: the codelet's `cycles=` or `trip_count=` fails.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> graph.target.estimate_cycles(graph.families[0].codelet).worker
        7
        """
        return codelet_cycles(codelet, self)

    def interleaved_fields(self, codelet: TracedCodelet) -> tuple[str, ...]:
        """The fields of a vertex that must lie in interleaved memory, in order.

        Args:
            codelet: a traced codelet.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> graph.target.interleaved_fields(graph.families[0].codelet)    # a vertex without the matrix unit
        ()
        """
        return interleaved_fields(codelet, self)

    def _usual(self) -> Machine:
        """What is left out of its print."""
        own = {name: getattr(self, name) for name in ("bytes_per_tile", "clock_hertz")}
        return Machine(name=self.name, num_tiles=self.num_chips, **own)

    def __repr__(self) -> str:
        usual = self._usual()
        pairs = [(field.name, getattr(self, field.name)) for field in fields(self) if field.name != "name"]
        changed = [f"{name}={value!r}" for name, value in pairs if value != getattr(usual, name)]
        return f"{type(self).__name__}({', '.join([repr(self.name), *changed])})"
