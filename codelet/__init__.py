"""Graphs of millions of small differentiable programs, written in Python and run on JAX.

What is defined here comes from this package. `lower`, `Engine`, `IPU` and the `Profile` of a program come from the
packages built on it, `lowering` and `ipu_backend`, and are looked up when first used, so that imports point one way.
"""

import importlib
from typing import Any

from codelet.codelets import Codelet as Codelet
from codelet.codelets import codelet as codelet
from codelet.copies import Copy as Copy
from codelet.errors import *  # noqa: F403
from codelet.functions import Call as Call
from codelet.graph import Graph as Graph
from codelet.index import Index as Index
from codelet.interpret import interpret as interpret
from codelet.program import AbortOn as AbortOn
from codelet.program import Execute as Execute
from codelet.program import If as If
from codelet.program import Print as Print
from codelet.program import Program as Program
from codelet.program import Repeat as Repeat
from codelet.program import RepeatWhile as RepeatWhile
from codelet.program import Sequence as Sequence
from codelet.program import Switch as Switch
from codelet.program import WriteUndef as WriteUndef
from codelet.symbols import grid as grid
from codelet.symbols import maximum as maximum
from codelet.symbols import minimum as minimum
from codelet.symbols import table as table
from codelet.symbols import where as where
from codelet.tensor import Tensor as Tensor
from codelet.tensor import concat as concat
from codelet.vertices import Edge as Edge
from codelet.vertices import Vertex as Vertex

_ELSEWHERE = {
    "lower": "lowering",
    "Lowered": "lowering",
    "LoweredFunction": "lowering",
    "CyclesError": "ipu_backend",
    "Engine": "ipu_backend",
    "FigureError": "ipu_backend",
    "IPU": "ipu_backend",
    "Profile": "ipu_backend",
    "TargetError": "ipu_backend",
    "UnknownCyclesWarning": "ipu_backend",
}


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(_ELSEWHERE[name]), name)
    raise AttributeError(f"module 'codelet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *_ELSEWHERE]
