"""The interactive view: what a page and a widget hold beside what the picture is, and both in headless Chromium."""

from __future__ import annotations

import base64
import io
import json
import re

import numpy as np
import pytest

import codelet as cl

pytest.importorskip("numba", reason="pictures are drawn by libraries of the extra `draw`")
pytest.importorskip("PIL", reason="pictures are drawn by libraries of the extra `draw`")

from codelet.draw.labels import LETTER
from codelet.draw.layer_light import shares_of_light
from codelet.draw.picture import Picture
from codelet.draw.view import MOST_POINTS, SHEET, NamedPoints, pyramid_of, view_of
from codelet.draw.widget import MODULE, Viewport
from tests.browser import Browser
from tests.test_draw import heat, pictured, total

NASTY = "</script><b>&\"'"


@pytest.fixture(scope="module")
def picture() -> Picture:
    """Of two layers, the one with a name that would end a script."""
    graph = cl.Graph(cl.IPU(num_tiles=16))
    x, y, z = (graph.add_variable(name, (length,)) for name, length in (("x", 402), ("y", 400), ("z", 20)))
    i, k = cl.grid(400), cl.grid(20)
    graph.add_vertex("line/heat", heat, left=x[i], here=x[i + 1], right=x[i + 2], out=y[i], tile=i * 16 // 400)
    graph.add_vertex(f"{NASTY} sums/total", total, x=y[20 * k : 20 * k + 20], out=z[k])
    return pictured(graph, size=832, title=f"a line {NASTY}")


@pytest.fixture(scope="module")
def view(picture):
    return view_of(picture)


def columns_of(points, columns):
    kinds = ("<u2", "<u2", "<u4", "<i4", "<f4")
    found = [np.frombuffer(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    assert {len(column) for column in found} == {points["count"]}
    return found


def decoded(webp: bytes) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(webp)).convert("RGB"))


def test_tiles_are_the_picture(picture, view):
    assert [level["side"] for level in view["pyramid"]] == [416, 832]
    for level in view["pyramid"]:
        rows = [np.concatenate([decoded(base64.b64decode(own)) for own in row], 1) for row in level["tiles"]]
        whole = np.concatenate(rows, 0)
        assert whole.shape == (level["side"], level["side"], 3)
        if level["side"] == 832:
            assert np.abs(whole.astype(float) - picture.pixels).mean() < 6
    assert [level["side"] for level in pyramid_of(np.zeros((1088, 1088, 3), np.uint8))] == [272, 544, 1088]


def test_the_page_counts_and_names_what_the_picture_has(picture, view):
    links, groups = picture.layout.links, picture.layout.groups
    assert view["counts"] == picture.counts
    assert [layer["name"] for layer in view["layers"]] == list(groups.layers)
    assert sum(layer["points"] for layer in view["layers"]) == links.num_points
    assert view["key"] == []
    assert sorted(label["text"] for label in view["labels"]) == sorted(groups.layers)
    points = view["points"]
    assert points["count"] == points["of"] == links.num_points
    columns = map(base64.b64decode, points["columns"])
    x, y, group, tile, cycles = columns_of(points, columns)
    np.testing.assert_allclose(np.stack([x, y], 1) / 65536, picture.layout.place, atol=1 / 65536)
    assert [points["groups"][own][:3] for own in group[[0, 400]]] == [
        [0, "line/heat", "heat"],
        [1, f"{NASTY} sums/total", "total"],
    ]
    assert points["groups"][group[-1]][4] == "x"
    assert tile[:400].tolist() == [k * 16 // 400 for k in range(400)]
    assert (tile[400:] == -1).all()
    assert (cycles[:420] > 0).all()
    assert (cycles[420:] == -1).all()


def test_of_many_points_a_sample_is_named(picture):
    about, columns = NamedPoints(picture).within((0.0, 0.0, 1.0), most=50)
    assert (about["count"], about["of"]) == (50, picture.layout.links.num_points)
    columns_of(about, columns)
    place = picture.layout.place
    inside = ((place >= 0.25) & (place < 0.75)).all(axis=1)
    about, columns = NamedPoints(picture).within((0.25, 0.25, 0.5))
    assert about["count"] == about["of"] == inside.sum() < len(place) < MOST_POINTS
    x, *_ = columns_of(about, columns)
    np.testing.assert_allclose(x / 65536 * 0.5 + 0.25, place[inside, 0], atol=1 / 65536)


@pytest.mark.slow
def test_layers_have_the_light_where_their_points_are(picture):
    shares = shares_of_light(picture)
    assert shares.shape == (2, 512, 512)
    assert ((shares >= 0) & (shares <= 1 + 1e-5)).all()
    place, groups = picture.layout.place, picture.layout.groups
    pixel = (place * 512).astype(int)
    layer = np.repeat(groups.layer, groups.sizes)
    own = shares[layer, pixel[:, 1], pixel[:, 0]]
    assert np.median(own) > 0.8
    assert own.mean() > 0.6


def test_the_page_is_whole_and_its_names_are_text(picture, view, tmp_path):
    picture.write_picture(tmp_path / "line.html")
    page = (tmp_path / "line.html").read_text(encoding="utf-8")
    assert page.count("</script>") == 2
    assert "a line &lt;/script&gt;&lt;b&gt;&amp;&quot;&#x27;</title>" in page
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    assert json.loads(data[1]) == view
    assert "http" not in page.replace("http-equiv", "").replace(data[1], "")
    assert len(page) < 1_000_000


def test_colours_that_are_no_layers_have_a_key():
    graph = cl.Graph()
    x, i = graph.add_variable("x", (42,)), cl.grid(40)
    graph.add_vertex("line/heat", heat, left=x[i], here=x[i + 1], right=x[i + 2], tile=i % 4)
    view = view_of(pictured(graph, size=256, colour="tile", style="light"))
    assert [own["name"] for own in view["key"]] == ["tile 0", "tile 3"]
    assert view["ground"] == "#ffffff"


def test_a_viewport_is_drawn_anew(picture):
    viewport = Viewport(picture)
    asked = {"number": 3, "left": 0.25, "top": 0.25, "side": 0.5, "size": 500, "off": []}
    told, (webp, *columns) = viewport.draw(asked)
    assert (told["number"], told["window"]) == (3, [0.25, 0.25, 0.5])
    part = picture.zoom(0.25, 0.25, 0.5, 512)
    assert np.abs(decoded(webp).astype(float) - part.pixels).mean() < 6
    columns_of(told["points"], columns)
    light = [decoded(viewport.draw({**asked, "off": off})[1][0]).astype(float).mean() for off in ([], [1], [0, 1])]
    assert light[0] > light[1] > light[2]
    assert light[2] < 3
    for side, most in ((0.5, 1024), (0.9, 768)):
        assert len(decoded(viewport.draw({**asked, "side": side, "size": 9999})[1][0])) == most


def test_a_part_has_a_view_of_its_own(picture):
    part = picture.zoom(0.25, 0.5, 0.5)
    view = view_of(part)
    place = picture.layout.place
    inside = ((place >= (0.25, 0.5)) & (place < (0.75, 1))).all(axis=1)
    assert {label["text"] for label in view["labels"] if label["letter"] == LETTER} == set(picture.layout.groups.layers)
    assert all(0 <= edge <= 1 for label in view["labels"] for edge in (*label["start"], *label["tip"]))
    assert (view["points"]["of"], view["points"]["window"]) == (inside.sum(), [0, 0, 1])
    x, y, *_ = columns_of(view["points"], map(base64.b64decode, view["points"]["columns"]))
    np.testing.assert_allclose(np.stack([x, y], 1) / 65536 * 0.5 + (0.25, 0.5), place[inside], atol=1 / 65536)
    pixel = ((place[inside] - (0.25, 0.5)) * 1024).astype(int)
    layer = np.repeat(picture.layout.groups.layer, picture.layout.groups.sizes)[inside]
    assert np.median(shares_of_light(part)[layer, pixel[:, 1], pixel[:, 0]]) > 0.8
    asked = {"number": 1, "left": 0.5, "top": 0.0, "side": 0.5, "size": 256, "off": []}
    told, (webp, *_) = Viewport(part).draw(asked)
    assert told["window"] == told["points"]["window"] == [0.5, 0.0, 0.5]
    drawn = picture.zoom(0.5, 0.5, 0.25, 256)
    assert np.abs(decoded(webp).astype(float) - drawn.pixels).mean() < 8


def test_the_widget_answers_what_it_is_asked(picture):
    pytest.importorskip("anywidget", reason="widgets are of the extra `draw`")
    widget = picture.widget(height=400)
    assert (widget.height, widget.page["counts"]) == (400, picture.counts)
    sent = []
    widget.send = lambda content, buffers=None: sent.append((content, buffers))
    asked = {"number": 1, "left": 0.0, "top": 0.0, "side": 0.5, "size": 256, "off": [0]}
    widget._handle_custom_msg(asked, [])
    assert sent[0][0]["number"] == 1
    assert len(sent[0][1]) == 6
    # Where no script runs, a notebook shows the picture; it is not told all that the view is made of.
    shown, _ = widget._repr_mimebundle_()
    assert decoded(base64.b64decode(shown["image/png"])).shape == (832, 832, 3)
    assert shown["text/plain"] == f"<View of {picture!r}>"
    assert "application/vnd.jupyter.widget-view+json" in shown


TRIES = """
const told = {};
const wait = (time) => new Promise((resolve) => setTimeout(resolve, time));
const until = async (holds) => { for (let turn = 0; turn < 200 && !holds(); turn++) await wait(25); };
const canvas = document.querySelector("canvas"), box = canvas.getBoundingClientRect();
const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
const seen = () => {
  copy.drawImage(canvas, 0, 0);
  return copy.getImageData(0, 0, canvas.width, canvas.height).data;
};
const light = () => seen().reduce((sum, own, k) => sum + (k % 4 == 3 ? 0 : own), 0);
const state = () => ["x", "y", "times"].map((name) => Number(canvas.dataset[name]));
const at = (x, y) => ({ clientX: box.left + x, clientY: box.top + y, pointerId: 1, bubbles: true });
const point = (kind, x, y) => canvas.dispatchEvent(new PointerEvent(`pointer${kind}`, at(x, y)));
const key = (name) => canvas.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
const about = document.querySelector(".about");
const rows = () => Object.fromEntries([...about.querySelectorAll("dt")].map(
  (name) => [name.textContent, name.nextSibling.textContent]));
const fit = Math.min(box.width, box.height), middle = [box.width / 2, box.height / 2];
const screen = (x, y) => [(x - 0.5) * fit + middle[0], (y - 0.5) * fit + middle[1]];
"""

PAGE_TRIES = """
await until(() => light() > 1000);
await wait(100);
told.light = light();
told.labels = Number(canvas.dataset.names);
told.title = document.querySelector("h1").textContent;
told.layers = [...document.querySelectorAll(".legend label")].map((own) => own.textContent);
told.known = document.querySelector(".known").textContent;
told.named = [];
for (const place of PLACES) {
  point("move", ...screen(...place));
  told.named.push(about.hidden ? null : rows());
}
point("move", 2, box.height - 2);
told.nothing = about.hidden;
point("down", 100, 100); point("move", 160, 130); point("up", 160, 130);
await until(() => state()[0] !== 0.5);
told.dragged = state().slice(0, 2).map((own) => (0.5 - own) * fit);
document.querySelector("button[title='show the whole']").click();
await until(() => state()[0] === 0.5);
told.whole = state();
canvas.dispatchEvent(new WheelEvent("wheel", { ...at(...middle), deltaY: -240, cancelable: true }));
await until(() => state()[2] !== 1);
told.wheeled = state();
await until(() => canvas.dataset.named.includes("heat"));
told.names = canvas.dataset.named.split("; ");
document.querySelector("button[title=shrink]").click();
await until(() => state()[2] !== told.wheeled[2]);
told.shrunk = state()[2];
key("0"); key("+"); key("ArrowRight");
await until(() => state()[2] === 1.5);
told.keys = state();
key("Home");
point("move", 2, box.height - 2);
await until(() => state()[2] === 1);
told.before = light();
const [first] = document.querySelectorAll(".legend input");
first.click();
await until(() => light() < 0.98 * told.before);
told.without = light();
point("move", ...screen(...PLACES[0]));
told.unnamed = !about.hidden && rows().layer === "line";
first.click();
await until(() => light() > 0.99 * told.before);
told.again = light();
document.querySelector("button[title='all layers off']").click();
await until(() => light() < 0.5 * told.without);
told.dark = light();
return told;
"""

WIDGET_TRIES = """
await until(() => light() > 1000);
await wait(200);
told.before = window.answered;
key("+");
await wait(200);
told.sharp = window.answered;
key("+");
await until(() => window.answered === 1);
await until(() => (told.light = light()) > 1000);
document.querySelector(".legend input").click();
await until(() => window.answered === 2);
told.asked = asked.slice();
again();
const second = document.querySelectorAll("canvas")[1];
for (let turn = 0; turn < 2; turn++) second.dispatchEvent(new KeyboardEvent("keydown", { key: "+", bubbles: true }));
const views = () => new Set(asked.map((own) => String(own.number).split(" ")[0])).size;
await until(() => views() === 2);
told.views = views();
told.numbers = asked.map((own) => own.number);
told.wide = Math.max(box.width, box.height) / fit;
return told;
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Browser(tmp_path_factory.mktemp("browser"))
    yield opened
    opened.close()


def test_the_page_in_a_browser(picture, browser, tmp_path):
    picture.write_picture(tmp_path / "line.html")
    place = picture.layout.place[[7, 405, -1]].tolist()
    told = browser.told_by(tmp_path / "line.html", f"const PLACES = {json.dumps(place)};{TRIES}{PAGE_TRIES}")
    assert told["light"] > 0
    assert told["labels"] == 2
    assert told["title"] == picture.title
    assert told["layers"] == list(picture.layout.groups.layers)
    assert told["known"] == "Every point is named."
    line, sums, given = told["named"]
    assert (line["layer"], line["compute set"], line["codelet"]) == ("line", "line/heat", "heat")
    assert int(line["cycles"]) > 0
    assert line["tile"] == "0"
    assert (sums["compute set"], sums["tile"]) == (f"{NASTY} sums/total", "not chosen")
    assert (given["input"], given["first read by"]) == ("x", "line/heat")
    assert told["nothing"]
    assert told["dragged"] == pytest.approx([60, 30], abs=0.1)
    assert told["whole"] == [0.5, 0.5, 1]
    assert told["wheeled"] == pytest.approx([0.5, 0.5, np.exp(240 / 300)], abs=1e-3)
    # Enlarged, layers have names wherever they are seen, and compute sets where few layers are.
    assert told["names"][:2] == list(picture.layout.groups.layers)
    assert set(told["names"][2:]) == {"line/heat", f"{NASTY} sums/total"}
    assert told["shrunk"] == pytest.approx(told["wheeled"][2] / 1.5, abs=1e-3)
    assert told["keys"][2] == 1.5
    assert told["keys"][0] == pytest.approx(0.5 + 0.12 / 1.5, abs=1e-3)
    assert told["without"] < 0.9 * told["before"]
    assert not told["unnamed"]
    assert told["again"] == pytest.approx(told["before"], rel=0.01)
    assert told["dark"] < 0.5 * told["without"]


def test_the_widget_in_a_browser(picture, view, browser, tmp_path):
    told, (webp, *columns) = Viewport(picture).draw(
        {"number": 0, "left": 0.0, "top": 0.0, "side": 1.0, "size": 512, "off": []}
    )
    buffers = [base64.b64encode(own).decode() for own in (webp, *columns)]
    data = json.dumps({"page": view, "told": told, "buffers": buffers}).replace("<", "\\u003c")
    script = MODULE.replace("export default", "const widget =")
    model = """
    const given = JSON.parse(document.getElementById("data").textContent);
    window.asked = [];
    window.answered = 0;
    let told = null;
    const model = {
      get: (name) => name === "height" ? 500 : given.page,
      on: (name, call) => { told = call; },
      off: () => {},
      send: (wanted) => {
        asked.push(wanted);
        const window = [wanted.left, wanted.top, wanted.side];
        const buffers = given.buffers.map((own) => new DataView(bytes(own).buffer));
        setTimeout(() => { told({ ...given.told, number: wanted.number, window }, buffers); answered++; }, 20);
      },
    };
    window.again = () => render({ el: document.getElementById("el"), model });
    again();
    """
    page = f"""<!DOCTYPE html><html><head><meta charset="utf-8">
    <style>{SHEET}</style></head><body><div id="el"></div>
    <script type="application/json" id="data">{data}</script><script type="module">{script}{model}</script>
    </body></html>"""
    (tmp_path / "widget.html").write_text(page, encoding="utf-8")
    found = browser.told_by(tmp_path / "widget.html", TRIES + WIDGET_TRIES)
    assert found["before"] == found["sharp"] == 0
    enlarged, switched = found["asked"]
    # What a second view of the model asks is no question of the first, to which answers come as well.
    assert found["views"] == 2
    assert len(set(found["numbers"])) == len(found["numbers"]) >= 3
    assert (enlarged["off"], switched["off"]) == ([], [0])
    assert enlarged["left"] + enlarged["side"] / 2 == pytest.approx(0.5)
    assert enlarged["side"] == switched["side"] == pytest.approx(found["wide"] / 1.5**2)
    assert found["light"] > 0


def test_a_test_of_a_browser_is_skipped_without_one_and_fails_in_ci(monkeypatch, tmp_path):
    monkeypatch.setattr("tests.browser.shutil.which", lambda name: None)
    monkeypatch.setenv("CI", "")
    with pytest.raises(pytest.skip.Exception, match="needs Chromium: apt-get install chromium"):
        Browser(tmp_path)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no test of a browser may be skipped"):
        Browser(tmp_path)
