"""The fix where Python asks for the value of something that is traced."""

from __future__ import annotations

from jax import errors

_MENDS: dict[type[Exception], str] = {
    errors.TracerBoolConversionError: "decide by jnp.where, or by jax.lax.cond or jax.lax.while_loop, where Python's "
    "`if`, `while`, `and`, `or` or `not` asks for the value",
    errors.TracerArrayConversionError: "use jax.numpy where NumPy asks for the values",
    errors.TracerIntegerConversionError: "index an array of JAX, jnp.asarray(table)[k], where Python asks for a place; "
    "or make the number a static value",
    errors.NonConcreteBooleanIndexError: "use jnp.where(mask, x, 0), whose shape does not depend on the mask",
    errors.ConcretizationTypeError: "make what has to be known a static value; decide by jnp.where",
}


def mend_of_asking(error: BaseException) -> str | None:
    """The fix for an error of JAX's that says that a value is not known yet; None of any other."""
    return next((mend for kind, mend in _MENDS.items() if isinstance(error, kind)), None)
