"""Programs of many parts and programs nested deep: planned in linear time, and told where JAX cannot follow."""

import sys
import time

import numpy as np
import pytest

import codelet as cl
from lowering.check.initialized import check_initialized, given_elements
from lowering.check.nesting import nesting_told
from lowering.fast.prune import prune
from lowering.fast.rotate import rotate
from lowering.pipeline import plan_graph
from tests.examples import few


class Nest:
    """A stencil's step, copied back, in any kind of program however deep."""

    def __init__(self):
        self.graph = graph = cl.Graph(cl.IPU(num_tiles=4))
        self.u, self.v, self.c = (graph.add_variable(name, (6,)) for name in "uvc")
        self.big, self.n = graph.add_variable("big", (), "bool"), graph.add_variable("n", (), "int32")
        i = cl.grid(range(1, 5))
        self.step, self.look = graph.add_compute_set("step"), graph.add_compute_set("look")
        near = cl.codelet(lambda a, b: a.sum() / 4 + b)
        graph.add_vertex(self.step, near, a=self.u[i - 1 : i + 2], b=self.c[i], out=self.v[i])
        graph.add_vertex(self.look, cl.codelet(lambda a: a > 1e3), a=self.u[0], out=self.big)
        self.values = {"u": np.arange(6.0), "v": np.zeros(6), "c": np.ones(6), "big": True, "n": 1}

    def program(self, kind, depth):
        nested = [self.step, cl.Copy(self.v, self.u)]
        for k in range(depth):
            if kind == "call":
                own = self.graph.add_variable(f"own {depth}.{k}", (6,))
                body = [cl.Copy(own, self.c), nested]
                nested = cl.Call(self.graph.add_function(body, {"own": own}), own=self.u)
            else:
                nested = {
                    "repeat": lambda body: cl.Repeat(1, body),
                    "repeats": lambda body: cl.Repeat(2, [self.look, body]),
                    "while": lambda body: cl.RepeatWhile(self.look, self.big, body, max_iterations=3),
                    "if": lambda body: cl.If(self.big, body, self.step),
                    "switch": lambda body: cl.Switch(self.n, {0: self.step, 1: body}),
                }[kind](nested)
        return nested

    def plan(self, program):
        inputs = [variable for variable in self.graph.sources if variable.name in self.values]
        return plan_graph(self.graph, cl.Sequence(program), inputs, [self.u])


def planning_seconds(kind, depth):
    """The least time of a few in which a program is planned, checked, pruned and rotated."""
    nest = Nest()
    program = nest.program(kind, depth)
    found = []
    for _ in range(3):
        start = time.perf_counter()
        prune(rotate(prune(nest.plan(program))))
        found.append(time.perf_counter() - start)
    return min(found)


@pytest.mark.parametrize("kind", ["repeats", "while", "if", "call"])
def test_planning_takes_time_in_proportion_to_the_depth(kind):
    """Exponential, as it was, would be a thousand times for ten levels more."""
    assert planning_seconds(kind, 20) < 8 * planning_seconds(kind, 10) + 0.02


def test_lowering_twenty_nested_repeats_takes_twice_as_long_as_ten():
    def seconds(depth):
        nest = Nest()
        program = nest.program("repeats", depth)
        start = time.perf_counter()
        cl.lower(nest.graph, program, inputs=["u", "v", "c"], outputs=["u"])
        return time.perf_counter() - start

    seconds(3)
    assert min(seconds(20) for _ in range(3)) < 2 * min(seconds(10) for _ in range(3)) + 0.05


@pytest.mark.slow
def test_five_thousand_sequences_in_one_another_are_flat():
    nest = Nest()
    program, listed = cl.Sequence(nest.step), [nest.step]
    for _ in range(5000):
        program, listed = cl.Sequence(program, nest.look), [listed, nest.look]
    for each in (program, cl.Sequence(*listed)):
        assert each.depth == 0
        assert len(each.programs) == 5001
    assert str(program).count("\n") == 5000
    assert len(nest.plan(program).steps) == 5001


@pytest.mark.parametrize("kind", ["repeat", "while", "if", "switch", "call"])
def test_two_hundred_levels_are_planned_checked_and_interpreted(kind):
    nest = Nest()
    program = nest.program(kind, 200)
    plan = nest.plan(program)
    check_initialized(plan, given_elements(plan))
    assert str(plan).count("\n") > 200
    assert str(program)
    if kind != "call":  # which each copy what they are given, by the element
        nest.values["big"] = kind == "if"
        one = cl.interpret(nest.graph, values=nest.values, outputs=["u"], program=nest.program(kind, 1))["u"]
        np.testing.assert_array_equal(
            cl.interpret(nest.graph, values=nest.values, outputs=["u"], program=program)["u"], one
        )
    assert cl.Engine(nest.graph, program).machine().placement.num_tiles == 4
    with pytest.raises(cl.ProgramError, match=r"nested too deep\n  given:    201 loops, choices and calls"):
        nest.program(kind, 201)


@few("kind", ["repeat", "call"], quick=["call"])
def test_what_jax_cannot_follow_is_told(kind):
    nest = Nest()
    program = nest.program(kind, 80)
    with pytest.raises(cl.ProgramError) as caught:
        cl.lower(nest.graph, program, inputs=["u", "v", "c"], outputs=["u"])
    for word in ("too deep for JAX", "given:    80 loops, choices and calls", "fix:      sys.setrecursionlimit("):
        assert word in str(caught.value)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(3000)
    try:
        run = cl.lower(nest.graph, program, inputs=["u", "v", "c"], outputs=["u"])
        assert run({name: nest.values[name] for name in "uvc"})["u"].shape == (6,)
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("kind", ["repeat", "while", "if", "call"])
def test_as_deep_as_programs_may_be_is_told_too(kind):
    nest = Nest()
    program = nest.program(kind, 200)
    with pytest.raises(cl.ProgramError, match=r"too deep for JAX to compile\n  given:    200 loops, choices"):
        cl.lower(nest.graph, program, inputs=list(nest.values), outputs=["u"])


def test_a_stack_that_overflows_elsewhere_is_no_matter_of_programs():
    nest = Nest()
    with pytest.raises(RecursionError), nesting_told(nest.plan(nest.step).steps):
        raise RecursionError


def test_a_list_that_contains_itself():
    nest = Nest()
    programs: list[object] = [nest.step]
    programs.append(programs)
    for make in (lambda: cl.Sequence(*programs), lambda: cl.Repeat(2, programs), lambda: cl.If(nest.big, programs)):
        with pytest.raises(cl.ProgramError, match=r"a list of programs contains itself"):
            make()


def test_every_turn_of_a_loop_is_checked_though_its_body_is_looked_through_once():
    nest = Nest()
    graph, u, v, c = nest.graph, nest.u, nest.v, nest.c
    twice = [cl.Copy(u, v), cl.WriteUndef(u)]  # the second turn would read what the first has ended
    for program in (
        cl.Repeat(2, twice),
        cl.Repeat(2, cl.Repeat(1, [cl.Repeat(1, twice)])),
        cl.RepeatWhile(nest.look, nest.big, twice),
        cl.RepeatWhile([cl.Copy(c, v), cl.WriteUndef(c)], nest.big, []),
        cl.Repeat(2, [cl.Call(graph.add_function(twice, {}))]),
    ):
        with pytest.raises(cl.UninitializedReadError) as caught:
            nest.plan(program)
        assert "test_nesting.py" in str(caught.value)
    for program in (cl.Repeat(1, twice), cl.Repeat(2, [*twice, cl.Copy(c, u)]), cl.Repeat(0, cl.Repeat(2, twice))):
        plan = nest.plan([program, cl.Copy(c, u)])
        assert plan.steps
