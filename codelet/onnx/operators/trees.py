"""Ensembles of decision trees: all rows go down all trees at once, a level at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from codelet.onnx.node import OnnxNode, as_array
from codelet.onnx.operator_table import operator
from codelet.onnx.operators.shapes import host_shape

_DOMAIN = "ai.onnx.ml"

_COMPARE: tuple[Callable[[Any, Any], Any], ...] = (
    lambda x, split: x <= split,
    lambda x, split: x < split,
    lambda x, split: x >= split,
    lambda x, split: x > split,
    lambda x, split: x == split,
    lambda x, split: x != split,
)
"""By the number of the mode. The next one is a test of membership."""

_MEMBER = len(_COMPARE)

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
_TRANSFORMATIONS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


class Trees(NamedTuple):
    """Inner nodes, then leaves, which lead to themselves.

    Attributes:
        features, splits, modes: of each inner node: the compared feature, the threshold, and the comparison.
        members: of each inner node the values of which it asks for one; NaN where there are none.
        to_true: whether a missing value goes where a true comparison does.
        next_true, next_false: the nodes that follow.
        roots: of the trees.
        weights: of each leaf and each target; NaN for none.
    """

    features: np.ndarray
    splits: np.ndarray
    modes: np.ndarray
    members: np.ndarray
    to_true: np.ndarray
    next_true: np.ndarray
    next_false: np.ndarray
    roots: np.ndarray
    weights: np.ndarray


def _depth(node: OnnxNode, trees: Trees) -> int:
    """The most comparisons from a root to a leaf."""
    inner, reached, depth = len(trees.features), np.unique(trees.roots), 0
    while True:
        reached = np.unique(reached[reached < inner])
        if not reached.size:
            return depth
        if depth > inner:
            raise node.error("a node of a tree follows itself", given="a cycle", expected="a tree")
        reached, depth = np.concatenate([trees.next_true[reached], trees.next_false[reached]]), depth + 1


def _holds(trees: Trees, x: Any, at: Any) -> Any:
    """Whether the comparison of a node holds, for each row and each tree."""
    value = jnp.take_along_axis(x, jnp.asarray(trees.features)[at], 1)
    split, mode = jnp.asarray(trees.splits.astype(x.dtype))[at], jnp.asarray(trees.modes)[at]
    result: Any = False
    for number in np.unique(trees.modes).tolist():
        if number == _MEMBER:
            holds = jnp.any(value[..., None] == jnp.asarray(trees.members.astype(x.dtype))[at], -1)
        else:
            holds = _COMPARE[number](value, split)
        result = jnp.where(mode == number, holds, result)
    return result | (jnp.isnan(value) & jnp.asarray(trees.to_true)[at]) if np.any(trees.to_true) else result


def summed(node: OnnxNode, trees: Trees, x: Any, how: str) -> Any:
    """For each row and each target the values of its leaves, put together."""
    inner = len(trees.features)
    leaf_of = lambda at: jnp.minimum(at, inner - 1)  # noqa: E731 (what is at a leaf stays there, whatever it compares)
    at: Any = jnp.broadcast_to(jnp.asarray(trees.roots), (x.shape[0], len(trees.roots)))
    for _ in range(_depth(node, trees)):
        follows = jnp.where(
            _holds(trees, x, leaf_of(at)),
            jnp.asarray(trees.next_true)[leaf_of(at)],
            jnp.asarray(trees.next_false)[leaf_of(at)],
        )
        at = jnp.where(at < inner, follows, at)
    of_leaves = jnp.asarray(trees.weights.astype(x.dtype))[at - inner]
    there = ~jnp.isnan(of_leaves)
    if how in ("MIN", "MAX"):
        edge, reduce = (np.inf, jnp.min) if how == "MIN" else (-np.inf, jnp.max)
        return jnp.where(jnp.any(there, 1), reduce(jnp.where(there, of_leaves, edge), 1), 0)
    total = jnp.sum(jnp.where(there, of_leaves, 0), 1)
    return total / len(trees.roots) if how == "AVERAGE" else total


def transformed(node: OnnxNode, scores: Any, how: str) -> Any:
    """Scores after the transformation that the node names."""
    if how == "NONE":
        return scores
    if how == "LOGISTIC":
        return jax.nn.sigmoid(scores)
    if how == "SOFTMAX":
        return jax.nn.softmax(scores, -1)
    if how == "SOFTMAX_ZERO":
        shares = jax.nn.softmax(jnp.where(scores == 0, -jnp.inf, scores), -1)
        return jnp.where(scores == 0, 0, shares)
    if how == "PROBIT":
        return jax.scipy.special.ndtri(scores)
    raise node.error("a transformation that is not known", given=how, expected="NONE, SOFTMAX, LOGISTIC, PROBIT")


def _members(values: np.ndarray, modes: np.ndarray) -> np.ndarray:
    """The values of each node that tests membership, which NaN ends in one list of all."""
    ends = np.flatnonzero(np.isnan(values)) if values.size else np.zeros(0, np.int64)
    lists = np.split(values, ends + 1)[: len(ends)]
    result = np.full((len(modes), max((len(item) for item in lists), default=1)), np.nan)
    for row, item in zip(np.flatnonzero(modes == _MEMBER), lists, strict=True):
        result[row, : len(item)] = item
    return result


@operator("TreeEnsemble", domain=_DOMAIN, since=5)
def tree_ensemble(node: OnnxNode, x: Any) -> Any:
    """The results of an ensemble of trees for each row."""
    array = lambda name: np.asarray(node.attribute(name))  # noqa: E731
    modes, inner = array("nodes_modes").astype(np.int64), len(array("nodes_featureids"))
    targets, weights = array("leaf_targetids"), array("leaf_weights")
    leaves = np.full(host_shape(node, len(targets), node.attribute("n_targets")), np.nan)
    leaves[np.arange(len(targets)), targets] = weights
    follows = [
        array(f"nodes_{side}nodeids") + inner * array(f"nodes_{side}leafs").astype(np.int64)
        for side in ("true", "false")
    ]
    to_true = np.asarray(node.attribute("nodes_missing_value_tracks_true") or [0] * inner, bool)
    members = _members(np.asarray(node.attribute("membership_values", np.zeros(0)), np.float64), modes)
    trees = Trees(
        array("nodes_featureids"),
        array("nodes_splits"),
        modes,
        members,
        to_true,
        follows[0],
        follows[1],
        array("tree_roots"),
        leaves,
    )
    how = ("AVERAGE", "SUM", "MIN", "MAX")[node.attribute("aggregate_function", 1)]
    after = _TRANSFORMATIONS[node.attribute("post_transform", 0)]
    return transformed(node, summed(node, trees, x, how), after)


# --- nodes and leaves in one list ---------------------------------------------------------------------------


def _values(node: OnnxNode, name: str, count: int, default: float = 0) -> np.ndarray:
    """Numbers of an attribute, or of its twin in double precision."""
    values = node.attribute(f"{name}_as_tensor", node.attribute(name))
    return np.full(count, default) if values is None else np.asarray(values)


def _listed(node: OnnxNode, kind: str, targets: int) -> Trees:
    """Trees of which inner nodes and leaves are numbered together, each tree from 0 on."""
    names = node.attribute("nodes_modes")
    count = len(names)
    keys = list(zip(node.attribute("nodes_treeids"), node.attribute("nodes_nodeids"), strict=True))
    is_leaf = np.array([name == "LEAF" for name in names], bool)
    number_of = np.where(is_leaf, np.cumsum(is_leaf) - 1 + count - is_leaf.sum(), np.cumsum(~is_leaf) - 1)
    numbers = dict(zip(keys, number_of.tolist(), strict=True))
    inner = np.flatnonzero(~is_leaf)
    follows = [
        np.array([numbers[keys[k][0], ids[k]] for k in inner], np.int64)
        for ids in (node.attribute("nodes_truenodeids"), node.attribute("nodes_falsenodeids"))
    ]
    firsts = {key[0]: key for key in reversed(keys)}
    weights = np.full(host_shape(node, int(is_leaf.sum()), targets), np.nan)
    ids = [node.attribute(f"{kind}_{name}") for name in ("treeids", "nodeids", "ids")]
    for tree, leaf, target, weight in zip(*ids, _values(node, f"{kind}_weights", len(ids[0])), strict=True):
        place = numbers[tree, leaf] - len(inner), target
        weights[place] = weight if np.isnan(weights[place]) else weights[place] + weight
    return Trees(
        np.asarray(node.attribute("nodes_featureids"), np.int64)[inner],
        _values(node, "nodes_values", count)[inner],
        np.array([_MODES.index(names[k]) for k in inner], np.int64),
        np.zeros((len(inner), 1)),
        np.asarray(node.attribute("nodes_missing_value_tracks_true") or [0] * count, bool)[inner],
        follows[0],
        follows[1],
        np.array([numbers[key] for key in reversed(list(firsts.values()))], np.int64),
        weights,
    )


def _base(node: OnnxNode, x: Any) -> Any:
    base = _values(node, "base_values", 0)
    return base.astype(x.dtype) if base.size else 0


def _floating(x: Any) -> Any:
    return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(np.float32)


@operator("TreeEnsembleRegressor", domain=_DOMAIN)
def tree_ensemble_regressor(node: OnnxNode, x: Any) -> Any:
    """The results of an ensemble of trees for each row."""
    x = _floating(x)
    trees = _listed(node, "target", node.attribute("n_targets"))
    result = summed(node, trees, x, node.attribute("aggregate_function", "SUM")) + _base(node, x)
    return transformed(node, result, node.attribute("post_transform", "NONE")).astype(np.float32)


def class_labels(node: OnnxNode, *names: str) -> np.ndarray:
    """The labels of classes, which are integers."""
    labels = next((node.attribute(name) for name in names if node.attribute(name)), None)
    if labels is None:
        raise node.error("its classes are strings", given="labels that are strings", expected=" or ".join(names))
    return np.asarray(labels, np.int64)


def labelled(node: OnnxNode, labels: np.ndarray, numbers: Any) -> Any:
    """The label of each number of a class."""
    return as_array(labels, node)[numbers.astype(np.int32)]


@operator("TreeEnsembleClassifier", domain=_DOMAIN)
def tree_ensemble_classifier(node: OnnxNode, x: Any) -> tuple[Any, Any]:
    """The class of each row by an ensemble of trees, and the score of each class."""
    x, labels = _floating(x), class_labels(node, "classlabels_int64s")
    trees, after = _listed(node, "class", len(labels)), node.attribute("post_transform", "NONE")
    scores = summed(node, trees, x, "SUM")
    scored = sorted(set(node.attribute("class_ids")))
    if len(labels) != 2 or len(scored) != 1:
        scores = scores + _base(node, x)
        return labelled(node, labels, jnp.argmax(scores, 1)), transformed(node, scores, after).astype(np.float32)
    base = _values(node, "base_values", 0)
    score = scores[:, scored[0]] + (base[-1].astype(x.dtype) if base.size else 0)
    if np.nanmin(trees.weights) >= 0:  # which are shares
        return labelled(node, labels, score > 0.5), jnp.stack([1 - score, score], 1).astype(np.float32)
    both = transformed(node, jnp.stack([-score, score], 1), after)
    return labelled(node, labels, score > 0), both.astype(np.float32)
