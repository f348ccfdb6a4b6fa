"""StableHLO as functions of JAX: `cl.stablehlo.load`."""

from codelet.stablehlo.module import Module, load

__all__ = ["Module", "load"]
