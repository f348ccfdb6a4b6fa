"""The wheel: built, installed in an empty virtual environment, it runs the README's first example."""

import doctest
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*command: object, cwd: Path) -> str:
    """What a command prints; it has to succeed."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_first_example_runs_where_the_wheel_alone_is_installed(tmp_path):
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", tmp_path, ROOT, cwd=tmp_path)
    [wheel] = tmp_path.glob("codelet_graphs-*.whl")
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path)
    example = (ROOT / "README.md").read_text(encoding="utf-8").split("```python")[1].split("```")[0]
    (tmp_path / "example.txt").write_text(example)
    tried = (
        f"import codelet, doctest; print(codelet.__file__); doctest.testfile({str(tmp_path / 'example.txt')!r}, False, "
    )
    tried += "raise_on_error=True)"
    place = run(python, "-c", tried, cwd=tmp_path)
    assert str(tmp_path / "empty") in place
    assert len(doctest.DocTestParser().get_examples(example)) >= 10
    assert run(tmp_path / "empty" / "bin" / "codelet", "--version", cwd=tmp_path).startswith("codelet ")
