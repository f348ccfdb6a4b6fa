"""The profile: the cost of a plan on the machine, in cycles by step and in bytes by tile.

`ipu_backend/model/profile_plan.py` counts it. Its summary has the figures of Poplar's printProfileSummary. It is also
frames of columns, a trace for Perfetto, and figures (`ipu_backend/model/figures.py`).
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from codelet.deprecated import callable_still, old_attribute, old_order
from codelet.display import Text, as_html, as_table
from codelet.errors import TileError
from codelet.files import written_whole
from codelet.graphs.family import Family
from codelet.schema import COUNT, FLAG, FUNCTION, SIZE, TEXT, accepts
from codelet.target import Target
from ipu_backend.model.report.advice import Advice, advice_of
from ipu_backend.model.report.page import Page, page_of
from ipu_backend.model.report.picture import picture_of_graph
from ipu_backend.model.report.record import Record
from ipu_backend.model.report.recorded import ReportError, record_of
from ipu_backend.model.step_profile import CountedByKind, FigureError, StepProfile, check_kinds
from ipu_backend.model.vertex_tiles import VertexTiles
from lowering.machine.phases import KINDS
from lowering.machine.placement import checked_tile
from lowering.pipeline import MachinePlan

_ARGUMENTS = {"title": TEXT, "layer_of": FUNCTION, "picture": FLAG, "most": SIZE, "height": COUNT}


# --- the profile ----------------------------------------------------------------------------------------


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "0.0%"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows in columns, the first to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [first.ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(others, widths[1:], strict=True))]
        yield "  " + "  ".join(cells).rstrip()


_FEW_KEPT = 6
"""Variables that a profile names of those that keep their memory."""

_ALWAYS = ("exchange_before", "compute", "exchange_after", "sync", "total")
_OF_THOSE = ("launch", "fitted", "guessed")
_COLUMNS = (*_ALWAYS[:-1], "external_exchange", "external_sync", "host", "total", *_OF_THOSE)
"""What cycles are told by; those that are not always told are where there are any."""
_TRACKS = ("sync", "exchange", "compute")


@dataclass(frozen=True, eq=False)
class Profile(CountedByKind):
    """The cost of a program on the machine. Made by `Engine.profile`.

    Attributes:
        target: the machine.
        steps: in program order; steps inside a loop appear once, for all its iterations.
        cycles_by_codelet: cycles on one worker, summed over all vertices and iterations, the most first.
        memory: bytes on each tile by kind of occupant, int64 of shape (num_tiles,).
        num_vertices: of the program.
        num_edges: of the program.
        num_variables: of the graph.
        num_compute_sets: of the program.
        vertex_tiles: the tiles of the vertices.
        cycles_if_assembly: cycles as assembly, for each codelet that the cost model assumes to be compiled.
        notes: assumptions behind the numbers that depend on values, or are guesses.
        machine: the plan behind the profile, or `None` if the profile was counted without one.

    >>> import codelet as cl
    >>> graph = cl.Graph(cl.IPU(num_tiles=2))
    >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
    >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
    >>> profile = cl.Engine(graph).profile()
    >>> profile.total_cycles, profile.compute_cycles, profile.tile_balance, profile.memory_by_tile.tolist()
    (122, 122, 0.5, [4104, 3868])
    """

    target: Target
    steps: tuple[StepProfile, ...]
    cycles_by_codelet: Mapping[str, int]
    memory: Mapping[str, np.ndarray]
    num_vertices: int
    num_edges: int
    num_variables: int
    num_compute_sets: int
    vertex_tiles: VertexTiles
    cycles_if_assembly: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    machine: MachinePlan | None = None

    @property
    def total_cycles(self) -> int:
        """Cycles of the whole program.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
        >>> profile = cl.Engine(graph).profile()
        >>> profile.total_cycles, profile.sync_cycles + profile.exchange_cycles + profile.compute_cycles
        (122, 122)
        """
        return sum(step.total_cycles for step in self.steps)

    def cycles_of(self, *kinds: str) -> int:
        """Cycles of the phases of some kinds: `profile.cycles_of("sync", "exchange")`.

        Args:
            kinds: "compute", "exchange", "sync", "external exchange", "external sync" or "host".

        Raises:
            FigureError: an unknown kind.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> profile = cl.Engine(graph).profile()
        >>> profile.cycles_of("compute") == profile.total_cycles, profile.cycles_of("sync", "exchange")
        (True, 0)
        """
        check_kinds(kinds)
        return sum(step.cycles_of(*kinds) for step in self.steps)

    @property
    def launch_cycles(self) -> int:
        """Cycles spent launching vertices; part of `compute_cycles`.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
        >>> profile = cl.Engine(graph).profile()
        >>> profile.launch_cycles, profile.compute_cycles
        (80, 122)
        """
        return sum(step.launch_cycles for step in self.steps)

    @property
    def fitted_cycles(self) -> int:
        """The part of `total_cycles` that comes from constants fitted to measurements.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
        >>> profile = cl.Engine(graph).profile()
        >>> profile.fitted_cycles, profile.total_cycles
        (80, 122)
        """
        return sum(step.fitted_cycles for step in self.steps)

    @property
    def guessed_cycles(self) -> int:
        """The part of `total_cycles` that comes from guesses.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> n, more = graph.add_variable("n", ()), graph.add_variable("more", (), bool)
        >>> test, count = graph.add_compute_set("test"), graph.add_compute_set("count")
        >>> graph.add_vertex(test, cl.codelet(lambda n: n < 3), n=n, out=more)
        >>> graph.add_vertex(count, cl.codelet(lambda n: {"n": n + 1}), n=n)
        >>> profile = cl.Engine(graph, cl.RepeatWhile(test, more, count)).profile()  # nobody says how many iterations
        >>> profile.guessed_cycles == profile.total_cycles
        True
        """
        return sum(step.guessed_cycles for step in self.steps)

    @property
    def sourced_cycles(self) -> int:
        """The part of `total_cycles` that comes from published numbers, or from the user's `cycles=`.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> p = cl.Engine(graph).profile()
        >>> p.sourced_cycles + p.fitted_cycles + p.guessed_cycles == p.total_cycles
        True
        """
        return self.total_cycles - self.fitted_cycles - self.guessed_cycles

    @property
    def seconds(self) -> float:
        """Time of the program in seconds: `total_cycles` at the clock of the target.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
        >>> profile = cl.Engine(graph).profile()
        >>> profile.seconds == profile.total_cycles / profile.target.clock_hertz
        True
        """
        return self.total_cycles / self.target.clock_hertz

    @functools.cached_property
    def compute_by_tile(self) -> np.ndarray:
        """Compute cycles of each tile, over all steps and iterations, int64 of shape (num_tiles,).

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
        >>> profile = cl.Engine(graph).profile()
        >>> profile.compute_by_tile.tolist()
        [122, 0]
        """
        total = np.zeros(self.target.num_tiles, np.int64)
        for step in self.steps:
            total += step.iterations * step.compute_by_tile
        return total

    @property
    def tile_balance(self) -> float:
        """How busy tiles are during compute, from 0 to 1: the mean over tiles of compute cycles, over those of the
        slowest tile.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
        >>> profile = cl.Engine(graph).profile()
        >>> profile.compute_by_tile.tolist(), profile.tile_balance
        ([122, 0], 0.5)
        """
        return float(self.compute_by_tile.mean() / self.compute_cycles) if self.compute_cycles else 1.0

    @functools.cached_property
    def memory_by_tile(self) -> np.ndarray:
        """Bytes used on each tile, int64 of shape (num_tiles,).

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
        >>> profile = cl.Engine(graph).profile()
        >>> profile.memory_by_tile.tolist()
        [4104, 3868]
        """
        return sum(self.memory.values(), np.zeros(self.target.num_tiles, np.int64))

    @property
    def memory_by_kind(self) -> dict[str, int]:
        """Bytes of each kind of occupant, over all tiles.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> cl.Engine(graph).profile().memory_by_kind["variables, always live"]
        8
        """
        return {kind: int(by_tile.sum()) for kind, by_tile in self.memory.items()}

    @accepts(TileError, count=SIZE)
    def fullest_tiles(self, count: int = 5) -> list[int]:
        """The tiles with the most bytes, in descending order.

        Args:
            count: how many tiles.

        Raises:
            TileError: not a non-negative integer.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=4))
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()), tile=3)
        >>> cl.Engine(graph).profile().fullest_tiles(1)
        [3]
        """
        return np.argsort(-self.memory_by_tile, kind="stable")[:count].tolist()

    def tiles_of_vertices(self, family: Family) -> np.ndarray:
        """The tile of each vertex of a family.

        Args:
            family: one of `graph.families`.

        Returns:
            int32 of shape (num_vertices,), in row-major order over the family's axes; -1 for vertices that the program
                does not run, and for those that write nothing.

        Raises:
            ForeignGraphError: a family of another graph than the one that was profiled.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=4))
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i], tile=3 - i)
        >>> cl.Engine(graph).profile().tiles_of_vertices(graph.families[0]).tolist()
        [3, 2, 1, 0]
        """
        return self.vertex_tiles.of(family)

    @property
    def kept(self) -> tuple[str, ...] | None:
        """The names of the variables that keep their memory during the whole program; others share memory.

        These are the variables of `host_visible`, and those that are read before they are written. `None` for a profile
        without a plan.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> a = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> b = graph.add_vertex("again", cl.codelet(lambda x: 2 * x), x=a)
        >>> engine = cl.Engine(graph)
        >>> engine.profile().kept, engine.profile(host_visible=b).kept
        (('x', 'double/out', 'again/out'), ('x', 'again/out'))
        """
        if self.machine is None:
            return None
        kept = (variable for own in self.machine.liveness.ranges if own.always for variable in own.variables)
        return tuple(variable.name for variable in kept if variable.value is None)

    @property
    def kept_text(self) -> str:
        """The assumption behind all figures of memory, in a sentence.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
        >>> profile = cl.Engine(graph).profile()
        >>> profile.kept_text
        'all variables keep their memory'
        """
        if self.kept is None:
            return "no live ranges were planned: all variables keep their memory"
        count = self.num_variables
        if len(self.kept) >= count:
            return "all variables keep their memory"
        some = ", ".join(self.kept[:_FEW_KEPT]) + ", ..." * (len(self.kept) > _FEW_KEPT)
        named = f" ({some})" if self.kept else ""
        return f"{len(self.kept):,} of {count:,} variables keep their memory{named}; the others share theirs"

    # --- as text --------------------------------------------------------------------------------------

    def _graph_lines(self) -> Iterator[str]:
        t = self.target
        yield "Target"
        yield f"  {t!r}: {t.num_tiles:,} tiles of {t.bytes_per_tile:,} bytes, {t.num_workers} workers each, " + (
            f"{t.clock_hertz / 1e9:g} GHz"
        )
        yield "Graph"
        counts = self.num_vertices, self.num_edges, self.num_variables, self.num_compute_sets
        names = "vertices", "edges", "variables", "compute sets"
        yield from _table([(name, f"{count:,}") for name, count in zip(names, counts, strict=True)])

    def _memory_lines(self) -> Iterator[str]:
        there = self.target.num_tiles * self.target.bytes_per_tile
        total = int(self.memory_by_tile.sum())
        yield "Memory, in bytes"
        yield f"  {total:,} of {there:,} ({_percent(total, there)})"
        yield f"  {self.kept_text}"
        kinds = list(self.memory)
        rows = [("", *kinds, "total", "of a tile")]
        rows += [("all tiles", *(f"{n:,}" for n in self.memory_by_kind.values()), f"{total:,}", "")]
        for tile in self.fullest_tiles():
            own = int(self.memory_by_tile[tile])
            each = (f"{int(self.memory[kind][tile]):,}" for kind in kinds)
            rows.append((f"tile {tile}", *each, f"{own:,}", _percent(own, self.target.bytes_per_tile)))
        yield from _table(rows)

    def _cycle_lines(self) -> Iterator[str]:
        total = self.total_cycles
        yield "Cycles"
        yield f"  {total:,} ({1e6 * self.seconds:,.1f} us), tile balance {100 * self.tile_balance:.1f}%"
        parts = self.sourced_cycles, self.fitted_cycles, self.guessed_cycles
        names = "published or given", "fitted", "guessed"
        rests = [f"{_percent(part, total)} {name}" for part, name in zip(parts, names, strict=True) if part]
        if total:
            yield f"  provenance: {', '.join(rests)}"
        columns = [name for name in _COLUMNS if name in _ALWAYS or self._sum_of(name)]
        rows: list[tuple[str, ...]] = [("", "turns", *(name.replace("_", " ") for name in columns), "balance")]
        for step in self.steps:
            cells = (f"{getattr(step, f'{name}_cycles'):,}" for name in columns)
            rows.append((step.name, f"{step.iterations:,}", *cells, f"{100 * step.balance:.1f}%"))
        rows.append(("all steps", "", *(f"{self._sum_of(name):,}" for name in columns), ""))
        rows.append(("", "", *(_percent(self._sum_of(name), total) for name in columns), ""))
        yield from _table(rows)
        yield from (f"  note: {note}" for note in self.notes)
        if self.cycles_by_codelet:
            yield "Cycles on one worker, by codelet"
            whole = sum(self.cycles_by_codelet.values())
            rows = [(name, f"{n:,}", _percent(n, whole)) for name, n in self.cycles_by_codelet.items()]
            if self.cycles_if_assembly:
                less = [f"{n:,}" for n in self.codelet_frame["if_assembly_cycles"].tolist()]
                rows = [("", "", "", "as assembly"), *((*row, n) for row, n in zip(rows, less, strict=True))]
            yield from _table(rows)

    def _sum_of(self, name: str) -> int:
        return sum(getattr(step, f"{name}_cycles") for step in self.steps)

    def __str__(self) -> str:
        return "\n".join([*self._graph_lines(), *self._memory_lines(), *self._cycle_lines()])

    def __repr__(self) -> str:
        return f"<Profile on {self.target}: {self.total_cycles:,} cycles>"

    def summary(self) -> Text:
        r"""The profile as text: target, counts, memory by kind and on the fullest tiles, cycles by step and by codelet.

        A notebook shows it as the last line of a cell; `print(profile.summary())` prints it.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> print("\n".join(str(cl.Engine(graph).profile().summary()).splitlines()[2:7]))
        Graph
          vertices      1
          edges         2
          variables     2
          compute sets  1
        """
        return Text(self)

    def _repr_html_(self) -> str:
        rows = [(step.name, step.iterations, step.num_vertices, step.total_cycles) for step in self.steps]
        table = as_table(("step", "turns", "vertices", "cycles"), rows)
        heading = f"{self.total_cycles:,} cycles on {self.target}, {1e6 * self.seconds:,.1f} us"
        return as_html(heading, table, {"in full": self})

    # --- as columns -----------------------------------------------------------------------------------

    @property
    def step_frame(self) -> dict[str, np.ndarray]:
        """One row per step, as columns of NumPy for `pandas.DataFrame`.

        Columns: `name`, `iterations`, `num_vertices`; cycles for all iterations: `exchange_before_cycles`,
        `compute_cycles`, `exchange_after_cycles`, `exchange_cycles`, `sync_cycles`, `external_exchange_cycles`,
        `external_sync_cycles`, `host_cycles`, `total_cycles`, and of these `launch_cycles`, `fitted_cycles`,
        `guessed_cycles`; `balance` (0 to 1); and bytes over all tiles: `received_bytes`, `used_bytes`,
        `other_live_bytes`.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> frame = cl.Engine(graph).profile().step_frame
        >>> frame["name"].tolist(), frame["num_vertices"].tolist(), frame["sync_cycles"].tolist()
        (['double'], [1], [0])
        """
        cycles = (*_COLUMNS[:3], "exchange", *_COLUMNS[3:])
        columns = ["name", "iterations", "num_vertices", *(f"{kind}_cycles" for kind in cycles), "balance"]
        columns += ["received_bytes", "used_bytes", "other_live_bytes"]
        made = {column: np.array([getattr(step, column) for step in self.steps]) for column in columns}
        return callable_still(made, "Profile.step_frame")

    @property
    def tile_frame(self) -> dict[str, np.ndarray]:
        """One row per tile, as columns of NumPy for `pandas.DataFrame`.

        Columns: `tile`, `compute_cycles`, the bytes of each kind of occupant, and `total_bytes`. The column of a kind
        is its name with `_` between words: `not_always_live_bytes`.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()), tile=1)
        >>> frame = cl.Engine(graph).profile().tile_frame
        >>> frame["tile"].tolist(), frame["variables_always_live_bytes"].tolist()
        ([0, 1], [0, 8])
        """
        tiles = np.arange(self.target.num_tiles)
        memory = {"_".join([*kind.replace(",", "").split(), "bytes"]): own for kind, own in self.memory.items()}
        made = {"tile": tiles, "compute_cycles": self.compute_by_tile, **memory, "total_bytes": self.memory_by_tile}
        return callable_still(made, "Profile.tile_frame")

    @property
    def codelet_frame(self) -> dict[str, np.ndarray]:
        """One row per codelet, as columns of NumPy for `pandas.DataFrame`.

        Columns: `name`; `cycles`, those of all its vertices and iterations on one worker; and `if_assembly_cycles`, the
        same as assembly, for a codelet that the cost model assumes to be compiled.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> {name: column.tolist() for name, column in cl.Engine(graph).profile().codelet_frame.items()}
        {'name': ['<lambda>'], 'cycles': [7], 'if_assembly_cycles': [7]}
        """
        cycles = self.cycles_by_codelet
        less = {**cycles, **self.cycles_if_assembly}
        made = {
            "name": np.array(list(cycles)),
            "cycles": np.array(list(cycles.values()), np.int64),
            "if_assembly_cycles": np.array([less[name] for name in cycles], np.int64),
        }
        return callable_still(made, "Profile.codelet_frame")

    # --- as a trace -----------------------------------------------------------------------------------

    trace = old_attribute("Profile.trace", "chrome_trace")

    def chrome_trace(self, tiles: Sequence[int] | int = ()) -> dict[str, Any]:
        """The profile in Chrome's trace format: a track for each kind of phase, and for chosen tiles.

        Loop steps appear once, one after another, each as long as all its iterations. Between two syncs a step's block
        shows only the time it adds to the critical path; the tracks of tiles show when each computes.

        Args:
            tiles: one or several tiles with a track.

        Returns:
            A dict for `json.dump`; times are in microseconds.

        Raises:
            TileError: a tile that does not exist.

        Source: "Trace Event Format" (Google), which ui.perfetto.dev opens.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> events = cl.Engine(graph).profile().chrome_trace()["traceEvents"]
        >>> [event["name"] for event in events if event["ph"] == "X"]
        ['double']
        """
        tiles = [checked_tile(tile, self.target) for tile in (tiles if isinstance(tiles, Iterable) else [tiles])]
        events: list[dict[str, Any]] = []

        def label(kind: str, process: int, thread: int, name: str) -> None:
            events.append({"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}})

        def block(process: int, thread: int, name: str, start: int, cycles: int, **about: Any) -> None:
            if cycles:
                microseconds = 1e6 / self.target.clock_hertz
                span = {"ts": start * microseconds, "dur": cycles * microseconds}
                about = {"cycles": cycles, **about}
                events.append({"ph": "X", "name": name, "pid": process, "tid": thread, **span, "args": about})

        label("process_name", 0, 0, f"steps on {self.target!r}")
        kinds = [kind for kind in KINDS if kind in _TRACKS or self.cycles_of(kind)]
        for thread, kind in enumerate(kinds):
            label("thread_name", 0, thread, kind)
        if tiles:
            label("process_name", 1, 0, "tiles")
        for tile in tiles:
            label("thread_name", 1, tile, f"tile {tile}")
        start, free = 0, dict.fromkeys(tiles, 0)
        for step in self.steps:
            name = step.name if step.iterations == 1 else f"{step.name} x {step.iterations:,}"
            for phase in step.phases:
                cycles = step.prolongs(phase)
                about = {"turns": step.iterations, "vertices": step.num_vertices}
                block(0, kinds.index(phase.kind), name, start, cycles, **about)
                if phase.overlap is None:
                    free = dict.fromkeys(tiles, start)
                if isinstance(phase.by_tile, np.ndarray):
                    for tile, each in zip(tiles, phase.by_tile[tiles].tolist(), strict=True):
                        block(1, tile, f"{phase.kind} {name}", free[tile], step.iterations * each)
                        free[tile] += step.iterations * each
                start += cycles
        return {"traceEvents": events, "displayTimeUnit": "ns"}

    def write_trace(self, path: str | os.PathLike[str], tiles: Sequence[int] | int = ()) -> None:
        """Write `chrome_trace` to a file, as JSON, for ui.perfetto.dev or chrome://tracing.

        Args:
            path: the file.
            tiles: one or several tiles with a track.

        Raises:
            TileError: a tile that does not exist.
            FileError: the file cannot be written; an older file is unchanged.

        >>> import codelet as cl, pathlib, tempfile
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     cl.Engine(graph).profile().write_trace(pathlib.Path(directory) / "trace.json", tiles=0)
        """
        events = self.chrome_trace(tiles)
        with written_whole(path) as file:
            json.dump(events, file)

    # --- as a report ----------------------------------------------------------------------------------

    record = old_attribute("Profile.record", "tables")
    report = old_attribute("Profile.report", "write_report")

    @old_order(("layer_of",), after=2)
    @accepts(ReportError, **_ARGUMENTS)
    def tables(self, title: str = "", *, layer_of: Callable[[str], str] | None = None) -> Record:
        """All data of the profile in tables: columns of NumPy, data frames, or JSON.

        Args:
            title: the name of the program.
            layer_of: a function from the name of a compute set or variable to its layer, "" for none. Default: the
                scopes of its name.

        Returns:
            A `cl.Record`.

        Raises:
            ReportError: a profile without a plan, or a title that is not a string.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> tables = cl.Engine(graph).profile().tables("doubles")
        >>> tables.about["title"], tables.table("steps")["name"].tolist()
        ('doubles', ['double'])
        """
        return record_of(self, title, layer_of)

    @accepts(ReportError, **_ARGUMENTS)
    def write_report(
        self,
        path: str | os.PathLike[str],
        title: str = "",
        *,
        layer_of: Callable[[str], str] | None = None,
        picture: bool | None = None,
    ) -> None:
        """Write a page of HTML, with linked views of memory, cycles, exchange and graph. It needs no server and no
        network.

        Args:
            path: the file.
            title: the name of the program.
            layer_of: as of `tables`.
            picture: True to draw the graph. Default: if it is small and the extra `draw` is installed.

        Raises:
            FileError: the file cannot be written; an older file is unchanged.
            MissingExtraError: a library of the extra `report`, or for a picture `draw`, is not installed.
            ReportError: a profile without a plan.

        >>> import codelet as cl, pathlib, tempfile
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     cl.Engine(graph).profile().write_report(pathlib.Path(directory) / "report.html", picture=False)
        """
        text = page_of(record_of(self, title, layer_of), picture=picture_of_graph(self, picture))
        with written_whole(path) as file:
            file.write(text)

    @accepts(ReportError, **_ARGUMENTS)
    def advice(self, most: int = 20) -> tuple[Advice, ...]:
        """Recommendations, the largest cost first, as a share of the program's cycles or of a tile's memory.

        The cost is an upper bound: it is the saving if the problem were removed entirely.

        Args:
            most: how many at most.

        Raises:
            ReportError: a profile without a plan.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
        >>> [(advice.kind, advice.cost, advice.unit) for advice in cl.Engine(graph).profile().advice(1)]
        [('balance', 61, 'cycles')]
        """
        return advice_of(record_of(self), most)

    @old_order(("height",), after=2)
    @accepts(ReportError, **_ARGUMENTS)
    def show(self, title: str = "", *, height: int = 800) -> Page:
        """Show the page of `write_report` in a notebook.

        Args:
            title: the name of the program.
            height: in pixels.

        Raises:
            MissingExtraError, ReportError: as of `write_report`.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
        >>> profile = cl.Engine(graph).profile()
        >>> page = profile.show("double", height=400)
        >>> page.height
        400
        """
        return Page(page_of(record_of(self, title), picture=picture_of_graph(self, None)), height)

    # --- as figures -----------------------------------------------------------------------------------

    def plot(self, figure: str, axes: Any = None) -> Any:
        """Plot a figure with matplotlib.

        Args:
            figure: `"memory"` (bytes by tile), `"live"` (live bytes by step), `"timeline"` (sync, exchange and compute
                over time), `"balance"` (the compute share of each tile) or `"traffic"` (bytes from tile to tile).
            axes: matplotlib axes to draw into. Default: new ones.

        Returns:
            The axes.

        Raises:
            FigureError: an unknown figure.
            MissingExtraError: matplotlib is not installed.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> axes = cl.Engine(graph).profile().plot("memory")
        >>> axes.get_xlabel()
        'tile'
        """
        from ipu_backend.model.figures import figures

        if not isinstance(figure, str) or figure not in figures:
            raise FigureError("a profile has no such figure", given=figure, expected=", ".join(figures))
        if axes is not None and not hasattr(axes, "stairs"):
            raise FigureError(
                "a figure is drawn into something other than axes",
                given=f"{type(axes).__name__}: {axes!r:.80}",
                expected="axes of matplotlib",
                fix="figure, axes = matplotlib.pyplot.subplots()",
            )
        return figures[figure](self, axes)
