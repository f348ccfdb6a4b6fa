"""ONNX files as functions of JAX: `cl.onnx.load`."""

from codelet.onnx.onnx_model import Model, load

__all__ = ["Model", "load"]
