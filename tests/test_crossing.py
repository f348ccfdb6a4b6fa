"""Crossings: every word arrives, each once where it is read and does not live, and nothing else crosses."""

import itertools
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.sharding import PartitionSpec as P

from benchmarks.collectives import collectives, elements_carried
from lowering.mesh.crossing import Crossing
from lowering.mesh.dealt import by_device, deal
from lowering.mesh.devices import Devices
from lowering.plan.pieces import pieces_of
from tests.examples import examples
from tests.meshes import COUNTS, mesh_of


class Wanted(NamedTuple):
    """For each word of every device, (devices, words), the address of its source; -1 where nothing matters."""

    addresses: np.ndarray
    held: int
    known: int

    @property
    def devices(self) -> int:
        return len(self.addresses)

    def crossing(self) -> Crossing:
        flat = self.addresses.reshape(-1)
        at = np.flatnonzero(flat >= 0)
        shape = (self.addresses.shape[1],)
        return Crossing(shape, pieces_of(at, flat[at], 1), self.held, self.known, self.devices)

    def moves(self) -> set[tuple[int, int]]:
        """The words that have to cross, with the devices that need them."""
        pairs = {(device, word) for device, row in enumerate(self.addresses.tolist()) for word in row}
        return {
            (device, word)
            for device, word in pairs
            if 0 <= word < self.devices * self.held and word // self.held != device
        }


@st.composite
def wanted(draw: Any) -> Wanted:
    """Words in stretches from anywhere, from neighbours, from a few, or all from everywhere."""
    devices, held, known = draw(st.sampled_from(COUNTS)), draw(st.integers(1, 12)), draw(st.integers(0, 4))
    size = draw(st.integers(1, 16))
    random = np.random.default_rng(draw(st.integers(0, 999)))
    kind = draw(st.sampled_from(["any", "neighbours", "few", "same", "own"]))
    source = {
        "any": lambda device, k: random.integers(0, devices * held + known),
        "neighbours": lambda device, k: (device * held + k - 2) % (devices * held),
        "few": lambda device, k: random.integers(0, min(3, devices * held)),
        "same": lambda device, k: k % (devices * held + known),
        "own": lambda device, k: device * held + random.integers(0, held),
    }[kind]
    holes = draw(st.sampled_from([0, 0.3]))
    rows = [[-1 if random.random() < holes else source(d, k) for k in range(size)] for d in range(devices)]
    return Wanted(np.array(rows), held, known)


def running(crossing: Crossing, mesh: Any, body: Any = None) -> Any:
    """A crossing as a jitted function of all devices' words, (devices, held), and of those that all have."""
    devices = Devices(mesh.shape)

    def run(held, known):
        move = lambda held: crossing.of([held[0]], [known], devices)  # noqa: E731
        return (move(held) if body is None else body(move, held))[None]

    cut = P(mesh.axis_names)
    return jax.jit(jax.shard_map(run, mesh=mesh, in_specs=(cut, P()), out_specs=cut, check_vma=False))


def values_of(own: Wanted) -> tuple[np.ndarray, np.ndarray]:
    count = own.devices * own.held
    return np.arange(1.0, count + 1, dtype="f").reshape(own.devices, own.held), -np.arange(
        1.0, own.known + 1, dtype="f"
    )


def check(own: Wanted) -> None:
    crossing = own.crossing()
    assert crossing.elements_crossing == len(own.moves())
    assert (crossing.kind == "none") == (not own.moves())
    assert crossing.elements_carried >= crossing.elements_crossing
    held, known = values_of(own)
    run, real = running(crossing, mesh_of(own.devices)), own.addresses >= 0
    source = np.concatenate([held.reshape(-1), known])
    compiled = run.lower(held, known).compile()
    np.testing.assert_array_equal(np.asarray(compiled(held, known))[real], source[own.addresses[real]])
    assert elements_carried(compiled.as_text()) == crossing.elements_carried
    kinds = {
        "none": set(),
        "ppermute": {"collective-permute"},
        "all_to_all": {"all-to-all"},
        "all_gather": {"all-gather"},
    }
    assert set(collectives(compiled.as_text())) == kinds[crossing.kind]


@pytest.mark.slow
@examples(25)
@given(wanted())
def test_every_word_arrives_and_no_other_crosses(own: Wanted):
    check(own)


@pytest.mark.slow
@examples(400)
@given(wanted(), st.integers(0, 40))
def test_every_word_arrives_whatever_collectives_cost(own: Wanted, start: int):
    with patch("lowering.mesh.crossing.START", start):
        check(own)


@examples(6)
@given(wanted())
def test_cotangents_go_back_to_where_words_came_from(own: Wanted):
    held, known = values_of(own)
    run, real = running(own.crossing(), mesh_of(own.devices)), own.addresses >= 0
    weights = np.random.default_rng(0).integers(-9, 9, real.shape) * real
    found = jax.jit(jax.grad(lambda *given: (run(*given) * weights).sum(), (0, 1)))(held, known)
    expected = np.zeros(held.size + known.size)
    np.add.at(expected, own.addresses[real], weights[real])
    np.testing.assert_array_equal(np.concatenate([np.asarray(own).reshape(-1) for own in found]), expected)


def test_all_parts_of_a_long_tuple_are_counted():
    """Eight devices: XLA numbers the parts of what their collective gives, in comments."""
    addresses = np.array([[8], [-1], [-1], [4], [8], [9], [8], [14]])
    check(Wanted(addresses, held=2, known=0))


def test_words_cross_in_loops_and_choices():
    """Round a ring: after as many turns as there are words on a device, each has its neighbour's."""
    devices, held = 4, 3
    addresses = (np.arange(devices * held) - 1) % (devices * held)
    crossing = Wanted(addresses.reshape(devices, held), held, 0).crossing()
    assert (crossing.elements_crossing, crossing.kind) == (devices, "ppermute")

    def turns(move, held):
        def turn(held, _):
            return lax.cond(held.size > 0, lambda: move(held)[None], lambda: held), None

        held, _ = lax.scan(turn, held, None, length=3)
        _, held = lax.while_loop(lambda own: own[0] < 3, lambda own: (own[0] + 1, move(own[1])[None]), (0, held))
        return held[0]

    values = np.arange(devices * held, dtype="f").reshape(devices, held)
    found = running(crossing, mesh_of(devices), turns)(values, jnp.zeros(0))
    np.testing.assert_array_equal(found, np.roll(values, 2, axis=0))


def test_a_crossing_over_two_axes():
    addresses = np.random.default_rng(0).integers(0, 6 * 5, (6, 9))
    own = Wanted(addresses, 5, 0)
    held, known = values_of(own)
    found = running(own.crossing(), mesh_of(2, 3))(held, known)
    np.testing.assert_array_equal(found, held.reshape(-1)[addresses])


def test_what_is_carried_is_what_costs_least():
    def crossing(word):
        table = [[word(device, k) for k in range(100)] for device in range(8)]
        return Wanted(np.array(table), 100, 0).crossing()

    near = crossing(lambda device, k: (device * 100 + k + 10) % 800)
    assert (near.kind, near.elements_crossing, near.elements_carried) == ("ppermute", 80, 80)
    apart = crossing(lambda device, k: (k % 8) * 100 + device * 12 + k // 8)
    assert (apart.kind, apart.elements_crossing, apart.elements_carried) == ("all_to_all", 8 * 88 - 4, 8 * 7 * 13)
    every = crossing(lambda device, k: (k % 8) * 100 + k // 8)
    assert (every.kind, every.elements_carried) == ("all_gather", 8 * 7 * 13)
    assert "elements cross by all_gather" in repr(every)


@examples(30)
@given(st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(0, n - 1), max_size=12))))
def test_rows_are_dealt_in_order(drawn):
    count, devices = drawn
    dealt = deal(np.array(devices, int), count)
    assert dealt.counts.tolist() == [devices.count(k) for k in range(count)]
    for device, row in itertools.product(range(count), range(dealt.most)):
        own = [k for k, where in enumerate(devices) if where == device]
        assert dealt.rows[device, row] == (own[min(row, len(own) - 1)] if own else -1)
    held, filled = dealt.most * 3 + 2, dealt.filled(3)
    addresses = dealt.addresses(3, held, 2)
    for row, device in enumerate(devices):
        first = device * held + 2 + 3 * int(dealt.places[row])
        assert addresses.at(np.arange(3 * row, 3 * row + 3)).tolist() == [first, first + 1, first + 2]
    apart = by_device(filled, dealt.most * 3, count)
    for device, own in enumerate(apart):
        if dealt.counts[device]:
            expected = dealt.rows[device][:, None] * 3 + np.arange(3)
            np.testing.assert_array_equal(own.at(np.arange(3 * dealt.most)), expected.reshape(-1))
        else:
            assert not len(own.starts)


def test_tables_are_one_row_where_devices_are_alike():
    """Reversed on every device: one table for all. Shifted by the number of the device: one for each."""
    size, devices = 10, Devices({"a": 4})
    same = Wanted(np.arange(4)[:, None] * size + np.arange(size)[::-1], size, 0).crossing()
    apart = np.arange(4)[:, None] * size + (np.arange(size)[::-1] + np.arange(4)[:, None]) % size
    for own, count in ((same, 0), (Wanted(apart, size, 0).crossing(), 1)):
        with devices.telling() as tables:
            devices.named(partial(jax.eval_shape, lambda held, own=own: own.of([held], [], devices), jnp.zeros(size)))
        assert len(tables) == count
