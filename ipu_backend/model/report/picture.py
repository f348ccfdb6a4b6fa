"""The picture of a graph in a report: a diagram where it is small, and else every vertex and link as light."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

from codelet.draw.diagram import MOST as MOST_BOXES
from codelet.draw.drawing import draw, draw_small
from codelet.errors import MissingExtraError

if TYPE_CHECKING:
    from ipu_backend.model.profile import Profile

MOST_VERTICES = 100_000
"""Of how many vertices a graph is drawn without being asked for: a few seconds."""

SIZE = 1024


def picture_of_graph(profile: Profile, wanted: bool | None) -> str:
    """HTML of a picture of the graph that was profiled.

    Args:
        profile: of it.
        wanted: whether there is to be one; when left off, where it is small and libraries to draw it are there.

    Raises:
        MissingExtraError: a picture is wanted, and a library that the extra `draw` brings is not installed.
    """
    machine = profile.machine
    if machine is None or wanted is False:
        return ""
    plan = machine.placement.plan
    if not plan.graph.num_vertices or (wanted is None and plan.graph.num_vertices > MOST_VERTICES):
        return ""
    try:
        if plan.graph.num_vertices < MOST_BOXES:
            return draw_small(plan.graph, plan.program, profile=profile).svg
        drawn = draw(plan.graph, plan.program, profile=profile, size=SIZE)
        written = io.BytesIO()
        drawn.image().save(written, "WEBP", quality=85)
    except MissingExtraError:
        if wanted:
            raise
        return ""
    data = base64.b64encode(written.getvalue()).decode("ascii")
    return f'<img alt="the graph: {drawn.counts}" src="data:image/webp;base64,{data}">'
