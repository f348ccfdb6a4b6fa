"""Records of profiles: every number is the profile's, parts sum to wholes, and the JSON is what its schema says."""

from __future__ import annotations

import json
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

import codelet as cl
from ipu_backend.model.profile_plan import profile_machine
from ipu_backend.model.report.advice import advice_of
from ipu_backend.model.report.record import Record, RecordError, num_rows
from ipu_backend.model.report.recorded import ReportError, record_of
from ipu_backend.model.report.recorded_steps import MOST_REGIONS, regions_of
from ipu_backend.model.report.schema import TABLES, schema
from lowering.machine.step_cycles import moving_moments
from lowering.pipeline import plan_machine
from lowering.plan.steps import CopyStep, ExecuteStep
from tests.examples import examples
from tests.placements import TILES, placements


def by_key(keys: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    """Sums of values by integers."""
    return np.bincount(keys, values, count).astype(np.int64)


@examples(20)
@given(placements(loops=True))
def test_parts_sum_to_the_wholes_of_the_profile(placement):
    machine = plan_machine(placement.plan, placement, allow_out_of_memory=True)
    profile = profile_machine(machine)
    record = record_of(profile, "drawn")
    assert all(len({len(own) for own in table.values()}) == 1 for table in record.tables.values())

    steps, tiles, step_tiles = (record.table(name) for name in ("steps", "tiles", "step_tiles"))
    assert steps["total_cycles"].sum() == record.about["total_cycles"] == profile.total_cycles
    parts = [name for name in steps if name.endswith("_cycles") and name not in ("total_cycles", "launch_cycles")]
    kinds = [name for name in parts if name not in ("fitted_cycles", "guessed_cycles")]
    np.testing.assert_array_equal(sum(steps[name] for name in kinds), steps["total_cycles"])
    turns = steps["turns"][step_tiles["step"]]
    computed = by_key(step_tiles["tile"], turns * step_tiles["compute_cycles"], TILES)
    np.testing.assert_array_equal(computed, profile.compute_by_tile)
    np.testing.assert_array_equal(tiles["total_bytes"], profile.memory_by_tile)
    of_kinds = [own for name, own in tiles.items() if name.endswith("_bytes") and name not in TABLES["tiles"][1]]
    np.testing.assert_array_equal(sum(of_kinds, np.zeros(TILES, np.int64)), profile.memory_by_tile)

    residents, occupants = record.table("residents"), record.table("occupants")
    np.testing.assert_array_equal(
        by_key(residents["occupant"], residents["bytes"], num_rows(occupants)), occupants["bytes"]
    )
    ends = residents["address"] + residents["bytes"]
    for tile in range(TILES):
        assert ends[residents["tile"] == tile].max(initial=0) == profile.memory_by_tile[tile]


@pytest.mark.slow
@examples(15)
@given(placements(loops=True))
def test_what_moves_is_what_is_planned(placement):
    machine = plan_machine(placement.plan, placement, allow_out_of_memory=True)
    record = record_of(profile_machine(machine))
    moves, traffic, step_tiles = (record.table(name) for name in ("moves", "traffic", "step_tiles"))
    for number, moment in enumerate(moving_moments(machine.liveness.timeline)):
        if not isinstance(moment.step, ExecuteStep | CopyStep):
            continue
        wanted: dict[tuple[int, int], int] = {}
        by_variable: dict[int, list[int]] = {}
        own = machine.exchange.of(moment.step)
        for transfer in (own.before, own.after):
            moved = transfer.moves()
            for variable in placement.plan.variables:
                size, first = variable.dtype.itemsize, variable.first_element
                here = (moved.elements >= first) & (moved.elements < first + variable.size)
                for pair in zip(moved.senders[here].tolist(), moved.receivers[here].tolist(), strict=True):
                    wanted[pair] = wanted.get(pair, 0) + size
                if here.any():
                    total = by_variable.setdefault(variable.number, [0, 0])
                    total[0] += size * int(here.sum())
                    total[1] += size * len(np.unique(moved.elements[here]))
        at = traffic["step"] == number
        found: dict[tuple[int, int], int] = {}
        for sender, receiver, size in zip(*(traffic[name][at].tolist() for name in list(traffic)[1:]), strict=True):
            found[sender, receiver] = found.get((sender, receiver), 0) + size
        assert found == wanted
        at = moves["step"] == number
        counted: dict[int, list[int]] = {}
        for variable, arrives, different in zip(*(moves[name][at].tolist() for name in list(moves)[1:]), strict=True):
            total = counted.setdefault(variable, [0, 0])
            total[0] += arrives
            total[1] += different
        assert counted == by_variable
        received = step_tiles["received_bytes"][step_tiles["step"] == number].sum()
        assert received == sum(wanted.values()) == record.table("steps")["received_bytes"][number]


@examples(20)
@given(placements(loops=True))
def test_what_is_live_is_what_is_planned(placement):
    machine = plan_machine(placement.plan, placement, keep=(), allow_out_of_memory=True)
    record = record_of(profile_machine(machine))
    lives, occupants, moments = (record.table(name) for name in ("lives", "occupants", "moments"))
    live = np.tile(occupants["is_always_live"][:, None], num_rows(moments))
    for occupant, first, last in zip(*(own.tolist() for own in lives.values()), strict=True):
        assert not live[occupant, first : last + 1].any()
        live[occupant, first : last + 1] = True
    for number, own in enumerate(machine.memory.occupants):
        if own.moments is not None:
            np.testing.assert_array_equal(live[number], own.moments)
    np.testing.assert_array_equal(moments["live_bytes"], occupants["bytes"] @ live)


@examples(4)
@given(placements(loops=True))
def test_its_json_is_what_the_schema_says(placement):
    import jsonschema  # which takes seconds

    record = record_of(profile_machine(plan_machine(placement.plan, placement, allow_out_of_memory=True)))
    written = json.loads(json.dumps(record.to_dict(), allow_nan=False))
    jsonschema.validate(written, schema())
    tables = {name: {key: own.tolist() for key, own in table.items()} for name, table in record.tables.items()}
    assert written["tables"] == tables
    broken = {**written, "tables": {**written["tables"], "steps": {}}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, schema())


def test_regions():
    assert regions_of(3).tolist() == [0, 1, 2]
    found = regions_of(1472)
    assert (np.diff(found) >= 0).all()
    assert np.unique(np.bincount(found)).tolist() == [23]
    assert len(np.unique(found)) == MOST_REGIONS


# --- what is worth mending ------------------------------------------------------------------------------


@cl.codelet
def double(x):
    return 2 * x


@cl.codelet
def total(x):
    return jnp.sum(x)


@cl.codelet(workers=6)
def by_all(x):
    return jnp.sum(x)


def record(graph: cl.Graph, **options: object) -> Record:
    return record_of(cl.Engine(graph).profile(**options))


def kinds(own: Record) -> list[str]:
    return [advice.kind for advice in advice_of(own)]


def test_a_step_that_waits_for_one_tile():
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, i = graph.add_variable("x", (4000,)), cl.grid(4000)
    graph.add_vertex("slow", double, x=x[i], tile=2)
    own = record(graph)
    (found,) = (advice for advice in advice_of(own) if advice.kind == "balance")
    steps = own.table("steps")
    assert found.text == (
        "step slow waits for tile 2: the mean tile computes for 25.0% of its cycles, 3 tiles compute nothing"
    )
    assert found.cost == round(0.75 * steps["compute_cycles"][0])
    assert found.unit == "cycles"
    assert (found.view, found.chosen) == ("execution", {"step": 0, "tile": 2})
    assert found.fix.startswith("give its vertices no tile")
    assert "balance" not in kinds(record(spread(4000)))


def test_a_step_that_waits_for_its_one_vertex():
    graph = cl.Graph(cl.IPU(num_tiles=4))
    graph.add_vertex("slow", total, x=graph.add_variable("x", (4000,)))
    (found,) = (advice for advice in advice_of(record(graph)) if advice.kind == "balance")
    assert found.fix == "split its vertices, the longest first, into several"


def spread(count: int) -> cl.Graph:
    """As many vertices on each of four tiles, that read what lives there."""
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, i = graph.add_variable("x", (count,)), cl.grid(count)
    graph.add_vertex("even", double, x=x[i], tile=i * 4 // count)
    return graph


def test_a_variable_that_many_tiles_copy():
    graph = cl.Graph(cl.IPU(num_tiles=64))
    x, i = graph.add_variable("x", (2000,)), cl.grid(64)
    graph.add_vertex("sums", total, x=x[i * 0 : i * 0 + 2000], tile=i)
    own = record(graph)
    (found,) = (advice for advice in advice_of(own) if advice.kind == "copies")
    assert found.text.startswith("63 tiles on average copy each element of x for step sums: 504,000 bytes for 8,000")
    assert found.chosen == {"step": 0, "variable": 0}


def test_memory_that_is_not_there():
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, i = graph.add_variable("x", (200_000,)), cl.grid(200_000)
    graph.add_vertex("far", double, x=x[i], tile=1)
    own = record(graph, allow_out_of_memory=True)
    found = advice_of(own)[0]
    assert found.kind == "out of memory"
    assert found.chosen == {"tile": 1}
    assert found.share > 1
    taken = own.table("tiles")["total_bytes"][1]
    assert f"1 tile is out of memory: tile 1 would hold {taken:,} of 638,976 bytes" == found.text


def test_workers_without_a_vertex():
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, i = graph.add_variable("x", (4, 3000)), cl.grid(4)
    graph.add_vertex("rows", total, x=x[i], tile=i)
    assert "workers" in kinds(record(graph))
    assert "workers" not in kinds(record(spread(4000)))
    graph.add_vertex("all workers", by_all, x=x[i], tile=i)
    (found,) = (advice for advice in advice_of(record(graph)) if advice.kind == "workers")
    assert "step rows has 4 vertices for the 24 workers of 4 tiles" in found.text


def test_a_profile_without_a_plan():
    profile = cl.Engine(spread(8)).profile()
    with pytest.raises(
        ReportError, match=r"knows no plan\n  given:    <Profile on .*\n  expected: what Engine.profile"
    ):
        record_of(replace(profile, machine=None))


def test_tables_as_they_are_asked_for():
    own = record(spread(8))
    frame = own.frame("tiles")
    np.testing.assert_array_equal(frame["total_bytes"].to_numpy(), own.table("tiles")["total_bytes"])
    with pytest.raises(RecordError, match=r"no such table\n  given:    'tile'\n  expected: steps, moments, tiles, "):
        own.table("tile")
