"""Where a codelet is defined: the line of its function, or as its file has it."""

from __future__ import annotations

import inspect

from codelet.errors import Line
from codelet.tracing.codelet_from_jaxpr import JaxprCodelet
from codelet.tracing.codelets import Codelet
from codelet.tracing.saved_codelets import SavedCodelet


def defined_at(codelet: Codelet) -> Line | None:
    """The line that defines a codelet; None where no function of a file does."""
    if isinstance(codelet, SavedCodelet):
        return codelet.line
    code = getattr(inspect.unwrap(codelet.function), "__code__", None)
    return None if code is None or isinstance(codelet, JaxprCodelet) else Line(code, code.co_firstlineno)
