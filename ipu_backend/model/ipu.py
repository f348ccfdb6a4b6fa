"""IPU targets: the numbers of Graphcore's chips."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ipu_backend.model.machine import Machine, Route, TargetError, check_number
from ipu_backend.model.tables import POPLIBS_FLOAT8

# Tiles, memory, workers, clocks and matrix units: the IPU Programmer's Guide and Graphcore's product
# descriptions of Mk1 (GC2), Mk2 (GC200) and Bow; Jia et al., "Dissecting the Graphcore IPU Architecture
# via Microbenchmarking" (2019), for Mk1.
#
# Routes: what is sent reaches a tile 52 cycles and 2 a row later (ipu-stack, EXCHANGE_INSTRUCTION_REFERENCE.md
# @ 00a40d61, of a C600, which is an Mk2; elsewhere 58 is told). What a turn between columns takes, 1 to 16 cycles by
# the columns of both tiles, is left out. Pairs of tiles lie in columns of 23, there and back
# (crates/ipu-target/src/topology.rs @ 560cbb20); that Mk1 is as wide, and so has columns of 19, is a guess.
#
# Interleaved memory is read 128 bits at a time: of Mk2, whose tiles have addresses from 0x4C000 to 0xE8000, what lies
# from 0x80000 on, and of Mk1, from 0x40000 to 0x80000, the upper half. So say Poplar's headers for tiles, as we
# remember them: no public copy was found.
_NUMBERS = (
    *("num_tiles", "bytes_per_tile", "interleaved_bytes", "clock_hertz"),
    *("float16_macs_per_cycle", "float32_macs_per_cycle", "route"),
)
_CHIPS: dict[str, dict[str, Any]] = {
    "mk1": dict(zip(_NUMBERS, (1216, 0x40000, 0x20000, 1.6e9, 32, 8, Route(52, 2, rows=19)), strict=True)),
    "mk2": dict(zip(_NUMBERS, (1472, 0x9C000, 0x68000, 1.33e9, 64, 16, Route(52, 2, rows=23)), strict=True)),
    # PopLibs' float8 is of the chip after Mk2, 16 units of 32 weights: sold as C600, and given to Bow here.
    "bow": {
        **dict(zip(_NUMBERS, (1472, 0x9C000, 0x68000, 1.85e9, 64, 16, Route(52, 2, rows=23)), strict=True)),
        "float8_macs_per_cycle": 128,
    },
}
_CHIPS["bow"]["tables"] = POPLIBS_FLOAT8  # as of Graphcore's C600, which alone of its generation has the unit

_EVERY_CHIP: dict[str, Any] = {
    "num_workers": 6,
    "vector_bytes": 8,  # two float32 or four float16: IPU Programmer's Guide
    "word_bytes": 4,
    "exchange_bytes_per_cycle": 4,  # PopLibs, ExchangeEstimator.cpp @ 06f1b393
    "paired_exchange": True,  # the same: two tiles share a bus
    "max_message_words": 4148,  # ipu-stack, crates/ipu-target/src/exchange.rs @ 878314c8
    "sync_cycles": 90,  # PopLibs, CTCLossPlan.cpp @ 014c3075, syncCycles: a planner's number
    "exchange_overhead_cycles": 100,  # the same, fixedOverheadExchangeCycles
    "launch_cycles": 80,  # a fit: 47 to 106 cycles more than PopLibs' formulae were measured on Bow (tessellate-ipu)
    "host_bytes_per_cycle": 6.0,  # Poplar's model of its tutorial 6: 40,044,000 bytes in 6,663,551 cycles
    # A fit: one number took 1,491 to 1,771 on Mk2, in Graphcore's tutorial on lightweight profiling.
    "host_overhead_cycles": 1500,
    "link_bytes_per_second": 128 * 2**30 * 0.85 / 8,  # PopLibs, poplibs_test/Util.cpp @ f69d60c6
    "hop_seconds": 15e-9,  # the same
    "stack_bytes": 3168,  # Poplar's report of one adder on 1,216 tiles, in the user guide of its TensorFlow
    "control_code_bytes": 700,  # the same
    "host_code_bytes": 289,  # the same
}


class IPU(Machine):
    """An IPU, or a machine like one.

    Args:
        chip: `"mk1"` (GC2), `"mk2"` (GC200, the default) or `"bow"`.
        changes: any attributes of `cl.Machine`, to describe another machine. `num_chips=` alone multiplies the number
            of tiles.

    Raises:
        TargetError: an unknown chip or attribute, or an invalid number.

    >>> import codelet as cl
    >>> cl.IPU("mk1").num_tiles
    1216
    >>> cl.IPU(num_tiles=8)
    IPU('mk2', num_tiles=8)
    """

    def __init__(self, chip: str = "mk2", **changes: Any):
        if not isinstance(chip, str) or chip not in _CHIPS:
            fix = f"cl.IPU(num_tiles={chip})" if isinstance(chip, int) else None
            raise TargetError("there is no such chip", given=chip, expected=", ".join(_CHIPS), fix=fix)
        names = [field.name for field in fields(Machine) if field.name != "name"]
        for name, value in changes.items():
            if name not in names:
                raise TargetError(f"an IPU has no {name!r}", given=f"{name}={value!r}", expected=", ".join(names))
            check_number(name, value)
        numbers = {**_EVERY_CHIP, **_CHIPS[chip]}
        numbers["num_tiles"] *= changes.get("num_chips", 1)
        super().__init__(name=chip, **{**numbers, **changes})

    @property
    def chip(self) -> str:
        """The chip that its numbers start from.

        >>> import codelet as cl
        >>> cl.IPU("bow", num_tiles=4).chip
        'bow'
        """
        return self.name

    def _usual(self) -> Machine:
        return IPU(self.name)
