"""Keys and random bits: the numbers that JAX draws from the same keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from codelet import ops
from codelet.frontends.one_vertex import add_one_vertex
from codelet.frontends.rules import rule
from codelet.frontends.values import Value, key_type

if TYPE_CHECKING:
    from codelet.frontends.walk import Walk


@rule("random_wrap", by="nothing: keys are their data")
def random_wrap(walk: Walk, data: Value, *, impl: Any) -> Any:
    """Keys of their data."""
    return data


@rule("random_unwrap", by="nothing: keys are their data")
def random_unwrap(walk: Walk, keys: Value) -> Any:
    """The data of keys."""
    return keys


@rule("random_bits", by="`ops.random_bits`, of one key of Threefry; else one vertex")
def random_bits(walk: Walk, keys: Value, *, bit_width: int, shape: tuple[int, ...]) -> Any:
    """Random bits."""
    aval: Any = walk.equation.invars[0].aval
    if aval.shape or key_type(aval.dtype).generator != "threefry2x32":
        return NotImplemented
    return ops.random_bits(walk.graph, walk.tensor(keys), shape, f"uint{bit_width}", grain=walk.grain)


@rule("random_seed", "random_split", "random_fold_in", by="one vertex: a key is two words")
def derived_keys(walk: Walk, *operands: Value, impl: Any = None, shape: Any = None) -> Any:
    """Keys made of keys."""
    return add_one_vertex(walk, walk.equation, operands)
