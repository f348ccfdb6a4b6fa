"""Plans: what passes add to them."""

import numpy as np

import codelet as cl
from lowering.pipeline import plan_engine


def test_added_variables_are_numbered_by_the_plan():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (3, 2), bool), graph.add_variable("y", (), bool)
    plan = plan_engine(graph, cl.Sequence(cl.Copy(x[0, 0], y), cl.AbortOn(y, "y is set")))
    after, memory = plan.add_variable("memory", (4, 5), np.dtype(np.float32))
    graph.add_variable("later", (7,))
    after, turn = after.add_variable("turn", (), np.dtype(np.int32))
    assert [str(v) for v in after.added] == ["<aborted>: int32[]", "<memory>: float32[4,5]", "<turn>: int32[]"]
    assert after.added == (plan.abort, memory, turn)
    assert plan.added == (plan.abort,)
    own = [*after.variables, *after.added]
    assert [variable.number for variable in own] == list(range(5))
    ends = [variable.first_element + variable.size for variable in own]
    assert all(end < variable.first_element for end, variable in zip(ends, own[1:], strict=False))
