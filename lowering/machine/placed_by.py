"""A user's function that places a plan: called, and what it returns checked."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from codelet.errors import ProgramError, TileError
from lowering.machine.placement import Placement, num_elements
from lowering.plan.plan import Plan


def placed_by(how: Callable[[Plan], Placement], plan: Plan) -> Placement:
    """What a user's function says where a plan lives.

    Args:
        how: the function.
        plan: without calls.

    Raises:
        ProgramError: it returns something else than a placement of the plan: every element and vertex on a tile that
            there is.
    """
    expected = "a lowering.machine.placement.Placement of the plan that it is given"
    try:
        inspect.signature(how).bind(plan)
    except ValueError:  # one that does not tell its parameters
        pass
    except TypeError as error:
        raise ProgramError(
            f"a function that places a plan does not take the plan alone: {error}",
            given=f"{how!r:.80}",
            expected="a function of a plan, which returns " + expected,
            fix="def placement(plan): ...; options for it by functools.partial",
        ) from None
    placement = how(plan)
    if not isinstance(placement, Placement):
        raise ProgramError(
            "a function that places a plan returns no placement", given=type(placement).__name__, expected=expected
        )
    missing = [family for family in plan.families if family not in placement.vertex_tiles]
    lengths = [(len(placement.vertex_tiles[f]), f.num_vertices) for f in plan.families if f not in missing]
    if missing or any(own != count for own, count in lengths) or len(placement.element_tiles) < num_elements(plan):
        raise ProgramError(
            "a function that places a plan leaves something without a tile",
            given=f"{placement!r}, {len(placement.element_tiles):,} elements, {len(placement.vertex_tiles):,} families",
            expected=expected,
        )
    homes = [placement.element_tiles.of_variable(variable).tiles for variable in plan.variables]
    most = max((int(own.max(initial=-1)) for own in (*homes, *placement.vertex_tiles.values())), default=-1)
    if most >= plan.graph.target.num_tiles or any(own.min(initial=0) < 0 for own in homes):
        raise TileError(
            "a function that places a plan names a tile that does not exist",
            given=most if most >= plan.graph.target.num_tiles else -1,
            expected=f"0 to {plan.graph.target.num_tiles - 1}, on {plan.graph.target}",
        )
    return placement
