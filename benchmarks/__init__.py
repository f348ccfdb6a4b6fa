"""Benchmarks: graphs of vertices beside the plain JAX that an expert would write for the same mathematics.

`python -m benchmarks NAME...` runs them, all when none is named. Each family has a file, and says there
what it measures; `benchmarks/harness.py` says how.
"""

from benchmarks import (
    bitonic,
    build,
    call_chain,
    compile,
    conv,
    correlate,
    elementwise,
    gather_dot,
    heat,
    ising,
    lattice_boltzmann,
    life,
    matmul,
    matvec,
    messages,
    mnist_step,
    patchwork,
    profile,
    stream_train,
    tile_array,
)

__all__ = [
    "bitonic",
    "build",
    "call_chain",
    "compile",
    "conv",
    "correlate",
    "elementwise",
    "gather_dot",
    "heat",
    "ising",
    "lattice_boltzmann",
    "life",
    "matmul",
    "matvec",
    "messages",
    "mnist_step",
    "patchwork",
    "profile",
    "stream_train",
    "tile_array",
]
