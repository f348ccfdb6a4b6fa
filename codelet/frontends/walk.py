"""The walk: the equations of a jaxpr, one after another, added to a graph.

Each equation is added by the rule of its primitive (`rules.py`), under its scopes and as of the user's line
(`labels.py`). Equations whose operands are all constants are evaluated at once; a primitive without a rule is run by
one vertex.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.extend import core as jax_core

from codelet.errors import at_line
from codelet.field.computed_in_numpy import computed_in_numpy
from codelet.frontends.by_element import is_by_element
from codelet.frontends.elementwise import add_by_element
from codelet.frontends.labels import labels, line_of, origins
from codelet.frontends.one_vertex import add_one_vertex
from codelet.frontends.read_together import read_together
from codelet.frontends.rules import RULES
from codelet.frontends.values import LARGEST_KNOWN, Value, data_type, known, number_of, of_literal, unwrapped, wrapped
from codelet.graphs.graph import Graph
from codelet.jaxprs.equations import bind, may_run_early
from codelet.programs.copies import Copy
from codelet.programs.program import Program
from codelet.programs.program import Sequence as ProgramSequence
from codelet.views.tensor import Tensor

if TYPE_CHECKING:
    from codelet.frontends.functions import SharedFunctions


class Walk:
    """The graph being built, and the place where equations are added.

    Args:
        graph: to which.
        functions: the functions of the graph that jitted functions become.
        grain: about how many elements or multiply-adds a vertex has; the planners choose when it is None.
        tells: whether the user is warned of primitives that one vertex runs.

    Attributes:
        equation: the one that is being added.
        paths: the parameter of the user's that each operand of it is, where it is one.
        beside: for each of its results the tensor that is read together with it, element by element, and has been added
            already.
        told: the primitives run by one vertex that the user has been warned of.
    """

    def __init__(self, graph: Graph, functions: SharedFunctions, grain: int | None = None, *, tells: bool = True):
        self.graph = graph
        self.grain = grain
        self.tells = tells
        self.functions = functions
        self.equation: jax_core.JaxprEqn
        self.paths: list[str | None] = []
        self.beside: list[list[Tensor]] = []
        self.told: set[str] = set()
        self._steps: list[Program] = []
        self._constants: dict[Any, Tensor] = {}

    # --- the program ----------------------------------------------------------------------------------

    def run(self, program: Any) -> None:
        """Add a step to the program."""
        self._steps.append(program)

    def copy(self, value: Value, variable: Tensor) -> None:
        """Add a copy of a value to a variable."""
        self._steps.append(Copy(self.tensor(value), variable))

    @contextlib.contextmanager
    def body(self) -> Iterator[list[Program]]:
        """The steps added inside become a separate program, a list."""
        outer, self._steps = self._steps, []
        try:
            yield self._steps
        finally:
            self._steps = outer

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """The compute sets added inside are the next steps of the program."""
        with self.graph.record() as added:
            yield
        if added.compute_sets:
            self._steps.append(added)

    @property
    def program(self) -> Program:
        """The added steps."""
        return ProgramSequence(*self._steps)

    # --- values -----------------------------------------------------------------------------------------

    def tensor(self, value: Value) -> Tensor:
        """A value as a tensor: a known one becomes a constant of the graph."""
        if isinstance(value, Tensor):
            return value
        number = number_of(value)
        held = value if number is None else np.asarray(number)
        key = (held.dtype, held.shape, held.tobytes())
        if key not in self._constants:
            with self.graph.scope("constant", unique=True):
                self._constants[key] = self.graph.add_constant("value", held, held.dtype)
        made = self._constants[key]
        return made if number is None else made.broadcast_to(value.shape)

    def variable_of(self, aval: Any, name: str) -> Tensor:
        """A new variable for a value."""
        return self.graph.add_variable(name, *data_type(aval))

    # --- equations --------------------------------------------------------------------------------------

    def jaxpr(
        self,
        jaxpr: jax_core.Jaxpr,
        constants: Sequence[Value],
        operands: Sequence[Value],
        paths: Mapping[Any, str] | None = None,
    ) -> list[Value]:
        """Add the equations of a jaxpr.

        Args:
            jaxpr: whose.
            constants: its constants.
            operands: its inputs.
            paths: of its inputs that are parameters of the user's, by variable.
        """
        values: dict[Any, Value] = dict(zip(jaxpr.invars, operands, strict=True))
        values.update(zip(jaxpr.constvars, constants, strict=True))
        value = lambda atom: of_literal(atom) if isinstance(atom, jax_core.Literal) else values[atom]  # noqa: E731
        named = {} if paths is None else dict(paths)
        of_parameters, together = origins(jaxpr, named), read_together(jaxpr)
        for eqn, label in zip(jaxpr.eqns, labels(jaxpr, named), strict=True):
            given = [value(atom) for atom in eqn.invars]
            held = [None if isinstance(a, jax_core.Literal) else of_parameters.get(a) for a in eqn.invars]
            others = [[values.get(var) for var in together.get(own, ())] for own in eqn.outvars]
            beside = [[own for own in found if isinstance(own, Tensor)] for found in others]
            with self._scope(label), at_line(line_of(eqn)):
                results = self._add(eqn, given, held, beside)
            values.update(zip(eqn.outvars, results, strict=True))
        return [value(atom) for atom in jaxpr.outvars]

    def closed(self, closed: jax_core.ClosedJaxpr, operands: Sequence[Value], paths: Any = None) -> list[Value]:
        """Add the equations of a jaxpr with its constants."""
        return self.jaxpr(closed.jaxpr, list(map(known, closed.consts)), operands, paths)

    def paths_of(self, invars: Sequence[Any], first: int = 0) -> dict[Any, str]:
        """The paths of the inputs of a jaxpr that the equation being added is made of.

        Args:
            invars: the inputs.
            first: the equation's operand that the first of them is.
        """
        own = self.paths[first : first + len(invars)]
        return {var: path for var, path in zip(invars, own, strict=False) if path is not None}

    def _scope(self, label: str) -> contextlib.AbstractContextManager[Any]:
        return self.graph.scope(label) if label else contextlib.nullcontext()

    def _add(
        self, eqn: jax_core.JaxprEqn, given: list[Value], paths: list[str | None], beside: list[list[Tensor]]
    ) -> Sequence[Value]:
        before = getattr(self, "equation", None), self.paths, self.beside
        self.equation, self.paths, self.beside = eqn, paths, beside
        try:
            if (found := self._computed(eqn, given)) is not None:
                return found
            with self.recording():
                return self._added(eqn, given)
        finally:
            self.equation, self.paths, self.beside = before  # type: ignore[assignment]

    def _added(self, eqn: jax_core.JaxprEqn, given: list[Value]) -> Sequence[Value]:
        """The results of an equation, by the first way that knows how."""
        if eqn.primitive.name != "broadcast_in_dim" and is_by_element(eqn):
            return add_by_element(self, eqn, given)
        rule = RULES.get(eqn.primitive.name)
        if rule is not None and rule.understands(eqn.params):
            results = rule.function(self, *given, **rule.understood(eqn.params))
            if results is not NotImplemented:
                return results if isinstance(results, (list, tuple)) else [results]
        return add_one_vertex(self, eqn, given)

    def _computed(self, eqn: jax_core.JaxprEqn, given: list[Value]) -> list[Value] | None:
        """The results of an equation of which all operands are known; None where they are not, or are too large."""
        if not all(isinstance(own, np.ndarray) for own in given) or not may_run_early(eqn):
            return None
        if sum(math.prod(data_type(var.aval)[0]) for var in eqn.outvars) > LARGEST_KNOWN:
            return None
        results = computed_in_numpy(eqn, given)
        if results is not None:
            return list(map(known, results))
        with jax.ensure_compile_time_eval():  # where it is traced within a jitted function, too
            arrays = [wrapped(jax.numpy.asarray(v), a.aval) for v, a in zip(given, eqn.invars, strict=True)]
            results = jax.jit(lambda *own: bind(eqn, own))(*arrays)
            return [
                np.zeros(()) if isinstance(var, jax_core.DropVar) else known(unwrapped(own))
                for var, own in zip(eqn.outvars, results, strict=True)
            ]
