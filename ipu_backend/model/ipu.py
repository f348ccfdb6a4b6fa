"""IPU targets: the numbers of Graphcore's chips."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from codelet.errors import CodeletError
from codelet.tracing.codelets import TracedCodelet
from ipu_backend.model.cost import codelet_cycles


class TargetError(CodeletError):
    """A target that does not exist, or numbers that no machine has."""


# Tiles, memory, workers, clocks and matrix units: the IPU Programmer's Guide and Graphcore's product
# descriptions of Mk1 (GC2), Mk2 (GC200) and Bow; Jia et al., "Dissecting the Graphcore IPU Architecture
# via Microbenchmarking" (2019), for Mk1.
_NUMBERS = "num_tiles", "bytes_per_tile", "clock_hertz", "float16_macs_per_cycle", "float32_macs_per_cycle"
_CHIPS: dict[str, dict[str, Any]] = {
    "mk1": dict(zip(_NUMBERS, (1216, 256 * 1024, 1.6e9, 32, 8), strict=True)),
    "mk2": dict(zip(_NUMBERS, (1472, 624 * 1024, 1.33e9, 64, 16), strict=True)),
    "bow": dict(zip(_NUMBERS, (1472, 624 * 1024, 1.85e9, 64, 16), strict=True)),
}


def _check_value(name: str, value: Any) -> None:
    if name == "chip":
        return
    if name == "paired_exchange":
        if not isinstance(value, bool):
            raise TargetError(f"{name} is neither True nor False", given=value)
        return
    least = 0 if name == "sync_cycles" else 1
    whole = name != "clock_hertz"
    is_number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not is_number or value < least:
        expected = f"a whole number from {least}" if whole else "a number from 1"
        raise TargetError(f"{name} is not {expected}", given=value)


@dataclass(frozen=True, init=False)
class IPU:
    """An IPU, or a machine like one.

    Args:
        chip: `"mk1"` (GC2), `"mk2"` (GC200, the default) or `"bow"`.
        changes: any of the attributes below, to describe another machine.

    Attributes:
        chip: the chip whose numbers it starts from.
        num_tiles: tiles.
        num_workers: worker contexts of a tile, which share its pipeline round-robin.
        bytes_per_tile: memory of a tile, in bytes.
        clock_hertz: cycles per second.
        exchange_bytes_per_cycle: what a tile receives in a cycle, in bytes.
        vector_bytes: what one vector instruction takes of an operand, in bytes.
        float16_macs_per_cycle: multiply-accumulates of a tile's matrix unit in a cycle, in float16.
        float32_macs_per_cycle: the same, in float32.
        sync_cycles: from the last tile that waits for the others to the start of the exchange. A guess:
            Graphcore publishes none for one chip. 0 leaves it out.
        paired_exchange: whether the two tiles of a pair, which share a bus, receive at twice the rate what
            both receive.

    Raises:
        TargetError: an unknown chip or attribute, or a number that is not positive; `sync_cycles` may be 0.

    >>> import codelet as cl
    >>> cl.IPU("mk1").num_tiles
    1216
    >>> cl.IPU(num_tiles=8)
    IPU('mk2', num_tiles=8)
    """

    chip: str
    num_tiles: int
    bytes_per_tile: int
    clock_hertz: float
    float16_macs_per_cycle: int
    float32_macs_per_cycle: int
    num_workers: int = 6
    exchange_bytes_per_cycle: int = 4
    vector_bytes: int = 8
    sync_cycles: int = 100
    paired_exchange: bool = True

    def __init__(self, chip: str = "mk2", **changes: Any):
        if chip not in _CHIPS:
            fix = f"cl.IPU(num_tiles={chip})" if isinstance(chip, int) else None
            raise TargetError("there is no such chip", given=chip, expected=", ".join(_CHIPS), fix=fix)
        defaults = {field.name: getattr(type(self), field.name, None) for field in fields(self)}
        values = {**defaults, **_CHIPS[chip], **changes, "chip": chip}
        for name, value in values.items():
            if name not in defaults:
                raise TargetError(f"an IPU has no {name!r}", given=f"{name}={value!r}", expected=", ".join(defaults))
            _check_value(name, value)
            object.__setattr__(self, name, value)

    def estimate_cycles(self, codelet: TracedCodelet) -> int:
        """Cycles one worker takes for a vertex of a codelet: its own `cycles=`, or the rules of `cycle_rules.py`.

        Raises:
            CyclesError: the codelet's own `cycles=` fails.
        """
        return codelet_cycles(codelet, self)

    def __repr__(self) -> str:
        usual = IPU(self.chip) if self.__class__ is IPU else self
        pairs = [(field.name, getattr(self, field.name)) for field in fields(self)]
        changed = [f"{name}={value!r}" for name, value in pairs if value != getattr(usual, name)]
        return f"IPU({', '.join([repr(self.chip), *changed])})"
