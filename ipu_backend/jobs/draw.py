"""The job `codelet draw`: a network's training step, or any function of JAX, as a picture of its graph."""

from __future__ import annotations

from typing import Any

from codelet.draw.diagram import Diagram
from codelet.draw.drawing import STAGES, draw, draw_small
from codelet.draw.paths import check_path
from codelet.draw.picture import Picture
from codelet.frontends.trace import trace
from ipu_backend.jobs.found import find_function, telling_of
from ipu_backend.jobs.stages import Stages


def draw_function(
    name: str,
    path: str,
    *,
    grain: int | None = None,
    batch: int | None = None,
    profile: bool = False,
    **options: Any,
) -> Picture | Diagram:
    """Trace a network's training step or another function, and draw its graph.

    Args:
        name: as `find_function` takes it.
        path: where the picture is saved.
        grain: as `cl.trace` takes it.
        batch: as `find_function` takes it.
        profile: whether vertices that the trace gives no tile are placed, so that the picture knows theirs; for
            colours by tile they are anyway.
        options: further ones of `cl.draw`.

    Raises:
        BuildError: a name that nothing has, or a function that cannot be traced.
        FileError: a path at which no file can be written.
        DrawError, MissingExtraError: as `cl.draw` does.
        SizeError: placing it would take more memory than this computer has.
    """
    check_path(path, diagram=path.lower().endswith(".svg"))
    stages = Stages(["trace", "profile", *STAGES])
    function, *examples = find_function(name, batch)
    with stages.stage("trace"), telling_of(name):
        traced = trace(function, *examples, grain=grain)
    placed = None
    by_tile = options.get("colour") == "tile" and any(family.tile is None for family in traced.graph.families)
    if profile or by_tile:
        with stages.stage("profile"):
            placed = traced.profile(allow_out_of_memory=True)
    if path.lower().endswith(".svg"):
        chosen = {own: options[own] for own in ("style", "palette") if own in options}
        return draw_small(traced, path=path, profile=placed, title=name, **chosen)
    with stages.following() as note:
        return draw(traced, path=path, profile=placed, note=note, **{"title": name, **options})
