"""Arrays that a user hands over, or gets: nobody's writing changes what another holds."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from codelet.hostcopies import own_copy

EXECUTIONS = ("interpret", "fused", "tiles", "addresses")
SIZE = 4099  # large enough that work is not done when a call returns


def aligned(values, dtype: Any = np.float32):
    """An array in memory that a CPU's device takes as it is."""
    values = np.asarray(values, dtype)
    room = np.zeros(values.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    made = room[start : start + values.nbytes].view(dtype).reshape(values.shape)
    made[...] = values
    return made


def counted(count=SIZE, dtype: Any = np.float32):
    return aligned(np.arange(count) % 100 + 1, dtype)


@cl.codelet
def add(x, y):
    return x + y


@cl.codelet
def same(x):
    return x


class Given:
    """A graph whose result is what was given, with the arrays that were; `spoil` writes to them."""

    def __init__(self):
        self.graph = cl.Graph(cl.IPU(num_tiles=4))
        self.arrays = []
        self.zeros = self.graph.add_constant("zeros", np.zeros(SIZE, np.float32))
        self.out = self.graph.add_variable("out", (SIZE,))
        self.program = None

    def array(self, dtype=np.float32):
        self.arrays.append(counted(dtype=dtype))
        return self.arrays[-1]

    def spoil(self):
        for array in self.arrays:
            array[...] = 0


def vertex_state(given):
    i = cl.grid(SIZE)
    given.graph.add_vertex("add", add, x=given.array(), y=given.zeros[i], out=given.out[i])


def state_of_single_vertices(given):
    half = SIZE // 2
    for part in (slice(0, half), slice(half, 2 * half), slice(2 * half, SIZE)):
        own = given.array()[part]
        given.graph.add_vertex("add", add, x=own, y=given.zeros[part], out=given.out[part])
        given.spoil()


def copied_array(given):
    given.program = cl.Copy(given.array(), given.out)


def constant(given):
    c = given.graph.add_constant("c", given.array())
    given.program = cl.Copy(c, given.out)


def constant_of_another_dtype(given):
    c = given.graph.add_constant("c", given.array(np.int32), "float32")
    given.program = cl.Copy(c, given.out)


def _by_table(given, view):
    numbers = given.graph.add_constant("numbers", np.arange(200, dtype=np.float32))
    i = cl.grid(SIZE)
    given.graph.add_vertex("same", same, x=view(numbers, i), out=given.out[i])


def table(given):
    places = cl.table(given.array(np.int64))
    given.spoil()
    _by_table(given, lambda numbers, i: numbers[places[i]])


def ragged_table(given):
    offsets = aligned(np.arange(SIZE + 1), np.int64)
    rows = cl.table(given.array(np.int64), offsets=offsets)
    offsets[...] = 0
    given.spoil()
    numbers = given.graph.add_constant("numbers", np.arange(200, dtype=np.float32))
    i = cl.grid(SIZE)
    given.graph.add_vertex("sum", cl.codelet(lambda x: x.sum()), x=numbers[rows[i]], out=given.out[i])


def positions(given):
    numbers = given.graph.add_constant("numbers", np.arange(200, dtype=np.float32))
    view = numbers[given.array(np.int64)]
    given.spoil()
    given.program = cl.Copy(view, given.out)


def captured_array(given):
    own = given.array()
    given.graph.add_vertex("captured", cl.codelet(lambda x: x + own), x=given.zeros[0], out=given.out)


def array_as_default(given):
    given.graph.add_vertex("captured", cl.codelet(_by_default(given.array())), x=given.zeros[0], out=given.out)


def _by_default(own):
    def inner(x, own=own):
        return x + own

    return lambda x: inner(x)


def array_of_a_partial(given):
    def inner(own, x):
        return x + own

    partial = functools.partial(inner, given.array())
    given.graph.add_vertex("captured", cl.codelet(lambda x: partial(x)), x=given.zeros[0], out=given.out)


def array_of_a_jaxpr(given):
    own = given.array()
    jaxpr = jax.make_jaxpr(lambda x: x + own)(jnp.float32(0))
    made = cl.codelet_from_jaxpr(jaxpr, ["x"])
    given.graph.add_vertex("jaxpr", made, x=given.zeros[0], out=given.out)


def array_in_a_call_of_a_jaxpr(given):
    own = given.array()
    jaxpr = jax.make_jaxpr(lambda x: jax.jit(lambda y: y + own)(x))(jnp.float32(0))
    made = cl.codelet_from_jaxpr(jaxpr, ["x"])
    given.graph.add_vertex("jaxpr", made, x=given.zeros[0], out=given.out)


BUILT = {
    own.__name__: own
    for own in (
        vertex_state,
        state_of_single_vertices,
        copied_array,
        constant,
        constant_of_another_dtype,
        table,
        ragged_table,
        positions,
        captured_array,
        array_as_default,
        array_of_a_partial,
        array_of_a_jaxpr,
        array_in_a_call_of_a_jaxpr,
    )
}
EXPECTED = counted()


@pytest.mark.parametrize("kind", BUILT)
def test_a_graph_keeps_what_it_was_built_of(kind):
    given = Given()
    BUILT[kind](given)
    given.spoil()
    found = {"interpret": cl.interpret(given.graph, values={}, outputs=[given.out], program=given.program)["out"]}
    run = cl.lower(given.graph, given.program, inputs=[], outputs=[given.out])
    found["lowered"] = run({})["out"]
    for execution in EXECUTIONS[1:]:
        engine = cl.Engine(given.graph, given.program, execution=execution)
        engine.run()
        found[execution] = engine.read(given.out)
    for how, own in found.items():
        np.testing.assert_array_equal(own, EXPECTED, err_msg=how)


# --- what the host gives a program, and gets of it ------------------------------------------------------


def doubling():
    """x is doubled into y."""
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, y = graph.add_variable("x", (SIZE,)), graph.add_variable("y", (SIZE,))
    i = cl.grid(SIZE)
    graph.add_vertex("double", add, x=x[i], y=x[i], out=y[i])
    return graph, x, y


def written(engine, x, array):
    engine.write({x: array})


def written_in_parts(engine, x, array):
    engine.write({x[:100]: array[:100], x[100:]: array[100:]})


def written_as_jax(engine, x, array):
    held = jnp.array(array)
    engine.write({x: held})
    held.delete()


def loaded(engine, x, array):
    engine.load_state({"x": array})


def loaded_in_part(engine, x, array):
    engine.load_state({"x": np.ma.MaskedArray(array, np.arange(SIZE) == 5)})
    engine.write({x[5]: array[5]})


@pytest.mark.parametrize("execution", EXECUTIONS[1:])
def test_an_engine_keeps_what_the_host_gives_it_and_gives_what_is_its_own(execution):
    graph, x, y = doubling()
    engine = cl.Engine(graph, execution=execution)
    for give in (written, written_in_parts, written_as_jax, loaded, loaded_in_part):
        for runs in (True, False):
            array = counted()
            give(engine, x, array)
            if runs:
                engine.run()
            array[...] = 0
            if not runs:
                engine.run()
            np.testing.assert_array_equal(engine.read(y), 2 * EXPECTED, err_msg=give.__name__)
            np.testing.assert_array_equal(engine.read(x), EXPECTED, err_msg=give.__name__)
    got = [engine.read(y), engine.read(y[::-1]), engine.read(y[3:]), *engine.state.values()]
    kept = [own.copy() for own in got]
    for own in got:
        own[...] = -1
    np.testing.assert_array_equal(engine.read(y), 2 * EXPECTED)
    np.testing.assert_array_equal(engine.read(x), EXPECTED)
    got = [engine.read(y), engine.read(y[::-1]), engine.read(y[3:]), *engine.state.values()]
    engine.write({"x": np.zeros(SIZE, np.float32)})
    engine.run()
    for own, before in zip(got, kept, strict=True):
        np.testing.assert_array_equal(own, before)


@pytest.mark.parametrize("execution", EXECUTIONS[1:])
def test_streams_keep_what_they_are_connected_to(execution, tmp_path):
    graph = cl.Graph(cl.IPU(num_tiles=4))
    feed, sent = graph.add_input_stream("feed", (SIZE,)), graph.add_output_stream("sent", (SIZE,))
    x = graph.add_variable("x", (SIZE,))
    engine = cl.Engine(graph, cl.Repeat(3, [cl.Copy(feed, x), cl.Copy(x, sent)]), execution=execution)
    expected = np.stack([EXPECTED, 2 * EXPECTED, 3 * EXPECTED])
    stacked = aligned(expected)
    engine.connect(feed, stacked)
    stacked[...] = 0
    engine.run()
    stacked[...] = -1
    np.testing.assert_array_equal(engine.read(sent), expected)

    room = aligned(np.zeros(SIZE))

    def reusing():
        for k in (1, 2, 3):
            room[...] = k * EXPECTED
            yield room
            room[...] = 0

    engine.connect(feed, reusing())
    engine.run()
    np.testing.assert_array_equal(engine.read(sent), expected)

    in_file = np.memmap(tmp_path / "values", np.float32, "w+", shape=(3, SIZE))
    in_file[...] = expected
    engine.connect(feed, in_file)
    engine.run()
    in_file[...] = 0
    got = engine.read(sent)
    np.testing.assert_array_equal(got, expected)
    got[...] = 0
    np.testing.assert_array_equal(engine.read(sent), expected)


def test_functions_keep_what_they_are_given():
    graph, x, y = doubling()
    run = cl.lower(graph, inputs=[x], outputs=[x, y])
    layer = cl.lower(lambda graph, x: (x, cl.ops.map(graph, jnp.add, x, x)))
    traced = cl.trace(lambda x: (x, x + x), EXPECTED)
    engine = cl.Engine(graph)
    whole = engine.function(inputs=[x], outputs=[x, y])
    as_tiles = cl.Engine(graph, execution="tiles").function(inputs=[x], outputs=[x, y])

    def lowered(array):
        return list(run({"x": array}).values())

    def interpreted(array):
        return list(cl.interpret(graph, values={"x": array}, outputs=[x, y]).values())

    def of_engine(array):
        return list(whole({"x": array}).values())

    def of_tiles(array):
        return list(as_tiles({"x": array}).values())

    for function in (lowered, layer, traced, interpreted, of_engine, of_tiles):
        array = counted()
        got = function(array)
        array[...] = 0
        np.testing.assert_array_equal(got[0], EXPECTED)
        np.testing.assert_array_equal(got[1], 2 * EXPECTED)
    array = counted()
    found = graph.vertex("double", 7).run({"x": array})
    array[...] = 0
    assert found == {"out": 16.0}


def test_traced_functions_keep_the_arrays_that_they_use():
    table, inside, number = counted(), counted(), aligned(3.0)
    function = lambda x: jax.jit(lambda y: y + inside)(x * table) + number  # noqa: E731
    traced = cl.trace(function, np.ones(SIZE, np.float32))
    for own in (table, inside, number):
        own[...] = 0
    x = np.ones(SIZE, np.float32)
    np.testing.assert_array_equal(traced(x), 2 * EXPECTED + 3)
    engine = cl.Engine(traced, execution="tiles")
    engine.write({"x": x})
    engine.run()
    np.testing.assert_array_equal(engine.read(traced.outputs), 2 * EXPECTED + 3)


def test_solutions_keep_the_arrays_that_they_use():
    """Their jaxprs lie in a tuple with names, of JAX's own."""
    factor = 1 + counted()
    given = factor.copy()

    def solve(x):
        return jax.lax.custom_linear_solve(lambda own: own * factor, x, lambda _, right: right / factor, symmetric=True)

    x = np.ones(SIZE, np.float32)
    traced = cl.trace(solve, x)
    codelet = cl.codelet(solve)
    graph = cl.Graph()
    tensors = {name: graph.add_variable(name, (SIZE,)) for name in ("x", "out")}
    graph.add_vertex(graph.add_compute_set("solve"), codelet, **tensors)
    run = cl.lower(graph, inputs=["x"], outputs=["out"])
    factor[...] = 7
    np.testing.assert_allclose(traced(x), 1 / given)
    np.testing.assert_allclose(run({"x": x})["out"], 1 / given)
    np.testing.assert_allclose(jax.grad(lambda own: run({"x": own})["out"].sum())(x), 1 / given)


def test_checkpoints_are_of_what_was_saved(tmp_path):
    graph, x, y = doubling()
    engine, other = cl.Engine(graph), cl.Engine(graph)
    array = counted()
    engine.write({x: array})
    array[...] = 0
    engine.run()
    checkpoints = cl.Checkpoints(tmp_path)
    checkpoints.save(engine, 1)
    engine.write({x: array})
    engine.run()
    checkpoints.restore(other)
    np.testing.assert_array_equal(other.read(y), 2 * EXPECTED)


def test_constants_and_states_are_shown_and_not_to_be_written():
    graph = cl.Graph()
    c = graph.add_constant("c", counted())
    graph.add_vertex("one", add, x=counted(4), y=c[:4])
    (constant,) = (variable.value for variable in graph.sources if variable.value is not None)
    for shown in (graph.vertex("one", 0).fields["x"], constant):
        with pytest.raises(ValueError, match="read-only"):
            np.copyto(shown, 0)


@pytest.mark.parametrize("dtype", ["bool", "int4", "int8", "uint16", "bfloat16", "float8_e5m2", "float32", "complex64"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (64,)])
def test_a_copy_is_aligned_and_made_once(dtype, shape):
    given = np.ones(shape, jnp.dtype(dtype))[..., ::-1] if shape else np.ones(shape, jnp.dtype(dtype))
    copy = own_copy(given)
    assert copy.dtype == given.dtype
    assert not np.shares_memory(copy, given)
    assert not copy.size or copy.ctypes.data % 64 == 0
    np.testing.assert_array_equal(copy, given)
    assert own_copy(np.ones(shape)).dtype == jnp.ones(shape).dtype  # 64 bits are 32 without x64


# --- plain numbers ----------------------------------------------------------------------------------------------


def _wholes(dtype):
    """Integers at both ends of what a dtype holds, and one beyond each."""
    ends = jnp.iinfo(dtype) if jnp.issubdtype(dtype, jnp.integer) else jnp.finfo(dtype)
    least, most = int(float(ends.min)), int(float(ends.max))
    return [least, 0, most], [least - 1, most + 1] if jnp.issubdtype(dtype, jnp.integer) else [2 * least, 2 * most]


@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "bfloat16", "float32"]
)
def test_a_number_goes_wherever_its_dtype_takes_it(dtype):
    kind = jnp.dtype(dtype)
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, y = (graph.add_variable(name, (), kind) for name in "xy")
    several = graph.add_variable("several", (1, 3), kind)
    engine = cl.Engine(graph, cl.Copy(x, y))
    held, beyond = _wholes(kind)
    for number in held:
        engine.write({x: number, several: [held]})
        engine.run()
        assert float(engine.read(y)) == float(np.asarray(float(number)).astype(kind))
        assert cl.interpret(graph, values={"x": number}, outputs=[y], program=cl.Copy(x, y))["y"] == engine.read(y)
    assert engine.read(several).tolist() == np.asarray([[float(own) for own in held]]).astype(kind).tolist()
    for number in beyond:
        with pytest.raises(cl.ArrayError, match=r"(?s)'x' does not fit its dtype.*numbers that " + dtype):
            engine.write({x: number})
        with pytest.raises(cl.ArrayError, match="'several' does not fit"):
            engine.write({several: [[0, number, 1]]})


def test_what_a_number_cannot_be():
    graph = cl.Graph()
    whole, half, flag = (graph.add_variable(name, (), name) for name in ("int32", "float16", "bool"))
    engine = cl.Engine(graph)
    for given, name in (({whole: 1.5}, "wrong dtype"), ({half: 1e6}, "does not fit"), ({flag: 2}, "wrong dtype")):
        with pytest.raises(cl.ArrayError, match=name):
            engine.write(given)
    engine.write({half: float("inf"), flag: True, whole: False})
    assert (engine.read(half), engine.read(flag), engine.read(whole)) == (np.inf, True, 0)
    for other in ([1, [2]], {"a": 1}, None, object()):
        with pytest.raises(cl.ArrayError, match=r"(?s)is not an array|wrong shape"):
            engine.write({whole: other})
