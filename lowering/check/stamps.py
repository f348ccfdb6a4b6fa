"""Do two vertices touch one element, by edges that came from data? Each vertex stamps the addresses it touches.

In: the addresses as arrays, with the vertices that touch them. Out: one address that two share, or None where there is
no such address. Affine questions are answered by arithmetic, in `races.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from lowering.check.races import first_of

NOBODY, SEVERAL = -1, -2
"""The stamps that are not a vertex's number: nobody touches the address, or several vertices do."""


class Addresses(NamedTuple):
    """The addresses `touched - origin`, and the numbers of the vertices that touch them.

    `vertices` are int32 and broadcast to `touched`, of any shape; None stands for the rows of a `touched` of shape
    (vertices, elements per vertex). There may be hundreds of millions, and memory that is new costs more than all that
    is done with it. So `touched` may be the table of a graph, and nothing is made of it but block by block.
    """

    touched: np.ndarray
    vertices: np.ndarray | None
    origin: int = 0

    def counted_from(self, address: int) -> Addresses:
        """Its addresses less one of them, so that those from there on are counted from 0."""
        return self._replace(origin=self.origin + address)

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The addresses, as NumPy indexes fastest, and the vertices beside them, a block at a time."""
        flags = ("buffered", "external_loop", "zerosize_ok")
        if self.vertices is not None:
            arrays = self.touched, self.vertices
            pairs: Any = np.nditer(arrays, flags, op_dtypes=(np.intp, np.int32), order="C", buffersize=1 << 16)
            for touched, vertices in pairs:
                yield touched - self.origin, vertices
            return
        start, per_vertex = 0, max(1, self.touched.shape[1])
        numbers: Any = np.nditer(self.touched, flags, op_dtypes=np.intp, order="C", buffersize=1 << 16)
        for touched in numbers:
            yield touched - self.origin, np.arange(start, start + len(touched)) // per_vertex
            start += len(touched)


def by_rows(touched: np.ndarray, origin: int = 0) -> Addresses:
    """Addresses of shape (vertices, elements per vertex), touched by vertex 0, 1, ..."""
    assert touched.ndim == 2, touched.shape
    assert len(touched) < 2**31, touched.shape
    return Addresses(touched, None, origin)


def _check_addresses(addresses: Addresses, num_elements: int) -> None:
    # NumPy would take a negative address as one counted from the end.
    touched, origin = addresses.touched, addresses.origin
    assert not touched.size or origin <= touched.min() <= touched.max() < origin + num_elements, num_elements


def first_where(addresses: np.ndarray, found: np.ndarray) -> int | None:
    """The first of `addresses` at which `found` is true, or None."""
    position = int(found.argmax()) if found.size else 0
    return int(addresses.flat[position]) if found.size and found.flat[position] else None


def are_distinct(addresses: Addresses, num_elements: int) -> bool:
    """Whether no address in range(num_elements) occurs twice, whoever touches it.

    If so, no vertex touches one twice, and no two share one. Flags, a byte each, are set in half the time of
    stamps, and need not be looked up again.

    >>> are_distinct(by_rows(np.array([[3, 1], [0, 4]])), 5), are_distinct(by_rows(np.array([[3, 3], [0, 4]])), 5)
    (True, False)
    """
    _check_addresses(addresses, num_elements)
    flags = np.zeros(num_elements, bool)
    for touched, _ in addresses.blocks():
        flags[touched] = True
    return int(np.count_nonzero(flags)) == addresses.touched.size


def shared_by_table_vertices(addresses: Addresses, num_elements: int) -> int | None:
    """An address in range(num_elements) that two vertices touch, or None. An element that a vertex touches twice counts
    once.

    >>> shared_by_table_vertices(by_rows(np.array([[3, 3], [1, 4], [4, 0]])), num_elements=5)
    4
    """
    _check_addresses(addresses, num_elements)
    owner = np.empty(num_elements, np.int32)
    for touched, vertices in addresses.blocks():
        owner[touched] = vertices
    return first_of(first_where(touched, owner[touched] != vertices) for touched, vertices in addresses.blocks())


def shared_by_tables(first: Addresses, second: Addresses, num_elements: int, same_family: bool) -> int | None:
    """An address in range(num_elements) that a vertex touches through `first` and a vertex through `second`, or None.

    If `same_family`, the vertices of both are the same ones, and two different vertices are meant. Elements that
    `second` touches outside the range do not matter.

    >>> here, left = by_rows(np.array([[0], [1], [2]])), by_rows(np.array([[0], [0], [1]]))
    >>> shared_by_tables(here, here, 3, same_family=True), shared_by_tables(here, left, 3, same_family=True)
    (None, 0)
    """
    _check_addresses(first, num_elements)
    owner = np.full(num_elements, NOBODY, np.int32)
    for touched, vertices in first.blocks():
        owner[touched] = vertices
    if same_family:
        for touched, vertices in first.blocks():
            owner[touched[owner[touched] != vertices]] = SEVERAL
    for touched, vertices in second.blocks():
        inside = (touched >= 0) & (touched < num_elements)
        if not inside.all():
            touched, vertices = touched[inside], vertices[inside]
        stamps = owner[touched]
        met = stamps != NOBODY
        address = first_where(touched, met & (stamps != vertices) if same_family else met)
        if address is not None:
            return address
    return None


class Stamps:
    """Who writes each address of a range: vertices of any family, which are numbered in common.

    >>> stamps = Stamps(4)
    >>> stamps.write(by_rows(np.array([[0], [1]])), 0), stamps.write(by_rows(np.array([[2], [1]])), 2)
    (True, False)
    >>> stamps.is_read_elsewhere(by_rows(np.array([[0, 3], [1, 9]])), 0)
    False
    >>> stamps.is_read_elsewhere(by_rows(np.array([[1], [0]])), 0)
    True
    """

    def __init__(self, num_elements: int):
        self._owner = np.full(num_elements, NOBODY, np.int32)

    def write(self, addresses: Addresses, first: int) -> bool:
        """Stamp the addresses of a field, each its vertices' number from `first` on; False if one is stamped already.

        All are within the range, and no two the same.
        """
        _check_addresses(addresses, len(self._owner))
        for touched, vertices in addresses.blocks():
            if (self._owner[touched] != NOBODY).any():
                return False
            self._owner[touched] = vertices + np.int32(first)
        return True

    def is_read_elsewhere(self, addresses: Addresses, first: int) -> bool:
        """Whether a vertex reads an element that another writes, by its number from `first` on. Outside the range
        nobody does.
        """
        for touched, vertices in addresses.blocks():
            inside = (touched >= 0) & (touched < len(self._owner))
            stamps = np.where(inside, self._owner[np.where(inside, touched, 0)], NOBODY)
            if ((stamps != NOBODY) & (stamps != vertices + np.int32(first))).any():
                return True
        return False


def aliased_table_address(addresses: Addresses, num_elements: int) -> int | None:
    """An address in range(num_elements) that one vertex touches twice, or None.

    >>> aliased_table_address(by_rows(np.array([[3, 1], [1, 4], [2, 2]])), num_elements=5)
    2
    """
    _check_addresses(addresses, num_elements)
    touched, vertices, origin = addresses
    # By sorting, since a stamp of one vertex may be overwritten by another's. Narrow numbers sort faster.
    if vertices is None:
        step = max(1, (1 << 18) // max(1, touched.shape[1]))
        for start in range(0, len(touched) if touched.shape[1] > 1 else 0, step):
            rows = touched[start : start + step].astype(np.int64) - origin
            rows = np.sort(rows.astype(np.min_scalar_type(num_elements)), axis=1)
            address = first_where(rows[:, 1:], rows[:, 1:] == rows[:, :-1])
            if address is not None:
                return address
        return None
    together = np.sort((vertices.astype(np.int64) * num_elements + (touched - np.int64(origin))).reshape(-1))
    twice = first_where(together[1:], together[1:] == together[:-1])
    return None if twice is None else twice % num_elements
