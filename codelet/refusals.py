"""Errors of JAX, NumPy and XLA about operands that do not fit; importers of models raise their instead."""

REFUSALS: tuple[type[Exception], ...] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)
