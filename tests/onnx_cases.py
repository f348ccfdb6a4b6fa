"""The cases of ONNX's own backend tests: models, what they are given, and what they should give."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import ml_dtypes
import numpy as np
import onnx
import onnx.backend.test.loader as loader

import codelet as cl


class Case(NamedTuple):
    """A model with what it is given and what it should give.

    Attributes:
        name: of the case.
        proto: the model.
        inputs, outputs: arrays, lists of them for sequences, None for optional values that are absent.
        rtol, atol: how far results may be off.
    """

    name: str
    proto: onnx.ModelProto
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    rtol: float
    atol: float


def _value(own: Any) -> Any:
    if isinstance(own, list):
        return list(map(_value, own))
    if isinstance(own, onnx.TensorProto):
        return onnx.numpy_helper.to_array(own)
    return None if own is None else np.asarray(own)


@functools.cache
def node_cases() -> Mapping[str, Case]:
    """The cases of single operators, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of NumPy, as the package makes them
        cases = loader.load_model_tests(kind="node")
    found = {}
    for own in cases:
        assert own.data_sets is not None
        assert own.model is not None
        inputs, outputs = (list(map(_value, part)) for part in own.data_sets[0])
        found[own.name] = Case(own.name, own.model, inputs, outputs, own.rtol, own.atol)
    return found


def _stored(path: Path, kind: onnx.TypeProto) -> Any:
    data = path.read_bytes()
    if kind.HasField("sequence_type"):
        several = onnx.SequenceProto()
        several.ParseFromString(data)
        return onnx.numpy_helper.to_list(several)
    tensor = onnx.TensorProto()
    tensor.ParseFromString(data)
    return onnx.numpy_helper.to_array(tensor)


@functools.cache
def model_cases() -> Mapping[str, Case]:
    """The cases of small models that the package has as files, by name."""
    found = {}
    for kind in ("pytorch-converted", "pytorch-operator", "simple"):
        for own in loader.load_model_tests(kind=kind):
            folder = Path(str(own.model_dir))
            proto = onnx.load(folder / "model.onnx")
            data = folder / "test_data_set_0"
            inputs, outputs = (
                [_stored(data / f"{which}_{k}.pb", one.type) for k, one in enumerate(several)]
                for which, several in (
                    ("input", proto.graph.input[: len(list(data.glob("input_*.pb")))]),
                    ("output", proto.graph.output),
                )
            )
            found[own.name] = Case(own.name, proto, inputs, outputs, own.rtol, own.atol)
    return found


def _is_wide(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_is_wide, value))
    return value is not None and value.dtype.itemsize == 8


@contextlib.contextmanager
def precision_of(case: Case) -> Iterator[None]:
    """With 64 bits where a case has them."""
    with jax.enable_x64(any(map(_is_wide, [*case.inputs, *case.outputs]))):
        yield


def loaded(case: Case) -> tuple[Any, list[Any]]:
    """The model of a case, its shapes specialized by what the case gives, and its arguments."""
    inputs = list(case.proto.graph.input)[: len(case.inputs)]
    given = {kind.name: value for kind, value in zip(inputs, case.inputs, strict=True)}
    dimensions = {
        f"{kind.name}.{d}": extent
        for kind in inputs
        if isinstance(given[kind.name], np.ndarray)
        for d, extent in enumerate(given[kind.name].shape)
    }
    model = cl.onnx.load(case.proto, dimensions=dimensions)
    if model.shape_inputs:
        constants = {name: given[name] for name in model.shape_inputs}
        model = cl.onnx.load(case.proto, dimensions=dimensions, constants=constants)
    return model, [given[name] for name in model.inputs]


def check_result(found: Any, expected: Any, case: Case) -> None:
    """That a result is what it should be: of its type, its shape, and within what the case allows."""
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            check_result(one, other, case)
        return
    if expected is None:
        assert found is None
        return
    found = np.asarray(found)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    if expected.dtype.kind in "fV" or expected.dtype.name.startswith(("float", "bfloat")):
        # NumPy's own has no tolerance for floats of 16 bits and fewer that are none of its own.
        rounds = expected.dtype == ml_dtypes.bfloat16
        found, expected = found.astype(np.float64), expected.astype(np.float64)
        np.testing.assert_allclose(found, expected, 2**-7 if rounds else case.rtol, 2**-9 if rounds else case.atol)
    else:
        np.testing.assert_array_equal(found, expected)


def check_case(case: Case, *, through_vertices: bool = True) -> None:
    """That a model computes what its case says: through a graph of vertices, or as JAX runs it."""
    with precision_of(case):
        model, arguments = loaded(case)
        run = cl.trace(model, model.parameters, *arguments) if through_vertices else jax.jit(model)
        results = run(model.parameters, *arguments)
        for found, expected in zip(results, case.outputs, strict=False):
            check_result(found, expected, case)
