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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from tests.meshes import mesh_of


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
    def one(self) -> cl.Tensor:
        return self.graph.add_constant("one", np.ones(()))

    @functools.cached_property
    def feed(self):
        return self.graph.add_input_stream("feed", (4,))

    @functools.cached_property
    def sent(self):
        return self.graph.add_output_stream("sent", (4,))

    @functools.cached_property
    def whole(self) -> cl.Tensor:
        return self.graph.add_variable("whole", (4,), "int32")


class Mistake(NamedTuple):
    name: str
    make: Callable[[Any], object]
    error: type[cl.CodeletError]
    given: str  # part of the problem, or of what was given
    do: str  # part of what was expected, or of how to mend it


# --- symbols ------------------------------------------------------------------------------------------

SYMBOLS = [
    Mistake(
        "a table of what is traced",
        lambda w: jax.jit(lambda v: cl.table(v)[cl.grid(4)])(jnp.arange(4)),
        cl.SymbolError,
        "a table is traced",
        "make the table outside jax.jit",
    ),
    Mistake(
        "rows of a table cut by what is traced",
        lambda w: jax.jit(lambda v: cl.table(range(9), offsets=v)[cl.grid(3)])(jnp.arange(4)),
        cl.SymbolError,
        "a table is traced",
        "make the table outside jax.jit",
    ),
    Mistake(
        "a decision on a symbol",
        lambda w: 1 if cl.grid(4) > 2 else 0,
        cl.SymbolError,
        "has no boolean",
        "choose with `//`, `%` or a table",
    ),
    Mistake(
        "a symbol times a fraction",
        lambda w: cl.grid(4) * 2.5,
        cl.SymbolError,
        "2.5 for `*` with i0",
        "compute fractions within the codelet",
    ),
    Mistake(
        "a fraction times a symbol",
        lambda w: np.float32(2.5) * cl.grid(4),
        cl.SymbolError,
        "numpy.multiply",
        "cl.table(values)[i]",
    ),
    Mistake(
        "a symbol and a boolean",
        lambda w: cl.grid(4) + True,
        cl.SymbolError,
        "True for `+`",
        "an integer, a symbol",
    ),
    Mistake(
        "a symbol and a string",
        lambda w: "y" + cl.grid(4),
        cl.SymbolError,
        "'y' for `+`",
        "an integer, a symbol",
    ),
    Mistake(
        "a NumPy function of a symbol",
        lambda w: np.sin(cl.grid(4)),
        cl.SymbolError,
        "numpy.sin(i0)",
        "compute in the codelet",
    ),
    Mistake(
        "a choice by NumPy",
        lambda w: np.where(cl.grid(4) < 2, 0, 1),
        cl.SymbolError,
        "`numpy.where`",
        "first argument of cl.where",
    ),
    Mistake(
        "a stack of symbols",
        lambda w: np.stack([cl.grid(4), cl.grid(4)]),
        cl.SymbolError,
        "numpy.stack",
        "cl.table(values)[i]",
    ),
    Mistake(
        "a power of a symbol",
        lambda w: cl.grid(4) ** 2,
        cl.SymbolError,
        "i0 ** 2",
        "`i * i`",
    ),
    Mistake(
        "a symbol as an exponent",
        lambda w: 2 ** cl.grid(4),
        cl.SymbolError,
        "2 ** i0",
        "`1 << i`",
    ),
    Mistake(
        "a fraction of a symbol",
        lambda w: cl.grid(4) / 2,
        cl.SymbolError,
        "i0 / 2",
        "`//` rounds down",
    ),
    Mistake(
        "a quotient by a symbol",
        lambda w: 10 // cl.grid(4),
        cl.SymbolError,
        "10 // i0",
        "a positive integer to the right of //",
    ),
    Mistake(
        "a remainder by a symbol",
        lambda w: divmod(10, cl.grid(4)),
        cl.SymbolError,
        "10 // i0",
        "a positive integer",
    ),
    Mistake(
        "a quotient by zero",
        lambda w: cl.grid(4) // 0,
        cl.SymbolError,
        "i0 // 0",
        "a positive integer",
    ),
    Mistake(
        "a remainder by a fraction",
        lambda w: cl.grid(4) % 2.5,
        cl.SymbolError,
        "i0 % 2.5",
        "a positive integer",
    ),
    Mistake(
        "a product of symbols as matrices",
        lambda w: cl.grid(4) @ cl.grid(4),
        cl.SymbolError,
        "no `@`",
        "cl.minimum",
    ),
    Mistake(
        "a format for a symbol",
        lambda w: f"{cl.grid(4):03d}",
        cl.SymbolError,
        "{i0:03d}",
        "cl.table(values)[i]",
    ),
    Mistake(
        "a rounded symbol",
        lambda w: round(cl.grid(4)),
        cl.SymbolError,
        "round(i0)",
        "cl.table(values)[i]",
    ),
    Mistake(
        "the number of a symbol",
        lambda w: int(cl.grid(4)),
        cl.SymbolError,
        "no single value",
        "loop over a Python range",
    ),
    Mistake(
        "a range to a symbol",
        lambda w: cl.grid(range(cl.grid(4))),
        cl.SymbolError,
        "no single value",
        "cl.grid(slice(i + 1, n))",
    ),
    Mistake(
        "the truth of a symbol",
        lambda w: cl.grid(4) and 1,
        cl.SymbolError,
        "has no boolean",
        "cl.where, cl.minimum",
    ),
    Mistake(
        "the lesser by Python",
        lambda w: min(cl.grid(4), 2),
        cl.SymbolError,
        "has no boolean",
        "cl.where(condition, a, b)",
    ),
    Mistake(
        "a chain of comparisons",
        lambda w: 0 < cl.grid(4) < 3,
        cl.SymbolError,
        "has no boolean",
        "(a < i) & (i < b)",
    ),
    Mistake(
        "a symbol compared with a fraction",
        lambda w: cl.grid(4) < 2.5,
        cl.SymbolError,
        "2.5 for `<`",
        "an integer, a symbol",
    ),
    Mistake(
        "a symbol compared with a string",
        lambda w: cl.grid(4) == "a",
        cl.SymbolError,
        "'a' for `==`",
        "an integer, a symbol",
    ),
    Mistake(
        "a sum with a condition",
        lambda w: 1 + (cl.grid(4) < 2),
        cl.SymbolError,
        "has no `+`",
        "cl.where(condition, 1, 0)",
    ),
    Mistake(
        "a condition and a number",
        lambda w: (cl.grid(4) < 2) & 1,
        cl.SymbolError,
        "a condition & 1",
        "`&`, `|`, `^` and `~` between conditions",
    ),
    Mistake(
        "a choice without a condition",
        lambda w: cl.where(cl.grid(4), 0, 1),
        cl.SymbolError,
        "other than a condition",
        "cl.where(i < 3, a, b)",
    ),
    Mistake(
        "a choice between fractions",
        lambda w: cl.where(cl.grid(4) < 2, 0.5, 1),
        cl.SymbolError,
        "0.5",
        "integers, symbols",
    ),
    Mistake(
        "the lesser of a symbol and a fraction",
        lambda w: cl.minimum(cl.grid(4), 2.5),
        cl.SymbolError,
        "cl.minimum",
        "integers, symbols",
    ),
    Mistake(
        "the greater of tensors",
        lambda w: cl.maximum(w.x, 2),
        cl.SymbolError,
        "cl.maximum",
        "integers, symbols",
    ),
    Mistake(
        "a shift to the other side",
        lambda w: cl.grid(4) << -1,
        cl.SymbolError,
        "negative number of bits",
        "not negative",
    ),
    Mistake(
        "a shift out of all bounds",
        lambda w: 1 << 40 * cl.grid(4),
        cl.SymbolError,
        "which takes values 0 to 120",
        "below 2**63",
    ),
    Mistake(
        "a ragged table that is added to",
        lambda w: cl.table([1, 2], offsets=[0, 1, 2]) + 1,
        cl.SymbolError,
        "a ragged table has no `+`",
        "before they are made a ragged table",
    ),
    Mistake(
        "a row that is multiplied",
        lambda w: 2 * cl.table([1, 2], offsets=[0, 1, 2])[cl.grid(2)],
        cl.SymbolError,
        "has no `*`",
        "within the codelet",
    ),
    Mistake(
        "a grid of a fraction",
        lambda w: cl.grid(2.5),  # type: ignore[call-overload]
        cl.SymbolError,
        "2.5",
        "non-negative integers or ranges",
    ),
    Mistake(
        "a grid of a negative number",
        lambda w: cl.grid(row=-1),
        cl.SymbolError,
        "-1",
        "non-negative integers or ranges",
    ),
    Mistake(
        "a grid of a tensor",
        lambda w: cl.grid(w.x),
        cl.SymbolError,
        "given:    x",
        "non-negative integers or ranges",
    ),
    Mistake(
        "a grid without an end",
        lambda w: cl.grid(slice(2, None)),
        cl.SymbolError,
        "slice(2, None",
        "slice(start, stop)",
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
    Mistake(
        "a tensor plus a number",
        lambda w: w.x + 1,
        cl.TensorError,
        "x + 1",
        "add a vertex that computes it",
    ),
    Mistake(
        "a number plus a tensor",
        lambda w: 1 + w.x[1:],
        cl.TensorError,
        "1 + Tensor(float32[3] of x",
        "add a vertex that computes it",
    ),
    Mistake(
        "a product of tensors",
        lambda w: w.square @ w.x,
        cl.TensorError,
        "square @ x",
        "add a vertex that computes it",
    ),
    Mistake(
        "an array plus a tensor",
        lambda w: np.ones(4) + w.x,
        cl.TensorError,
        "numpy.add",
        "add a vertex that computes it",
    ),
    Mistake(
        "an array of JAX plus a tensor",
        lambda w: jnp.ones(4) + w.x,
        cl.TensorError,
        "jax.numpy.add(x)",
        "add a vertex that computes it",
    ),
    Mistake(
        "a symbol plus a tensor",
        lambda w: cl.grid(4) + w.x,
        cl.TensorError,
        "i0 + x",
        "add a vertex that computes it",
    ),
    Mistake(
        "a sum by JAX",
        lambda w: jnp.sum(w.x),
        cl.TensorError,
        "jax.numpy.sum(x)",
        "add a vertex that computes it",
    ),
    Mistake(
        "a product by JAX",
        lambda w: jnp.dot(w.x, jnp.ones(4)),
        cl.TensorError,
        "jax.numpy.dot(x)",
        "add a vertex that computes it",
    ),
    Mistake(
        "a sum by NumPy",
        lambda w: np.sum(w.x),
        cl.TensorError,
        "numpy.sum(x)",
        "add a vertex that computes it",
    ),
    Mistake(
        "a sine by NumPy",
        lambda w: np.sin(w.x),
        cl.TensorError,
        "numpy.sin(x)",
        "add a vertex that computes it",
    ),
    Mistake(
        "an element of a tensor set",
        lambda w: w.x.__setitem__(0, 3),
        cl.TensorError,
        "x[...] = 3",
        "write the view by a vertex",
    ),
    Mistake(
        "a tensor as an array",
        lambda w: np.asarray(w.x),
        cl.TensorError,
        "numpy.asarray(x)",
        "engine.read(tensor)",
    ),
    Mistake(
        "tensors as an array",
        lambda w: np.array([w.x, w.x]),
        cl.TensorError,
        "numpy.asarray(x)",
        "engine.read(tensor)",
    ),
    Mistake(
        "a compiled function of a tensor",
        lambda w: jax.jit(lambda x: x)(w.x),
        cl.TensorError,
        "of x: f0",
        "engine.read(tensor)",
    ),
    Mistake(
        "the truth of a tensor",
        lambda w: 1 if w.x else 0,
        cl.TensorError,
        "bool(x)",
        "cl.If",
    ),
    Mistake(
        "the truth of a comparison of tensors",
        lambda w: 1 if w.x < 1 else 0,
        cl.TensorError,
        "x < 1",
        "add a vertex that computes it",
    ),
    Mistake(
        "a tensor compared with a number",
        lambda w: w.x == 0,
        cl.TensorError,
        "x == 0",
        "add a vertex that computes it",
    ),
    Mistake(
        "an array compared with a tensor",
        lambda w: np.ones(4) != w.x,
        cl.TensorError,
        "numpy.not_equal",
        "add a vertex that computes it",
    ),
    Mistake(
        "the number in a tensor",
        lambda w: float(w.x[0]),
        cl.TensorError,
        "no `float`",
        "jnp.where in a codelet",
    ),
    Mistake(
        "a format for a tensor",
        lambda w: f"{w.x:.3f}",
        cl.TensorError,
        "{x:.3f}",
        "engine.read(tensor)",
    ),
    Mistake(
        "a negative tensor",
        lambda w: -w.x,
        cl.TensorError,
        "-x",
        "add a vertex that computes it",
    ),
    Mistake(
        "the length of an element",
        lambda w: len(w.x[0]),
        cl.ViewError,
        "no length",
        "x.size is 1",
    ),
    Mistake(
        "a loop over an element",
        lambda w: list(w.x[0]),
        cl.ViewError,
        "no length",
        "x.size is 1",
    ),
    Mistake(
        "the length of rows of several lengths",
        lambda w: len(w.x[cl.grid(4) :]),
        cl.ViewError,
        "another length for each vertex",
        "x.shape[0]",
    ),
    Mistake(
        "the name of a view",
        lambda w: w.x[1:].name,
        cl.UnnamedError,
        "a view has no name",
        "it views x",
    ),
    Mistake(
        "a mask that is too short",
        lambda w: w.x[np.array([True, False])],
        cl.OutOfBoundsError,
        "a mask of shape (2,) for dimension 0",
        "a mask of shape (4,)",
    ),
    Mistake(
        "a mask that is too long",
        lambda w: w.square[1, [True] * 5],
        cl.OutOfBoundsError,
        "a mask of shape (5,) for dimension 1",
        "numpy.flatnonzero(mask)",
    ),
    Mistake(
        "a mask after an ellipsis",
        lambda w: w.square[..., [True] * 3],
        cl.OutOfBoundsError,
        "a mask of shape (3,) for dimension 1",
        "a mask of shape (4,)",
    ),
    Mistake(
        "a mask of another shape",
        lambda w: w.square[np.ones((4, 3), bool)],
        cl.OutOfBoundsError,
        "(4, 3) for dimension 0",
        "a mask of shape (4, 4)",
    ),
    Mistake(
        "a mask of JAX that is too short",
        lambda w: w.x[jnp.array([True, False])],
        cl.OutOfBoundsError,
        "a mask of shape (2,)",
        "a mask of shape (4,)",
    ),
    Mistake(
        "a boolean as an index",
        lambda w: w.x[True],
        cl.ViewError,
        "indexed with bool",
        "x[None]",
    ),
    Mistake(
        "a condition as an index",
        lambda w: w.x[cl.grid(4) < 2],
        cl.ViewError,
        "indexed with Condition",
        "x[cl.where(condition, a, b)]",
    ),
    Mistake(
        "a tensor as an index",
        lambda w: w.x[w.whole],
        cl.ViewError,
        "indexed with Tensor",
        "looked up in a codelet",
    ),
    Mistake(
        "a traced index",
        lambda w: jax.jit(lambda k: w.x[k].size)(1),
        cl.ViewError,
        "cannot be indexed with",
        "integers, slices, symbols",
    ),
    Mistake(
        "a ragged table as an index",
        lambda w: w.x[cl.table([1, 2], offsets=[0, 1, 2])],
        cl.ViewError,
        "indexed with RaggedTable",
        "x[table[i]]",
    ),
    Mistake(
        "fractions as an index",
        lambda w: w.x[[0.5]],
        cl.ViewError,
        "[0.5]",
        "integers, slices, symbols",
    ),
    Mistake(
        "lists of several lengths as an index",
        lambda w: w.x[[[0], [0, 1]]],
        cl.ViewError,
        "[[0], [0, 1]]",
        "integers, slices, symbols",
    ),
    Mistake(
        "a step of zero",
        lambda w: w.x[::0],
        cl.ViewError,
        "::0",
        "other than zero",
    ),
    Mistake(
        "a step of zero from a symbol",
        lambda w: w.x[cl.grid(4) :: 0],
        cl.ViewError,
        "i0::0",
        "other than zero",
    ),
    Mistake(
        "a step that is a symbol",
        lambda w: w.x[:: cl.grid(4)],
        cl.ViewError,
        "::i0",
        "a number other than zero",
    ),
    Mistake(
        "a slice from a fraction",
        lambda w: w.x[0.5:],
        cl.ViewError,
        "0.5:",
        "integers or symbols",
    ),
    Mistake(
        "a reshape by fractions",
        lambda w: w.x.reshape(4 / 2, 2),
        cl.ViewError,
        "(2.0, 2)",
        "`//` divides integers",
    ),
    Mistake(
        "a reshape by a symbol",
        lambda w: w.x.reshape(cl.grid(4)),
        cl.ViewError,
        "not of integers",
        "integers, or one tuple or list",
    ),
    Mistake(
        "a reshape to another size",
        lambda w: w.x.reshape([3, -1]),
        cl.ViewError,
        "(4,) to (3, -1)",
        "product is 4",
    ),
    Mistake(
        "a transpose by fractions",
        lambda w: w.square.transpose([1.0, 0.0]),
        cl.ViewError,
        "[1.0, 0.0]",
        "`//` divides integers",
    ),
    Mistake(
        "a transpose of a dimension alone",
        lambda w: w.square.transpose([0]),
        cl.ViewError,
        "(0,)",
        "each of 0 to 1 once",
    ),
    Mistake(
        "a dimension that is a fraction",
        lambda w: w.x.expand(0.5),
        cl.ViewError,
        "0.5",
        "integers",
    ),
    Mistake(
        "a dimension that is not there",
        lambda w: w.x.reverse(1),
        cl.ViewError,
        "a dimension does not exist",
        "-1 to 0",
    ),
    Mistake(
        "a broadcast to a fraction",
        lambda w: w.x.broadcast_to(4.0),
        cl.ViewError,
        "4.0",
        "integers",
    ),
    Mistake(
        "a broadcast to another shape",
        lambda w: w.x.broadcast_to([2, 3]),
        cl.ViewError,
        "(4,) to (2, 3)",
        "ends in the tensor's",
    ),
    Mistake(
        "a join of arrays",
        lambda w: cl.concatenate([w.x, np.ones(4)]),  # type: ignore[list-item]
        cl.ViewError,
        "other than a tensor is concatenated",
        "graph.add_constant",
    ),
    Mistake(
        "a join of two arguments",
        lambda w: cl.concatenate(w.x, w.x),
        cl.ViewError,
        "a dimension is not of integers",
        "integers",
    ),
    Mistake(
        "a join of nothing",
        lambda w: cl.concatenate([]),
        cl.ViewError,
        "nothing to join",
        "one tensor or more",
    ),
]

# --- codelets -----------------------------------------------------------------------------------------


def returning(make):
    """A mistake in what a codelet of a field `a` returns."""

    def add(w):
        w.graph.add_vertex("a", cl.codelet(lambda a: make(a)), a=w.x)

    return add


def given_static(value):
    """A mistake in what a static value is given."""
    return lambda w: w.graph.add_vertex("s", scaled_by, a=w.x, by=value)


CODELETS = [
    Mistake(
        "nothing returned",
        returning(lambda a: None),
        cl.CodeletTraceError,
        "given:    None",
        "one array, or a flat dict",
    ),
    Mistake(
        "an empty dict returned",
        returning(lambda a: {}),
        cl.CodeletTraceError,
        "an empty dict",
        "a flat dict",
    ),
    Mistake(
        "a list returned",
        returning(lambda a: [a, a]),
        cl.CodeletTraceError,
        "a list of 2",
        "jnp.stack(...)",
    ),
    Mistake(
        "a tuple returned",
        returning(lambda a: (a,)),
        cl.CodeletTraceError,
        "a tuple of 1",
        "name them",
    ),
    Mistake(
        "a nested dict returned",
        returning(lambda a: {"a": {"b": a}}),
        cl.CodeletTraceError,
        "a dict in a dict for its field 'a'",
        "names of their own",
    ),
    Mistake(
        "a string returned",
        returning(lambda a: "a"),
        cl.CodeletTraceError,
        "str 'a'",
        "return arrays",
    ),
    Mistake(
        "a typed key returned",
        returning(lambda a: jax.random.key(0)),
        cl.CodeletTraceError,
        "key<fry>",
        "jax.random.key_data(key)",
    ),
    Mistake(
        "a number for the name of a result",
        returning(lambda a: {1: a}),
        cl.CodeletTraceError,
        "1",
        "names that are strings",
    ),
    Mistake(
        "a result called tile",
        returning(lambda a: {"tile": a}),
        cl.CodeletTraceError,
        "'tile'",
        "another name than 'tile'",
    ),
    Mistake(
        "a result called as a static value",
        lambda w: w.graph.add_vertex("a", cl.codelet(lambda a, *, by: {"by": a}), a=w.x, by=1),
        cl.CodeletTraceError,
        "'by'",
        "another name than 'by'",
    ),
    Mistake(
        "a symbol for a static value",
        given_static(cl.grid(4)),
        cl.FieldTypeError,
        "is a symbol",
        "def scaled_by(a, by)",
    ),
    Mistake(
        "an array for a static value",
        given_static(np.ones(2)),
        cl.FieldTypeError,
        "is an array",
        "def scaled_by(a, by)",
    ),
    Mistake(
        "a list for a static value",
        given_static([1, 2]),
        cl.FieldTypeError,
        "[1, 2]",
        "a tuple does not change: (1, 2)",
    ),
    Mistake(
        "a dict for a static value",
        given_static({"a": 1}),
        cl.FieldTypeError,
        "{'a': 1}",
        "a frozen dataclass",
    ),
    Mistake(
        "a set for a static value",
        given_static({1}),
        cl.FieldTypeError,
        "{1}",
        "frozenset({1})",
    ),
    Mistake(
        "a list in a tuple for a static value",
        given_static((1, [2])),
        cl.FieldTypeError,
        "(1, [2])",
        "a tuple does not change",
    ),
    Mistake(
        "a tensor for a static value",
        lambda w: w.graph.add_vertex("s", scaled_by, a=w.x, by=w.square),
        cl.FieldTypeError,
        "is a tensor",
        "a positional parameter takes it",
    ),
    Mistake(
        "a traced static value",
        lambda w: jax.jit(lambda t: w.graph.add_vertex("s", scaled_by, a=w.x, by=t))(1.0),
        cl.FieldTypeError,
        "is a traced value",
        "a positional parameter takes it",
    ),
    Mistake(
        "no static value",
        lambda w: w.graph.add_vertex("s", scaled_by, a=w.x),
        cl.MissingFieldError,
        "its static 'by'",
        "by=...",
    ),
    Mistake(
        "a number as a codelet",
        lambda w: cl.codelet(3),  # type: ignore[arg-type]
        cl.CodeletDefinitionError,
        "given:    3",
        "@cl.codelet above `def`",
    ),
    Mistake(
        "a class as a codelet",
        lambda w: cl.codelet(dict),
        cl.CodeletDefinitionError,
        "<class 'dict'>",
        "a function of arrays",
    ),
    Mistake(
        "a builtin",
        lambda w: cl.codelet(max),
        cl.CodeletDefinitionError,
        "'max'",
        "cl.codelet(lambda x: max(x))",
    ),
    Mistake(
        "a builtin with a default",
        lambda w: cl.codelet(sum),
        cl.CodeletDefinitionError,
        "start=0",
        "sum(iterable)",
    ),
    Mistake(
        "a function of JAX's with a default",
        lambda w: cl.codelet(jnp.sum),
        cl.CodeletDefinitionError,
        "axis",
        "lambda a: sum(a)",
    ),
    Mistake(
        "a function of NumPy's",
        lambda w: cl.codelet(np.sin),
        cl.CodeletDefinitionError,
        "sin",
        "say which of its parameters",
    ),
    Mistake(
        "cycles as a number",
        lambda w: cl.codelet(cycles=3),  # type: ignore[arg-type]
        cl.CodeletDefinitionError,
        "cycles=3",
        "cycles=lambda x: 3",
    ),
    Mistake(
        "workers as a word",
        lambda w: cl.codelet(workers="all"),  # type: ignore[arg-type]
        cl.CodeletDefinitionError,
        "workers='all'",
        "workers=6",
    ),
    Mistake(
        "no workers",
        lambda w: cl.codelet(workers=0),  # type: ignore[arg-type]
        cl.CodeletDefinitionError,
        "workers=0",
        "an integer from 1",
    ),
    Mistake(
        "workers as a truth",
        lambda w: cl.codelet(workers=True),  # type: ignore[arg-type]
        cl.CodeletDefinitionError,
        "workers=True",
        "an integer from 1",
    ),
    Mistake(
        "a way to issue that there is not",
        lambda w: cl.codelet(issue="fast"),  # type: ignore[arg-type]
        cl.CodeletDefinitionError,
        "issue='fast'",
        "'assembly' or 'compiled'",
    ),
    Mistake(
        "a number of vectors",
        lambda w: cl.codelet(vectorised=2),  # type: ignore[arg-type]
        cl.CodeletDefinitionError,
        "vectorised=2",
        "True or False",
    ),
    Mistake(
        "turns as a fraction",
        lambda w: cl.codelet(trip_count=2.5),  # type: ignore[arg-type]
        cl.CodeletDefinitionError,
        "trip_count=2.5",
        "an integer from 0, or a function",
    ),
    Mistake(
        "fewer turns than none",
        lambda w: cl.codelet(trip_count=-1),  # type: ignore[arg-type]
        cl.CodeletDefinitionError,
        "trip_count=-1",
        "an integer from 0",
    ),
    Mistake(
        "many fields at once",
        lambda w: cl.codelet(lambda *a: a),
        cl.CodeletDefinitionError,
        "*a",
        "one parameter for each field",
    ),
    Mistake(
        "a field called tile",
        lambda w: cl.codelet(lambda tile: tile),
        cl.CodeletDefinitionError,
        "'tile'",
        "another name",
    ),
    Mistake(
        "types of no fields",
        lambda w: double.specialise({}),
        cl.MissingFieldError,
        "no fields",
        "a=...",
    ),
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
        "a fraction in the shape of a stream",
        lambda w: w.graph.add_input_stream("v", (2.5,)),
        cl.VariableError,
        "the shape of input stream 'v'",
        "integers from 0",
    ),
    Mistake(
        "strings in a stream",
        lambda w: w.graph.add_output_stream("v", (2,), "U3"),
        cl.VariableError,
        "the dtype of output stream 'v'",
        "give each string a number",
    ),
    Mistake(
        "a fraction in a shape",
        lambda w: w.graph.add_variable("v", (2.7,)),
        cl.VariableError,
        "(2.7,)",
        "integers by `//`",
    ),
    Mistake(
        "a boolean in a shape",
        lambda w: w.graph.add_variable("v", (True, 2)),
        cl.VariableError,
        "(True, 2)",
        "integers from 0",
    ),
    Mistake(
        "a string for a shape",
        lambda w: w.graph.add_variable("v", "34"),
        cl.VariableError,
        "'34'",
        "4 for one dimension",
    ),
    Mistake(
        "a set for a shape",
        lambda w: w.graph.add_variable("v", {2, 3}),
        cl.VariableError,
        "{2, 3}",
        "integers from 0",
    ),
    Mistake(
        "no shape",
        lambda w: w.graph.add_variable("v", None),
        cl.VariableError,
        "None",
        "integers from 0",
    ),
    Mistake(
        "a negative size",
        lambda w: w.graph.add_variable("v", (2, -1)),
        cl.VariableError,
        "(2, -1)",
        "integers from 0",
    ),
    Mistake(
        "a symbol in a shape",
        lambda w: w.graph.add_variable("v", (cl.grid(4), 2)),
        cl.VariableError,
        "Index(",
        "how many positions the symbol has",
    ),
    Mistake(
        "a tensor for a shape",
        lambda w: w.graph.add_variable("v", (w.x,)),
        cl.VariableError,
        "float32[4] of x",
        "x.shape",
    ),
    Mistake(
        "strings as a dtype",
        lambda w: w.graph.add_variable("v", 3, "U3"),
        cl.VariableError,
        "'U3'",
        "give each string a number",
    ),
    Mistake(
        "objects as a dtype",
        lambda w: w.graph.add_variable("v", 3, object),
        cl.VariableError,
        "object",
        "numbers or booleans",
    ),
    Mistake(
        "dates as a dtype",
        lambda w: w.graph.add_variable("v", 3, "M8[s]"),
        cl.VariableError,
        "'M8[s]'",
        "integers",
    ),
    Mistake(
        "records as a dtype",
        lambda w: w.graph.add_variable("v", 3, [("a", "f4")]),
        cl.VariableError,
        "'a'",
        "each field of a record",
    ),
    Mistake(
        "a long double",
        lambda w: w.graph.add_variable("v", 3, np.longdouble),
        cl.VariableError,
        "longdouble",
        "float32, int32",
    ),
    Mistake(
        "a dtype that is none",
        lambda w: w.graph.add_variable("v", 3, "flaot32"),
        cl.VariableError,
        "'flaot32'",
        "float32, int32",
    ),
    Mistake(
        "an array for a dtype",
        lambda w: w.graph.add_variable("v", 3, np.ones(3)),
        cl.VariableError,
        "array",
        "x.dtype",
    ),
    Mistake(
        "typed keys as a dtype",
        lambda w: w.graph.add_variable("v", 3, jax.random.key(0).dtype),
        cl.VariableError,
        "key<fry>",
        "jax.random.wrap_key_data(data)",
    ),
    Mistake(
        "a dtype for a stream",
        lambda w: w.graph.add_input_stream("s", (2.5,)),
        cl.VariableError,
        "input stream 's'",
        "integers from 0",
    ),
    Mistake(
        "a constant too large",
        lambda w: w.graph.add_constant("c", 2**40),
        cl.VariableError,
        "1099511627776",
        "64 bits need jax.enable_x64",
    ),
    Mistake(
        "an array too large",
        lambda w: w.graph.add_constant("c", np.array([1, 2**40])),
        cl.VariableError,
        "1099511627776, for int32",
        "another dtype",
    ),
    Mistake(
        "a constant too large for its dtype",
        lambda w: w.graph.add_constant("c", [1, 300], "uint8"),
        cl.VariableError,
        "300",
        "numbers that uint8 holds",
    ),
    Mistake(
        "a negative constant for an unsigned dtype",
        lambda w: w.graph.add_constant("c", np.array([1, -1]), "uint32"),
        cl.VariableError,
        "-1, for uint32",
        "numbers that uint32 holds",
    ),
    Mistake(
        "a fraction for a whole dtype",
        lambda w: w.graph.add_constant("c", [1.5], "int32"),
        cl.VariableError,
        "1.5, for int32",
        "numbers that int32 holds",
    ),
    Mistake(
        "a float too large",
        lambda w: w.graph.add_constant("c", np.array([1e300])),
        cl.VariableError,
        "1e+300, for float32",
        "numbers that float32 holds",
    ),
    Mistake(
        "a ragged constant",
        lambda w: w.graph.add_constant("c", [[1], [1, 2]]),
        cl.VariableError,
        "list",
        "of one shape",
    ),
    Mistake(
        "a string as a constant",
        lambda w: w.graph.add_constant("c", "abc"),
        cl.VariableError,
        "'abc'",
        "numbers",
    ),
    Mistake(
        "a tensor as a constant",
        lambda w: w.graph.add_constant("c", w.x),
        cl.VariableError,
        "is a tensor",
        "cl.Copy(x, variable)",
    ),
    Mistake(
        "a symbol as a constant",
        lambda w: w.graph.add_constant("c", cl.grid(4)),
        cl.VariableError,
        "an index expression",
        "as vertex state",
    ),
    Mistake(
        "fields by place",
        lambda w: w.graph.add_vertex("a", scaled, w.x, 2),
        cl.FieldTypeError,
        "2 after the codelet",
        "scaled, a=..., by=...)",
    ),
    Mistake(
        "a codelet before its compute set",
        lambda w: w.graph.add_vertex(double, "a", a=w.x),
        cl.FieldTypeError,
        "add_vertex(double, 'a', ...)",
        "add_vertex(compute_set, codelet",
    ),
    Mistake(
        "a codelet by its name",
        lambda w: w.graph.add_vertex("a", "double", a=w.x),
        cl.FieldTypeError,
        "'double'",
        "decorated with @cl.codelet",
    ),
    Mistake(
        "a function of JAX's for a codelet",
        lambda w: w.graph.add_vertex("a", jnp.sin, x=w.x),
        cl.FieldTypeError,
        "sin",
        "cl.codelet(...) around it",
    ),
    Mistake(
        "a field misspelt",
        lambda w: w.graph.add_vertex("a", scaled, a=w.x, bye=2),
        cl.MissingFieldError,
        "a, bye",
        "by=... in place of bye=...",
    ),
    Mistake(
        "a field left off",
        lambda w: w.graph.add_vertex("a", scaled, a=w.x),
        cl.MissingFieldError,
        "its field 'by'",
        "by=...",
    ),
    Mistake(
        "a field too many",
        lambda w: w.graph.add_vertex("a", double, a=w.x, b=w.x),
        cl.UnknownFieldError,
        "b=...",
        "a, out",
    ),
    Mistake(
        "a name for a field",
        lambda w: w.graph.add_vertex("a", double, a="x"),
        cl.FieldTypeError,
        "'x'",
        "graph.variable('x')",
    ),
    Mistake(
        "nothing for a field",
        lambda w: w.graph.add_vertex("a", double, a=None),
        cl.FieldTypeError,
        "None",
        "a tensor, an index expression",
    ),
    Mistake(
        "a list of tensors for a field",
        lambda w: w.graph.add_vertex("a", double, a=[w.x, w.x]),
        cl.FieldTypeError,
        "[Tensor(",
        "cl.concatenate",
    ),
    Mistake(
        "a variable for a field",
        lambda w: w.graph.add_vertex("a", double, a=w.x.source),
        cl.FieldTypeError,
        "x: float32[4]",
        "graph.variable('x')",
    ),
    Mistake(
        "a stream for a field",
        lambda w: w.graph.add_vertex("a", double, a=w.graph.add_input_stream("s", ())),
        cl.FieldTypeError,
        "input stream",
        "cl.Copy(stream, x)",
    ),
    Mistake(
        "a key for a field",
        lambda w: w.graph.add_vertex("a", double, a=jax.random.key(0)),
        cl.FieldTypeError,
        "key<fry>",
        "jax.random.wrap_key_data",
    ),
    Mistake(
        "strings for a field",
        lambda w: w.graph.add_vertex("a", double, a=np.array(["a"])),
        cl.FieldTypeError,
        "<U1",
        "a number",
    ),
    Mistake(
        "a traced field",
        lambda w: jax.jit(lambda t: w.graph.add_vertex("a", double, a=t))(1.0),
        cl.FieldTypeError,
        "a traced value",
        "make it a variable",
    ),
    Mistake(
        "a number too large for a field",
        lambda w: w.graph.add_vertex("a", double, a=2**40),
        cl.FieldTypeError,
        "1099511627776",
        "jax.enable_x64",
    ),
    Mistake(
        "a number of NumPy's too large for a field",
        lambda w: w.graph.add_vertex("a", double, a=np.int64(2**40)),
        cl.FieldTypeError,
        "1099511627776, for int32",
        "jax.enable_x64",
    ),
    Mistake(
        "an array too large for a field",
        lambda w: w.graph.add_vertex("a", scaled, a=w.x[cl.grid(2)], by=np.array([1, 2**40])),
        cl.FieldTypeError,
        "1099511627776, for int32",
        "numbers that int32 holds",
    ),
    Mistake(
        "a number to write to",
        lambda w: w.graph.add_vertex("a", double, a=w.x, out=3),
        cl.FieldTypeError,
        "output field 'out'",
        "leave it off",
    ),
    Mistake(
        "a name to write to",
        lambda w: w.graph.add_vertex("a", double, a=w.x, out="y"),
        cl.FieldTypeError,
        "'y'",
        "graph.variable('y')",
    ),
    Mistake(
        "a shape that does not fit",
        lambda w: w.graph.add_vertex("a", double, a=w.x, out=w.square),
        cl.FieldTypeError,
        "a view float32[4,4]",
        "float32[4]",
    ),
    Mistake(
        "a dtype that does not fit",
        lambda w: w.graph.add_vertex("a", double, a=w.x, out=w.whole),
        cl.FieldTypeError,
        "a view int32[4]",
        "float32[4]",
    ),
    Mistake(
        "a constant to write to",
        lambda w: w.graph.add_vertex("a", double, a=w.x, out=w.graph.add_constant("c", np.ones(4, "f"))),
        cl.FieldTypeError,
        "the constant 'c'",
        "a view of variables",
    ),
    Mistake(
        "a tensor of another graph",
        lambda w: w.graph.add_vertex("a", double, a=cl.Graph().add_variable("y", 4)),
        cl.ForeignGraphError,
        "another graph",
        "tensors of the graph",
    ),
    Mistake(
        "a compute set of another graph",
        lambda w: w.graph.add_vertex(cl.Graph().add_compute_set("a"), double, a=w.x),
        cl.ForeignGraphError,
        "compute set a",
        "graph.add_compute_set",
    ),
    Mistake(
        "no compute set",
        lambda w: w.graph.add_vertex(None, double, a=w.x),
        cl.FieldTypeError,
        "None",
        "a compute set, or a name",
    ),
    Mistake(
        "a compute set without a name",
        lambda w: w.graph.add_vertex("", double, a=w.x),
        cl.VariableError,
        "''",
        "not empty",
    ),
    Mistake(
        "a number for a name",
        lambda w: w.graph.add_compute_set(3),
        cl.VariableError,
        "given:    3",
        "a string",
    ),
    Mistake(
        "a name and a shape in the wrong order",
        lambda w: w.graph.add_variable((4,), "y"),
        cl.VariableError,
        "variable (4,)",
        "integers from 0",
    ),
    Mistake(
        "a number for a scope",
        lambda w: w.graph.scope(3).__enter__(),
        cl.VariableError,
        "given:    3",
        "a string",
    ),
    Mistake(
        "a name twice",
        lambda w: (w.x, w.graph.add_compute_set("x")),
        cl.DuplicateNameError,
        "'x'",
        "graph.scope(...)",
    ),
    Mistake(
        "a fraction of a tile",
        lambda w: w.graph.add_vertex("a", double, a=w.x, tile=1.5),
        cl.TileError,
        "1.5",
        "an integer",
    ),
    Mistake(
        "a tile that does not exist",
        lambda w: w.graph.add_vertex("a", double, a=w.x, tile=8),
        cl.TileError,
        "8",
        "0 to 7",
    ),
    Mistake(
        "too few tiles, of a graph",
        lambda w: w.graph.add_vertex("a", double, a=w.x[cl.grid(4)], tile=np.arange(3)),
        cl.TileError,
        "shape (3,)",
        "shape (4,)",
    ),
    Mistake(
        "a number to map",
        lambda w: w.graph.set_tile_mapping(3, 1),
        cl.TileError,
        "3",
        "graph.variable",
    ),
    Mistake(
        "no tile to map to",
        lambda w: w.graph.set_tile_mapping(w.x, None),
        cl.TileError,
        "None",
        "an integer",
    ),
    Mistake(
        "a mapping to a tile that does not exist",
        lambda w: w.graph.set_tile_mapping(w.x, -1),
        cl.TileError,
        "-1",
        "0 to 7",
    ),
    Mistake(
        "a mapping of another shape",
        lambda w: w.graph.set_tile_mapping(w.x, np.arange(3)),
        cl.TileError,
        "shape (3,)",
        "shape (4,)",
    ),
    Mistake(
        "a variable that is not there",
        lambda w: (w.x, w.graph.variable("y")),
        cl.NotInGraphError,
        "'y'",
        "x",
    ),
    Mistake(
        "a list of names",
        lambda w: (w.x, w.graph.variable(["x"])),
        cl.NotInGraphError,
        "['x']",
        "x",
    ),
    Mistake(
        "a compute set that is not there",
        lambda w: w.graph.vertex("nope"),
        cl.NotInGraphError,
        "'nope'",
        "the value of every symbol",
    ),
    Mistake(
        "a vertex by a symbol",
        lambda w: w.graph.vertex("a", cl.grid(4)),
        cl.NotInGraphError,
        "Index(",
        "graph.vertex(compute_set, i=3)",
    ),
    Mistake(
        "a vertex of a number",
        lambda w: w.graph.vertex(3),
        cl.NotInGraphError,
        "given:    3",
        "a compute set or its name",
    ),
    Mistake(
        "the writers of a name",
        lambda w: w.graph.writers("x"),
        cl.FieldTypeError,
        "'x'",
        "graph.variable('x')",
    ),
    Mistake(
        "a vertex run on an array",
        lambda w: (w.graph.add_vertex("a", double, a=w.x), w.graph.vertex("a", 0).run(np.ones(4))),
        cl.ArrayError,
        "ndarray",
        "by name",
    ),
    Mistake(
        "a vertex run on an array of another shape",
        lambda w: (w.graph.add_vertex("a", double, a=w.x), w.graph.vertex("a", 0).run({"x": np.ones(3)})),
        cl.ArrayError,
        "float32[3]",
        "float32[4]",
    ),
    Mistake(
        "a vertex run without a value",
        lambda w: (w.graph.add_vertex("a", double, a=w.x), w.graph.vertex("a", 0).run({})),
        cl.NotInGraphError,
        "no values",
        "x",
    ),
    Mistake(
        "a chip for a target",
        lambda w: cl.Graph("mk2"),  # type: ignore[arg-type]
        cl.VariableError,
        "'mk2'",
        "cl.IPU('mk2')",
    ),
    Mistake(
        "a number for a target",
        lambda w: cl.Graph(8),  # type: ignore[arg-type]
        cl.VariableError,
        "given:    8",
        "cl.IPU(num_tiles=8)",
    ),
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


def _doubled(graph, v):
    return graph.add_vertex("doubled", double, a=v[cl.grid(4)])


def _from_the_host(a):
    return jax.pure_callback(lambda value: 2 * value, jax.ShapeDtypeStruct((), jnp.float32), a)


def _up_to_ten(a):
    return jax.lax.while_loop(lambda value: value < 10, lambda value: 2 * value, a)


def differentiated(function: Callable) -> Callable[[World], object]:
    """The gradient of a function of four numbers, one by one."""

    def act(w: World) -> object:
        made = w.graph.add_vertex("apply", cl.codelet(function), a=w.x[cl.grid(4)])
        return cl.gradient(w.graph, of=made, wrt=[w.x], cotangent=1)

    return act


def _slope_of_a_loop(w: World) -> object:
    look, halve = w.graph.add_compute_set("look"), w.graph.add_compute_set("halve")
    is_large = w.graph.add_vertex(look, cl.codelet(lambda a: a > 1), a=w.x[0])
    w.graph.add_vertex(halve, cl.codelet(lambda a: {"a": a / 2}), a=w.x[cl.grid(4)])
    loop = cl.RepeatWhile(look, is_large, halve)
    return cl.gradient(w.graph, of=w.x, wrt=[w.x], cotangent=1, program=loop)


def checked(of="y", wrt=("x",), *, own=lambda w: {}, **options):
    """Check the gradient of twice four numbers; `own` gives options that are made of the world."""

    def make(w):
        y = w.graph.add_variable("y", w.x.shape)
        w.graph.add_vertex("double", double, a=w.x, out=y)
        return cl.check_gradient(w.graph, of=of, wrt=wrt, values={"x": np.ones(4, np.float32)}, **options, **own(w))

    return make


@jax.custom_vjp
def _thrice(a):
    return 3 * a


_thrice.defvjp(lambda a: (3 * a, None), lambda _, g: (2 * g,))


def differentiated_wrongly(w):
    y = w.graph.add_variable("y", w.x.shape)
    w.graph.add_vertex("thrice", cl.codelet(lambda a: _thrice(a)), a=w.x, out=y)
    cl.check_gradient(w.graph, of=y, wrt=["x"], values={"x": np.ones(4, np.float32)})


LOWERING = [
    Mistake(
        "a rule with another slope",
        differentiated_wrongly,
        cl.GradientError,
        "has a wrong gradient with respect to its field 'a'\n  given:    d out[0] / d a[0] is 2, at vertex of thrice",
        "correct the jax.custom_vjp in it; where it is meant to differ, ignore=['<lambda>']",
    ),
    Mistake("a check of no vertices", checked(vertices=0), cl.ProgramError, "0", "an integer, 1 or more"),
    Mistake("a check along half a direction", checked(directions=0.5), cl.ProgramError, "0.5", "0 or more"),
    Mistake("a check to any error", checked(rtol=2), cl.ProgramError, "2", "a number between 0 and 1"),
    Mistake("a check that ignores a word", checked(ignore="double"), cl.ProgramError, "'double'", "a list of codelets"),
    Mistake("a check by a number", checked(wrt=2.0), cl.ProgramError, "2.0", "a variable's name"),
    Mistake("a check by what is not there", checked(wrt=["z"]), cl.NotInGraphError, "'z'", "x, y"),
    Mistake(
        "a check with too many cotangents",
        checked(cotangent=np.ones(5)),
        cl.ProgramError,
        "array([1., 1., 1., 1., 1.])",
        "numbers that broadcast to float32[4]",
    ),
    Mistake(
        "a gradient of a codelet that calls the host",
        differentiated(_from_the_host),
        cl.CodeletTraceError,
        "'_from_the_host' has no adjoint by its field 'a': ValueError: Pure callbacks do not support JVP",
        "a jax.custom_vjp around what has no derivative",
    ),
    Mistake(
        "a gradient of a codelet that loops as long as it takes",
        differentiated(_up_to_ten),
        cl.CodeletTraceError,
        "'_up_to_ten' has no adjoint by its field 'a': ValueError: Reverse-mode differentiation does not work",
        "a loop with a bound that is known",
    ),
    Mistake(
        "a gradient of a loop without a bound",
        _slope_of_a_loop,
        cl.ProgramError,
        "a loop without a bound is differentiated: values that its iterations overwrite must be saved",
        "cl.RepeatWhile(..., max_iterations=...), or cl.Repeat",
    ),
    Mistake(
        "a gradient of an integer",
        lambda w: cl.gradient(w.graph, of=w.graph.add_variable("n", (), "int32"), wrt=[w.x]),
        cl.ProgramError,
        "the tensor of= is not of floats",
        "hold it in a variable of floats",
    ),
    Mistake(
        "a gradient by a boolean",
        lambda w: cl.gradient(w.graph, of=w.x, wrt=[w.graph.add_variable("n", (), "bool")], cotangent=1),
        cl.ProgramError,
        "a tensor in wrt= is not of floats",
        "integers and booleans have none",
    ),
    Mistake(
        "a gradient by a stream",
        lambda w: cl.gradient(w.graph, of=w.x, wrt=[w.feed], cotangent=1, program=cl.Copy(w.feed, w.x)),  # type: ignore[list-item]
        cl.ProgramError,
        "feed: input stream",
        "the variable that its values are copied to or from",
    ),
    Mistake(
        "a gradient of several numbers",
        lambda w: cl.gradient(w.graph, of=w.x, wrt=[w.x]),
        cl.ProgramError,
        "`of` is not a single number, and no cotangent is given",
        "cotangent=..., of the same shape",
    ),
    Mistake(
        "a cotangent of another shape",
        lambda w: cl.gradient(w.graph, of=w.x, wrt=[w.x], cotangent=np.ones(3)),
        cl.ProgramError,
        "array([1., 1., 1.])",
        "a tensor of float32[4], or numbers that broadcast to that",
    ),
    Mistake(
        "a cotangent of integers",
        lambda w: cl.gradient(w.graph, of=w.x, wrt=[w.x], cotangent=w.graph.add_variable("n", (4,), "int32")),
        cl.ProgramError,
        "the cotangent is not of the type of `of`",
        "a tensor of float32[4]",
    ),
    Mistake(
        "a cotangent of another graph",
        lambda w: cl.gradient(w.graph, of=w.x, wrt=[w.x], cotangent=cl.Graph().add_variable("g", (4,))),
        cl.ForeignGraphError,
        "the cotangent belongs to another graph",
        "a tensor of float32[4]",
    ),
    Mistake(
        "a word for what is made again",
        lambda w: cl.gradient(w.graph, of=w.x, wrt=[w.x], cotangent=1, recompute="sqrt"),  # type: ignore[arg-type]
        cl.ProgramError,
        "given:    'sqrt'",
        "cl.Recompute.all(), every(k), sqrt()",
    ),
    Mistake(
        "a gradient by what is no tensor",
        lambda w: cl.gradient(w.graph, of=w.x, wrt={"x": w.x, "y": 3.0}, cotangent=1),
        cl.ProgramError,
        "a tensor in wrt= is not a tensor",
        "or a variable's name",
    ),
    Mistake(
        "a string for a lowered function",
        lambda w: cl.lower(_doubled)("abcd"),
        cl.ArrayError,
        "str: 'abcd'",
        "a keyword argument, which is static",
    ),
    Mistake(
        "keys for a lowered function",
        lambda w: cl.lower(_doubled)(jax.random.key(0)),
        cl.ArrayError,
        "key<fry>",
        "give jax.random.key_data(key)",
    ),
    Mistake(
        "too many arguments for a lowered function",
        lambda w: cl.lower(_doubled)(jnp.ones(4), jnp.ones(4)),
        cl.ArrayError,
        "too many positional arguments",
        "_doubled(graph, v), without the graph",
    ),
    Mistake(
        "too few arguments for a lowered function",
        lambda w: cl.lower(_doubled)(),
        cl.ArrayError,
        "missing a required argument: 'v'",
        "_doubled(graph, v), without the graph",
    ),
    Mistake(
        "a graph without inputs and outputs",
        lambda w: cl.lower(w.graph),
        cl.ProgramError,
        "lower(graph)",
        "inputs=[...], outputs=[...]",
    ),
]

# --- the engine -----------------------------------------------------------------------------------------


def _one_more(a):
    return {"a": a + 1}


def _built(graph, x):
    return x


def _engine(w: World, program=None, **options) -> cl.Engine:
    """An engine that adds one to `x`; `square` has no value."""
    assert w.one.size + w.square.size + len(w.feed.shape) + len(w.sent.shape) == 19
    w.graph.add_vertex("step", cl.codelet(_one_more), a=w.x[cl.grid(4)])
    made = cl.Engine(w.graph, program, **options)
    made.write({"x": np.zeros(4)})
    return made


def _fed(w: World, values=(), out=None) -> cl.Engine:
    """An engine that goes three times round a loop over streams."""
    made = _engine(w, cl.Repeat(3, [cl.Copy(w.feed, w.x), cl.Copy(w.x, w.sent)]))
    made.connect("feed", values)
    if out is not None:
        made.connect("sent", out)
    return made


def _again(w: World):
    engines: list[cl.Engine] = []
    engines.append(_fed(w, np.zeros((3, 4), "f"), lambda _: engines[0].read("x")))
    engines[0].run()


def _engine_mistakes() -> Iterator[Mistake]:
    nan, zeros = np.nan, np.zeros((2, 4), "f")
    e: type[cl.CodeletError] = cl.ProgramError
    yield Mistake("no graph", lambda w: cl.Engine(None), e, "NoneType: None", "a cl.Graph")
    yield Mistake("a graph's name", lambda w: cl.Engine("x"), e, "str: 'x'", "a cl.Graph")
    yield Mistake(
        "a builder for a graph", lambda w: cl.Engine(_one_more), e, "other than a graph", "call what builds it first"
    )
    yield Mistake("no programs", lambda w: cl.Engine(w.graph, {}), e, "no programs", "at least one, by name")
    yield Mistake("programs without names", lambda w: cl.Engine(w.graph, {1: []}), e, "no names", "by name")
    yield Mistake("an unknown execution", lambda w: cl.Engine(w.graph, execution="gpu"), e, "'gpu'", "'fused', 'tiles'")
    mesh, abstract = mesh_of(2), mesh_of(2).abstract_mesh
    over = lambda mesh, how="tiles": lambda w: cl.Engine(w.graph, execution=how, mesh=mesh)  # noqa: E731
    yield Mistake("a number of devices for a mesh", over(4), e, "int: 4", "a jax.sharding.Mesh of devices")
    yield Mistake("a mesh without devices", over(abstract), e, "no devices", "jax.make_mesh(")
    lower = lambda mesh: lambda w: cl.lower(w.graph, inputs=[], outputs=[], mesh=mesh)  # noqa: E731
    yield Mistake("lowered over a number", lower(4), e, "a mesh is not a mesh", "jax.make_mesh(")
    yield Mistake("lowered over a mesh without devices", lower(abstract), e, "no devices", "jax.make_mesh(")
    run = lambda **how: lambda w: cl.lower(w.graph, inputs=[w.x], outputs=[], mesh=mesh, **how)  # noqa: E731
    yield Mistake(
        "replicas along no axis", run(replicas="batch"), e, "replicas='batch', a mesh of 'a'", "jax.make_mesh("
    )
    yield Mistake("replicas of no mesh", lambda w: cl.lower(_built, replicas="a"), e, "no mesh", "jax.make_mesh(")
    yield Mistake("shared by nobody", run(shared=["x"]), e, "shared=['x']", 'replicas="batch"')
    yield Mistake("what is no input shared", run(replicas="a", shared=["y"]), e, "'y'", "names of inputs: 'x'")
    layer = cl.lower(_built, mesh=mesh, replicas="a")
    yield Mistake("no row for a replica", lambda w: layer(zeros[:1]), cl.ArrayError, "shape (1, 4)", "(2, ...)")
    yield Mistake("a mesh for addresses", over(mesh, "addresses"), e, "runs on one device", "'fused' or 'tiles'")
    yield Mistake("no placement", lambda w: cl.Engine(w.graph, placement=None), e, "placement=None", "'balanced'")
    yield Mistake("an unknown placement", lambda w: cl.Engine(w.graph, placement="best"), e, "'best'", "'balanced'")
    yield Mistake("bytes by a name", lambda w: cl.Engine(w.graph, stream_bytes="a"), e, "'a'", "a number of bytes")
    yield Mistake("half a byte", lambda w: cl.Engine(w.graph, stream_bytes=0.5), e, "0.5", "a number of bytes")
    yield Mistake("no bytes", lambda w: cl.Engine(w.graph, stream_bytes=0), e, "=0", "a number of bytes")
    yield Mistake("running what is not there", lambda w: _engine(w).run("train"), e, "train", "'main'")
    yield Mistake("running a number", lambda w: _engine(w).run(3), e, "3", "'main'")
    yield Mistake("running one of two", lambda w: _engine(w, {"a": [], "b": []}).run(), e, "several", "'a' or 'b'")
    yield Mistake(
        "inputs as a number", lambda w: _engine(w).function(inputs=3, outputs=[]), e, "list", "inputs=[x, ...]"
    )
    yield Mistake(
        "an output as a number", lambda w: cl.lower(w.graph, inputs=[], outputs=3), e, "list", "outputs=[x, ...]"
    )
    yield Mistake(
        "a view as an input",
        lambda w: _engine(w).function(inputs=[w.x[:2]], outputs=[]),
        e,
        "Tensor(float32[2] of x",
        "make the variable the input",
    )
    e = cl.ArrayError
    yield Mistake("writing a list", lambda w: _engine(w).write([1]), e, "list: [1]", 'engine.write({"x": array})')
    yield Mistake("writing a name", lambda w: _engine(w).write("x"), e, "str: 'x'", "a dict of arrays")
    yield Mistake("writing two of four", lambda w: _engine(w).write({"x": [1, 2]}), e, "int32[2]", "float32[4]")
    yield Mistake("writing text", lambda w: _engine(w).write({"x": "abc"}), e, "not an array", "float32[4]")
    yield Mistake("writing nothing", lambda w: _engine(w).write({"x": None}), e, "NoneType", "float32[4]")
    yield Mistake("writing two lengths", lambda w: _engine(w).write({"x": [[1], [2, 3]]}), e, "list", "float32[4]")
    yield Mistake("writing complex", lambda w: _engine(w).write({"x": zeros[0] * 1j}), e, "complex", "convert it")
    yield Mistake("writing a stream", lambda w: _engine(w).write({"feed": 1}), e, "a stream", "connect('feed', values)")
    yield Mistake("writing by a stream", lambda w: _engine(w).write({w.sent: 1}), e, "a stream", "connect('sent'")
    yield Mistake("writing padding", lambda w: _engine(w).write({w.x.pad(1): [0] * 6}), e, "padding", "no padding")
    yield Mistake("writing twice", lambda w: _engine(w).write({w.x[[0, 0]]: [1, 2]}), e, "twice", "every element once")
    yield Mistake("writing x twice", lambda w: _engine(w).write({"x": [0] * 4, w.x: [1] * 4}), e, "two arrays", "one")
    yield Mistake("writing a constant", lambda w: _engine(w).write({w.one: 2}), e, "constant 'one'", "a variable")
    yield Mistake(
        "writing under a trace",
        lambda w: jax.jit(lambda v: _engine(w).write({"x": v}))(zeros),
        e,
        "traced",
        ".function(",
    )
    yield Mistake(
        "values of another shape", lambda w: _fed(w).connect("feed", zeros[:, :3]), e, "float32[2,3]", "float32[2,4]"
    )
    yield Mistake("values of another dtype", lambda w: _fed(w, [[1] * 4] * 3).run(), e, "int64[4]", "np.asarray(...")
    yield Mistake("values of two lengths", lambda w: _fed(w, [[1, [2]]] * 3).run(), e, "object[]", "float32[4]")
    yield Mistake("loading a list", lambda w: _engine(w).load_state([1]), e, "no state", "engine.state")
    yield Mistake("loading a file's name", lambda w: _engine(w).load_state("a.npz"), e, "'a.npz'", "a dict of arrays")
    yield Mistake("loading one of four", lambda w: _engine(w).load_state({"x": [1.0]}), e, "[1]", "float32[4]")
    yield Mistake("loading a view", lambda w: _engine(w).load_state({w.x[0]: 1.0}), e, "whole variables", "the name")
    e = cl.NotInGraphError
    yield Mistake("writing what is not there", lambda w: _engine(w).write({"z": 1}), e, "'z'", "x")
    yield Mistake("writing by a number", lambda w: _engine(w).write({3: 1}), e, "int: 3", "a tensor")
    yield Mistake("writing a codelet", lambda w: _engine(w).write({double: 1}), e, "Codelet", "a tensor")
    yield Mistake("reading what is not there", lambda w: _engine(w).read("z"), e, "'z'", "x")
    yield Mistake("reading nothing", lambda w: _engine(w).read(None), e, "NoneType", "a tensor")
    yield Mistake("reading a compute set", lambda w: _engine(w).read(w.graph.compute_sets), e, "step", "a tensor")
    yield Mistake(
        "reading what came later",
        lambda w: _engine(w).read(w.graph.add_variable("later", ())),
        e,
        "added after",
        "a new Engine",
    )
    yield Mistake("connecting a variable", lambda w: _engine(w).connect("x", []), e, "a variable", "engine.write")
    yield Mistake("connecting what is not there", lambda w: _engine(w).connect("z", []), e, "z", "feed, sent")
    yield Mistake("nothing on a tile", lambda w: _engine(w).read_tile(0)["z"], e, "nothing of 'z'", "x")
    yield Mistake("keeping what is not there", lambda w: _engine(w).profile(host_visible=["z"]), e, "'z'", "x")
    yield Mistake("keeping a number", lambda w: _engine(w).profile(host_visible=3), e, "int: 3", "a tensor")
    yield Mistake(
        "reading of another graph",
        lambda w: _engine(w).read(cl.Graph().add_variable("x", ())),
        cl.ForeignGraphError,
        "another graph",
        "the graph that the engine was made of",
    )
    e = cl.ViewError
    yield Mistake("writing at a symbol", lambda w: _engine(w).write({w.x[cl.grid(4)]: 1}), e, "symbols", "numbers")
    yield Mistake("reading at a symbol", lambda w: _engine(w).read(w.x[cl.grid(4)]), e, "symbols", "numbers")
    e = cl.UninitializedReadError
    yield Mistake("reading too early", lambda w: _engine(w).read(w.square[0]), e, "square[0, 0]", "engine.write")
    e = cl.NotFiniteError
    yield Mistake(
        "writing NaN", lambda w: _engine(w, check_finite=True).write({w.x[1]: nan}), e, "nan at", "finite numbers"
    )
    e = cl.StreamError
    yield Mistake("reading what comes in", lambda w: _engine(w).read("feed"), e, "nothing to read", "an output stream")
    yield Mistake(
        "connecting a number", lambda w: _fed(w).connect("feed", 3), e, "gives no values", "an iterable of arrays"
    )
    yield Mistake(
        "connecting text", lambda w: _fed(w).connect("feed", "abc"), e, "gives no values", "an iterable of arrays"
    )
    yield Mistake(
        "connecting a dict", lambda w: _fed(w).connect("feed", {"a": 1}), e, "gives no values", "an iterable of arrays"
    )
    yield Mistake(
        "connecting a list to an output", lambda w: _fed(w).connect("sent", [1]), e, "takes no values", "a function"
    )
    yield Mistake("too few values", lambda w: _fed(w, zeros).run(), e, "ended after 2", "connect more values")
    yield Mistake("nothing connected", lambda w: _engine(w, cl.Copy(w.feed, w.x)).run(), e, "not connected", "connect(")
    e = cl.TensorError
    yield Mistake(
        "writing a tensor", lambda w: _engine(w).write({"x": w.x}), e, "a tensor has no", "engine.read(tensor)"
    )
    e = cl.EngineInUseError
    yield Mistake("a sink that uses its engine", _again, e, "within its own engine.run", "once the run is over")
    e = cl.TileError
    yield Mistake("half a tile in a trace", lambda w: _engine(w).profile().chrome_trace([1.5]), e, "1.5", "0 to 7")
    yield Mistake("a letter for a count", lambda w: _engine(w).profile().fullest_tiles("a"), e, "'a'", "from 0")
    yield Mistake("a boolean for a tile", lambda w: _engine(w).read_tile(True), e, "True", "0 to 7")
    e = cl.FigureError
    yield Mistake("a list of figures", lambda w: _engine(w).profile().plot(["live"]), e, "no such", "memory, live")
    yield Mistake("no axes", lambda w: _engine(w).profile().plot("live", 3), e, "int: 3", "matplotlib")


ENGINE: list[Mistake] = list(_engine_mistakes())

# --- the machine: placement, memory, cycles, profiles ---------------------------------------------------


def mapped(tile: object, of: Callable[[World], object] = lambda w: w.x) -> Callable[[World], object]:
    """Say on which tiles a tensor lives."""
    return lambda w: w.graph.set_tile_mapping(of(w), tile)  # type: ignore[arg-type]


def placed(**options: Any) -> Callable[[World], object]:
    """Ask for the profile of a graph."""
    return lambda w: cl.Engine(w.graph).profile(**options)


MACHINE = [
    Mistake("half a tile", mapped(1.5), cl.TileError, "1.5", "an integer"),
    Mistake("a tile in words", mapped("first"), cl.TileError, "'first'", "an integer"),
    Mistake("a tile that is true", mapped(True), cl.TileError, "True", "an integer"),
    Mistake("tiles as floats", mapped(np.ones(4)), cl.TileError, "array([1., 1., 1., 1.])", "an integer"),
    Mistake("too few tiles", mapped(np.zeros(3, int)), cl.TileError, "shape (3,)", "an array of shape (4,)"),
    Mistake("a tile beyond the last", mapped(8), cl.TileError, "8", "0 to 7"),
    Mistake("a tile before the first", mapped(np.array([0, 1, -1, 2])), cl.TileError, "-1", "0 to 7"),
    Mistake(
        "a mapping of a name that is not there", mapped(1, of=lambda w: "z"), cl.NotInGraphError, "'z'", "no variables"
    ),
    Mistake("a mapping of padding", mapped(0, lambda w: w.x.pad(1)), cl.TileError, "padding", "that was padded"),
    Mistake(
        "a mapping by a symbol of something else",
        lambda w: w.graph.set_tile_mapping(w.x, cl.grid(4)),
        cl.TileError,
        "a symbol that its tensor does not have",
        "graph.set_tile_mapping(x[i], i // 4)",
    ),
    Mistake(
        "constraints on nothing",
        lambda w: w.graph.place(),
        cl.PlacementError,
        "neither `together=` nor `apart=`",
        "graph.place(together=[x[i], y[i]])",
    ),
    Mistake(
        "a tensor in the place of a list",
        lambda w: w.graph.place(apart=w.x),  # type: ignore[arg-type]
        cl.PlacementError,
        "float32",
        "graph.place(apart=[x[i], y[i]])",
    ),
    Mistake(
        "elements laid on no tiles",
        lambda w: w.graph.map_linearly(w.x, tiles=[]),
        cl.TileError,
        "[]",
        "one tile at least",
    ),
    Mistake("a placement in other words", placed(placement="best"), cl.ProgramError, "'best'", "'rows', 'blocks'"),
    Mistake(
        "a placement of nothing",
        placed(placement=lambda: None),
        cl.ProgramError,
        "too many positional arguments",
        "def placement(plan)",
    ),
    Mistake("a placement that is a number", placed(placement=3), cl.ProgramError, "3", "'rows', 'blocks'"),
    Mistake(
        "a function that places nothing",
        placed(placement=lambda plan: None),
        cl.ProgramError,
        "NoneType",
        "lowering.machine.placement.Placement",
    ),
    Mistake(
        "an engine placed in other words",
        lambda w: cl.Engine(w.graph, execution="tiles", placement="best"),  # type: ignore[arg-type]
        cl.ProgramError,
        "'best'",
        "'breadth_first', or a function",
    ),
    Mistake("half a tile to read", lambda w: cl.Engine(w.graph).read_tile(1.5), cl.TileError, "1.5", "0 to 7"),  # type: ignore[arg-type]
    Mistake("a tile to read beyond", lambda w: cl.Engine(w.graph).read_tile(8), cl.TileError, "8", "0 to 7"),
    Mistake(
        "half a tile's memory",
        lambda w: cl.Engine(w.graph).machine().memory.tile_text(1.5),  # type: ignore[arg-type]
        cl.TileError,
        "1.5",
        "an integer, 0 to 7",
    ),
    Mistake(
        "a trace of a tile that is true",
        lambda w: cl.Engine(w.graph).profile().chrome_trace([True]),
        cl.TileError,
        "True",
        "an integer, 0 to 7",
    ),
    Mistake(
        "a trace in a folder that is not there",
        lambda w: cl.Engine(w.graph).profile().write_trace("no such folder/trace.json"),
        cl.FileError,
        "no such folder/trace.json",
        "a folder that is there",
    ),
    Mistake(
        "something kept that is not there",
        lambda w: cl.Engine(w.graph).machine(host_visible=["nothing"]),
        cl.NotInGraphError,
        "nothing",
        "variable",
    ),
]


def graded(of: object = "y", wrt: object = ("x",), *, own=lambda w: {}, **options):
    """The gradient of twice four numbers; `own` gives options that are made of the world."""

    def make(w):
        y = w.graph.add_variable("y", w.x.shape)
        w.graph.add_vertex("twice", double, a=w.x, out=y)
        return cl.gradient(w.graph, of=of, **{"wrt": wrt, "cotangent": 1.0, **options, **own(w)})

    return make


def _elsewhere(shape=(4,), dtype="float32"):
    return cl.Graph().add_variable("elsewhere", shape, dtype)


def adjoint_of_double(fields=None, **options):
    return lambda w: double.adjoint({"a": jnp.ones(3)} if fields is None else fields, **options)


def gradient_of_traced(w):
    traced = cl.trace(lambda a: jnp.sum(a * a), jnp.ones(3))
    return cl.gradient(traced, of="sum", wrt=["x"])  # type: ignore[arg-type]


def adjoint_vertices_of_other_shapes(w):
    adjoint = double.adjoint({"a": jnp.ones(3)})
    i = cl.grid(4)
    w.graph.add_vertex("adjoint", adjoint, d_out=w.x[i])


def gradient_with_a_traced_cotangent(w):
    jax.jit(lambda own: cl.gradient(w.graph, of=w.x, wrt=["x"], cotangent=own))(jnp.ones(4))


def gradient_that_was_not_asked_for(w):
    return graded()(w)[w.graph.variable("y")]


def gradient_by_part(w):
    return graded()(w)[w.x[:2]]


def gradient_by_number(w):
    return graded()(w)[0]


def gradient_elsewhere(w):
    return graded()(w)[_elsewhere()]


GRADIENTS: list[Mistake] = [
    Mistake(
        "a gradient in what is traced",
        gradient_of_traced,
        cl.ProgramError,
        "other than a graph",
        "traced.graph, traced.program",
    ),
    Mistake("a gradient by numbers", graded(wrt=[np.ones(4)]), cl.ProgramError, "array([1.", "a variable's name"),
    Mistake("a gradient by nothing", graded(wrt=None), cl.ProgramError, "None", "a tensor of the graph"),
    Mistake("a gradient by a name of nothing", graded(wrt=["xx"]), cl.NotInGraphError, "'xx'", "x, y"),
    Mistake(
        "a gradient by what is elsewhere",
        graded(own=lambda w: {"wrt": [_elsewhere()]}),
        cl.ForeignGraphError,
        "a tensor in wrt= belongs to another graph",
        "a tensor of this graph",
    ),
    Mistake(
        "a gradient by what depends on a symbol",
        graded(own=lambda w: {"wrt": [w.x[cl.grid(4)]]}),
        cl.ProgramError,
        "a tensor in wrt= depends on a symbol",
        "name the whole range: x, and not x[i]",
    ),
    Mistake("a gradient of numbers", graded(of=np.ones(())), cl.ProgramError, "array(1.)", "a tensor of the graph"),
    Mistake(
        "a gradient of several", graded(cotangent=None), cl.ProgramError, "not a single number", "cotangent=..., of the"
    ),
    Mistake(
        "a cotangent of other numbers",
        graded(cotangent=np.ones(5)),
        cl.ProgramError,
        "array([1., 1., 1., 1., 1.])",
        "numbers that broadcast to that",
    ),
    Mistake(
        "a cotangent that is complex", graded(cotangent=1j), cl.ProgramError, "1j", "numbers that broadcast to that"
    ),
    Mistake("a cotangent by a name of nothing", graded(cotangent="ones"), cl.NotInGraphError, "'ones'", "x, y"),
    Mistake(
        "a cotangent of a part",
        graded(own=lambda w: {"cotangent": w.x[:2]}),
        cl.ProgramError,
        "Tensor(float32[2] of x",
        "a tensor of float32[4]",
    ),
    Mistake(
        "a cotangent that is of integers",
        graded(own=lambda w: {"cotangent": w.whole}),
        cl.ProgramError,
        "not of the type of `of`",
        "a tensor of float32[4]",
    ),
    Mistake(
        "a cotangent of elsewhere",
        graded(own=lambda w: {"cotangent": _elsewhere()}),
        cl.ForeignGraphError,
        "the cotangent belongs to another graph",
        "a tensor of float32[4]",
    ),
    Mistake(
        "a cotangent that is traced",
        gradient_with_a_traced_cotangent,
        cl.ProgramError,
        "the cotangent has no numbers yet",
        "it may be a variable",
    ),
    Mistake(
        "a policy that is a word", graded(recompute="sqrt"), cl.ProgramError, "'sqrt'", "cl.Recompute.all(), every(k)"
    ),
    Mistake(
        "a policy that is not called",
        graded(recompute=cl.Recompute.sqrt),
        cl.ProgramError,
        "Recompute.sqrt",
        "call it: cl.Recompute.sqrt(",
    ),
    Mistake("a policy that there is not", lambda w: cl.Recompute("root"), cl.ProgramError, "'root'", "sqrt"),  # type: ignore[arg-type]
    Mistake("a policy of every half", lambda w: cl.Recompute.every(0.5), cl.ProgramError, "0.5", "a positive number"),  # type: ignore[arg-type]
    Mistake(
        "a policy of every minus one", lambda w: cl.Recompute.every(-1), cl.ProgramError, "-1", "a positive number"
    ),
    Mistake(
        "a policy of no scopes", lambda w: cl.Recompute.scopes(), cl.ProgramError, "()", "scopes('layer*', 'head')"
    ),
    Mistake(
        "a policy of a list of scopes",
        lambda w: cl.Recompute.scopes(["a"]),  # type: ignore[arg-type]
        cl.ProgramError,
        "['a']",
        "scopes('layer*', 'head')",
    ),
    Mistake(
        "a policy of scopes that there are not",
        graded(recompute=cl.Recompute.scopes("layer*")),
        cl.ProgramError,
        "layer*",
        "scopes of what runs outside of loops: twice",
    ),
    Mistake(
        "the gradient by another", gradient_that_was_not_asked_for, cl.ProgramError, "of y: f0", "with it in `wrt`"
    ),
    Mistake("the gradient by a part", gradient_by_part, cl.ProgramError, "float32[2] of x", "found[x][...]"),
    Mistake("the gradient by its number", gradient_by_number, cl.ProgramError, "0", "Tensor(float32[4] of x"),
    Mistake(
        "the gradient of elsewhere", gradient_elsewhere, cl.ForeignGraphError, "elsewhere", "the graph of the gradient"
    ),
    Mistake(
        "a check with a tensor for a cotangent",
        checked(own=lambda w: {"cotangent": w.x}),
        cl.ProgramError,
        "the cotangent has no numbers yet",
        "numbers that broadcast to float32[4]",
    ),
    Mistake("a check with a word for a seed", checked(seed="a"), cl.ProgramError, "'a'", "an integer, 0 or more"),
    Mistake("a check that ignores nothing", checked(ignore=None), cl.ProgramError, "None", "a list of codelets"),
    Mistake("a check that ignores no codelet", checked(ignore=["twise"]), cl.ProgramError, "twise", "double"),
    Mistake(
        "an adjoint of fields without names", adjoint_of_double([1]), cl.MissingFieldError, "[1]", "a dict of arrays"
    ),
    Mistake("an adjoint of a shape", adjoint_of_double({"a": (3,)}), cl.FieldTypeError, "(3,)", "jax.ShapeDtypeStruct"),
    Mistake("an adjoint by a name alone", adjoint_of_double(wrt="a"), cl.UnknownFieldError, "'a'", "a list: wrt=['a']"),
    Mistake("an adjoint of a name alone", adjoint_of_double(of="out"), cl.UnknownFieldError, "'out'", "of=['out']"),
    Mistake("an adjoint by no field", adjoint_of_double(wrt=["b"]), cl.UnknownFieldError, "'b'", "a"),
    Mistake(
        "an adjoint of integers",
        adjoint_of_double({"a": jnp.ones(3, int)}),
        cl.CodeletTraceError,
        "a: int32[3]",
        "of which some depend on each other",
    ),
    Mistake(
        "an adjoint that is called with another shape",
        lambda w: double.adjoint({"a": jnp.ones(3)})(d_out=jnp.ones(4)),
        cl.FieldTypeError,
        "float32[4]",
        "double.adjoint(...) makes one",
    ),
    Mistake(
        "vertices of an adjoint for another shape",
        adjoint_vertices_of_other_shapes,
        cl.FieldTypeError,
        "its field 'd_out'",
        "float32[3]",
    ),
]


def _lines(code: CodeType) -> Iterator[int]:
    """The lines of a function, and of those defined in it."""
    yield from (number for _, _, number in code.co_lines() if number)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _lines(constant)


SECTIONS: list[list[Mistake]] = [SYMBOLS, TENSORS, CODELETS, GRAPH, PROGRAMS, LOWERING, ENGINE, MACHINE, GRADIENTS]
MISTAKES = [mistake for section in SECTIONS for mistake in section]


def see_that_it_is_told(mistake: Mistake, world: World) -> None:
    """Make a mistake, and read the error."""
    with pytest.raises(cl.CodeletError) as caught:
        mistake.make(world)
    error, message = caught.value, str(caught.value)
    assert type(error) is mistake.error, message
    told, _, at = message.rpartition("\n  at: ")
    given, *advice = re.split(r"\n  (?:expected|fix):", told)
    assert mistake.given in given, message
    assert advice, message
    assert mistake.do in " ".join(advice), message
    place = re.search(rf"{re.escape(mistake.make.__code__.co_filename)}:(\d+)", at)
    assert place, message
    assert int(place[1]) in set(_lines(mistake.make.__code__)), message


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.name for mistake in MISTAKES])
def test_a_mistake_is_told(mistake):
    see_that_it_is_told(mistake, World(cl.Graph(cl.IPU(num_tiles=8))))


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (differentiated(_from_the_host), "made = w.graph.add_vertex("),
        (differentiated(_up_to_ten), "made = w.graph.add_vertex("),
        (_slope_of_a_loop, "loop = cl.RepeatWhile("),
    ],
)
def test_what_has_no_derivative_is_told_where_it_was_added(make, line):
    with pytest.raises(cl.CodeletError) as caught:
        make(World(cl.Graph(cl.IPU(num_tiles=8))))
    assert line in str(caught.value).rpartition("\n  at: ")[2]


def test_each_mistake_has_a_name_of_its_own():
    names = [mistake.name for mistake in MISTAKES]
    assert len(set(names)) == len(names)
