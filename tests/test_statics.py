"""Static values: kept apart wherever something traced could tell them apart, and joined where nothing could."""

import enum
from collections.abc import Hashable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from codelet.tracing.statics import static_key, structure_key


class Level(enum.IntEnum):
    ONE = 1


class Colour(enum.Enum):
    RED = 1


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclass(frozen=True)
class Options:
    rate: Any
    note: str = field(default="", compare=False)


NAN = float("nan")
OTHER_NAN = float(np.array(0x7FF8000000000001, np.uint64).view(np.float64))

APART = [
    [1, 1.0, True, Level.ONE, Colour.RED, "1", 1j, np.int32(1), np.int64(1), np.float32(1), np.True_, Decimal(1)],
    [0.0, -0.0, 0, False, None, np.float32(0), np.float32(-0.0), 0j, complex(0, -0.0), Decimal("0"), Decimal("-0")],
    [NAN, OTHER_NAN, np.float32("nan"), np.float64("nan"), complex(NAN, 0)],
    [(2,), (2.0,), ((2,),), Pair(2, 3), Pair(2.0, 3), (2, 3)],
    [(0.0,), (-0.0,), Pair((0.0,), 1), Pair((-0.0,), 1)],
    [frozenset({1}), frozenset({1.0}), frozenset({(1,)}), frozenset({(1.0,)})],
    [Options(1), Options(1.0), Options((1,)), Options((True,)), Options(0.0), Options(-0.0)],
    [np.dtype("float32"), jnp.float32, np.float32, "float32", np.dtype(">f4")],
    [slice(2), slice(2.0), slice(0, 2), range(2), range(0, 2, 3), range(0, 3, 3)],
    ["x", np.str_("x"), b"x", np.bytes_(b"x")],
]


@pytest.mark.parametrize("values", APART, ids=[repr(values[0]) for values in APART])
def test_what_traces_differently_is_kept_apart(values):
    keys = [static_key(value) for value in values]
    assert len(set(keys)) == len(keys)


def test_what_nothing_tells_apart_is_one():
    for make in (
        lambda: (2, -0.0, (NAN, "x")),
        lambda: float("nan"),
        lambda: np.float32("nan"),
        lambda: Options((1, 2.0)),
        lambda: frozenset({1, (2, 3.0)}),
        lambda: slice(1, None, 2),
    ):
        assert static_key(make()) == static_key(make())
    assert static_key(Options(1, note="a")) == static_key(Options(1, note="b"))


@pytest.mark.parametrize("value", [[1], {1: 2}, {1}, ([1],), Options([1]), np.ones(2), jnp.ones(2)], ids=repr)
def test_what_may_change_has_no_key(value):
    with pytest.raises(TypeError):
        static_key(value)


def test_structures_of_arguments_are_kept_apart():
    class Layer(eqx.Module):
        w: Any
        k: Hashable = eqx.field(static=True)

    trees = [Layer(1.0, 2), Layer(1.0, 2.0), {1: 0}, {1.0: 0}, {True: 0}, (0, None), (0,), [0], None, 0, Pair(0, 0)]
    assert len({structure_key(jax.tree.structure(tree)) for tree in trees}) == len(trees)


@cl.codelet
def times(a, *, k):
    return a * (k[0] if isinstance(k, tuple) else k)


def built(graph, x, *, k):
    return graph.add_vertex("t", times, a=x[cl.grid(2)], k=k)


STATIC = [2, 2.0, True, (2,), (2.0,), (0.0,), (-0.0,), 0.0, -0.0, NAN, np.float32(2), np.int8(2), Level.ONE]


def test_a_lowered_function_is_built_for_each():
    layer, x = cl.lower(built), jnp.arange(1, 3)
    for k in STATIC:
        expected, found = x * (k[0] if isinstance(k, tuple) else k), layer(x, k=k)
        assert (found.dtype, found.tobytes()) == (expected.dtype, expected.tobytes()), k
    assert layer.at(x, k=float("nan")) is layer.at(x, k=NAN)


def test_a_lowered_function_is_built_for_each_static_field_of_an_argument():
    class Scale(eqx.Module):
        w: jax.Array
        k: Hashable = eqx.field(static=True)

    def apply(graph, module):
        return graph.add_vertex("t", times, a=module.w[cl.grid(2)], k=module.k)

    layer = cl.lower(apply)
    assert [layer(Scale(jnp.arange(2), k)).dtype for k in (2, 2.0, (2,), (2.0,))] == ["int32", "float32"] * 2


def test_two_lowered_functions_are_equal_where_nothing_tells_them_apart():
    @dataclass(frozen=True)
    class Build:
        k: Any

        def __call__(self, graph, x):
            return graph.add_vertex("t", times, a=x[cl.grid(2)], k=self.k)

    assert cl.lower(Build(2)) == cl.lower(Build(2))
    assert cl.lower(Build(2)) != cl.lower(Build(2.0))
    x, calls = jnp.arange(2), jax.jit(lambda f, x: f(x), static_argnums=0)
    assert [calls(cl.lower(Build(k)), x).dtype for k in (2, 2.0)] == ["int32", "float32"]


def test_vertices_added_one_at_a_time_are_kept_apart():
    graph = cl.Graph()
    x = graph.add_variable("x", (), "int32")
    expected = [np.asarray(jnp.int32(3) * (k[0] if isinstance(k, tuple) else k)) for k in STATIC]
    ys = {n: graph.add_variable(f"y of {n}", (2,), value.dtype) for n, value in enumerate(expected)}
    for place in range(2):
        for n, k in enumerate(STATIC):
            graph.add_vertex("t", times, a=x, k=k, out=ys[n][place])
    assert [family.num_vertices for family in graph.families] == [2] * len(STATIC)
    values, outputs = {"x": np.int32(3)}, list(ys.values())
    found = cl.lower(graph, inputs=[x], outputs=outputs)(values)
    meant = cl.interpret(graph, values=values, outputs=outputs)
    for n, value in enumerate(expected):
        name = f"y of {n}"
        assert np.asarray(found[name]).tobytes() == meant[name].tobytes() == value.tobytes() * 2, STATIC[n]


def test_rows_added_one_at_a_time_are_joined_within_a_static_value():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (10,)), graph.add_variable("y", (8,))
    total = cl.codelet(lambda row, *, k: row.sum() / k[0])
    for n in range(8):
        graph.add_vertex("t", total, row=x[: n + 1], k=(0.0,) if n % 2 else (-0.0,), out=y[n])
    run = cl.lower(graph, inputs=[x], outputs=[y])
    assert len(run.families) == 2
    assert np.isposinf(run({"x": np.ones(10, np.float32)})["y"]).tolist() == [False, True] * 4


def add_with_statics(count, *, by_symbols=False):
    graph = cl.Graph()
    x, y = graph.add_variable("x", (1,)), graph.add_variable("y", (count,))
    for k in range(count):
        fields = {"a": x[0], "out": y[k]} if not by_symbols else {"a": x[cl.grid(1)], "out": y[cl.grid(1) + k]}
        graph.add_vertex("many", times, **fields, k=k)


@pytest.mark.parametrize("by_symbols", [False, True])
def test_many_static_values_are_warned_of_once(by_symbols):
    with pytest.warns(cl.StaticFamiliesWarning, match="have more than 64 static values") as caught:
        add_with_statics(70, by_symbols=by_symbols)
    assert len(caught) == 1
    text = str(caught[0].message)
    for phrase in ("codelet 'times'", "compute set 'many'", "k=64, and 64 others", "def times(a, k)"):
        assert phrase in text
    assert caught[0].filename == __file__
    assert f"test_statics.py:{caught[0].lineno}" in text


@pytest.mark.filterwarnings("error")
def test_64_static_values_are_not_warned_of():
    add_with_statics(64)
    graph = cl.Graph()
    x = graph.add_variable("x", (100,))
    for k in range(100):
        graph.add_vertex("few", times, a=x[k], k=2, out=x[k])
        graph.add_vertex(f"set {k}", times, a=x[k], k=k, out=x[k])
