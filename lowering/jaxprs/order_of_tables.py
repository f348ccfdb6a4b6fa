"""Order of tables: what is looked up by one known table and put where another says is looked up where it belongs.

A vertex with a ragged field takes elements in the order of its rows, and what it gives back to them is put where they
lie: by a table that names every element once. XLA's CPU backend scatters on one core alone, one element after another:
the gradient of a million messages took 1.3 of plain JAX's time. Tables of the lowered graph are known here, so that the
table of both is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Makers
from codelet.jaxprs.primitives import is_understood
from lowering.arrays import constant, reshape
from lowering.jaxprs.equal_constants import is_table
from lowering.jaxprs.parts import behind
from lowering.jaxprs.rearrangement import rearrangement
from lowering.jaxprs.remade import Remade
from lowering.jaxprs.summed import shape_of


def _known(atom: Any, size: int, makers: Makers, constants: dict[Any, Any]) -> np.ndarray | None:
    """A table of so many places, each of one number, where it is known."""
    view = rearrangement(atom, makers, stop=lambda _: False)
    table = constants.get(view.root) if view.is_in_order else None
    if shape_of(atom)[-1:] != (1,) or table is None or not is_table(table) or table.size != size:
        return None
    return np.asarray(table).reshape(-1)


def _inverse(places: np.ndarray) -> np.ndarray | None:
    """For each element the place in a table that names it; None where not every element is named once."""
    if places.min() < 0 or places.max() >= places.size:
        return None
    found = np.full(places.size, -1, np.int64)
    found[places] = np.arange(places.size)
    return found if found.min() >= 0 else None


def looked_up_in_order(eqn: jax_core.JaxprEqn, makers: Makers, constants: dict[Any, Any]) -> Remade | None:
    """What takes the place of a scatter to all elements of what single elements are looked up for."""
    if not is_understood(eqn, "scatter") or eqn.params["update_jaxpr"] is not None:
        return None
    array, indices, updates = eqn.invars
    numbers, size = eqn.params["dimension_numbers"], int(np.prod(shape_of(array)))
    is_flat = len(shape_of(array)) == 1 and numbers.inserted_window_dims == (0,) and not numbers.update_window_dims
    looking = behind(updates, makers)[1]
    if not is_flat or looking is None or not is_understood(looking, "gather") or shape_of(updates) != (size,):
        return None
    if set(looking.params["slice_sizes"]) != {1}:
        return None
    table = looking.invars[0]
    # Along the one dimension that has several elements, whatever others there are.
    along = [d for d, extent in enumerate(shape_of(table)) if extent > 1]
    if tuple(map(int, looking.params["dimension_numbers"].start_index_map)) != tuple(along) or len(along) != 1:
        return None
    read, put = (_known(own, size, makers, constants) for own in (looking.invars[1], indices))
    extent = shape_of(table)[along[0]]
    if read is None or put is None or read.min() < 0 or read.max() >= extent:
        return None
    back = _inverse(put)
    if back is None:
        return None
    places = read[back]

    def run(table: Any) -> list[Any]:
        flat, where = reshape(table, (extent,)), reshape(constant(places), (size, 1))
        own = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))
        in_order = bool((np.diff(places) >= 0).all())
        promised = lax.GatherScatterMode.PROMISE_IN_BOUNDS
        return [lax.gather(flat, where, own, (1,), indices_are_sorted=in_order, mode=promised)]

    return Remade((table,), run)
