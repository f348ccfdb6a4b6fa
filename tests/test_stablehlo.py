"""StableHLO as functions of JAX: what it computes, how it is called, and what is refused."""

import contextlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import codelet as cl
from tests import tensorflow_functions

X = jnp.asarray(np.random.default_rng(0).standard_normal((4, 5), np.float32))
IMAGES = np.random.default_rng(1).standard_normal((2, 3, 8, 8), np.float32)
KERNELS = np.random.default_rng(2).standard_normal((4, 3, 3, 3), np.float32)

FUNCTIONS = {
    "by_element": lambda x: jnp.sin(x) * jnp.exp2(x) + jnp.where(x > 0, x, x**3),
    "product": lambda x: jnp.einsum("ij,kj->ik", x, x),
    "softmax": lambda x: jax.nn.softmax(x),
    "places": lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 0)),
    "sorted": lambda x: (jnp.sort(x, 1), jnp.argsort(-x, 0), lax.top_k(x, 2)),
    "several_keys": lambda x: lax.sort((jnp.round(x), x), num_keys=2),
    "prefix": lambda x: (jnp.cumsum(x, 1), lax.cummax(x, 0)),
    "gathered": lambda x: x.at[jnp.array([3, 0, 9, -1])].get(mode="clip"),
    "scattered": lambda x: x.at[jnp.array([0, 2, 0])].add(x[:3]).at[1].set(2.0).at[2].max(x[0]),
    "sliced": lambda x: lax.dynamic_slice(x, (-2, 9), (2, 2)),
    "counted": lambda x: lax.fori_loop(0, 5, lambda k, own: own * 1.1 + k, x),
    "scanned": lambda x: lax.scan(lambda own, row: (own + row, own * row), x[0], x),
    "until": lambda x: lax.while_loop(lambda own: jnp.sum(own) < 100, lambda own: own * own + 1, x),
    "chosen": lambda x: lax.cond(x[0, 0] > 0, lambda: x, lambda: -x),
    "switched": lambda x: lax.switch(jnp.argmax(x[0]), [lambda: x, lambda: -x, lambda: 2 * x]),
    "random": lambda x: x + jax.random.normal(jax.random.key(3), x.shape),
    "factored": lambda x: jnp.linalg.cholesky(x @ x.T + 5 * jnp.eye(4)),
    "transformed": lambda x: jnp.abs(jnp.fft.rfft(x)),
    "narrow": lambda x: jnp.round(x * 100).astype(jnp.int8).astype(jnp.float8_e4m3fn).astype(jnp.float32),
    "nested": lambda x: {"a": [jax.jit(jnp.tanh)(x)], "b": jnp.median(x)},
}


def _exported(function, *arguments):
    return jax.export.export(jax.jit(function))(*arguments)


def _check(found, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5), found, expected)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_jax_exports_computes_the_same(name):
    function = FUNCTIONS[name]
    loaded = cl.stablehlo.load(_exported(function, X))
    assert loaded.inputs == (jax.ShapeDtypeStruct(X.shape, X.dtype),)
    _check(jax.jit(loaded)(X), function(X))


@pytest.mark.parametrize("name", ["softmax", "gathered", "scanned", "chosen", "sorted", "nested"])
def test_a_module_is_a_graph_of_vertices(name):
    function = FUNCTIONS[name]
    _check(cl.trace(cl.stablehlo.load(_exported(function, X)), X)(X), function(X))


def test_gradients_of_convolutions_and_poolings_are_loaded():
    def loss(kernels, images):
        found = jax.nn.relu(lax.conv(images, kernels, (1, 1), "SAME"))
        return jnp.sum(lax.reduce_window(found, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID") ** 2)

    slopes = jax.grad(loss)
    _check(cl.stablehlo.load(_exported(slopes, KERNELS, IMAGES))(KERNELS, IMAGES), slopes(KERNELS, IMAGES))


@pytest.mark.parametrize("name", ["scanned", "counted", "softmax"])
def test_a_module_is_differentiated(name):
    loss = lambda function: lambda x: sum(jnp.sum(own**2) for own in jax.tree.leaves(function(x)))  # noqa: E731
    loaded = cl.stablehlo.load(_exported(FUNCTIONS[name], X))
    np.testing.assert_allclose(jax.grad(loss(loaded))(X), jax.grad(loss(FUNCTIONS[name]))(X), rtol=1e-4, atol=1e-4)


def test_a_text_and_an_artifact_are_loaded():
    own = _exported(FUNCTIONS["softmax"], X)
    for source in (str(own.mlir_module()), own.mlir_module_serialized):
        (found,) = cl.stablehlo.load(source)(X)
        _check(found, jax.nn.softmax(X))


def _check_function_of_tensorflow(folder, name):
    stored = np.load(folder / f"tensorflow_{name}.npz")
    arguments, expected = ([stored[key] for key in stored if key[0] == letter] for letter in "xy")
    module = cl.stablehlo.load((folder / f"tensorflow_{name}.mlir").read_text())
    results = cl.trace(module, *arguments)(*arguments)
    for found, one in zip(results, expected, strict=True):
        np.testing.assert_allclose(found, one, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", tensorflow_functions.FUNCTIONS)
def test_a_function_of_tensorflow_computes_what_tensorflow_does(name):
    _check_function_of_tensorflow(tensorflow_functions.FOLDER, name)


@pytest.mark.slow
def test_tensorflow_writes_functions_that_compute_what_tensorflow_does(tmp_path):
    pytest.importorskip("tensorflow")
    tensorflow_functions.write(tmp_path)
    for name in tensorflow_functions.FUNCTIONS:
        _check_function_of_tensorflow(tmp_path, name)


def test_constants_may_be_bytes():
    text = """
    func.func @main(%x: tensor<1x2xf32>) -> tensor<1x2xf32> {
      %bias = stablehlo.constant dense<"0x0000003F000000BF"> : tensor<2xf32>
      %0 = stablehlo.broadcast_in_dim %bias, dims = [1] : (tensor<2xf32>) -> tensor<1x2xf32>
      %1 = stablehlo.add %x, %0 : tensor<1x2xf32>
      return %1 : tensor<1x2xf32>
    }"""
    (found,) = cl.stablehlo.load(text)(np.ones((1, 2), np.float32))
    np.testing.assert_array_equal(found, [[1.5, 0.5]])


def test_an_extent_that_depends_on_data_is_refused():
    text = """
    func.func @main(%x: tensor<3xf32>, %n: tensor<i32>) -> tensor<3xf32> {
      %0 = stablehlo.set_dimension_size %x, %n, dim = 0 : (tensor<3xf32>, tensor<i32>) -> tensor<3xf32>
      return %0 : tensor<3xf32>
    }"""
    with pytest.raises(cl.ModelError, match="set_dimension_size: an extent depends on data"):
        cl.stablehlo.load(text)(np.ones(3, np.float32), np.int32(2))


def test_functions_of_the_module_are_functions_of_the_graph():
    def twice(x):
        inner = jax.jit(lambda own: jnp.tanh(own @ own.T) @ own)
        return inner(inner(x))

    traced = cl.trace(cl.stablehlo.load(_exported(twice, X)), X)
    assert len(traced.graph.functions) <= 1
    _check(traced(X), twice(X))


# --- refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("no module", "this is no module of StableHLO"),
        (b"ML\xefR but no more", "this is no module of StableHLO"),
        (7, "is given no module"),
        ("module {}", "the module has no function"),
        ("func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> { return %x : tensor<?xf32> }", "a dimension is open"),
    ],
)
def test_what_is_no_module_is_refused(source, text):
    with pytest.raises(cl.ModelError, match=re.escape(text)):
        cl.stablehlo.load(source)


def test_operations_that_nothing_computes_are_listed():
    text = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = "stablehlo.all_to_all"(%x) <{split_dimension = 0, concat_dimension = 0, split_count = 1,
        replica_groups = dense<0> : tensor<1x1xi64>}> : (tensor<2xf32>) -> tensor<2xf32>
      return %0 : tensor<2xf32> }"""
    with pytest.raises(cl.ModelError, match=r"stablehlo\.all_to_all \(1\)"):
        cl.stablehlo.load(text)


def test_other_arguments_are_refused():
    loaded = cl.stablehlo.load(_exported(FUNCTIONS["softmax"], X))
    with pytest.raises(cl.ModelError, match="is of another type"):
        loaded(X[:2])
    with pytest.raises(cl.ModelError, match="structure"):
        loaded(X, X)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(50))
def test_a_text_that_was_changed_is_loaded_or_refused(seed):
    text, random = (
        bytearray(str(_exported(FUNCTIONS["scanned"], X).mlir_module()).encode()),
        np.random.default_rng(seed),
    )
    for _ in range(3):
        place = int(random.integers(len(text)))
        text[place : place + int(random.integers(4))] = random.bytes(int(random.integers(4)))
    with contextlib.suppress(cl.ModelError):
        loaded = cl.stablehlo.load(bytes(text).decode(errors="replace"))
        jax.eval_shape(loaded, *loaded.inputs)
