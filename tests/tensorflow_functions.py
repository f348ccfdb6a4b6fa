"""Functions of TensorFlow as StableHLO, by its own compiler.

TensorFlow is no dependency of the tests: the texts, with arguments and what TensorFlow computes of them, are stored
beside. Where it is installed, `python -m tests.tensorflow_functions` writes them anew.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "stored_models"

FUNCTIONS = ("convolution", "loop", "lookup")


def _functions(tf: Any) -> Mapping[str, tuple[Any, Any]]:
    """Each function with an argument for it."""
    random = np.random.default_rng(0)
    normal = lambda *shape: random.standard_normal(shape).astype(np.float32)  # noqa: E731
    kernel, weight, bias = map(tf.constant, (normal(3, 3, 2, 4), normal(64, 5) / 16, normal(5)))
    recurrent, entering, table = map(tf.constant, (normal(4, 4) / 2, normal(3, 4), normal(11, 4)))

    def convolution(x: Any) -> Any:
        hidden = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME")), 2, 2, "VALID")
        return tf.nn.softmax(tf.linalg.matmul(tf.reshape(hidden, (2, -1)), weight) + bias)

    def loop(x: Any) -> Any:
        def turn(k: Any, state: Any) -> Any:
            return k + 1, tf.tanh(state @ recurrent + tf.gather(x, k) @ entering)

        return tf.while_loop(lambda k, state: k < 6, turn, (0, tf.zeros((2, 4))), maximum_iterations=6)[1]

    def lookup(x: Any) -> Any:
        rows = tf.gather(table, x)
        return tf.math.top_k(tf.reduce_sum(rows, 1), 2)[0], tf.argmax(rows, -1), tf.cumsum(rows, 1)

    return {
        "convolution": (convolution, normal(2, 8, 8, 2)),
        "loop": (loop, normal(6, 2, 3)),
        "lookup": (lookup, random.integers(0, 11, (3, 5)).astype(np.int32)),
    }


def write(folder: Path) -> None:
    """Compile every function: a text, and beside it its arguments and what TensorFlow computes of them.

    Args:
        folder: where to.
    """
    tf: Any = importlib.import_module("tensorflow")
    for name, (function, x) in _functions(tf).items():
        compiled = tf.function(function, jit_compile=True)
        text = compiled.experimental_get_compiler_ir(tf.constant(x))(stage="stablehlo")
        path = folder / f"tensorflow_{name}.mlir"
        path.write_text(re.sub(r'loc\("/[^"]*/site-packages/', 'loc("', text))  # whose folder differs between machines
        captured = compiled.get_concrete_function(tf.constant(x)).captured_inputs
        results = tf.nest.flatten(compiled(tf.constant(x)))
        arrays = {f"x{k}": item.numpy() for k, item in enumerate((tf.constant(x), *captured))}
        np.savez(path.with_suffix(".npz"), **arrays, **{f"y{k}": item.numpy() for k, item in enumerate(results)})


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
