"""Linear models of features, and their preprocessing."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from codelet.onnx.node import OnnxNode, as_array
from codelet.onnx.operator_table import operator
from codelet.onnx.operators.trees import class_labels, labelled, transformed

_DOMAIN = "ai.onnx.ml"


def _numbers(node: OnnxNode, name: str, dtype: Any) -> np.ndarray:
    return np.asarray(node.attribute(name, 0.0)).astype(dtype)


def _scores(node: OnnxNode, x: Any) -> Any:
    """Features by coefficients, and intercepts."""
    x = x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(np.float32)
    coefficients = jnp.asarray(_numbers(node, "coefficients", x.dtype)).reshape(-1, x.shape[1])
    return x @ coefficients.T + _numbers(node, "intercepts", x.dtype)


@operator("LinearRegressor", domain=_DOMAIN)
def linear_regressor(node: OnnxNode, x: Any) -> Any:
    """Each target as a weighted sum of features."""
    return transformed(node, _scores(node, x), node.attribute("post_transform", "NONE")).astype(np.float32)


@operator("LinearClassifier", domain=_DOMAIN)
def linear_classifier(node: OnnxNode, x: Any) -> tuple[Any, Any]:
    """The class of each row by weighted sums of features, and the score of each class."""
    labels, scores = class_labels(node, "classlabels_ints"), _scores(node, x)
    if scores.shape[1] == 1 and len(labels) == 2:
        scores = jnp.concatenate([-scores, scores], 1)
    if scores.shape[1] != len(labels):
        raise node.error("it has not a score for each class", given=scores.shape[1], expected=f"{len(labels)}")
    result = transformed(node, scores, node.attribute("post_transform", "NONE")).astype(np.float32)
    return labelled(node, labels, jnp.argmax(scores, 1)), result


@operator("Scaler", domain=_DOMAIN)
def scaler(node: OnnxNode, x: Any) -> Any:
    """Features less an offset, by a scale."""
    wide = jnp.asarray(x).astype(np.float32)
    return (wide - _numbers(node, "offset", np.float32)) * np.asarray(node.attribute("scale", 1.0), np.float32)


@operator("Normalizer", domain=_DOMAIN)
def normalizer(node: OnnxNode, x: Any) -> Any:
    """Rows by their norm; as they are where that is 0."""
    wide, how = jnp.asarray(x).astype(np.float32), node.attribute("norm", "MAX")
    if how == "MAX":
        norm = jnp.max(jnp.abs(wide), -1, keepdims=True)
    elif how == "L1":
        norm = jnp.sum(jnp.abs(wide), -1, keepdims=True)
    else:
        norm = jnp.sqrt(jnp.sum(wide * wide, -1, keepdims=True))
    return jnp.where(norm == 0, wide, wide / jnp.where(norm == 0, 1, norm))


@operator("Imputer", domain=_DOMAIN)
def imputer(node: OnnxNode, x: Any) -> Any:
    """Features, with values in place of missing ones."""
    whole = node.attribute("imputed_value_int64s")
    values = np.asarray(whole or node.attribute("imputed_value_floats")).astype(x.dtype)
    replaced = node.attribute("replaced_value_int64" if whole else "replaced_value_float", 0)
    missing = jnp.isnan(x) if np.isnan(replaced) else x == np.asarray(replaced, x.dtype)
    return jnp.where(missing, values, x)


@operator("FeatureVectorizer", domain=_DOMAIN)
def feature_vectorizer(node: OnnxNode, *several: Any) -> Any:
    """Features side by side."""
    rows = [jnp.reshape(x, (x.shape[0] if x.ndim > 1 else 1, -1)).astype(np.float32) for x in several]
    return jnp.concatenate(rows, 1)


@operator("LabelEncoder", domain=_DOMAIN)
def label_encoder(node: OnnxNode, x: Any) -> Any:
    """Each value by a table; a value that is not in it by a default."""
    keys, values = (
        next((node.attribute(f"{kind}_{name}") for name in ("int64s", "floats") if node.attribute(f"{kind}_{name}")), 0)
        or node.attribute(f"{kind}_tensor")
        for kind in ("keys", "values")
    )
    if keys is None or values is None or np.asarray(keys).dtype.kind in "OSU" or np.asarray(values).dtype.kind in "OSU":
        raise node.error("its table is of strings", given="keys or values that are strings", expected="numbers")
    is_whole = bool(node.attribute("values_int64s"))
    name, dtype = ("default_int64", np.int64) if is_whole else ("default_float", np.float32)
    table = np.asarray(values if node.attribute("values_tensor") is not None else np.asarray(values, dtype))
    default = node.attribute("default_tensor", node.attribute(name, -1 if is_whole else -0.0))
    known = as_array(np.asarray(keys), node).astype(x.dtype)
    hits = (x[..., None] == known) | (jnp.isnan(x[..., None]) & jnp.isnan(known))
    values_of_hits = as_array(table, node)[jnp.argmax(hits, -1)]
    return jnp.where(jnp.any(hits, -1), values_of_hits, as_array(np.asarray(default, table.dtype).reshape(()), node))


@operator("OneHotEncoder", domain=_DOMAIN)
def one_hot_encoder(node: OnnxNode, x: Any) -> Any:
    """For each value a row that says which category it is."""
    if not node.attribute("cats_int64s"):
        raise node.error("its categories are strings", given="cats_strings", expected="cats_int64s")
    categories = as_array(np.asarray(node.attribute("cats_int64s"), np.int64), node).astype(x.dtype)
    return (x[..., None] == categories).astype(np.float32)
