"""Reports as pages: what a browser reads back is the record; every view opens; what is chosen narrows the others."""

from __future__ import annotations

import json
import re

import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from benchmarks.traced_steps import FINE_GRAIN, traced_step
from ipu_backend.cli import main
from ipu_backend.model.report.comparison import ComparisonError
from ipu_backend.model.report.packed import pack
from ipu_backend.model.report.schema import schema
from tests.browser import Browser
from tests.examples import few

VIEWS = ("summary", "memory", "liveness", "execution", "exchange", "graph")
NASTY = "</script><b>ü & co"

OPENED = """
const settled = async (what) => {
  for (let k = 0; k < 600 && !what(); k++) await new Promise((rest) => setTimeout(rest, 50));
  return what();
};
const view = async (name) => {
  document.getElementById("tab-" + name).click();
  return settled(() => document.documentElement.dataset.shown === name);
};
if (!(await settled(() => document.documentElement.dataset.shown)))
  throw new Error(document.getElementById("failed").textContent || "it does not open");
"""


@cl.codelet
def dot(w, x):
    return jnp.dot(w, x)


@cl.codelet
def total(x):
    return jnp.sum(x)


@cl.codelet
def double(x):
    return 2 * x


def product(rows: int = 96, columns: int = 64, chunk: int = 16, name: str = "layer") -> cl.Graph:
    """A matrix times a vector, on a few tiles."""
    graph = cl.Graph(cl.IPU(num_tiles=8))
    w, x = graph.add_variable("w", (rows, columns)), graph.add_variable("x", (columns,))
    row, part = cl.grid(rows, columns // chunk)
    here = slice(chunk * part, chunk * part + chunk)
    with graph.scope(name):
        partial = graph.add_vertex("dots", dot, w=w[row, here], x=x[here])
        row = cl.grid(rows)
        graph.add_vertex("sums", total, x=partial[row])
    return graph


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Browser(tmp_path_factory.mktemp("browser"))
    yield opened
    opened.close()


def opens(browser: Browser, page, script: str = "return true;"):
    return browser.told_by(page, OPENED + script)


EVERY_VIEW = f"const seen = {{}}; for (const name of {json.dumps(VIEWS)}) seen[name] = await view(name); return seen;"


@pytest.mark.slow
def test_the_page_has_every_number_of_the_record(browser, tmp_path):
    profile = cl.Engine(product(name=NASTY)).profile()
    profile.write_report(tmp_path / "report.html", NASTY)
    record = profile.tables(NASTY)
    script = """
    const told = {};
    for (const [name, table] of Object.entries(tables)) {
      told[name] = {};
      for (const column of Object.keys(table.numbers))
        told[name][column] = Array.from({ length: table.length }, (_, row) => cell(name, column, row));
    }
    return { tables: told, about, title: document.querySelector("h1").textContent };"""
    told = opens(browser, tmp_path / "report.html", script)
    assert told["title"] == NASTY
    assert told["about"] == record.to_dict()["about"]
    for name, table in record.tables.items():
        for column, values in table.items():
            np.testing.assert_array_equal(told["tables"][name][column], values, err_msg=f"{name}.{column}")


def empty() -> cl.Profile:
    graph = cl.Graph(cl.IPU(num_tiles=4))
    graph.add_variable("x", (3,))
    return cl.Engine(graph, cl.Sequence()).profile()


def one_tile() -> cl.Profile:
    graph = cl.Graph(cl.IPU(num_tiles=1))
    x, i = graph.add_variable("x", (3,)), cl.grid(3)
    graph.add_vertex(NASTY, double, x=x[i])
    return cl.Engine(graph).profile()


def with_loops() -> cl.Profile:
    graph = product()
    y = graph.add_variable("y", (64,))
    body = cl.Sequence(graph.default_program, cl.Copy(graph.variable("x"), y))
    return cl.Engine(graph, cl.Repeat(5, cl.Sequence(cl.Repeat(3, body), cl.Copy(y, graph.variable("x"))))).profile()


def two_chips() -> cl.Profile:
    graph = cl.Graph(cl.IPU("mk2", num_tiles=8, num_chips=2))
    x, i = graph.add_variable("x", (64,)), cl.grid(64)
    graph.add_vertex("turned", double, x=x[63 - i], tile=i * 8 // 64)
    return cl.Engine(graph).profile()


def matrix_vector() -> cl.Profile:
    return cl.Engine(product(512, 256, 64)).profile()


def mnist() -> cl.Profile:
    return traced_step("mnist", 2, None).profile()


def a_million() -> cl.Profile:
    graph = cl.Graph()
    x, i = graph.add_variable("x", (1_000_000,)), cl.grid(1_000_000)
    graph.add_vertex("doubled", double, x=x[i])
    return cl.Engine(graph).profile()


@few(
    "profile",
    [with_loops, empty, one_tile, matrix_vector, two_chips, mnist, a_million],
    quick=["one_tile"],
)
def test_every_view_opens(browser, tmp_path, profile):
    profile().write_report(tmp_path / "report.html", NASTY)
    assert opens(browser, tmp_path / "report.html", EVERY_VIEW) == dict.fromkeys(VIEWS, True)


FAR = (
    "$$x^2$$",
    r"\\(x\\)",
    r"\\[x\\]",
    "<b>bold</b>",
    '"quoted"',
    "<img src=https://example.org/x.png>",
    "@import url(//a.b)",
)
"""Names that libraries of pages have taken for mathematics, elements or addresses."""


def named_badly() -> cl.Profile:
    graph = cl.Graph(cl.IPU(num_tiles=8))
    i = cl.grid(64)
    for name in FAR:
        x = graph.add_variable(f"x of {name}", (64,))
        graph.add_vertex(name, double, x=x[i])
    return cl.Engine(graph).profile()


@pytest.mark.parametrize("way", ["report", "compared", "notebook"])
def test_pages_ask_for_nothing(browser, tmp_path, way):
    profile, page = named_badly(), tmp_path / "report.html"
    title = " ".join(FAR)
    if way == "report":
        profile.write_report(page, title, picture=True)
    elif way == "compared":
        cl.compare(profile, one_tile()).write_report(page)
    else:
        page.write_text(f"<!doctype html><body>{profile.show(title)._repr_html_()}</body>")
    script = "await new Promise((rest) => setTimeout(rest, 3000)); return true;"
    assert browser.told_by(page, script) if way == "notebook" else opens(browser, page, EVERY_VIEW)
    assert browser.requests[0] == page.as_uri()
    assert [own for own in browser.requests[1:] if not own.startswith(("data:", "blob:", "about:"))] == []


@few("way", ["report", "compared", "picture"], quick=["picture"])
def test_no_address_of_another_host_stands_in_a_page(tmp_path, way):
    page = tmp_path / "page.html"
    profile = one_tile()
    if way == "report":
        profile.write_report(page, picture=True)
    elif way == "compared":
        cl.compare(profile, profile).write_report(page)
    else:
        cl.draw(product(), size=256).write_picture(page)
    text = re.sub(r"/\*.*?\*/", "", page.read_text(), flags=re.DOTALL)  # notes of licences
    hosts = set(re.findall(r"""["'`(=]\s*(?:https?:)?//([\w.-]+\.\w+)""", text))
    assert hosts <= {"www.w3.org"}, hosts


@pytest.mark.slow
def test_what_is_chosen_narrows_the_other_views(browser, tmp_path):
    profile = cl.Engine(product()).profile()
    profile.write_report(tmp_path / "report.html", "a product")
    script = """
    const rows = (id) => Number(document.querySelector(`#${id} .count`).textContent.split(" ")[0].replace(/,/g, ""));
    const told = {};
    await view("memory");
    told.unchosen = rows("table-residents");
    choose({ tile: 5 });
    await settled(() => rows("table-residents") > 0);
    told.residents = rows("table-residents");
    await view("execution");
    told.steps = rows("table-steps");
    const second = document.querySelectorAll("#table-steps tbody tr[tabindex]")[1];
    second.focus();
    second.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
    told.step = state.step;
    told.focused = document.activeElement.dataset.row;
    await view("exchange");
    told.moves = rows("table-moves");
    told.address = location.hash;
    document.querySelector("#chosen button").click();
    choose({ search: "dots", view: "graph" });
    await settled(() => document.documentElement.dataset.shown === "graph" && rows("table-vertices") === 1);
    told.found = rows("table-vertices");
    told.left = [state.step, state.tile];
    const before = document.querySelector("#table-variables tbody tr").textContent;
    document.querySelector("#table-variables th button").click();
    told.sorted = before !== document.querySelector("#table-variables tbody tr").textContent;
    document.getElementById("style").click();
    told.style = document.documentElement.dataset.style;
    return told;"""
    told = opens(browser, tmp_path / "report.html", script)
    residents, moves = profile.tables().table("residents"), profile.tables().table("moves")
    assert told["unchosen"] == 0
    assert told["residents"] == np.count_nonzero(residents["tile"] == 5)
    assert (told["steps"], told["step"], told["focused"]) == (2, 1, "1")
    assert told["moves"] == np.count_nonzero(moves["step"] == 1)
    assert told["address"] == "#view=exchange&step=1&tile=5"
    assert told["left"] == [None, 5]
    assert told["found"] == 1
    assert told["style"] == "dark"


@pytest.mark.slow
def test_two_programs_compared(browser, tmp_path):
    before, after = (cl.Engine(product(chunk=chunk)).profile() for chunk in (16, 32))
    comparison = cl.compare(before, after)
    table, tiles = comparison.differences, comparison.tiles
    for what, total in (("cycles by step", "total_cycles"), ("memory by kind", None)):
        own = table["what"] == what
        totals = [p.total_cycles if total else int(p.memory_by_tile.sum()) for p in (before, after)]
        assert [table["before"][own].sum(), table["after"][own].sum()] == totals
        assert table["difference"][own].sum() == totals[1] - totals[0]
    np.testing.assert_array_equal(tiles["bytes_after"], after.memory_by_tile)
    assert str(comparison).startswith("before, then after\n  ")
    comparison.write_report(tmp_path / "compared.html")
    script = """
    const told = { titles: Array.from(document.querySelectorAll("#compared dd"), (own) => own.textContent) };
    told.rows = tables.differences.length;
    told.seen = {};
    for (const name of VIEWS) told.seen[name] = await view(name);
    return told;"""
    told = opens(browser, tmp_path / "compared.html", script)
    assert told["rows"] == len(table["name"])
    assert told["titles"][0].startswith(f"{before.total_cycles:,}, then {after.total_cycles:,} (")
    assert told["seen"] == dict.fromkeys(("comparison", *VIEWS), True)


def test_what_came_and_went():
    one, other = product(), product()
    row = cl.grid(96)
    other.add_vertex("more", double, x=other.variable("layer/sums/out")[row])
    table = cl.compare(cl.Engine(one).profile(), cl.Engine(other).profile()).differences
    status = dict(zip(zip(table["what"], table["name"], strict=True), table["status"], strict=True))
    assert status["cycles by step", "more"] == "came"
    assert status["cycles by step", "layer/sums"] == "same"
    table = cl.compare(cl.Engine(other).profile(), cl.Engine(one).profile()).differences
    status = dict(zip(zip(table["what"], table["name"], strict=True), table["status"], strict=True))
    assert status["cycles by codelet", "double"] == "went"


@pytest.mark.slow
def test_a_page_in_a_notebook(browser, tmp_path):
    shown = cl.Engine(product()).profile().show("a product", height=500)
    frame = shown._repr_html_()
    assert re.fullmatch(r"<Page of [\d,]+ bytes>", repr(shown))
    page = tmp_path / "cell.html"
    page.write_text(f"<!doctype html><body>{frame}</body>")
    script = """
    const frame = document.querySelector("iframe");
    const shown = async (name) => {
      const own = () => frame.contentDocument.documentElement.dataset.shown;
      for (let k = 0; k < 600 && own() !== name; k++) await new Promise((rest) => setTimeout(rest, 50));
      return own();
    };
    await shown("summary");
    frame.contentDocument.getElementById("tab-memory").click();
    return [await shown("memory"), frame.offsetHeight];"""
    assert browser.told_by(page, script) == ["memory", 500]


def test_packed_columns_are_exact():
    columns = {
        "small": np.array([0, 255]),
        "negative": np.array([-1, 5]),
        "large": np.array([0, 2**40 + 1]),
        "text": np.array(["b", "a"]),
        "flag": np.array([True, False]),
        "real": np.array([0.1, 2.0]),
    }
    kinds = {name: own["kind"] for name, own in pack({"t": columns}).columns["t"].items()}
    assert kinds == {"small": "u1", "negative": "i4", "large": "f8", "text": "u1", "flag": "u1", "real": "f8"}


def test_something_that_is_no_profile():
    with pytest.raises(ComparisonError, match=r"other than a profile is compared\n  given:    3\n  expected: two"):
        cl.compare(cl.Engine(product()).profile(), 3)


@pytest.mark.slow
def test_the_page_of_millions_of_vertices_is_quick(browser, tmp_path):
    traced = traced_step("alexnet", 1, FINE_GRAIN)
    page = tmp_path / "report.html"
    traced.profile(allow_out_of_memory=True).write_report(page, "AlexNet", layer_of=traced.layer_of)
    assert page.stat().st_size < 40 * 2**20
    script = """
    const told = { opened: performance.now() };
    for (const name of VIEWS) {
      await view(name);
      for (const chosen of [{ tile: 700 }, { step: 20 }, { tile: undefined }, { step: undefined }]) {
        const begin = performance.now();
        choose(chosen);
        await new Promise((seen) => requestAnimationFrame(() => setTimeout(seen, 0)));
        told[`${name} ${Object.entries(chosen)}`] = performance.now() - begin;
      }
    }
    return told;"""
    told = opens(browser, page, script)
    assert told.pop("opened") < 5000
    assert max(told.values()) < 300, told


def a_network():
    """What `codelet report tests.test_report:a_network` is of."""
    return (lambda w, x: jnp.tanh(w @ x)), jnp.ones((12, 8)), jnp.ones(8)


def test_the_job(browser, tmp_path, capsys):
    import jsonschema  # which takes seconds

    name = f"{__name__}:{a_network.__name__}"
    page, data = tmp_path / "report.html", tmp_path / "report.json"
    main(["report", name, "-o", str(page), "--json", str(data), "--no-picture"])
    assert re.search(rf"<Profile on .*: [\d,]+ cycles>: {page}\n$", capsys.readouterr().out)
    written = json.loads(data.read_text())
    jsonschema.validate(written, schema())
    script = "return [about.title, about.total_cycles, document.getElementById('picture').childElementCount];"
    assert opens(browser, page, script) == [name, written["about"]["total_cycles"], 0]
    with pytest.raises(SystemExit):
        main(["report", name, "--grain", "0"])


def test_a_small_graph_is_in_its_page_as_a_diagram(browser, tmp_path):
    cl.Engine(product(4, 8, 8)).profile().write_report(tmp_path / "report.html")
    script = "await view('graph'); return document.querySelectorAll('#picture svg').length;"
    assert opens(browser, tmp_path / "report.html", script) == 1
