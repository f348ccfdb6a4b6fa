"""Arguments: pytrees whose leaves are arrays, or else static.

Arrays are what JAX takes as such, shapes with dtypes, and numbers; in Equinox modules numbers are static, as all else
that is no array is anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer

from codelet.errors import ArrayError


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct))


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, (bool, int, float, complex))


def _is_module(node: Any) -> bool:
    return isinstance(node, eqx.Module)


class Leaf(NamedTuple):
    """A leaf of a pytree: where it is, what it is, and whether it is an array."""

    path: str
    value: Any
    is_array: bool


class Flat(NamedTuple):
    """A pytree taken apart.

    Attributes:
        leaves: in order.
        tree: how they lie.
    """

    leaves: tuple[Leaf, ...]
    tree: Any

    @property
    def arrays(self) -> list[Any]:
        """Those leaves that are arrays."""
        return [leaf.value for leaf in self.leaves if leaf.is_array]

    @property
    def paths(self) -> list[str]:
        """Where the arrays are."""
        return [leaf.path for leaf in self.leaves if leaf.is_array]

    def filled(self, arrays: Sequence[Any]) -> Any:
        """The pytree with others in the place of its arrays."""
        left = iter(arrays)
        return jax.tree.unflatten(self.tree, [next(left) if leaf.is_array else leaf.value for leaf in self.leaves])

    def check_like(self, other: Flat, name: str) -> None:
        """See that another pytree differs in its arrays alone.

        Raises:
            ArrayError: in something else.
        """
        if other.tree != self.tree or len(other.leaves) != len(self.leaves):
            raise ArrayError(
                f"the arguments of the traced function {name!r} are of another structure than it was traced for",
                given=f"{other.tree!s:.200}",
                expected=f"{self.tree!s:.200}",
                fix="cl.trace again, with examples of this structure",
            )
        for own, given in zip(self.leaves, other.leaves, strict=True):
            if own.is_array != given.is_array:
                raise ArrayError(
                    f"an argument of the traced function {name!r} is an array at one time and static at another",
                    given=f"{given.path}: {given.value!r:.80}",
                    expected="an array" if own.is_array else f"{own.value!r:.80}, as it was traced",
                )
            if own.is_array:
                own_type, type_ = _type_of(own.value), _type_of(given.value)
                if own_type != type_:
                    raise ArrayError(
                        f"an argument of the traced function {name!r} is of another type than it was traced for",
                        given=f"{given.path}: {_type_text(*type_)}",
                        expected=_type_text(*own_type),
                        fix="cl.trace again, with examples of these types",
                    )
            elif own.value is not given.value and not _same_static(own.value, given.value):
                raise ArrayError(
                    f"a static value in the arguments of the traced function {name!r} is another one",
                    given=f"{given.path}: {given.value!r:.80}",
                    expected=f"{own.value!r:.80}, as it was traced",
                    fix="cl.trace again, with this value",
                )


def _same_static(a: Any, b: Any) -> bool:
    try:
        return type(a) is type(b) and bool(a == b)
    except Exception:
        return False


def _type_of(value: Any) -> tuple[tuple[int, ...], Any]:
    if isinstance(value, (jax.ShapeDtypeStruct, jax.Array)):
        return value.shape, value.dtype
    return np.shape(value), jax.dtypes.canonicalize_dtype(jax.numpy.result_type(value))


def _type_text(shape: tuple[int, ...], dtype: Any) -> str:
    return f"{dtype}[{','.join(map(str, shape))}]"


def flatten(tree: Any) -> Flat:
    """A pytree taken apart."""
    nodes, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_module)
    leaves: list[Leaf] = []
    for path, node in nodes:
        inside = _is_module(node)
        for further, leaf in jax.tree_util.tree_flatten_with_path(node)[0] if inside else [((), node)]:
            name = jax.tree_util.keystr((*path, *further), simple=True, separator="/")
            leaves.append(Leaf(name, leaf, _is_array(leaf) or (_is_number(leaf) and not inside)))
    return Flat(tuple(leaves), jax.tree.structure(tree))


def is_array(leaf: Any) -> bool:
    """Whether a leaf that a traced function returns is an array."""
    return _is_array(leaf) or isinstance(leaf, Tracer)
