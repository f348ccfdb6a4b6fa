"""Over a mesh of devices: the time of a program beside that on one device, what it moves, and what a device holds.

The devices are the host's, which share its cores, so that times say what running over a mesh costs beyond the vertices,
and no more. What moves is counted in the compiled HLO (`collectives.py`), beside the elements that cross by the edges
of the graph, and beside what XLA's own partitioning of the best plain JAX moves for arguments that are cut alike.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import codelet as cl
from benchmarks.collectives import elements_carried
from benchmarks.conv import ALEXNET, Convolution, convolve
from benchmarks.fresh import in_fresh_process
from benchmarks.harness import Comparison, Row, benchmark, check_same
from benchmarks.heat import HEAT, plain_heat, there_and_back
from benchmarks.matvec import dot, total
from benchmarks.messages import build_messages
from benchmarks.messages import network as message_network
from benchmarks.messages import plain as plain_messages
from benchmarks.mnist_step import training_arguments
from codelet.graphs.by_tensor import key_of
from codelet.models.mnist import SIZES, Layer, network
from ipu_backend.jobs.mnist import make_optimizer, make_step, plain_network, slope_of
from ipu_backend.jobs.timing import time_in_turn
from lowering.lower import lower_plan, named_ends
from lowering.mesh.choose_homes import SMALL_BYTES
from lowering.mesh.homes import Home, Homes
from lowering.mesh.mesh_fused import MeshFused
from lowering.pipeline import plan_graph

Result = TypeVar("Result")

AXIS = "devices"


def mesh_of(count: int) -> Mesh:
    """The first devices, along one axis."""
    return Mesh(np.array(jax.devices()[:count]), (AXIS,))


def cut(mesh: Mesh, *dimensions: str | None) -> NamedSharding:
    """A sharding along the dimensions that name the axis."""
    return NamedSharding(mesh, PartitionSpec(*dimensions))


def _on_devices(function: Callable[..., Result], count: int, arguments: Sequence[Any]) -> Result:
    if "device_count" not in os.environ.get("XLA_FLAGS", ""):
        jax.config.update("jax_num_cpu_devices", count)
    return function(*arguments)


def on_devices(function: Callable[..., Result], count: int, *arguments: Any) -> Result:
    """What a function returns in a process that has so many host devices: this one, if it does; else a new one."""
    if len(jax.devices()) >= count:
        return function(*arguments)
    return in_fresh_process(_on_devices, function, count, arguments)


# --- graphs over meshes -----------------------------------------------------------------------------------


class OverMesh:
    """A graph's default program, or another, over a mesh, with variables cut as it is said.

    Attributes:
        run: the function, jitted.
        crossing: elements that cross by the edges, each once to each device that needs it.
        carried: those that do by the crossings' own count, with padding.
    """

    def __init__(
        self,
        graph: cl.Graph,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        mesh: Mesh,
        cuts: Mapping[str, int | None] | None = None,
        program: Any = None,
    ):
        sources, targets = named_ends(graph, list(inputs), list(outputs))
        chosen = graph.default_program if program is None else program
        plan = plan_graph(graph, chosen, sources, targets)
        homes = None
        if cuts is not None:
            homes = Homes(mesh.size)
            homes.update({v: Home(v, mesh.size, cuts.get(v.name)) for v in plan.variables})
        self.execution = MeshFused(plan, mesh, homes)
        self.run = jax.jit(
            lower_plan(
                plan, tuple(map(key_of, targets)), self.execution.compile_logical(plan), self.execution.key, raises=True
            )
        )
        self.crossing = sum(own.elements_crossing for own in self.execution.inner.crossed)
        self.carried = sum(own.elements_carried for own in self.execution.inner.crossed)

    def compiled(self, values: Mapping[str, np.ndarray]) -> Any:
        """What XLA makes of it, for values that are cut as its inputs are."""
        homes = {variable.name: home for variable, home in self.execution.homes.items()}
        given = {}
        for name, value in values.items():
            sharding = NamedSharding(self.execution.mesh, homes[name].spec(self.execution.axes))
            given[name] = jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding)
        return self.run.lower(given).compile()

    def hlo(self, values: Mapping[str, np.ndarray]) -> str:
        """The text of that."""
        return self.compiled(values).as_text() or ""


def product(by: str, size: int, parts: int) -> cl.Graph:
    """A matrix times a vector in partial products: by tiles, a tile for each block of rows, or of columns."""
    graph = cl.Graph(cl.IPU(num_tiles=parts))
    w, x = graph.add_variable("w", (size, size)), graph.add_variable("x", (size,))
    some = graph.add_variable("some", (size, parts))
    y, n = graph.add_variable("y", (size,)), size // parts
    row, part = cl.grid(size, parts)
    here = slice(n * part, n * part + n)
    tile = row // n if by == "rows" else part
    graph.add_vertex("multiply", dot, w=w[row, here], x=x[here], out=some[row, part], tile=tile)
    row = cl.grid(size)
    graph.add_vertex("add up", total, partials=some[row], out=y[row], tile=row // n)
    blocks = np.arange(size) // n
    graph.set_tile_mapping(x, blocks)
    graph.set_tile_mapping(y, blocks)
    wide = np.repeat(blocks[:, None], size, 1)
    graph.set_tile_mapping(w, wide if by == "rows" else wide.T)
    graph.set_tile_mapping(some, wide[:, :parts] if by == "rows" else np.repeat(np.arange(parts)[None], size, 0))
    return graph


# --- times ------------------------------------------------------------------------------------------------


def _timed(name: str, several: Callable[[], Any], one: Callable[[], Any], tolerance: float = 1e-5) -> Row:
    """A row of a program over a mesh and on one device."""
    check_same(name, several(), one(), tolerance)
    ours, theirs = time_in_turn([several, one])
    return Row(name, ours, theirs, ours / theirs, 1.2, "of one device")


def heat_rows(side: int, steps: int, devices: int) -> list[Row]:
    """A stencil, over a mesh and on one device."""
    mesh, rows = mesh_of(devices), []
    u = np.random.default_rng(0).standard_normal((side, side), np.float32)
    for name, make in HEAT.items():
        one, several = (
            jax.jit(cl.lower(*make(side, steps), inputs=["u"], outputs=["u"], mesh=own)) for own in (None, mesh)
        )
        own, shared = {"u": jax.device_put(u, jax.devices()[0])}, {"u": jax.device_put(u, cut(mesh, AXIS))}
        rows.append(_timed(f"mesh/{name}", partial(several, shared), partial(one, own)))
    return rows


def mnist_rows(batch: int, devices: int) -> list[Row]:
    """A training step, over a mesh and on one device, of ours and of plain JAX as XLA partitions it.

    Each is timed on layers and a state as its own steps leave them; over a mesh images and labels are on all devices.
    """
    optimizer, mesh = make_optimizer(1000), mesh_of(devices)
    given = training_arguments(optimizer, batch, np.random.default_rng(0))

    def settled(apply: Callable[..., Any], where: Any) -> Callable[[], Any]:
        step = make_step(slope_of(apply), optimizer)
        layers, state, images, labels = jax.device_put(given, where)
        for _ in range(2):
            layers, state, _ = step(layers, state, images, labels)
        return partial(step, layers, state, images, labels)

    by_rows = jax.tree.map(lambda own: cut(mesh, AXIS) if own.shape[:1] == (SIZES[1],) else cut(mesh), given[:2])
    one = jax.devices()[0]
    # Adam's first steps divide each slope by its own size, and its rounding with it.
    ours = settled(cl.lower(network, mesh=mesh), cut(mesh)), settled(cl.lower(network), one)
    plain = settled(plain_network, (*by_rows, cut(mesh), cut(mesh))), settled(plain_network, one)
    rows = [_timed("mesh/mnist_step", *ours, tolerance=1e-4), _timed("mesh/mnist_step/plain", *plain, tolerance=1e-4)]
    return [rows[0], replace(rows[1], bar=None)]


# --- what moves -------------------------------------------------------------------------------------------


def _counted(name: str, carried: int, crossing: int, plain: str, bar: float) -> Row:
    """A row of elements that are carried, beside what the text of plain JAX carries."""
    note = f"{carried:,} elements carried, of {crossing:,} that cross; plain JAX: {elements_carried(plain):,}"
    return Row(f"mesh/moved/{name}", None, None, carried / crossing, bar, note)


def _moved(name: str, hlo: str, crossing: int, plain: str, bar: float) -> Row:
    return _counted(name, elements_carried(hlo), crossing, plain, bar)


def _hlo(
    function: Callable[..., Any], *arguments: tuple[Sequence[int], NamedSharding], out: Any, dtype: Any = "f"
) -> str:
    """The text of plain JAX, as XLA partitions it for float32 arguments that are cut."""
    structs = [jax.ShapeDtypeStruct(tuple(shape), np.dtype(dtype), sharding=own) for shape, own in arguments]
    return jax.jit(function, out_shardings=out).lower(*structs).compile().as_text() or ""


def moved_stencil(side: int, devices: int) -> list[Row]:
    """Two steps of a stencil, in a loop."""
    mesh, u = mesh_of(devices), ((side, side), cut(mesh_of(devices), AXIS))
    graph, program = there_and_back((side, side), 4)
    several = OverMesh(graph, ["u"], ["u"], mesh, program=program)
    plain = _hlo(partial(plain_heat, steps=4), u, out=u[1])
    return [_moved("stencil", several.hlo({"u": np.zeros((side, side), "f")}), several.crossing, plain, 1.1)]


def moved_products(size: int, devices: int) -> list[Row]:
    """A matrix times a vector, cut by rows and by columns; the vectors by blocks."""
    mesh, rows = mesh_of(devices), []
    by_block = cut(mesh, AXIS)
    for by in ("rows", "columns"):
        several = OverMesh(product(by, size, devices), ["w", "x"], ["y"], mesh)
        matrix = cut(mesh, AXIS) if by == "rows" else cut(mesh, None, AXIS)
        plain = _hlo(lambda w, x: w @ x, ((size, size), matrix), ((size,), by_block), out=by_block)
        text = several.hlo({"w": np.zeros((size, size), "f"), "x": np.zeros(size, "f")})
        rows.append(_moved(f"matvec/{by}", text, several.crossing, plain, 1.1))
    return rows


def moved_convolutions(layers: Sequence[Convolution], devices: int) -> list[Row]:
    """Convolutions, cut by rows of the images and by channels and filters."""
    mesh, rows = mesh_of(devices), []
    for layer in layers:
        for by in ("rows", "channels"):
            graph = cl.Graph()
            x = graph.add_variable("x", (1, layer.channels, layer.side, layer.side))
            w = graph.add_variable("w", (layer.filters, layer.channels, layer.window, layer.window))
            y = convolve(graph, x, w, stride=layer.stride, padding=layer.padding)
            cuts = {"x": 2, y.name: 2} if by == "rows" else {"x": 1, "w": 0, y.name: 1}
            several = OverMesh(graph, [x, w], [y], mesh, cuts)
            # XLA shards no array unevenly: what does not divide is whole, as it has to be given.
            even = [
                cut(
                    mesh, *(AXIS if d == cuts.get(v.name) and n % devices == 0 else None for d, n in enumerate(v.shape))
                )
                for v in (x, w, y)
            ]
            plain = _hlo(
                partial(
                    lax.conv_general_dilated,
                    window_strides=[layer.stride] * 2,
                    padding=[(layer.padding, layer.padding)] * 2,
                ),
                (x.shape, even[0]),
                (w.shape, even[1]),
                out=even[2],
            )
            rows.append(_moved_of_crossings(f"{layer.name}/{by}", several, plain))
    return rows


def _moved_of_crossings(name: str, several: OverMesh, plain: str) -> Row:
    """What crossings carry: arguments that are cut unevenly are cut by whoever calls, which is none of it."""
    return _counted(name, several.carried, several.crossing, plain, 1.1)


def crossing_of_mnist(batch: int, mesh: Mesh) -> int:
    """What has to cross for the slopes of a step of training, where variables live as is chosen.

    Forward what crosses by the edges, sums over devices as on a ring. Back the same other than of the images, which
    have no slopes, and of sums that all devices have, as their slopes are there. The slopes of what all devices hold,
    and the loss where each has its own images, are summed on a ring.
    """
    graph = cl.Graph()
    x = graph.add_variable("x", (batch, SIZES[0]))
    layers = [
        Layer(graph.add_variable(f"w{k}", (n, m)), graph.add_variable(f"b{k}", (n,)))
        for k, (m, n) in enumerate(itertools.pairwise(SIZES))
    ]
    y = network(graph, x, layers)
    parameters = [own for layer in layers for own in layer]
    several = OverMesh(graph, [x, *parameters], [y], mesh)
    homes = {variable.name: home for variable, home in several.execution.homes.items()}
    inner, on_ring = several.execution.inner, 2 * (mesh.size - 1)
    windows = [own for step in inner.steps.values() for layer in step.layers for own in layer.windows]
    images = sum(own.crossing.elements_crossing for own in windows if own.crossing and own.source is x.source)
    there = sum(own.elements_crossing for own in inner.sums.values() if own.cut is None)
    if homes[y.name].is_everywhere:
        return 2 * several.crossing - images - there
    held = sum(own.size for own in parameters if homes[own.name].is_everywhere)
    return 2 * several.crossing - images - there + on_ring * (held + 1)


def moved_mnist(batch: int, devices: int) -> list[Row]:
    """The slopes of a step of training: forward, and the same the other way."""
    mesh, optimizer = mesh_of(devices), make_optimizer(1000)
    layers, _, images, labels = training_arguments(optimizer, batch, np.random.default_rng(0))
    hlo = jax.jit(slope_of(cl.lower(network, mesh=mesh))).lower(layers, images, labels).compile().as_text() or ""
    is_held = images.nbytes <= SMALL_BYTES
    whole, by_rows = cut(mesh), cut(mesh, AXIS)
    kinds = [
        jax.tree.map(
            lambda own, n=n: jax.ShapeDtypeStruct(own.shape, own.dtype, sharding=by_rows if n == 0 else whole), own
        )
        for n, own in enumerate(layers)
    ]
    given = [
        jax.ShapeDtypeStruct(own.shape, own.dtype, sharding=whole if is_held else by_rows) for own in (images, labels)
    ]
    plain = jax.jit(slope_of(plain_network)).lower(kinds, *given).compile().as_text() or ""
    return [_moved("mnist_step", hlo, crossing_of_mnist(batch, mesh), plain, 1.1)]


def moved_messages(edges: int, nodes: int, devices: int) -> list[Row]:
    """Messages along random edges, by a power law."""
    mesh, known = mesh_of(devices), message_network(edges, nodes)
    graph, inputs, y = build_messages(known)
    several = OverMesh(graph, inputs, [y], mesh, dict.fromkeys(["h", "weight", "sent", "y"], 0))
    values = {v.name: np.zeros(v.shape, "f") for v in inputs}
    by_block = cut(mesh, AXIS)
    ends = [jax.device_put(own, by_block) for own in (known.senders, known.receivers)]
    given = [jax.ShapeDtypeStruct((n,), np.float32, sharding=by_block) for n in (nodes, edges)]
    plain = (
        jax.jit(partial(plain_messages, nodes), out_shardings=by_block).lower(*ends, *given).compile().as_text() or ""
    )
    return [_moved("messages", several.hlo(values), several.crossing, plain, 2.0)]


# --- what a device holds ----------------------------------------------------------------------------------


def _held(compiled: Any) -> int:
    """Bytes that a device holds for a compiled program: what it is given and gives, and what it makes between."""
    found = compiled.memory_analysis()
    return found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes


def memory_row(side: int, devices: int) -> list[Row]:
    """A stencil on one device, and one as many times larger on several."""
    one = jax.jit(cl.lower(*there_and_back((side, side), 4), inputs=["u"], outputs=["u"]))
    alone = _held(one.lower({"u": jax.ShapeDtypeStruct((side, side), np.float32)}).compile())
    graph, program = there_and_back((devices * side, side), 4)
    several = OverMesh(graph, ["u"], ["u"], mesh_of(devices), program=program)
    each = _held(several.compiled({"u": np.zeros((devices * side, side), "f")}))
    note = f"of one device: {1e-6 * each:.1f} MB on each of {devices}, of a graph {devices} times as large"
    return [Row("mesh/memory", None, None, each / alone, 1.2, note)]


@benchmark
def mesh(
    side: int = 2048,
    steps: int = 100,
    batch: int = 32,
    large_batch: int = 100,
    size: int = 1024,
    layers: Sequence[Convolution] = ALEXNET,
    edges: int = 100_000,
    nodes: int = 10_000,
) -> Generator[Comparison | Row, Row, None]:
    """Fused over a mesh: times on two host devices beside one, what moves between four, memory of each of eight."""
    rows = [
        (2, heat_rows, (side, steps, 2)),
        (2, mnist_rows, (batch, 2)),
        (4, moved_stencil, (side, 4)),
        (4, moved_products, (size, 4)),
        (4, moved_convolutions, (layers, 4)),
        (4, moved_mnist, (large_batch, 4)),
        (4, moved_messages, (edges, nodes, 4)),
        (8, memory_row, (side, 8)),
    ]
    for devices, function, arguments in rows:
        for row in on_devices(function, devices, *arguments):  # noqa: UP028, since a list takes no row that is sent
            yield row
