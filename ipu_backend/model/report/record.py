"""Records: the data of a report, as tables of columns, which others may build on.

A page of a report shows nothing that is not in its record. Its JSON has a version and a schema, of
`ipu_backend/model/report/schema.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from codelet.errors import CodeletError
from codelet.files import written_whole

FORMAT, VERSION = "codelet report", 2
"""What its JSON says of itself; the version grows when a column goes or means something else."""

Columns = dict[str, np.ndarray]
"""A table: its columns by their names, all of one length; text as arrays of `str`."""


class RecordError(CodeletError, LookupError):
    """A table that a record does not have."""


@dataclass(frozen=True, eq=False)
class Record:
    """The tables of a profile, which reports show. Made by `Profile.tables`.

    Attributes:
        about: the program and its machine, in single numbers and names.
        tables: by the names in `TABLES` of `schema.py`; each is a dict of columns of NumPy.

    >>> import codelet as cl
    >>> graph = cl.Graph(cl.IPU(num_tiles=2))
    >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
    >>> record = cl.Engine(graph).profile().tables()
    >>> record.about["num_tiles"], record.table("variables")["name"].tolist()
    (2, ['x', 'double/out'])
    """

    about: Mapping[str, Any]
    tables: Mapping[str, Columns]

    def __repr__(self) -> str:
        rows = ", ".join(f"{name} {num_rows(table):,}" for name, table in self.tables.items())
        return f"<Record of {self.about['title']!r}: {rows}>"

    def table(self, name: str) -> Columns:
        """A table, as a dict of columns of NumPy.

        Args:
            name: one of `tables`.

        Raises:
            RecordError: an unknown name.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> cl.Engine(graph).profile().tables().table("tiles")["tile"].tolist()
        [0, 1]
        """
        if not isinstance(name, str) or name not in self.tables:
            raise RecordError("a record has no such table", given=repr(name), expected=", ".join(self.tables))
        return self.tables[name]

    def frame(self, name: str) -> Any:
        """A table as a `pandas.DataFrame`.

        Args:
            name: one of `tables`.

        Raises:
            RecordError: an unknown name.
            MissingExtraError: pandas is not installed.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> cl.Engine(graph).profile().tables().frame("variables")[["name", "type", "bytes"]]
                 name       type  bytes
        0           x  float32[]      4
        1  double/out  float32[]      4
        """
        table = self.table(name)
        return _pandas().DataFrame(table)

    def to_dict(self) -> dict[str, Any]:
        """The record as lists, numbers and text for `json.dump`.

        >>> import codelet as cl
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> list(cl.Engine(graph).profile().tables().to_dict())
        ['format', 'version', 'about', 'tables']
        """
        tables = {name: {key: own.tolist() for key, own in table.items()} for name, table in self.tables.items()}
        return {"format": FORMAT, "version": VERSION, "about": dict(self.about), "tables": tables}

    def write_json(self, path: str | os.PathLike[str]) -> None:
        """Write the record to a file, as JSON.

        Args:
            path: the file.

        Raises:
            FileError: the file cannot be written; an older file is unchanged.

        >>> import codelet as cl, pathlib, tempfile
        >>> graph = cl.Graph(cl.IPU(num_tiles=2))
        >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=graph.add_variable("x", ()))
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     cl.Engine(graph).profile().tables().write_json(pathlib.Path(directory) / "tables.json")
        """
        with written_whole(path) as file:
            json.dump(self.to_dict(), file, allow_nan=False)


def num_rows(table: Columns) -> int:
    """The number of rows of a table."""
    return len(next(iter(table.values()), ()))


def columns_of(rows: list[dict[str, Any]], types: Mapping[str, type]) -> Columns:
    """A table from rows; each column of a type: `int` and `float` of 64 bits, `bool`, or `str`."""
    kinds = {int: np.int64, float: np.float64, bool: np.bool_, str: np.str_}
    return {name: np.array([row[name] for row in rows], kinds[own]) for name, own in types.items()}


def _pandas() -> Any:
    from codelet.errors import MissingExtraError

    try:
        import pandas
    except ImportError:
        raise MissingExtraError(
            "data frames need a library that is not installed",
            given="a Python without pandas",
            expected="pandas, or the columns themselves: record.table(name)",
            fix="pip install pandas",
        ) from None
    return pandas
