"""The pictures of the documentation, drawn anew: `python docs/pictures.py [NAME ...]`, from the root of a checkout.

They go to docs/pictures, as WebP. AlexNet's take about two minutes on two cores and 5 GiB, all others a few minutes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent.parent))

import codelet as cl
from codelet.draw.picture import Picture
from codelet.frontends.trace import trace
from ipu_backend.jobs.found import find_function

FOLDER = Path(__file__).parent / "pictures"
SIZE = 1536
FINE_GRAIN = 128
"""At which AlexNet's training step is 22.8 million vertices; Graphcore's picture of it had 18.7 million."""


def network(name: str, title: str, grain: int | None = None, **options: object) -> Picture:
    """The training step of a network, as `codelet draw NAME --grain GRAIN` has it."""
    function, *examples = find_function(name)
    return drawn(trace(function, *examples, grain=grain), title=title, **options)


def drawn(graph: object, **options: object) -> Picture:
    """A picture, however small the graph."""
    picture = cl.draw(graph, **{"size": SIZE, **options})
    assert isinstance(picture, Picture)
    return picture


def heat(side: int = 64, turns: int = 12) -> tuple[cl.Graph, cl.Program]:
    """A five-point stencil on a square, turn after turn."""

    @cl.codelet
    def step(here, up, down, left, right):
        return here + 0.2 * (up + down + left + right - 4 * here)

    graph = cl.Graph()
    grid = graph.add_variable("grid", (side, side))
    i, j = cl.grid(side, side)
    before = grid
    for turn in range(turns):
        wide = before.pad(((1, 1), (1, 1)), "edge")
        field = {"here": wide[i + 1, j + 1], "up": wide[i, j + 1], "down": wide[i + 2, j + 1]}
        before = graph.add_vertex(f"turn{turn}/step", step, **field, left=wide[i + 1, j], right=wide[i + 1, j + 2])
    return graph, graph.default_program


def messages(count: int = 20_000, rounds: int = 3) -> tuple[cl.Graph, cl.Program]:
    """Vertices that read others, most of them a few that all like."""
    numbers = np.random.default_rng(0)
    mean = cl.codelet(lambda x: x.mean())
    graph = cl.Graph()
    x, i = graph.add_variable("x", (count,)), cl.grid(count)
    for turn in range(rounds):
        liked = (count * numbers.random((count, 4)) ** 6).astype(np.int64)
        x = graph.add_vertex(f"round{turn}/mean", mean, x=x[cl.table(liked)[i]])
    return graph, graph.default_program


def _resnet50() -> Iterator[tuple[str, Picture]]:
    whole = network("resnet50", "ResNet-50")
    yield "resnet50", whole
    for stage in range(1, 5):
        yield f"resnet50_stage{stage}", whole.zoom_to(f"stage{stage}/*", 1024)


def report() -> None:
    """The execution of AlexNet's training step, as its report shows it: a browser's picture of the page."""
    function, *examples = find_function("alexnet")
    traced = trace(function, *examples)
    with tempfile.TemporaryDirectory() as directory:
        page, image = Path(directory, "report.html"), Path(directory, "report.png")
        traced.profile(allow_out_of_memory=True).write_report(page, "AlexNet", layer_of=traced.layer_of, picture=False)
        chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
        options = ["--headless=new", "--no-sandbox", "--window-size=1400,1180", "--virtual-time-budget=20000"]
        address = f"{page.as_uri()}#view=execution"
        subprocess.run([chromium, *options, f"--screenshot={image}", address], check=True, capture_output=True)
        Image.open(image).convert("RGB").save(FOLDER / "report.webp", quality=92)


def _one(name: str, make: Callable[[], Picture]) -> Callable[[], Iterator[tuple[str, Picture]]]:
    return lambda: iter([(name, make())])


def _of(made: tuple[cl.Graph, cl.Program], title: str, **options: object) -> Picture:
    return drawn(made[0], program=made[1], title=title, **options)


PICTURES: dict[str, Callable[[], Iterator[tuple[str, Picture]]]] = {
    "alexnet": _one("alexnet", lambda: network("alexnet", "AlexNet", FINE_GRAIN, size=2048)),
    "alexnet_light": _one(
        "alexnet_light",
        lambda: network("alexnet", "AlexNet", FINE_GRAIN, style="light", palette="colour-blind"),
    ),
    "resnet50": _resnet50,
    "mnist": _one("mnist", lambda: network("mnist", "MNIST")),
    "strain": _one("strain", lambda: network("strain", "Strain")),
    "heat": _one("heat", lambda: _of(heat(), "Heat")),
    "messages": _one("messages", lambda: _of(messages(), "Messages", palette="colour-blind")),
}


def main() -> None:
    """Draw the pictures named on the command line, or all."""
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or [*PICTURES, "report"]:
        if name == "report":
            report()
            continue
        for file, picture in PICTURES[name]():
            picture.write_picture(FOLDER / f"{file}.webp")
            print(f"{file}: {picture}", flush=True)


if __name__ == "__main__":
    main()
