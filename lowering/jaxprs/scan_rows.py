"""Scan rows: what a loop takes one row of a turn is scanned over, and what it puts one row of is stacked.

In comes a jaxpr, out come scans that get and give rows as such, where they took and put them at a place that is the
number of the turn. It is what makes their gradients linear: JAX's cotangent of an array of which a turn takes a row is
an array of zeros with a row in it, added up in every turn; of what is scanned over it is a row.

An array is scanned over where all that a turn does with it is to take its row, and stacked where all that a turn does
is to put its row, or to take that row before it does. Rows are along the first dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, bind, bodies_of, evaluate, needed, scan_counts, variables, with_bodies
from codelet.jaxprs.intervals import step_of
from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import Builder, rebuild
from lowering.arrays import reshape
from lowering.jaxprs.reshape_once import is_reshape

Affine = tuple[int, int]
"""`a` and `b` of a number that is `a * turn + b`."""

_LONGEST = 1 << 20
"""An array of more integers is not looked at."""

# --- which numbers count turns ------------------------------------------------------------------------------


def _is_integer(atom: Atomic) -> bool:
    """Whether a value is of integers."""
    dtype = getattr(atom.aval, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.kind in "iu"


def _shape(atom: Atomic) -> tuple[int, ...]:
    return tuple(getattr(atom.aval, "shape", ()))


def _is_line(atom: Atomic) -> bool:
    """Whether all elements lie along the first dimension, and there are any."""
    shape = _shape(atom)
    return bool(shape) and math.prod(shape) == shape[0] > 0


def _in_turns(own: Affine, length: int) -> np.ndarray:
    """What a number is in every turn."""
    return own[0] * np.arange(length, dtype=np.int64) + own[1]


def _ends(own: Affine, length: int) -> tuple[int, int]:
    """What a number is in the first turn and the last."""
    return own[1], own[0] * max(length - 1, 0) + own[1]


def _as_affine(values: np.ndarray) -> Affine | None:
    """What a number that has a value in every turn is by its number; None where it is not affine in that."""
    first, step = int(values[0]), int(values[1]) - int(values[0]) if len(values) > 1 else 0
    return (step, first) if np.array_equal(values, _in_turns((step, first), len(values))) else None


def _fits(values: Sequence[int], atom: Atomic) -> bool:
    """Whether the dtype of a value has all of some integers."""
    kind = np.iinfo(atom.aval.dtype)  # type: ignore[attr-defined]
    return all(kind.min <= own <= kind.max for own in values)


def _affine(eqn: jax_core.JaxprEqn, known: Mapping[Any, Affine]) -> Affine | None:
    """What an equation makes of numbers that are affine; None where it is not so."""
    if len(eqn.outvars) != 1 or not _is_integer(eqn.outvars[0]) or math.prod(_shape(eqn.outvars[0])) != 1:
        return None

    def at(atom: Atomic) -> Affine | None:
        if isinstance(atom, jax_core.Literal):
            return (0, int(atom.val)) if _is_integer(atom) else None
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


def _is_whole(eqn: jax_core.JaxprEqn) -> bool:
    """Whether a slice that is taken or put has all elements, but for the first dimension."""
    sizes = eqn.params["slice_sizes"] if eqn.primitive.name == "dynamic_slice" else _shape(eqn.invars[1])
    return tuple(sizes[1:]) == _shape(eqn.invars[0])[1:]


def _is_row(eqn: jax_core.JaxprEqn, counted: Mapping[Any, Affine], length: int) -> Affine | None:
    """The number of the row that an equation takes, or a part of, or puts: one more or less in every turn."""
    if not is_understood(eqn, "dynamic_slice", "dynamic_update_slice"):
        return None
    takes = eqn.primitive.name == "dynamic_slice"
    shape = _shape(eqn.invars[0])
    sizes = eqn.params["slice_sizes"] if takes else _shape(eqn.invars[1])
    if not shape or sizes[0] != 1 or not (takes or _is_whole(eqn)):
        return None
    start = eqn.invars[1 if takes else 2]
    own = None if isinstance(start, jax_core.Literal) else counted.get(start)
    if own is None or abs(own[0]) != 1:
        return None
    return own if all(0 <= place < shape[0] for place in _ends(own, length)) else None


@dataclass(frozen=True)
class _Rows:
    """An array of which a loop takes, or puts, a row a turn.

    Attributes:
        at: which row a turn takes, or puts.
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


class _Counting:
    """What is counted in a jaxpr, and which arrays its loops take and put rows of; each is looked for once."""

    def __init__(self, jaxpr: jax_core.Jaxpr):
        self._makers = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
        self._known: dict[int, dict[Any, Affine]] = {}
        self._found: dict[int, dict[int, _Rows]] = {}

    def _along(self, atom: Atomic) -> np.ndarray | None:
        """The elements of a line of integers, of 64 bits; None where they are not known."""
        eqn = self._makers.get(atom) if isinstance(atom, jax_core.Var) else None
        if eqn is None or not _is_integer(atom) or not _is_line(atom) or _shape(atom)[0] > _LONGEST:
            return None
        if is_understood(eqn, "iota"):
            last = _shape(atom)[0] - 1
            return np.arange(last + 1) if eqn.params["dimension"] == 0 and _fits([last], atom) else None
        if is_understood(eqn, "broadcast_in_dim") and isinstance(eqn.invars[0], jax_core.Literal):
            return np.full(_shape(atom)[0], int(eqn.invars[0].val))
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
            own = counted.get(body.outvars[k])
            return None if own is None else _in_turns(own, length)[:: -1 if eqn.params["reverse"] else 1]
        row = self.rows(eqn).get(first + k)
        if row is None or row.put is None:
            return None
        atom = row.put.invars[1]
        own = (0, int(atom.val)) if isinstance(atom, jax_core.Literal) else counted.get(atom)
        before = np.zeros(length) if _shape(eqn.outvars[k])[0] == length else self._along(eqn.invars[first + k])
        if own is None or before is None:
            return None
        made = before.astype(np.int64)
        made[_in_turns(row.at, length)] = _in_turns(own, length)
        return made

    def _number(self, atom: Atomic) -> int | None:
        """The number that an integer is: a literal, or what loops have counted from one; None where it is not known."""
        if not _is_integer(atom) or _shape(atom):
            return None
        if isinstance(atom, jax_core.Literal):
            return int(atom.val)
        eqn = self._makers.get(atom)
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
        """The numbers of a loop's turn that are affine in its number, by variable of its body."""
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

    def rows(self, eqn: jax_core.JaxprEqn) -> dict[int, _Rows]:
        """The arrays of which a loop takes or puts rows, by their places among its inputs."""
        if id(eqn) not in self._found:
            self._found[id(eqn)] = self._rows(eqn)
        return self._found[id(eqn)]

    def _rows(self, eqn: jax_core.JaxprEqn) -> dict[int, _Rows]:
        body, (first, carried) = eqn.params["jaxpr"].jaxpr, scan_counts(eqn)
        length = eqn.params["length"]
        arrays = {var: k for k, var in enumerate(body.invars[: first + carried]) if _shape(var)}
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
        found: dict[int, _Rows] = {}
        for var, k in arrays.items():
            taken = [own for own in uses[var] if own.primitive.name == "dynamic_slice" and own.invars[0] is var]
            others = [own for own in uses[var] if own not in taken]
            places = {_is_row(own, counted, length) for own in uses[var]}
            if len(places) != 1 or None in places:
                continue
            (at,) = places
            assert at is not None
            if not any(map(_is_whole, uses[var])):
                continue  # to scan over rows would move more than is taken
            if k < first:
                if not others and var not in results:
                    found[k] = _Rows(at, tuple(taken), None)
                continue
            made = body.outvars[k - first]
            if made is var and not others and results.count(var) == 1:
                found[k] = _Rows(at, tuple(taken), None)
            elif (
                len(others) == 1 and others[0].outvars[0] is made and others[0].invars[0] is var and var not in results
            ):
                (put,) = others
                is_alone = results.count(made) == 1 and not any(made in variables(own.invars) for own in body.eqns)
                if is_alone and var not in variables(put.invars[1:]):
                    found[k] = _Rows(at, tuple(taken), put)
        return found


# --- loops ------------------------------------------------------------------------------------------------------


def _goes_back(eqn: jax_core.JaxprEqn, rows: Mapping[int, _Rows]) -> bool:
    """Whether the scan is to go from the last row to the first: in the direction in which the least is turned round."""
    first, carried = scan_counts(eqn)
    turned = {False: 0, True: 0}
    for atom in (*eqn.invars[first + carried :], *eqn.outvars[carried:]):
        turned[not eqn.params["reverse"]] += math.prod(atom.aval.shape)  # type: ignore[attr-defined]
    for k, row in rows.items():
        size = math.prod(eqn.invars[k].aval.shape)  # type: ignore[attr-defined]
        turned[row.at[0] > 0] += size * (bool(row.taken) + (row.put is not None))
    return turned[True] < turned[False] if turned[True] != turned[False] else eqn.params["reverse"]


def _written_alike(body: jax_core.Jaxpr, rows: Mapping[int, _Rows]) -> dict[int, int]:
    """Of each array that rows are put in, the first of those in whose place the same is put."""
    makers = {var: eqn for eqn in body.eqns for var in eqn.outvars}
    first: dict[Any, int] = {}
    found = {}
    for k, row in rows.items():
        if row.put is not None:
            atom = row.put.invars[1]
            while isinstance(atom, jax_core.Var) and atom in makers and is_reshape(makers[atom]):
                atom = makers[atom].invars[0]
            found[k] = first.setdefault(atom, k) if isinstance(atom, jax_core.Var) else k
    return found


def _scanned(eqn: jax_core.JaxprEqn, rows: Mapping[int, _Rows]) -> Callable[..., list[Any]]:
    """The loop that scans over rows, and stacks them."""
    closed, (first, carried), params = eqn.params["jaxpr"], scan_counts(eqn), eqn.params
    body, length = closed.jaxpr, params["length"]
    taken = {id(own): k for k, row in rows.items() for own in row.taken}
    put = {id(row.put): k for k, row in rows.items() if row.put is not None}
    kept = [k for k in range(first, first + carried) if k not in rows]
    reverse = _goes_back(eqn, rows)
    turn_round = (lambda array: lax.rev(array, (0,))) if reverse != params["reverse"] else (lambda array: array)
    scanned = [k for k, row in rows.items() if row.taken]
    alike = _written_alike(body, rows)
    stacked = list(dict.fromkeys(alike.values()))
    results = [*(body.outvars[k - first] for k in (*kept, *stacked)), *body.outvars[carried:]]
    sources = lambda own: own.invars[2:] if id(own) in taken else own.invars[1:2] if id(own) in put else own.invars  # noqa: E731
    eqns = needed(body, sources, results)
    wanted = set(map(id, eqns))
    used = {*variables(results), *(var for own in eqns for var in variables(sources(own)))}
    fed = [k for k in range(first + carried, len(body.invars)) if body.invars[k] in used]

    def run(*inputs: Any) -> list[Any]:
        def turn(held: list[Any], given: tuple[list[Any], list[Any]]) -> tuple[list[Any], Any]:
            own_fed, own_rows = given
            row = dict(zip(scanned, own_rows, strict=True))
            written: dict[int, Any] = {}

            def one(own: jax_core.JaxprEqn, operands: list[Any]) -> list[Any]:
                if id(own) in taken:
                    part = row[taken[id(own)]]
                    if not _is_whole(own):
                        sizes = own.params["slice_sizes"][1:]
                        part = lax.dynamic_slice(part, operands[2:], sizes, allow_negative_indices=False)
                    return [reshape(part, _shape(own.outvars[0]))]
                if id(own) not in wanted:
                    return [None] * len(own.outvars)
                if id(own) in put:
                    array: Any = body.invars[put[id(own)]].aval
                    written[put[id(own)]] = reshape(operands[1], array.shape[1:])
                    return [None]
                return bind(own, operands)

            known = dict(zip((*kept, *fed), (*held, *own_fed), strict=True))
            values = [*inputs[:first], *(known.get(k) for k in range(first, len(body.invars)))]
            made = evaluate(closed, values, one)
            return [made[k - first] for k in kept], ([written[k] for k in stacked], made[carried:])

        own = [rows[k].scanned(inputs[k], length, reverse=reverse) for k in scanned]
        last, (made, others) = lax.scan(
            turn,
            [inputs[k] for k in kept],
            ([turn_round(inputs[k]) for k in fed], own),
            length=length,
            reverse=reverse,
            unroll=params["unroll"],
        )
        lines = dict(zip(stacked, made, strict=True))
        after = dict(zip(kept, last, strict=True))
        for k, of in alike.items():
            line = reshape(lines[of], (length, *np.shape(inputs[k])[1:]))
            after[k] = rows[k].written(inputs[k], line, length, reverse=reverse)
        return [*(after.get(k, inputs[k]) for k in range(first, first + carried)), *map(turn_round, others)]

    return run


def scan_rows(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr whose loops scan over rows, and stack them, in the bodies of loops as well."""
    if not any(map(bodies_of, closed.jaxpr.eqns)):
        return closed
    inner = rebuild(closed, lambda builder, eqn, operands: builder.equation(with_bodies(eqn, scan_rows), operands))
    counting = _Counting(inner.jaxpr)

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> Sequence[Atomic]:
        rows = counting.rows(eqn) if eqn.primitive.name == "scan" else {}
        return builder.traced(_scanned(eqn, rows), operands) if rows else builder.equation(eqn, operands)

    return rebuild(inner, run)
