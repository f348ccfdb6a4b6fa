"""Graphs by their meaning: the interpreter with other numbers, a family of vertices at once.

Each vertex is its codelet's jaxpr, batched by JAX over all vertices of its family. So nothing that the library does to
a graph before it runs is relied on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core as jax_core

from codelet.errors import Line
from codelet.field import meanings
from codelet.field.meanings import NotUnderstood
from codelet.field.moves import together
from codelet.field.values import Unknown, Value, are_positive, moved
from codelet.graphs.family import Family, Field
from codelet.graphs.graph import Graph
from codelet.graphs.vertices import Vertex
from codelet.interpret import Interpreter
from codelet.tracing.statics import restored
from codelet.views.sources import Source, Variable, assembled, source_elements, source_variables
from codelet.views.tensor import Tensor
from lowering.equality.floats import in_float64

MOST_ELEMENTS = 1 << 22
"""Of the fields of vertices that are evaluated at once."""


class Meaning(Interpreter):
    """Interprets a graph with other numbers than NumPy's.

    Attributes:
        evaluation: evaluates codelets.
    """

    def __init__(self, graph: Graph, values: Mapping[str, Value], evaluation: meanings.Field):
        self.evaluation = evaluation
        super().__init__(graph, {})
        self._firsts = np.array([variable.first_element for variable in graph.sources])
        self._batched: dict[tuple[int, int], tuple[Any, Any]] = {}
        for variable in graph.sources:
            if variable.name in values:
                flat = moved(values[variable.name], lambda own, lead: own.reshape(*own.shape[:lead], -1))
                self.arrays[variable.first_element] = flat  # type: ignore[assignment]
                self.written[variable.first_element : variable.first_element + variable.size] = True

    def held(self, variable: Variable, given: Any) -> Any:
        return self._known(np.zeros(variable.size, variable.dtype) if given is None else np.asarray(given).reshape(-1))

    def _known(self, array: np.ndarray) -> np.ndarray:
        """Numbers of the graph as they are evaluated: all that are evaluated in float64 are, where nothing is drawn."""
        return array if self.evaluation.draws else in_float64(array)

    def flat(self, source: Source) -> Value:
        """The values of a source in one dimension."""
        if isinstance(source, Variable):
            return self.arrays[source.first_element]
        arrays: list[Any] = [self.arrays[own.first_element] for own in source_variables(source)]
        if not any(isinstance(own, Unknown) for own in arrays):
            # Of what the variables hold, which is longer than what the source has where all is in float64.
            of_variable = lambda own, at: self.arrays[own.first_element][at]  # noqa: E731
            return assembled(source, np.result_type(source.dtype, *arrays), of_variable, lambda value: value)
        parts: list[Value] = []
        for patch in source.patches:
            if patch.variable is None:
                parts.append(np.asarray(0 if patch.value is None else patch.value, source.dtype))
                continue
            index = patch.index.values()
            own = self.arrays[patch.variable.first_element]
            parts.append(moved(own, lambda array, lead, at=index: array.take(at, -1)))
        each, lead, back = together(self.evaluation, parts, source.dtype)
        made = np.zeros((*each[0].shape[:lead], source.size), np.int64)
        for patch, own in zip(source.patches, each, strict=True):
            places = patch.places.values()
            made[..., places] = own.reshape(*own.shape, *(1,) * (lead + places.ndim - own.ndim))
        return back(made)

    def gathered(self, tensor: Tensor) -> Value:
        index = tensor.index.values()
        return moved(self.flat(tensor.source), lambda own, lead: own.take(index, -1))

    def put(self, elements: Sequence[int], values: Value) -> None:
        at = np.asarray(elements, np.int64).reshape(-1)
        if not at.size:
            return
        flat = moved(values, lambda own, lead: own.reshape(*own.shape[:lead], -1))
        for places, part in self._by_variable(at, flat):
            variable, _ = self.graph.locate(int(places[0]))
            own = self._changed(variable, places - variable.first_element, part)
            self.arrays[variable.first_element] = own  # type: ignore[assignment]

    def _by_variable(self, at: np.ndarray, flat: Value) -> Iterator[tuple[np.ndarray, Value]]:
        """Elements of each variable, with their values; at once where all are of one."""
        first, last = np.searchsorted(self._firsts, (at.min(), at.max()), side="right")
        if first == last:
            yield at, flat
            return
        owners = np.searchsorted(self._firsts, at, side="right")
        for owner in np.unique(owners):
            chosen = np.flatnonzero(owners == owner)
            yield at[chosen], moved(flat, lambda own, lead, k=chosen: own.take(k, -1))

    def _changed(self, variable: Variable, places: np.ndarray, values: Value) -> Value:
        before: Value = self.arrays[variable.first_element]
        is_whole = len(places) == variable.size
        if not isinstance(values, Unknown) and (is_whole or not isinstance(before, Unknown)):
            known = np.zeros(variable.size, values.dtype) if isinstance(before, Unknown) else np.array(before)
            known[places] = values
            return known
        if is_whole:
            before = moved(values, lambda own, lead: own)
        (old, new), _, back = together(self.evaluation, (before, values), variable.dtype)
        made = np.array(old)
        for row, own in zip(made.reshape(-1, made.shape[-1]), new.reshape(-1, new.shape[-1]), strict=True):
            row[places] = own
        changed = back(made)
        assert isinstance(changed, Unknown)
        changed.is_positive = are_positive([before, values])
        return changed

    def number(self, tensor: Tensor, by: str, line: Line | None) -> int:
        value = self.read(tensor, by, line)
        if isinstance(value, Unknown):
            raise NotUnderstood(None, f"{by} depends on floats that are not known", line)
        return int(value)

    # --- vertices -------------------------------------------------------------------------------------------

    def step(self, families: Sequence[Family], checked: set[Family]) -> None:
        made = [own for family in families if family.num_vertices for own in self._family(family)]
        for elements, values in made:
            self.put(elements.reshape(-1), values)  # type: ignore[arg-type]
            self.written[elements.reshape(-1)] = True

    def _family(self, family: Family) -> list[tuple[np.ndarray, Value]]:
        """The elements that a family writes, with the value of each."""
        if family.rows:
            return self._by_vertex(family)
        n = family.num_vertices
        sizes = sum(math.prod(own.type.shape) for own in family.fields) + 1
        block = max(1, MOST_ELEMENTS // sizes)
        inputs = {own.name: self._input(family, own) for own in family.fields if own.kind != "out"}
        made = []
        for first in range(0, n, block):
            part = slice(first, min(n, first + block))
            own = {
                name: moved(v, lambda a, lead, at=part: a[(slice(None),) * lead + (at,)]) for name, v in inputs.items()
            }
            results = self._results(family, own, part.stop - part.start)
            for name, values in results.items():
                made.append((self._elements(family, name)[part], values))
        return made

    def positions(self, family: Family, field: Field) -> np.ndarray:
        """The flat positions in its source that a field has at all vertices: (vertices, ...)."""
        tensor = field.tensor
        assert tensor is not None
        index = np.broadcast_to(tensor.index.values(family.axes), (*family.extents, *tensor.shape))
        return index.reshape(family.num_vertices, *tensor.shape)

    def _elements(self, family: Family, name: str) -> np.ndarray:
        field = family.by_name[name]
        assert field.tensor is not None
        places = source_elements(field.tensor.source)[self.positions(family, field)]
        return np.asarray(places).reshape(family.num_vertices, -1)

    def _input(self, family: Family, field: Field) -> Value:
        """A field of all vertices: (vertices, ...)."""
        n = family.num_vertices
        if field.tensor is not None:
            index = self.positions(family, field)
            elements = np.asarray(source_elements(field.tensor.source)[index]).reshape(n, -1)
            there = np.where(elements >= 0, self.written[elements], True)
            if not there.all():
                vertex = Vertex(family, int(np.flatnonzero(~there.all(1))[0]))
                self.read(vertex.fields[field.name], vertex)
            return moved(self.flat(field.tensor.source), lambda own, lead: own.take(index, -1))
        assert field.state is not None
        shape = tuple(field.type.shape)
        if field.state.index is not None:
            own = np.broadcast_to(field.state.index.values(family.axes), (*family.extents, *shape))
        else:
            assert field.state.array is not None
            array = field.state.array
            own = array if array.ndim > len(shape) else np.broadcast_to(array, (*family.extents, *shape))
        return self._known(np.asarray(own, field.type.dtype).reshape(n, *shape))

    def _results(self, family: Family, fields: Mapping[str, Value], n: int) -> dict[str, Value]:
        traced = family.codelet
        closed = traced.jaxpr
        key = id(closed), n
        if key not in self._batched:
            structs = [jax.ShapeDtypeStruct((n, *kind.shape), kind.dtype) for kind in traced.inputs.values()]
            with restored(traced.settings):
                self._batched[key] = closed, jax.make_jaxpr(jax.vmap(jax_core.jaxpr_as_fun(closed)))(*structs)
        results = self.evaluation.run(self._batched[key][1], [fields[name] for name in traced.inputs])
        return dict(zip(traced.outputs, results, strict=True))

    def _by_vertex(self, family: Family) -> list[tuple[np.ndarray, Value]]:
        made, traces = [], dict[tuple[int, ...], Any]()
        for number in range(family.num_vertices):
            vertex = Vertex(family, number)
            own, sizes = {}, {}
            for name, kind in family.codelet.inputs.items():
                given = vertex.fields[name]
                own[name] = self.read(given, vertex) if isinstance(given, Tensor) else np.asarray(given, kind.dtype)
                sizes.update(zip(kind.shape, own[name].shape, strict=True))
            lengths = {symbol: sizes[symbol] for symbol in family.rows}
            key = tuple(lengths.values())
            if key not in traces:
                traces[key] = family.codelet.at(lengths)
            results = self.evaluation.run(traces[key].jaxpr, [own[name] for name in traces[key].inputs])
            for name, values in zip(traces[key].outputs, results, strict=True):
                made.append((vertex.fields[name].elements(), values))
        return made
