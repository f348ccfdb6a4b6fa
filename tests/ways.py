"""Ways of running a case, and what they give beside one another: by a function, by an engine, by their slopes."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

import codelet as cl
from lowering.plan.collect import collect
from lowering.plan.steps import StreamStep
from lowering.plan.walk import all_steps
from tests.at_once import at_once
from tests.drawn_dtypes import ROUNDINGS, epsilon
from tests.host_arrays import aligned, overwrite
from tests.strategies import Case, arrived


def lowered(case: Case, mesh: Mesh | None = None) -> cl.Lowered:
    """A case as a function, on one device or over a mesh."""
    return cl.lower(case.graph, case.sequence(), inputs=list(case.inputs), outputs=case.outputs, mesh=mesh)


def interpreted(case: Case) -> dict[str, np.ndarray]:
    """What comes out, of the streams too that the program sends to; nothing comes of others."""
    steps = all_steps(collect(case.graph, case.sequence(), (), ()).steps)
    streams = dict.fromkeys(step.stream for step in steps if isinstance(step, StreamStep))
    sent = [stream.name for stream in streams if not stream.is_input]
    return cl.interpret(case.graph, values=case.inputs, outputs=[*case.outputs, *sent], program=case.sequence())


# --- what functions give --------------------------------------------------------------------------------


def assert_close(result: dict[str, Any], expected: dict[str, np.ndarray], rtol: float) -> None:
    """Floats are what is expected, to a tolerance scaled by the sum of magnitudes.

    Args:
        result: of streams, what was sent.
        expected: by name.
        rtol: the tolerance in float32 and float64; in shorter floats it is so many of their roundings.
    """
    result = arrived(result)
    for name, value in expected.items():
        assert result[name].dtype == value.dtype, name
        relative = max(rtol, ROUNDINGS * epsilon(value.dtype) * (value.dtype.itemsize < 4))
        own, wanted = np.asarray(result[name]).astype(np.float64), value.astype(np.float64)
        scale = 1 + np.abs(wanted).sum()
        np.testing.assert_allclose(own, wanted, rtol=0, atol=relative * scale, err_msg=name)


def assert_same(result: dict[str, Any], expected: dict[str, np.ndarray]) -> None:
    """Integers are exactly what is expected, and of its dtype."""
    result = arrived(result)
    for name, value in expected.items():
        assert result[name].dtype == value.dtype
        np.testing.assert_array_equal(result[name], value, err_msg=name)


# --- engines --------------------------------------------------------------------------------------------


def own_values(case: Case) -> dict[str, np.ndarray]:
    """The values of a case's inputs that are variables, and no streams."""
    streams = {stream.name for stream in case.graph.streams}
    return {name: value for name, value in case.inputs.items() if name not in streams}


def itself(_name: str, values: np.ndarray) -> Any:
    """Values as they are."""
    return values


def connect(engine: cl.Engine, case: Case, handed: Callable[[str, np.ndarray], Any] = itself) -> None:
    """Connect a case's input streams to what `handed` makes of a name and values."""
    for name in case.inputs.keys() - own_values(case).keys():
        engine.connect(name, handed(name, case.inputs[name]))


def check_engine(engine: cl.Engine, case: Case, handed: Callable[[str, np.ndarray], Any] = itself) -> None:
    """An engine of a case is given its inputs, runs, and holds and was sent exactly what the interpreter says.

    All that it was given is written over before it runs, and what the case's graph and program were given as well: both
    have copies.
    """
    expected, given = interpreted(case), own_values(case)
    lent = {name: aligned(value) for name, value in given.items()}
    engine.write(lent)
    for array in (*lent.values(), *case.lent):
        overwrite(array)
    connect(engine, case, handed)
    engine.run()
    for name, value in expected.items():
        np.testing.assert_array_equal(engine.read(name), value, err_msg=name)


# --- slopes ---------------------------------------------------------------------------------------------


def weighted(case: Case) -> tuple[dict[str, np.ndarray], Callable[[Callable[..., Any]], Callable[..., Any]]]:
    """A case's inputs of floats, and what makes of a way of running it a loss of these: results by random weights."""
    random = np.random.default_rng(0)
    smooth = {k: v for k, v in case.inputs.items() if v.dtype.kind == "f"}
    rest = {k: v for k, v in case.inputs.items() if k not in smooth}
    weights = {v.name: random.normal(size=v.shape) for v in case.graph.variables}

    def loss_of(run: Callable[..., Any]) -> Callable[..., Any]:
        def loss(values: dict[str, Any]) -> Any:
            results = run({**values, **rest})
            return sum((weights[k] * results[k]).sum() for k in case.outputs if results[k].dtype.kind == "f")

        return loss

    return smooth, loss_of


def assert_same_slopes(result: dict[str, Any], expected: dict[str, Any]) -> None:
    """Slopes in float64 of one way are those of another."""
    for name, value in expected.items():
        np.testing.assert_allclose(result[name], value, rtol=1e-9, atol=1e-9, err_msg=name)


def check_slopes(case: Case, run: Callable[..., Any], other: Callable[..., Any]) -> None:
    """The slopes of a case of float64 are the same by two ways of running it."""
    smooth, loss_of = weighted(case)
    assert_same_slopes(*at_once(*(jax.grad(loss_of(own)) for own in (run, other)))(smooth))
