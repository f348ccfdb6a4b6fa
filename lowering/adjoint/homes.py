"""Homes: where the elements live that a backward pass adds to a graph whose elements are mapped to tiles by hand.

In come the new variables, and which of them stand for another: cotangents, and saved values, live where that does. The
rest follows the programs, step by step. Elements that a vertex is the first to touch live with the vertex. It is on its
given tile, or where its first written element is, or else its last read one, its cotangent; a copied value lives at its
source, or at its destination; a constant where it is first needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from codelet.graphs.family import Family
from codelet.graphs.graph import Graph
from codelet.graphs.vertices import free_axes, vertex_numbers
from codelet.programs.program import Program
from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import Tensor, whole_view
from lowering.plan.collect import collect
from lowering.plan.dataflow import flow
from lowering.plan.steps import CopyStep, ExecuteStep, Step
from lowering.plan.timeline import without_calls
from lowering.plan.walk import all_steps

_Pairs = tuple[np.ndarray, np.ndarray]
"""Numbers of elements, and beside each that of the vertex that touches it."""


def _touched(family: Family, tensor: Tensor) -> _Pairs:
    if tensor.rows is None:
        elements = tensor.elements(family.axes)
        vertices = np.arange(family.num_vertices).reshape((*family.extents, *[1] * tensor.ndim))
    else:
        elements, vertices = tensor.elements(free_axes(family, tensor)), vertex_numbers(family, tensor)
    vertices = np.broadcast_to(vertices, elements.shape).reshape(-1)
    is_element = elements.reshape(-1) >= 0
    return elements.reshape(-1)[is_element], vertices[is_element]


def _keep_first(tiles: np.ndarray, places: np.ndarray, given: np.ndarray) -> None:
    """Give places that have no tile yet the first that is given to each, -1 for none."""
    is_new = (tiles[places] < 0) & (given >= 0)
    tiles[places[is_new][::-1]] = given[is_new][::-1]


def _settle(family: Family, tiles: np.ndarray) -> None:
    """Put elements that the vertices of a family are the first to touch on their tiles."""
    fields = [own for own in family.fields if own.tensor is not None]
    fields = [own for own in fields if own.is_written] + [own for own in reversed(fields) if not own.is_written]
    touched = [_touched(family, own.tensor) for own in fields if own.tensor is not None]
    if family.tile is not None:
        own = np.ascontiguousarray(family.tile.values_over(family.axes, np.int32)).reshape(-1)
    else:
        own = np.full(family.num_vertices, -1, np.int32)
        for elements, vertices in touched:
            _keep_first(own, vertices, tiles[elements])
    for elements, vertices in touched:
        _keep_first(tiles, elements, own[vertices])


def _follow(steps: Iterable[Step], tiles: np.ndarray) -> None:
    for step in steps:
        if isinstance(step, ExecuteStep):
            for family in step.families:
                if family.num_vertices:
                    _settle(family, tiles)
        elif isinstance(step, CopyStep):
            source, destination = np.broadcast_arrays(step.source.elements(), step.destination.elements())
            both = (source >= 0) & (destination >= 0)
            if not any(variable.value is not None for variable in source_variables(step.source.source)):
                _keep_first(tiles, destination[both], tiles[source[both]])
            _keep_first(tiles, source[both], tiles[destination[both]])


def map_to_tiles(graph: Graph, new: Iterable[Variable], like: Mapping[Variable, Variable], program: Program) -> None:
    """Map the elements of new variables to tiles, where the graph's elements are mapped.

    Args:
        graph: of the variables.
        new: the variables; those that the program never names live on the first tile.
        like: which of them live where another does, row by row where there are several of its shape.
        program: the program that names them.
    """
    if not graph.has_tile_mapping:
        return
    tiles, new = graph.element_tiles, [own for own in new if own.size]
    of = lambda variable: tiles[variable.first_element : variable.first_element + variable.size]  # noqa: E731
    before = set(graph.sources) - set(new)
    for variable in new:
        of(variable)[:] = np.resize(of(like[variable]), variable.size) if variable in like else -1
    _follow(all_steps(without_calls(flow(collect(graph, program, (), ()))).steps), tiles)
    is_whole = not any((of(variable) < 0).any() for variable in before if variable.size)
    for variable in new:
        if is_whole or (of(variable) >= 0).all():  # else what the placement pass finds for it
            graph.set_tile_mapping(whole_view(variable), np.maximum(of(variable), 0).reshape(variable.shape))
