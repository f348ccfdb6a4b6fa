"""ONNX files as functions of JAX: `cl.onnx.load`."""

import importlib.util

from codelet.errors import MissingExtraError

if importlib.util.find_spec("onnx") is None:
    raise MissingExtraError(
        "cl.onnx needs the package that reads ONNX",
        given="no module 'onnx'",
        expected="onnx",
        fix="pip install 'codelet-graphs[onnx]'",
    )

from codelet.onnx.onnx_model import Model, load

__all__ = ["Model", "load"]
