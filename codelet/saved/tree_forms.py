"""Pytrees in files: tuples, lists and dicts as they are, and nodes of classes as dicts of their children by name.

A class is not imported when a file is read. So arguments of a traced function may be given in any pytree whose leaves
have the same paths, the original's classes among them. Results come in dicts where they came in objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

from codelet.frontends.arguments import Flat
from codelet.jaxprs.plain import Plain, check_form, listed, text

_MOST_NESTED = 100

_LEAF = "leaf"


class SavedTree(NamedTuple):
    """The structure of a pytree.

    Attributes:
        kind: "leaf", "none", "tuple", "list" or "dict".
        keys: of a dict.
        children: its children, in the order of the leaves.
    """

    kind: str
    keys: tuple[Any, ...] = ()
    children: tuple[SavedTree, ...] = ()

    def filled(self, leaves: Any) -> Any:
        """The pytree of some leaves, taken from an iterator in order."""
        if self.kind == _LEAF:
            return next(leaves)
        parts = [child.filled(leaves) for child in self.children]
        if self.kind == "dict":
            return dict(zip(self.keys, parts, strict=True))
        return None if self.kind == "none" else tuple(parts) if self.kind == "tuple" else parts

    def paths(self, around: str = "") -> list[str]:
        """Where each leaf is: `0/layers/w`."""
        if self.kind == _LEAF:
            return [around]
        keys = self.keys if self.kind == "dict" else range(len(self.children))
        inside = [f"{around}/{key}" if around else f"{key}" for key in keys]
        return [path for at, child in zip(inside, self.children, strict=True) for path in child.paths(at)]

    @property
    def count(self) -> int:
        """The number of leaves."""
        return 1 if self.kind == _LEAF else sum(child.count for child in self.children)

    @property
    def plain(self) -> Plain:
        """It as plain data."""
        return [self.kind, list(self.keys), [child.plain for child in self.children]]


def _key(entry: Any) -> str | int:
    key = getattr(entry, "key", getattr(entry, "name", getattr(entry, "idx", entry)))
    return key if type(key) in (str, int) else jax.tree_util.keystr((entry,), simple=True)


def _num_ends(tree: Any) -> int:
    """The number of leaves and of `None`."""
    data = tree.node_data()
    return 1 if data is None or data[0] is type(None) else sum(map(_num_ends, tree.children()))


def saved_tree(flat: Flat) -> SavedTree:
    """The structure of a pytree that was taken apart."""
    numbered = jax.tree.unflatten(flat.tree, range(len(flat.leaves)))
    ends, _ = jax.tree_util.tree_flatten_with_path(numbered, is_leaf=lambda part: part is None)
    paths = [path for path, _ in ends]

    def structure(tree: Any, first: int, depth: int) -> SavedTree:
        data = tree.node_data()
        if data is None:
            return SavedTree(_LEAF) if tree.num_leaves else SavedTree("none")
        children, keys, start = [], [], first
        for number, child in enumerate(tree.children()):
            count = _num_ends(child)
            keys.append(_key(paths[start][depth]) if count else f"{number}")
            children.append(structure(child, start, depth + 1))
            start += count
        kind = {tuple: "tuple", list: "list", dict: "dict", type(None): "none"}.get(data[0], "dict")
        if data[0] is dict:
            keys = [key if type(key) in (str, int) else str(key) for key in data[1]]
        return SavedTree(kind, tuple(keys) if kind == "dict" else (), tuple(children))

    return structure(flat.tree, 0, 0)


def read_tree(plain: Plain, depth: int = 0) -> SavedTree:
    """The structure of a pytree again."""
    kind, keys, children = listed(plain, 3)
    check_form(depth < _MOST_NESTED and kind in (_LEAF, "none", "tuple", "list", "dict"), "the structure of a pytree")
    names = [key if type(key) is int else text(key, 1000) for key in listed(keys)]
    parts = tuple(read_tree(child, depth + 1) for child in listed(children))
    check_form(len(names) == (len(parts) if kind == "dict" else 0), "the keys of a pytree")
    check_form(not parts or kind not in (_LEAF, "none"), "a leaf with parts")
    check_form(len(set(names)) == len(names), "a key that is there twice")
    return SavedTree(kind, tuple(names), parts)


def by_path(tree: Any) -> Mapping[str, Any]:
    """The leaves of a pytree, by where they are."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}
