"""What the package shows of itself: the names that are public, and no others."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import codelet as cl


@pytest.mark.parametrize("module", [cl, cl.ops], ids=["cl", "cl.ops"])
def test_all_that_is_shown_is_public(module: ModuleType):
    shown = dir(module)
    assert shown == sorted(module.__all__)
    for name in shown:
        own = getattr(module, name)
        assert name == "ops" or not isinstance(own, ModuleType)
        assert own.__doc__, name


def test_all_that_is_public_is_shown():
    """What a face imports from its own package, under its own name."""
    for module in (cl, cl.ops):
        public = {
            name
            for name, own in vars(module).items()
            if not name.startswith("_") and getattr(own, "__module__", "").startswith("codelet.")
        }
        assert public <= {*module.__all__}
    assert {
        name for name, own in vars(cl.errors).items() if isinstance(own, type) and issubclass(own, cl.CodeletError)
    } <= {*dir(cl)}


def test_a_star_takes_what_is_public():
    taken: dict[str, object] = {}
    exec("from codelet import *", taken)
    assert {*taken} - {"__builtins__"} == {*cl.__all__}


def test_a_first_vertex_imports_nothing_that_runs_graphs():
    """A graph asks little of its target: neither the lowering nor the engine."""
    program = """
import sys, codelet as cl
graph = cl.Graph(cl.IPU(num_tiles=4))
x = graph.add_variable("x", (8,))
graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x)
print(sorted(name for name in sys.modules if name.startswith(("lowering.", "ipu_backend.running"))))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
