"""The cost of one step of a program on the machine, for all its iterations, and figures of steps and programs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codelet.deprecated import old_attribute
from codelet.errors import CodeletError
from lowering.machine.phases import KINDS, Phase, StepCycles


class FigureError(CodeletError, ValueError):
    """A figure that a profile does not have."""


def check_kinds(kinds: Sequence[object]) -> None:
    """Check the names of kinds of phases.

    Raises:
        FigureError: an unknown kind.
    """
    for kind in kinds:
        if not isinstance(kind, str) or kind not in KINDS:
            raise FigureError("a profile has no such kind of phase", given=f"{kind!r:.80}", expected=", ".join(KINDS))


class CountedByKind:
    """Cycles counted by the kinds of phases; of a step, for all its iterations."""

    @abstractmethod
    def cycles_of(self, *kinds: str) -> int:
        """Cycles of the phases of some kinds."""

    @property
    def compute_cycles(self) -> int:
        """Cycles that compute adds to the program. If all tiles wait before a step, those of the slowest tile."""
        return self.cycles_of("compute")

    @property
    def exchange_cycles(self) -> int:
        """Cycles of the busiest tile in exchanges, before and after compute."""
        return self.cycles_of("exchange")

    @property
    def sync_cycles(self) -> int:
        """Cycles in which tiles wait for each other."""
        return self.cycles_of("sync")

    @property
    def external_exchange_cycles(self) -> int:
        """Cycles of the busiest link between chips."""
        return self.cycles_of("external exchange")

    @property
    def external_sync_cycles(self) -> int:
        """Cycles in which chips wait for each other."""
        return self.cycles_of("external sync")

    @property
    def host_cycles(self) -> int:
        """Cycles in which all tiles wait for transfers from or to the host."""
        return self.cycles_of("host")


@dataclass(frozen=True, eq=False, repr=False)
class StepProfile(CountedByKind):
    """The cost of one step, for all iterations of the loops around it.

    Attributes:
        name: the compute set, or the copy.
        iterations: of the loops around it; 0 in a branch that is not counted, since another takes longer.
        num_vertices: vertices in one iteration.
        cycles: the phases of one iteration, by tile.
        received_bytes: by all tiles in one iteration.
        used_bytes: bytes of its variables, over all tiles.
        other_live_bytes: bytes of other variables that are live meanwhile, over all tiles.
        hidden_cycles: cycles of host transfers that overlap with other steps, for all iterations.
        turns_are_guessed: True if the number of iterations of a loop around it is a guess.

    >>> import codelet as cl
    >>> graph = cl.Graph(cl.IPU(num_tiles=2))
    >>> graph.add_vertex("count", cl.codelet(lambda n: {"n": n + 1}), n=graph.add_variable("n", ()))
    >>> (step,) = cl.Engine(graph, cl.Repeat(10, graph.default_program)).profile().steps
    >>> step.name, step.iterations, step.num_vertices, step.balance
    ('count', 10, 1, 0.5)
    """

    name: str
    iterations: int
    num_vertices: int
    cycles: StepCycles
    received_bytes: int
    used_bytes: int = 0
    other_live_bytes: int = 0
    hidden_cycles: int = 0
    turns_are_guessed: bool = False
    repeats = old_attribute("StepProfile.repeats", "iterations")

    def __repr__(self) -> str:
        return f"<StepProfile of {self.name!r}: {self.total_cycles:,} cycles, iterations: {self.iterations:,}>"

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases of one iteration, in order: sync and exchange of inputs, compute, sync and exchange of outputs.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i], tile=i % 2)
        >>> graph.set_tile_mapping(x, 0)
        >>> graph.set_tile_mapping(y, 0)
        >>> (step,) = cl.Engine(graph).profile().steps
        >>> [phase.kind for phase in step.phases]
        ['sync', 'exchange', 'compute', 'sync', 'exchange']
        """
        return self.cycles.phases

    def cycles_of(self, *kinds: str) -> int:
        """Cycles of the phases of some kinds, for all iterations.

        Args:
            kinds: "compute", "exchange", "sync", "external exchange", "external sync" or "host".

        Raises:
            FigureError: an unknown kind.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> (step,) = cl.Engine(graph).profile().steps
        >>> step.cycles_of("exchange", "sync"), step.cycles_of("compute") == step.total_cycles
        (0, True)
        """
        check_kinds(kinds)
        return sum(map(self.prolongs, (phase for phase in self.phases if phase.kind in kinds)))

    def prolongs(self, phase: Phase) -> int:
        """Cycles that one of its phases adds to the program, for all iterations.

        Args:
            phase: one of `phases`.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> (step,) = cl.Engine(graph).profile().steps
        >>> [phase.kind for phase in step.phases], step.prolongs(step.phases[0]) == step.compute_cycles
        (['compute'], True)
        """
        return self.iterations * phase.cycles - (self.hidden_cycles if phase.kind == "host" else 0)

    def _rest_on(self, what: str) -> int:
        return round(self.iterations * sum(phase.cycles * getattr(phase, what) for phase in self.phases))

    @property
    def compute_by_tile(self) -> np.ndarray:
        """Compute cycles of each tile in one iteration, int64 of shape (num_tiles,).

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i], tile=i % 2)
        >>> graph.set_tile_mapping(x, 0)
        >>> graph.set_tile_mapping(y, 0)
        >>> (step,) = cl.Engine(graph).profile().steps
        >>> step.compute_by_tile.tolist()
        [122, 122]
        """
        return self.cycles.by_tile("compute")

    @property
    def launch_cycles(self) -> int:
        """Cycles spent launching vertices; part of `compute_cycles`.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i], tile=i % 2)
        >>> graph.set_tile_mapping(x, 0)
        >>> graph.set_tile_mapping(y, 0)
        >>> (step,) = cl.Engine(graph).profile().steps
        >>> step.launch_cycles, step.compute_cycles
        (80, 122)
        """
        return self._rest_on("launch")

    @property
    def exchange_before_cycles(self) -> int:
        """Cycles of the busiest tile in exchanges before compute, for all iterations.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i], tile=i % 2)
        >>> graph.set_tile_mapping(x, 0)
        >>> graph.set_tile_mapping(y, 0)
        >>> (step,) = cl.Engine(graph).profile().steps
        >>> step.exchange_before_cycles, step.exchange_cycles
        (154, 308)
        """
        return self.iterations * self.cycles.before("exchange")

    @property
    def exchange_after_cycles(self) -> int:
        """Cycles of the busiest tile in exchanges after compute, for all iterations.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i], tile=i % 2)
        >>> graph.set_tile_mapping(x, 0)
        >>> graph.set_tile_mapping(y, 0)
        >>> (step,) = cl.Engine(graph).profile().steps
        >>> step.exchange_after_cycles, step.exchange_cycles
        (154, 308)
        """
        return self.exchange_cycles - self.exchange_before_cycles

    @property
    def total_cycles(self) -> int:
        """Cycles that the step adds to the program, for all iterations.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i], tile=i % 2)
        >>> graph.set_tile_mapping(x, 0)
        >>> graph.set_tile_mapping(y, 0)
        >>> (step,) = cl.Engine(graph).profile().steps
        >>> step.total_cycles, step.sync_cycles + step.exchange_cycles + step.compute_cycles
        (610, 610)
        """
        return self.iterations * self.cycles.total - self.hidden_cycles

    @property
    def fitted_cycles(self) -> int:
        """The part of `total_cycles` that comes from constants fitted to measurements.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i], tile=i % 2)
        >>> graph.set_tile_mapping(x, 0)
        >>> graph.set_tile_mapping(y, 0)
        >>> (step,) = cl.Engine(graph).profile().steps
        >>> step.fitted_cycles, step.launch_cycles
        (80, 80)
        """
        return 0 if self.turns_are_guessed else self._rest_on("fitted")

    @property
    def guessed_cycles(self) -> int:
        """The part of `total_cycles` that comes from guesses: all, if the number of iterations is a guess.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i], tile=i % 2)
        >>> graph.set_tile_mapping(x, 0)
        >>> graph.set_tile_mapping(y, 0)
        >>> (step,) = cl.Engine(graph).profile().steps
        >>> step.guessed_cycles, step.total_cycles
        (0, 610)
        """
        if self.turns_are_guessed:
            return self.total_cycles
        return min(self._rest_on("guessed"), self.total_cycles - self.fitted_cycles)

    @property
    def sourced_cycles(self) -> int:
        """The part of `total_cycles` that comes from published numbers, or from the user's `cycles=`.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i], tile=i % 2)
        >>> graph.set_tile_mapping(x, 0)
        >>> graph.set_tile_mapping(y, 0)
        >>> (step,) = cl.Engine(graph).profile().steps
        >>> step.sourced_cycles, step.total_cycles
        (530, 610)
        """
        return self.total_cycles - self.fitted_cycles - self.guessed_cycles

    @property
    def balance(self) -> float:
        """How busy tiles are during compute, from 0 to 1: the mean over tiles of compute cycles, over those of the
        slowest tile.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i], tile=i % 2)
        >>> graph.set_tile_mapping(x, 0)
        >>> graph.set_tile_mapping(y, 0)
        >>> (step,) = cl.Engine(graph).profile().steps
        >>> step.compute_by_tile.tolist(), step.balance
        ([122, 122], 1.0)
        """
        slowest = self.compute_by_tile.max(initial=0)
        return float(self.compute_by_tile.mean() / slowest) if slowest else 1.0
