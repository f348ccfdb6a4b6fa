"""Grains: the families of a compute set as they run, which are the same whatever the grain of the graph is.

In come families of blocks, the same computation cut this way or that. Out come, where that gains something, families
of their elements (`refine.py`), parts of one joined to it (`join_families.py`): a convolution of patches is one whole
convolution, and what is left over where no block divides an extent is no kernel of its own. Every family that gains
nothing by it runs as it is: products of blocks side by side are contracted to one (`lowering/jaxprs/contract.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from codelet.graphs.family import Family, counted
from lowering.fast.convolutions import as_convolution
from lowering.fast.inputs import Inputs
from lowering.fast.join_families import join_families
from lowering.fast.refine import refine
from lowering.jaxprs.unmap import unmap


@dataclass(frozen=True, eq=False)
class Grain:
    """A family as it runs, and those of the graph that it stands for, in whose place it runs."""

    family: Family
    parts: tuple[Family, ...]

    def lines(self) -> list[str]:
        """What it is made of, as text."""
        rows = [row for part in self.parts for row in str(part).split("\n")]
        if self.parts == (self.family,):
            return rows
        family = self.family
        over = " x ".join(f"{name}: {n}" for name, n in zip(family.axis_names, family.extents, strict=True))
        how = "as one family" if len(self.parts) > 1 else "as elements"
        return [*rows, f"  {how}: {counted(family.num_vertices, 'vertex', 'vertices')} over {over}"]


def _convolves(family: Family) -> bool:
    """Whether the codelet of a family convolves a patch."""
    found = unmap(family.codelet.jaxpr) if not family.rows else None
    return found is not None and found.convolves


def _is_no_copy(family: Family) -> bool:
    """Whether windows of a family need not be copied: none overlap, or it is a convolution."""
    found = as_convolution(family, Inputs([family]))
    return not isinstance(found, str) or not found


def choose_grains(families: Sequence[Family]) -> list[Grain]:
    """The families of a compute set as they run, each with those that it stands for."""
    written = [{f.tensor.source for f in own.fields if f.is_written and f.tensor is not None} for own in families]
    writers = Counter(source for sources in written for source in sources)
    shares = [any(writers[source] > 1 for source in sources) for sources in written]
    convolves = [family.num_vertices > 1 and _convolves(family) for family in families]
    chosen = [k for k in range(len(families)) if shares[k] or convolves[k]]
    refined = [refine(families[k]) or families[k] for k in chosen]
    made: dict[int, Grain] = {}
    for family, numbers in join_families(refined):
        parts = [chosen[k] for k in numbers]
        whole = len(parts) > 1 or (convolves[parts[0]] and family is not families[parts[0]])
        if whole and (not any(convolves[k] for k in parts) or _is_no_copy(family)):
            made[parts[0]] = Grain(family, tuple(families[k] for k in parts))
            made.update(dict.fromkeys(parts[1:]))  # type: ignore[arg-type]
    own = [made.get(k, Grain(family, (family,))) for k, family in enumerate(families)]
    return [grain for grain in own if grain is not None]
