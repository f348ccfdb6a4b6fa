"""The engine: a graph loaded on the machine. State lives on it between runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet.errors import ArrayError, NotFiniteError, NotInGraphError, UninitializedReadError
from codelet.graph import Graph
from codelet.hostdata import as_array
from codelet.program import Program, as_program, check_program
from codelet.tensor import Tensor, Variable
from lowering.check import check_initialized
from lowering.dataflow import ElementSet
from lowering.lower import Lowered, lower_graph, whole_variable
from lowering.pipeline import compile_plan, plan_engine


class Engine:
    """Runs a graph's program on state that it keeps. As Poplar's engine: write, run, read.

    Args:
        graph: what to load; later changes of the graph do not concern the engine.
        program: what `run` runs; all compute sets in the order they were added when left off.
        check_finite: refuse host data, and results read, that hold NaN or infinity.

    Raises:
        What `lower` raises for the graph, save that elements nothing writes may still be written by the
        host: reading one is an error of `run` and `read`.

    >>> import codelet as cl
    >>> @cl.codelet
    ... def count(n):
    ...     return {"n": n + 1}
    >>> graph = cl.Graph()
    >>> n = graph.add_variable("n", (), "int32")
    >>> graph.add_vertex("count", count, n=n)
    >>> engine = cl.Engine(graph)
    >>> engine.write({"n": 40})
    >>> engine.run(); engine.run()
    >>> engine.read(n)
    array(42, dtype=int32)
    """

    def __init__(self, graph: Graph, program: Program | None = None, *, check_finite: bool = False):
        self.graph = graph
        self.check_finite = check_finite
        self._program = graph.default_program if program is None else as_program(program)
        check_program(self._program, graph)
        self._plan = plan_engine(graph, self._program)
        self._variables = {variable.name: variable for variable in self._plan.variables}
        self._state: dict[str, jax.Array] = {}
        self._written = ElementSet()
        self._is_checked = False
        for variable in self._plan.variables:
            if variable.value is not None:
                self._written.add_variable(variable)
        self._run: Any = None

    def _variable(self, given: Tensor | str) -> Variable:
        variable = whole_variable(self.graph, given, "variable")
        if variable.name not in self._variables:
            raise NotInGraphError(f"{variable.name!r} was added after the engine was made", expected="a new Engine")
        return variable

    def _check_finite(self, variable: Variable, array: Any, what: str) -> None:
        if self.check_finite and jnp.issubdtype(variable.dtype, jnp.inexact):
            bad = np.argwhere(~np.asarray(jnp.isfinite(array)))
            if len(bad):
                where = tuple(bad[0].tolist())
                raise NotFiniteError(
                    f"{what} {variable.name!r} holds a number that is not finite",
                    given=f"{np.asarray(array)[where]} at {list(where)}",
                    expected="finite numbers, since check_finite is on",
                )

    def write(self, values: Mapping[str, Any]) -> None:
        """Write host arrays to whole variables, by name.

        Raises:
            ArrayError: an array of the wrong shape or dtype, or one for a constant.
            NotInGraphError: a name no variable has.
            NotFiniteError: NaN or infinity, where that is checked.
        """
        for name, value in values.items():
            variable = self._variable(name)
            if variable.value is not None:
                raise ArrayError(f"the host cannot write the constant {name!r}", given=name, expected="a variable")
            array = as_array(value, variable)
            self._check_finite(variable, array, "the array for")
            # A copy: a run donates the state, and the caller's array must outlive it.
            self._state[name] = jnp.array(array, copy=True)
            self._written.add_variable(variable)

    def _compile(self) -> Any:
        """The program, jitted: kept state and tables in, the variables it writes out."""
        closed = compile_plan(self._plan)
        names = [variable.name for variable in self._plan.inputs]
        written = [tensor.source.name for tensor in self._plan.outputs]  # type: ignore[union-attr]

        def step(changing: dict[str, Any], kept: dict[str, Any], tables: Sequence[Any]) -> dict[str, Any]:
            state = {**changing, **kept}
            run = jax_core.jaxpr_as_fun(jax_core.ClosedJaxpr(closed.jaxpr, list(tables)))
            return dict(zip(written, run(*(state[name] for name in names)), strict=True))

        jitted = jax.jit(step, donate_argnums=0)
        kept = [name for name in names if name not in written]

        def run(state: dict[str, Any]) -> dict[str, Any]:
            changing = {name: state[name] for name in written}
            return jitted(changing, {name: state[name] for name in kept}, closed.consts)

        return run

    def run(self) -> None:
        """Run the program once on the state.

        Raises:
            UninitializedReadError: an element is read that neither the host nor an earlier step has written.
        """
        if not self._is_checked:
            # What has a value only grows, so that one check, of the first run, does for all.
            written = self._written.copy()
            check_initialized(replace(self._plan, outputs=()), written)
            self._written, self._is_checked = written, True
        if self._run is None:
            self._run = self._compile()
        for variable in self._plan.inputs:
            if variable.name not in self._state:
                self._state[variable.name] = jnp.zeros(variable.shape, variable.dtype)
        self._state.update(self._run(self._state))

    def read(self, variable: Tensor | str) -> np.ndarray:
        """The value of a whole variable, as a NumPy array.

        Raises:
            UninitializedReadError: an element of it that neither the host nor a run has written.
            NotFiniteError: NaN or infinity, where that is checked.
        """
        found = self._variable(variable)
        missing = self._written.first_missing(self.graph.variable(found.name), ())
        if missing is not None:
            raise UninitializedReadError(
                f"{self.graph.element_text(missing)} is read by the host before anything has given it a value",
                expected="engine.write or engine.run before",
            )
        array = found.value if found.value is not None else self._state[found.name]
        self._check_finite(found, array, "the variable")
        return np.array(array)

    def function(self, *, inputs: Sequence[Tensor | str], outputs: Sequence[Tensor | str]) -> Lowered:
        """What `run` runs as a pure function of some variables to others, apart from the engine's state."""
        return lower_graph(self.graph, self._program, inputs, outputs)

    def __repr__(self) -> str:
        return f"<Engine on {self.graph.target}: {self.graph!r}>"
