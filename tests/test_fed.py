"""Values of streams over a mesh: they come to devices as the variables are cut that they go to."""

import numpy as np
import pytest

import codelet as cl
from benchmarks.collectives import collectives
from tests.cut_graphs import adding
from tests.meshes import mesh_of
from tests.test_mesh_fused import check_parts, execution_of


@pytest.mark.parametrize("shape", [(16, 3), (3, 16), (3, 13)])
def test_values_of_a_stream_arrive_as_the_variable_is_cut(shape):
    """No device holds all of a value, nothing crosses, and a process may give what its devices hold."""
    cut, count, values = int(np.argmax(shape)), 5, np.random.default_rng(0).normal(size=(11, *shape)).astype("f")
    several = adding(shape, cut, mesh_of(8), count, stream_bytes=3 * values[0].nbytes)
    several.write({"total": np.zeros(shape)})
    for by_part, given_values in ((False, values), (True, iter(values))):
        several.connect("in", given_values, by_part=by_part)
        several.run()
        several.run()
    np.testing.assert_allclose(several.read("total"), 2 * values[:10].sum(0), rtol=1e-4, atol=1e-5)
    check_parts(several)
    assert several.part("in") == tuple(slice(0, size) for size in shape)
    loaded = several._programs["main"]
    for part in loaded._compiled.values():
        [stream] = part.fed
        fed = several._execution.feed(stream, values[: part.counts[stream]])
        block = execution_of(several).homes[several._names.by_name["x"]].shape
        assert {shard.data.shape for shard in fed.addressable_shards} == {(part.counts[stream], *block)}
        several.connect("in", values)
        hlo = part.keeping.lower(*part.arguments(dict(several._state.arrays), several._connections)).compile()
        assert not collectives(hlo.as_text() or "")


def test_a_stream_that_goes_to_parts_too_is_on_all_devices():
    graph = cl.Graph(cl.IPU(num_tiles=4))
    stream, _ = graph.add_input_stream("in", (8,)), graph.add_output_stream("out", (8,))
    x, y = graph.add_variable("x", (8,)), graph.add_variable("y", (2, 8))
    for variable in (x, y):
        graph.set_tile_mapping(variable, np.broadcast_to(np.arange(8) // 2, variable.shape))
    engine = cl.Engine(graph, cl.Sequence(cl.Copy(stream, x), cl.Copy(stream, y[1])), mesh=mesh_of(4))
    engine.connect("in", np.arange(16.0).reshape(2, 8).astype("f"), by_part=True)
    engine.run()
    assert not execution_of(engine).fed
    np.testing.assert_array_equal(engine.read(x), np.arange(8))
    np.testing.assert_array_equal(engine.read(y[1]), np.arange(8, 16))
    said = (
        r"stream 'out' is connected by parts\n  given: +by_part=True\n  expected: a function .*\n  fix: +engine.connect"
    )
    with pytest.raises(cl.StreamError, match=said):
        engine.connect("out", print, by_part=True)
