"""A right call of every public function, class and method outside `cl.ops`, from which wrong calls are made."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl

TARGET = cl.IPU(num_tiles=4)


@cl.codelet
def scaled(x, *, factor=2.0):
    return {"y": x * factor}


@cl.codelet
def is_left(n):
    return {"n": n - 1, "goes_on": n > 1}


class World:
    """A graph with what calls are given of it, and a folder for what they write."""

    def __init__(self):
        self.graph = cl.Graph(TARGET)
        self.x, self.y = (self.graph.add_variable(name, (8,)) for name in "xy")
        self.n = self.graph.add_variable("n", (), "int32")
        self.goes_on = self.graph.add_variable("goes_on", (), "bool")
        i = cl.grid(8)
        self.graph.add_vertex("scaling", scaled, x=self.x[i], y=self.y[i], tile=i % 4)
        self.body = self.graph.default_program
        with self.graph.record() as self.count:
            self.graph.add_vertex("counting", is_left, n=self.n, goes_on=self.goes_on)
        self.folder = Path(tempfile.mkdtemp())

    def engine(self) -> cl.Engine:
        engine = cl.Engine(self.graph, self.body)
        engine.write({"x": np.ones(8, np.float32)})
        engine.run()
        return engine

    def lowered(self) -> Any:
        return cl.lower(self.graph, self.body, inputs=["x"], outputs=["y"])

    def traced(self) -> Any:
        return cl.trace(lambda x, scale: x * scale, np.ones(4, np.float32), kwargs={"scale": 2.0}, target=TARGET)

    def saved_file(self) -> Path:
        cl.save(self.folder / "model.codelet", self.graph)
        return self.folder / "model.codelet"

    def streamed(self) -> cl.Engine:
        stream = self.graph.add_input_stream("in", (8,))
        return cl.Engine(self.graph, [cl.Copy(stream, self.x)])

    def placed(self) -> tuple[cl.Tensor, cl.Index]:
        i = cl.grid(8)
        return self.x[i], i % 4

    def profile(self) -> cl.Profile:
        return cl.Engine(self.graph, self.body).profile()

    def function(self) -> Any:
        return self.graph.add_function(self.body, {"x": self.x})

    def checkpoints(self) -> cl.Checkpoints:
        return cl.Checkpoints(self.folder)

    def saved(self) -> tuple[cl.Checkpoints, cl.Engine]:
        kept, engine = self.checkpoints(), self.engine()
        kept.save(engine, 3)
        return kept, engine


Given = tuple[Callable[..., Any], list[Any], dict[str, Any]]
ONES = np.ones(8, np.float32)

CALLS: Mapping[str, Callable[[World], Given]] = {
    "IPU": lambda w: (cl.IPU, ["mk2"], {"num_tiles": 4, "num_chips": 1, "clock_hertz": 1e9, "sync_cycles": 3}),
    "Machine": lambda w: (
        cl.Machine,
        [],
        {
            "name": "own",
            "num_tiles": 4,
            "bytes_per_tile": 1 << 16,
            "clock_hertz": 1e9,
            "num_chips": 2,
            "num_workers": 6,
            "interleaved_bytes": 64,
            "vector_bytes": 8,
            "float16_macs_per_cycle": 4,
            "float32_macs_per_cycle": 2,
            "float8_macs_per_cycle": 8,
            "word_bytes": 4,
            "exchange_bytes_per_cycle": 4,
            "paired_exchange": True,
            "max_message_words": 4096,
            "sync_cycles": 30,
            "exchange_overhead_cycles": 9,
            "route": cl.Route(5, 3, 2),
            "launch_cycles": 8,
            "host_bytes_per_cycle": 8.0,
            "host_overhead_cycles": 3,
            "link_bytes_per_second": 1e9,
            "hop_seconds": 1e-7,
            "stack_bytes": 64,
            "control_code_bytes": 64,
            "host_code_bytes": 64,
            "tables": cl.Tables("own", {}),
        },
    ),
    "Route": lambda w: (cl.Route, [5, 3, 2], {}),
    "Tables": lambda w: (cl.Tables, ["own", {}], {"folds": True}),
    "Graph": lambda w: (cl.Graph, [TARGET], {}),
    "Graph.add_compute_set": lambda w: (w.graph.add_compute_set, ["own"], {}),
    "Graph.add_constant": lambda w: (w.graph.add_constant, ["own", 3.0, "float32"], {}),
    "Graph.add_function": lambda w: (
        w.graph.add_function,
        [w.body, {"x": w.x}],
        {"name": "f", "derivative": None, "same_values": True},
    ),
    "Graph.add_input_stream": lambda w: (w.graph.add_input_stream, ["s", (8,), "float32"], {"buffering_depth": 2}),
    "Graph.add_output_stream": lambda w: (w.graph.add_output_stream, ["s", (8,), "float32"], {"buffering_depth": 2}),
    "Graph.add_variable": lambda w: (w.graph.add_variable, ["own", (8,), "float32"], {}),
    "Graph.add_vertex": lambda w: (
        w.graph.add_vertex,
        ["more", scaled],
        {"x": w.y[cl.grid(8)], "factor": 3.0, "tile": 3},
    ),
    "Graph.draw": lambda w: (w.graph.draw, [w.folder / "own.webp"], {"size": 256, "title": "own"}),
    "Graph.diagram": lambda w: (w.graph.diagram, [w.folder / "own.svg"], {"title": "own"}),
    "Graph.readers": lambda w: (w.graph.readers, [w.x], {}),
    "Graph.writers": lambda w: (w.graph.writers, [w.y], {}),
    "Graph.record": lambda w: (w.graph.record, [], {"aside": True}),
    "Graph.scope": lambda w: (w.graph.scope, ["inner"], {"unique": True}),
    "Graph.set_tile_mapping": lambda w: (w.graph.set_tile_mapping, [*w.placed()], {}),
    "Graph.tile_mapping": lambda w: (w.graph.tile_mapping, ["x"], {}),
    "Graph.variable": lambda w: (w.graph.variable, ["x"], {}),
    "Graph.vertex": lambda w: (w.graph.vertex, ["scaling", 3], {}),
    "Execute": lambda w: (cl.Execute, [w.graph.add_compute_set("scaling2")], {}),
    "Sequence": lambda w: (cl.Sequence, [w.body, [w.count]], {}),
    "Repeat": lambda w: (cl.Repeat, [3, w.body], {"index": w.n, "recompute": 2}),
    "Repeat/revolve": lambda w: (cl.Repeat, [3, w.body], {"recompute": cl.Revolve(2)}),
    "Revolve": lambda w: (cl.Revolve, [2], {}),
    "RepeatWhile": lambda w: (
        cl.RepeatWhile,
        [w.count, w.goes_on, w.body],
        {"until": False, "max_iterations": 5, "trip_count": 2},
    ),
    "If": lambda w: (cl.If, [w.goes_on, w.body, w.count], {}),
    "Switch": lambda w: (cl.Switch, [w.n, {0: w.body, 3: w.count}, w.count], {}),
    "Copy": lambda w: (cl.Copy, [w.x, w.y], {}),
    "Print": lambda w: (cl.Print, [w.x, "x is"], {}),
    "AbortOn": lambda w: (cl.AbortOn, [w.goes_on, "no more"], {}),
    "WriteUndef": lambda w: (cl.WriteUndef, [w.x], {}),
    "Call": lambda w: (cl.Call, [w.function()], {"x": w.y}),
    "Tensor.__getitem__": lambda w: (w.x.__getitem__, [slice(1, 3)], {}),
    "Tensor.broadcast_to": lambda w: (w.x.broadcast_to, [(3, 8)], {}),
    "Tensor.expand": lambda w: (w.x.expand, [0], {}),
    "Tensor.pad": lambda w: (w.x.pad, [((1, 2),)], {"mode": "constant", "value": 1.0}),
    "Tensor.reshape": lambda w: (w.x.reshape, [2, 4], {}),
    "Tensor.reshape/tuple": lambda w: (w.x.reshape, [(2, 4)], {}),
    "Tensor.reverse": lambda w: (w.x.reverse, [0], {}),
    "Tensor.squeeze": lambda w: (w.x.reshape(1, 8).squeeze, [0], {}),
    "Tensor.transpose": lambda w: (w.x.reshape(2, 4).transpose, [1, 0], {}),
    "Tensor.transpose/tuple": lambda w: (w.x.reshape(2, 4).transpose, [(1, 0)], {}),
    "concatenate": lambda w: (cl.concatenate, [[w.x, w.y], 0], {}),
    "grid": lambda w: (cl.grid, [3, 4], {}),
    "maximum": lambda w: (cl.maximum, [cl.grid(8), 3], {}),
    "minimum": lambda w: (cl.minimum, [cl.grid(8), 3], {}),
    "table": lambda w: (cl.table, [[3, 1, 2, 0]], {"offsets": [0, 1, 4]}),
    "where": lambda w: (cl.where, [cl.grid(8) < 3, cl.grid(8), 3], {}),
    "codelet": lambda w: (cl.codelet, [lambda x: x], {"cycles": None, "workers": 6, "issue": "assembly"}),
    "codelet/more": lambda w: (cl.codelet, [lambda x: x], {"vectorised": True, "trip_count": 3}),
    "codelet_from_jaxpr": lambda w: (
        cl.codelet_from_jaxpr,
        [jax.make_jaxpr(jnp.sin)(1.0), ["x"], "out"],
        {"name": "sine", "workers": 6, "issue": "compiled", "vectorised": False, "trip_count": None, "cycles": None},
    ),
    "interpret": lambda w: (cl.interpret, [w.graph, w.body], {"values": {w.x: ONES}, "outputs": ["y"]}),
    "operation": lambda w: (cl.operation, [cl.ops.softmax], {"gradient": None}),
    "gradient": lambda w: (
        cl.gradient,
        [w.graph, w.body],
        {"of": w.y, "wrt": [w.x], "cotangent": 1.0, "recompute": cl.Recompute.sqrt()},
    ),
    "Gradient.__getitem__": lambda w: (
        cl.gradient(w.graph, of="y", wrt=["x"], program=w.body, cotangent=1.0).__getitem__,
        ["x"],
        {},
    ),
    "Recompute.bytes": lambda w: (cl.Recompute.bytes, [100], {}),
    "Recompute.every": lambda w: (cl.Recompute.every, [3], {}),
    "Recompute.scopes": lambda w: (cl.Recompute.scopes, ["layer"], {}),
    "check_gradient": lambda w: (
        cl.check_gradient,
        [w.graph, w.body],
        {
            "of": w.y,
            "wrt": [w.x],
            "values": {"x": ONES},
            "cotangent": 1.0,
            "vertices": 2,
            "directions": 1,
            "seed": 3,
            "rtol": 1e-3,
            "ignore": ["is_left"],
        },
    ),
    "describe": lambda w: (cl.describe, [w.graph, [w.graph.compute_sets[0]]], {}),
    "equal": lambda w: (cl.equal, [jnp.sin, lambda x: jnp.sin(x), ONES], {"casts": "exact", "seed": 3}),
    "save": lambda w: (cl.save, [w.folder / "saved.codelet", w.graph], {"exported": False, "platforms": None}),
    "load": lambda w: (cl.load, [w.saved_file()], {}),
    "lower": lambda w: (
        cl.lower,
        [w.graph, w.body],
        {"inputs": ["x"], "outputs": [w.y], "target": None, "mesh": None, "replicas": None, "shared": ()},
    ),
    "lower/function": lambda w: (cl.lower, [lambda graph, x: x], {"target": TARGET}),
    "Lowered.__call__": lambda w: (w.lowered(), [{"x": ONES}], {}),
    "LoweredFunction.__call__": lambda w: (cl.lower(lambda graph, x: x), [ONES], {}),
    "LoweredFunction.at": lambda w: (cl.lower(lambda graph, x: x).at, [ONES], {}),
    "trace": lambda w: (
        cl.trace,
        [lambda x, **named: jnp.ones(3), ONES],
        {"kwargs": {"scale": 2.0}, "target": TARGET, "grain": 2, "donate_argnums": (), "replace": None},
    ),
    "jit": lambda w: (
        cl.jit,
        [lambda x, scale=2.0: x * scale],
        {
            "static_argnums": (),
            "static_argnames": "scale",
            "donate_argnums": 0,
            "donate_argnames": None,
            "target": TARGET,
            "grain": 2,
            "replace": None,
        },
    ),
    "Traced.__call__": lambda w: (w.traced(), [np.ones(4, np.float32)], {"scale": 2.0}),
    "Traced.arrays": lambda w: (w.traced().arrays, [np.ones(4, np.float32)], {"scale": 2.0}),
    "Traced.draw": lambda w: (w.traced().draw, [w.folder / "own.webp"], {"size": 256, "title": "own"}),
    "Traced.diagram": lambda w: (w.traced().diagram, [w.folder / "own.svg"], {"title": "own"}),
    "Traced.layer_of": lambda w: (w.traced().layer_of, ["mul"], {}),
    "Traced.profile": lambda w: (w.traced().profile, [], {"host_visible": (), "placement": "linear"}),
    "Engine": lambda w: (
        cl.Engine,
        [w.graph, w.body],
        {
            "check_finite": True,
            "stream_bytes": 64,
            "execution": "fused",
            "placement": "linear",
            "mesh": None,
        },
    ),
    "Engine/traced": lambda w: (cl.Engine, [w.traced()], {}),
    "Engine.connect": lambda w: (w.streamed().connect, ["in", [ONES]], {"by_part": False}),
    "Engine.function": lambda w: (w.engine().function, [], {"inputs": ["x"], "outputs": [w.y], "program_name": "main"}),
    "Engine.load_state": lambda w: (w.engine().load_state, [w.engine().state], {}),
    "Engine.machine": lambda w: (
        w.engine().machine,
        ["main"],
        {"placement": "linear", "host_visible": ["x"], "allow_out_of_memory": True},
    ),
    "Engine.profile": lambda w: (
        w.engine().profile,
        ["main"],
        {"placement": "linear", "host_visible": [w.x], "allow_out_of_memory": True},
    ),
    "Engine.part": lambda w: (w.streamed().part, ["in"], {}),
    "Engine.read": lambda w: (w.engine().read, [w.y], {}),
    "Engine.read_tile": lambda w: (
        cl.Engine(w.graph, w.body, execution="tiles").read_tile,
        [1],
        {},
    ),
    "Engine.run": lambda w: (w.engine().run, ["main"], {"wait": True, "progress": False}),
    "Engine.write": lambda w: (w.engine().write, [{"x": ONES}], {}),
    "Engine.write/view": lambda w: (w.engine().write, [{w.x[2:4]: [1.0, 2.0]}], {}),
    "Checkpoints": lambda w: (cl.Checkpoints, [w.folder], {"max_to_keep": 2}),
    "Checkpoints.save": lambda w: (w.checkpoints().save, [w.engine(), 3], {}),
    "Checkpoints.restore": lambda w: (w.saved()[0].restore, [w.engine(), 3], {}),
    "compare": lambda w: (cl.compare, [w.profile(), w.profile()], {}),
    "Comparison.write_report": lambda w: (
        cl.compare(w.profile(), w.profile()).write_report,
        [w.folder / "own.html"],
        {},
    ),
    "Profile.advice": lambda w: (w.profile().advice, [3], {}),
    "Profile.cycles_of": lambda w: (w.profile().cycles_of, ["compute"], {}),
    "Profile.fullest_tiles": lambda w: (w.profile().fullest_tiles, [2], {}),
    "Profile.tables": lambda w: (w.profile().tables, ["own"], {"layer_of": None}),
    "Profile.write_report": lambda w: (
        w.profile().write_report,
        [w.folder / "own.html", "own"],
        {"layer_of": None, "picture": False},
    ),
    "Profile.show": lambda w: (w.profile().show, ["own"], {"height": 600}),
    "Profile.chrome_trace": lambda w: (w.profile().chrome_trace, [[0, 1]], {}),
    "Profile.write_trace": lambda w: (w.profile().write_trace, [w.folder / "own.json", 2], {}),
    "Profile.plot": lambda w: (w.profile().plot, ["memory"], {}),
    "Record.table": lambda w: (w.profile().tables().table, ["steps"], {}),
    "Record.frame": lambda w: (w.profile().tables().frame, ["steps"], {}),
    "Record.write_json": lambda w: (w.profile().tables().write_json, [w.folder / "own.json"], {}),
    "Vertex.run": lambda w: (w.graph.vertex("scaling", 3).run, [{w.x: ONES}], {}),
    "draw": lambda w: (
        cl.draw,
        [w.graph, w.body],
        {
            "path": w.folder / "own.webp",
            "profile": w.profile(),
            "size": 256,
            "style": "dark",
            "colour": "layer",
            "palette": "hue",
            "highlight": "scaling",
            "title": "own",
            "packed": 0.5,
        },
    ),
}
"""For each public callable, by name, a right call in a world of its own: what is called, by position and by name."""
