"""From graphs to pure JAX functions. `pipeline.py` is the table of contents.

What it offers is looked up when it is first used: gradients and proofs are no part of lowering a graph.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lowering.adjoint.gradient import Gradient as Gradient
    from lowering.adjoint.gradient import gradient as gradient
    from lowering.adjoint.recompute import Recompute as Recompute
    from lowering.builders import LoweredFunction as LoweredFunction
    from lowering.builders import lower as lower
    from lowering.equality.answer import Equality as Equality
    from lowering.equality.answer import Witness as Witness
    from lowering.equality.equal import equal as equal
    from lowering.gradient_check.check_gradient import check_gradient as check_gradient
    from lowering.gradient_check.report import GradientCheck as GradientCheck
    from lowering.lower import Lowered as Lowered
    from lowering.plan.plan import Plan as Plan

_WHERE = {
    "Gradient": "lowering.adjoint.gradient",
    "gradient": "lowering.adjoint.gradient",
    "Recompute": "lowering.adjoint.recompute",
    "LoweredFunction": "lowering.builders",
    "lower": "lowering.builders",
    "Equality": "lowering.equality.answer",
    "Witness": "lowering.equality.answer",
    "equal": "lowering.equality.equal",
    "check_gradient": "lowering.gradient_check.check_gradient",
    "GradientCheck": "lowering.gradient_check.report",
    "Lowered": "lowering.lower",
    "Plan": "lowering.plan.plan",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
