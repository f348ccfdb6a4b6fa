"""Scripts of training as people write them, with one word changed: `cl.jit` where they have `jax.jit`."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ecosystem.program import is_there

FOLDER = Path(__file__).parent / "scripts"


def numbers(name: str, source: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a script finds."""
    module = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)  # where dataclasses look up their annotations
    exec(compile(source, f"{name}.py", "exec"), module.__dict__)
    return np.array(module.main())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda own: own.stem)
def test_with_one_word_changed(path, monkeypatch):
    if not is_there(path.stem.partition("_")[0]):
        pytest.skip("its package is not installed")
    script = path.read_text()
    assert script.count("jax.jit")
    changed = script.replace("jax.jit", "cl.jit").replace("import jax\n", "import codelet as cl\nimport jax\n", 1)
    plain, ours = (numbers(path.stem, own, monkeypatch) for own in (script, changed))
    np.testing.assert_allclose(ours, plain, rtol=2e-3, atol=2e-4)
