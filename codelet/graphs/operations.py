"""Operations: the calls by which a graph's vertices were added.

In come calls of operations, those of `cl.ops` and users' own. Out comes a record of each that has added vertices: its
arguments and its results, its compute sets, and the operations that it consists of. A record stands for no
vertex: vertices are run, checked, counted and drawn. Whoever uses one asks first whether these are still those that it
added. Vertices that no call added are described as operations, too, by the function that they are found to compute.

Source: MLIR's structured operations keep the origin of a loop nest, since that is hard to find again (N. Vasilache and
others, Composable and Modular Code Generation in MLIR, 2022).
"""

from __future__ import annotations

import functools
import importlib
import inspect
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax

from codelet.display import in_one_line
from codelet.errors import Line, user_line
from codelet.graphs.descriptions import Description
from codelet.graphs.family import counted
from codelet.graphs.stages import Stage
from codelet.programs.compute_sets import ComputeSet
from codelet.refused import Refused
from codelet.views.tensor import Tensor, whole_view

if TYPE_CHECKING:
    from codelet.graphs.graph import Graph


def _tensors(tree: Any) -> dict[str, Tensor]:
    """The tensors of a pytree, by where they are."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    name = functools.partial(jax.tree_util.keystr, simple=True, separator="/")
    return {name(path): leaf for path, leaf in leaves if isinstance(leaf, Tensor)}


class Operation:
    """A call that added vertices.

    Attributes:
        function: the called function; its derivative rule is known by it. None of vertices that no call added.
        kind: its name: `dot_general`; of vertices that no call added, that of their function: `product`.
        arguments: the arguments, by name, except the graph, with the defaults.
        result: the returned value; None while it is called.
        scope: the scopes that it was called in, then its name.
        line: the user's, that called it.
        parent: the operation that called it.
        parts: the operations that it called, in order.
        compute_sets: those that it made itself or by its parts, in order.
        num_vertices: how many each of these had when it was done.
        intermediates: intermediate tensors that its gradient may read, by name.
        stages: how the vertices of each are cut, and along which axes their fields move; none of those that are not cut
            from a grid of elements.
    """

    def __init__(
        self, function: Callable[..., Any] | None, kind: str, scope: str, line: Line | None, parent: Operation | None
    ):
        self.function, self.kind = function, kind
        self.scope, self.line, self.parent = scope, line, parent
        self.arguments: Mapping[str, Any] = {}
        self.result: Any = None
        self.parts: list[Operation] = []
        self.compute_sets: list[ComputeSet] = []
        self.num_vertices: Mapping[ComputeSet, int] = {}
        self.intermediates: dict[str, Tensor] = {}
        self.stages: dict[ComputeSet, list[Stage]] = {}
        self._found: tuple[Description, ...] = ()

    @property
    def operands(self) -> dict[str, Tensor]:
        """The tensors that it was given, by argument: `operands/0` of several."""
        return {
            f"{name}/{path}" if path else name: tensor
            for name, argument in self.arguments.items()
            for path, tensor in _tensors(argument).items()
        }

    @property
    def results(self) -> dict[str, Tensor]:
        """The tensors that it returned: by "" where it is one."""
        return _tensors(self.result)

    @property
    def descriptions(self) -> tuple[Description | Refused, ...]:
        """The function of its vertices, as they are now: see `cl.describe`."""
        return self._described(self.compute_sets)

    def _described(self, compute_sets: Sequence[ComputeSet]) -> tuple[Description | Refused, ...]:
        """The function of some of its compute sets."""
        return self._found or (describe(compute_sets[0].graph, compute_sets) if compute_sets else ())

    @property
    def parameters(self) -> dict[str, Any]:
        """Its arguments beside tensors, by name."""
        return {name: argument for name, argument in self.arguments.items() if not _tensors(argument)}

    def __repr__(self) -> str:
        kind = lambda tensor: f"{tensor.dtype}{list(tensor.shape)}"  # noqa: E731
        operands = ", ".join(f"{name}: {kind(tensor)}" for name, tensor in self.operands.items())
        results = ", ".join(map(kind, self.results.values()))
        return f"{self.kind}({operands}) -> {results or 'nothing'}"

    def lines(self, depth: int = 0) -> Iterator[str]:
        """It in print: a line, one for each of its compute sets, and its parts."""
        yield f"{'  ' * depth}{self!r}  in {self.scope}" + (f", at {self.line}" if self.line and not depth else "")
        of_parts = {compute_set for part in self.parts for compute_set in part.compute_sets}
        own = [compute_set for compute_set in self.compute_sets if compute_set not in of_parts]
        yield from (f"{'  ' * (depth + 1)}{each}" for each in self._described(own))
        now = vertices_of(own[0].graph, own) if own else {}
        for compute_set in own:
            name, count = compute_set.name.removeprefix(self.scope + "/"), self.num_vertices[compute_set]
            changed = "" if count == now[compute_set] else f", {now[compute_set]:,} now: it was changed"
            yield f"{'  ' * (depth + 1)}{name}: {counted(count, 'vertex', 'vertices')}{changed}"
            yield from (f"{'  ' * (depth + 2)}{stage}" for stage in self.stages.get(compute_set, ()))
        for part in self.parts:
            yield from part.lines(depth + 1)

    def __str__(self) -> str:
        return "\n".join(self.lines())


class _Inside(threading.local):
    """The operations that a thread is inside of."""

    def __init__(self) -> None:
        self.open: list[Operation] = []


class Operations:
    """The operations of a graph.

    Attributes:
        outermost: those that no other called, in order.
    """

    def __init__(self) -> None:
        self.outermost: list[Operation] = []
        self._inside = _Inside()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has none: arguments of functions have no name in a file."""
        return Operations, ()

    def made(self, compute_set: ComputeSet) -> None:
        """Note a new compute set."""
        for operation in self._inside.open:
            operation.compute_sets.append(compute_set)

    def staged(self, compute_set: ComputeSet, stage: Stage) -> None:
        """Note how vertices of a compute set are cut."""
        for operation in self._inside.open:
            operation.stages.setdefault(compute_set, []).append(stage)

    def made_on_the_way(self, tensors: Mapping[str, Tensor]) -> None:
        """Note the intermediates of the innermost operation that its gradient may read."""
        if self._inside.open:
            self._inside.open[-1].intermediates.update(tensors)

    def call(self, function: Callable[..., Any], graph: Graph, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call an operation, and remember it if it adds vertices.

        Args:
            function: the function, with a graph first.
            graph: the graph of these operations.
            args: the positional arguments after that.
            kwargs: and by name.
        """
        around, first = self._inside.open, len(graph._vertices.entries)
        parent = around[-1] if around else None
        operation = Operation(function, function.__name__, graph._names.full(""), user_line(), parent)
        around.append(operation)
        try:
            operation.result = function(graph, *args, **kwargs)
        finally:
            around.pop()
        if operation.compute_sets:
            bound = inspect.signature(function).bind(graph, *args, **kwargs)
            bound.apply_defaults()
            operation.arguments = dict([*bound.arguments.items()][1:])
            operation.num_vertices = vertices_of(graph, operation.compute_sets, first)
            operation.scope += operation.compute_sets[0].name.removeprefix(operation.scope).partition("/")[0]
            if parent is not None:
                parent.parts.append(operation)
            else:
                with self._lock:
                    self.outermost.append(operation)
        return operation.result


def vertices_of(graph: Graph, compute_sets: Collection[ComputeSet], first: int = 0) -> Counter[ComputeSet]:
    """How many vertices compute sets have, of the families of a graph from one on."""
    counts: Counter[ComputeSet] = Counter(dict.fromkeys(compute_sets, 0))
    for entry in graph._vertices.entries[first:]:
        if entry.compute_set in counts:
            counts[entry.compute_set] += entry.num_vertices
    return counts


def recorded(graph: Graph) -> Sequence[Operation]:
    """The calls that added vertices to a graph, those that no other made, in order."""
    return graph._operations.outermost


def describe(graph: Graph, compute_sets: Sequence[ComputeSet]) -> tuple[Description | Refused, ...]:
    """The function of compute sets: `cl.describe`."""
    return importlib.import_module("codelet").describe(graph, compute_sets)


def recognised(graph: Graph) -> list[Operation]:
    """The functions of vertices that no call added, each as an operation."""
    of_calls = {compute_set for own in recorded(graph) for compute_set in own.compute_sets}
    rest = [compute_set for compute_set in graph.compute_sets if compute_set not in of_calls]
    found: dict[tuple[ComputeSet, ...], list[Description]] = {}
    for own in describe(graph, rest) if rest else ():
        if isinstance(own, Description):
            found.setdefault(own.compute_sets, []).append(own)
    return [_found(graph, compute_sets, own) for compute_sets, own in found.items()]


def _found(graph: Graph, compute_sets: tuple[ComputeSet, ...], descriptions: Sequence[Description]) -> Operation:
    """An operation of compute sets that are found to compute something."""
    kinds = {own.kind for own in descriptions}
    scope, line = compute_sets[-1].name, compute_sets[-1].line
    operation = Operation(None, "several" if len(kinds) > 1 else kinds.pop(), scope, line, None)
    fields = [(own.operands, own.results) for own in descriptions]
    read, written = (
        {f.name: whole_view(f.source) for each in own for f in each if f.source} for own in zip(*fields, strict=True)
    )
    operation.arguments, operation.result = read, written
    operation.compute_sets = [*compute_sets]
    operation.num_vertices = vertices_of(graph, compute_sets)
    operation._found = tuple(descriptions)
    return operation


class OperationList(tuple[Operation, ...]):
    """Operations, which print as a list of lines."""

    def __repr__(self) -> str:
        return in_one_line(self)

    def __str__(self) -> str:
        counts = Counter(operation.kind for operation in self)
        kinds = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
        return "\n".join([f"{len(self)} operations: {kinds or 'none'}", *map(str, self)])
