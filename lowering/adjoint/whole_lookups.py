"""Whole look-ups: look-ups at places known only at run time, gone back through by all vertices of a family together.

A vertex that takes rows of a table contributes zeros to all others: as many tables as there are vertices. In comes the
adjoint of a codelet by one field, whose equations add updates of slices to zeros. Out come, for each such addition, a
codelet of the places and updates alone, and the numbers by which those of all vertices are added to zeros at once
(`ops.gather_gradient`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet import ops
from codelet.graphs.graph import Graph
from codelet.jaxprs.equations import Atomic, Makers, needed
from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import inline
from codelet.ops.lookups import as_int32
from codelet.tracing.adjoints import AdjointCodelet, adjoint_of
from codelet.tracing.codelet_from_jaxpr import JaxprCodelet
from codelet.tracing.field_types import FieldType
from codelet.views.tensor import Tensor
from lowering.adjoint.fields import held_over, is_injective
from lowering.adjoint.flows import FamilyFlow
from lowering.adjoint.saved import Body
from lowering.adjoint.shifted import Contribution
from lowering.jaxprs.tables_of_updates import is_zero
from lowering.plan.elements import ElementSet

if TYPE_CHECKING:
    from lowering.adjoint.backward import Backward

INDICES, UPDATES = "places of slices", "updates of slices"
"""The results of a codelet of updates: no parameter is called so."""


class Addition(NamedTuple):
    """Updates of slices that a vertex adds to zeros.

    Attributes:
        codelet: computes their places, and them, of the fields of the adjoint.
        numbers: which dimensions are which, as of the look-up that they go back through.
        sizes: of a slice.
        mode: for slices that are out of range.
        indices: the type of where they begin.
        updates: and their updates.
        shape: that the zeros have, of as many elements as the field.
    """

    codelet: JaxprCodelet
    numbers: lax.GatherDimensionNumbers
    sizes: tuple[int, ...]
    mode: Any
    indices: FieldType
    updates: FieldType
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many elements a vertex holds of both."""
        return math.prod(self.indices.shape) + math.prod(self.updates.shape)

    def added(self, graph: Graph, like: Tensor, indices: Tensor, updates: Tensor, batch: Sequence[int]) -> Tensor:
        """The updates of all vertices, added to zeros.

        Args:
            graph: where.
            like: the array that they update, in dimensions that choose a table before those of one.
            indices: where they begin, with the axes of the vertices before the dimensions of one of these.
            updates: likewise.
            batch: the axes that choose a table, in order.
        """
        own, tables, axes = self.numbers, len(batch), indices.ndim - len(self.indices.shape)
        after = lambda dimensions: tuple(d + tables for d in dimensions)  # noqa: E731
        numbers = lax.GatherDimensionNumbers(
            tuple(d + axes for d in own.offset_dims),
            after(own.collapsed_slice_dims),
            after(own.start_index_map),
            tuple(range(tables)),
            tuple(batch),
        )
        sizes, table = (*[1] * tables, *self.sizes), like.reshape((*like.shape[:tables], *self.shape))
        made = ops.gather_gradient(graph, updates, table, indices, numbers, sizes, mode=self.mode)
        return made.reshape(like.shape)


def _of_slice(operand: Any, update: Any, starts: Sequence[Any]) -> tuple[Any, Any, lax.GatherDimensionNumbers]:
    """Where one slice begins, and its update, without dimensions along which it is one of many or all."""
    shape, sizes = operand.shape, update.shape
    moving = [d for d in range(len(shape)) if sizes[d] != shape[d]]
    single = tuple(d for d in moving if sizes[d] == 1)
    kept = [n for d, n in enumerate(sizes) if d not in single]
    counted = [starts[d] if starts[d].dtype == np.int32 else as_int32(starts[d]) for d in moving]
    clipped = [lax.clamp(0, own, shape[d] - sizes[d]).reshape(1) for d, own in zip(moving, counted, strict=True)]
    indices = lax.concatenate(clipped, 0) if clipped else jnp.zeros(0, jnp.int32)
    return (
        indices,
        jnp.reshape(update, kept),
        lax.GatherDimensionNumbers(tuple(range(len(kept))), single, tuple(moving)),
    )


def _summands(atom: Atomic, makers: Makers) -> Iterator[jax_core.JaxprEqn | None]:
    """The summands of an array, each in a separate shape; None for an array that is no equation's result."""
    maker = makers.of(atom)
    if maker is not None and is_understood(maker, "add_any", "reshape"):
        for own in maker.invars:
            yield from _summands(own, makers)
    else:
        yield maker


def _addition(adjoint: AdjointCodelet, closed: jax_core.ClosedJaxpr, eqn: jax_core.JaxprEqn) -> Addition:
    """The places and updates of a slice or of several that an equation adds to zeros."""
    jaxpr, operands = closed.jaxpr, eqn.invars[1:]
    alone = jaxpr.replace(outvars=operands, eqns=needed(jaxpr, results=operands), debug_info=_DEBUG_INFO)
    zeros: Any = eqn.invars[0].aval
    found: list[Any] = []

    def run(*given: Any) -> tuple[Any, Any]:
        values = jax_core.jaxpr_as_fun(jax_core.ClosedJaxpr(alone, closed.consts))(*given)
        if eqn.primitive.name == "dynamic_update_slice":
            update, *starts = values
            indices, updates, numbers = _of_slice(zeros, update, starts)
            found.append((numbers, update.shape, "promise_in_bounds"))
        else:
            indices, updates = values
            own = eqn.params["dimension_numbers"]
            gone, sizes = own.inserted_window_dims, iter(updates.shape[d] for d in own.update_window_dims)
            numbers = lax.GatherDimensionNumbers(own.update_window_dims, gone, own.scatter_dims_to_operand_dims)
            found.append(
                (numbers, tuple(1 if d in gone else next(sizes) for d in range(zeros.ndim)), eqn.params["mode"])
            )
        return indices, updates

    made = jax.make_jaxpr(run)(*(jax.ShapeDtypeStruct(own.shape, own.dtype) for own in closed.in_avals))
    ((numbers, sizes, mode),) = found
    codelet = JaxprCodelet([made], adjoint.fields.given, (INDICES, UPDATES), adjoint.name, adjoint.hints)
    indices, updates = (FieldType(tuple(own.shape), own.dtype) for own in made.out_avals)
    return Addition(codelet, numbers, sizes, mode, indices, updates, tuple(zeros.shape))


_DEBUG_INFO = jax_core.DebugInfo("codelet", "updates", None, None)


def additions(adjoint: AdjointCodelet) -> list[Addition]:
    """The updates that the contribution of an adjoint to one field is made of; none where it is anything else."""
    closed = inline(adjoint.jaxpr)
    (result,), makers = closed.jaxpr.outvars, Makers(closed.jaxpr.eqns)
    found = []
    for eqn in _summands(result, makers):
        is_sum = eqn is not None and is_understood(eqn, "dynamic_update_slice", "scatter-add")
        if eqn is None or not is_sum or not is_zero(eqn.invars[0], makers):
            return []
        numbers = eqn.params.get("dimension_numbers")
        if numbers is not None and numbers.operand_batching_dims:
            return []
        found.append(_addition(adjoint, closed, eqn))
    return found


def _contribution(
    back: Backward, body: Body, number: int, flow: FamilyFlow, name: str, later: ElementSet
) -> list[Contribution]:
    """The contribution of a family through a field of look-ups; nothing where it is not, or better stored as it is."""
    family, adjoint, tensor = flow.family, flow.adjoint, flow.family.by_name[name].tensor
    assert adjoint is not None
    assert tensor is not None
    alone = adjoint_of(family.codelet, [name], [*adjoint.fields.cotangents])
    found = [] if alone is None else additions(alone)
    batch = [k for k, axis in enumerate(family.axes) if axis in tensor.index.axes]
    places, step, made = tensor.index.lifted([family.axes[k] for k in batch]), family.compute_set.name, []
    if alone is None or sum(own.size for own in found) >= tensor.size or not is_injective(places):
        return []
    for own in found:
        kinds = {INDICES: own.indices, UPDATES: own.updates}
        held = {key: held_over(back.graph, f"{step}/{name}", family.axes, kind) for key, kind in kinds.items()}
        fields = back.read(body, number, family, alone.fields, later)
        back.sums.run(step, own.codelet, **fields, **{key: view for key, (_, view) in held.items()})
        like, (indices, updates) = Tensor(tensor.source, places), (whole for whole, _ in held.values())
        added = functools.partial(own.added, like=like, indices=indices, updates=updates, batch=batch)
        values = back.sums.recorded(f"{step}/{name}", added)
        made.append(Contribution(step, name, {"": values}, places, tensor.source, flow.received[name]))
    return made


def go_back_through_lookups(
    back: Backward, body: Body, number: int, flow: FamilyFlow, later: ElementSet
) -> tuple[FamilyFlow, list[Contribution]]:
    """The contribution of a family to the arrays it looks up at run time, and the rest of it.

    Args:
        back: the backward pass.
        body: the body that its compute set is run in.
        number: the place of the step there.
        flow: its adjoint.
        later: the elements that are written after the vertices have read.
    """
    family, adjoint, left, found = flow.family, flow.adjoint, [], []
    is_plain = not family.rows and not family.codelet.has_effects
    for name in () if adjoint is None or not is_plain else adjoint.fields.contributions:
        assert adjoint is not None
        is_apart = name not in adjoint.fields.cotangents and not flow.is_straight(name, back.present)
        own = _contribution(back, body, number, flow, name, later) if is_apart else []
        found += own
        left += [] if own else [name]
    return (flow.of(left) if found else flow), found
