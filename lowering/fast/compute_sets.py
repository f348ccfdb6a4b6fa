"""Compute sets and copies: how each runs is decided by the pass `choose_kernels`; emission then follows that.

A compute set reads the state as it was before, through `Inputs`; each of its families runs by a kernel
(`kernels.py`); and then each variable is written, by all that is written to it at once (`writes.py`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from codelet.graphs.family import Family
from codelet.views.sources import Patchwork, Source, Variable, source_text
from codelet.views.tensor import Tensor
from lowering.arrays import Arrays
from lowering.fast.alike_steps import Names, names_of
from lowering.fast.calls import group_calls
from lowering.fast.extend import Extension, extend_families, made
from lowering.fast.inputs import Inputs
from lowering.fast.kernels import Choice, choose_kernel
from lowering.fast.over_grid import Operand
from lowering.fast.partition import Division, split
from lowering.fast.short_axes import merge_short_axes
from lowering.fast.sources import SplitPiece, Viewed, origin_array, plan_view_of, repeats, source_array, write_view
from lowering.fast.unbatched import telling_unbatched
from lowering.fast.writes import Writes, plan_writes
from lowering.plan.plan import Plan
from lowering.plan.steps import CopyStep, ExecuteStep, Step
from lowering.plan.walk import Rewriter


@dataclass(frozen=True, eq=False)
class Store:
    """All that a compute set writes to one variable, or through views of one patchwork.

    Attributes:
        source: the written array.
        writes: how; None through a patchwork, see `write_view`.
        tensors: the written views, each by one field.
        fields: the number of the family that writes it, and the name of the field.
    """

    source: Source
    writes: Writes | None
    tensors: tuple[Tensor, ...]
    fields: tuple[tuple[int, str], ...]

    def into(self, arrays: Arrays, values: Sequence[Operand]) -> None:
        """Write a value for each of the tensors. The arrays are changed."""
        if self.writes is None:
            for tensor, value in zip(self.tensors, values, strict=True):
                write_view(arrays, tensor.source, tensor.index, *value)
        else:
            before = source_array(arrays, self.source) if self.writes.needs_old else None
            arrays[self.source] = self.writes.into(before, self.source.shape, values)

    def __str__(self) -> str:
        if isinstance(self.source, Patchwork):
            how = "element by element" if repeats(self.source) else "as one array, then cut into its variables"
            return f"{source_text(self.source)}: {how}"
        return f"{source_text(self.source)}: {self.writes}"


def _plan_stores(written: Sequence[tuple[Tensor, tuple[int, str]]]) -> tuple[Store, ...]:
    """How tensors are written, each by a field; those of a variable together."""
    by_source: dict[Source, list[tuple[Tensor, tuple[int, str]]]] = {}
    for own in written:
        by_source.setdefault(own[0].source, []).append(own)
    stores = []
    for source, group in by_source.items():
        tensors, places = zip(*group, strict=True)
        indices = [tensor.index for tensor in tensors]
        writes = plan_writes(source.shape, indices) if isinstance(source, Variable) else None
        stores.append(Store(source, writes, tensors, places))
    return tuple(stores)


# --- compute sets ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Running:
    """How the families of a compute set run.

    Attributes:
        extensions: arrays extended beyond their ends, made before its families run.
        divided: variables of which its fields read pieces, and how.
        merged: its families as they run, short axes merged, reading the extensions.
        choices: the kernel of each family.
        stores: how their results are written.
    """

    extensions: tuple[Extension, ...]
    divided: tuple[tuple[Variable, Division], ...]
    merged: tuple[Family, ...]
    choices: tuple[Choice, ...]
    stores: tuple[Store, ...]

    def run(self, arrays: Arrays) -> None:
        """All families read the state as it was before; then all write. The state is changed."""
        before = dict(arrays)
        before.update(made(self.extensions, lambda source: origin_array(before, source)))
        for variable, division in self.divided:
            pieces = split(source_array(before, variable), division)
            before.update({SplitPiece(variable, division, k): piece for k, piece in enumerate(pieces)})
        results = []
        for family, (kernel, _) in zip(self.merged, self.choices, strict=True):
            with telling_unbatched(family.codelet, family.lines[0] if family.lines else None):
                results.append(kernel.run(before))
        for store in self.stores:
            store.into(arrays, [results[k][name] for k, name in store.fields])


def plan_running(families: Sequence[Family]) -> Running:
    """How the families of a compute set run."""
    extensions, merged = extend_families([merge_short_axes(family) for family in families])
    inputs = Inputs(merged)
    written = [
        (field.tensor, (k, field.name))
        for k, family in enumerate(merged)
        for field in family.fields
        if field.is_written and field.tensor is not None and field.tensor.size and family.num_vertices
    ]
    return Running(
        tuple(extensions),
        tuple(inputs.divided.items()),
        merged,
        tuple(choose_kernel(family, inputs) for family in merged),
        _plan_stores(written),
    )


@dataclass(frozen=True, eq=False)
class FusedStep(ExecuteStep):
    """A compute set with how it runs.

    Attributes:
        running: how; or how one runs that is like it but for its variables.
        instead: of that one, for each of its variables the one here; None where `running` is of the variables here.
    """

    running: Running = Running((), (), (), (), ())
    instead: Mapping[Variable, Variable] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # What was decided holds jaxprs, which cannot be pickled, and is decided anew.
        return _fused, (ExecuteStep(self.name, self.families, reads=self.reads, writes=self.writes),)

    def lines(self) -> Iterator[str]:
        """The step as text."""
        first, *_ = super().lines()
        yield first
        own = self.running if self.instead is None else plan_running(self.families)  # which names the own variables
        for family, merged, (kernel, refused) in zip(self.families, own.merged, own.choices, strict=True):
            yield from ("  " + line for line in str(family).split("\n"))
            yield from (f"    made of {line.strip()}" for line in self._parts_text(family))
            yield from (f"    apart from those like it: {reason}" for reason in [self.apart.get(family)] if reason)
            yield f"    runs {kernel.text(merged.names)}"
            yield from (f"      not {name}: {why}" for name, why in refused)
            yield from (f"      reads {name}: {how}" for name, how in kernel.reads.items())
        yield from (f"  writes {store}" for store in own.stores)

    def _parts_text(self, family: Family) -> list[str]:
        """The families that one stands for, without their fields."""
        return [str(part).split("\n", 1)[0].split(": ", 1)[1] for part in self.parts.get(family, ())]


def _fused(
    step: ExecuteStep, running: Running | None = None, instead: Mapping[Variable, Variable] | None = None
) -> FusedStep:
    """A compute set with how it runs, which may be known from one like it."""
    running = plan_running(step.families) if running is None else running
    inherited: dict[str, Any] = {name: getattr(step, name) for name in ("parts", "apart", "reads", "writes")}
    return FusedStep(step.name, step.families, running, instead, **inherited)


def execute(arrays: Arrays, step: FusedStep) -> None:
    """Run a compute set. The state is changed."""
    if step.instead is None:
        step.running.run(arrays)
        return
    named = {their: arrays[own] for their, own in step.instead.items() if own in arrays}
    step.running.run(named)
    written = set(step.writes)
    arrays.update({own: named[their] for their, own in step.instead.items() if own in written})


# --- copies ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FusedCopy(CopyStep):
    """A copy with how its source is read and its destination is written."""

    view: Viewed | None = None
    store: Store | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _fused_copy, (
            CopyStep(self.source, self.destination, reads=self.reads, writes=self.writes, line=self.line),
        )

    def lines(self) -> Iterator[str]:
        """The step as text."""
        yield f"{next(super().lines())}: reads {self.view}, writes {self.store or 'nothing'}"


def _fused_copy(step: CopyStep) -> FusedCopy:
    """A copy with how it runs."""
    (store,) = _plan_stores([(step.destination, (0, ""))]) if step.destination.size else (None,)
    flow = {"reads": step.reads, "writes": step.writes, "line": step.line}
    return FusedCopy(step.source, step.destination, plan_view_of(step.source), store, **flow)


def copy(arrays: Arrays, step: FusedCopy) -> None:
    """Copy a view to another. The state is changed."""
    assert step.view is not None
    if step.store is not None:
        step.store.into(arrays, [(step.view.of(dict(arrays)), tuple(range(step.source.ndim)))])


# --- the pass -------------------------------------------------------------------------------------------


class _Choosing(Rewriter):
    """Decides how steps run, each once, however often it stands in a program."""

    def __init__(self) -> None:
        super().__init__()
        self.chosen: dict[Step, Step] = {}
        self.running: dict[Hashable, tuple[Names, Running]] = {}

    def fused(self, step: ExecuteStep) -> FusedStep:
        """A compute set with how it runs: as the first one of its form does."""
        names = names_of(step)
        if names is None or names.form not in self.running:
            made = _fused(step)
            if names is not None:
                self.running[names.form] = names, made.running
            return made
        first, running = self.running[names.form]
        return _fused(step, running, names.variables_for(first))

    def step(self, step: Step) -> Step:
        if not isinstance(step, (ExecuteStep, CopyStep)):
            return self.around(step)
        if step not in self.chosen:
            self.chosen[step] = self.fused(step) if isinstance(step, ExecuteStep) else _fused_copy(step)
        return self.chosen[step]

    def body(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        """Steps, calls of one function in a row as one."""
        return group_calls([self.step(step) for step in steps])


def choose_kernels(plan: Plan) -> Plan:
    """The plan with how each compute set and copy runs: the kernel of each family, how all is read and written."""
    return replace(plan, steps=_Choosing().body(plan.steps))
