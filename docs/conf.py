"""Sphinx's settings, and the pages that are made rather than written.

`sphinx-build -W docs site` builds the site, without a network. First the notebooks of `tutorials/`, pages of other
directories and the pages of the reference are put where Sphinx sees them: in `docs/tutorials`, `docs/project` and
`docs/reference`, which git ignores. The library writes two small reports.
"""

import importlib.util
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(DOCS)]

project = "codelet"
author = "The codelet developers"
copyright = "the codelet developers, Apache-2.0"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["**.ipynb_checkpoints"]
html_theme = "furo"
html_title = "codelet"
html_extra_path = ["extra"]
html_show_sphinx = False

nb_execution_mode = (
    "off"  # notebooks are shown as they are stored; tests/test_tutorials.py holds them to what they print
)
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 4
suppress_warnings = [
    "mystnb.unknown_mime_type",  # what only a browser's kernel shows
    "autosectionlabel.*",
]

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 100
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Source", "notes_style")]
napoleon_use_ivar = True
napoleon_use_rtype = False


LINKS = (
    # where a page in the repository links to a file, and where that is in the site
    (r"\]\((?:\.\./)*tutorials/(\d\d_\w+)\.ipynb", r"](/tutorials/\1.ipynb"),
    (r"\]\((?:\.\./)*benchmarks/README\.md", r"](/project/benchmarks.md"),
    (r"\]\((?:\.\./)*CONTRIBUTING\.md", r"](/project/contributing.md"),
    (r"\]\((?:\.\./)*CHANGELOG\.md", r"](/changes.md"),
    (r"\]\(\.\./docs/(\w+)\.md", r"](/\1.md"),
    (r"\]\(docs/(\w+)\.md", r"](/\1.md"),
    (r"\]\((?:\.\./)*docs/pictures/", r"](/pictures/"),
)
CODE_LINK = re.compile(
    r"\[([^\]\n]+)\]\((?:\.\./)*((?:codelet|lowering|ipu_backend|tests|benchmarks|tutorials)/[\w./]+)\)"
)
"""A link to a file of code, which the site has not: shown as the file's name."""


def linked(page: str) -> str:
    """A page whose links to other directories of the repository lead to where they are in the site."""
    for pattern, replacement in LINKS:
        page = re.sub(pattern, replacement, page)
    return CODE_LINK.sub(lambda match: f"{match[1]} (`{match[2]}`)" if match[1] not in match[2] else match[1], page)


def bring_in() -> None:
    """Put notebooks and pages of other directories where Sphinx finds them, with links that lead on."""
    for name in ("tutorials", "project"):
        shutil.rmtree(DOCS / name, ignore_errors=True)
        (DOCS / name).mkdir()
    for path in sorted((ROOT / "tutorials").glob("*.ipynb")):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = linked("".join(cell["source"]))
        text = json.dumps(notebook, ensure_ascii=False)
        (DOCS / "tutorials" / path.name).write_text(text, encoding="utf-8")
    for source, name in (("benchmarks/README.md", "benchmarks.md"), ("CONTRIBUTING.md", "contributing.md")):
        (DOCS / "project" / name).write_text(linked((ROOT / source).read_text(encoding="utf-8")), encoding="utf-8")


def write_reports() -> None:
    """Two reports, as `profile.report` writes them, for the gallery."""
    directory = DOCS / "extra" / "reports"
    directory.mkdir(parents=True, exist_ok=True)
    if importlib.util.find_spec("bokeh") is None:
        raise SystemExit("the site has two reports: pip install -e '.[docs]', which brings Bokeh")
    import gallery

    for name, profile in gallery.profiles().items():
        profile.write_report(directory / f"{name}.html", name)


def prepare(app: Any) -> None:
    """All pages that are made, before Sphinx looks for pages."""
    import reference

    bring_in()
    reference.write(DOCS / "reference")
    write_reports()


def read_source(app: Any, name: str, source: list[str]) -> None:
    """Links of a page that is written here."""
    if not name.startswith(("tutorials/", "project/")):
        source[0] = linked(source[0])


def as_rst(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """A docstring, whose code stands between single backticks, as reStructuredText."""
    blocks = re.split(r"(\n\s*\n)", "\n".join(lines))
    for number, block in enumerate(blocks):
        if block.lstrip().startswith(">>>"):
            continue
        parts = re.split(r"(?<!`)`([^`]+)`(?!`)", block)
        for k, part in enumerate(parts):
            if k % 2:
                before = "\\ " if parts[k - 1][-1:].isalnum() else ""
                after = "\\ " if parts[k + 1][:1].isalnum() else ""
                parts[k] = f"{before}``{' '.join(part.split())}``{after}"
            else:
                parts[k] = re.sub(r"([*|]|(?<=\w)_(?!\w))", r"\\\1", part)
        blocks[number] = "".join(parts)
    lines[:] = "".join(blocks).split("\n")


def class_signature(app: Any, what: str, name: str, thing: Any, options: Any, signature: str, returned: str) -> Any:
    """The parameters of a class whose `__new__` hides those of its `__init__`."""
    if what != "class" or "**__" not in (signature or ""):
        return None
    from sphinx.util.inspect import signature as signature_of
    from sphinx.util.inspect import stringify_signature

    return stringify_signature(signature_of(thing.__init__, bound_method=True), unqualified_typehints=True), returned


def is_deprecated(app: Any, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    """True of a member whose docstring says that it is an old name: the reference leaves it out."""
    return True if (getattr(thing, "__doc__", "") or "").startswith("Deprecated") else None


def setup(app: Any) -> dict[str, Any]:
    """Called by Sphinx."""
    (DOCS / "extra").mkdir(exist_ok=True)
    # Before Sphinx looks for pages, which it does right after this event.
    app.connect("builder-inited", prepare, priority=100)
    app.connect("source-read", read_source)
    app.connect("autodoc-process-docstring", as_rst, priority=100)
    app.connect("autodoc-process-signature", class_signature)
    app.connect("autodoc-skip-member", is_deprecated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
