"""What rewrites programs, by `cl.equal` beside floats: every pass before and after itself, and all ways of running."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import codelet as cl
from benchmarks.traced_steps import by_vertices
from tests.examples import examples
from tests.functions import Drawn, drawn_functions
from tests.loop_programs import loop_programs
from tests.meshes import mesh_of
from tests.proved import FRONT, PLANS, RULES, Proved, every_pass_proved, has_sides, on_engine, prove
from tests.strategies import Case, cases
from tests.ways import lowered

KINDS = st.sampled_from([{}, {}, {"loops": True}, {"calls": True}, {"ragged": True}, {"updates": True}])
"""Kinds of cases: those of all steps twice as often."""


@st.composite
def drawn_cases(draw) -> Case:
    """A case of any kind."""
    return draw(cases(**draw(KINDS)))


def decided(proved: Proved, least: float = 0.95) -> None:
    """Of all that was compared nearly all was decided."""
    total = proved.equal.total() + len(proved.undecided)
    assert proved.equal.total() >= least * total, proved.undecided


def test_the_passes_are_there():
    assert len(RULES) > 25
    assert len(FRONT) == 9
    assert len(PLANS) == 4


def passes_of(case: Case) -> None:
    """Every pass that lowers a case leaves what it means as it is."""
    assume(has_sides(case))
    with every_pass_proved() as proved:
        run = lowered(case)
        prove(proved, "fused", case, run)
    decided(proved)


@examples(4)
@given(drawn_cases())
def test_every_pass_that_lowers_a_graph(case: Case):
    passes_of(case)


@pytest.mark.slow
@examples(150)
@given(drawn_cases())
def test_every_pass_that_lowers_many_graphs(case: Case):
    passes_of(case)


def traced_of(drawn: Drawn) -> None:
    """Every pass that traces and lowers a function leaves what it computes as it is."""
    with every_pass_proved() as proved:
        traced = cl.trace(drawn, *drawn.arguments)
        structs = [jax.ShapeDtypeStruct(own.shape, own.dtype) for own in drawn.arguments]
        plain = jax.make_jaxpr(drawn)(*structs)
        proved.jaxprs("traced", plain, jax.make_jaxpr(traced)(*structs))
        proved.jaxprs("its vertices", plain, jax.make_jaxpr(by_vertices(traced))(*structs))
    decided(proved, 0.9)


@examples(4)
@given(drawn_functions())
@pytest.mark.filterwarnings("ignore::codelet.OneVertexWarning")
def test_every_pass_that_traces_a_function(drawn: Drawn):
    traced_of(drawn)


@pytest.mark.slow
@examples(150)
@given(drawn_functions(most_steps=12))
@pytest.mark.filterwarnings("ignore::codelet.OneVertexWarning")
def test_every_pass_that_traces_many_functions(drawn: Drawn):
    traced_of(drawn)


def loops_of(program) -> None:
    """Every pass that traces and lowers loops, and their gradients, leaves what they compute as it is."""
    structs = [jax.ShapeDtypeStruct(own.shape, own.dtype) for own in program.arguments]
    with every_pass_proved() as proved:
        traced = cl.trace(program.function, *program.arguments)
        plain = jax.make_jaxpr(program.function)(*structs)
        proved.jaxprs("traced", plain, jax.make_jaxpr(traced)(*structs))
        proved.jaxprs("its vertices", plain, jax.make_jaxpr(by_vertices(traced))(*structs))
    decided(proved, 0.9)


@pytest.mark.slow
@examples(100)
@given(loop_programs())
@pytest.mark.filterwarnings("ignore::codelet.OneVertexWarning")
def test_every_pass_that_traces_many_loops(program):
    loops_of(program)


# --- ways of running ----------------------------------------------------------------------------------------


def ways_of(case: Case, count: int) -> None:
    """A graph by its meaning is what runs fused, on tiles, on addresses, and over a mesh."""
    assume(has_sides(case))
    proved = Proved()
    for execution in ("fused", "tiles", "addresses"):
        prove(proved, execution, case, on_engine(case, execution))
    prove(proved, "mesh", case, lowered(case, mesh_of(count)))
    decided(proved)


@examples(2)
@given(drawn_cases(), st.sampled_from([2, 3]))
def test_all_ways_of_running_a_graph(case: Case, count: int):
    ways_of(case, count)


@pytest.mark.slow
@examples(100)
@given(drawn_cases(), st.sampled_from([2, 3, 4]))
def test_all_ways_of_running_many_graphs(case: Case, count: int):
    ways_of(case, count)


# --- gradients ----------------------------------------------------------------------------------------------


def gradient_of(case: Case) -> None:
    """`cl.gradient` of the last result is what `jax.vjp` makes of the lowered graph."""
    assume(has_sides(case))
    floats = [name for name in case.outputs if case.graph.variable(name).dtype.kind == "f"]
    by = [name for name, own in case.inputs.items() if own.dtype.kind == "f"]
    assume(floats and by)
    cl.gradient(case.graph, of=floats[-1], wrt=by, program=case.sequence(), cotangent=np.float32(1.5), check="equal")


@examples(8)
@given(cases(bounded=True))
@pytest.mark.filterwarnings("ignore::codelet.UndecidedWarning")
def test_gradients_by_vertices(case: Case):
    gradient_of(case)


@pytest.mark.slow
@examples(150)
@given(cases(bounded=True))
@pytest.mark.filterwarnings("ignore::codelet.UndecidedWarning")
def test_gradients_of_many_graphs_by_vertices(case: Case):
    gradient_of(case)
