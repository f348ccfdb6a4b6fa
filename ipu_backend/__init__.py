"""The machine: IPU targets, the cost of graphs on them, and the engine that runs graphs on their model.

Each name is looked up when it is first used: a graph asks for a target alone, which needs little of what is here.
"""

import importlib
from typing import Any

_WHERE = {
    "Checkpoints": "running.checkpoints",
    "Comparison": "model.report.comparison",
    "ComparisonError": "model.report.comparison",
    "CyclesError": "model.costs",
    "Engine": "running.engine",
    "FigureError": "model.step_profile",
    "IPU": "model.ipu",
    "Machine": "model.machine",
    "Profile": "model.profile",
    "Record": "model.report.record",
    "RecordError": "model.report.record",
    "ReportError": "model.report.recorded",
    "Route": "model.machine",
    "StepProfile": "model.step_profile",
    "Tables": "model.tables",
    "TargetError": "model.machine",
    "UnknownCyclesWarning": "model.costs",
    "compare": "model.report.comparison",
    "load": "running.saved_files",
    "save": "running.saved_files",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"ipu_backend.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'ipu_backend' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_WHERE)
