"""Pattern: programs of one kind that are drawn, the rules on jaxprs that they are for, and what these have to keep.

`tests/test_patterns.py` tries every pattern in the same way. What a rule makes of single forms, and which it refuses,
is in `tests/patterns/test_*.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax.extend import core as jax_core

from codelet.jaxprs.rebuild import inline
from lowering.jaxprs import simplify
from tests.same_jaxprs import primitives

Closed = jax_core.ClosedJaxpr


class Program(NamedTuple):
    """A function that was drawn, and arguments for it.

    Attributes:
        function: of `arguments`; it gives arrays.
        arguments: arrays and numbers.
        facts: what the form of the result is told by.
        name: what it does, as text.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    facts: Any = None
    name: str = ""

    def __repr__(self) -> str:
        types = ", ".join(jax.typeof(own).str_short() for own in map(jnp.asarray, self.arguments))
        return f"{self.name or 'a function'} of {types}" + (f", {self.facts}" if self.facts is not None else "")

    def traced(self) -> Closed:
        """The jaxpr of the function, without calls."""
        return inline(jax.make_jaxpr(self.function)(*self.arguments))

    def in_floats(self) -> Program:
        """The program of float32, for its slopes: whatever its arguments are but places."""
        cast = [own.astype(np.float32) if np.ndim(own) else own for own in self.arguments]
        return self._replace(arguments=tuple(cast))


def is_differentiable(closed: Closed) -> bool:
    """True if JAX differentiates a jaxpr backwards: nothing in it loops until something holds."""
    return "while" not in primitives(closed)


Form = Callable[[Closed, Program], None]
"""Asserts what a rule makes of a program has the form that it should have."""


@dataclass(frozen=True)
class Drawn:
    """Programs that are drawn, and what tests of them ask.

    Attributes:
        programs: of which they are drawn.
        rules: those that the programs are for, by their names in `lowering/jaxprs/simplify.py`.
        quick: the number of programs whose values are compared before and after each rule, in a quick test; `slow` in
            a slow one. All rules together are tried on a quarter as many.
        slopes: the number of those whose values and slopes are compared, in a quick test; `slow_slopes` in a slow one.
            All rules together are tried on a fifth as many.
        floats: the programs whose slopes are compared, where these are others.
        tolerance: within which values are the same; bit for bit where it is zero.
        forms: what each rule makes of a program.
        first: the rules that bring a program to the form that a rule is for.
        around: the settings in which all is traced.
        by_operation: whether values are compared with those of one operation after another, where XLA compiles the
            program wrongly.
        moves_no_more: whether what all rules make moves no more bytes than the program.
    """

    programs: st.SearchStrategy[Program]
    rules: tuple[str, ...]
    quick: int
    slow: int = 100
    slopes: int = 2
    slow_slopes: int = 20
    floats: st.SearchStrategy[Program] | None = None
    tolerance: float = 0.0
    forms: Mapping[str, Form] = field(default_factory=dict)
    first: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    around: Callable[[], AbstractContextManager[Any]] = nullcontext
    by_operation: bool = False
    moves_no_more: bool = True

    def prepared(self, rule: str, closed: Closed) -> Closed:
        """A jaxpr in the form that a rule is for."""
        for name in self.first.get(rule, ()):
            closed = getattr(simplify, name)(closed)
        return closed


@dataclass(frozen=True)
class Pattern:
    """A kind of programs.

    Attributes:
        name: of the file of `tests/patterns` that it is in.
        meaning: the property that its rules have beyond values: a sentence.
        drawn: its programs, by name.
        rows: the rows of the benchmark table that need its rules.
    """

    name: str
    meaning: str
    drawn: Mapping[str, Drawn]
    rows: tuple[str, ...]

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules that it is for."""
        return tuple(dict.fromkeys(rule for drawn in self.drawn.values() for rule in drawn.rules))


def simplified(closed: Closed) -> Closed:
    """A jaxpr after all rules together."""
    structs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type) for aval in closed.in_avals]
    return simplify.trace_simplified(jax_core.jaxpr_as_fun(closed), *structs)


def by_rule(drawn: Drawn, rule: str, closed: Closed) -> tuple[Closed, Closed]:
    """A jaxpr that was brought to the form a rule is for, and what the rule makes of it."""
    before = drawn.prepared(rule, closed)
    return before, getattr(simplify, rule)(before)


def is_changed(before: Closed, after: Closed) -> bool:
    """True if a rule changed something."""
    if after is before:
        return False
    same = len(after.consts) == len(before.consts) and all(map(operator.is_, after.consts, before.consts))
    return not same or str(after) != str(before)


@contextmanager
def setting(module: Any, name: str, value: Any) -> Iterator[None]:
    """A number of a module that is another one for a while."""
    with mock.patch.object(module, name, value):
        yield
