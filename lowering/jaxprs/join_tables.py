"""Join tables: gathers and scatters of many vertices, each of a part or a copy of a table, as one of all of it.

Several forms come of vertices that share a table, and each runs as many times too long as there are vertices:

- each adds its updates to a table of zeros of its own, and the tables are summed, as the gradient of a gather is: one
  table takes all updates, and so does another array that such a table is added to (`tables_of_updates.py`);
- each looks up, in some of the rows, all indices, which give zero where the row is another's, and the results are
  summed: one gather of all rows; each updates some of the rows, and drops the updates for those of others: one scatter
  into all rows (`blocks_of_rows.py`), those of a smaller last block among them (`scatters_side_by_side.py`);
- each looks up what it gives back to the elements that it read, where they lie (`order_of_tables.py`).

In come these as equations with batches, which `jax.vmap` makes of vertices. The gradient of `x[i]` with 32,000 indices
into 2,000 elements takes 600 times what plain JAX takes without, and as long with.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from jax.extend import core as jax_core

from codelet.jaxprs.equations import Makers, has_any, use_counts
from codelet.jaxprs.primitives import SCATTERS, is_understood
from lowering.jaxprs.blocks_of_rows import one_gather, one_scatter
from lowering.jaxprs.order_of_tables import looked_up_in_order
from lowering.jaxprs.remade import Remade, with_remade
from lowering.jaxprs.scatters_side_by_side import one_of_all_rows
from lowering.jaxprs.summed import shape_of, sum_before_reshape, sum_of, sum_of_each
from lowering.jaxprs.tables_of_updates import one_list, one_start, one_table, with_rows_together


def _joined(eqn: jax_core.JaxprEqn, makers: Makers, constants: dict[Any, Any], uses: Counter[Any]) -> Remade | None:
    if is_understood(eqn, "concatenate"):
        return one_of_all_rows(eqn, makers, constants, uses)
    if is_understood(eqn, "add", "add_any"):
        return one_start(eqn, makers, uses)
    if is_understood(eqn, "reduce_sum"):
        own = sum_of(eqn, makers)
        if own is None:
            return sum_of_each(eqn, makers) or sum_before_reshape(eqn, makers)
        if own.maker.primitive.name == "gather":
            return one_gather(own, makers, constants)
        return one_table(own, makers)
    if not is_understood(eqn, *SCATTERS):
        return None
    found = looked_up_in_order(eqn, makers, constants) or one_scatter(eqn, makers, constants)
    if found is not None or not is_understood(eqn, "scatter-add") or any(0 in shape_of(atom) for atom in eqn.invars):
        return found
    return one_list(eqn, makers, uses) or with_rows_together(eqn, makers)


def join_tables(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr with gathers and scatters of parts, or copies, of a table made one, in the bodies of loops as well."""
    if not has_any(closed.jaxpr, "gather", *SCATTERS):
        return closed
    while True:  # what is joined may be part of what can be joined
        jaxpr = closed.jaxpr
        makers = Makers(jaxpr.eqns)
        constants = dict(zip(jaxpr.constvars, closed.consts, strict=True))
        uses = use_counts(jaxpr)
        found = {eqn: own for eqn in jaxpr.eqns if (own := _joined(eqn, makers, constants, uses)) is not None}
        if not found:
            return with_remade(closed, {}, join_tables)
        closed = with_remade(closed, found, lambda body: body)
