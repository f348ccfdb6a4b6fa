"""ONNX files as functions of JAX: what they compute, how they are called, and what is refused."""

import contextlib
import itertools
import math
import re
import time
from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import codelet as cl
from benchmarks.fresh import peak_bytes
from benchmarks.onnx_of_models import beside_equinox, with_drawn_statistics
from codelet.models.resnet import resnet
from codelet.onnx import run_nodes
from codelet.onnx.operator_table import known_operators
from ipu_backend.cli import main
from tests import sklearn_models
from tests.examples import few
from tests.onnx_cases import check_case, model_cases, node_cases
from tests.onnx_mutations import mutations
from tests.torch_modules import FOLDER, MODULES, write

QUICK = (
    *(
        "add_bcast",
        "and4d",
        "argmax_default_axis_example_select_last_index",
        "averagepool_2d_ceil",
        "basic_conv_with_padding",
    ),
    *("batchnorm_epsilon", "bitshift_left_uint8", "cast_FLOAT_to_INT4", "clip_example", "concat_3d_axis_negative_3"),
    *("convtranspose_pads", "cumsum_1d_reverse_exclusive", "depthtospace_crd_mode_example", "dequantizelinear_axis"),
    *(
        "einsum_batch_matmul",
        "expand_dim_changed",
        "gather_negative_indices",
        "gemm_all_attributes",
        "gridsample_bicubic",
    ),
    *(
        "gru_with_initial_bias",
        "if",
        "instancenorm_example",
        "layer_normalization_2d_axis0",
        "loop11",
        "lstm_with_peepholes",
    ),
    *("matmulinteger", "maxpool_with_argmax_2d_precomputed_pads", "nllloss_NCd1d2_with_weight", "onehot_with_axis"),
    *("pow_types_float32_int64", "quantizelinear", "reduce_l2_default_axes_keepdims_example", "reshape_negative_dim"),
    *("resize_downsample_sizes_cubic", "reversesequence_time", "roialign_aligned_true", "scan_sum", "scatternd_add"),
    *("slice_neg_steps", "softmax_axis_0", "split_variable_parts_2d_opset18", "top_k", "triu_zero", "where_example"),
)
"""Of the operators, each family."""


def model_of(nodes, inputs, outputs, initializers=(), opset=21, **options):
    """A model of some nodes; inputs and outputs by name with their shapes, of float32."""
    read, made = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in several.items()]
        for several in (inputs, outputs)
    )
    arrays = [numpy_helper.from_array(array, name) for name, array in dict(initializers).items()]
    graph = helper.make_graph(nodes, "example", read, made, arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10, **options)


def layer(shape=("batch", 3)):
    """A dense layer: one parameter of each kind, a constant that fixes a shape."""
    nodes = [
        helper.make_node("Gemm", ["x", "weight", "bias"], ["hidden"], name="/body/dense/Gemm", transB=1),
        helper.make_node("Relu", ["hidden"], ["positive"], name="/body/act/Relu"),
        helper.make_node("Reshape", ["positive", "shape"], ["y"], name="/head/Reshape"),
    ]
    random = np.random.default_rng(0)
    initializers = {
        "weight": random.standard_normal((4, 3), np.float32),
        "bias": random.standard_normal(4, np.float32),
        "shape": np.array([-1, 2, 2], np.int64),
    }
    return model_of(nodes, {"x": shape}, {"y": (None, 2, 2)}, initializers)


@pytest.mark.parametrize("name", QUICK)
def test_an_operator_computes_what_onnx_says(name):
    check_case(node_cases()[f"test_{name}"])


@pytest.mark.parametrize(
    "name", ["test_Conv2d_groups", "test_operator_symbolic_override_nested", "test_expand_shape_model3"]
)
def test_a_stored_model_computes_what_onnx_says(name):
    check_case(model_cases()[name])


def test_parameters_are_arguments_and_what_fixes_shapes_is_none():
    model = cl.onnx.load(layer(), dimensions={"batch": 5})
    assert sorted(model.parameters) == ["bias", "weight"]
    assert model.inputs == {"x": jax.ShapeDtypeStruct((5, 3), jnp.float32)}
    assert model.outputs == ("y",)
    x = np.ones((5, 3), np.float32)
    (found,) = model(model.parameters, x)
    expected = np.maximum(x @ model.parameters["weight"].T + model.parameters["bias"], 0).reshape(5, 2, 2)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_traced_model_has_the_scopes_of_its_nodes_and_is_differentiated():
    model = cl.onnx.load(layer(), dimensions={"batch": 5})
    x = np.random.default_rng(1).standard_normal((5, 3), np.float32)

    def loss(parameters, x):
        return jnp.sum(model(parameters, x)[0] ** 2)

    traced = cl.trace(model, model.parameters, *model.inputs.values())
    assert any("body/dense" in own.name for own in traced.graph.compute_sets)
    step = cl.trace(jax.value_and_grad(loss), model.parameters, x)
    value, slopes = step(model.parameters, x)
    expected, by_jax = jax.value_and_grad(loss)(model.parameters, x)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), slopes, by_jax)


def test_a_model_of_a_path_and_of_bytes_is_the_same(tmp_path):
    path = tmp_path / "layer.onnx"
    onnx.save(layer((2, 3)), path)
    x = np.ones((2, 3), np.float32)
    results = [model(model.parameters, x)[0] for model in (cl.onnx.load(path), cl.onnx.load(path.read_bytes()))]
    np.testing.assert_array_equal(*results)


def test_arrays_beside_the_model_are_read(tmp_path):
    model = layer((2, 3))
    inside, x = cl.onnx.load(model), np.ones((2, 3), np.float32)
    onnx.save(model, tmp_path / "layer.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    outside = cl.onnx.load(tmp_path / "layer.onnx")
    np.testing.assert_array_equal(inside(inside.parameters, x)[0], outside(outside.parameters, x)[0])


def test_functions_of_the_file_are_called():
    double = helper.make_function(
        "own", "Double", ["x"], ["y"], [helper.make_node("Add", ["x", "x"], ["y"])], [helper.make_opsetid("", 21)]
    )
    model = model_of(
        [helper.make_node("Double", ["x"], ["y"], domain="own")], {"x": (3,)}, {"y": (3,)}, functions=[double]
    )
    model.opset_import.append(helper.make_opsetid("own", 1))
    np.testing.assert_array_equal(cl.onnx.load(model)({}, np.arange(3, dtype=np.float32))[0], [0, 2, 4])


def _check_model_of_sklearn(folder, name):
    stored = np.load(folder / f"sklearn_{name}.npz")
    model = cl.onnx.load(folder / f"sklearn_{name}.onnx", dimensions={"X.0": len(stored["x"])})
    results = cl.trace(model, model.parameters, stored["x"])(model.parameters, stored["x"])
    for k, found in enumerate(results):
        np.testing.assert_allclose(np.squeeze(found), stored[f"y{k}"], rtol=1e-5, atol=1e-6)


@few("name", sklearn_models.MODELS, quick=["logistic", "two_classes"])
def test_a_model_of_sklearn_computes_what_sklearn_does(name):
    _check_model_of_sklearn(sklearn_models.FOLDER, name)


@pytest.mark.slow
def test_skl2onnx_exports_models_that_compute_what_sklearn_does(tmp_path):
    pytest.importorskip("skl2onnx")
    sklearn_models.write(tmp_path)
    for name in sklearn_models.MODELS:
        _check_model_of_sklearn(tmp_path, name)


def _check_module_of_torch(folder, name):
    stored = np.load(folder / f"torch_{name}.npz")
    model = cl.onnx.load(folder / f"torch_{name}.onnx")
    traced = cl.trace(model, model.parameters, stored["x"])
    (found,) = traced(model.parameters, stored["x"])
    np.testing.assert_allclose(found, stored["y"], rtol=1e-5, atol=1e-5)
    return traced


@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_torch_computes_what_torch_does(name):
    _check_module_of_torch(FOLDER, name)


def test_modules_of_torch_are_the_scopes_of_the_graph():
    traced = _check_module_of_torch(FOLDER, "transformer_encoder_layer")
    scopes = {own.name.partition("/")[0] for own in traced.graph.compute_sets}
    assert {"self_attn", "linear1", "linear2", "norm1", "norm2"} <= scopes


@pytest.mark.slow
def test_torch_exports_modules_that_compute_what_torch_does(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    write(tmp_path)
    for name in MODULES:
        _check_module_of_torch(tmp_path, name)


def test_a_network_as_onnx_is_the_graph_that_it_is_in_equinox():
    network, state = resnet(jax.random.key(0), (1,), bottleneck=True, classes=5, widths=(4,))
    random = np.random.default_rng(0)
    state = with_drawn_statistics(state, network, random)
    shape = (2, 3, 12, 12)
    pictures = random.standard_normal(shape, np.float32)
    graphs, logits = [], []
    for function, parameters in beside_equinox(network, state, shape):
        traced = cl.trace(function, parameters, pictures)
        graphs.append(traced.graph)
        logits.append(traced(parameters, pictures))
    np.testing.assert_allclose(*logits, rtol=1e-4, atol=1e-5)
    assert len({len(graph.compute_sets) for graph in graphs}) == 1
    by_equinox, by_onnx = (graph.num_vertices for graph in graphs)
    assert abs(by_onnx / by_equinox - 1) <= 0.05


# --- operators of which ONNX has no case, beside another runtime --------------------------------------------


def _check_beside_runtime(node, inputs, kinds, constants=(), ml=3):
    """That a node computes what onnxruntime does: from its inputs, and the types of its results."""
    runtime = pytest.importorskip("onnxruntime")
    numbers = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}
    read = [helper.make_tensor_value_info(name, numbers[str(x.dtype)], x.shape) for name, x in inputs.items()]
    ranks = [helper.make_tensor_value_info(name, *kind) for name, kind in zip(node.output, kinds, strict=True)]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", ml)]
    proto = helper.make_model(helper.make_graph([node], "one", read, ranks), opset_imports=opsets, ir_version=10)
    expected = runtime.InferenceSession(proto.SerializeToString()).run(None, inputs)
    with jax.enable_x64(any(x.dtype.itemsize == 8 for x in inputs.values())):
        model = cl.onnx.load(proto, constants={name: inputs[name] for name in constants})
        results = jax.jit(model)({}, *(inputs[name] for name in model.inputs))
    for found, one in zip(results, expected, strict=True):
        assert found.shape == one.shape
        np.testing.assert_allclose(found, one, rtol=1e-5, atol=1e-5)


@few(
    "mode, shape",
    itertools.product(["TF", "IDF", "TFIDF"], [(11,), (3, 7), (2, 2)]),
    quick=["TF, (2, 2)", "IDF, (11)", "TFIDF, (3, 7)"],
)
def test_n_grams_are_counted_with_the_weights_of_their_pool(mode, shape):
    random = np.random.default_rng(len(shape))
    pool = [*random.permutation(6)[:2], *np.unique(random.integers(0, 6, (5, 2)), axis=0).reshape(-1), 1, 2, 3]
    count = 2 + (len(pool) - 5) // 2 + 1
    node = helper.make_node(
        "TfIdfVectorizer",
        ["x"],
        ["y"],
        mode=mode,
        min_gram_length=1,
        max_gram_length=3,
        max_skip_count=2,
        pool_int64s=[int(item) for item in pool],
        ngram_counts=[0, 2, len(pool) - 3],
        ngram_indexes=random.permutation(count).tolist(),
        weights=random.uniform(0.5, 2, count).tolist(),
    )
    kinds = [(TensorProto.FLOAT, [None] * len(shape))]
    _check_beside_runtime(node, {"x": random.integers(0, 6, shape)}, kinds)


@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("is_sorted", [0, 1])
def test_different_slices_of_a_known_array_are_found(axis, is_sorted):
    node = helper.make_node("Unique", ["x"], ["y", "first", "inverse", "counts"], sorted=is_sorted)
    if axis is not None:
        node.attribute.append(helper.make_attribute("axis", axis))
    whole = (TensorProto.INT64, [None])
    kinds = [(TensorProto.INT64, [None] if axis is None else [None, None]), whole, whole, whole]
    x = np.random.default_rng(3).integers(0, 2, (5, 3))
    _check_beside_runtime(node, {"x": x}, kinds, constants=("x",))


@pytest.mark.parametrize("seed", range(4))
def test_boxes_that_overlap_better_ones_are_left_out(seed):
    random = np.random.default_rng(seed)
    inputs = {
        "boxes": random.uniform(0, 1, (2, 9, 4)).astype(np.float32),
        "scores": np.round(random.uniform(0, 1, (2, 3, 9)), 1).astype(np.float32),  # some are equal
        "most": np.array([int(random.integers(1, 6))]),
        "overlap": np.array([0.3], np.float32),
        "least": np.array([0.2], np.float32),
    }
    node = helper.make_node("NonMaxSuppression", list(inputs), ["y"], center_point_box=seed % 2)
    _check_beside_runtime(node, inputs, [(TensorProto.INT64, [None, 3])], constants=tuple(inputs))


@pytest.mark.parametrize("how", range(4))
def test_trees_put_their_leaves_together_in_each_way(how):
    node = helper.make_node(
        "TreeEnsemble",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=2,
        aggregate_function=how,
        tree_roots=[0, 2],
        nodes_featureids=[0, 1, 2],
        nodes_splits=numpy_helper.from_array(np.array([0.1, -0.2, 0.0], np.float32)),
        nodes_modes=numpy_helper.from_array(np.array([0, 3, 1], np.uint8)),
        nodes_truenodeids=[1, 0, 3],
        nodes_trueleafs=[0, 1, 1],
        nodes_falsenodeids=[1, 2, 4],
        nodes_falseleafs=[1, 1, 1],
        nodes_missing_value_tracks_true=[1, 0, 0],
        leaf_targetids=[0, 1, 0, 1, 0],
        leaf_weights=numpy_helper.from_array(np.array([1.5, -2, 0.25, 3, -1], np.float32)),
    )
    x = np.random.default_rng(0).standard_normal((7, 3), np.float32)
    x[2, 0] = np.nan
    _check_beside_runtime(node, {"x": x}, [(TensorProto.FLOAT, [None, 2])], ml=5)


@pytest.mark.parametrize(
    ("operator", "attributes", "x"),
    [
        ("LabelEncoder", {"keys_int64s": [3, 5], "values_floats": [1.0, 2.0], "default_float": -3.0}, [[3, 4], [5, 3]]),
        ("LabelEncoder", {"keys_floats": [3.0, 5.0], "values_int64s": [7, 9]}, [3.0, 4.0, 5.0]),
        ("OneHotEncoder", {"cats_int64s": [3, 5, 9], "zeros": 1}, [[3, 9], [4, 5]]),
        ("Imputer", {"imputed_value_int64s": [1, 2], "replaced_value_int64": 7}, [[7, 5], [6, 7]]),
        ("Normalizer", {"norm": "L1"}, [[1.0, -3.0], [2.0, 2.0]]),
        ("Scaler", {"offset": [1.0, 2.0], "scale": [2.0, 0.5]}, [[1.0, -3.0], [2.0, 2.0]]),
    ],
)
def test_features_are_prepared(operator, attributes, x):
    x = np.asarray(x, np.int64 if isinstance(np.ravel(x)[0], np.integer) else np.float32)
    whole = "values_int64s" in attributes or operator == "Imputer"
    node = helper.make_node(operator, ["x"], ["y"], domain="ai.onnx.ml", **attributes)
    rank = x.ndim + (operator == "OneHotEncoder")
    _check_beside_runtime(node, {"x": x}, [(TensorProto.INT64 if whole else TensorProto.FLOAT, [None] * rank)])


def test_a_gradient_of_a_gradient_and_one_by_a_value_between():
    training = "ai.onnx.preview.training"
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"]),
        helper.make_node("Mul", ["square", "x"], ["cube"]),
        helper.make_node("Gradient", ["x"], ["slope"], domain=training, xs=["x"], y="cube"),
        helper.make_node("Gradient", ["x"], ["bend"], domain=training, xs=["x"], y="slope"),
        helper.make_node("Gradient", ["square", "x"], ["part"], domain=training, xs=["square"], zs=["x"], y="cube"),
    ]
    model = model_of(nodes, {"x": (3,)}, {"slope": (3,), "bend": (3,), "part": (3,)})
    model.opset_import.append(helper.make_opsetid(training, 1))
    x = np.array([1, -2, 3], np.float32)
    slope, bend, part = cl.trace(cl.onnx.load(model), {}, x)({}, x)
    np.testing.assert_allclose(slope, 3 * x * x)
    np.testing.assert_allclose(bend, 6 * x)
    np.testing.assert_allclose(part, x)


# --- control flow -------------------------------------------------------------------------------------------


def _loop(body, carried, outputs, most=None, condition=True):
    """A loop of a model: from the nodes of its body, its carried values with their shapes, and what it gives."""
    info = helper.make_tensor_value_info
    turn, goes = info("turn", TensorProto.INT64, []), info("goes", TensorProto.BOOL, [])
    states = [info(f"{name}_in", TensorProto.FLOAT, shape) for name, shape in carried.items()]
    results = [info(name, TensorProto.FLOAT, [2]) for name in outputs]
    graph = helper.make_graph(body, "body", [turn, goes, *states], [info("still", TensorProto.BOOL, []), *results])
    starts = {f"{name}_start": shape for name, shape in carried.items()}
    names = ["most" if most is not None else "", "first", *starts]
    node = helper.make_node("Loop", names, [f"{name}_out" for name in outputs], name="the loop", body=graph)
    arrays = {"first": np.array(condition)} | ({} if most is None else {"most": np.array(most, np.int64)})
    return model_of([node], starts, {f"{name}_out": shape for name, shape in outputs.items()}, arrays)


@pytest.mark.parametrize("most", [0, 1, 5, 40])
def test_a_loop_gives_a_row_for_each_turn_and_none_where_there_is_no_turn(most):
    body = [
        helper.make_node("Identity", ["goes"], ["still"]),
        helper.make_node("Add", ["x_in", "x_in"], ["x"]),
        helper.make_node("Neg", ["x_in"], ["row"]),
    ]
    model = cl.onnx.load(_loop(body, {"x": (2,)}, {"x": (2,), "row": (None, 2)}, most))
    last, rows = model(model.parameters, np.ones(2, np.float32))
    np.testing.assert_array_equal(last, np.full(2, 2.0**most, np.float32))
    np.testing.assert_array_equal(rows, -np.repeat(2.0 ** np.arange(most, dtype=np.float32)[:, None], 2, 1))


@pytest.mark.parametrize("turns", [3, 50])
def test_a_loop_without_a_number_of_turns_ends_by_its_condition(turns):
    body = [
        helper.make_node("Constant", [], ["last"], value=numpy_helper.from_array(np.array(turns - 1, np.int64))),
        helper.make_node("Less", ["turn", "last"], ["still"]),
        helper.make_node("Add", ["x_in", "x_in"], ["x"]),
    ]
    model = cl.onnx.load(_loop(body, {"x": (2,)}, {"x": (2,)}))
    (last,) = jax.jit(model)(model.parameters, np.ones(2, np.float32))
    np.testing.assert_array_equal(last, np.full(2, 2.0**turns, np.float32))


# --- refused ------------------------------------------------------------------------------------------------


def _refused(source, text, **options):
    with pytest.raises(cl.ModelError, match=re.escape(text)) as error:
        cl.onnx.load(source, **options)
    return str(error.value)


def test_what_is_no_file_is_refused(tmp_path):
    _refused(b"no model at all", "this is no file of ONNX")
    _refused(tmp_path / "none.onnx", "cannot be read")
    _refused(3, "is given no model")


def test_open_dimensions_are_named_with_the_mend():
    assert "cl.onnx.load(path, dimensions={'batch': 8})" in _refused(layer(), "dimensions of the input 'x' are open")


def test_a_newer_opset_is_refused():
    model = layer((2, 3))
    model.opset_import[0].version = onnx.defs.onnx_opset_version() + 1
    _refused(model, "newer opset")


def test_all_unknown_operators_are_listed_with_how_often_each_occurs():
    nodes = [helper.make_node("Mystery", ["x"], [f"y{k}"], domain="elsewhere") for k in range(3)]
    nodes += [helper.make_node("Riddle", ["y0"], ["y"], domain="elsewhere")]
    model = model_of(nodes, {"x": (3,)}, {"y": (3,)})
    model.opset_import.append(helper.make_opsetid("elsewhere", 1))
    assert "elsewhere.Mystery (3), elsewhere.Riddle (1)" in _refused(model, "computes some of its operators")


def test_operators_of_strings_and_of_files_are_refused_by_their_reason():
    nodes = [
        helper.make_node("ImageDecoder", ["x"], ["z"]),
        helper.make_node("StringNormalizer", ["z"], ["y"]),
    ]
    said = _refused(model_of(nodes, {"x": (3,)}, {"y": (3,)}), "computes some of its operators")
    assert "ImageDecoder (1, of files of pictures), StringNormalizer (1, of strings)" in said


def test_a_selection_that_depends_on_data_is_refused_by_the_node():
    model = cl.onnx.load(model_of([helper.make_node("Unique", ["x"], ["y"], name="a")], {"x": (3,)}, {"y": (None,)}))
    assert model.shape_inputs == ("x",)
    with pytest.raises(cl.ModelError, match=r"node 'a' .*the operand 'X' decides shapes, and depends on data"):
        model({}, np.ones(3, np.float32))


def test_arrays_that_have_not_what_they_say_are_refused(tmp_path):
    short = layer((2, 3))
    short.graph.initializer[0].raw_data = b"\0" * 12
    _refused(short, "has not as many bytes as it says")
    large = layer((2, 3))
    large.graph.initializer[0].dims[0] = 1 << 60
    _refused(large, "has not as many bytes as it says")
    path = tmp_path / "layer.onnx"
    onnx.save(layer((2, 3)), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    away = onnx.load(path, load_external_data=False)
    away.graph.initializer[0].external_data[0].value = "../weights.bin"
    path.write_bytes(away.SerializeToString())
    _refused(path, "outside of the model's folder")


def test_a_shape_that_depends_on_data_is_refused_by_the_node():
    nodes = [
        helper.make_node("Cast", ["x"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Reshape", ["x", "whole"], ["y"], name="the reshape"),
    ]
    model = cl.onnx.load(model_of(nodes, {"x": (2,)}, {"y": (None, None)}))
    assert model.shape_inputs == ("x",)
    with pytest.raises(cl.ModelError, match=r"node 'the reshape' .*decides shapes"):
        jax.jit(model)(model.parameters, np.ones(2, np.float32))


def test_types_that_do_not_agree_are_refused_by_the_node():
    model = cl.onnx.load(
        model_of([helper.make_node("Add", ["x", "z"], ["y"], name="sum")], {"x": (2,), "z": (3,)}, {"y": (2,)})
    )
    with pytest.raises(cl.ModelError, match=r"node 'sum' \(Add of opset 21\)"):
        model({}, np.ones(2, np.float32), np.ones(3, np.float32))


def test_other_arguments_are_refused():
    model = cl.onnx.load(layer((2, 3)))
    with pytest.raises(cl.ModelError, match="other arguments"):
        model({}, np.ones((2, 3), np.float32))


def _runs_alike(data, model):
    """Whether a changed model gives what onnxruntime does, or else ONNX's reference; None where neither runs it."""
    arrays = [*jax.tree.leaves(jax.eval_shape(model, model.parameters, *model.inputs.values())), *model.inputs.values()]
    if sum(math.prod(one.shape) for one in arrays) > 1_000_000:
        return None
    random, proto = np.random.default_rng(0), onnx.load_model_from_string(data)
    kinds = {one.name: helper.tensor_dtype_to_np_dtype(one.type.tensor_type.elem_type) for one in proto.graph.input}
    arguments = {
        name: (
            random.integers(0, 20, kind.shape) if kind.dtype.kind == "i" else random.standard_normal(kind.shape)
        ).astype(kinds[name])
        for name, kind in model.inputs.items()
    }
    results = jax.jit(model)(model.parameters, *arguments.values())
    alike = None
    for runtime in (pytest.importorskip("onnxruntime").InferenceSession, ReferenceEvaluator):
        with contextlib.suppress(Exception):  # of many classes, of which some refuse what others take
            expected = runtime(data).run(None, arguments)
            alike = all(
                np.shape(a) == np.shape(b)
                and np.allclose(np.asarray(a, float), np.asarray(b, float), rtol=1e-3, atol=1e-4, equal_nan=True)
                for a, b in zip(results, expected, strict=True)
            )
            if alike:
                return True
    return alike


def _outcome_of_changed(data, *, is_compared):
    try:
        model = cl.onnx.load(data, dimensions={"X.0": 3})
    except cl.ModelError:
        return "refused"
    try:
        jax.eval_shape(model, model.parameters, *model.inputs.values())
        return "differs" if is_compared and _runs_alike(data, model) is False else "runs"
    except cl.ModelError:
        return "refused late"


def test_a_file_that_was_changed_is_loaded_or_refused():
    outcomes = Counter(_outcome_of_changed(data, is_compared=False) for data in mutations([layer((2, 3))], 60))
    assert sum(outcomes.values()) == 60
    assert outcomes["refused"], outcomes
    assert outcomes["runs"], outcomes


@pytest.mark.slow
def test_two_thousand_changed_files_are_loaded_equal_or_refused_in_bounded_memory_and_time():
    names = (*(f"torch_{name}" for name in MODULES), "sklearn_forest")
    models = [layer((2, 3)), *(onnx.load(FOLDER / f"{name}.onnx") for name in names)]
    _outcome_of_changed(models[0].SerializeToString(), is_compared=True)
    before, outcomes, slowest = peak_bytes(), Counter(), 0.0
    for data in mutations(models, 2_000):
        start = time.process_time()
        outcomes[_outcome_of_changed(data, is_compared=True)] += 1
        slowest = max(slowest, time.process_time() - start)
    assert sum(outcomes.values()) == 2_000
    assert not outcomes["differs"], outcomes
    assert min(outcomes["refused"], outcomes["refused late"], outcomes["runs"]) > 100, outcomes
    assert peak_bytes() - before < 1 << 30
    assert slowest < 30


def test_functions_that_call_one_another_again_and_again_are_refused_in_bounded_time(monkeypatch):
    monkeypatch.setattr(run_nodes, "MOST_NODES", 2_000)
    opset = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    functions = [helper.make_function("own", "F0", ["x"], ["y"], [helper.make_node("Neg", ["x"], ["y"])], opset)]
    for k in range(1, 40):
        calls = [
            helper.make_node(f"F{k - 1}", ["x"], ["z"], domain="own"),
            helper.make_node(f"F{k - 1}", ["z"], ["y"], domain="own"),
        ]
        functions.append(helper.make_function("own", f"F{k}", ["x"], ["y"], calls, opset))
    node = helper.make_node("F39", ["x"], ["y"], domain="own")
    model = model_of([node], {"x": (1,)}, {"y": (1,)}, functions=functions)
    model.opset_import.append(helper.make_opsetid("own", 1))
    with pytest.raises(cl.ModelError, match="hold too many nodes"):
        jax.eval_shape(cl.onnx.load(model), {}, np.ones(1, np.float32))


@pytest.mark.slow
def test_names_of_a_file_are_no_markup_in_a_report(tmp_path):
    bad = "</script><script>alert(1)</script>"
    nodes = [
        helper.make_node("Mul", [f"{bad}x", f"{bad}w"], ["h"], name=f"../../{bad}"),
        helper.make_node("Tanh", ["h"], ["y"], name="../up/Tanh"),
    ]
    arrays = {f"{bad}w": np.ones(4, np.float32)}
    model = cl.onnx.load(model_of(nodes, {f"{bad}x": (4,)}, {"y": (4,)}, arrays))
    traced = cl.trace(model, model.parameters, *model.inputs.values(), target=cl.IPU(num_tiles=4))
    traced.profile().write_report(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "alert(1)" in text
    assert "<script>alert" not in text
    assert "</script>alert" not in text


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes"),
    [
        ("ConstantOfShape", {"shape": [1 << 15, 1 << 15]}, {}),
        ("Expand", {"a": [[1.0]], "shape": [1 << 15, 1 << 15]}, {}),
        ("Tile", {"a": [[1.0]], "repeats": [1 << 15, 1 << 15]}, {}),
        ("Pad", {"a": [1.0], "pads": [0, 1 << 30]}, {}),
        ("Add", {"a": np.zeros((1 << 15, 1), np.float32), "b": np.zeros((1, 1 << 15), np.float32)}, {}),
        ("MatMul", {"a": np.zeros((1 << 15, 1), np.float32), "b": np.zeros((1, 1 << 15), np.float32)}, {}),
    ],
)
def test_what_is_known_and_large_is_not_computed_when_a_model_is_traced(operator, inputs, attributes):
    arrays = {
        name: np.asarray(value, np.int64 if name in ("shape", "repeats", "pads") else np.float32)
        for name, value in inputs.items()
    }
    node = helper.make_node(operator, list(inputs), ["large"], **attributes)
    total = helper.make_node("ReduceSum", ["large"], ["sum"], keepdims=0)
    nodes = [node, total, helper.make_node("Add", ["x", "sum"], ["y"])]
    model = cl.onnx.load(model_of(nodes, {"x": ()}, {"y": ()}, arrays))
    before = peak_bytes()
    (kind,) = jax.eval_shape(model, model.parameters, np.float32(1))
    assert kind.shape == ()
    assert peak_bytes() - before < 1 << 28


@pytest.mark.parametrize(("operator", "values"), [("Range", [0, 1 << 40, 1]), ("HannWindow", [1 << 40])])
def test_what_must_be_known_and_is_large_is_refused(operator, values):
    arrays = {f"a{k}": np.array(value, np.int64) for k, value in enumerate(values)}
    nodes = [
        helper.make_node(operator, list(arrays), ["long"], name="long"),
        helper.make_node("Cast", ["long"], ["cast"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["cast"], ["sum"], keepdims=0),
        helper.make_node("Add", ["x", "sum"], ["y"]),
    ]
    model = cl.onnx.load(model_of(nodes, {"x": ()}, {"y": ()}, arrays))
    with pytest.raises(cl.ModelError, match=rf"node 'long' \({operator} .*no array is made of this shape"):
        model(model.parameters, np.float32(1))


def test_whole_numbers_of_more_than_32_bits_are_refused_where_arrays_have_32():
    nodes = [helper.make_node("Clip", ["x", "", "most"], ["y"], name="the clip")]
    proto = model_of(nodes, {"x": (3,)}, {"y": (3,)}, {"most": np.array(1 << 40, np.int64)})
    for kind in (*proto.graph.input, *proto.graph.output):
        kind.type.tensor_type.elem_type = TensorProto.INT64
    model, x = cl.onnx.load(proto), np.arange(3)
    with pytest.raises(cl.ModelError, match=r"node 'the clip' .*whole numbers of more than 32 bits"):
        model({}, x)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(cl.onnx.load(proto)({}, x)[0], x)


def test_the_table_of_operators_is_that_of_the_code():
    text = (Path(__file__).parents[1] / "docs" / "onnx_operators.md").read_text()
    for domain, name, versions in known_operators():
        assert f"| {domain + '.' if domain else ''}{name} | {', '.join(map(str, versions))} |" in text


def test_a_file_is_built_from_the_command_line(tmp_path, capsys):
    path = tmp_path / "layer.onnx"
    onnx.save(layer(), path)
    main(["build", str(path), "--batch", "4", "--tiles", "8"])
    shown = capsys.readouterr().out
    assert "layer.onnx:" in shown
    assert "body/dense" in shown
