"""Pictures: where points lie, what light they give, what is written on them, and what is refused."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
from itertools import pairwise, product
from pathlib import Path
from xml.etree import ElementTree

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from tests.examples import examples, few
from tests.strategies import Case, cases

pytest.importorskip("numba", reason="pictures are drawn by libraries of the extra `draw`")
pytest.importorskip("PIL", reason="pictures are drawn by libraries of the extra `draw`")

from codelet.draw.coarse import coarsen
from codelet.draw.colours import _TO_CONES, _TO_RGB, KIND_SHIFTS, class_colours, from_hex, oklch, to_hex
from codelet.draw.drawing import draw_small
from codelet.draw.forces import SOFTENING, Mesh
from codelet.draw.groups import group_points
from codelet.draw.layout import lay_out, mesh_of_step
from codelet.draw.libraries import need
from codelet.draw.links import find_links
from codelet.draw.picture import Picture
from codelet.draw.raster import draw_links, draw_points, pixels_of
from ipu_backend.cli import main
from ipu_backend.jobs.draw import draw_function


@cl.codelet
def heat(left, here, right):
    return here + 0.1 * (left - 2 * here + right)


@cl.codelet
def total(x):
    return jnp.sum(x)


def stencil(length: int = 400) -> cl.Graph:
    """Two layers: a stencil over a line, and sums of 20 of its results; names as of layers."""
    graph = cl.Graph(cl.IPU(num_tiles=16))
    x, y = graph.add_variable("x", (length + 2,)), graph.add_variable("y", (length,))
    z = graph.add_variable("z", (length // 20,))
    i, k = cl.grid(length), cl.grid(length // 20)
    graph.add_vertex("line/heat", heat, left=x[i], here=x[i + 1], right=x[i + 2], out=y[i], tile=i * 16 // length)
    graph.add_vertex("sums/total", total, x=y[20 * k : 20 * k + 20], out=z[k], tile=k % 16)
    return graph


def pictured(graph, **options) -> Picture:
    """A picture, however small the graph."""
    drawn = cl.draw(graph, **options)
    assert isinstance(drawn, Picture)
    return drawn


@pytest.fixture(scope="module")
def layout():
    return lay_out(find_links(stencil()))


@pytest.fixture(scope="module")
def picture():
    return pictured(stencil(), size=512, title="a line")


@examples(3)
@given(cases(np.int32, max_iterations=3))
def test_every_point_lies_inside_and_stretches_keep_all_links(case: Case):
    links = find_links(case.graph, case.sequence())
    groups = group_points(links)
    coarse = coarsen(links, groups)
    assert groups.sizes.sum() == coarse.size.sum() == links.num_points
    assert coarse.degree.sum() == 2 * links.num_links
    within = sum(coarse.node[s] == coarse.node[t] for s, t in zip(links.source, links.target, strict=True))
    assert coarse.weight.sum() == links.num_links - within
    if not links.num_points:
        return  # refused before it is laid out
    place = lay_out(links).place
    assert place.shape == (links.num_points, 2)
    assert ((place >= 0) & (place < 1)).all()


@pytest.mark.slow
@examples(3)
@given(cases(np.int32, max_iterations=3), st.integers(1, 9), st.sampled_from([np.int16, np.int32]), st.integers(0, 99))
def test_groups_are_cut_in_the_order_of_tiles(case: Case, tiles: int, kind: type, seed: int):
    links = find_links(case.graph, case.sequence())
    groups = group_points(links)
    tile = np.random.default_rng(seed).integers(-1, tiles, links.num_vertices).astype(kind)
    coarse = coarsen(links, groups, tile, most=1)
    where = np.where(tile < 0, 1 << 30, tile.astype(np.int64))
    for begin, end in pairwise(np.minimum(groups.first, links.num_vertices)):
        own = begin + np.lexsort((np.arange(end - begin), where[begin:end]))
        assert (np.diff(coarse.node[own].astype(int)) >= 0).all()
    pairs: dict[tuple[int, int], int] = {}
    for s, t in zip(coarse.node[links.source].tolist(), coarse.node[links.target].tolist(), strict=True):
        if s != t:
            pairs[min(s, t), max(s, t)] = pairs.get((min(s, t), max(s, t)), 0) + 1
    assert dict(zip(zip(coarse.source, coarse.target, strict=True), coarse.weight, strict=True)) == pairs
    # Those without a tile are last.
    rising = np.concatenate([np.sort(tile[tile >= 0]), tile[tile < 0]])
    plain, ascending = coarsen(links, groups, most=1), coarsen(links, groups, rising, most=1)
    assert not len(ascending.order)
    for name in ("node", "source", "target", "weight"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(ascending, name))
    if not links.num_points:
        return  # refused before it is laid out
    place = lay_out(links, tile=tile).place
    assert ((place >= 0) & (place < 1)).all()
    np.testing.assert_array_equal(place, lay_out(links, tile=tile).place)


def test_masses_on_a_mesh_repel_as_in_the_plane():
    density = np.random.default_rng(0).random((16, 16), np.float32)
    x, y = np.meshgrid(np.arange(16), np.arange(16))
    across, down = (own[..., None, None] - own for own in (x, y))
    squared = across**2 + down**2 + SOFTENING**2
    wanted = [(density * own / squared).sum(axis=(2, 3)) for own in (across, down)]
    np.testing.assert_allclose(Mesh(16).field(density), wanted, rtol=1e-4, atol=1e-4)


def test_a_walk_spends_few_steps_on_the_finest_mesh():
    sizes = [mesh_of_step(512, 15 ** (1 - turn / 199)) for turn in range(200)]
    assert sizes == sorted(sizes)
    assert (min(sizes), max(sizes)) == (64, 512)
    assert sum(size**2 for size in sizes) < 0.35 * 200 * 512**2


def shuffled(given_tiles: bool) -> tuple[cl.Graph, np.ndarray]:
    """Vertices whose tiles, 0 to 15, follow no order; the graph gives them or a profile has to."""
    graph = cl.Graph(cl.IPU(num_tiles=16))
    x, y, k = graph.add_variable("x", (400,)), graph.add_variable("y", (400,)), cl.grid(400)
    tile = np.random.default_rng(1).permutation(np.arange(400) % 16).astype(np.int32)
    named = {"tile": cl.table(tile)[k]} if given_tiles else {}
    graph.add_vertex("line/total", total, x=x[k : k + 1], out=y[399 - k], **named)
    for own in (x[k], y[399 - k]):
        graph.set_tile_mapping(own, cl.table(tile)[k])
    return graph, tile


@pytest.mark.slow
def test_a_profile_says_where_vertices_are():
    graph, tile = shuffled(given_tiles=False)
    profile = cl.Engine(graph).profile(placement="bytes")
    told = profile.tiles_of_vertices(graph.families[0])
    assert told.tolist() == tile.tolist()
    drawn = pictured(graph, size=256, colour="tile", profile=profile)
    np.testing.assert_array_equal(drawn.layout.tile, tile)
    assert [name for name, _ in drawn.colouring.legend] == ["tile 0", "tile 15"]
    given, _ = shuffled(given_tiles=True)
    np.testing.assert_array_equal(drawn.pixels, pictured(given, size=256, colour="tile").pixels)
    told, plain = graph.diagram(profile=profile), given.diagram()
    assert f"placed on tile {tile[3]}" in told.svg
    assert "placed on tile" not in plain.svg


def test_what_is_no_profile():
    graph, _ = shuffled(given_tiles=False)
    with pytest.raises(cl.DrawError, match=r"(?s)coloured by tile where no vertex has one.*profile=cl.Engine\(graph\)"):
        cl.draw(graph, colour="tile")
    with pytest.raises(cl.DrawError, match=r"(?s)an invalid profile.*given:? +str.*cl.Engine\(graph\).profile\(\)"):
        cl.draw(graph, profile="fast")  # type: ignore[arg-type]
    profile = cl.Engine(stencil(40)).profile()
    for own in (graph, stencil(40)):
        with pytest.raises(cl.ForeignGraphError, match="tiles of another graph's vertices"):
            cl.draw(own, profile=profile)


def test_layers_are_what_names_say_and_small_ones_belong_to_their_neighbours(layout):
    assert layout.groups.layers == ("line", "sums")
    names = ["a/one", "b/two", "a/three", "backward/b/two", "loss"]
    graph = cl.Graph()
    x = graph.add_variable("x", (100,))
    i = cl.grid(100)
    for name in names:
        x = graph.add_vertex(name, heat, left=x[i], here=x[i], right=x[i])
    # A scope that comes again after another is none; one part more tells its parts from each other.
    groups = lay_out(find_links(graph)).groups
    assert groups.layers == ("a/one", "b", "a/three", "loss")
    assert groups.layer[:5].tolist() == [0, 1, 2, 1, 3]
    assert groups.phase[:5].tolist() == [0, 0, 0, 1, 0]


def test_the_light_is_the_sum_of_the_weights(layout):
    links, place = layout.links, layout.place * 512
    which = np.repeat(layout.groups.layer, layout.groups.sizes).astype(np.uint16)
    colours = np.array([[1, 0, 0], [0, 1, 0]], np.float32)
    weight = np.linspace(0.5, 2, links.num_points, dtype=np.float32)
    for radius in (0.0, 3.5):
        light = draw_points(place, which, weight, colours, (512, 512), radius)
        for layer in range(2):
            assert light[..., layer].sum() == pytest.approx(weight[which == layer].sum(), rel=1e-4)
    between = which[links.source] != which[links.target]
    light = draw_links(pixels_of(layout.place, (512, 512)), links, which, np.arange(2), colours, (512, 512), boost=10.0)
    assert light.sum() == pytest.approx((~between).sum() + 10 * between.sum(), rel=1e-4)


def test_lines_are_the_same_in_any_order_of_vertices(layout):
    which = np.repeat(layout.groups.layer, layout.groups.sizes).astype(np.uint16)
    drawn = layout.links, which, np.arange(2), np.eye(3, dtype=np.float32)[:2], (512, 512)
    order = np.random.default_rng(2).permutation(layout.links.num_vertices).astype(np.int32)
    for many in (0, 1 << 22):
        pixel = pixels_of(layout.place, (512, 512))
        plain, other = (draw_links(pixel, *drawn, many=many, order=own) for own in (None, order))
        assert plain.sum() > 0
        np.testing.assert_allclose(other, plain, rtol=1e-5, atol=1e-6)


def test_many_links_keep_their_light_on_coarser_pixels(layout):
    which = np.repeat(layout.groups.layer, layout.groups.sizes).astype(np.uint16)
    colours = np.eye(3, dtype=np.float32)[:2]
    drawn = layout.links, which, np.arange(2), colours, (1024, 1024)
    pixel = pixels_of(layout.place, (1024, 1024))
    fine, coarse = (draw_links(pixel, *drawn, many=many) for many in (1 << 22, 0))
    assert coarse.sum() == pytest.approx(fine.sum(), rel=1e-4)
    assert (coarse != fine).any()
    blocks = lambda light: light.reshape(16, 64, 16, 64, 3).sum(axis=(1, 3))  # noqa: E731
    np.testing.assert_allclose(blocks(coarse), blocks(fine), atol=0.02 * fine.sum())


@pytest.mark.slow
def test_a_picture_is_the_same_in_every_process(picture):
    digest = hashlib.sha256(picture.pixels.tobytes()).hexdigest()
    program = (
        "import hashlib, codelet as cl; from tests.test_draw import stencil;"
        "print(hashlib.sha256(cl.draw(stencil(), size=512, title='a line').pixels.tobytes()).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "JAX_PLATFORMS": "cpu"}
    told = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.split()[-1] == digest


@few(
    "colour, style",
    product(["layer", "codelet", "tile", "cycles"], ["dark", "light"]),
    quick=["codelet, dark", "tile, light", "cycles, dark"],
)
def test_styles_and_colours(colour, style):
    options = {"style": style, "colour": colour, "palette": "colour-blind", "highlight": "sums/*"}
    drawn = pictured(stencil(100), size=256, **options)
    assert drawn.pixels.shape == (256, 256, 3)
    ground = drawn.pixels[:8, :8].mean()
    assert ground < 8 if style == "dark" else ground > 247
    assert drawn.pixels.std() > 2
    assert [name for name, _ in drawn.colouring.legend]


@pytest.mark.slow
def test_a_part_is_drawn_anew_as_brightly(picture):
    part = picture.zoom(0.25, 0.25, 0.5)
    assert part.pixels.shape == picture.pixels.shape
    assert part.exposures == picture.exposures
    whole = picture.pixels[128:384, 128:384].mean()
    assert part.pixels.mean() == pytest.approx(whole, rel=0.6)


def test_it_is_saved_and_shown(picture, tmp_path):
    from PIL import Image

    for ending in ("png", "webp", "jpg"):
        picture.write_picture(tmp_path / f"line.{ending}")
        assert Image.open(tmp_path / f"line.{ending}").size == (512, 512)
    assert picture._repr_png_().startswith(b"\x89PNG")
    assert repr(picture) == "<Picture of 420 vertices   ·   1,600 links, 512 x 512>"


@pytest.mark.slow
def test_a_traced_function_is_drawn_by_its_layers():
    def step(w, x):
        return jnp.tanh(x @ w).sum()

    traced = cl.trace(step, jnp.ones((16, 16)), jnp.ones((4, 16)))
    drawn = pictured(traced, size=256)
    assert drawn.layout.links.num_vertices == traced.graph.num_vertices


def whole_and_in_parts():
    """A function of which a vertex runs one equation whole, which the trace gives no tile."""
    return lambda x: jnp.tanh(x).sum() + jnp.linalg.svd(x, compute_uv=False).sum(), jnp.ones((32, 32))


@pytest.mark.filterwarnings("ignore:one vertex on one tile runs 'svd'")
def test_the_console_knows_tiles(tmp_path, capsys):
    name, path = f"{__name__}:whole_and_in_parts", str(tmp_path / "own.png")

    def tiles(**options) -> np.ndarray:
        drawn = draw_function(name, path, size=256, **options)
        assert isinstance(drawn, Picture)
        assert drawn.layout.tile is not None
        return drawn.layout.tile

    given = tiles()
    assert (given < 0).any()
    assert (given >= 0).any()
    for known in (tiles(profile=True), tiles(colour="tile")):
        assert (known >= 0).all()
        np.testing.assert_array_equal(known[given >= 0], given[given >= 0])
    main(["draw", name, "-o", path, "--size", "256", "--profile"])
    assert f"{len(given):,} vertices" in capsys.readouterr().out


def test_colours_are_within_srgb_and_written_as_they_are():
    colours = oklch(0.7, 0.4, np.arange(0, 360, 20))
    assert ((colours >= 0) & (colours <= 1)).all()
    assert oklch(1.0, 0.0, 0.0).tolist() == pytest.approx([1, 1, 1], abs=1e-3)
    assert to_hex(from_hex(["#3a9a5b"])[0]) == "#3a9a5b"


@pytest.mark.parametrize("style", ["dark", "light"])
@pytest.mark.parametrize("count", [1, 8, 24])
def test_phases_and_kinds_stay_near_the_hue_of_their_layer(style, count):
    colours = class_colours(count, 3, style, "hue", len(KIND_SHIFTS)).reshape(count, -1, 3)
    for own in colours:
        assert len(np.unique(own.round(3), axis=0)) == 3 * len(KIND_SHIFTS)
    cones = np.cbrt(colours.astype(float) @ np.linalg.inv(_TO_RGB).T)
    _, a, b = np.moveaxis(cones @ np.linalg.inv(_TO_CONES).T, -1, 0)
    hue, chroma = np.degrees(np.arctan2(b, a)), np.hypot(a, b)
    away = (hue - hue[:, :1] + 180) % 360 - 180
    assert np.abs(away).max() < min(25, 317 / count / 2 + 0.5)
    assert chroma.min() > 0.03
    # What nobody wrote is pale.
    chroma = chroma.reshape(-1, len(KIND_SHIFTS))
    assert chroma[:, -1].max() < 0.11


@pytest.mark.parametrize("style", ["dark", "light"])
def test_kinds_differ_in_lightness_for_the_colour_blind(style):
    colours = class_colours(7, 3, style, "colour-blind", len(KIND_SHIFTS)).reshape(21, -1, 3)
    light = np.sort(colours @ np.array([0.2126, 0.7152, 0.0722]))
    assert (light[:, 1:] > 1.02 * light[:, :-1]).all()


def test_vertices_have_colours_by_their_kind_and_links_by_their_layer():
    graph = cl.Graph()
    x = graph.add_variable("x", (100,))
    for number in range(6):
        i, work = cl.grid(100 if number else 90), lambda here: 2 * here
        work.__name__ = f"work{number}"
        graph.add_vertex(f"a/{work.__name__}", cl.codelet(work), here=x[i])
    i = cl.grid(100)
    graph.add_vertex("b/heat", heat, left=x[i], here=x[i], right=x[i])
    colouring = pictured(graph, size=256).colouring
    which = colouring.which.astype(int)
    first, *others, last = which[[0, 90, 190, 290, 390, 490, 590]]
    # The codelet with the fewest vertices has no colour of its own; what nobody wrote has one.
    assert [first, *others] == [others[0] + k for k in (3, 0, 1, 2, 3, 3)]
    assert set(which[690:].tolist()) == {others[0] + 4}
    assert set(colouring.of_links[which].tolist()) == {others[0], last}
    assert colouring.legend == (("a", others[0]), ("b", last))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"size": 100}, "size of draw is invalid"),
        ({"style": "neon"}, "style of draw is invalid"),
        ({"colour": "mood"}, "colour of draw is invalid"),
        ({"palette": "warm"}, "palette of draw is invalid"),
        ({"highlight": "conv9/*"}, "a highlight names no compute set"),
        ({"path": "line.bmp"}, "a picture is saved as something else"),
    ],
)
def test_what_there_is_none_of(options, told):
    with pytest.raises(cl.DrawError, match=told):
        cl.draw(stencil(40), **{"size": 256, **options})


def test_a_small_graph_is_a_diagram(tmp_path):
    graph = stencil(40)
    drawn = graph.diagram(title="a < b")
    links = find_links(graph)
    assert repr(drawn) == f"<Diagram of 42 vertices and {links.num_links} links>"
    assert ElementTree.fromstring(drawn.svg).tag.endswith("svg")
    texts = "".join(ElementTree.fromstring(drawn.svg).itertext())
    assert "a < b" in texts
    assert "→ left: x[3]" in texts
    assert "to left of heat" in texts
    drawn.write_picture(tmp_path / "line.svg")
    assert (tmp_path / "line.svg").read_text(encoding="utf-8") == drawn.svg
    with pytest.raises(cl.DrawError, match="a diagram is saved as something else"):
        drawn.write_picture(tmp_path / "line.png")


def test_long_names_end_within_their_boxes():
    graph = cl.Graph()
    x, i = graph.add_variable("a variable of which the name is long", (6,)), cl.grid(4)
    graph.add_vertex("heat", heat, left=x[i], here=x[i + 1], right=x[i + 2])
    drawn = ElementTree.fromstring(graph.diagram().svg)
    names = [text.text for text in drawn.iter() if text.tag.endswith("text")]
    assert max(map(len, filter(None, names))) <= 26
    assert "→ left: a variable of whi…" in names
    # All of it is told when it is pointed at.
    assert any("left: a variable of which the name is long[2]" in text for text in drawn.itertext())


@pytest.mark.parametrize("draw", [cl.draw, draw_small])
def test_a_program_of_another_graph(draw):
    other = stencil(40)
    with pytest.raises(cl.ForeignGraphError, match="a program names something of another graph"):
        draw(stencil(40), other.default_program)


def test_a_diagram_was_drawn_by_an_option():
    graph = stencil(40)
    with pytest.warns(DeprecationWarning, match=r"draw\(diagram=True\) is now graph\.diagram\(\)"):
        assert cl.draw(graph, diagram=True).svg == graph.diagram().svg  # type: ignore[attr-defined]
    with pytest.raises(cl.DrawError, match=r"graph\.diagram\(path=\.\.\.\) writes SVG"):
        cl.draw(graph, path="line.svg")


def test_what_is_no_graph():
    with pytest.raises(cl.DrawError, match="something other than a graph is drawn"):
        cl.draw("alexnet")
    with pytest.raises(cl.DrawError, match="a graph without vertices is drawn"):
        cl.draw(cl.Graph())


def test_what_is_missing_is_told():
    with pytest.raises(cl.MissingExtraError, match=r"(?s)a Python without no_such_library.*the extra `draw`"):
        need("no_such_library.part")


def test_what_is_missing_is_told_before_anything_is_drawn(monkeypatch, tmp_path):
    graph = cl.Graph()
    x = graph.add_variable("x", (4,))
    graph.add_vertex("sum", total, x=x)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else name)
    drawing = importlib.import_module("codelet.draw.drawing")
    monkeypatch.setattr(drawing, "find_links", lambda *given: pytest.fail("links are looked for"))
    with pytest.raises(cl.MissingExtraError, match="a Python without matplotlib"):
        cl.draw(graph, path=tmp_path / "picture.png")


def test_many_layers_have_names_of_fewer_parts():
    names = [f"stage{stage}/block{block}/conv{k}" for stage in range(3) for block in range(5) for k in range(3)]
    graph = cl.Graph()
    x = graph.add_variable("x", (60,))
    i = cl.grid(60)
    for name in names:
        x = graph.add_vertex(f"{name}/heat", heat, left=x[i], here=x[i], right=x[i])
    groups = group_points(find_links(graph), layer_of=lambda name: name.rpartition("/")[0])
    assert groups.layers == tuple(f"stage{stage}/block{block}" for stage in range(3) for block in range(5))


def test_a_picture_is_as_it_was():
    """What was drawn when it was last looked at, but for rounding on other machines."""
    from PIL import Image

    golden = np.asarray(Image.open(Path(__file__).parent / "pictures" / "line.png"), np.int16)
    drawn = np.asarray(pictured(stencil(), size=256, title="a line").image(), np.int16)
    assert drawn.shape == golden.shape
    assert np.abs(drawn - golden).mean() < 1.5
    # Another layout would put light elsewhere.
    assert np.corrcoef(drawn.reshape(-1), golden.reshape(-1))[0, 1] > 0.97
