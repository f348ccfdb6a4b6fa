"""Grains: the families of a compute set as fast execution runs them, the same whatever the grain of the graph is.

In come families of blocks, a computation cut this way or that. Out come, where that gains something, families of
their elements (`refine.py`), parts of one joined to it (`alike_families.py`): a convolution of patches is one whole
convolution, and what is left over where no block divides an extent is no kernel of its own. Every family that gains
nothing by it stays as it is: products of blocks side by side are contracted to one (`lowering/jaxprs/contract.py`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from codelet.graphs.family import Family
from codelet.jaxprs.primitives import ELEMENTWISE, MOVING, is_understood
from codelet.jaxprs.rebuild import inline
from codelet.views.tensor import Tensor
from lowering.fast.convolutions import Convolution, as_convolution
from lowering.fast.inputs import Inputs
from lowering.fast.pooling import as_pooling
from lowering.fast.small_windows import is_small_window, overlaps
from lowering.fast.vmapped import as_windows_apart
from lowering.jaxprs.unmap import Unmapped, unmap
from lowering.join.alike_families import JoinedFamily, join_alike
from lowering.join.refine import refine
from lowering.plan.collect import may_be_shorter, normalize_family
from lowering.plan.steps import ExecuteStep


def _convolves(family: Family) -> bool:
    """Whether a family convolves: its codelet a patch, or all of its vertices, which multiply windows by kernels."""
    found = unmap(family.codelet.jaxpr) if not family.rows else None
    if found is None or found.convolves:
        return found is not None
    own = refine(family) if any(map(overlaps, family.inputs)) else None
    return own is not None and isinstance(as_convolution(own, Inputs([own])), Convolution)


def _looks_late(family: Family) -> bool:
    """Whether the codelet of a family takes or puts slices at places known only at run time."""
    eqns = inline(family.codelet.jaxpr).eqns
    return any(eqn.primitive.name in ("dynamic_slice", "dynamic_update_slice") for eqn in eqns)


def _is_no_copy(family: Family) -> bool:
    """Whether windows of a family need not be copied.

    None overlap, or it is a convolution or a pooling, or they are small and the codelet goes by their elements.
    """
    inputs = Inputs([family])
    found = as_convolution(family, inputs)
    if not isinstance(found, str) or not found or not isinstance(as_pooling(family, inputs), str):
        return True
    is_small = all(is_small_window(field) for field in family.inputs if overlaps(field))
    return is_small and not isinstance(as_windows_apart(family, inputs), str)


def _map_in_pieces(family: Family) -> Family | None:
    """The elements that a family maps, where they have fewer tables, or dimensions, than its grid and blocks have.

    Or as many, and lie in the order of these, as those of its blocks do not: these would be transposed there and back.
    """
    written = _written(family)
    if written is None or family.num_vertices < 2 or written.index.ndim < 2:
        return None
    found = unmap(family.codelet.jaxpr) if not family.rows else None
    if found is None or not _maps(found):
        return None
    own = refine(family)
    return own if own is not None and _shape(own) < _shape(family) else None


def _maps(found: Unmapped) -> bool:
    """Whether elements are mapped: nothing is summed or looked up in what is left of each, and that is no window."""
    left = [place for own in (*found.inputs, *found.outputs) for place in own if place.left is not None]
    is_by_element = all(is_understood(eqn, *ELEMENTWISE, *MOVING) for eqn in found.jaxpr.eqns)
    return not left or (is_by_element and all(place.axis is None for place in left))


def _written(family: Family) -> Tensor | None:
    """What a family writes first."""
    return next((field.tensor for field in family.outputs if field.tensor is not None), None)


def _shape(family: Family) -> tuple[int, int, bool]:
    """How many tables a family has, how many dimensions what it writes first, and whether that is turned.

    It is where it does not lie in the order of the grid, and then of the dimensions of blocks.
    """
    written = _written(family)
    assert written is not None
    index = written.index
    inside = [step for n, step in zip(index.shape, index.strides, strict=True) if n > 1]
    steps = [abs(step) for step in (*map(index.coefficient, family.axes), *inside)]
    return _num_tables(family), len(index.keys), steps != sorted(steps, reverse=True)


def _num_tables(family: Family) -> int:
    """How many tables the edges of a family have."""
    return sum(len(field.tensor.index.tables) for field in family.fields if field.tensor is not None)


def _without_tiles(family: Family) -> Family:
    """A family whose axes are those of its fields alone, where its tiles run along parts of them, or irregularly."""
    if family.tile is None or family.rows:
        return family
    made = replace(family, tile=None)
    if not may_be_shorter(made):
        return family
    made = normalize_family(made)
    return made if (_num_tables(made), len(made.axes)) < (_num_tables(family), len(family.axes)) else family


def join_blocks(step: ExecuteStep) -> ExecuteStep:
    """A compute set with families of elements for those of blocks that gain by it.

    On which tiles vertices are, fast execution does not ask.
    """
    given, families = step.families, tuple(map(_without_tiles, step.families))
    written = [{f.tensor.source for f in own.fields if f.is_written and f.tensor is not None} for own in families]
    writers = Counter(source for sources in written for source in sources)
    convolves = [family.num_vertices > 1 and _convolves(family) for family in families]
    late = [_looks_late(family) for family in families]
    writes_beside = [any(writers[source] > 1 for source in sources) for sources in written]
    maps = [_map_in_pieces(family) for family in families]
    chosen = [k for k in range(len(families)) if convolves[k] or late[k] or writes_beside[k] or maps[k]]
    refined = [maps[k] or refine(families[k]) or families[k] for k in chosen]
    instead: dict[Family, list[Family]] = {}
    parts: dict[Family, tuple[Family, ...]] = {}
    apart: dict[Family, str] = {}
    # What is constant may be a phase of what is not: it is no part of another.
    constant = [k for k, number in enumerate(chosen) if not families[number].codelet.inputs]
    others = [k for k in range(len(chosen)) if k not in constant]
    joined = join_alike([refined[k] for k in others])
    joined = [own._replace(numbers=tuple(others[k] for k in own.numbers)) for own in joined]
    for family, numbers, reason in [*joined, *(JoinedFamily(refined[k], (k,)) for k in constant)]:
        own = [chosen[k] for k in numbers]
        alone = convolves[own[0]] or late[own[0]] or maps[own[0]] is not None or not families[own[0]].codelet.inputs
        is_other = len(own) > 1 or (alone and family is not families[own[0]])
        if is_other and (not any(convolves[k] for k in own) or _is_no_copy(family)):
            parts[family] = tuple(given[k] for k in own)
            instead.update({families[k]: [family] if k == own[0] else [] for k in own})
        if reason:
            apart.update({one: reason for k in own for one in instead.get(families[k], [families[k]])})
    parts.update(
        {now: (was,) for was, now in zip(given, families, strict=True) if was is not now and now not in instead}
    )
    if not parts and not apart:
        return step
    made = tuple(one for family in families for one in instead.get(family, [family]))
    return replace(step, families=made, parts=parts, apart=apart)
