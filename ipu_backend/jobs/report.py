"""The job `codelet report`: what a network's training step, or any function of JAX, costs, as a page of HTML."""

from __future__ import annotations

from codelet.files import check_writable, written_whole
from codelet.frontends.trace import trace
from ipu_backend.jobs.found import find_function, telling_of
from ipu_backend.jobs.stages import Stages
from ipu_backend.model.profile import Profile
from ipu_backend.model.report.advice import advice_of
from ipu_backend.model.report.page import page_of
from ipu_backend.model.report.picture import picture_of_graph


def report_function(
    name: str,
    path: str,
    *,
    grain: int | None = None,
    batch: int | None = None,
    picture: bool | None = None,
    json: str | None = None,
) -> Profile:
    """Trace a network's training step or another function, place it, and write the report of what it costs.

    What the tiles cannot hold is counted all the same.

    Args:
        name: as `find_function` takes it.
        path: where the page is written.
        grain: as `cl.trace` takes it.
        batch: as `find_function` takes it.
        picture: as `Profile.write_report` takes it.
        json: where all that the page shows is written as JSON, if anywhere.

    Raises:
        BuildError: a name that nothing has, or a function that cannot be traced.
        FileError: a path at which no file can be written.
        MissingExtraError: a library that the extra `report` brings is not installed.
        SizeError: placing it would take more memory than this computer has.
    """
    for own in (path, *(() if json is None else (json,))):
        check_writable(own)
    stages = Stages(["trace", "profile", "collect", "write"])
    function, *examples = find_function(name, batch)
    with stages.stage("trace"), telling_of(name):
        traced = trace(function, *examples, grain=grain)
    with stages.stage("profile"):
        profile = traced.profile(allow_out_of_memory=True)
    with stages.stage("collect"):
        record = profile.tables(name, layer_of=traced.layer_of)
    with stages.stage("write"):
        text = page_of(record, picture=picture_of_graph(profile, picture))
        with written_whole(path) as file:
            file.write(text)
        if json is not None:
            record.write_json(json)
    for advice in advice_of(record, 5):
        print(f"  {advice}")
    return profile
