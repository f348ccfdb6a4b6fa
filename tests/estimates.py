"""Cycles of a function, and of a vertex of a codelet of it, on the usual chip: what tests of the model ask for."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from codelet.tracing.field_types import FieldType
from ipu_backend.model.body_cycles import jaxpr_cost
from ipu_backend.model.costs import Mode

MK2 = cl.IPU()
F16, F32, I32 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.int32)


def cycles(function, *arguments, **mode):
    """Cycles of one worker, of assembly unless told otherwise."""
    return jaxpr_cost(jax.make_jaxpr(function)(*arguments), Mode(MK2, **mode)).worker


def estimate(function, *arguments, target=MK2, **hints):
    """What a vertex of a codelet of a function takes."""
    made = cl.codelet(function, **hints)
    types = [FieldType(np.shape(own), jnp.result_type(own)) for own in arguments]
    return target.estimate_cycles(made.specialise(dict(zip(made.inputs, types, strict=True))))


def ones(*shape: int, dtype: Any = F32):
    return np.ones(shape, dtype)
