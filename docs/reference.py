"""The reference: every public name of `codelet` and `codelet.ops`, in groups, as pages of Sphinx's autodoc.

In come `codelet.__all__` and `codelet.ops.__all__` (all public names that are not modules, where a package has none).
Out come pages of Markdown, one for each group. A name without a group is on the last page of its package.
"""

import functools
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

LANGUAGE = {
    "graphs": ("Graphs and views", "Graph Tensor Vertex Edge Index ComputeSet Stream Function Family grid table where "
               "maximum minimum concatenate"),
    "codelets": ("Codelets", "codelet Codelet codelet_from_jaxpr"),
    "programs": ("Programs", "Sequence Execute Copy Repeat RepeatWhile If Switch Call Print AbortOn WriteUndef Revolve "
                 "Program"),
    "running": ("Running", "lower Lowered LoweredFunction Results interpret Engine Checkpoints save load"),
    "tracing": ("Functions of JAX", "trace Traced jit Planning operation describe"),
    "gradients": ("Gradients", "gradient Gradient Recompute check_gradient GradientCheck"),
    "equality": ("Equality of programs", "equal Equality Witness"),
    "machine": ("The machine and profiles", "IPU Machine Route Tables Profile StepProfile MachinePlan Record compare "
                "Comparison"),
    "pictures": ("Pictures", "draw Picture Diagram"),
}  # fmt: skip
"""Groups of names of `codelet`: of each page its title and its names, in order."""

OPERATIONS = {
    "elementwise": ("Elementwise operations", "elementwise choices fill"),
    "reductions": ("Reductions", "reduce reduce_gradients arg_reduce moments cumulative"),
    "products": ("Products and convolutions", "matmul dot_general convolution"),
    "pooling": ("Pooling", "pooling reduce_window"),
    "softmax": ("Softmax and cross-entropy", "softmax cross_entropy"),
    "norms": ("Norms", "norm rms_norm"),
    "lookups": ("Lookups and moves", "lookups indexing scatter_gradients moves"),
    "sorting": ("Sorting", "sort top_k"),
    "random": ("Random numbers", "random random_planning"),
    "layers": ("Recurrent cells and attention", "recurrent attention multi_head"),
    "optimisers": ("Optimisers", "optimisers"),
    "plans": ("Plans", "followed"),
}
"""Groups of operations: of each page its title and the modules whose operations it has."""


def public_names(package: ModuleType) -> list[str]:
    """The public names of a package: its `__all__`, or what is neither hidden nor a module."""
    names = getattr(package, "__all__", None) or [name for name in dir(package) if not name.startswith("_")]
    return sorted(name for name in names if not isinstance(getattr(package, name), ModuleType))


def groups() -> dict[str, tuple[str, list[str]]]:
    """Of each page of the reference its title and its names, with their package."""
    import codelet as cl

    pages: dict[str, tuple[str, list[str]]] = {}
    left = dict.fromkeys(public_names(cl))
    for page, (title, names) in LANGUAGE.items():
        pages[page] = (title, [f"codelet.{name}" for name in names.split() if name in left])
        for name in names.split():
            left.pop(name, None)
    errors = [name for name in left if is_error(getattr(cl, name))]
    others = [name for name in left if name not in errors]
    if others:
        pages["others"] = ("Other names", [f"codelet.{name}" for name in others])
    pages["errors"] = ("Errors and warnings", [f"codelet.{name}" for name in errors])

    left = dict.fromkeys(public_names(cl.ops))
    for page, (title, modules) in OPERATIONS.items():
        inside = [name for name in left if defined_in(getattr(cl.ops, name)) in modules.split()]
        pages[f"ops_{page}"] = (title, [f"codelet.ops.{name}" for name in inside])
        for name in inside:
            del left[name]
    if left:
        pages["ops_others"] = ("Other operations", [f"codelet.ops.{name}" for name in left])
    files = [f"codelet.{room}.{name}" for room in ("onnx", "stablehlo") for name in public_names(getattr(cl, room))]
    pages["models"] = ("Models in files", files)
    return pages


def is_error(thing: Any) -> bool:
    """True if it is a class of errors or warnings."""
    return inspect.isclass(thing) and issubclass(thing, Exception)


def defined_in(thing: Any) -> str:
    """The file of a public function, without its directories."""
    return (getattr(thing, "__module__", "") or "").rpartition(".")[2]


def directive(name: str, thing: Any) -> str:
    """How autodoc is asked for a name."""
    if is_error(thing):
        return f".. autoexception:: {name}\n   :show-inheritance:\n"
    if inspect.isclass(thing):
        return f".. autoclass:: {name}\n   :members:\n"
    if callable(thing):
        return f".. autofunction:: {name}\n"
    return f".. autodata:: {name}\n"


def page_text(title: str, names: Sequence[str]) -> str:
    """A page of the reference."""
    import codelet as cl

    parts = [f"# {title}\n"]
    for name in names:
        thing = functools.reduce(getattr, name.split(".")[1:], cl)
        parts.append(f"```{{eval-rst}}\n{directive(name, thing)}```\n")
    return "\n".join(parts)


def index_text(pages: Mapping[str, tuple[str, list[str]]]) -> str:
    """The first page: all names, by group, and the pages."""
    lines = ["# Reference", "", "Every public name. `cl` stands for `codelet`, as in `import codelet as cl`.", ""]
    lines += ["| group | names |", "|---|---|"]
    for page, (title, names) in pages.items():
        short = ", ".join("`" + name.replace("codelet.", "cl.", 1) + "`" for name in names)
        lines.append(f"| [{title}]({page}.md) | {short} |")
    return "\n".join([*lines, "", "```{toctree}", ":hidden:", "", *pages, "```", ""])


def write(directory: Path) -> None:
    """Write all pages; a page that has not changed keeps its date, so that Sphinx reads only what has."""
    directory.mkdir(exist_ok=True)
    pages = groups()
    texts = {"index": index_text(pages)} | {page: page_text(*content) for page, content in pages.items()}
    for path in directory.glob("*.md"):
        if path.stem not in texts:
            path.unlink()
    for page, text in texts.items():
        path = directory / f"{page}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
