"""The site: the reference has every public name, pages agree with files, and the build has no warnings."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import codelet as cl
from codelet.version import VERSION

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def loaded(name: str) -> ModuleType:
    """A module of `docs`, which is no package."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_has_every_public_name_once():
    reference = loaded("reference")
    names = [name for _, names in reference.groups().values() for name in names]
    expected = [f"codelet.{name}" for name in reference.public_names(cl)]
    for room in ("ops", "onnx", "stablehlo"):
        expected += [f"codelet.{room}.{name}" for name in reference.public_names(getattr(cl, room))]
    assert sorted(names) == sorted(expected)


def test_every_error_has_a_row_on_the_page_of_errors():
    page = (DOCS / "howto" / "errors.md").read_text(encoding="utf-8")
    errors = [name for name in loaded("reference").public_names(cl) if loaded("reference").is_error(getattr(cl, name))]
    assert [name for name in errors if name != "CodeletError" and f"`{name}`" not in page] == []
    raised = set(re.findall(r"^(?:codelet\.errors\.)?(\w+(?:Error|Warning))\b", page, re.M))
    assert set(errors) - raised == NOT_RAISED


NOT_RAISED = {
    "CodeletError",  # the base of all
    "EngineInUseError",  # of a callback during a run
    "MissingExtraError",  # of a Python without a library
    "NotEqualError",  # of a mistake of this library
    "OutOfInterleavedMemoryError",  # of products that are too large
    "ProcessesError",  # of several processes
    "SizeError",  # of a graph that takes minutes to build
    "StateLostError",  # of a device that fails
    "UndecidedWarning",  # of programs that cannot be compared
}
"""Errors and warnings that no example on the page of errors raises, with what they would need."""


def test_every_extra_and_every_notebook_has_a_row_on_the_first_page():
    page = (DOCS / "start.md").read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = re.findall(r"^(\w+) = \[", project.split("[project.optional-dependencies]")[1].split("\n[")[0], re.M)
    assert [name for name in extras if f"`{name}`" not in page] == []
    assert [path.name for path in (ROOT / "tutorials").glob("*.ipynb") if path.name not in page] == []


def test_every_notebook_says_what_one_learns_how_long_it_takes_and_what_it_needs():
    for path in sorted((ROOT / "tutorials").glob("*.ipynb")):
        first = "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"])
        assert all(f"> **{word}" in first for word in ("You learn", "Time", "Needs")), path.name


def test_the_version_stands_in_one_place_and_in_the_citation():
    assert cl.__version__ == VERSION
    assert f"version: {VERSION}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_words_are_counted():
    words = loaded("words")
    found = words.counts("What is told, in turn. " + "word " * 31 + ". Its own.")
    assert dict(found) == {"long": 1, "what": 1, "told": 1, "held": 0, "own": 1, "turn": 1}
    assert "README.md" in words.pages()


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md"])
def test_links_of_a_page_outside_of_the_site_lead_to_files(name):
    page = (ROOT / name).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page) if "://" not in link]
    assert [link for link in links if not ((ROOT / name).parent / link).exists()] == []


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("sphinx") is None, reason="the site needs the extra `docs`")
def test_the_site_builds_without_a_warning(tmp_path):
    """As `.ci/run` builds it; links between pages are checked."""
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", str(DOCS), str(tmp_path / "site")]
    built = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert built.returncode == 0, built.stdout + built.stderr
    assert (tmp_path / "site" / "reports" / "stencil.html").exists()
