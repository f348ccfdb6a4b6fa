"""Crossings: words of sharded arrays brought to where they are read, each once to each device that reads it.

In comes for every word of an array, sharded over the devices of a mesh or held by all of them, where it comes from: a
word of a sharded array, or of one that all devices have. Out comes a function inside `jax.shard_map`, from a device's
own words of the sources to its words of the array. What lives on the device that reads it is gathered there. The rest
crosses, and nothing else: by rounds of `lax.ppermute`, in each of which every device sends to the one so many further,
by one `lax.all_to_all`, or by one `lax.all_gather`, whichever carries fewest elements once these are padded. Where
nothing crosses there is no collective.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from lowering.arrays import Array, reshape
from lowering.mesh.dealt import DealtSelection, by_device
from lowering.mesh.devices import Devices
from lowering.plan.pieces import Pieces, pieces_of, side_by_side
from lowering.plan.runs import Runs, overlaps, union

START = 16
"""What a collective costs by itself, in elements at every device, so that few do not go in many rounds. A guess."""


class Sent(NamedTuple):
    """What devices send each other.

    Attributes:
        runs: the words that cross, by `(receiver * devices + sender) * held + word`, each once.
        devices: how many there are.
        held: words of each device.
    """

    runs: Runs
    devices: int
    held: int

    @property
    def pairs(self) -> np.ndarray:
        """The receiver and sender of each run, as one number."""
        return self.runs.starts // max(1, self.held)

    @property
    def counts(self) -> np.ndarray:
        """How many words cross, of shape (receivers, senders)."""
        count = self.devices * self.devices
        found = np.bincount(self.pairs, self.runs.lengths, count).astype(np.int64)
        return found.reshape(self.devices, self.devices)


class Round(NamedTuple):
    """One collective.

    Attributes:
        sends: of each device, which of its words, by where they stand in what it sends.
        size: how many words a message has room for.
        shift: for `ppermute`, how much further each receiver is than its sender; None for the other collectives.
        perm: for `ppermute`, the senders and receivers of messages that are not empty.
        receives: for `ppermute`, whether each device is a receiver.
    """

    sends: list[Pieces]
    size: int
    shift: int | None = None
    perm: tuple[tuple[int, int], ...] = ()
    receives: np.ndarray = np.zeros(0, bool)


@dataclass(frozen=True, eq=False)
class Carrier:
    """How what crosses is carried.

    Attributes:
        kind: `"ppermute"`, `"all_to_all"` or `"all_gather"`; `"none"` where nothing crosses.
        rounds: the collectives.
        places: where in what a device has received, of all rounds end to end, each word that crosses is, by the numbers
            of `Sent`.
        received: words that each device receives, with padding.
        carried: words that leave devices, with padding, all together.
    """

    kind: str
    rounds: tuple[Round, ...]
    places: Pieces
    received: int
    carried: int

    def cost(self, devices: int) -> int:
        """What is carried, and what collectives cost by themselves."""
        return self.carried + START * devices * len(self.rounds)


def _sent(across: Sequence[Pieces], devices: int, held: int) -> Sent:
    """What crosses, of what each device reads of others by the numbers of `Sent`."""
    ends = [(own.origins, own.origins + own.lengths) for own in across]
    needed = union(np.concatenate([first for first, _ in ends]), np.concatenate([last for _, last in ends]))
    firsts = np.arange(devices * devices) * held
    cut = overlaps(needed.starts, needed.stops, Runs(firsts, firsts + held))
    return Sent(Runs(cut.starts, cut.stops), devices, held)


def _ranked(runs: Runs, groups: np.ndarray) -> np.ndarray:
    """Where each run begins among those of its group, end to end; groups rise."""
    before = np.cumsum(runs.lengths) - runs.lengths
    return before - before[np.searchsorted(groups, groups)]


def _sizes(counts: np.ndarray, devices: int) -> list[tuple[int, int]]:
    """The stretches of messages of several lengths that rounds carry: all at once, or in two, if that pays."""
    whole = int(counts.max())
    first = min(np.unique(counts).tolist(), key=lambda n: n * len(counts) + (whole - n) * (counts > n).sum())
    saved = (whole - first) * int((counts <= first).sum())
    return [(0, first), (first, whole)] if saved > START * devices else [(0, whole)]


def _ppermute(sent: Sent) -> Carrier:
    """Each shift by messages of its size, or of two."""
    runs, pairs, devices, held = sent.runs, sent.pairs, sent.devices, sent.held
    receivers, senders = np.divmod(pairs, devices)
    ranks, shifts, counts = _ranked(runs, pairs), (receivers - senders) % devices, sent.counts
    rounds, places, received, carried = [], [], 0, 0
    for shift in np.unique(shifts).tolist():
        of_senders = counts[(np.arange(devices) + shift) % devices, np.arange(devices)]
        for begin, end in _sizes(of_senders[of_senders > 0], devices):
            perm = tuple((k, (k + shift) % devices) for k in np.flatnonzero(of_senders > begin).tolist())
            size, own = end - begin, np.flatnonzero(shifts == shift)
            low, high = np.maximum(ranks[own], begin), np.minimum(ranks[own] + runs.lengths[own], end)
            some = low < high
            own, low, lengths = own[some], low[some], (high - low)[some]
            starts = runs.starts[own] + low - ranks[own]
            sends = pieces_of(senders[own] * size + low - begin, starts % held, lengths)
            receives = np.isin(np.arange(devices), [receiver for _, receiver in perm])
            rounds.append(Round(by_device(sends, size, devices), size, shift, perm, receives))
            places.append((starts, received + low - begin, lengths))
            received, carried = received + size, carried + size * len(perm)
    where = pieces_of(*(np.concatenate(own) for own in zip(*places, strict=True)))
    return Carrier("ppermute", tuple(rounds), where, received, carried)


def _all_to_all(sent: Sent) -> Carrier:
    """Every pair by a message of one size."""
    runs, pairs, devices, held = sent.runs, sent.pairs, sent.devices, sent.held
    receivers, senders = np.divmod(pairs, devices)
    ranks, size = _ranked(runs, pairs), int(sent.counts.max())
    sends = pieces_of((senders * devices + receivers) * size + ranks, runs.starts % held, runs.lengths)
    places = pieces_of(runs.starts, senders * size + ranks, runs.lengths)
    own = Round(by_device(sends, devices * size, devices), size)
    return Carrier("all_to_all", (own,), places, devices * size, devices * (devices - 1) * size)


def _all_gather(sent: Sent) -> Carrier:
    """What any device needs of a sender goes to all."""
    runs, devices, held = sent.runs, sent.devices, sent.held
    first = runs.starts % (devices * held)  # sender * held + word
    needed = union(first, first + runs.lengths)
    senders = needed.starts // held
    # Runs of two senders may touch.
    ends = np.arange(devices) * held
    cut = overlaps(needed.starts, needed.stops, Runs(ends, ends + held))
    needed, senders = Runs(cut.starts, cut.stops), cut.second
    ranks = _ranked(needed, senders)
    size = int(np.bincount(senders, needed.lengths, devices).max())
    sends = pieces_of(senders * size + ranks, needed.starts % held, needed.lengths)
    where = pieces_of(needed.starts, senders * size + ranks, needed.lengths)
    places = pieces_of(runs.starts, first, runs.lengths).then(where)
    own = Round(by_device(sends, size, devices), size)
    return Carrier("all_gather", (own,), places, devices * size, devices * (devices - 1) * size)


def _carrier(sent: Sent) -> Carrier:
    """The carrier that costs least."""
    if not len(sent.runs.starts):
        return Carrier("none", (), pieces_of([], [], []), 0, 0)
    tried = [_ppermute(sent), _all_gather(sent), _all_to_all(sent)]
    return min(tried, key=lambda own: own.cost(sent.devices))


class Crossing:
    """Words of an array brought to the devices that have them; see the module's docstring.

    Args:
        shape: of each device's part of the array.
        words: for the words of the array by their address, `device * size + place` where `size` is that of the shape,
            the address of its source, `device * held + place`; or `devices * held + place` for a word that all devices
            have. What is in no piece does not matter.
        held: words that each device has of the sharded sources.
        known: words that all devices have.
        devices: how many there are.

    Attributes:
        elements_crossing: words that have to leave a device, once for each device that needs them.
        elements_carried: words that do, with those that pad messages; of all devices together.
    """

    def __init__(self, shape: tuple[int, ...], words: Pieces, held: int, known: int, devices: int):
        self.shape, self.held, self.known, self.devices = shape, held, known, devices
        size = math.prod(shape)
        ends = np.arange(devices + 1) * held  # the last of them where words begin that all have
        source = Runs(ends, np.append(ends[1:], ends[-1] + known))
        parts, own, across = by_device(words, size, devices), [], []
        for device, part in enumerate(parts):
            cut = overlaps(part.origins, part.origins + part.lengths, source)
            starts, lengths = cut.starts - part.moves[cut.first], cut.stops - cut.starts
            here, everywhere = cut.second == device, cut.second == devices
            crosses = ~(here | everywhere)
            places = cut.starts - ends[cut.second] + held * everywhere
            own.append(pieces_of(starts[~crosses], places[~crosses], lengths[~crosses]))
            numbers = device * devices * held + cut.starts[crosses]
            across.append(pieces_of(starts[crosses], numbers, lengths[crosses]))
        sent = _sent(across, devices, held)
        self.carrier = _carrier(sent)
        self.elements_crossing = int(sent.runs.lengths.sum())
        behind = held + known
        arrived = self.carrier.places.moved(0, behind)
        each = [side_by_side([a, b.then(arrived)]) for a, b in zip(own, across, strict=True)]
        self._words = DealtSelection(shape, each, behind + self.carrier.received)
        self._sends = [
            DealtSelection((own.size if kind != "all_to_all" else devices * own.size,), own.sends, held)
            for kind, own in ((self.carrier.kind, own) for own in self.carrier.rounds)
        ]

    @property
    def elements_carried(self) -> int:
        """Words that leave devices, with those that pad messages; of all devices together."""
        return self.carrier.carried

    @property
    def kind(self) -> str:
        """How what crosses is carried: `"none"`, `"ppermute"`, `"all_to_all"` or `"all_gather"`."""
        return self.carrier.kind

    def of(self, held: Sequence[Array], known: Sequence[Array], devices: Devices) -> Array:
        """This device's part of the array, inside `jax.shard_map`.

        Args:
            held: its words of the sharded sources, in parts of any shape, end to end `self.held`.
            known: what all devices have, in parts as well.
            devices: those of the mesh.
        """
        flat = [reshape(part, (part.size,)) for part in held]
        found = [*flat, *(reshape(part, (part.size,)) for part in known)]
        if self.carrier.rounds:
            own = _joined(flat)
            found = [own, *found[len(flat) :]]
            for round_, sends in zip(self.carrier.rounds, self._sends, strict=True):
                found.append(self._carry(round_, sends.of(own, devices), devices))
        return self._words.of(_joined(found), devices)

    def _carry(self, round_: Round, sent: Array, devices: Devices) -> Array:
        """What arrives of what is sent, flat."""
        if round_.shift is not None:
            arrived = lax.ppermute(sent, devices.axes, round_.perm)
            if len(round_.perm) == self.devices:
                return arrived
            # Words that nobody needs are to be of real values, as codelets expect them, where JAX gives zeros.
            return lax.select(jnp.broadcast_to(devices.own(round_.receives), sent.shape), arrived, sent)
        if self.carrier.kind == "all_to_all":
            return lax.all_to_all(sent, devices.axes, 0, 0, tiled=True)
        return lax.all_gather(sent, devices.axes, tiled=True)

    def __repr__(self) -> str:
        return told(self)


class WholeGathering:
    """A variable that is cut in even blocks brought whole to all devices: a `Crossing` that puts nothing in order.

    Args:
        shape: of what a device holds.
        cut: the dimension along which it is cut.
        devices: how many there are.
    """

    kind = "all_gather"

    def __init__(self, shape: tuple[int, ...], cut: int, devices: int):
        self.cut = cut
        self.elements_crossing = self.elements_carried = devices * (devices - 1) * math.prod(shape)
        self.devices = devices

    def of(self, held: Sequence[Array], known: Sequence[Array], devices: Devices) -> Array:
        """All of it, inside `jax.shard_map`, of what this device holds."""
        (own,) = held
        return lax.all_gather(own, devices.axes, axis=self.cut, tiled=True)

    def __repr__(self) -> str:
        return told(self)


class Summing:
    """Arrays of which each device has one, added up: on all devices, or on each a block of the sum.

    Args:
        shape: of the arrays.
        cut: the dimension along which the sum is cut in blocks, all but the last of one length; None where it is not.
        devices: how many there are.
    """

    def __init__(self, shape: tuple[int, ...], cut: int | None, devices: int):
        self.shape, self.cut, self.devices = shape, cut, devices
        self.kind = "all_reduce" if cut is None else "reduce_scatter"
        self.block = 0 if cut is None else -(-shape[cut] // devices)
        size, ways = math.prod(shape), 2 if cut is None else 1
        self.elements_crossing = ways * (devices - 1) * size  # on a ring
        room = 1.0 if cut is None else devices * self.block / shape[cut]
        self.elements_carried = round(room * self.elements_crossing)

    def of(self, own: Array, devices: Devices) -> Array:
        """The sum, or this device's block of it, inside `jax.shard_map`, of what this device has."""
        if self.cut is None:
            return lax.psum(own, devices.axes)
        behind = self.devices * self.block - self.shape[self.cut]
        widths = [(0, behind if d == self.cut else 0, 0) for d in range(len(self.shape))]
        whole = lax.pad(own, jnp.zeros((), own.dtype), widths) if behind else own
        return lax.psum_scatter(whole, devices.axes, scatter_dimension=self.cut, tiled=True)

    def __repr__(self) -> str:
        return told(self)


def told(own: Crossing | WholeGathering | Summing) -> str:
    """What crosses, as text."""
    what = "nothing crosses" if own.kind == "none" else f"{own.elements_crossing:,} elements cross by {own.kind}"
    return f"<Crossing to {own.devices} devices: {what}, {own.elements_carried:,} carried>"


def _joined(parts: Sequence[Array]) -> Array:
    return parts[0] if len(parts) == 1 else lax.concatenate(parts, 0)
