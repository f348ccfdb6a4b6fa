"""The table of mistakes in programs, in the form of `test_mistakes.py`."""

# What is of a wrong type is so on purpose.
# pyright: reportArgumentType=false, reportCallIssue=false

import functools

import jax
import numpy as np
import pytest

import codelet as cl
from tests.test_mistakes import Mistake, World, double, see_that_it_is_told


class Programs(World):
    """What mistakes in programs are made with."""

    @functools.cached_property
    def flag(self) -> cl.Tensor:
        return self.graph.add_variable("flag", (), bool)

    @functools.cached_property
    def n(self) -> cl.Tensor:
        return self.graph.add_variable("n", (), "int32")

    @functools.cached_property
    def c(self) -> cl.Tensor:
        return self.graph.add_constant("c", [1.0, 2.0, 3.0, 4.0])

    @functools.cached_property
    def work(self):
        self.graph.add_vertex("work", double, a=self.x[cl.grid(4)])
        return self.graph.compute_sets[0]

    @functools.cached_property
    def function(self):
        p = self.graph.add_variable("p", (4,))
        return self.graph.add_function(cl.Copy(1.0, p), {"p": p}, name="f")

    @functools.cached_property
    def incoming(self):
        return self.graph.add_input_stream("incoming", (4,))

    @functools.cached_property
    def elsewhere(self) -> cl.Tensor:
        return cl.Graph().add_variable("z", (4,))


def lower(w, program, inputs=(), outputs=()):
    return cl.lower(w.graph, program, inputs=list(inputs), outputs=list(outputs))


def contains_itself(w):
    programs = [w.work]
    programs.append(programs)
    return cl.Sequence(programs)


def nested(w):
    program = w.work
    for _ in range(201):
        program = cl.If(w.flag, program)


SOMETHING = "a program is made of something else"
PREDICATE = "is not a boolean or an integer in a variable"
NUMBERS = "neither a tensor nor numbers that fit"

MISTAKES = [
    Mistake("a name", lambda w: cl.Sequence("work"), cl.ProgramError, "'work'", "graph.add_compute_set gives"),
    Mistake("None", lambda w: cl.Sequence(w.work, None), cl.ProgramError, SOMETHING, "[] does nothing"),
    Mistake("a generator", lambda w: cl.Sequence(w.work for _ in "ab"), cl.ProgramError, "generator", "*programs"),
    Mistake("a class", lambda w: cl.Sequence(cl.Repeat), cl.ProgramError, "Repeat", "make one: cl.Repeat(...)"),
    Mistake("a codelet", lambda w: cl.Sequence(double), cl.ProgramError, "codelet double", "graph.add_vertex("),
    Mistake("a tensor", lambda w: cl.Repeat(2, w.x), cl.ProgramError, "float32[4] of x", "graph.add_vertex("),
    Mistake("a function", lambda w: cl.Sequence(w.function), cl.ProgramError, "function f(p)", "cl.Call(function"),
    Mistake("a dict", lambda w: cl.Sequence({"a": w.work}), cl.ProgramError, "{'a'", "an engine of several programs"),
    Mistake("a lambda", lambda w: cl.Sequence(lambda: w.work), cl.ProgramError, "lambda", "call it"),
    Mistake("a list that contains itself", contains_itself, cl.ProgramError, "contains itself", "cl.Repeat"),
    Mistake("nested too deep", nested, cl.ProgramError, "201 loops, choices and calls", "let a Switch choose"),
    Mistake("executed: a name", lambda w: cl.Execute("work"), cl.ProgramError, "'work'", "add_compute_set returns"),
    Mistake("executed: a list", lambda w: cl.Execute([w.work]), cl.ProgramError, "[compute set", "without Execute"),
    # repeats
    Mistake("a count behind", lambda w: cl.Repeat(w.work, 3), cl.ProgramError, "compute set work", "a non-negative"),
    Mistake("a float count", lambda w: cl.Repeat(3.0, w.work), cl.ProgramError, "3.0", "a non-negative integer"),
    Mistake("a true count", lambda w: cl.Repeat(True, w.work), cl.ProgramError, "True", "a non-negative integer"),
    Mistake("a count in a variable", lambda w: cl.Repeat(w.n, w.work), cl.ProgramError, "of n", "cl.RepeatWhile"),
    Mistake("a count too large", lambda w: cl.Repeat(2**31, w.work), cl.ProgramError, "2147483648", "a Repeat in"),
    Mistake("two bodies", lambda w: cl.Repeat(2, w.work, w.work), cl.ProgramError, "compute set", "[first, second]"),
    Mistake(
        "an index by name", lambda w: cl.Repeat(3, w.work, index="n"), cl.ProgramError, "'n'", "add_variable('turn'"
    ),
    Mistake("a true index", lambda w: cl.Repeat(2, w.work, index=w.flag), cl.ProgramError, "of flag", "integer dtype"),
    Mistake(
        "an element as index", lambda w: cl.Repeat(2, [], index=w.whole[0]), cl.ProgramError, "of whole", "whole var"
    ),
    Mistake(
        "a constant index",
        lambda w: cl.Repeat(2, [], index=w.graph.add_constant("k", 1)),
        cl.ProgramError,
        "is a constant, which cannot count",
        "a variable",
    ),
    Mistake(
        "an index that cannot count so far",
        lambda w: cl.Repeat(257, [], index=w.graph.add_variable("k", (), "uint8")),
        cl.ProgramError,
        "257 iterations, counted by",
        "at most 256 iterations",
    ),
    # loops on conditions, and choices
    Mistake(
        "a predicate before the condition",
        lambda w: cl.RepeatWhile(w.flag, w.work, w.work),
        cl.ProgramError,
        "compute set work",
        "RepeatWhile(condition, predicate, body)",
    ),
    Mistake("a known predicate", lambda w: cl.If(True, w.work), cl.ProgramError, PREDICATE, "Python's own if"),
    Mistake("a predicate of floats", lambda w: cl.If(w.x[0], w.work), cl.ProgramError, PREDICATE, "compares"),
    Mistake("nothing then", lambda w: cl.If(w.flag, None), cl.ProgramError, "None", "[] does nothing"),
    Mistake(
        "max_iterations too large",
        lambda w: cl.RepeatWhile(w.work, w.flag, [], max_iterations=2**40),
        cl.ProgramError,
        "1099511627776",
        "leave it off",
    ),
    *[
        Mistake(
            f"a buffering depth that is {what}",
            lambda w, depth=depth: w.graph.add_input_stream("s", (4,), buffering_depth=depth),
            cl.VariableError,
            f"buffering_depth={depth!r}",
            "an integer from 1",
        )
        for what, depth in (("nothing", 0), ("no number", 1.5), ("a boolean", True))
    ],
    *[
        Mistake(
            f"turns that are {what}",
            lambda w, turns=turns: cl.RepeatWhile(w.work, w.flag, [], trip_count=turns),
            cl.ProgramError,
            f"trip_count={turns!r}",
            "leave it off where nobody knows",
        )
        for what, turns in (("below zero", -1), ("no number", 2.5), ("a boolean", True), ("too many", 2**31))
    ],
    Mistake(
        "more turns than max_iterations",
        lambda w: cl.RepeatWhile(w.work, w.flag, [], max_iterations=3, trip_count=4),
        cl.ProgramError,
        "trip_count=4, max_iterations=3",
        "a larger max_iterations",
    ),
    Mistake(
        "until a name",
        lambda w: cl.RepeatWhile(w.work, w.flag, [], until="flag"),
        cl.ProgramError,
        "'flag'",
        "until=True",
    ),
    Mistake("cases in a list", lambda w: cl.Switch(w.n, [w.work]), cl.ProgramError, "[compute set", "{0: program"),
    Mistake("a case that is None", lambda w: cl.Switch(w.n, {0: None}), cl.ProgramError, "None", "[] does nothing"),
    # copies
    Mistake("a copy of names", lambda w: cl.Copy("x", w.x), cl.ProgramError, "'x'", "graph.variable(name)"),
    Mistake("a copy to a name", lambda w: cl.Copy(w.x, "x"), cl.ProgramError, "'x'", "graph.variable(name)"),
    Mistake("a copy of a compute set", lambda w: cl.Copy(w.work, w.x), cl.ProgramError, NUMBERS, "an input stream"),
    Mistake("a copy of None", lambda w: cl.Copy(None, w.x), cl.ProgramError, NUMBERS, "broadcasts to float32[4]"),
    Mistake("a copy of too many", lambda w: cl.Copy(np.ones(5), w.x), cl.ProgramError, NUMBERS, "broadcasts to"),
    Mistake("a copy of fractions", lambda w: cl.Copy(0.5, w.whole), cl.ArrayError, "float32[]", "convert it first"),
    Mistake(
        "a copy of a large number",
        lambda w: cl.Copy(2**40, w.n),
        cl.ArrayError,
        "1099511627776",
        "numbers that int32 holds",
    ),
    Mistake(
        "a copy of a traced value",
        lambda w: jax.eval_shape(lambda value: cl.Copy(value, w.x), np.zeros(4, np.float32)),
        cl.ProgramError,
        "a traced value is copied",
        "make it a variable",
    ),
    Mistake("a copy to a constant", lambda w: cl.Copy(w.x, w.c), cl.VariableError, "constant 'c'", "add_variable"),
    Mistake("a copy to an input", lambda w: cl.Copy(w.x, w.incoming), cl.ProgramError, "incoming", "change the sides"),
    Mistake("a copy between dtypes", lambda w: cl.Copy(w.x, w.whole), cl.ProgramError, "int32[4]", "that converts"),
    Mistake(
        "a copy that writes twice",
        lambda w: lower(w, cl.Copy(0.0, w.x[[1, 1]])),
        cl.SelfAliasError,
        "a copy writes x[1] twice",
        "names every element once",
    ),
    # functions
    Mistake("a call of a name", lambda w: cl.Call("f", p=w.x), cl.ProgramError, "'f'", "graph.add_function(body"),
    Mistake("an argument without a name", lambda w: cl.Call(w.function, w.x), cl.ProgramError, "of x", "name=view"),
    Mistake("an argument of numbers", lambda w: cl.Call(w.function, p=3.0), cl.ProgramError, "3.0", "cl.Copy(numbers"),
    Mistake(
        "a constant written by a call", lambda w: lower(w, cl.Call(w.function, p=w.c)), cl.VariableError, "'c'", "a var"
    ),
    Mistake(
        "padding written by a call",
        lambda w: lower(w, cl.Call(w.function, p=w.x[1:].pad((1, 0)))),
        cl.ProgramError,
        "writes padding, through parameter 'p'",
        "slice the padding off",
    ),
    Mistake("a variable as parameters", lambda w: w.graph.add_function([], w.x), cl.ProgramError, "of x", "[x, y]"),
    Mistake("a number as parameters", lambda w: w.graph.add_function([], 3), cl.ProgramError, "3", "[x, y]"),
    Mistake("a number as a name", lambda w: w.graph.add_function([], {1: w.x}), cl.ProgramError, "1", "a string"),
    # lowering
    Mistake("a number as inputs", lambda w: cl.lower(w.graph, inputs=3, outputs=[]), cl.ProgramError, "3", "['x']"),
    Mistake("a number as outputs", lambda w: cl.lower(w.graph, inputs=[], outputs=3), cl.ProgramError, "3", "[x, "),
    Mistake(
        "another graph's tensor in a program",
        lambda w: lower(w, cl.Repeat(2, cl.Copy(0.0, w.elsewhere))),
        cl.ForeignGraphError,
        "something of another graph",
        "of the graph it runs on",
    ),
    Mistake(
        "another graph's stream",
        lambda w: cl.lower(w.graph, inputs=[], outputs=[w.elsewhere.graph.add_output_stream("s", ())]),
        cl.ForeignGraphError,
        "output stream",
        "this graph's own",
    ),
    Mistake(
        "values sent without a bound",
        lambda w: lower(w, cl.RepeatWhile([], w.flag, cl.Copy(w.x, w.graph.add_output_stream("s", (4,))))),
        cl.ProgramError,
        "how often a loop without a bound runs",
        "max_iterations=",
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.name for mistake in MISTAKES])
def test_a_mistake_in_a_program_is_told(mistake):
    see_that_it_is_told(mistake, Programs(cl.Graph(cl.IPU(num_tiles=8))))
