"""Every dtype that JAX has is written and read, through views of every kind, in every execution."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import codelet as cl
from tests.examples import few

NAMES = [
    *("bool", "int2", "int4", "int8", "int16", "int32", "uint2", "uint4", "uint8", "uint16", "uint32"),
    *("bfloat16", "float16", "float32", "complex64", "float4_e2m1fn", "float8_e8m0fnu", "float8_e3m4", "float8_e4m3"),
    *("float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
]
WIDE = ["int64", "uint64", "float64", "complex128"]
SEVERAL = ("float8_e5m2", "int4", "bfloat16", "bool")


def views(x, y):
    """Views of x and y by name, or of arrays that stand for them: of padding as well, which is not written."""
    joined, padded = (
        (cl.concatenate, lambda own: own.pad(1, value=1)) if isinstance(x, cl.Tensor) else (np.concatenate, _padded)
    )
    return {
        "whole": x,
        "slice": x[1:5],
        "strided": x[::2],
        "reversed": x[::-1],
        "reshaped": x.reshape(2, 3),
        "listed": x[np.array([4, 0, 3])],
        "one": x[2],
        "joined": joined([x, y]),
        "strided and joined": joined([y[::2], x[::-3]]),
        "padded": padded(x),
        "joined, padded, reversed": padded(joined([x[::2], y]))[::-1],
    }


def _padded(array):
    one = np.ones(1, array.dtype)
    return np.concatenate([one, array, one])


def _values(dtype, count):
    return np.array([1, 0.5, 1, 1, 0.5, 0.5] if dtype == ml_dtypes.float8_e8m0fnu else [1, 0, 1, 1, 0, 0])[
        :count
    ].astype(dtype)


def _check(name, execution):
    dtype = jnp.dtype(name)
    graph = cl.Graph(cl.IPU(num_tiles=2))
    x, y, z = (graph.add_variable(own, (n,), dtype) for own, n in (("x", 6), ("y", 4), ("z", 6)))
    feed, sent = graph.add_input_stream("feed", (4,), dtype), graph.add_output_stream("sent", (6,), dtype)
    program = [cl.Copy(x, z), cl.Copy(feed, y), cl.Copy(z, sent)]
    engine = cl.Engine(graph, program, execution=execution)
    first, second = _values(dtype, 6), _values(dtype, 4)
    engine.write({"x": first})
    engine.connect(feed, second[None])
    engine.run()
    held = {"x": first.copy(), "y": second.copy()}
    assert engine.read(sent).tobytes() == first.tobytes()
    for kind, view in views(x, y).items():
        found, expected = engine.read(view), views(held["x"], held["y"])[kind]
        assert found.dtype == dtype
        assert found.tobytes() == np.ascontiguousarray(expected).tobytes(), kind
        if "padded" not in kind:
            given = np.ascontiguousarray(expected.reshape(-1)[::-1]).reshape(expected.shape)
            engine.write({view: given})
            assert engine.read(view).tobytes() == given.tobytes(), kind
            held = {"x": engine.read(x), "y": engine.read(y)}
    other = cl.Engine(graph, program, execution=execution)
    other.load_state(engine.state)
    assert other.read(x).tobytes() == engine.read(x).tobytes()
    values = {"x": first, "feed": second[None]}
    expected = cl.interpret(graph, values=values, outputs=[y, z, sent], program=program)
    found = cl.lower(graph, program, inputs=[x], outputs=[y, z])(values)
    for own, array in expected.items():
        assert np.asarray(found[own]).tobytes() == array.tobytes(), own


@pytest.mark.parametrize("execution", ["fused", "tiles", "addresses"])
@pytest.mark.parametrize("name", SEVERAL)
def test_some_dtypes_in_every_view(name, execution):
    _check(name, execution)


@few(
    "name,execution",
    [(n, e) for n in NAMES if n not in SEVERAL for e in ("fused", "tiles", "addresses")],
    quick=["uint8, addresses", "uint16, tiles", "float16, fused", "complex64, fused"],
)
def test_every_dtype_in_every_view(name, execution):
    if not hasattr(jnp, name):
        pytest.skip(f"this release of JAX has no {name}")
    _check(name, execution)


@pytest.mark.parametrize("name", WIDE)
def test_64_bits_in_every_view(name):
    with jax.enable_x64(True):
        _check(name, "fused")


def test_arrays_of_equal_bytes_and_other_dtypes_are_not_one():
    graph = cl.Graph()
    y = graph.add_variable("y", (2,))
    numbers = np.array([1, 1], np.uint8)
    for k, dtype in enumerate((ml_dtypes.int4, ml_dtypes.float8_e4m3fn)):
        own = numbers.view(dtype)
        graph.add_vertex("all", cl.codelet(lambda: own.astype(jnp.float32)[0]), out=y[k])
    found = cl.lower(graph, inputs=[], outputs=[y])({})["y"]
    assert found.tolist() == [1.0, float(numbers.view(ml_dtypes.float8_e4m3fn)[0])]


@pytest.mark.parametrize("dtype", ["bool", "int4", "uint32", "float8_e5m2", "bfloat16", "float16", "complex64"])
def test_plain_numbers_stand_for_what_holds_them(dtype):
    """Booleans for integers, integers for floats, floats for complex numbers, whatever their width."""
    kinds = (jnp.bool_, jnp.integer, jnp.floating, jnp.complexfloating)
    held = next(k for k, kind in enumerate(kinds) if jnp.issubdtype(jnp.dtype(dtype), kind))
    for own, value in enumerate((True, 3, [0.5, 1.5], 1j)):
        graph = cl.Graph(cl.IPU(num_tiles=2))
        x = graph.add_variable("x", np.shape(value), dtype)
        engine = cl.Engine(graph, cl.Sequence())
        if own > held:
            with pytest.raises(cl.ArrayError, match="wrong dtype"):
                engine.write({x: value})
            with pytest.raises(cl.ArrayError, match="wrong dtype"):
                cl.lower(graph, cl.Copy(value, x), inputs=[], outputs=[x])
            continue
        engine.write({x: value})
        copied = cl.lower(graph, cl.Copy(value, x), inputs=[], outputs=[x])({})["x"]
        for found in (engine.read(x), copied):
            np.testing.assert_array_equal(np.asarray(found).astype(np.complex64), np.asarray(value, np.complex64))
