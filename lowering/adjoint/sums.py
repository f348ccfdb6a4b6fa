"""Sums: contributions to elements, put where nothing is yet, and added to the old value.

In come values and, for each of them, the element of a variable that it is a contribution to. Out come programs and
vertices by which each element holds the sum of its contributions, added in one order always. A single contribution is
copied, or added; where the access map drops dimensions, contributions are reduced over these; any other are listed by
the element that receives them. Of inner products no contributions are made: `gathered.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np

from codelet import ops
from codelet.graphs.graph import Graph
from codelet.programs.copies import Copy
from codelet.programs.program import Execute, Program
from codelet.tracing.codelets import Codelet, codelet
from codelet.views.index import Index
from codelet.views.integers import affine_length, integer_dtype, narrowed, narrowest
from codelet.views.ragged import Ragged
from codelet.views.rows import Rows
from codelet.views.sources import Patchwork, Source, Variable
from codelet.views.symbols import grid, table
from codelet.views.tensor import Tensor, whole_view
from lowering.adjoint.added import new_tensor, new_variable, new_vertices, zeros
from lowering.adjoint.fields import is_injective
from lowering.adjoint.gathered import Gathering, gathered, product_of, targets_of
from lowering.adjoint.sum_vertices import Summed, blocks
from lowering.plan.elements import Elements
from lowering.plan.runs import Runs


def of_other_variables(tensor: Tensor, others: dict[Variable, Variable]) -> Tensor:
    """The same view of other variables, each of which has as many elements as that in whose place it is."""
    source = tensor.source
    if isinstance(source, Variable):
        made: Source = others.get(source, source)
    else:
        own = lambda patch: patch.variable and others.get(patch.variable, patch.variable)  # noqa: E731
        patches = [replace(patch, variable=own(patch)) for patch in source.patches]
        made = Patchwork(source.graph, source.dtype, source.shape, tuple(patches))
    return Tensor(made, tensor.index, tensor.rows, tensor.ragged_dimension)


T = TypeVar("T")

LEAST_LIST = 32
"""So many contributions a vertex sums at least before a list is summed in parts; a guess."""


@codelet
def add_to(acc, x):
    """A contribution, added."""
    return {"acc": acc + x}


@codelet
def sum_of(x):
    """All contributions to an element."""
    return jnp.sum(x)


@codelet
def add_sum_of(acc, x):
    """All contributions to an element, added."""
    return {"acc": acc + jnp.sum(x)}


class Sums:
    """Adds up contributions, by vertices and programs of a graph.

    Attributes:
        graph: the graph.
        programs: the programs, in order; whoever asks for sums may add to it.
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        self.programs: list[Program] = []

    def run(self, name: str, codelet: Codelet, /, **fields: object) -> None:
        """Run vertices next."""
        self.programs.append(new_vertices(self.graph, name, codelet, **fields)[0])

    def run_beside(self, place: int, codelet: Codelet, /, **fields: object) -> None:
        """Run vertices in the compute set that is run at a place of the programs, and all that follows it before it."""
        beside = self.programs[place]
        assert isinstance(beside, Execute)
        self.graph.add_vertex(beside.compute_set, codelet, **fields)
        self.programs[place:] = [*self.programs[place + 1 :], beside]

    @property
    def num_workers(self) -> int:
        """How many vertices run at once."""
        return self.graph.target.num_tiles * self.graph.target.num_workers

    def run_all(self, name: str, made: Iterable[Summed]) -> None:
        """Run families of sums next, in one compute set."""
        compute_set = self.graph.add_compute_set(self.graph.free_name(name))
        for kind, fields in made:
            self.graph.add_vertex(compute_set, kind, **fields)
        self.programs.append(Execute(compute_set))

    def zero(self, variable: Variable, elements: Elements) -> None:
        """Give elements the value zero."""
        if elements.is_all and variable.size:
            self.programs.append(zeros(whole_view(variable)))
        else:
            self.programs += [zeros(Tensor(variable, own)) for own in elements.indices()]

    def add(
        self, name: str, values: Tensor, places: Index, variable: Variable, present: Elements, kept: Elements
    ) -> Elements:
        """Add contributions to elements of a variable.

        Args:
            name: of the step.
            values: the contributions, without symbols.
            places: the flat position in the variable that each is a contribution to, of the same shape; all dimensions
                tell elements apart.
            variable: that holds the sums.
            present: the elements that hold something already; the others hold nothing.
            kept: the elements that must not be written unless there are contributions to them.

        Returns:
            The elements that hold something now.
        """
        if not values.size:
            return present
        region = Elements.of_view(places, (), variable.size, variable.name)
        is_listed = not is_injective(places)
        if is_listed:
            region = _rounded(region, kept)
        is_added = (region & present).first is not None
        if is_added:
            self.zero(variable, region - present)
        if is_listed:
            self._listed(name, values, places, variable, region, is_added)
        else:
            self._put(name, values, Tensor(variable, places), is_added)
        return present | region

    def gather(
        self,
        name: str,
        found: Gathering,
        slopes: Tensor,
        others: Tensor,
        cotangents: Sequence[tuple[Variable, Variable]],
        is_added: bool,
    ) -> bool:
        """Gather the contributions of inner products; False where they cannot be gathered.

        Args:
            name: of the step.
            found: how they are gathered.
            slopes: the cotangents of the products, as these are written.
            others: the field that is multiplied with the one that the contributions are for, as it is read.
            cotangents: variables, and the variable of each one's cotangents.
            is_added: whether sums are added to the old value.
        """
        assert found.field.tensor is not None
        sums: dict[Variable, Variable] = {}
        for _, own in cotangents if is_added else ():
            sums[own] = new_variable(self.graph, name, own)
        held = {v: whole_view(sums.get(own, own)) for v, own in cotangents}
        targets = targets_of(found, found.field.tensor.source, held)
        if targets is None:
            return False
        families = list(gathered(found, slopes, others, targets))
        compute_set = self.graph.add_compute_set(self.graph.free_name(name))
        for left, right, target in families:
            self.graph.add_vertex(
                compute_set, product_of, left=left, right=right, out=target, precision=found.product.precision
            )
        self.programs.append(Execute(compute_set))
        if is_added:
            added = self.graph.add_compute_set(self.graph.free_name(f"{name}/add"))
            those = {made: own for own, made in sums.items()}
            for _, _, target in families:
                all_of_it = Tensor(target.source, target.index.lifted(target.axes))
                acc, x = self._blocks(of_other_variables(all_of_it, those), all_of_it)
                self.graph.add_vertex(added, add_to, acc=acc, x=x)
            self.programs.append(Execute(added))
        return True

    def _put(self, name: str, values: Tensor, target: Tensor, is_added: bool) -> None:
        """Copy values, or add them."""
        if not is_added:
            self.programs.append(Copy(values, target))
            return
        acc, x = self._blocks(target, values)
        self.run(f"{name}/add", add_to, acc=acc, x=x)

    def _blocks(self, *tensors: Tensor) -> list[Tensor]:
        """Tensors of one shape, as vertices for blocks of their elements see them."""
        places, shape = blocks(list(map(range, tensors[0].shape)), self.num_workers)
        return [Tensor(own.source, own.index.compose(places, shape)) for own in tensors]

    def reduced(self, name: str, values: Tensor, dropped: Sequence[int]) -> Tensor:
        """Values summed over some dimensions."""
        return self.recorded(name, lambda graph: ops.sum(graph, values, axis=tuple(dropped)))

    def recorded(self, name: str, make: Callable[[Graph], T]) -> T:
        """The result of an operation whose compute sets run next."""
        with self.graph.scope(name, unique=True), self.graph.record() as recorded:
            made = make(self.graph)
        self.programs.append(recorded)
        return made

    def product(self, name: str, left: Tensor, right: Tensor, dimension_numbers: Any) -> Tensor:
        """The product of two arrays, as `ops.dot_general`."""
        return self.recorded(name, lambda graph: ops.dot_general(graph, left, right, dimension_numbers, name="product"))

    def _listed(
        self, name: str, values: Tensor, places: Index, variable: Variable, region: Elements, is_added: bool
    ) -> None:
        """Sum contributions by lists of those that each element of a region has.

        A list that is much longer than the work of a vertex where all do as much is summed in two stages: parts of it
        first.
        """
        flat, runs = values.flatten(), region.as_runs()
        first, stop = int(runs.starts[0]), int(runs.stops[-1])
        elements = None if len(runs.starts) == 1 else runs.numbers()
        order, counts = _in_lists(places, first, stop)
        counts = counts if elements is None else counts[elements - first]
        longest = max(LEAST_LIST, -(-len(order) // self.num_workers))
        if counts.max() > 4 * longest:
            counts = counts.astype(np.int64)
            parts = -(-counts // longest)
            ends = np.repeat(np.cumsum(counts) - counts, parts)
            ends += longest * (np.arange(len(ends)) - np.repeat(np.cumsum(parts) - parts, parts))
            flat = self._sums_of(f"{name}/parts", flat, order, np.diff(ends, append=len(order)))
            counts, order = parts, np.arange(len(ends))
        target = whole_view(variable).flatten()
        i = grid(len(counts))
        if elements is None or affine_length(elements) == len(elements):
            step = 1 if elements is None or len(elements) == 1 else int(elements[1] - elements[0])
            out = target[first + step * i]
        else:
            out = target[table(elements)[i]]
        lists = flat[_lists(order, counts, i)]
        if is_added:
            self.run(f"{name}/sum", add_sum_of, acc=out, x=lists)
        else:
            self.run(f"{name}/sum", sum_of, x=lists, out=out)

    def _sums_of(self, name: str, flat: Tensor, order: np.ndarray, counts: np.ndarray) -> Tensor:
        """The sums of lists of some values, in an order."""
        made = new_tensor(self.graph, name, (len(counts),), flat.dtype)
        i = grid(len(counts))
        self.run(name, sum_of, x=flat[_lists(order, counts, i)], out=made[i])
        return made


def _rounded(region: Elements, kept: Elements) -> Elements:
    """Elements, or all of a stretch of which they are half, where nothing else there is kept: it takes no table."""
    runs = region.as_runs()
    stretch = Elements(region.size, Runs(runs.starts[:1], runs.stops[-1:]))
    for more in (Elements.everything(region.size), stretch):
        if 2 * region.count >= more.count and ((more - region) & kept).first is None:
            return more
    return region


def _in_lists(places: Index, first: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    """The contributions in the order of the elements that receive them, and how many each has.

    Args:
        places: the element that each is a contribution to.
        first: the least element.
        stop: one more than the greatest.

    Returns:
        The numbers of the contributions, those to one element in order; and for each element from `first` to `stop` how
        many it has, unsigned.
    """
    receivers = places.values_over(range(places.ndim), integer_dtype(first, stop)).reshape(-1)
    counts = narrowest(np.bincount(receivers if not first else receivers - first, minlength=stop - first))
    # Of one number for both, which is sorted in its place: a stable `argsort` takes twice the time and the memory.
    bits = len(receivers).bit_length()
    both = receivers.astype(np.int64)
    both <<= bits
    both |= np.arange(len(both), dtype=np.int32)
    both.sort()
    both &= (1 << bits) - 1
    return narrowed(both), counts


def _lists(order: np.ndarray, counts: np.ndarray, i: Index) -> Index | Ragged:
    """Lists one after another, for the vertices along an axis: ragged where they are of different lengths."""
    if (counts == counts[0]).all():
        return table(order.reshape(-1, counts[0]))[i]
    return Ragged(Index.from_values(order, (0,), order.shape), 0, Rows(i.axes, counts))
