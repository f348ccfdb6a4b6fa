"""Programs checked: the gradient that a backward pass gives, beside differences of what the program computes.

It is computed as the program computes, in its own dtypes, by its own steps: what the vertices by themselves do not tell
is whether contributions come to where they belong.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from codelet.graphs.graph import Graph
from codelet.programs.program import Program
from codelet.programs.program import Sequence as ProgramSequence
from codelet.views.sources import Variable, source_elements, source_text
from codelet.views.tensor import Tensor
from lowering.adjoint.gradient import gradient
from lowering.gradient_check.differences import Verdict, judge, steps_for, tolerance
from lowering.gradient_check.families import Options, drawn, magnitudes
from lowering.gradient_check.probes import compiled
from lowering.gradient_check.report import Checked, Finding
from lowering.gradient_check.vertices import ROUNDING, precision
from lowering.plan.collect import collect


class _BothPasses:
    """A program, and its gradient as a graph, as functions of values; all in a copy of the graph."""

    def __init__(
        self,
        graph: Graph,
        of: Tensor,
        wrt: Sequence[Tensor],
        values: Mapping[str, Any],
        program: Program,
        cotangent: np.ndarray,
        options: Options,
    ):
        self.options, self.cotangent = options, np.asarray(cotangent)
        self.graph, self.wrt, target, own = copy.deepcopy((graph, list(wrt), of, program))
        inputs = tuple(variable for variable in self.graph.sources if variable.name in values)
        self.values: dict[str, Any] = dict(values)
        found = gradient(self.graph, own, of=target, wrt=self.wrt, cotangent=cotangent)
        both = ProgramSequence(found.forward, found.backward)
        self.forward = compiled(collect(self.graph, own, inputs, (target,)))
        self.slopes = compiled(collect(self.graph, both, inputs, tuple(found)))(self.values)
        self.eps = precision([target.dtype, *(tensor.dtype for tensor in self.wrt)])
        self.inputs = inputs

    def moved(self, directions: Sequence[np.ndarray], t: float) -> dict[str, np.ndarray]:
        """The values with the elements of each tensor moved along its direction."""
        made = dict(self.values)
        for tensor, direction in zip(self.wrt, directions, strict=True):
            elements = _elements(tensor)
            for variable in self.inputs:
                own = (elements >= variable.first_element) & (elements < variable.first_element + variable.size)
                if own.any():
                    flat = made[variable.name].reshape(-1).copy()
                    steps = (t * direction[own]).astype(flat.dtype)
                    np.add.at(flat, elements[own] - variable.first_element, steps)
                    made[variable.name] = flat.reshape(variable.shape)
        return made

    def weighed(self, values: Mapping[str, Any]) -> tuple[float, float]:
        """What is differentiated, by its cotangent, and the size of what that is a sum of."""
        terms = self.cotangent * np.asarray(self.forward(values)[0], np.result_type(self.cotangent, np.float64))
        return float(np.real(terms).sum()), float(np.abs(terms).sum())

    def directions(self, random: np.random.Generator) -> list[np.ndarray]:
        """A direction for each tensor, of its shape; zero where nothing is given from outside."""
        found = []
        for tensor in self.wrt:
            elements, sizes = _elements(tensor), np.zeros(tensor.shape)
            for variable in self.inputs:
                own = (elements >= variable.first_element) & (elements < variable.first_element + variable.size)
                flat = self.values[variable.name].reshape(-1)
                if own.any():
                    sizes[own] = magnitudes(flat[elements[own] - variable.first_element])
            found.append(sizes * drawn(random, tensor.shape, _double(tensor.dtype)))
        return found

    def verdict(self, directions: Sequence[np.ndarray]) -> Verdict:
        """What differences say of the slope along directions."""
        steps = steps_for(self.eps)
        terms = [_double_array(own) * direction for own, direction in zip(self.slopes, directions, strict=True)]
        slope = float(sum(np.real(own).sum() for own in terms))
        spread = float(np.sqrt(sum(np.sum(np.abs(own) ** 2) for own in terms)))
        sums, sizes = zip(*(self.weighed(self.moved(directions, t)) for t in steps.places), strict=True)
        noise = ROUNDING * self.eps * (sizes[0] + sum(float(np.abs(own).sum()) for own in terms))
        rtol = self.options.rtol or tolerance(self.eps)
        return judge(steps, np.array(sums), slope, spread=spread, noise=noise, rtol=rtol)


def _elements(tensor: Tensor) -> np.ndarray:
    """The graph's numbers of the elements of a view; -1 for padding."""
    if isinstance(tensor.source, Variable):
        return tensor.index.values() + tensor.source.first_element
    return source_elements(tensor.source)[tensor.index.values()]


def _double(dtype: Any) -> np.dtype:
    return np.dtype(np.complex128 if np.dtype(dtype).kind == "c" else np.float64)


def _double_array(array: np.ndarray) -> np.ndarray:
    return array.astype(_double(array.dtype))


def check_program(
    graph: Graph,
    of: Tensor,
    wrt: Sequence[Tensor],
    values: Mapping[str, Any],
    program: Program,
    cotangent: np.ndarray,
    directions: int,
    options: Options,
) -> tuple[Checked, list[Finding]]:
    """Check the gradient of a program along some directions of all that it is by, at once.

    A gradient that is wrong is told of each tensor by itself, where it is.
    """
    whole = _BothPasses(graph, of, wrt, values, program, cotangent, options)
    random = np.random.default_rng(options.seed)
    verdicts, findings = [], []
    for _ in range(directions):
        along = whole.directions(random)
        verdict = whole.verdict(along)
        verdicts.append(verdict)
        if verdict.kind != "right":
            findings += _told(whole, wrt, along, verdict)
    notes = () if whole.eps < 1e-12 else ("in the program's own dtypes",)
    name = "float64" if whole.eps < 1e-12 else str(of.dtype)
    return Checked("the whole program", "", directions, 0, name, tuple(verdicts), notes), findings


def _told(whole: _BothPasses, wrt: Sequence[Tensor], along: Sequence[np.ndarray], verdict: Verdict) -> list[Finding]:
    """What is told of a slope of a program that is not right: by which tensor it is wrong, where it is by one alone."""
    names = [source_text(tensor.source) for tensor in wrt]
    if verdict.kind == "wrong" and len(wrt) > 1:
        apart = []
        for k, name in enumerate(names):
            own = whole.verdict([part if j == k else np.zeros_like(part) for j, part in enumerate(along)])
            if own.kind == "wrong":
                apart.append(Finding(None, name, f"the slope along a direction of {name!r}", own))
        if apart:
            return apart
    field = ", ".join(names)
    return [Finding(None, field, f"the slope along a direction of {field}", verdict)]
