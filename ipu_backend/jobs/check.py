"""The job `codelet check`: whether what a function is traced and lowered to is equal to the function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from codelet.frontends.trace import trace
from codelet.models.networks import NETWORKS
from codelet.target import Target
from ipu_backend.jobs.adjoint import gradient_of, network_loss
from ipu_backend.jobs.found import find_function, telling_of
from ipu_backend.jobs.stages import Stages
from lowering.equality.answer import Equality
from lowering.equality.checks import compared_gradient, comparisons_of


@dataclass(frozen=True)
class Checked:
    """What a function was compared with.

    Attributes:
        answers: of each comparison, by what was compared.
        seconds: that each took.
    """

    answers: dict[str, Equality]
    seconds: dict[str, float]

    def __bool__(self) -> bool:
        return all(self.answers.values())

    def __str__(self) -> str:
        return "\n".join(f"{what}, in {self.seconds[what]:.1f} s: {own}" for what, own in self.answers.items())

    def as_json(self) -> dict[str, Any]:
        """What is compared, with the verdict, the chance that it is wrong, and the seconds that it took."""
        return {
            what: {"verdict": own.verdict, "chance": own.chance, "seconds": self.seconds[what], "told": str(own)}
            for what, own in self.answers.items()
        }


def check_function(
    name: str,
    *,
    grain: int | None = None,
    batch: int | None = None,
    target: Target | None = None,
    adjoint: bool = False,
    vertices: bool = False,
) -> Checked:
    """Trace a network's training step or another function, lower it, and compare both with the function.

    Args:
        name: as `find_function` takes it.
        grain: as `cl.trace` takes it.
        batch: as `find_function` takes it.
        target: the machine; default: an IPU.
        adjoint: compare the gradient of the first result by the first argument, as `cl.gradient` makes it, with JAX's;
            of a network its loss is traced then.
        vertices: whether the graph itself is compared as well, one family of vertices at a time.

    Raises:
        BuildError: a name that nothing has, or a function that cannot be traced.
        ProgramError: a function that does something else than to compute.
    """
    function, *examples = find_function(name, batch)
    if adjoint and name in NETWORKS:
        function = network_loss
    tracing = Stages(["trace"])
    with tracing.stage("trace"), telling_of(name):
        traced = trace(function, *examples, grain=grain, target=target)
    comparisons = comparisons_of(traced)
    if adjoint:
        found = gradient_of(traced)
        comparisons["the gradient by vertices"] = lambda: compared_gradient(traced.graph, traced.program, found, 1)
    if not vertices:
        del comparisons["the graph of a trace"]
    stages, answers = Stages([*comparisons]), {}
    for what, compare in comparisons.items():
        with stages.stage(what):
            answers[what] = compare()
    return Checked(answers, stages.seconds)
