"""Values by tensor or by name: inputs of a graph, its outputs, and single items in place of lists.

A variable is named by its name or by a view of all of it, a stream by its name or by itself.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import jax

from codelet.errors import ArrayError, ForeignGraphError
from codelet.programs.copies import Stream
from codelet.views.sources import Variable
from codelet.views.tensor import Tensor

if TYPE_CHECKING:
    from codelet.graphs.graph import Graph

Named = Tensor | Stream | str
"""What names a variable or a stream."""


def key_of(given: Any) -> Any:
    """The name of a variable or a stream; of another view a text that says which it is; anything else as it is."""
    if isinstance(given, Stream) or (isinstance(given, Tensor) and given.is_whole_variable):
        return given.name
    if not isinstance(given, Tensor) or given.axes:
        return given
    if isinstance(given.source, Variable) and given.index.is_strided:
        return repr(given)
    return f"{given!r} #{zlib.crc32(given.elements().tobytes()):08x}"  # what its text leaves out


def by_name(graph: Graph, values: Any) -> Any:
    """Values by name, from values by tensors, streams or names.

    Other keys are unchanged, as are values that are not a mapping: the caller reports them.

    Raises:
        ForeignGraphError: a tensor or a stream of another graph.
        ArrayError: two values for one variable.
    """
    if not isinstance(values, Mapping):
        return values
    found: dict[Any, Any] = {}
    for key, value in values.items():
        if isinstance(key, (Tensor, Stream)) and key.graph is not graph:
            raise ForeignGraphError(
                "a value is given for something of another graph",
                given=key,
                expected="tensors and streams of this graph, or their names",
            )
        if (name := key_of(key)) in found:
            raise ArrayError(f"two values are given for {name!r}", given="its name and a tensor", expected="one")
        found[name] = value
    return found


def several(given: Any) -> list[Any] | None:
    """One item, or several, as a list; `None` for anything else."""
    if isinstance(given, (str, Tensor, Stream)):
        return [given]
    return list(given) if isinstance(given, Iterable) else None


class Results(dict[str, Any]):
    """Values by the names of variables and streams, which may also be looked up by tensor: `results[y]`.

    The key of a view of part of a variable is its text. To JAX it is a pytree of a special type. Where JAX expects a
    dict, as for the carry of a `lax.scan` that begins as one, convert it: `dict(results)`.

    >>> import codelet as cl
    >>> graph = cl.Graph()
    >>> x = graph.add_variable("x", (4,))
    >>> found = cl.interpret(graph, values={x: [0, 1, 2, 3]}, outputs=[x, x[1:3]])
    >>> found["x"].tolist(), found[x].tolist(), found[x[1:3]].tolist()
    ([0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 3.0], [1.0, 2.0])
    """

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key_of(key))

    def __contains__(self, key: object) -> bool:
        return isinstance(own := key_of(key), Hashable) and super().__contains__(own)

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of `key`, a name or a tensor; `default` if there is none.

        >>> import codelet as cl
        >>> graph = cl.Graph()
        >>> x, y = graph.add_variable("x", ()), graph.add_variable("y", ())
        >>> found = cl.interpret(graph, values={x: 1.0}, outputs=x)
        >>> float(found.get(x)), found.get(y, "not asked for")
        (1.0, 'not asked for')
        """
        return super().get(key_of(key), default)


def _flatten(results: Results) -> tuple[list[tuple[Any, Any]], tuple[str, ...]]:
    names = sorted(results)
    return [(jax.tree_util.DictKey(name), results[name]) for name in names], tuple(names)


def _filled(names: tuple[str, ...], values: Iterable[Any]) -> Results:
    return Results(zip(names, values, strict=True))


jax.tree_util.register_pytree_with_keys(Results, _flatten, _filled)
