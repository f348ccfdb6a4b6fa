"""Graphs of millions of small differentiable programs, written in Python and run on JAX.

What is defined here comes from this package. `lower`, `Engine`, `IPU` and the `Profile` of a program come from the
packages built on it. They are looked up when first used, so that imports point one way.
"""

# pyright: reportUnsupportedDunderAll=false
import importlib
from typing import Any

from codelet import errors
from codelet.deprecated import OLD_NAMES as _OLD_NAMES
from codelet.deprecated import old_name as _old_name
from codelet.draw.diagram import Diagram as Diagram
from codelet.draw.drawing import draw as draw
from codelet.draw.picture import Picture as Picture
from codelet.errors import *  # noqa: F403 (what `__all__` of it names)
from codelet.graphs.by_tensor import Results as Results
from codelet.graphs.family import Family as Family
from codelet.graphs.graph import Graph as Graph
from codelet.graphs.vertices import Edge as Edge
from codelet.graphs.vertices import Vertex as Vertex
from codelet.interpret import interpret as interpret
from codelet.programs.compute_sets import ComputeSet as ComputeSet
from codelet.programs.control import If as If
from codelet.programs.control import Repeat as Repeat
from codelet.programs.control import RepeatWhile as RepeatWhile
from codelet.programs.control import Revolve as Revolve
from codelet.programs.control import Switch as Switch
from codelet.programs.copies import Copy as Copy
from codelet.programs.copies import Stream as Stream
from codelet.programs.functions import Call as Call
from codelet.programs.functions import Function as Function
from codelet.programs.program import Execute as Execute
from codelet.programs.program import Program as Program
from codelet.programs.program import Sequence as Sequence
from codelet.programs.tensor_steps import AbortOn as AbortOn
from codelet.programs.tensor_steps import Print as Print
from codelet.programs.tensor_steps import WriteUndef as WriteUndef
from codelet.target import register_default_target as _register_default_target
from codelet.tracing.codelet_from_jaxpr import codelet_from_jaxpr as codelet_from_jaxpr
from codelet.tracing.codelets import Codelet as Codelet
from codelet.tracing.codelets import codelet as codelet
from codelet.version import VERSION
from codelet.views.concatenate import concatenate as concatenate
from codelet.views.index import Index as Index
from codelet.views.symbols import grid as grid
from codelet.views.symbols import maximum as maximum
from codelet.views.symbols import minimum as minimum
from codelet.views.symbols import table as table
from codelet.views.symbols import where as where
from codelet.views.tensor import Tensor as Tensor

__version__ = VERSION

__all__ = [
    "IPU",
    "AbortOn",
    "Call",
    "Checkpoints",
    "Codelet",
    "Comparison",
    "ComparisonError",
    "ComputeSet",
    "Copy",
    "CyclesError",
    "Diagram",
    "Edge",
    "Engine",
    "Equality",
    "Execute",
    "Family",
    "FigureError",
    "Function",
    "Gradient",
    "GradientCheck",
    "Graph",
    "If",
    "Index",
    "Lowered",
    "LoweredFunction",
    "Machine",
    "MachinePlan",
    "Picture",
    "Print",
    "Profile",
    "Program",
    "Recompute",
    "Record",
    "RecordError",
    "Repeat",
    "RepeatWhile",
    "ReportError",
    "Results",
    "Revolve",
    "Route",
    "Sequence",
    "StepProfile",
    "Stream",
    "Switch",
    "Tables",
    "TargetError",
    "Tensor",
    "Traced",
    "UnknownCyclesWarning",
    "Vertex",
    "Witness",
    "WriteUndef",
    "check_gradient",
    "codelet",
    "codelet_from_jaxpr",
    "compare",
    "concatenate",
    "describe",
    "draw",
    "equal",
    "gradient",
    "grid",
    "interpret",
    "jit",
    "load",
    "lower",
    "maximum",
    "minimum",
    "operation",
    "ops",
    "save",
    "table",
    "trace",
    "where",
]
__all__ += errors.__all__

_ELSEWHERE = {
    "check_gradient": "lowering.gradient_check.check_gradient",
    "describe": "lowering.join.describe",
    "equal": "lowering.equality.equal",
    "Equality": "lowering.equality.answer",
    "Witness": "lowering.equality.answer",
    "gradient": "lowering.adjoint.gradient",
    "Gradient": "lowering.adjoint.gradient",
    "Recompute": "lowering.adjoint.recompute",
    "GradientCheck": "lowering.gradient_check.report",
    "lower": "lowering.builders",
    "Lowered": "lowering.lower",
    "LoweredFunction": "lowering.builders",
    "MachinePlan": "lowering.pipeline",
    "Checkpoints": "ipu_backend",
    "compare": "ipu_backend",
    "Comparison": "ipu_backend",
    "ComparisonError": "ipu_backend",
    "CyclesError": "ipu_backend",
    "Engine": "ipu_backend",
    "FigureError": "ipu_backend",
    "IPU": "ipu_backend",
    "load": "ipu_backend",
    "save": "ipu_backend",
    "Machine": "ipu_backend",
    "Profile": "ipu_backend",
    "Record": "ipu_backend",
    "RecordError": "ipu_backend",
    "ReportError": "ipu_backend",
    "Route": "ipu_backend",
    "StepProfile": "ipu_backend",
    "Tables": "ipu_backend",
    "TargetError": "ipu_backend",
    "UnknownCyclesWarning": "ipu_backend",
}


def __getattr__(name: str) -> Any:
    if name in ("onnx", "stablehlo"):
        return importlib.import_module(f"codelet.{name}")
    if name == "ops":  # made of what is defined here, as a user's own operations are
        return importlib.import_module("codelet.ops")
    if name == "operation":
        return importlib.import_module("codelet.ops.gradient_rules").operation
    if name in ("jit", "trace", "Traced"):  # made of operations
        return getattr(importlib.import_module(f"codelet.frontends.{name.lower()}"), name)
    if name in _OLD_NAMES:
        return _old_name(name)
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(_ELSEWHERE[name]), name)
    raise AttributeError(f"module 'codelet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


_register_default_target(lambda: __getattr__("IPU")())  # of the second generation
