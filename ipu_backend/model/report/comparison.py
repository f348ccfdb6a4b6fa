"""Comparisons of two programs: differences by kind of cycles and memory, step, layer, codelet, variable and tile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from codelet.deprecated import callable_still, old_attribute
from codelet.display import Text, in_one_line
from codelet.errors import CodeletError
from codelet.files import written_whole
from ipu_backend.model.report.record import Columns, Record

if TYPE_CHECKING:
    from ipu_backend.model.profile import Profile


class ComparisonError(CodeletError, TypeError):
    """A comparison of something that is no profile."""


_MEASURES = {
    "cycles by kind": "cycles",
    "memory by kind": "bytes",
    "cycles by step": "cycles",
    "cycles by layer": "cycles",
    "cycles by codelet": "cycles on one worker",
    "memory by variable": "bytes",
}
"""What is compared, and in what it is counted."""


def _summed(table: Columns, name: str, value: str) -> dict[str, int]:
    """Sums of a column by the names in another; rows without a name are skipped."""
    found: dict[str, int] = {}
    for key, own in zip(table[name].tolist(), table[value].tolist(), strict=True):
        if key:
            found[key] = found.get(key, 0) + own
    return found


def _measured(record: Record) -> dict[str, dict[str, int]]:
    tiles = record.table("tiles")
    kinds = {kind: int(tiles[_column(kind)].sum()) for kind in record.about["memory_kinds"]}
    return {
        "cycles by kind": dict(record.about["cycles"]),
        "memory by kind": kinds,
        "cycles by step": _summed(record.table("steps"), "name", "total_cycles"),
        "cycles by layer": _summed(record.table("steps"), "layer", "total_cycles"),
        "cycles by codelet": _summed(record.table("codelets"), "name", "cycles"),
        "memory by variable": _summed(record.table("variables"), "name", "bytes"),
    }


def _column(kind: str) -> str:
    return "_".join([*kind.replace(",", "").split(), "bytes"])


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Two profiles side by side. Made by `cl.compare`, which has an example.

    Attributes:
        before: the tables of the first, a `cl.Record`.
        after: the tables of the second.

    >>> import codelet as cl
    >>> graph = cl.Graph(cl.IPU(num_tiles=2))
    >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
    >>> profile = cl.Engine(graph).profile()
    >>> sorted(set(cl.compare(profile, profile).differences["status"].tolist()))
    ['same']
    """

    before: Record
    after: Record

    @property
    def differences(self) -> Columns:
        """One row per quantity of either profile, as columns of NumPy for `pandas.DataFrame`.

        The columns are `what` (one of "cycles by kind", "memory by kind", "cycles by step", "cycles by layer", "cycles
        by codelet", "memory by variable"), `name`, `before`, `after`, `difference` and `status`: "came", "went",
        "more", "less" or "same". The largest differences come first, within each value of that column.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> profile = cl.Engine(graph).profile()
        >>> list(cl.compare(profile, profile).differences)
        ['what', 'name', 'before', 'after', 'difference', 'status']
        """
        before, after = _measured(self.before), _measured(self.after)
        rows: list[tuple[str, str, int, int, int, str]] = []
        for what in _MEASURES:
            own = []
            for name in {**before[what], **after[what]}:
                one, other = before[what].get(name, 0), after[what].get(name, 0)
                status = "more" if other > one else "less" if other < one else "same"
                if name not in before[what]:
                    status = "came"
                elif name not in after[what]:
                    status = "went"
                own.append((what, name, one, other, other - one, status))
            rows += sorted(own, key=lambda row: -abs(row[4]))
        names = ("what", "name", "before", "after", "difference", "status")
        types = (np.str_, np.str_, np.int64, np.int64, np.int64, np.str_)
        columns = list(zip(*rows, strict=True)) or [()] * len(names)
        made = {name: np.array(own, kind) for name, own, kind in zip(names, columns, types, strict=True)}
        return callable_still(made, "Comparison.differences")

    @property
    def tiles(self) -> Columns:
        """One row per tile: its number, and its bytes and compute cycles in both profiles.

        The columns are `tile`, `bytes_before`, `cycles_before`, `bytes_after` and `cycles_after`.

        >>> import codelet as cl
        >>> def profiled(num_vertices):
        ...     graph = cl.Graph(cl.IPU(num_tiles=2))
        ...     x, i = graph.add_variable("x", (4,)), cl.grid(num_vertices)
        ...     graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i], tile=i % 2)
        ...     return cl.Engine(graph).profile()
        >>> tiles = cl.compare(profiled(1), profiled(4)).tiles
        >>> tiles["cycles_before"].tolist(), tiles["cycles_after"].tolist()
        ([122, 0], [122, 122])
        """
        count = max(self.before.about["num_tiles"], self.after.about["num_tiles"])
        found: Columns = {"tile": np.arange(count)}
        for when, record in (("before", self.before), ("after", self.after)):
            for column, name in (("total_bytes", "bytes"), ("compute_cycles", "cycles")):
                own = np.zeros(count, np.int64)
                values = record.table("tiles")[column]
                own[: len(values)] = values
                found[f"{name}_{when}"] = own
        return callable_still(found, "Comparison.tiles")

    def _lines(self) -> Iterator[str]:
        one, other = self.before.about, self.after.about
        yield f"{one['title']}, then {other['title']}"
        for name, unit in (("total_cycles", "cycles"), ("total_bytes", "bytes")):
            ratio = f" ({other[name] / one[name]:.2f} of it)" if one[name] else ""
            yield f"  {one[name]:,} {unit}, then {other[name]:,}{ratio}"
        table = self.differences
        for what, unit in _MEASURES.items():
            at = np.flatnonzero((table["what"] == what) & (table["status"] != "same"))[:5]
            if len(at):
                yield f"{what}, in {unit}"
            for row in at.tolist():
                name, change = table["name"][row], int(table["difference"][row])
                yield f"  {change:+16,}  {name} ({table['status'][row]})"

    def __repr__(self) -> str:
        return in_one_line(self, "Comparison")

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def summary(self) -> Text:
        """The comparison as text: cycles and bytes of both, and the five largest differences of each kind.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> profile = cl.Engine(graph).profile()
        >>> str(cl.compare(profile, profile).summary()).splitlines()[0]
        'before, then after'
        """
        return Text(self)

    report = old_attribute("Comparison.report", "write_report")

    def write_report(self, path: str | os.PathLike[str]) -> None:
        """Write both profiles and their differences to one page of HTML.

        Args:
            path: the file.

        Raises:
            FileError: the file cannot be written.
            MissingExtraError: bokeh is not installed.

        >>> import codelet as cl, pathlib, tempfile
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> profile = cl.Engine(graph).profile()
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     cl.compare(profile, profile).write_report(pathlib.Path(directory) / "comparison.html")
        """
        from ipu_backend.model.report.page import page_of

        text = page_of(self.before, self.after, comparison=self)
        with written_whole(path) as file:
            file.write(text)

    def to_dict(self) -> dict[str, Any]:
        """Both records and the differences, as lists, numbers and text for `json.dump`.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> profile = cl.Engine(graph).profile()
        >>> sorted(cl.compare(profile, profile).to_dict())
        ['after', 'before', 'differences']
        """
        listed = {key: own.tolist() for key, own in self.differences.items()}
        return {"before": self.before.to_dict(), "after": self.after.to_dict(), "differences": listed}


def compare(before: Profile, after: Profile) -> Comparison:
    """Compare two profiles: a program before and after a change, or on two machines.

    Args:
        before: a profile, made by `Engine.profile`.
        after: another.

    Raises:
        ComparisonError: not a profile.
        ReportError: a profile without a plan on the machine.

    >>> import codelet as cl
    >>> graph = cl.Graph(cl.IPU(num_tiles=2))
    >>> x, i = graph.add_variable("x", (64,)), cl.grid(64)
    >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
    >>> on_one, on_two = (cl.Engine(graph).profile(placement=how) for how in ("linear", "balanced"))
    >>> print(str(cl.compare(on_one, on_two).summary()).splitlines()[0])
    before, then after
    """
    from ipu_backend.model.profile import Profile

    for own in (before, after):
        if not isinstance(own, Profile):
            raise ComparisonError(
                "something other than a profile is compared",
                given=f"{own!r:.80}",
                expected="two profiles",
                fix="cl.compare(cl.Engine(graph).profile(), cl.Engine(other).profile())",
            )
    return Comparison(before.tables("before"), after.tables("after"))
