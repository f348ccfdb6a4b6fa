"""Advice: the most expensive problems of a program, their costs, and where a report shows them.

It is found in a record alone. A cost is an upper bound: removing the problem entirely would save it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from codelet.graphs.family import counted
from ipu_backend.model.report.record import Record

LEAST_SHARE = 0.02
"""From which share of the program's cycles, or of a tile's memory, something is worth a word."""

UNEVEN = 1.25
"""How many times the mean the largest is where things are called uneven."""

MANY_COPIES = 8
"""From how many copies of an element on average a variable is one that many tiles copy."""

LONG_REDUCTION = 64
"""From how many elements on the reduction of one vertex is long."""

LARGE_CODE = 0.25
"""Which share of what is on a tile code is large at."""

_CODE = ("code_bytes", "exchange_code_bytes", "control_code_bytes", "host_exchange_code_bytes")


@dataclass(frozen=True)
class Advice:
    """Something that is worth mending.

    Attributes:
        kind: what it is, one word or two; the same of what is alike.
        text: what is the matter, with its numbers.
        fix: what may be done.
        cost: what it costs, in `unit`.
        unit: "cycles" of the whole program, or "bytes" of one tile.
        share: the cost of all cycles, or of a tile's memory.
        view: the view of the report that shows it.
        chosen: what is chosen there: "step", "tile", "variable" or "codelet", with its number.
    """

    kind: str
    text: str
    fix: str
    cost: int
    unit: str
    share: float
    view: str
    chosen: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.text} ({self.cost:,} {self.unit}, {self.share:.1%}): {self.fix}"


def advice_of(record: Record, most: int = 20) -> tuple[Advice, ...]:
    """What is worth mending, what costs the largest share first.

    Args:
        record: of a profile.
        most: how many at most.
    """
    found = [own for rule in _RULES for own in rule(record) if own.share >= LEAST_SHARE]
    return tuple(sorted(found, key=lambda own: -own.share)[:most])


# --- cycles ---------------------------------------------------------------------------------------------


def _of_cycles(record: Record, kind: str, text: str, fix: str, cost: float, **chosen: Any) -> Advice:
    share = cost / max(1, record.about["total_cycles"])
    view = chosen.pop("view", "execution")
    return Advice(kind, text, fix, round(cost), "cycles", float(share), view, chosen)


def _steps(record: Record) -> Iterator[tuple[int, dict[str, Any]]]:
    """The steps that run at all: the number and the columns of each."""
    table = record.table("steps")
    lists = {name: own.tolist() for name, own in table.items()}
    for number in range(len(lists["name"])):
        row = {name: own[number] for name, own in lists.items()}
        if row["turns"]:
            yield number, row


def _bound_by_a_tile(record: Record) -> Iterator[Advice]:
    """Steps in which most tiles wait for the slowest."""
    vertices = record.table("vertices")
    placed = set(vertices["compute_set"][vertices["tiles_are_given"]].tolist())
    for number, step in _steps(record):
        idle = record.about["num_tiles"] - step["computing_tiles"]
        if step["balance"] * UNEVEN < 1 and step["compute_cycles"]:
            waiting = f", {counted(idle, 'tile computes', 'tiles compute')} nothing" if idle else ""
            yield _of_cycles(
                record,
                "balance",
                f"step {step['name']} waits for tile {step['slowest_tile']}: the mean tile computes for "
                f"{step['balance']:.1%} of its cycles{waiting}",
                "give its vertices no tile, so that they are placed evenly, or split the longest into several"
                if step["name"] in placed
                else "split its vertices, the longest first, into several",
                step["compute_cycles"] * (1 - step["balance"]),
                step=number,
                tile=step["slowest_tile"],
            )


def _exchange(record: Record) -> Iterator[Advice]:
    """Steps that move data for longer than they compute."""
    for number, step in _steps(record):
        moves = step["exchange_before_cycles"] + step["exchange_after_cycles"] + step["external_exchange_cycles"]
        if moves > step["compute_cycles"]:
            yield _of_cycles(
                record,
                "exchange",
                f"step {step['name']} exchanges for {moves:,} cycles and computes for {step['compute_cycles']:,}",
                "place vertices where what they read lives, or let each do more with what it reads",
                moves - step["compute_cycles"],
                view="exchange",
                step=number,
            )


def _idle_workers(record: Record) -> Iterator[Advice]:
    """Steps with fewer vertices than the workers of the tiles that run them."""
    workers, vertices = record.about["num_workers"], record.table("vertices")
    taken: dict[str, int] = {}
    for name, own in zip(vertices["compute_set"], vertices["vertices"] * vertices["workers"], strict=True):
        taken[name] = taken.get(name, 0) + int(own)
    for number, step in _steps(record):
        there = workers * step["computing_tiles"]
        if step["kind"] == "compute" and 0 < taken[step["name"]] < there:
            yield _of_cycles(
                record,
                "workers",
                f"step {step['name']} has {counted(step['vertices'], 'vertex', 'vertices')} for the {there:,} workers "
                f"of {counted(step['computing_tiles'], 'tile', 'tiles')}",
                "split its vertices into smaller ones",
                step["compute_cycles"] * (1 - taken[step["name"]] / there),
                step=number,
            )


def _long_reductions(record: Record) -> Iterator[Advice]:
    """Steps in which few vertices reduce many elements each, while most tiles wait."""
    vertices, num_tiles = record.table("vertices"), record.about["num_tiles"]
    longest: dict[str, tuple[int, str]] = {}
    columns = (vertices[name].tolist() for name in ("compute_set", "reduced", "reduction", "vertices"))
    for name, reduced, reduction, count in zip(*columns, strict=True):
        if reduced >= LONG_REDUCTION and reduced > num_tiles // max(1, count):
            longest[name] = max(longest.get(name, (0, "")), (reduced, reduction))
    for number, step in _steps(record):
        if step["kind"] == "compute" and step["name"] in longest and step["balance"] * UNEVEN < 1:
            reduced, reduction = longest[step["name"]]
            exchange = step["exchange_before_cycles"]
            yield _of_cycles(
                record,
                "long reduction",
                f"step {step['name']} reduces {reduced:,} elements in one vertex: the mean tile computes for "
                f"{step['balance']:.1%} of the cycles of tile {step['slowest_tile']}",
                f"cl.ops.{reduction} reduces on every tile what lies there, and then the results of tiles",
                (step["compute_cycles"] + exchange) * (1 - step["balance"]),
                step=number,
                tile=step["slowest_tile"],
            )


def _sync(record: Record) -> Iterator[Advice]:
    """Programs whose tiles wait for each other more than for anything else."""
    cycles = record.about["cycles"]
    own = cycles["sync"] + cycles["external sync"]
    if own > max(cycles["compute"], cycles["exchange"]):
        yield _of_cycles(
            record,
            "sync",
            f"tiles wait for each other for {own:,} cycles, more than they compute or exchange",
            "do more in each step: fewer, larger compute sets",
            own,
        )


def _guesses(record: Record) -> Iterator[Advice]:
    """Codelets whose cycles are supposed, since nobody says how they are made."""
    table = record.table("codelets")
    columns = (table[name].tolist() for name in ("name", "cycles", "if_assembly_cycles", "is_supposed"))
    whole = max(1, int(table["cycles"].sum()))
    for number, (name, cycles, less, is_supposed) in enumerate(zip(*columns, strict=True)):
        if is_supposed and cycles > less:
            yield _of_cycles(
                record,
                "guess",
                f"the cycles of codelet {name} are a guess: {cycles:,} on one worker as compiled, {less:,} as assembly",
                "say how it is made, or what it takes: @cl.codelet(issue=...) or (cycles=...)",
                (cycles - less) / whole * record.about["cycles"]["compute"],
                view="graph",
                codelet=number,
            )


# --- memory ---------------------------------------------------------------------------------------------


def _of_bytes(record: Record, kind: str, text: str, fix: str, cost: float, **chosen: Any) -> Advice:
    share = cost / record.about["bytes_per_tile"]
    view = chosen.pop("view", "memory")
    return Advice(kind, text, fix, round(cost), "bytes", float(share), view, chosen)


def _full_tile(record: Record) -> Iterator[Advice]:
    """The fullest tile, where it has more than its memory or far more than the mean."""
    taken, there = record.table("tiles")["total_bytes"], record.about["bytes_per_tile"]
    if not len(taken):
        return
    tile, mean = int(taken.argmax()), float(taken.mean())
    over = int(np.count_nonzero(taken > there))
    if over:
        yield _of_bytes(
            record,
            "out of memory",
            f"{counted(over, 'tile is', 'tiles are')} out of memory: tile {tile} would hold {taken[tile]:,} "
            f"of {there:,} bytes",
            "spread what is largest on it over more tiles, or keep fewer variables",
            taken[tile],
            tile=tile,
        )
    elif taken[tile] > UNEVEN * mean:
        yield _of_bytes(
            record,
            "full tile",
            f"tile {tile} holds {taken[tile]:,} bytes, {taken[tile] / mean:.1f} times the mean",
            "spread what is largest on it over more tiles",
            taken[tile] - mean,
            tile=tile,
        )


def _code(record: Record) -> Iterator[Advice]:
    """The tile on which code takes most, where that is a large share of what is on it."""
    tiles = record.table("tiles")
    code = sum((tiles[name] for name in _CODE if name in tiles), np.zeros_like(tiles["total_bytes"]))
    if len(code):
        tile = int(code.argmax())
        if code[tile] > LARGE_CODE * tiles["total_bytes"][tile]:
            yield _of_bytes(
                record,
                "code",
                f"code takes {code[tile]:,} of the {tiles['total_bytes'][tile]:,} bytes on tile {tile}",
                "give a tile fewer different codelets, or move what is contiguous, in fewer messages",
                code[tile],
                tile=tile,
            )


def _copied(record: Record) -> Iterator[Advice]:
    """Variables whose elements many tiles copy in one step."""
    moves, steps, variables = (record.table(name) for name in ("moves", "steps", "variables"))
    names = dict(zip(variables["variable"].tolist(), variables["name"].tolist(), strict=True))
    found: dict[int, tuple[float, Advice]] = {}
    columns = (moves[name].tolist() for name in ("step", "variable", "bytes", "different_bytes"))
    for step, variable, arrives, different in zip(*columns, strict=True):
        if arrives >= MANY_COPIES * different and steps["received_bytes"][step]:
            exchange = steps["exchange_before_cycles"][step] + steps["exchange_after_cycles"][step]
            cost = float(exchange) * arrives / float(steps["received_bytes"][step])
            own = _of_cycles(
                record,
                "copies",
                f"{arrives / different:.0f} tiles on average copy each element of {names[variable]} "
                f"for step {steps['name'][step]}: {arrives:,} bytes for {different:,}",
                "cut the vertices so that fewer of them read the same elements, or pass partial results on",
                cost * (1 - different / arrives),
                view="exchange",
                step=step,
                variable=variable,
            )
            if variable not in found or cost > found[variable][0]:
                found[variable] = cost, own
    yield from (own for _, own in found.values())


_RULES = (_long_reductions, _bound_by_a_tile, _exchange, _idle_workers, _sync, _guesses, _full_tile, _code, _copied)
