"""Equations folded into one where PopLibs has one vertex for them.

In come the equations of a jaxpr in order, and what leaves it; out come the equations, with these in place of several:

- `reduce_sum` that reads float16 and sums in float32, or writes float16, where a cast stood before or behind it; and
  whose parameter `squared` says that it sums squares (PopLibs' `SQUARE_ADD`). A sum that is scaled by a known number,
  as a mean is, takes no longer (lib/popops/reduction/CycleEstimationFunctions.cpp @ b2996457: its form with a scale is
  the only one).
- `sum_of_products`: a product of two arrays that is only summed.
- `histogram`: how many of some data are beyond each of some limits, as a comparison of all with all that is summed over
  the data: PopLibs' `Histogram` counts so, and then subtracts.
- `scaled_add`: `x + s * y`, or with `subtracts` `x - s * y`, of a number s, where a codelet does nothing else with
  arrays: beside other operations on the same elements it is part of their loop.
- an update that is chosen as a whole, `where(p, x.at[i].set(v), x)` of a number p: the update alone, which a machine
  makes, or does not.
- a look-up by indices that are counted from a number on, as those of a block of rows are: PopLibs' `MultiSlice` and
  `MultiUpdateAdd` take the number of the first row (`baseOffset`) and look which rows are theirs
  (lib/popops/codelets/MultiUpdateAdd.cpp).

What is folded is used nowhere else, and has no parameter that is not named here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jax.extend import core as jax_core

from codelet.jaxprs.primitives import SCATTERS
from ipu_backend.model.equations import Equation, size_of

_FLOATS = (np.float16, np.float32)


_VIEWS = ("broadcast_in_dim", "reshape", "expand_dims")
"""What may stand between a sum and its cast: the same elements in another shape."""


def _is_plain(eqn: Equation, primitive: str, *parameters: str) -> bool:
    """Whether an equation is of a primitive, and says nothing but some parameters."""
    return eqn.primitive == primitive and not any(v for name, v in eqn.params.items() if name not in parameters)


def _is_cast(eqn: Equation, before: Any, after: Any) -> bool:
    return (
        _is_plain(eqn, "convert_element_type", "new_dtype", "weak_type")
        and eqn.operands[0].aval.dtype == before
        and eqn.results[0].aval.dtype == after
    )


def _is_square(eqn: Equation) -> bool:
    if eqn.results[0].aval.dtype not in _FLOATS:
        return False
    twice = _is_plain(eqn, "mul") and eqn.operands[0] is eqn.operands[1]
    return twice or _is_plain(eqn, "square") or (_is_plain(eqn, "integer_pow", "y") and eqn.params["y"] == 2)


def _is_scaled(eqn: Equation, value: Any) -> bool:
    """Whether an equation multiplies or divides a value by a number that is known before."""
    if not (_is_plain(eqn, "mul") or _is_plain(eqn, "div")) or eqn.results[0].aval.dtype not in _FLOATS:
        return False
    return eqn.operands[0] is value and isinstance(eqn.operands[1], jax_core.Literal) and size_of(eqn.operands[1]) == 1


class _ValueUses:
    """Where the values of equations are made and used.

    Attributes:
        equations: those that are left, by their place.
    """

    def __init__(self, equations: Sequence[Equation], leaving: Sequence[Any]):
        used = [atom for eqn in equations for atom in eqn.operands if not isinstance(atom, jax_core.Literal)]
        self.equations = dict(enumerate(equations))
        self._count = Counter(used) + Counter(leaving)
        self._maker = {result: k for k, eqn in self.equations.items() for result in eqn.results}
        self._user = {atom: k for k, eqn in self.equations.items() for atom in used_by(eqn)}

    def is_made(self, atom: Any) -> bool:
        """Whether an equation makes it."""
        return not isinstance(atom, jax_core.Literal) and atom in self._maker

    def maker(self, atom: Any) -> Equation | None:
        """What makes a value that is used once."""
        if not self.is_made(atom) or self._count[atom] != 1:
            return None
        return self.equations.get(self._maker[atom])

    def user(self, atom: Any) -> Equation | None:
        """The equation that alone uses a value."""
        return self.equations.get(self._user.get(atom, -1)) if self._count[atom] == 1 else None

    def is_used(self, atom: Any) -> bool:
        """Whether any equation uses it."""
        return atom in self._user

    def fold(self, eqn: Equation) -> None:
        """Take an equation out, since another does its work."""
        del self.equations[self._maker[eqn.results[0]]]


def used_by(eqn: Equation) -> list[Any]:
    """The variables among an equation's operands."""
    return [atom for atom in eqn.operands if not isinstance(atom, jax_core.Literal)]


def _folded_sum(eqn: Equation, uses: _ValueUses) -> Equation:
    """A sum with what stands right before and behind it."""
    while (before := uses.maker(eqn.operands[0])) is not None:
        if _is_square(before) and not eqn.params.get("squared"):
            eqn = eqn._replace(operands=before.operands[:1], params={**eqn.params, "squared": True})
        elif _is_cast(before, np.float16, np.float32):
            eqn = eqn._replace(operands=before.operands)
        elif (
            _is_plain(before, "mul")
            and not eqn.params.get("squared")
            and all(operand.aval.shape == before.results[0].aval.shape for operand in before.operands)
        ):
            eqn = eqn._replace(primitive="sum_of_products", operands=before.operands)
            uses.fold(before)
            break
        else:
            break
        uses.fold(before)
    passed: list[Equation] = []
    result = eqn.results[0]
    while (behind := uses.user(result)) is not None:
        is_view = behind.primitive in _VIEWS and size_of(behind.results[0]) == eqn.size
        is_last = _is_scaled(behind, result) or _is_cast(behind, np.float32, np.float16)
        if not is_view and not is_last:
            break
        passed.append(behind)
        result = behind.results[0]
        if is_last:
            for own in passed:
                uses.fold(own)
            passed, eqn = [], eqn._replace(results=behind.results)
    return eqn


def _histogram(eqn: Equation, uses: _ValueUses) -> Equation | None:
    """A sum over data of how it compares with limits; None where it is not that."""
    shape, axes = eqn.operands[0].aval.shape, eqn.params["axes"]
    passed, before = [], uses.maker(eqn.operands[0])
    while before is not None and _is_plain(before, "convert_element_type", "new_dtype", "weak_type"):
        passed.append(before)
        before = uses.maker(before.operands[0])
    if before is None or not any(_is_plain(before, name) for name in ("ge", "gt", "le", "lt")) or not passed:
        return None
    of_data, of_limits = (
        tuple(size if (axis in axes) == is_data else 1 for axis, size in enumerate(shape)) for is_data in (True, False)
    )
    for data, limits in (before.operands, before.operands[::-1]):
        is_float = data.aval.dtype == limits.aval.dtype and data.aval.dtype in _FLOATS
        if is_float and (data.aval.shape, limits.aval.shape) == (of_data, of_limits) and of_data != of_limits:
            for own in (*passed, before):
                uses.fold(own)
            return eqn._replace(primitive="histogram", operands=(data, limits), params={})
    return None


def _scaled_add(eqn: Equation, uses: _ValueUses) -> Equation | None:
    """`x + s * y`, of which no more is made and no less comes in; None where it is not that."""
    shape, dtype = eqn.results[0].aval.shape, eqn.results[0].aval.dtype
    if dtype not in _FLOATS or size_of(eqn.results[0]) == 1 or uses.is_used(eqn.results[0]):
        return None
    for added, scaled in (eqn.operands, eqn.operands[::-1])[: 1 if eqn.primitive == "sub" else 2]:
        product = uses.maker(scaled)
        if product is None or not _is_plain(product, "mul"):
            continue
        numbers = [atom for atom in product.operands if size_of(atom) == 1]
        arrays = [atom for atom in (added, *product.operands) if not any(atom is own for own in numbers)]
        whole = all(atom.aval.shape == shape and atom.aval.dtype == dtype for atom in arrays)
        if len(numbers) == 1 and whole and not any(map(uses.is_made, arrays)):
            uses.fold(product)
            params = {"subtracts": eqn.primitive == "sub"}
            return eqn._replace(primitive="scaled_add", operands=(*arrays, *numbers), params=params)
    return None


_UPDATES = ("dynamic_update_slice", *SCATTERS)


def _chosen_update(eqn: Equation, uses: _ValueUses) -> Equation | None:
    """The update of what it is chosen with, by one predicate for all; None where a choice is not of that."""
    predicate, *cases = eqn.operands
    spread = uses.maker(predicate)
    if spread is not None and not _is_plain(spread, "broadcast_in_dim", "shape", "broadcast_dimensions"):
        spread = None
    if spread is not None:
        predicate = spread.operands[0]
    if size_of(predicate) != 1 or len(cases) != 2:
        return None
    for updated, before in (cases, cases[::-1]):
        update = uses.maker(updated)
        if update is not None and update.primitive in _UPDATES and update.operands[0] is before:
            uses.fold(update)
            if spread is not None:
                uses.fold(spread)
            return update._replace(results=eqn.results)
    return None


_LOOKUPS = ("gather", *SCATTERS)


def _from_base(eqn: Equation, uses: _ValueUses) -> Equation:
    """A look-up by indices less a number, as one by the indices themselves."""
    operand, indices, *others = eqn.operands
    counted = uses.maker(indices)
    if counted is None or not _is_plain(counted, "sub") or size_of(counted.operands[1]) != 1:
        return eqn
    if counted.operands[0].aval.shape != indices.aval.shape:
        return eqn
    uses.fold(counted)
    return eqn._replace(operands=(operand, counted.operands[0], *others))


def folded(equations: Iterable[Equation], outvars: Sequence[Any], names: Mapping[Any, Any]) -> list[Equation]:
    """The equations of a jaxpr, those folded that PopLibs has one vertex for.

    Args:
        equations: in order. `names` may become known with them.
        outvars: what leaves the jaxpr.
        names: what variables stand for.
    """
    held = list(equations)
    leaving = [names.get(atom, atom) for atom in outvars if not isinstance(atom, jax_core.Literal)]
    uses = _ValueUses(held, [atom for atom in leaving if not isinstance(atom, jax_core.Literal)])
    for place, eqn in enumerate(held):
        if place not in uses.equations:
            continue
        if _is_plain(eqn, "reduce_sum", "axes"):
            uses.equations[place] = _histogram(eqn, uses) or _folded_sum(eqn, uses)
        elif _is_plain(eqn, "add") or _is_plain(eqn, "sub"):
            uses.equations[place] = _scaled_add(eqn, uses) or eqn
        elif _is_plain(eqn, "select_n"):
            uses.equations[place] = _chosen_update(eqn, uses) or eqn
        elif eqn.primitive in _LOOKUPS:
            uses.equations[place] = _from_base(eqn, uses)
    return list(uses.equations.values())
