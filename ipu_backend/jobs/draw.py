"""The job `codelet draw`: a network's training step, or any function of JAX, as a picture of its graph."""

from __future__ import annotations

from typing import Any

from codelet.draw.diagram import Diagram
from codelet.draw.drawing import STAGES, draw, draw_small
from codelet.draw.paths import check_path
from codelet.draw.picture import Picture
from codelet.target import Target
from ipu_backend.jobs.adjoint import asked_step, profile_of, stages_of
from ipu_backend.jobs.file_jobs import is_file, step_of_file


def draw_function(
    name: str,
    path: str,
    *,
    grain: int | None = None,
    batch: int | None = None,
    target: Target | None = None,
    adjoint: bool = False,
    profile: bool = False,
    **options: Any,
) -> Picture | Diagram:
    """Trace a network's training step or another function, and draw its graph.

    Args:
        name: as `find_function` takes it, or a file of `cl.save`.
        path: where the picture is saved.
        grain: as `cl.trace` takes it.
        batch: as `find_function` takes it.
        target: as `asked_step` takes it.
        adjoint: as `asked_step` takes it.
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
    stages = stages_of(adjoint, "profile", *STAGES)
    if is_file(name):
        with stages.stage("trace"):
            step = step_of_file(name)
        drawn: tuple[Any, ...] = (step.graph, step.program)
    else:
        traced, step = asked_step(name, stages, grain=grain, batch=batch, target=target, adjoint=adjoint)
        drawn = (step.graph, step.program) if adjoint else (traced,)
    placed = None
    by_tile = options.get("colour") == "tile" and any(family.tile is None for family in step.graph.families)
    if profile or by_tile:
        with stages.stage("profile"):
            placed = profile_of(step)
    if path.lower().endswith(".svg"):
        chosen = {own: options[own] for own in ("style", "palette") if own in options}
        return draw_small(*drawn, path=path, profile=placed, title=name, **chosen)
    with stages.following() as note:
        return draw(*drawn, path=path, profile=placed, note=note, **{"title": name, **options})
