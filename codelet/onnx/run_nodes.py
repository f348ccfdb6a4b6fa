"""Evaluation: the nodes of a graph, one after another, on values.

Values that depend on constants alone are computed when the model is traced, in 64 bits, as shapes are. A node that has
no function here, but that ONNX defines by others, is its function body.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx

import codelet.onnx.operators  # noqa: F401 (they enter themselves in the table)
from codelet.errors import CodeletError, ModelError
from codelet.onnx.node import Body, OnnxNode, as_array, is_known
from codelet.onnx.operator_table import Operator, find
from codelet.refusals import REFUSALS

_MOST_FOLDED = 1 << 22
"""Elements of a result that is computed when the model is traced."""

_SURELY_FOLDED = 1 << 10
"""Elements of operands, and integers in attributes, up to which no result is large."""

MOST_NODES = 200_000
"""Nodes that are evaluated, in functions, branches and turns of loops as often as these are."""


_GRADIENT = ("ai.onnx.preview.training", "Gradient")


class NodeValues:
    """Values by name, and those of the graph around.

    Attributes:
        values: by name.
        outer: the scope around; None for the model's main graph.
    """

    def __init__(self, values: Mapping[str, Any], outer: NodeValues | None = None):
        self.values, self.outer = dict(values), outer

    def __getitem__(self, name: str) -> Any:
        scope: NodeValues | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        raise ModelError(
            f"no value is named {name!r} where it is read",
            given=name,
            expected="an input, an initializer, or a result of an earlier node",
        )


def domain_of(name: str) -> str:
    """ONNX's default domain has two names."""
    return "" if name == "ai.onnx" else name


class NodeRunner:
    """Evaluates the graphs of a model.

    Attributes:
        versions: the opset of each domain.
        functions: those that the model defines, by domain, name and overload.
    """

    def __init__(
        self,
        versions: Mapping[str, int],
        functions: Mapping[tuple[str, str, str], onnx.FunctionProto],
        around: NodeRunner | None = None,
    ):
        self.versions, self.functions = dict(versions), functions
        self._count = [0] if around is None else around._count  # of nodes, shared with what runs functions

    def start(self) -> None:
        """Count nodes from 0 on."""
        self._count[0] = 0

    def run(
        self, nodes: Iterable[onnx.NodeProto], scope: NodeValues, attributes: Mapping[str, Any] | None = None
    ) -> None:
        """Evaluate nodes, and put their results into a scope.

        Args:
            nodes: in order.
            scope: where they read and write.
            attributes: of the function that they are the body of.
        """
        several = list(nodes)
        for proto in several:
            self._count[0] += 1
            if self._count[0] > MOST_NODES:
                raise ModelError(
                    "its functions and loops hold too many nodes, each as often as it is run",
                    given=f"more than {MOST_NODES:,} nodes, at {proto.op_type} {proto.name!r}",
                    expected=f"{MOST_NODES:,} at most",
                )
            operands = [scope[name] if name else None for name in proto.input]
            node = self.node(proto, scope, attributes or {})
            if (node.domain, node.operator) == _GRADIENT:
                function = self._function_of(node, several, scope)
                node = replace(node, attributes={**node.attributes, "function": function})
            results = self.results(node, proto, operands)
            for name, result in zip(proto.output, results, strict=False):
                if name:
                    scope.values[name] = result

    def node(self, proto: onnx.NodeProto, scope: NodeValues, attributes: Mapping[str, Any]) -> OnnxNode:
        """A node with its attributes as Python has them."""
        item: dict[str, Any] = {}
        for attribute in proto.attribute:
            if attribute.ref_attr_name:
                if attribute.ref_attr_name in attributes:
                    item[attribute.name] = attributes[attribute.ref_attr_name]
                continue
            item[attribute.name] = self._attribute(attribute, scope, attributes)
        name = proto.name or next(iter(proto.output), proto.op_type)
        domain = domain_of(proto.domain)
        return OnnxNode(proto.op_type, domain, self.versions.get(domain, 1), name, list(proto.output), item)

    def _attribute(self, attribute: onnx.AttributeProto, scope: NodeValues, attributes: Mapping[str, Any]) -> Any:
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            return value.decode(errors="replace")
        if isinstance(value, onnx.TensorProto):
            return onnx.numpy_helper.to_array(value)
        if isinstance(value, onnx.GraphProto):
            return self.body(value, scope, attributes)
        if isinstance(value, (list, tuple)) or (hasattr(value, "__len__") and not isinstance(value, str)):
            return [one.decode(errors="replace") if isinstance(one, bytes) else one for one in value]
        return value

    def body(self, graph: onnx.GraphProto, outer: NodeValues, attributes: Mapping[str, Any]) -> Body:
        """A graph as a function of the values of its inputs."""
        constants = {item.name: onnx.numpy_helper.to_array(item) for item in graph.initializer}

        def run(*operands: Any) -> list[Any]:
            names = [item.name for item in graph.input if item.name not in constants]
            scope = NodeValues({**constants, **dict(zip(names, operands, strict=True))}, outer)
            self.run(graph.node, scope, attributes)
            return [scope[item.name] for item in graph.output]

        return run

    def _function_of(self, node: OnnxNode, nodes: Sequence[onnx.NodeProto], outer: NodeValues) -> Body:
        """The function to differentiate: the value that it names as a function of the values that it names."""
        arguments = [*(node.attribute("xs") or ()), *(node.attribute("zs") or ())]
        wanted = node.attribute("y", "")
        between = _nodes_between(nodes, arguments, wanted)

        def run(*operands: Any) -> list[Any]:
            scope = NodeValues(dict(zip(arguments, operands, strict=True)), outer)
            self.run(between, scope)
            return [scope[wanted]]

        return run

    def results(self, node: OnnxNode, proto: onnx.NodeProto, operands: Sequence[Any]) -> Sequence[Any]:
        """The results of a node.

        Raises:
            ModelError: its function fails, with the node named.
        """
        item = self.functions.get((node.domain, node.operator, proto.overload))
        try:
            with jax.named_scope(scope_of(proto, node.name)):
                if item is not None:
                    return self._called(item, node, operands)
                answer = find(node.domain, node.operator, node.version)
                if answer is None:
                    return self._by_definition(node, proto, operands)
                asked = (one for k, one in enumerate(operands) if k not in answer.by_type)
                if answer.is_folded and all(one is None or is_known(one) for one in asked):
                    results = _folded(lambda: answer.function(node, *operands), _may_be_large(node, answer, operands))
                    if results is not None:
                        return results
                # What is known is in 64 bits; what is computed in the dtypes that JAX has.
                arguments = [
                    one if k in answer.fixed or not is_known(one) or answer.sees_constants else as_array(one, node)
                    for k, one in enumerate(operands)
                ]
                return _several(answer.function(node, *arguments))
        except CodeletError:
            raise
        except REFUSALS as error:
            kinds = ", ".join(_kind(one) for one in operands)
            raise node.error(
                "it cannot be computed",
                given=f"{kinds or 'no operands'}: {error}"[:500],
                expected="operands as ONNX has them for it",
            ) from error

    def _called(self, function: onnx.FunctionProto, node: OnnxNode, operands: Sequence[Any]) -> Sequence[Any]:
        """The results of a function that is given by nodes."""
        arguments = dict(zip(function.input, [*operands, *[None] * len(function.input)], strict=False))
        defaults = {item.name: onnx.helper.get_attribute_value(item) for item in function.attribute_proto}
        defaults = {name: item.decode() if isinstance(item, bytes) else item for name, item in defaults.items()}
        versions = {domain_of(item.domain): item.version for item in function.opset_import}
        inner = NodeRunner({**self.versions, **versions}, self.functions, self)
        scope = NodeValues(arguments)
        inner.run(function.node, scope, {**defaults, **node.attributes})
        return [scope.values.get(name) for name in function.output]

    def _by_definition(self, node: OnnxNode, proto: onnx.NodeProto, operands: Sequence[Any]) -> Sequence[Any]:
        """The results of a node by ONNX's definition of it, in other nodes."""
        function = definition_of(proto, node.version, operands)
        if function is None:
            raise node.error(
                "no function computes it", given=node.operator, expected="an operator of the documentation's table"
            )
        return self._called(function, node, operands)


def _names_read(node: onnx.NodeProto) -> set[str]:
    """The names of values that a node reads, its graphs and the operand of its gradient among them."""
    names = set(node.input)
    for attribute in node.attribute:
        names.update(name for inner in attribute.g.node for name in _names_read(inner))
        if (node.domain, node.op_type) == _GRADIENT and attribute.name == "y":
            names.add(attribute.s.decode())
    return names


def _nodes_between(nodes: Sequence[onnx.NodeProto], arguments: Sequence[str], wanted: str) -> list[onnx.NodeProto]:
    """The nodes by which a value depends on some others, in order."""
    needed, result = {wanted}.difference(arguments), []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            result.append(node)
            needed |= _names_read(node).difference(arguments)
    return result[::-1]


def _kind(value: Any) -> str:
    return f"{value.dtype}{list(value.shape)}" if hasattr(value, "dtype") else type(value).__name__


def _several(result: Any) -> Sequence[Any]:
    return result if isinstance(result, tuple) else (result,)


def as_known(value: Any) -> Any:
    """A value as it is where it is known when a model is traced: an array of NumPy, or a list of them."""
    if isinstance(value, list):
        return [as_known(one) for one in value]
    return value if value is None else np.asarray(value)


def _may_be_large(node: OnnxNode, answer: Operator, operands: Sequence[Any]) -> bool:
    """Whether a result may be: by its operands, by those that decide shapes, or by integers in attributes."""
    sizes = sum(np.size(one) for k, one in enumerate(operands) if one is not None and k not in answer.by_type)
    numbers = (one for one in node.attributes.values() if isinstance(one, (int, list)))
    return bool(answer.fixed) or max(sizes, *map(_largest, numbers), 0) > _SURELY_FOLDED


def _largest(numbers: int | list[Any]) -> int:
    several = numbers if isinstance(numbers, list) else [numbers]
    return max((abs(one) for one in several if isinstance(one, int)), default=0)


def _folded(compute: Any, may_be_large: bool) -> Sequence[Any] | None:
    """Results of known operands: known as well, unless they are large, when there are none."""
    if may_be_large:
        try:
            with jax.enable_x64(True):
                shapes = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, _several(compute())))
        except jax.errors.JAXTypeError:  # it asks for values; then it is by `host_shape` that they are not large
            shapes = ()
        if sum(one.size for one in jax.tree.leaves(shapes)) > _MOST_FOLDED:
            return None
    with jax.ensure_compile_time_eval(), jax.enable_x64(True):
        result = _several(compute())
        return tuple(as_known(item) for item in result)


def scope_name(name: str) -> str:
    """The name of a node as a scope of JAX's: its parts between slashes, of letters that a scope may have."""
    clean = "".join(letter if letter.isalnum() or letter in "_.-/" else "_" for letter in name)
    return "/".join(part for part in clean.split("/") if part) or "node"


_TORCH_SCOPES = "pkg.torch.onnx.name_scopes"
"""Metadata of PyTorch's exporter: modules around a node, the path of each from the outermost on, and the node."""


def scope_of(proto: onnx.NodeProto, name: str) -> str:
    """The scope of a node: the modules around it.

    PyTorch notes them as metadata. Else they are the parts of the node's name, without a last one that only repeats the
    operator: nodes of one module are in one scope, as equations of one layer in JAX are, and fuse as these do.
    """
    for item in proto.metadata_props:
        if item.key == _TORCH_SCOPES:
            *modules, last = re.findall(r"'([^']*)'", item.value) or [name]
            return scope_name((modules[-1].replace(".", "/") if modules else "") or last)
    *modules, last = name.split("/")
    repeats = re.fullmatch(rf"{re.escape(proto.op_type)}(_\d+)?", last, re.IGNORECASE)
    return scope_name("/".join(modules) if repeats and any(modules) else name)


def _type_of(value: Any) -> onnx.TypeProto:
    if value is None:
        return onnx.TypeProto()
    if isinstance(value, list):
        return onnx.helper.make_sequence_type_proto(_type_of(value[0]) if value else onnx.TypeProto())
    number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
    return onnx.helper.make_tensor_type_proto(number, value.shape)


def has_definition(domain: str, operator: str, version: int) -> bool:
    """Whether ONNX defines an operator by others."""
    try:
        schema: Any = onnx.defs.get_schema(operator, version, domain)
    except onnx.defs.SchemaError:
        return False
    return schema.has_function or schema.has_context_dependent_function


def definition_of(proto: onnx.NodeProto, version: int, operands: Sequence[Any]) -> onnx.FunctionProto | None:
    """ONNX's definition of a node, in other nodes; None where it does not."""
    try:
        schema: Any = onnx.defs.get_schema(proto.op_type, version, domain_of(proto.domain))
    except onnx.defs.SchemaError:
        return None
    if schema.has_function:
        return schema.function_body
    if not schema.has_context_dependent_function:
        return None
    types = [_type_of(item).SerializeToString() for item in operands]
    versions = [item for item in schema.context_dependent_function_opset_versions if item <= version]
    output = schema.get_context_dependent_function_with_opset_version(
        max(versions, default=version), proto.SerializeToString(), types
    )
    function = onnx.FunctionProto()
    function.ParseFromString(output)
    return function if function.node else None
