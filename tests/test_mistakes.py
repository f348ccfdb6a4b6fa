"""The table of mistakes: what a user does wrong, the error it deserves, and what the error says to do.

A row is a name, a function that makes the mistake (of a fresh `World`, so that most are one line), the class of the
error, a phrase of what was given, and a phrase of what to do instead. The test also reads that the error names
the user's line: one of the function's own. Sections follow the subjects; add a row to the section it belongs to, and
a function above it where a mistake takes more than a line.
"""

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl


@cl.codelet
def double(a):
    return 2 * a


@cl.codelet
def scaled(a, by):
    return by * a


@cl.codelet
def scaled_by(a, *, by):
    return by * a


@dataclass(frozen=True)
class World:
    """What mistakes are made with: a fresh graph for a machine of 8 tiles, with a few variables."""

    graph: cl.Graph

    @functools.cached_property
    def x(self) -> cl.Tensor:
        return self.graph.add_variable("x", (4,))

    @functools.cached_property
    def square(self) -> cl.Tensor:
        return self.graph.add_variable("square", (4, 4))

    @functools.cached_property
    def whole(self) -> cl.Tensor:
        return self.graph.add_variable("whole", (4,), "int32")


class Mistake(NamedTuple):
    name: str
    make: Callable[[World], object]
    error: type[cl.CodeletError]
    given: str  # part of the problem, or of what was given
    do: str  # part of what was expected, or of how to mend it


# --- symbols ------------------------------------------------------------------------------------------

SYMBOLS = [
    Mistake(
        "a decision on a symbol",
        lambda w: 1 if cl.grid(4) > 2 else 0,
        cl.SymbolError,
        "has no truth value",
        "choose with `//`, `%` or a table",
    ),
]

# --- tensors and views --------------------------------------------------------------------------------

TENSORS = [
    Mistake(
        "an index beyond the end",
        lambda w: w.x[4],
        cl.OutOfBoundsError,
        "outside dimension 0",
        "0 to 3",
    ),
]

# --- codelets -----------------------------------------------------------------------------------------

CODELETS = [
    Mistake(
        "a default for a field",
        lambda w: cl.codelet(lambda a, b=2: a + b),
        cl.CodeletDefinitionError,
        "b=2",
        "write `*, b=2` to make it a static value",
    ),
]

# --- graphs: variables, constants, vertices, tiles -----------------------------------------------------

GRAPH = [
    Mistake(
        "a function that is no codelet",
        lambda w: w.graph.add_vertex("a", lambda a: a, a=w.x),
        cl.FieldTypeError,
        "a vertex needs a codelet",
        "decorated with @cl.codelet",
    ),
    Mistake(
        "a traced constant",
        lambda w: jax.jit(lambda t: w.graph.add_constant("c", t).shape)(jnp.ones(3)),
        cl.VariableError,
        "constant 'c' is traced",
        "make it an input",
    ),
    Mistake(
        "an array that does not fit the grid",
        lambda w: w.graph.add_vertex("s", scaled, a=w.x[cl.grid(4)], by=np.ones(3)),
        cl.FieldTypeError,
        "shape (3,)",
        "graph.add_constant",
    ),
]

# --- programs -----------------------------------------------------------------------------------------

PROGRAMS = [
    Mistake(
        "a copy between shapes",
        lambda w: cl.Copy(w.x, w.square),
        cl.ProgramError,
        "float32[4] of x",
        "one shape and dtype",
    ),
]

# --- lowering and interpreting --------------------------------------------------------------------------

LOWERING = [
    Mistake(
        "a graph without inputs and outputs",
        lambda w: cl.lower(w.graph),
        cl.ProgramError,
        "lower(graph)",
        "inputs=[...], outputs=[...]",
    ),
]

# --- the engine -----------------------------------------------------------------------------------------

ENGINE: list[Mistake] = []

# --- the machine: placement, memory, cycles, profiles ---------------------------------------------------

MACHINE: list[Mistake] = []


def _lines(code: CodeType) -> Iterator[int]:
    """The lines of a function, and of those defined in it."""
    yield from (number for _, _, number in code.co_lines() if number)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _lines(constant)


SECTIONS: list[list[Mistake]] = [SYMBOLS, TENSORS, CODELETS, GRAPH, PROGRAMS, LOWERING, ENGINE, MACHINE]
MISTAKES = [mistake for section in SECTIONS for mistake in section]


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.name for mistake in MISTAKES])
def test_a_mistake_is_told(mistake):
    with pytest.raises(cl.CodeletError) as caught:
        mistake.make(World(cl.Graph(cl.IPU(num_tiles=8))))
    error, message = caught.value, str(caught.value)
    assert type(error) is mistake.error, message
    told, _, at = message.rpartition("\n  at: ")
    given, *advice = re.split(r"\n  (?:expected|fix):", told)
    assert mistake.given in given, message
    assert advice, message
    assert mistake.do in " ".join(advice), message
    place = re.search(r"test_mistakes\.py:(\d+)", at)
    assert place, message
    assert int(place[1]) in set(_lines(mistake.make.__code__)), message


def test_each_mistake_has_a_name_of_its_own():
    names = [mistake.name for mistake in MISTAKES]
    assert len(set(names)) == len(names)
