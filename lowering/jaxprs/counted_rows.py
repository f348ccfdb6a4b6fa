"""Counted rows: what of a loop counts its iterations, and which arrays it takes one row of an iteration, or puts one
row of.

Rows are along the first dimension, and at a place that is one more, or less, in every iteration. `scan_rows.py` has
loops scan over them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, Makers, scan_counts, variables
from codelet.jaxprs.intervals import step_of
from codelet.jaxprs.primitives import is_understood

Affine = tuple[int, int]
"""`a` and `b` of a number that is `a * turn + b`."""

_LONGEST = 1 << 20
"""An array of more integers is not looked at."""

# --- which numbers count turns ------------------------------------------------------------------------------


def is_integer(atom: Atomic) -> bool:
    """Whether a value is of integers."""
    dtype = getattr(atom.aval, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.kind in "iu"


def shape_of(atom: Atomic) -> tuple[int, ...]:
    """The shape of a value; () of what is no array."""
    return tuple(getattr(atom.aval, "shape", ()))


def _is_line(atom: Atomic) -> bool:
    """Whether all elements lie along the first dimension, and there are any."""
    shape = shape_of(atom)
    return bool(shape) and math.prod(shape) == shape[0] > 0


def _counts(atom: Atomic, counted: dict[Any, Affine]) -> Affine | None:
    """What an integer of a turn is in all turns: a literal, or what is counted; None where it is not known."""
    return (0, int(atom.val)) if isinstance(atom, jax_core.Literal) else counted.get(atom)


def _in_turns(own: Affine, length: int) -> np.ndarray:
    """What a number is in every iteration."""
    return own[0] * np.arange(length, dtype=np.int64) + own[1]


def _ends(own: Affine, length: int) -> tuple[int, int]:
    """What a number is in the first iteration and the last."""
    return own[1], own[0] * max(length - 1, 0) + own[1]


def _as_affine(values: np.ndarray) -> Affine | None:
    """What a number that has a value in every iteration is by its number; None where it is not affine in that."""
    first, step = int(values[0]), int(values[1]) - int(values[0]) if len(values) > 1 else 0
    return (step, first) if np.array_equal(values, _in_turns((step, first), len(values))) else None


def _fits(values: Sequence[int], atom: Atomic) -> bool:
    """Whether the dtype of a value has all of some integers."""
    kind = np.iinfo(atom.aval.dtype)  # type: ignore[attr-defined]
    return all(kind.min <= own <= kind.max for own in values)


def _affine(eqn: jax_core.JaxprEqn, known: Mapping[Any, Affine]) -> Affine | None:
    """What an equation makes of numbers that are affine; None where it is not so."""
    if len(eqn.outvars) != 1 or not is_integer(eqn.outvars[0]) or math.prod(shape_of(eqn.outvars[0])) != 1:
        return None

    def at(atom: Atomic) -> Affine | None:
        if isinstance(atom, jax_core.Literal):
            return (0, int(atom.val)) if is_integer(atom) else None
        return known.get(atom)

    own = list(map(at, eqn.invars))
    if None in own or not own:
        return None
    first, *others = own
    assert first is not None
    if is_understood(eqn, "convert_element_type", "reshape", "squeeze", "broadcast_in_dim") and not others:
        return first
    if not is_understood(eqn, "add", "sub") or not others:
        return None
    ((a, b),) = others  # type: ignore[misc]
    return (first[0] + a, first[1] + b) if eqn.primitive.name == "add" else (first[0] - a, first[1] - b)


def is_whole(eqn: jax_core.JaxprEqn) -> bool:
    """Whether a slice that is taken or put has all elements, but for the first dimension."""
    sizes = eqn.params["slice_sizes"] if eqn.primitive.name == "dynamic_slice" else shape_of(eqn.invars[1])
    return tuple(sizes[1:]) == shape_of(eqn.invars[0])[1:]


def _is_row(eqn: jax_core.JaxprEqn, counted: Mapping[Any, Affine], length: int) -> Affine | None:
    """The number of the row that an equation takes, or a part of, or puts: one more or less in every iteration."""
    if not is_understood(eqn, "dynamic_slice", "dynamic_update_slice"):
        return None
    takes = eqn.primitive.name == "dynamic_slice"
    shape = shape_of(eqn.invars[0])
    sizes = eqn.params["slice_sizes"] if takes else shape_of(eqn.invars[1])
    if not shape or sizes[0] != 1 or not (takes or is_whole(eqn)):
        return None
    start = eqn.invars[1 if takes else 2]
    own = None if isinstance(start, jax_core.Literal) else counted.get(start)
    if own is None or abs(own[0]) != 1:
        return None
    return own if all(0 <= place < shape[0] for place in _ends(own, length)) else None


@dataclass(frozen=True)
class Rows:
    """An array of which a loop takes, or puts, a row an iteration.

    Attributes:
        at: which row an iteration takes, or puts.
        taken: the equations that take it, or a part of it.
        put: the equation that puts it; None where none does.
    """

    at: Affine
    taken: tuple[jax_core.JaxprEqn, ...]
    put: jax_core.JaxprEqn | None

    def first(self, length: int) -> int:
        """The least row."""
        return min(_ends(self.at, length))

    def scanned(self, array: Any, length: int, *, reverse: bool) -> Any:
        """The rows, in the order in which a scan takes them."""
        first = self.first(length)
        rows = array if len(array) == length else lax.slice_in_dim(array, first, first + length, axis=0)
        return rows if (self.at[0] < 0) == reverse else lax.rev(rows, (0,))

    def written(self, array: Any, rows: Any, length: int, *, reverse: bool) -> Any:
        """The array after the loop, from the rows that it stacked."""
        rows = rows if (self.at[0] < 0) == reverse else lax.rev(rows, (0,))
        if rows.shape == array.shape:
            return rows
        return lax.dynamic_update_slice_in_dim(array, rows, self.first(length), 0)


class Counting:
    """What is counted in a jaxpr, and which arrays its loops take and put rows of; each is looked for once."""

    def __init__(self, jaxpr: jax_core.Jaxpr):
        self._makers = Makers(jaxpr.eqns)
        self._read = {*variables(atom for eqn in jaxpr.eqns for atom in eqn.invars), *variables(jaxpr.outvars)}
        self._known: dict[int, dict[Any, Affine]] = {}
        self._found: dict[int, dict[int, Rows]] = {}

    def _along(self, atom: Atomic) -> np.ndarray | None:
        """The elements of a line of integers, of 64 bits; None where they are not known."""
        eqn = self._makers.of(atom)
        if eqn is None or not is_integer(atom) or not _is_line(atom) or shape_of(atom)[0] > _LONGEST:
            return None
        if is_understood(eqn, "iota"):
            last = shape_of(atom)[0] - 1
            return np.arange(last + 1) if eqn.params["dimension"] == 0 and _fits([last], atom) else None
        if is_understood(eqn, "broadcast_in_dim") and isinstance(eqn.invars[0], jax_core.Literal):
            return np.full(shape_of(atom)[0], int(eqn.invars[0].val))
        if eqn.primitive.name == "scan":
            return self._stacked(eqn, eqn.outvars.index(atom))  # type: ignore[arg-type]
        if not is_understood(eqn, "add", "rev", "slice", "reshape") or not _is_line(eqn.invars[0]):
            return None
        own = self._along(eqn.invars[0])
        if own is None or eqn.primitive.name == "reshape":
            return own
        if eqn.primitive.name == "add":
            other = eqn.invars[1]
            made = own + int(other.val) if isinstance(other, jax_core.Literal) else None
            return made if made is not None and _fits((int(made.min()), int(made.max())), atom) else None
        if eqn.primitive.name == "rev":
            return own[::-1] if 0 in eqn.params["dimensions"] else own
        cuts = (eqn.params[name] for name in ("start_indices", "limit_indices", "strides"))
        return own[slice(*(None if cut is None else cut[0] for cut in cuts))]

    def _stacked(self, eqn: jax_core.JaxprEqn, k: int) -> np.ndarray | None:
        """The elements of an array that a loop stacks, or puts row by row, as its result `k`."""
        body, (first, carried), length = eqn.params["jaxpr"].jaxpr, scan_counts(eqn), eqn.params["length"]
        counted = self.counted(eqn)
        if k >= carried:
            own = _counts(body.outvars[k], counted)
            return None if own is None else _in_turns(own, length)[:: -1 if eqn.params["reverse"] else 1]
        row = self.rows(eqn).get(first + k)
        if row is None or row.put is None:
            return None
        own = _counts(row.put.invars[1], counted)
        before = np.zeros(length) if shape_of(eqn.outvars[k])[0] == length else self._along(eqn.invars[first + k])
        if own is None or before is None:
            return None
        made = before.astype(np.int64)
        made[_in_turns(row.at, length)] = _in_turns(own, length)
        return made

    def _number(self, atom: Atomic) -> int | None:
        """The number that an integer is: a literal, or what loops have counted from one; None where it is not known."""
        if not is_integer(atom) or shape_of(atom):
            return None
        if isinstance(atom, jax_core.Literal):
            return int(atom.val)
        eqn = self._makers.of(atom)
        if eqn is None or eqn.primitive.name != "scan":
            return None
        (first, carried), k = scan_counts(eqn), eqn.outvars.index(atom)
        step = step_of(eqn.params["jaxpr"].jaxpr, first + k, k) if k < carried else None
        start = None if step is None else self._number(eqn.invars[first + k])
        if start is None or step is None:
            return None
        end = start + step * eqn.params["length"]
        return end if _fits([end], atom) else None

    def counted(self, eqn: jax_core.JaxprEqn) -> dict[Any, Affine]:
        """The numbers of a loop's iteration that are affine in its number, by variable of its body."""
        if id(eqn) not in self._known:
            self._known[id(eqn)] = self._counted(eqn)
        return self._known[id(eqn)]

    def _counted(self, eqn: jax_core.JaxprEqn) -> dict[Any, Affine]:
        body, (first, carried), length = eqn.params["jaxpr"].jaxpr, scan_counts(eqn), eqn.params["length"]
        found: dict[Any, Affine] = {}
        lines: dict[Any, np.ndarray] = {}
        for k, (atom, var) in enumerate(zip(eqn.invars, body.invars, strict=True)):
            stays = k < first or (k < first + carried and body.outvars[k - first] is var)
            line = self._along(atom) if stays or k >= first + carried else None
            if line is not None and stays:
                lines[var] = line
            elif line is not None:
                own = _as_affine(line[:: -1 if eqn.params["reverse"] else 1])
                found.update({} if own is None else {var: own})
            elif first <= k < first + carried:
                step, start = step_of(body, k, k - first), self._number(atom)
                if step is not None and start is not None and _fits(_ends((step, start), length), var):
                    found[var] = step, start
        for own in body.eqns:
            line = lines.get(own.invars[0]) if is_understood(own, "dynamic_slice") else None
            at = None if line is None else _is_row(own, found, length)
            made = _affine(own, found)
            if line is not None and at is not None:
                made = _as_affine(line[_in_turns(at, length)])
            if made is not None and _fits(_ends(made, length), own.outvars[0]):
                found[own.outvars[0]] = made
        return found

    def rows(self, eqn: jax_core.JaxprEqn) -> dict[int, Rows]:
        """The arrays of which a scan takes or puts rows, by their places among its inputs; none of anything else."""
        if id(eqn) not in self._found:
            self._found[id(eqn)] = self._rows(eqn) if eqn.primitive.name == "scan" else {}
        return self._found[id(eqn)]

    def _rows(self, eqn: jax_core.JaxprEqn) -> dict[int, Rows]:
        body, (first, carried) = eqn.params["jaxpr"].jaxpr, scan_counts(eqn)
        length = eqn.params["length"]
        arrays = {var: k for k, var in enumerate(body.invars[: first + carried]) if shape_of(var)}
        if not arrays or length < 2 or eqn.effects:
            return {}
        counted = self.counted(eqn)
        if not counted:
            return {}
        uses: dict[Any, list[jax_core.JaxprEqn]] = {var: [] for var in arrays}
        for own in body.eqns:
            for atom in set(variables(own.invars)):
                if atom in uses:
                    uses[atom].append(own)
        results = variables(body.outvars)
        found: dict[int, Rows] = {}
        for var, k in arrays.items():
            taken = [own for own in uses[var] if own.primitive.name == "dynamic_slice" and own.invars[0] is var]
            others = [own for own in uses[var] if own not in taken]
            places = {_is_row(own, counted, length) for own in uses[var]}
            if len(places) != 1 or None in places:
                continue
            (at,) = places
            assert at is not None
            if not any(map(is_whole, uses[var])):
                continue  # to scan over rows would move more than is taken
            if k < first:
                if not others and var not in results:
                    found[k] = Rows(at, tuple(taken), None)
                continue
            made = body.outvars[k - first]
            if made is var and not others and results.count(var) == 1:
                found[k] = Rows(at, tuple(taken), None)
            elif (
                len(others) == 1 and others[0].outvars[0] is made and others[0].invars[0] is var and var not in results
            ):
                (put,) = others
                is_alone = results.count(made) == 1 and not any(made in variables(own.invars) for own in body.eqns)
                if is_alone and var not in variables(put.invars[1:]):
                    found[k] = Rows(at, tuple(taken), put)
        return found

    def counts(self, eqn: jax_core.JaxprEqn) -> dict[int, Affine]:
        """What a scan stacks, or puts into every row of an array, that counts its iterations, by its place among the
        results: one more in every row, or one less.
        """
        if eqn.primitive.name != "scan" or eqn.effects:
            return {}
        body, (first, carried), length = eqn.params["jaxpr"].jaxpr, scan_counts(eqn), eqn.params["length"]
        counted, rows = self.counted(eqn), self.rows(eqn)
        stacked = (-1, length - 1) if eqn.params["reverse"] else (1, 0)
        found: dict[int, Affine] = {}
        for k, atom in enumerate(body.outvars):
            row = rows.get(first + k)
            if k < carried:
                if row is None or row.put is None or row.taken or shape_of(atom)[0] != length:
                    continue
                atom, at = row.put.invars[1], row.at
            else:
                at = stacked
            own = counted.get(atom) if isinstance(atom, jax_core.Var) else None
            if own is not None and abs(own[0]) == 1:
                found[k] = own[0] * at[0], own[1] - own[0] * at[0] * at[1]
        return found

    def own(self, eqn: jax_core.JaxprEqn) -> int | None:
        """The array of a loop that does nothing but change each row of it by itself; None where it does anything else.

        What else it carries are single integers, and what neither an iteration nor anybody after the loop reads, and it
        stacks nothing: then all that reads a row comes before the row is put, and XLA has one array for all iterations.
        """
        own = [k for k, row in self.rows(eqn).items() if row.taken and row.put is not None]
        if len(own) != 1:
            return None
        body, (first, carried) = eqn.params["jaxpr"].jaxpr, scan_counts(eqn)
        within = {*variables(atom for inner in body.eqns for atom in inner.invars), *variables(body.outvars)}

        def is_light(k: int) -> bool:
            made = body.outvars[k]
            is_read = eqn.outvars[k] in self._read or body.invars[first + k] in within
            return not is_read or (shape_of(made) == () and is_integer(made))

        rest = (k for k in range(carried) if first + k != own[0])
        return own[0] if len(body.outvars) == carried and all(map(is_light, rest)) else None
