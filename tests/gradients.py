"""Gradients as graphs beside JAX's: what the tests of these compare."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

import codelet as cl
from lowering.plan.collect import collect
from lowering.plan.dataflow import flow
from tests.drawn_dtypes import ROUNDINGS, epsilon
from tests.strategies import Case


def ends(draw: Any, case: Case, dtype: Any) -> tuple[str, list[str]]:
    """What of a case is differentiated, if there is any something that its program writes, and by what: few or all."""
    inputs, outputs = ([n for n in own if case.graph_dtype(n) == dtype] for own in (case.inputs, case.outputs))
    assume(inputs and outputs)
    steps = flow(collect(case.graph, case.sequence(), (), ())).steps
    written = {variable.name for step in steps for variable in step.writes}
    of = draw(st.sampled_from([name for name in outputs if name in written] or outputs))
    some = st.lists(st.sampled_from(inputs), min_size=1, max_size=4, unique=True)
    return of, draw(st.one_of(some, st.just(inputs)))


def agree(found: np.ndarray, expected: np.ndarray, name: str) -> None:
    """Gradients are alike, up to what sums in another order differ by; of short floats, to so many roundings."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype, name
    relative = max(2e-4, ROUNDINGS * epsilon(expected.dtype) * (expected.dtype.itemsize < 4))
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(found, expected, relative, relative * scale, err_msg=name)


def compare(
    graph, of, wrt, holds: str | None, by_tables: bool = False, between: tuple[float, float] = (-1, 1)
) -> cl.Lowered:
    """The gradient of a tensor by others as vertices, lowered and interpreted, beside JAX's; what it is lowered to.

    Args:
        graph: of all.
        of: what is differentiated, along a random cotangent.
        wrt: by which, whose values are random too.
        holds: what the plan is to tell.
        by_tables: whether anything may be read or written through a table.
        between: which numbers all values are.
    """
    random = np.random.default_rng(0)
    values = {own.name: random.uniform(*between, own.shape).astype(np.float32) for own in wrt}
    cotangent = random.uniform(-1, 1, of.shape).astype(np.float32)
    run = cl.lower(graph, inputs=[*values], outputs=[of])
    expected = jax.jit(jax.grad(lambda own: jnp.vdot(run(own)[of.name], cotangent)))(values)
    found = cl.gradient(graph, of=of, wrt=wrt, cotangent=cotangent)
    both = cl.Sequence(found.forward, found.backward)
    lowered = cl.lower(graph, both, inputs=[*values], outputs=[*found])
    made = jax.jit(lowered)(values)
    for own in wrt:
        agree(made[found[own].source.name], expected[own.name], own.name)
    simple = cl.interpret(graph, values=values, outputs=[*found], program=both)
    for own in wrt:
        agree(simple[found[own].source.name], expected[own.name], own.name)
    if holds is not None:
        assert holds in str(lowered.plan)
    # What is gathered is read through no table, and no contribution is held.
    for family in () if by_tables else lowered.families:
        assert not any(own.tensor.index.tables for own in family.fields if own.tensor is not None)
    return lowered


def prove(graph: cl.Graph, of: cl.Tensor, wrt: list[cl.Tensor]) -> None:
    """See that the gradient of a tensor by others, as vertices, is JAX's of what it is lowered to: by `cl.equal`."""
    run = cl.lower(graph, inputs=wrt, outputs=[of])
    cotangent = graph.add_variable("cotangent", of.shape)
    found = cl.gradient(graph, of=of, wrt=wrt, cotangent=cotangent)
    both = cl.Sequence(found.forward, found.backward)
    lowered = cl.lower(graph, both, inputs=[cotangent, *wrt], outputs=[*found])
    examples = [np.ones(own.shape, np.float32) for own in (cotangent, *wrt)]
    ours = lambda *own: tuple(lowered.flat(own))  # noqa: E731
    plain = lambda slope, *own: jax.vjp(lambda *a: run.flat(a)[0], *own)[1](slope)  # noqa: E731
    assert cl.equal(ours, plain, *examples)
