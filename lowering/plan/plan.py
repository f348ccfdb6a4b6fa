"""The plan: what the passes share. Families, the program as a tree of steps, what goes in and what comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from codelet.display import as_block, as_html
from codelet.graphs.family import Family
from codelet.graphs.graph import Graph
from codelet.programs.copies import Stream
from codelet.programs.program import Program
from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import Tensor
from lowering.plan.steps import CallStep, ExecuteStep, Step, UndefStep
from lowering.plan.walk import all_steps


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """A graph and program as the passes see them. Passes return new plans and never change one.

    Attributes:
        graph: what was lowered; the plan holds all it needs of the graph, which may grow meanwhile.
        variables: all variables of the graph when it was lowered.
        inputs: the variables that are given a value from outside.
        outputs: the views that are read at the end.
        steps: what runs, in order.
        streams: those that the steps copy from or to, in the order in which they were added.
        added: the variables that passes have added for what they keep, which are none of the graph's.
        abort: the one of these, of shape (), that says whether the program aborted, and which of `messages` it
            aborted with, counted from 1; None where nothing aborts.
        messages: what the aborts say.
        program: what was collected, of which the steps may be a part.
        unneeded: families that were left out, since no output needs what they compute.
        platform: what kernels were chosen for, one of `lowering/platforms.py`; None before they are.
        work: what is moved and touched for each compute set when it runs fused, as text; see `lowering/fast/work.py`.
    """

    graph: Graph
    variables: tuple[Variable, ...]
    inputs: tuple[Variable, ...]
    outputs: tuple[Tensor, ...]
    steps: tuple[Step, ...]
    streams: tuple[Stream, ...] = ()
    added: tuple[Variable, ...] = ()
    abort: Variable | None = None
    messages: tuple[str, ...] = ()
    program: Program | None = None
    unneeded: tuple[Family, ...] = ()
    platform: str | None = None
    work: Mapping[str, str] = field(default_factory=dict)

    @property
    def families(self) -> tuple[Family, ...]:
        """The families of all steps, each once, in the order in which they first run."""
        executes = (step for step in all_steps(self.steps) if isinstance(step, ExecuteStep))
        return tuple(dict.fromkeys(family for step in executes for family in step.families))

    @property
    def ended(self) -> frozenset[Variable]:
        """The variables that hold nothing after the program: whose life one of its last steps ends."""
        written: set[Variable] = set()
        found: set[Variable] = set()
        for step in reversed(self.steps):
            if isinstance(step, UndefStep) and step.tensor.is_whole_variable:
                found |= set(source_variables(step.tensor.source)) - written
            written.update(step.writes)
        return frozenset(found)

    @property
    def lasting(self) -> tuple[Variable, ...]:
        """The variables of whose values after the program the caller knows: outputs, and inputs that no step writes."""
        written = {variable for step in self.steps for variable in step.writes}
        outputs = (variable for tensor in self.outputs for variable in source_variables(tensor.source))
        return (*(variable for variable in self.inputs if variable not in written), *outputs)

    def add_variable(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> tuple[Plan, Variable]:
        """The plan with a variable more, which prints as `<name>`, and that variable.

        Its number and the numbers of its elements follow those of the plan's other variables.
        """
        before = (*self.variables, *self.added)
        first = before[-1].first_element + before[-1].size + 1 if before else 0
        made = Variable(self.graph, f"<{name}>", shape, dtype, len(before), first)
        return replace(self, added=(*self.added, made)), made

    def __str__(self) -> str:
        rows = [f"platform  {self.platform}"] * (self.platform is not None)
        rows += [f"inputs  {', '.join(variable.name for variable in self.inputs)}"]
        rows += [f"streams {', '.join(stream.name for stream in self.streams)}"] * bool(self.streams)
        called = (step.function for step in all_steps(self.steps) if isinstance(step, CallStep))
        rows += [line for function in dict.fromkeys(called) for line in function.lines()]
        rows += [line for step in self.steps for line in step.lines()]
        left_out = dict.fromkeys(f"{family.compute_set.name} / {family.codelet.name}" for family in self.unneeded)
        rows += [f"without {name}, which no output needs" for name in left_out]
        rows += [f"moved / touched in {name or 'all, around steps'}: {work}" for name, work in self.work.items()]
        rows += [f"outputs {', '.join(map(str, self.outputs))}"]
        return "\n".join(rows)

    @property
    def _head(self) -> str:
        return f"plan of {len(self.steps):,} steps, {sum(f.num_vertices for f in self.families):,} vertices"

    def __repr__(self) -> str:
        return f"<{self._head}>"

    def _repr_html_(self) -> str:
        return as_html(self._head, as_block(self))
