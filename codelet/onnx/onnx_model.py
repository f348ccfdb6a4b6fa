"""Models of ONNX as functions of JAX.

In comes a file; out comes a function of parameters and inputs, which JAX traces as any other: it is jitted,
differentiated, made a graph of vertices by `cl.trace`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx

from codelet.errors import ModelError
from codelet.onnx.node import as_array, is_too_wide
from codelet.onnx.operator_table import find
from codelet.onnx.read_file import read
from codelet.onnx.run_nodes import NodeRunner, NodeValues, as_known, domain_of


class Model:
    """An ONNX model as a function: `model(parameters, *inputs)`. Made by `cl.onnx.load`.

    Args:
        proto: the model.
        constants: the values of inputs on which shapes depend, by name.
        dimensions: the extents of open dimensions.

    Attributes:
        parameters: the trained arrays, by name: the initializers, without those on which shapes depend.
        inputs: the type of each input by name, as `jax.ShapeDtypeStruct`.
        outputs: the names of the results, in the file's order.

    >>> import codelet as cl, onnx
    >>> x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [3]) for name in "xy")
    >>> node = onnx.helper.make_node("Tanh", ["x"], ["y"])
    >>> model = cl.onnx.load(onnx.helper.make_model(onnx.helper.make_graph([node], "tanh", [x], [y])))
    >>> model
    Model('tanh', 0 parameters, inputs x: float32[3]; outputs y)
    """

    def __init__(self, proto: onnx.ModelProto, constants: Mapping[str, Any], dimensions: Mapping[str, int]):
        graph = proto.graph
        functions = {(domain_of(item.domain), item.name, item.overload): item for item in proto.functions}
        versions = {domain_of(item.domain): item.version for item in proto.opset_import}
        self._evaluator = NodeRunner(versions, functions)
        self._nodes = graph.node
        self.__name__ = graph.name or "model"
        self.outputs = tuple(item.name for item in graph.output)
        arrays = {item.name: onnx.numpy_helper.to_array(item) for item in graph.initializer}
        arrays |= {item.values.name: _dense(item) for item in graph.sparse_initializer}
        fixed = _fixed(graph, versions)
        unknown = set(constants) - {item.name for item in graph.input}
        if unknown:
            raise ModelError(
                "constants are given of what is no input",
                given=", ".join(sorted(unknown)),
                expected=", ".join(item.name for item in graph.input),
            )
        known = {name: array for name, array in arrays.items() if name in fixed or not _is_learned(array)}
        self.parameters = {name: array for name, array in arrays.items() if name not in known}
        self._wide = [name for name, array in self.parameters.items() if is_too_wide(array)]
        self._known = {**known, **{name: as_known(value) for name, value in constants.items()}}
        self.inputs = {
            item.name: _type(item, dimensions)
            for item in graph.input
            if item.name not in arrays and item.name not in constants
        }
        self.shape_inputs = tuple(item for item in self.inputs if item in fixed)

    def __call__(self, parameters: Mapping[str, Any], *inputs: Any) -> tuple[Any, ...]:
        """The results, in the file's order.

        Args:
            parameters: arrays by name, as `parameters` has them.
            inputs: arrays, in the order of `inputs`.

        Raises:
            ModelError: other parameters or inputs, or a node that cannot be computed.
        """
        if len(inputs) != len(self.inputs) or set(parameters) != set(self.parameters):
            odd = sorted(set(parameters) ^ set(self.parameters))
            raise ModelError(
                f"the model {self.__name__!r} is given other arguments than it has",
                given=f"{len(inputs)} inputs" + (f", and parameters that differ: {', '.join(odd[:5])}" if odd else ""),
                expected=f"model(parameters, {', '.join(self.inputs)})",
            )
        for name in self._wide:
            as_array(self.parameters[name], f"the parameter {name!r}")
        arguments = dict(zip(self.inputs, jax.tree.map(jnp.asarray, inputs), strict=True))
        scope = NodeValues({"": None, **self._known, **parameters, **arguments})
        self._evaluator.start()
        self._evaluator.run(self._nodes, scope)
        return tuple(as_array(scope[name], f"the result {name!r}") for name in self.outputs)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {_text(item)}" for name, item in self.inputs.items())
        outputs = ", ".join(self.outputs)
        return f"Model({self.__name__!r}, {len(self.parameters)} parameters, inputs {inputs}; outputs {outputs})"


def _text(kind: Any) -> str:
    return f"{kind.dtype}{list(kind.shape)}" if hasattr(kind, "shape") else str(kind)


def _is_learned(array: np.ndarray) -> bool:
    """Whether an initializer is a parameter: of floating point, or many integers, as quantized weights are."""
    return jnp.issubdtype(array.dtype, jnp.floating) or array.size > 64


def _dense(sparse: onnx.SparseTensorProto) -> np.ndarray:
    values, indices = onnx.numpy_helper.to_array(sparse.values), onnx.numpy_helper.to_array(sparse.indices)
    result = np.zeros(tuple(sparse.dims), values.dtype)
    if indices.ndim == 1:
        result.reshape(-1)[indices] = values
    else:
        result[tuple(indices.T)] = values
    return result


def _makes_no_array(node: onnx.NodeProto) -> bool:
    """Whether the type of a node's results depends on how its graphs are run: a result for each iteration,
    a sequence.
    """
    if node.op_type == "Loop" and len(node.output) > len(node.input) - 2:
        return True
    bodies = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
    return any(not item.type.HasField("tensor_type") for body in bodies for item in body.output)


def _fixed(graph: onnx.GraphProto, versions: Mapping[str, int]) -> set[str]:
    """The names of values on which shapes depend, back to where they come from; a shape itself depends on none."""
    result: set[str] = set()

    def visit(nodes: Any) -> None:
        for node in reversed(nodes):
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    if result.intersection(node.output):
                        result.update(item.name for item in attribute.g.output)
                    visit(attribute.g.node)
            domain = domain_of(node.domain)
            item = find(domain, node.op_type, versions.get(domain, 1))
            if result.intersection(node.output):
                by_type = () if item is None else item.by_type
                result.update(name for k, name in enumerate(node.input) if name and k not in by_type)
            elif node.op_type in ("If", "Loop") and _makes_no_array(node):
                result.update(name for name in node.input[: 2 if node.op_type == "Loop" else 1] if name)
            elif item is not None:
                result.update(node.input[k] for k in item.fixed if k < len(node.input) and node.input[k])

    visit(graph.node)
    return result


def _type(item: onnx.ValueInfoProto, dimensions: Mapping[str, int]) -> Any:
    """The type of an input.

    Raises:
        ModelError: it has a dimension that nothing fixes.
    """
    kind = item.type
    if kind.HasField("optional_type"):
        kind = kind.optional_type.elem_type
    if kind.HasField("sequence_type"):
        return []  # of arrays that whoever calls the model chooses
    if not kind.HasField("tensor_type"):
        raise ModelError(
            f"the input {item.name!r} is no array",
            given=kind.WhichOneof("value"),
            expected="an array, or a sequence of them",
        )
    return _struct(item.name, kind.tensor_type, dimensions)


def _struct(name: str, kind: onnx.TypeProto.Tensor, dimensions: Mapping[str, int]) -> jax.ShapeDtypeStruct:
    if kind.elem_type == onnx.TensorProto.STRING:
        raise ModelError(f"the input {name!r} is of strings", given="strings", expected="numbers")
    dtype = jax.dtypes.canonicalize_dtype(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)))
    shape, open_ = [], []
    for d, item in enumerate(kind.shape.dim):
        named = item.dim_param or f"{name}.{d}"
        if item.HasField("dim_value"):
            shape.append(item.dim_value)
        elif named in dimensions or f"{name}.{d}" in dimensions:
            shape.append(int(dimensions.get(named, dimensions.get(f"{name}.{d}", 0))))
        else:
            open_.append(named)
    if open_ or any(n < 0 for n in shape):
        raise ModelError(
            f"dimensions of the input {name!r} are open",
            given=", ".join(open_) or str(shape),
            expected="a number for each",
            fix=f"cl.onnx.load(path, dimensions={{{', '.join(f'{one!r}: 8' for one in open_)}}})",
        )
    return jax.ShapeDtypeStruct(tuple(shape), dtype)


def load_batch(source: Any, batch: int) -> Model:
    """Load an ONNX model as `load` does, all open first dimensions of its inputs as the batch."""
    model, folder = read(source)
    extents = {}
    for item in model.graph.input:
        dims = item.type.tensor_type.shape.dim
        if dims and not dims[0].HasField("dim_value"):
            extents[dims[0].dim_param or f"{item.name}.0"] = batch
    return _model(model, folder, {}, extents)


def load(
    source: Any, *, dimensions: Mapping[str, int] | None = None, constants: Mapping[str, Any] | None = None
) -> Model:
    """Load an ONNX model as a JAX function.

    Args:
        source: the path of a file, its bytes, or an `onnx.ModelProto`.
        dimensions: the extents of open dimensions of inputs, by their names in the file, or as "input.0".
        constants: the values of inputs on which shapes depend, by name; they are inputs no longer.

    Returns:
        A `Model`: `model(model.parameters, *inputs)`.

    Raises:
        ModelError: not an ONNX file, an unsupported operator, or open dimensions.

    >>> import codelet as cl, numpy as np, onnx
    >>> from onnx import helper, numpy_helper
    >>> x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [3]) for name in "xy")
    >>> w = numpy_helper.from_array(np.float32([1, 2, 3]), "w")
    >>> graph = helper.make_graph([helper.make_node("Mul", ["x", "w"], ["y"])], "scale", [x], [y], [w])
    >>> model = cl.onnx.load(helper.make_model(graph))
    >>> model(model.parameters, np.float32([10, 10, 10]))[0].tolist()
    [10.0, 20.0, 30.0]
    """
    return _model(*read(source), constants or {}, dimensions or {})


def _model(
    model: onnx.ModelProto,
    folder: Path | None,
    constants: Mapping[str, Any],
    dimensions: Mapping[str, int],
) -> Model:
    """A model that was read, with its arrays that lie beside it in a folder."""
    if folder is not None:
        onnx.load_external_data_for_model(model, str(folder))
    return Model(model, constants, dimensions)
