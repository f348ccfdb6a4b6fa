"""Arguments: pytrees whose leaves are arrays, or else static.

Arrays are those that JAX takes as such, shapes with dtypes, and numbers; in Equinox modules numbers are static, as all
else that is no array is anywhere.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from codelet.errors import ArrayError


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct))


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, (bool, int, float, complex))


def _is_module(node: Any) -> bool:
    equinox = sys.modules.get("equinox")  # nobody has such a module without it, and it takes 0.1 s to import
    return equinox is not None and isinstance(node, equinox.Module)


class Leaf(NamedTuple):
    """A leaf of a pytree: its path, its value, and whether it is an array."""

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
        return jax.tree.unflatten(self.tree, [leaf.value for leaf in self.with_arrays(arrays).leaves])

    def with_arrays(self, arrays: Sequence[Any]) -> Flat:
        """It with others in the place of its arrays."""
        left = iter(arrays)
        return self._replace(leaves=tuple(o._replace(value=next(left)) if o.is_array else o for o in self.leaves))

    @property
    def described(self) -> Flat:
        """It with the types of its arrays in their place."""
        return self.with_arrays(list(map(type_of, self.arrays)))

    def check_like(self, other: Flat, convention: Convention) -> None:
        """See that another pytree differs in its arrays alone, of arguments that are given as a convention says.

        Raises:
            ArrayError: in something else.
        """
        name = convention.name
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
                    given=f"{convention.named(given.path)}: {given.value!r:.80}",
                    expected="an array" if own.is_array else f"{own.value!r:.80}, as it was traced",
                )
            if own.is_array:
                expected, found = type_of(own.value), type_of(given.value)
                if not _yields_to(found, expected):
                    raise ArrayError(
                        f"an argument of the traced function {name!r} is of another type than it was traced for",
                        given=f"{convention.named(given.path)}: {_type_text(found)}",
                        expected=_type_text(expected),
                        fix="cl.trace again, with examples of these types",
                    )
            elif own.value is not given.value and not _same_static(own.value, given.value):
                raise ArrayError(
                    f"a static value in the arguments of the traced function {name!r} is another one",
                    given=f"{convention.named(given.path)}: {given.value!r:.80}",
                    expected=f"{own.value!r:.80}, as it was traced",
                    fix="cl.trace again, with this value",
                )


def _same_static(a: Any, b: Any) -> bool:
    try:
        return type(a) is type(b) and bool(a == b)
    except Exception:
        return False


def type_of(value: Any) -> jax.ShapeDtypeStruct:
    """The type of an array, of a number, or of a type itself."""
    if isinstance(value, jax.ShapeDtypeStruct):
        return value
    weak = _is_number(value) or bool(getattr(value, "weak_type", False))
    dtype = value.dtype if isinstance(value, jax.Array) else jax.dtypes.canonicalize_dtype(jax.numpy.result_type(value))
    return jax.ShapeDtypeStruct(np.shape(value), dtype, weak_type=weak)


def _yields_to(found: jax.ShapeDtypeStruct, expected: jax.ShapeDtypeStruct) -> bool:
    """Whether an array may be given where another was: of one type, or an integer for any plain number."""
    if found.shape != expected.shape:
        return False
    whole = found.weak_type and expected.weak_type and jax.numpy.issubdtype(found.dtype, jax.numpy.integer)
    return found.dtype == expected.dtype or (whole and jax.numpy.issubdtype(expected.dtype, jax.numpy.inexact))


def _type_text(kind: jax.ShapeDtypeStruct) -> str:
    return f"{kind.dtype}[{','.join(map(str, kind.shape))}]"


class _LeafPath(NamedTuple):
    """Where a leaf is: its path, and whether that goes through a module."""

    path: str
    is_inside: bool


_PLACES: dict[Any, tuple[_LeafPath, ...]] = {}
"""Those of the leaves of pytrees of some structures, which take longer to find than the leaves."""

_MOST_PLACES = 1024


def _places(tree: Any, structure: Any) -> tuple[_LeafPath, ...]:
    """Where the leaves of a pytree are."""
    try:
        found = _PLACES.get(structure)
    except Exception:  # what is static in it cannot be hashed, or compared
        return _places_found(tree)
    if found is None:
        if len(_PLACES) >= _MOST_PLACES:
            _PLACES.clear()
        found = _PLACES[structure] = _places_found(tree)
    return found


def _places_found(tree: Any) -> tuple[_LeafPath, ...]:
    nodes, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_module)
    found: list[_LeafPath] = []
    for path, node in nodes:
        inside = _is_module(node)
        for further, _ in jax.tree_util.tree_flatten_with_path(node)[0] if inside else [((), node)]:
            name = jax.tree_util.keystr((*path, *further), simple=True, separator="/")
            found.append(_LeafPath(name, inside))
    return tuple(found)


def flatten(tree: Any) -> Flat:
    """A pytree taken apart."""
    leaves, structure = jax.tree.flatten(tree)
    return Flat(
        tuple(
            Leaf(place.path, leaf, _is_array(leaf) or (not place.is_inside and _is_number(leaf)))
            for place, leaf in zip(_places(tree, structure), leaves, strict=True)
        ),
        structure,
    )


def is_array(leaf: Any) -> bool:
    """Whether a leaf that a traced function returns is an array."""
    return _is_array(leaf) or isinstance(leaf, Tracer)


def together(arguments: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Any, ...]:
    """Arguments as one pytree: those by keyword behind the others, where there are any."""
    return (*arguments, dict(keywords)) if keywords else tuple(arguments)


class Convention(NamedTuple):
    """How a function was called when it was traced.

    Attributes:
        name: of the function, for errors.
        signature: its parameters; None where Python does not know them.
        num_positional: how many of its arguments came by position.
        keywords: the names of those that came by keyword.
    """

    name: str
    signature: inspect.Signature | None
    num_positional: int
    keywords: frozenset[str]

    @classmethod
    def of(cls, function: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Convention:
        """That of a function and arguments for it."""
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            signature = None
        name = getattr(function, "__name__", type(function).__name__)
        return cls(name, signature, len(arguments), frozenset(keywords))

    def named(self, path: str) -> str:
        """The value at a path, by the names of the parameters."""
        known = {} if self.signature is None else self.signature.parameters
        own = [p.name for p in known.values() if p.kind is not p.VAR_POSITIONAL]
        first, slash, rest = path.partition("/")
        if int(first) == self.num_positional:  # by keyword: its name comes next
            return rest
        return (own[int(first)] if int(first) < len(own) else f"argument{first}") + slash + rest

    def arranged(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Any, ...]:
        """Arguments of another call as one pytree, each by position or keyword as it was traced.

        Raises:
            ArrayError: one has another value than its default, with which the function was traced.
        """
        if self.signature is None or (len(arguments) == self.num_positional and keywords.keys() == self.keywords):
            return together(arguments, keywords)
        try:
            bound = self.signature.bind(*arguments, **keywords)
        except TypeError:
            return together(arguments, keywords)
        bound.apply_defaults()
        positional, named = self._by_kind(bound)
        kept, left = positional[: self.num_positional], positional[self.num_positional :]
        named.update((name, value) for name, value in left if name is not None)
        for name in sorted(named.keys() - self.keywords):
            parameter = self.signature.parameters.get(name)
            if parameter is None or named[name] is not parameter.default:
                raise ArrayError(
                    f"the traced function {self.name!r} is given an argument that it was traced without",
                    given=f"{name}={named[name]!r:.80}",
                    expected="no such argument" if parameter is None else f"its default, {parameter.default!r:.80}",
                    fix=f"cl.trace again, with kwargs={{{name!r}: ...}}",
                )
        extra = [value for name, value in left if name is None]
        return together(
            [*(value for _, value in kept), *extra], {name: named[name] for name in self.keywords & named.keys()}
        )

    def _by_kind(self, bound: inspect.BoundArguments) -> tuple[list[tuple[str | None, Any]], dict[str, Any]]:
        """The positional parameters, in order, and the keyword-only ones."""
        positional: list[tuple[str | None, Any]] = []
        named: dict[str, Any] = {}
        for name, parameter in bound.signature.parameters.items():
            value = bound.arguments[name]
            match parameter.kind:
                case inspect.Parameter.VAR_POSITIONAL:
                    positional += [(None, own) for own in value]
                case inspect.Parameter.VAR_KEYWORD:
                    named.update(value)
                case inspect.Parameter.KEYWORD_ONLY:
                    named[name] = value
                case _:
                    positional.append((name, value))
        return positional, named
