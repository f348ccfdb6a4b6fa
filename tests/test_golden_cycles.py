"""Golden cycles of codelets on a Bow: of one worker, and of a tile whose workers share the vertex.

The first eight and the rows by index are PopLibs' estimates to the cycle (`poplibs_oracle.py`). The others hold what
the rules come to together; who changes one on purpose writes here what it is now, and says why.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from tests.test_machine_rules import Field, estimated


class Golden(NamedTuple):
    """A codelet, its fields, how it is made, and its cycles: of one worker, and of a tile for six that share it."""

    function: Callable[..., Any]
    fields: Sequence[Field]
    worker: int
    tile: int
    issue: str = "assembly"


def _floats(*shapes: tuple[int, ...]) -> list[Field]:
    return [(shape, "f32") for shape in shapes]


def _halves(*shapes: tuple[int, ...]) -> list[Field]:
    return [(shape, "f16") for shape in shapes]


def normalised(x):
    """Less its mean, over its deviation."""
    mean = jnp.mean(x)
    return (x - mean) * lax.rsqrt(jnp.mean(jnp.square(x - mean)) + 1e-5)


def convolved(x, w):
    """Pictures of channels, a kernel of three by three."""
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def blurred(x):
    """Nine neighbours, weighed."""
    nw, n, ne, w, m, e, sw, s, se = (x[i : i + 16, j : j + 16] for i in range(3) for j in range(3))
    return (nw + ne + sw + se) * 0.0625 + m * 0.25 + (e + w + s + n) * 0.125


def looked_up(x, i):
    """Rows by index."""
    return x.at[i].get(mode="promise_in_bounds", wrap_negative_indices=False)


N = (1000,)
GOLDEN = {
    "add": Golden(lambda x, y: x + y, _floats(N, N), 1529, 1697),
    "add in place": Golden(lambda x, y: {"x": x + y}, _halves((6000,), (6000,)), 4558, 4859),
    "exponential": Golden(lambda x: jnp.exp(x), _halves(N), 1033, 1226),
    "hyperbolic tangent": Golden(lambda x: jnp.tanh(x), _floats((6000,)), 36_017, 36_122),
    "divide integers": Golden(lambda x, y: lax.div(x, y), [((100,), "int32")] * 2, 27_726, 28_421),
    "cast": Golden(lambda x: x.astype(jnp.float16), _floats((6000,)), 3026, 3246),
    "scaled add": Golden(lambda x, y, s: {"x": x + s * y}, _floats((6000,), (6000,), ()), 9022, 9195),
    "where the largest is": Golden(lambda x: jnp.argmax(x), _floats(N), 3027, 3429),
    "sum of squares": Golden(lambda x: jnp.sum(x * x), _floats(N), 517, 772),
    "sums of columns": Golden(lambda x: jnp.sum(x, 0), _halves((64, 16)), 323, 563),
    "softmax": Golden(lambda x: jax.nn.softmax(x), _floats((256,)), 2003, 2899),
    "normalised": Golden(normalised, _floats((256,)), 970, 1813),
    "dot product": Golden(lambda x, y: jnp.dot(x, y), _floats(N, N), 565, 1257),
    "matrix product": Golden(lambda x, y: jnp.dot(x, y), _halves((64, 64), (64, 64)), 4620, 6926),
    "convolution": Golden(convolved, _halves((1, 14, 14, 16), (3, 3, 16, 16)), 11_238, 14_338),
    "rows by index": Golden(looked_up, [((500, 64), "f32"), ((16,), "int32")], 1358, 8148),
    "Cholesky": Golden(lambda a: lax.linalg.cholesky_p.bind(a), _floats((16, 16)), 5321, 31_937),
    "add, compiled": Golden(lambda x, y: x + y, _floats(N, N), 7029, 7199, "compiled"),
    "dot product, compiled": Golden(lambda x, y: jnp.dot(x, y), _floats(N, N), 4029, 4450, "compiled"),
    "blur, compiled": Golden(blurred, _floats((18, 18)), 6173, 6377, "compiled"),
    "threshold, compiled": Golden(
        lambda x, y: jnp.where(x > y, x, 0), [((1000,), "int32")] * 2, 8026, 8183, "compiled"
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_cycles(name):
    function, fields, worker, tile, issue = GOLDEN[name]
    found = estimated(function, fields, "f32", issue=issue), estimated(function, fields, "f32", issue=issue, workers=6)
    assert (found[0].worker, found[1].tile_cycles(6)) == (worker, tile)
