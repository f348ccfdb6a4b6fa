"""Added: variables and vertices that a backward pass adds to a graph, under names that nothing has."""

from __future__ import annotations

from typing import Any

import numpy as np

from codelet.graphs.graph import Graph
from codelet.programs.copies import Copy
from codelet.programs.program import Execute
from codelet.tracing.codelets import Codelet
from codelet.views.sources import Variable
from codelet.views.tensor import Tensor


def variable_of(tensor: Tensor) -> Variable:
    """The variable that a tensor views, and nothing else."""
    assert isinstance(tensor.source, Variable)
    return tensor.source


def new_tensor(graph: Graph, name: str, shape: tuple[int, ...], dtype: Any) -> Tensor:
    """A variable more, all of it."""
    return graph.add_variable(graph.free_name(name), shape, dtype)


def new_variable(graph: Graph, name: str, like: Variable) -> Variable:
    """A variable more, of the shape and dtype of another."""
    return variable_of(new_tensor(graph, name, like.shape, like.dtype))


def new_vertices(graph: Graph, name: str, codelet: Codelet, **fields: object) -> tuple[Execute, Any]:
    """Vertices of a compute set more: their codelet, and the result of `Graph.add_vertex`."""
    compute_set = graph.add_compute_set(graph.free_name(name))
    made = graph.add_vertex(compute_set, codelet, **fields)
    return Execute(compute_set), made


def zeros(tensor: Tensor) -> Copy:
    """A copy of zeros to a tensor, of whatever dtype it is: a bool takes no integer."""
    return Copy(np.zeros((), tensor.dtype), tensor)
