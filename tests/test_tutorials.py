"""The tutorials run, and print what they carry.

In come the notebooks of `tutorials/` and the exercises of `docs/class/`. Each is executed from its first cell to its
last, and what it prints is compared with what it was saved with. Cells tagged `varies` run too, but may print otherwise
elsewhere:
times, numbers that depend on the machine's arithmetic, the way a release of JAX prints a jaxpr.

After a change to a notebook, `python -m tests.test_tutorials` executes all of them and saves their outputs.
"""

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent
TUTORIALS = [*sorted((ROOT / "tutorials").glob("*.ipynb")), *sorted((ROOT / "docs" / "class").glob("*.ipynb"))]

QUICK = ("01_first_graph",)
"""That of the quick run; of the others, which are slow, other tests run nearly all."""


class ThisPython(AsyncKernelManager):
    """Kernels that run the interpreter of the tests, whatever kernels are installed beside it."""

    @property
    def kernel_spec(self) -> KernelSpec:
        """How a kernel starts."""
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=argv, display_name="Python 3", language="python")


def execute(path: Path, directory: Path) -> Any:
    """A notebook as it is after all its cells ran in `directory`; raises CellExecutionError if one fails."""
    notebook = nbformat.read(path, as_version=4)
    environment = {
        **os.environ,
        # A checkout serves as well as an installed package.
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "JAX_PLATFORMS": "cpu",
        "JAX_PPRINT_USE_COLOR": "0",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "IPYTHONDIR": str(directory / ".ipython"),
    }
    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_manager_class=ThisPython,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(directory)}},
    )
    client.execute(env=environment)
    return notebook


def texts(cell: Any) -> list[str]:
    """What a cell prints on its standard output, and the text of what it shows."""
    outputs = cell.get("outputs", [])
    printed = "".join(o.text for o in outputs if o.output_type == "stream" and o.name == "stdout")
    return [printed, *(o.data["text/plain"] for o in outputs if "data" in o)]


def numbers(text: str) -> list[float]:
    """The numbers between the brackets of a printed vector."""
    return [float(number) for number in text.strip().strip("[]").replace(",", " ").split()]


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem, marks=[pytest.mark.slow] * (path.stem not in QUICK)) for path in TUTORIALS],
)
def test_a_tutorial_prints_what_it_carries(path: Path, tmp_path: Path) -> None:
    """Every cell runs without an error, and prints again what was saved."""
    saved, executed = nbformat.read(path, as_version=4), execute(path, tmp_path)
    for before, after in zip(saved.cells, executed.cells, strict=True):
        if "varies" not in before.metadata.get("tags", []):
            assert texts(after) == texts(before), f"the cell that begins {before.source.splitlines()[0]!r}"


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_carries_the_outputs_of_one_clean_run(path: Path) -> None:
    """Cells ran once each, in order, and left no errors, warnings or paths of a machine behind."""
    code = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]
    text = "\n".join(text for cell in code for text in texts(cell))
    assert not re.search(r"ipykernel_|site-packages|/tmp/|/home/|[A-Z]:\\", text)


def test_the_first_tutorial_prints_the_vectors_of_poplars() -> None:
    """The constants copied, and their suffix sums; the test above sees that it prints them again."""
    cells = nbformat.read(ROOT / "tutorials" / "01_first_graph.ipynb", as_version=4).cells
    printed = "\n".join(text for cell in cells for text in texts(cell))
    vectors = [(name, numbers(vector)) for name, vector in re.findall(r"^(v\d) = (\[[^\[\]]*\])", printed, re.M)]
    assert ("v1", [1, 1.5, 2, 2.5]) in vectors
    assert ("v2", [7, 6, 4.5, 2.5]) in vectors


if __name__ == "__main__":
    for path in TUTORIALS:
        with tempfile.TemporaryDirectory() as directory:
            executed = execute(path, Path(directory))
        executed.metadata = {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
        nbformat.write(executed, path)
        print(path.relative_to(ROOT))
