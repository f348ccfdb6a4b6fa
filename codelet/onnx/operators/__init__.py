"""What computes each operator, a file for each family of them."""

from codelet.onnx.operators import (  # noqa: F401 (they enter themselves in the table)
    axes,
    branches_and_loops,
    by_elements,
    casts,
    conv_operators,
    gathers,
    losses,
    matrix_products,
    normalization,
    optimizers,
    pools,
    quantization,
    randomness,
    recurrences,
    resampling,
    rotary,
    sequences,
    shapes,
    signals,
)
