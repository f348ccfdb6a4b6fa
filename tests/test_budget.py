"""Budgets: a backward pass that makes as much again as keeps a number of bytes, by the plan of what is live when."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import codelet as cl
from benchmarks.deep import Deep, activation_bytes, layers, plan_training, recurrent
from codelet.models.networks import step_arguments
from codelet.views.sources import source_variables
from ipu_backend.jobs.adjoint import network_loss
from ipu_backend.model.profile_plan import profile_machine
from lowering.pipeline import plan_graph, plan_machine
from tests import strategies as s
from tests.examples import examples, few


def least_bytes(differentiate: Any) -> int:
    """The least that a gradient can be given, as its error says for none at all."""
    try:
        differentiate(cl.Recompute.bytes(0))
    except cl.ProgramError as error:
        found = re.search(r"at least ([\d,]+) bytes", str(error))
        assert found is not None
        return int(found[1].replace(",", ""))
    return 0


def gradients(network: Deep, recompute: cl.Recompute | None) -> list[np.ndarray]:
    graph, loss, parameters, _ = network
    found = cl.gradient(graph, of=loss, wrt=parameters, recompute=recompute)
    values = network.random()
    both = cl.Sequence(found.forward, found.backward)
    run = jax.jit(cl.lower(graph, both, inputs=[*values], outputs=[*found]))
    made = run(values)
    return [np.asarray(made[source_variables(own.source)[0].name]) for own in found]


def agree(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, 1e-4, 1e-5 * float(np.abs(other).max()))


class TestGenerated:
    @pytest.mark.slow
    @examples(300)
    @given(st.data())
    def test_many(self, data: Any):
        self.check(data)

    @examples(8)
    @given(st.data())
    def test_the_plan_keeps_it(self, data: Any):
        self.check(data)

    def check(self, data: Any) -> None:
        """The least that can be kept, and a number between that and what is live without it; and no byte less."""
        case = data.draw(s.cases(bounded=True))
        floats = [name for name in case.inputs if case.graph_dtype(name) == np.float32]
        outputs = [name for name in case.outputs if case.graph_dtype(name) == np.float32]
        if not floats or not outputs:
            return
        of = data.draw(st.sampled_from(outputs))
        cotangent = np.ones(case.graph.variable(of).shape, np.float32)

        def differentiate(again: cl.Recompute | None) -> cl.Gradient:
            given = {"program": case.sequence(), "cotangent": cotangent, "recompute": again}
            return cl.gradient(case.graph, of=of, wrt=floats, **given)

        def most(found: cl.Gradient) -> int:
            both = cl.Sequence(found.forward, found.backward)
            inputs = [variable for variable in case.graph.sources if variable.name in case.inputs]
            plan = plan_graph(case.graph, both, inputs, [*found])
            return plan_machine(plan, "linear", allow_out_of_memory=True).liveness.most_bytes_at_times

        least, free = least_bytes(differentiate), most(differentiate(None))
        event("less is possible" if least < free else "no less is possible")
        budget = data.draw(st.integers(least, max(least, free)))
        assert most(differentiate(cl.Recompute.bytes(budget))) <= budget
        if least:
            with pytest.raises(cl.ProgramError, match=f"at least {least:,} bytes"):
                differentiate(cl.Recompute.bytes(least - 1))


@cl.codelet
def bend(x):
    return jnp.sin(x)


def whole(source, made, control):
    return cl.Copy(source, made)


def in_two_parts(source, made, control):
    return cl.Sequence(cl.Copy(source[:20], made[:20]), cl.Copy(source[20:], made[20:]))


def in_both_branches(source, made, control):
    return cl.If(control, cl.Copy(source, made), in_two_parts(source, made, control))


def in_each_turn(source, made, control):
    return cl.Repeat(2, cl.Copy(source, made))


WRITES = [whole, in_two_parts, in_both_branches, in_each_turn]


class TestInputsThatAreOverwritten:
    """What is counted does not depend on which variables are inputs, of those that a program writes before it reads."""

    @few(
        "write, ends",
        product(WRITES, [(), ("s",), ("s", "e")]),
        quick=["whole, (s, e)", "in_two_parts, (s)"],
    )
    def test_the_plan_keeps_the_least_and_more(self, write: Any, ends: Any):
        graph, i = cl.Graph(cl.IPU(num_tiles=2)), cl.grid(64)
        x, d, e, s, y = (graph.add_variable(name, (64,)) for name in "xdesy")
        control = graph.add_constant("control", 1)
        program: list[Any] = []

        def bent(source: cl.Tensor, out: cl.Tensor) -> cl.Tensor:
            with graph.record() as made:
                graph.add_vertex(f"bend{len(program)}", bend, x=source[i], out=out[i])
            program.append(made)
            return out

        last = bent(x, s)
        for own in (d, e):
            program.append(write(last, own, control))
            last = own
            for number in range(5):
                last = bent(last, graph.add_variable(f"{own.name}{number}", (64,)))
        bent(last, y)
        program += [cl.WriteUndef(graph.variable(name)) for name in ends]

        def differentiated(again: cl.Recompute | None) -> cl.Gradient:
            return cl.gradient(graph, of=y, wrt=[x], program=program, cotangent=1.0, recompute=again)

        def most(found: cl.Gradient, inputs: list[cl.Tensor]) -> int:
            both = cl.Sequence(found.forward, found.backward)
            plan = plan_graph(graph, both, [v for own in inputs for v in source_variables(own.source)], [*found])
            return plan_machine(plan, "linear").liveness.most_bytes_at_times

        least, free = least_bytes(differentiated), most(differentiated(None), [x])
        assert least < free
        for budget in {least, (least + free) // 2, free}:
            found = differentiated(cl.Recompute.bytes(budget))
            taken = {most(found, inputs) for inputs in ([x], [x, d], [x, d, e], [x, d, e, s, y])}
            assert len(taken) == 1
            assert taken.pop() <= budget


class TestNetworks:
    @pytest.mark.slow
    def test_layers(self):
        """Every budget is kept, the least by nested segments; the gradients stay what they are."""
        expected, free = gradients(layers(8), None), plan_training(layers(8))[1].liveness.most_bytes_at_times
        least = least_bytes(lambda again: plan_training(layers(8), again))
        assert least < free / 4
        for budget in (least, free // 2):
            assert plan_training(layers(8), cl.Recompute.bytes(budget))[1].liveness.most_bytes_at_times <= budget
        agree(gradients(layers(8), cl.Recompute.bytes(least)), expected)

    @pytest.mark.slow
    def test_the_network_of_digits(self):
        def trained(again: cl.Recompute | None) -> int:
            arguments = step_arguments("mnist", batch=8, key=jax.random.key(0))
            traced = cl.trace(network_loss, *arguments, target=cl.IPU(num_tiles=64))
            wrt = jax.tree.leaves(traced.inputs[0].parameters)
            found = cl.gradient(
                traced.graph, of=traced.flat_outputs[0], wrt=wrt, program=traced.program, recompute=again
            )
            both = cl.Sequence(found.forward, found.backward)
            inputs = [source_variables(own.source)[0] for own in traced.flat_inputs]
            plan = plan_graph(traced.graph, both, inputs, [*traced.flat_outputs, *found])
            return plan_machine(plan, "linear", allow_out_of_memory=True).liveness.most_bytes_at_times

        free, least = trained(None), least_bytes(trained)
        for budget in {free, least, (free + least) // 2}:
            assert trained(cl.Recompute.bytes(budget)) <= budget

    def test_enough_bytes_make_nothing_again(self):
        graph, loss, parameters, _ = layers(3)
        found = cl.gradient(graph, of=loss, wrt=parameters, recompute=cl.Recompute.bytes(10**9))
        other, its, own, _ = layers(3)
        assert str(found.backward) == str(cl.gradient(other, of=its, wrt=own).backward)

    @pytest.mark.slow
    @pytest.mark.parametrize("build", [layers, recurrent])
    def test_a_hundred_layers(self, build: Any):
        """16 times less memory for activations, at most 1.5 times the cycles, the same gradients."""
        _, free = plan_training(build(100))
        activations = activation_bytes(free.liveness)
        budget = cl.Recompute.bytes(free.liveness.most_bytes_at_times - activations + activations // 17)
        _, less = plan_training(build(100), budget)
        assert activations >= 16 * activation_bytes(less.liveness)
        assert profile_machine(less).total_cycles <= 1.5 * profile_machine(free).total_cycles
        agree(gradients(build(100), budget), gradients(build(100), None))
