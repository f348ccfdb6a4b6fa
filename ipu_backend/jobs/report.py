"""The job `codelet report`: what a network's training step, or any function of JAX, costs, as a page of HTML."""

from __future__ import annotations

from codelet.files import check_writable, written_whole
from codelet.frontends.layers import layer_of
from codelet.target import Target
from ipu_backend.jobs.adjoint import asked_step, profile_of, stages_of
from ipu_backend.jobs.file_jobs import is_file, step_of_file
from ipu_backend.model.profile import Profile
from ipu_backend.model.report.advice import advice_of
from ipu_backend.model.report.page import page_of
from ipu_backend.model.report.picture import picture_of_graph
from ipu_backend.model.report.record import Record


def report_function(
    name: str,
    path: str,
    *,
    grain: int | None = None,
    batch: int | None = None,
    target: Target | None = None,
    adjoint: bool = False,
    picture: bool | None = None,
) -> tuple[Profile, Record]:
    """Trace a network's training step or another function, place it, and write the report of what it costs.

    What the tiles cannot hold is counted all the same.

    Args:
        name: as `find_function` takes it, or a file of `cl.save`.
        path: where the page is written.
        grain: as `cl.trace` takes it.
        batch: as `find_function` takes it.
        target: as `asked_step` takes it.
        adjoint: as `asked_step` takes it.
        picture: as `Profile.write_report` takes it.

    Returns:
        The profile, and all that the page shows.

    Raises:
        BuildError: a name that nothing has, or a function that cannot be traced.
        FileError: a path at which no file can be written.
        MissingExtraError: a library that the extra `report` brings is not installed.
        SizeError: placing it would take more memory than this computer has.
    """
    check_writable(path)
    stages = stages_of(adjoint, "profile", "collect", "write")
    if is_file(name):
        with stages.stage("trace"):
            step = step_of_file(name)
    else:
        _, step = asked_step(name, stages, grain=grain, batch=batch, target=target, adjoint=adjoint)
    with stages.stage("profile"):
        profile = profile_of(step)
    with stages.stage("collect"):
        record = profile.tables(name, layer_of=layer_of)
    with stages.stage("write"):
        text = page_of(record, picture=picture_of_graph(profile, picture))
        with written_whole(path) as file:
            file.write(text)
    for advice in advice_of(record, 5):
        print(f"  {advice}")
    return profile, record
