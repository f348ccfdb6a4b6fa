"""Tile addresses: a program run in the planned memory of every tile, as the proof of that plan.

In come a checked plan, planned on the machine. Memory is one array of tiles by words for each dtype, in which a
variable's words lie at the addresses of `lowering/machine/memory.py`, shared by what is not live at once. Before each
compute set and each copy every word that no live variable holds is poisoned, with NaN or with an integer no one
expects, and so are the words of its exchange buffer, which what arrives would overwrite: a value that the plan
has let go of too early comes out wrong. Where vertices write a variable in the place of one that they read, they do
so element after element, each computed from memory as it then is: a sharing that is wrong comes out wrong too. What
tiles receive, compute and send is the tile array's.

It is meant to be right, not fast, and to be run forward. Words of different dtypes at one address are stored apart:
sharing an address is planned and counted, not run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import Tensor, whole_view
from ipu_backend.executions.tile_array import TileArray
from lowering.arrays import Array, Arrays, constant
from lowering.fast.steps import emit
from lowering.machine.live_variables import lifetimes
from lowering.machine.memory import Memory, Occupant
from lowering.pipeline import MachinePlan
from lowering.plan.control import control
from lowering.plan.plan import Plan
from lowering.plan.runs import Runs
from lowering.plan.steps import CopyStep, ExecuteStep, RepeatStep, Step
from lowering.plan.streams import fed_types
from lowering.plan.walk import bodies, with_bodies


def poison_of(dtype: np.dtype) -> Any:
    """What a word holds that nothing lives in: NaN, or for integers a third of the largest; booleans have none."""
    if np.issubdtype(dtype, np.inexact):
        return np.asarray(np.nan, dtype)
    return np.asarray(np.iinfo(dtype).max // 3 if np.issubdtype(dtype, np.integer) else False, dtype)


def _part_of(tensor: Tensor) -> Variable | None:
    """The variable that a field is elements of as they are; None where it is put together, or ragged."""
    return tensor.source if isinstance(tensor.source, Variable) and tensor.rows is None else None


class Addresses(TileArray):
    """Variables in the memory of tiles, by the addresses of a plan; see the module's docstring.

    Args:
        machine: the plan on the machine, of the plan without calls.
    """

    def __init__(self, machine: MachinePlan):
        super().__init__(machine.exchange)
        self.memory: Memory = machine.memory
        dtypes = [variable.dtype for own in self.memory.occupants for variable in own.variables]
        most = int(self.memory.bytes_by_tile.max(initial=0))
        self.plan = machine.placement.plan
        self.memories: dict[np.dtype, Variable] = {}
        for dtype in dict.fromkeys(dtypes):
            shape = machine.placement.num_tiles, most // dtype.itemsize + 1
            self.plan, self.memories[dtype] = self.plan.add_variable(f"memory of {dtype}", shape, dtype)
        self.moments: dict[Step, int] = {}
        """The moment at which each step of the rewritten plan happens."""

    # --- where words are --------------------------------------------------------------------------------

    def is_held(self, variable: Variable) -> bool:
        """Whether a variable has a place in memory: one that the program names has."""
        return variable in self.layouts and self.memory.occupant(variable) is not None

    def positions(self, variable: Variable) -> np.ndarray:
        """Where in its flat memory each element of a variable is, of shape (size,)."""
        occupant, own = self.memory.occupant(variable), self.layouts.of(variable)
        assert occupant is not None
        row, word = np.divmod(own.pieces.at(np.arange(variable.size)), max(1, own.shape[1]))
        tiles = self.placement.tiles[row].astype(np.int64)
        words = self.memories[variable.dtype].shape[1]
        return tiles * words + occupant.addresses[tiles] // variable.dtype.itemsize + word

    def words_in(self, occupant: Occupant, dtype: np.dtype) -> np.ndarray:
        """Where in the flat memory of a dtype the words are of which every byte is an occupant's.

        A word of which only a part is may belong to what lies beside it.
        """
        starts = -(-occupant.addresses // dtype.itemsize)
        counts = np.maximum(0, (occupant.addresses + occupant.num_bytes) // dtype.itemsize - starts)
        counts[occupant.num_bytes == 0] = 0
        begins = np.arange(len(counts)) * self.memories[dtype].shape[1] + starts
        return Runs(begins, begins + counts).numbers()

    def fetch(self, arrays: Arrays, variable: Variable) -> Array:
        """The array of tiles by words of a variable, out of memory."""
        flat = arrays[self.memories[variable.dtype]].reshape(-1)
        return self.load(variable, flat[constant(self.positions(variable))].reshape(variable.shape))

    def keep(self, arrays: Arrays, variable: Variable, array: Array) -> None:
        """Write a variable's array of tiles by words to memory. The arrays are changed."""
        memory = self.memories[variable.dtype]
        if variable.size:
            value = self.unload(variable, array).reshape(-1)
            flat = arrays[memory].reshape(-1).at[constant(self.positions(variable))].set(value, unique_indices=True)
            arrays[memory] = flat.reshape(memory.shape)

    def poison(self, arrays: Arrays, step: Step) -> None:
        """Poison what is not live at a step. The arrays are changed."""
        moment = self.moments[step]
        there = [own for own in self.memory.occupants if own.moments is None or own.moments[moment]]
        variables = [variable for own in there for variable in own.variables]
        buffers = [own for own in there if own.kind == "exchange buffers"]
        for dtype, memory in self.memories.items():
            live = np.zeros(memory.size, bool)
            for variable in variables:
                if variable.dtype == dtype:
                    live[self.positions(variable)] = True
            for own in buffers:
                live[self.words_in(own, dtype)] = False
            arrays[memory] = jnp.where(constant(live.reshape(memory.shape)), arrays[memory], poison_of(dtype))

    # --- what the emission of steps asks for --------------------------------------------------------------

    def _opened(self, arrays: Arrays, variables: Sequence[Variable]) -> Arrays:
        """The arrays of some variables alone."""
        opened = {v: self.fetch(arrays, v) for v in variables if self.is_held(v)}
        return {**{v: arrays[v] for v in variables if v in arrays}, **opened}

    def _closed(self, arrays: Arrays, opened: Arrays, variables: Sequence[Variable]) -> None:
        for variable in variables:
            self.keep(arrays, variable, opened[variable])

    def read(self, arrays: Arrays, tensor: Tensor) -> Array:
        """The value of a view without symbols."""
        return super().read(self._opened(arrays, source_variables(tensor.source)), tensor)

    def write(self, arrays: Arrays, tensor: Tensor, value: Array) -> None:
        """Write a value to a view without symbols. The arrays are changed."""
        written = source_variables(tensor.source)
        opened = self._opened(arrays, written)
        super().write(opened, tensor, value)
        self._closed(arrays, opened, written)

    def copy(self, arrays: Arrays, step: CopyStep) -> None:
        """Copy a view to another. The arrays are changed."""
        self.poison(arrays, step)
        sources, written = source_variables(step.source.source), source_variables(step.destination.source)
        if all(variable in self.layouts for variable in sources):
            opened = self._opened(arrays, [*sources, *written])
            super().copy(opened, step)
            self._closed(arrays, opened, written)
        else:
            self.write(arrays, step.destination, self.read(arrays, step.source))

    def execute(self, arrays: Arrays, step: ExecuteStep) -> None:
        """Run a compute set. The arrays are changed."""
        self.poison(arrays, step)
        touched = dict.fromkeys(v for touch in step.touches() for v in touch.variables)
        written = dict.fromkeys(v for touch in step.touches() if touch.is_written for v in touch.variables)
        in_place = self.in_place(step)
        if in_place and not any(family.codelet.has_effects for family in step.families):
            self.overwrite(arrays, step, list(touched), list(written), in_place)
            return
        opened = self._opened(arrays, list(touched))
        super().execute(opened, step)
        self._closed(arrays, opened, list(written))

    def places(self, step: ExecuteStep) -> dict[Variable, np.ndarray]:
        """Where in its field each element of the variables is that a step writes, as far as fields are parts of these.

        Of shape (size,), -1 for what the step does not write.
        """
        found: dict[Variable, np.ndarray] = {}
        others: set[Variable] = set()
        for family in step.families:
            for own in family.fields:
                if own.tensor is None or not own.is_written:
                    continue
                variable = _part_of(own.tensor)
                if variable is None:
                    others.update(source_variables(own.tensor.source))
                    continue
                places = found.setdefault(variable, np.full(variable.size, -1))
                if own.tensor.size:
                    elements = own.tensor.index.values(family.axes).reshape(-1, own.tensor.size)
                    places[elements] = np.arange(own.tensor.size)
        return {variable: places for variable, places in found.items() if variable.size and variable not in others}

    def in_place(self, step: ExecuteStep) -> set[Variable]:
        """The variables that a step writes where one lies that it reads."""
        connected = [(f, f.tensor) for family in step.families for f in family.fields if f.tensor is not None]
        read = {v for own, tensor in connected if own.is_read for v in source_variables(tensor.source)}
        found = set()
        for own, tensor in connected:
            variable = _part_of(tensor) if own.is_written and not own.is_read else None
            occupant = None if variable is None else self.memory.occupant(variable)
            if occupant is not None and any(v in read for v in occupant.variables if v is not variable):
                found.add(variable)
        return found

    def overwrite(
        self,
        arrays: Arrays,
        step: ExecuteStep,
        touched: Sequence[Variable],
        written: Sequence[Variable],
        in_place: set[Variable],
    ) -> None:
        """Run a compute set that writes in the place of what it reads: element after element of its fields.

        Each is computed from memory as it then is. What lies apart, or is in-out, is written when all are made.
        """
        memories, places = list(self.memories.values()), self.places(step)
        around = {variable: array for variable, array in arrays.items() if variable not in memories}
        shared = [variable for variable in written if variable in in_place and variable in places]
        apart = [variable for variable in written if variable not in shared]
        flat = lambda variable, array: self.unload(variable, array).reshape(-1)  # noqa: E731

        def turn(k: Array, held: Sequence[Sequence[Array]]) -> tuple[list[Array], list[Array]]:
            now: Arrays = {**around, **dict(zip(memories, held[0], strict=True))}
            opened = self._opened(now, touched)
            super(Addresses, self).execute(opened, step)

            def chosen(variable: Variable, before: Array) -> Array:
                is_due = constant(places[variable]) == k if variable in places else k == 0
                return jnp.where(is_due, flat(variable, opened[variable]), before)

            waiting = [chosen(variable, before) for variable, before in zip(apart, held[1], strict=True)]
            for variable in shared:
                made = chosen(variable, flat(variable, self.fetch(now, variable)))
                self.keep(now, variable, self.load(variable, made.reshape(variable.shape)))
            return [now[own] for own in memories], waiting

        count = 1 + max((int(own.max()) for own in places.values()), default=0)
        start = [arrays[own] for own in memories], [flat(own, self.fetch(arrays, own)) for own in apart]
        after, waiting = lax.fori_loop(0, count, turn, start)
        arrays.update(zip(memories, after, strict=True))
        for variable, made in zip(apart, waiting, strict=True):
            self.keep(arrays, variable, self.load(variable, made.reshape(variable.shape)))

    # --- the plan in memory -------------------------------------------------------------------------------

    def steps(self, steps: Sequence[Step], counter: Iterator[int]) -> tuple[Step, ...]:
        """Steps that read and write memory, each at its own moment: in the order of the timeline."""
        memories, found = tuple(self.memories.values()), []
        for step in steps:
            flow, inside, moment = control(step), [], -1
            for part in flow.parts:
                if part.body is None:
                    moment = next(counter)
                else:
                    inside.append(self.steps(bodies(step)[part.body], counter))
            if not flow.parts:
                continue
            flags = (*memories, *(variable for variable in step.writes if variable not in self.layouts))
            made: Step = replace(with_bodies(step, inside), reads=flags, writes=flags)  # type: ignore[type-var]
            if isinstance(made, RepeatStep) and made.index is not None:
                self.plan, number = self.plan.add_variable(f"turn of {made.index.name}", (), made.index.dtype)
                setting = CopyStep(whole_view(number), whole_view(made.index), reads=memories, writes=memories)
                self.moments[setting] = moment
                made = replace(made, body=(setting, *made.body), index=number)
            self.moments[made] = moment
            found.append(made)
        return tuple(found)


def compile_addresses(plan: Plan, machine: MachinePlan) -> jax_core.ClosedJaxpr:
    """The jaxpr of a checked plan in memory, from the values of its inputs to those of its outputs.

    Args:
        plan: what to run, without calls.
        machine: the same plan on the machine.
    """
    execution = Addresses(machine)
    steps = execution.steps(plan.steps, iter(range(len(machine.liveness.timeline.moments))))
    memories = tuple(execution.memories.values())
    outputs = tuple(map(whole_view, memories))
    held = lifetimes(plan)
    before = held.kept | held.given  # another variable may be in the place of a result until it is written
    run = emit(
        replace(plan, variables=(), added=execution.plan.added, inputs=memories, outputs=outputs, steps=steps),
        execution,
    )

    def function(*given: Array) -> list[Array]:
        arrays: Arrays = {own: jnp.full(own.shape, poison_of(own.dtype), own.dtype) for own in memories}
        values = {v: own for v, own in zip(plan.inputs, given, strict=False) if v in before}
        values.update({v: constant(v.value) for v in plan.variables if v.value is not None})
        for variable, value in values.items():
            if execution.is_held(variable):
                execution.keep(arrays, variable, execution.load(variable, value))
        results = run(*(arrays[own] for own in memories), *given[len(plan.inputs) :])
        arrays.update(zip(memories, results, strict=False))
        return [*(execution.read(arrays, tensor) for tensor in plan.outputs), *results[len(memories) :]]

    structs = [jax.ShapeDtypeStruct(variable.shape, variable.dtype) for variable in plan.inputs]
    return jax.make_jaxpr(function)(*structs, *fed_types(plan))
