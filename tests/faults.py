"""Single faults in programs: one element, one edge, one operand or one table entry is wrong.

A fault is planted where it may change something; whether it does is seen in float64. Each kind says what went wrong in
rewriters of programs before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend import core as jax_core

from codelet.field.values import Value
from codelet.graphs.family import Family, Field
from codelet.jaxprs.equations import bind, evaluate
from codelet.jaxprs.rebuild import inline
from lowering.equality.graphs import Meaning
from lowering.equality.sides import OfGraph, Side, jaxpr_side

Array = Any
Change = Callable[[jax_core.JaxprEqn, list[Any]], Sequence[Any] | None]
"""What an equation gives where it is wrong, of its operands."""


@dataclass(frozen=True)
class Planted:
    """A program with a fault beside the program.

    Attributes:
        kind: of fault.
        right: the program.
        wrong: it, with the fault.
        structs: the types of what both are given, in order.
    """

    kind: str
    right: Side
    wrong: Side
    structs: tuple[Any, ...]


def _is_float(atom: Any) -> bool:
    return bool(jnp.issubdtype(atom.aval.dtype, np.floating)) and atom.aval.size > 0


def _place(random: np.random.Generator, shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(random.integers(n)) for n in shape)


def _neighbour(random: np.random.Generator, at: tuple[int, ...], shape: Sequence[int]) -> tuple[int, ...] | None:
    """A place that is off by one along one dimension; None in an array of one element."""
    wide = [d for d, n in enumerate(shape) if n > 1]
    if not wide:
        return None
    d = int(random.choice(wide))
    step = 1 if at[d] == 0 else -1 if at[d] == shape[d] - 1 else int(random.choice([-1, 1]))
    return (*at[:d], at[d] + step, *at[d + 1 :])


def _changed_operand(
    random: np.random.Generator, eqn: jax_core.JaxprEqn, change: Callable[[Array, tuple[int, ...]], Array | None]
) -> Change | None:
    """An equation of which one element of an operand is another one for it alone."""
    places = [k for k, atom in enumerate(eqn.invars) if isinstance(atom, jax_core.Var) and _is_float(atom)]
    if not places:
        return None
    k = int(random.choice(places))
    at = _place(random, eqn.invars[k].aval.shape)  # type: ignore[attr-defined]

    def run(eqn: jax_core.JaxprEqn, operands: list[Any]) -> Sequence[Any] | None:
        own = change(operands[k], at)
        return None if own is None else bind(eqn, [*operands[:k], own, *operands[k + 1 :]])

    return run


_SUMS = ("reduce_sum", "dot_general", "cumsum", "scatter-add", "conv_general_dilated", "reduce_window_sum", "add_any")


def _edge(random: np.random.Generator, eqn: jax_core.JaxprEqn) -> Change | None:
    def moved(x: Array, at: tuple[int, ...]) -> Array | None:
        other = _neighbour(random, at, x.shape)
        return None if other is None else x.at[at].set(x[other])

    return _changed_operand(random, eqn, moved)


def _left_out(random: np.random.Generator, eqn: jax_core.JaxprEqn) -> Change | None:
    is_sum = eqn.primitive.name in _SUMS
    return _changed_operand(random, eqn, lambda x, at: x.at[at].set(0)) if is_sum else None


def _twice(random: np.random.Generator, eqn: jax_core.JaxprEqn) -> Change | None:
    is_sum = eqn.primitive.name in _SUMS
    return _changed_operand(random, eqn, lambda x, at: x.at[at].multiply(2)) if is_sum else None


def _sign(random: np.random.Generator, eqn: jax_core.JaxprEqn) -> Change | None:
    if len(eqn.outvars) != 1 or not _is_float(eqn.outvars[0]):
        return None
    at = _place(random, eqn.outvars[0].aval.shape)  # type: ignore[attr-defined]
    return lambda eqn, operands: [jnp.asarray(own).at[at].multiply(-1) for own in bind(eqn, operands)]


def _swapped(random: np.random.Generator, eqn: jax_core.JaxprEqn) -> Change | None:
    fits = eqn.primitive.name in ("sub", "div", "pow", "atan2", "lt", "gt", "le", "ge")
    alike = len(eqn.invars) == 2 and eqn.invars[0].aval == eqn.invars[1].aval  # type: ignore[attr-defined]
    return (lambda eqn, operands: [eqn.primitive.bind(*operands[::-1], **eqn.params)]) if fits and alike else None


def _stale(random: np.random.Generator, eqn: jax_core.JaxprEqn) -> Change | None:
    """One element of what is updated is as it was."""
    if eqn.primitive.name not in ("dynamic_update_slice", "scatter", "scatter-add"):
        return None
    if not _is_float(eqn.outvars[0]):
        return None

    def run(eqn: jax_core.JaxprEqn, operands: list[Any]) -> Sequence[Any] | None:
        (made,) = bind(eqn, operands)
        differs = np.argwhere(np.asarray(_touched(eqn, operands)))
        if not len(differs):
            return None
        at = tuple(differs[int(random.integers(len(differs)))])
        return [made.at[at].set(jnp.asarray(operands[0])[at])]

    return run


def _touched(eqn: jax_core.JaxprEqn, operands: list[Any]) -> Any:
    """Which elements of an array an update writes; all where it hangs on what is traced."""
    if any(isinstance(own, Tracer) for own in _indices(eqn, operands)):
        return np.ones(operands[0].shape, bool)
    with jax.ensure_compile_time_eval():
        update = 2 if eqn.primitive.name.startswith("scatter") else 1
        marked = list(operands)
        marked[0] = jnp.zeros(operands[0].shape, operands[0].dtype)
        marked[update] = jnp.ones(operands[update].shape, operands[update].dtype)
        return np.asarray(bind(eqn, marked)[0]) != 0


def _indices(eqn: jax_core.JaxprEqn, operands: list[Any]) -> list[Any]:
    return [operands[1]] if eqn.primitive.name.startswith(("scatter", "gather")) else list(operands[2:])


def _clipped(random: np.random.Generator, eqn: jax_core.JaxprEqn) -> Change | None:
    """An index that ends one too early."""
    if eqn.primitive.name != "gather" or not _is_float(eqn.outvars[0]):
        return None
    last = max(eqn.invars[0].aval.shape, default=1) - 2  # type: ignore[attr-defined]
    return lambda eqn, operands: bind(eqn, [operands[0], jnp.minimum(operands[1], max(last, 0))])


def _table(random: np.random.Generator, eqn: jax_core.JaxprEqn) -> Change | None:
    """One entry of the table of a look-up, or of an update, is off by one."""
    if not eqn.primitive.name.startswith(("gather", "scatter")) or not eqn.invars[1].aval.size:  # type: ignore[attr-defined]
        return None
    at = _place(random, eqn.invars[1].aval.shape)  # type: ignore[attr-defined]

    def run(eqn: jax_core.JaxprEqn, operands: list[Any]) -> Sequence[Any] | None:
        table = jnp.asarray(operands[1])
        wrong = jnp.where(table[at] > 0, table[at] - 1, table[at] + 1)
        return bind(eqn, [operands[0], table.at[at].set(wrong), *operands[2:]])

    return run


def _dropped(random: np.random.Generator, eqn: jax_core.JaxprEqn) -> Change | None:
    """A term of a sum of two is missing in one element."""
    if eqn.primitive.name not in ("add_any", "add") or not _is_float(eqn.outvars[0]):
        return None
    at = _place(random, eqn.outvars[0].aval.shape)  # type: ignore[attr-defined]

    def run(eqn: jax_core.JaxprEqn, operands: list[Any]) -> Sequence[Any] | None:
        own = jnp.broadcast_to(operands[int(random.integers(2))], eqn.outvars[0].aval.shape)  # type: ignore[attr-defined]
        return [jnp.asarray(bind(eqn, operands)[0]).at[at].set(own[at])]

    return run


KINDS: dict[str, Callable[[np.random.Generator, jax_core.JaxprEqn], Change | None]] = {
    "an edge moved by one": _edge,
    "a partial sum left out": _left_out,
    "a partial sum taken twice": _twice,
    "a sign": _sign,
    "operands swapped": _swapped,
    "a stale value": _stale,
    "an index clipped": _clipped,
    "a wrong table entry": _table,
    "a term dropped": _dropped,
}


def planted_in_jaxpr(closed: jax_core.ClosedJaxpr, kind: str, seed: int) -> Planted | None:
    """A jaxpr with a fault of some kind in one of its equations; None where none of it can be."""
    closed = inline(closed)
    random = np.random.default_rng(seed)
    order = random.permutation(len(closed.jaxpr.eqns))
    for number in order:
        eqn = closed.jaxpr.eqns[number]
        change = KINDS[kind](random, eqn)
        if change is None:
            continue
        changed: list[bool] = []

        def run(own: jax_core.JaxprEqn, operands: list[Any], eqn: Any = eqn, change: Any = change) -> Sequence[Any]:
            made = change(own, operands) if own is eqn else None
            if made is None:
                return bind(own, operands)
            changed.append(True)
            return made

        structs = tuple(jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in closed.in_avals)
        wrong = jax.make_jaxpr(lambda *given, run=run: evaluate(closed, given, run, known=jnp.asarray))(*structs)
        if changed:
            return Planted(kind, jaxpr_side(closed), jaxpr_side(wrong), structs)
    return None


# --- in graphs ----------------------------------------------------------------------------------------------


class _Faulty(Meaning):
    """A graph of which one edge of one vertex is wrong: it reads a neighbour, or writes where another one does.

    Attributes:
        seed: of which.
        kind: "reads" or "writes".
    """

    seed: int
    kind: str

    def _chosen(self) -> tuple[Family, Field] | None:
        is_written = self.kind == "writes"
        fields = [
            (family, field)
            for family in self.graph.families
            for field in family.fields
            if field.tensor is not None
            and (field.kind == "out") == is_written
            and family.num_vertices
            and not family.rows
            if field.tensor.size and np.issubdtype(field.type.dtype, np.floating)
        ]
        return fields[np.random.default_rng(self.seed).integers(len(fields))] if fields else None

    def positions(self, family: Family, field: Field) -> np.ndarray:
        own = super().positions(family, field)
        chosen, random = self._chosen(), np.random.default_rng(self.seed + 1)
        if chosen is None or chosen[0] is not family or chosen[1] is not field:
            return own
        made = np.array(own)
        flat = made.reshape(len(made), -1)
        if self.kind == "writes":  # two vertices' results are exchanged
            if len(flat) > 1:
                one = int(random.integers(len(flat) - 1))
                flat[[one, one + 1]] = flat[[one + 1, one]]
            return made
        at = _place(random, flat.shape)
        assert field.tensor is not None
        flat[at] += 1 if flat[at] == 0 else -1 if flat[at] == field.tensor.source.size - 1 else random.choice([-1, 1])
        flat[at] = np.clip(flat[at], 0, field.tensor.source.size - 1)
        return made


@dataclass(frozen=True, eq=False)
class _FaultyGraph(OfGraph):
    """A graph with a fault, by its meaning."""

    kind: str = "reads"
    seed: int = 0

    def results(self, evaluation: Any, given: Sequence[Value]) -> list[Value]:
        meaning = _Faulty(self.graph, dict(zip(self.inputs, given, strict=True)), evaluation)
        meaning.kind, meaning.seed = self.kind, self.seed
        meaning.run(self.program)
        return [meaning.read(own, "the caller") for own in self.outputs]


def planted_in_graph(side: OfGraph, structs: Sequence[Any], kind: str, seed: int) -> Planted:
    """A graph of which one vertex reads, or writes, a wrong element."""
    wrong = _FaultyGraph(side.graph, side.program, side.inputs, side.outputs, side.tree, kind=kind, seed=seed)
    told = {"reads": "an edge of a graph", "writes": "results of two vertices exchanged"}[kind]
    return Planted(told, side, wrong, tuple(structs))
