"""Every name is imported from the file that defines it: whoever reads an import knows where to look."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROOMS = ("codelet", "lowering", "ipu_backend", "benchmarks", "tests", "tutorials")
GATHERING = "benchmarks.every"
"""A file whose import enters what it hands on; packages' own `__init__` files name the public face as well."""

IMPORT = re.compile(r"^ *from ([\w.]+) import (?:\(([^)]*)\)|([^#\n(]*))", re.MULTILINE)


def test_names_are_imported_from_the_files_that_define_them():
    paths = [path for room in ROOMS for path in (ROOT / room).rglob("*.py") if path.name != "__init__.py"]
    imports: dict[str, list[tuple[str, str]]] = {}
    for path in paths:
        imports[".".join(path.relative_to(ROOT).with_suffix("").parts)] = [
            (module, name.split(" as ")[0].strip())
            for module, several, one in IMPORT.findall(path.read_text())
            for name in (several or one).split(",")
            if name.strip()
        ]
    assert ("codelet.views.grids", "Axis") in imports["codelet.views.index"]
    handed_on = {module: {name for _, name in own} for module, own in imports.items() if module != GATHERING}
    found = [
        f"{name} of {module} in {where}"
        for where, own in imports.items()
        for module, name in own
        if name in handed_on.get(module, ())
    ]
    assert not found
