"""Files: the parts of them that are read, and the checks before anything is made of them."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from codelet.errors import ModelError
from codelet.onnx.operator_table import find
from codelet.onnx.run_nodes import domain_of, has_definition

_NEWEST = onnx.defs.onnx_opset_version()

_STRUCTURE = "a model that onnx.checker accepts"


def read(source: Any) -> tuple[onnx.ModelProto, Path | None]:
    """A model of a file, of bytes, or as it is; and the folder that data outside of it lies in.

    Raises:
        ModelError: it is none, or one that nothing here computes.
    """
    folder: Path | None = None
    if isinstance(source, onnx.ModelProto):
        model = onnx.ModelProto()
        model.CopyFrom(source)
    else:
        if isinstance(source, (str, os.PathLike)):
            path = Path(source)
            folder = path.resolve().parent
            try:
                data = path.read_bytes()
            except OSError as error:
                raise ModelError(
                    f"the file {os.fspath(source)!r} cannot be read", given=str(error), expected="a file of ONNX"
                ) from error
        elif isinstance(source, (bytes, bytearray, memoryview)):
            data = bytes(source)
        else:
            raise ModelError(
                "cl.onnx.load is given no model",
                given=type(source).__name__,
                expected="a path, bytes, or an onnx.ModelProto",
            )
        model = onnx.ModelProto()
        try:
            model.ParseFromString(data)
        except (DecodeError, ValueError, RecursionError) as error:
            raise ModelError(
                "this is no file of ONNX",
                given=f"{len(data):,} bytes: {error}"[:200],
                expected="a model that onnx.save has written",
            ) from error
    _check(model, folder)
    return model, folder


def _graphs(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    for node in nodes:
        for attribute in node.attribute:
            for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield graph
                yield from _graphs(graph.node)


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """All arrays in a file."""
    graphs = [model.graph, *_graphs(model.graph.node), *(item for f in model.functions for item in _graphs(f.node))]
    for graph in graphs:
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            _check_sparse(sparse)
            yield from (sparse.values, sparse.indices)
    for node in [
        *model.graph.node,
        *(n for f in model.functions for n in f.node),
        *(n for g in graphs[1:] for n in g.node),
    ]:
        for attribute in node.attribute:
            yield from ([attribute.t] if attribute.HasField("t") else [])
            yield from attribute.tensors


def _check(model: onnx.ModelProto, folder: Path | None) -> None:
    if not model.HasField("graph") or not model.opset_import:
        raise ModelError("this is no model of ONNX", given="no graph, or no opset", expected=_STRUCTURE)
    for tensor in _tensors(model):
        _check_tensor(tensor, folder)
    versions = {domain_of(item.domain): item.version for item in model.opset_import}
    if versions.get("", 1) > _NEWEST:
        raise ModelError(
            "the model is of a newer opset than this version of the onnx package knows",
            given=versions[""],
            expected=f"at most {_NEWEST}",
            fix="install a newer onnx, or convert it: onnx.version_converter.convert_version",
        )
    _check_operators(model, versions)
    try:
        if not any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in _tensors(model)):
            onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, ValueError, RuntimeError) as error:
        raise ModelError("onnx.checker refuses the model", given=str(error)[:400], expected=_STRUCTURE) from error


_MOST_OF_SPARSE = 1 << 28
"""Elements of an array that a file has as a sparse one."""


def _check_sparse(sparse: onnx.SparseTensorProto) -> None:
    if any(n < 0 for n in sparse.dims) or math.prod(sparse.dims) > _MOST_OF_SPARSE:
        raise ModelError(
            f"the sparse array {sparse.values.name!r} is too large to be a dense one",
            given=list(sparse.dims),
            expected=f"{_MOST_OF_SPARSE:,} elements at most",
        )


_BITS: dict[int, int] = {onnx.TensorProto.INT4: 4, onnx.TensorProto.UINT4: 4, onnx.TensorProto.FLOAT4E2M1: 4}


def _check_tensor(tensor: onnx.TensorProto, folder: Path | None) -> None:
    """That an array has as much as it says.

    Raises:
        ModelError: it has more, or less, or lies outside of the model's folder.
    """
    if any(n < 0 for n in tensor.dims):
        raise ModelError(
            f"the array {tensor.name!r} has a negative extent", given=list(tensor.dims), expected="extents from 0"
        )
    count = math.prod(tensor.dims)
    if tensor.data_type == onnx.TensorProto.STRING:
        return
    try:
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
    except (KeyError, ValueError) as error:
        raise ModelError(
            f"the array {tensor.name!r} is of a type that is not known",
            given=tensor.data_type,
            expected="a type of numbers",
        ) from error
    bits = _BITS.get(tensor.data_type, 8 * dtype.itemsize)
    needed = -(-count * bits // 8)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        _check_external(tensor, needed, folder)
        return
    if tensor.HasField("raw_data"):
        if len(tensor.raw_data) != needed:
            raise ModelError(
                f"the array {tensor.name!r} has not as many bytes as it says",
                given=f"{len(tensor.raw_data):,}",
                expected=f"{needed:,} for {list(tensor.dims)}",
            )
        return
    fields = (tensor.float_data, tensor.int32_data, tensor.int64_data, tensor.double_data, tensor.uint64_data)
    have = max(map(len, fields))
    if have * 2 < count and not (bits == 4 and have * 2 >= count):
        raise ModelError(
            f"the array {tensor.name!r} has not as many numbers as it says",
            given=f"{have:,}",
            expected=f"{count:,} for {list(tensor.dims)}",
        )


def _check_external(tensor: onnx.TensorProto, needed: int, folder: Path | None) -> None:
    entries = {item.key: item.value for item in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise ModelError(
            f"the array {tensor.name!r} lies in another file",
            given=location,
            expected="a model that is loaded by its path",
        )
    path = (folder / location).resolve()
    if (
        not location
        or Path(location).is_absolute()
        or not path.is_relative_to(folder)
        or (folder / location).is_symlink()
    ):
        raise ModelError(
            f"the array {tensor.name!r} lies outside of the model's folder",
            given=location,
            expected="a file beside the model",
        )
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", needed))
        size = path.stat().st_size
    except (OSError, ValueError) as error:
        raise ModelError(
            f"the file of the array {tensor.name!r} cannot be read",
            given=str(error)[:200],
            expected="a file beside the model",
        ) from error
    if length != needed or offset < 0 or offset + length > size:
        raise ModelError(
            f"the file of the array {tensor.name!r} has not what it says",
            given=f"{length:,} bytes from {offset:,} of {size:,}",
            expected=f"{needed:,} bytes",
        )


_REASONS = {
    **dict.fromkeys(("CategoryMapper", "RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit"), "strings"),
    **dict.fromkeys(("CastMap", "DictVectorizer", "ZipMap"), "maps"),
    "ImageDecoder": "files of pictures",
}
"""Why nothing computes an operator: what it reads or gives is no array."""


def _counted(name: str, count: int) -> str:
    """How often an operator occurs, and why nothing computes it where that is known."""
    reason = _REASONS.get(name.rpartition(".")[2])
    return f"{count}, of {reason}" if reason else f"{count}"


def _check_operators(model: onnx.ModelProto, versions: dict[str, int]) -> None:
    """That something computes every operator.

    Raises:
        ModelError: nothing does; it has all of them, with how often each occurs.
    """
    item = {(domain_of(f.domain), f.name) for f in model.functions}
    bodies = [
        (model.graph.node, versions),
        *((f.node, {domain_of(o.domain): o.version for o in f.opset_import}) for f in model.functions),
    ]
    missing: Counter[str] = Counter()
    for nodes, known in bodies:
        for node in (*nodes, *(inner for graph in _graphs(nodes) for inner in graph.node)):
            domain = domain_of(node.domain)
            version = known.get(domain, versions.get(domain, 1))
            if (
                (domain, node.op_type) not in item
                and find(domain, node.op_type, version) is None
                and not has_definition(domain, node.op_type, version)
            ):
                missing[f"{domain + '.' if domain else ''}{node.op_type}"] += 1
    if missing:
        raise ModelError(
            "nothing here computes some of its operators",
            given=", ".join(f"{name} ({_counted(name, count)})" for name, count in missing.most_common()),
            expected="operators of the documentation's table",
        )
