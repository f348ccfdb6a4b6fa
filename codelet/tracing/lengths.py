"""Lengths: the symbols that stand for those of ragged fields, and the questions about them while a codelet is traced.

JAX answers `n == 3` for a symbol `n` with no: it has to answer something, and its caches ask. Other questions it
answers for all lengths at once, or not at all. So the answers that may be wrong at a length are the equalities that
were denied, and a few unknown ones. These are the lookup of a length in a dict, its text, a test of its type. All of
them are seen by Python's means to see which functions run (`sys.setprofile`); where these are taken, by a profiler,
nothing is known, and every length is looked at. A test of a type that calls no function (`match` with `case int()`) is
not seen.

These questions only say at which lengths to compare two traces, and never the result: caches of JAX ask by chance as
well, as hashes collide.
"""

from __future__ import annotations

import functools
import gc
import numbers
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import jax.export
import numpy as np

from codelet.jaxprs.symbolic_sizes import parsed_size
from codelet.tracing.cases import greatest, least
from codelet.views.rows import LENGTH_NAMES

Result = TypeVar("Result")

Symbol = type(jax.export.symbolic_shape("n")[0])
"""The type of sizes that are not known: of symbols for lengths, and of what is computed from them."""


def fresh_lengths(least: int = 1) -> tuple[Any, ...]:
    """Sizes that stand for lengths in one trace alone, so that no cache of JAX knows an answer about them.

    Args:
        least: the least value of the first; the others are at least 1.
    """
    return tuple(jax.export.symbolic_shape(", ".join(LENGTH_NAMES), constraints=[f"{LENGTH_NAMES[0]} >= {least}"]))


@functools.cache
def length_symbols() -> tuple[Any, ...]:
    """Sizes that stand for the lengths of ragged fields in their types."""
    return fresh_lengths()


def is_length(size: Any) -> bool:
    """Whether a size is a symbol for a length, and not computed from one."""
    return isinstance(size, Symbol) and str(size) in LENGTH_NAMES


def size_at(size: Any, lengths: Mapping[str, Any]) -> Any:
    """A size where symbols stand for lengths.

    By its text, whose grammar is that of `jax.export.symbolic_shape`: JAX has no public way to ask. Nothing is
    evaluated by Python: symbols may be those of a codelet that was read from a file.

    Args:
        size: a number, a symbol, or an expression of symbols; or the text of one.
        lengths: the value of each symbol, by name: a number, or an array of them.
    """
    if not isinstance(size, (Symbol, str)):
        return size
    return parsed_size(str(size))(lengths)


_OF_NUMBERS = {"floordiv": operator.floordiv, "mod": operator.mod, "max": greatest, "min": least}


def numbers_of(sizes: Sequence[Any]) -> Callable[[Mapping[str, Any]], Sequence[Any]]:
    """Sizes, all of them at once, as a function of their symbols' values, by name: numbers, or `Many`.

    >>> import jax
    >>> n, m = jax.export.symbolic_shape("n, m")
    >>> numbers_of([n, 2 * n + m])({"n": 3, "m": 1})
    (3, 7)
    """
    text = "".join(f"{size}, ".replace("^", "**") for size in sizes)
    code = compile(f"({text})", "sizes", "eval")
    names = {"__builtins__": {}, **_OF_NUMBERS}
    return lambda symbols: eval(code, names, dict(symbols))


_ASKED = {
    id(method.__code__): name
    for name, method in vars(Symbol).items()
    if hasattr(method, "__code__") and name.startswith("__") and name not in ("__init__", "__new__")
}
"""Methods of symbols by the identity of their code, which the class keeps: its hash is made anew at every look-up."""

_TOLD = ("__hash__", "__str__", "__repr__", "__format__", "__reduce__", "__reduce_ex__", "__getstate__")
"""What tells everything of a symbol, so that nobody knows what is made of it."""

_NEEDED = {"__eq__", "__hash__", "__str__", "__repr__", "__ge__", "__gt__", "__le__", "__lt__"}
_JAX = {"jax", "jaxlib"}
_LIBRARIES = {"codelet", "lowering", "ml_dtypes", "numpy", "opt_einsum", "typing_extensions"}
_KNOWN = {*_JAX, *_LIBRARIES, *(sys.stdlib_module_names - {"__main__"})}
"""What tests types for reasons of its own."""

_NO_NUMBERS = (str, bytes, tuple, list, dict, set, frozenset, type, np.dtype, type(None))


def _equals_no_length(given: Any) -> bool:
    """Whether something equals no length, known or not: caches compare all kinds of keys when their hashes are close.

    So do values that are equal to themselves alone, and objects of JAX and other libraries that are no numbers. Where
    in memory such keys lie, by which they are hashed, differs from run to run.
    """
    kind = type(given)
    is_number = isinstance(given, numbers.Number) or hasattr(given, "__index__")
    is_key = kind.__eq__ is object.__eq__ or kind.__module__.split(".")[0] in _KNOWN
    return isinstance(given, _NO_NUMBERS) or (is_key and not is_number)


FEW = 4
"""Up to so many lengths that occur, every one is looked at."""


@dataclass
class Answers:
    """The answers about symbols.

    Attributes:
        denied: the text of a size, and a number or the text of another, that were said not to be equal.
        are_all: whether nothing else was asked whose answer may depend on a length.
    """

    denied: set[tuple[str, Any]] = field(default_factory=set)
    are_all: bool = True

    def hold_at(self, lengths: Mapping[str, int]) -> bool:
        """Whether they are right where the symbols of these names stand for these lengths."""
        try:
            return self.are_all and not any(size_at(a, lengths) == size_at(b, lengths) for a, b in self.denied)
        except ZeroDivisionError:  # there is no such size here, as `5 // n` at 0
            return False

    def doubted(self, lengths: Sequence[Mapping[str, int]]) -> list[int]:
        """The places in a list, the shortest first, of lengths that may be treated otherwise than the symbols say.

        These are where the answers do not hold, and the ends, since not everything is seen; where there are but a few,
        all of them.
        """
        if len(lengths) <= FEW:
            return [*range(len(lengths))]
        return [k for k, own in enumerate(lengths) if k in (0, len(lengths) - 1) or not self.hold_at(own)]


def watched(function: Callable[[], Result], symbols: Sequence[Any] = ()) -> tuple[Result, Answers]:
    """The result of a function, and the answers about symbols while it ran: about those of one trace, if given."""
    answers, scopes = Answers(), {id(getattr(own, "scope", None)) for own in symbols}
    if sys.getprofile() is not None or not set(_ASKED.values()) >= _NEEDED:
        answers.are_all = False
        return function(), answers
    denied: list[tuple[Any, Any]] = []

    def outside(frame: Any, known: set[str]) -> bool:
        return frame is not None and str(frame.f_globals.get("__name__")).split(".")[0] not in known

    def look(frame: Any, event: str, given: Any) -> None:
        if event == "return":
            name = _ASKED.get(id(frame.f_code))
            if name is None:
                return
            if name == "__eq__" and given is False:
                denied.append((frame.f_locals["self"], frame.f_locals["other"]))
            elif given is None or (name in _TOLD and outside(frame.f_back, _JAX)):
                answers.are_all = False
        elif event == "c_call" and given is isinstance and outside(frame, _KNOWN):
            answers.are_all = False

    collects = gc.isenabled()
    gc.disable()  # it may run what others wrote to be run when an object goes, at any time
    sys.setprofile(look)
    try:
        result = function()
    finally:
        sys.setprofile(None)
        if collects:
            gc.enable()
    for a, b in denied:
        of = [getattr(own, "scope", None) for own in (a, b) if isinstance(own, Symbol)]
        if of[0] is not of[-1] or (scopes and id(of[0]) not in scopes):
            continue  # of an earlier trace, whose types are keys of JAX's caches
        if isinstance(b, (Symbol, int, float, np.number)):
            answers.denied.add((str(a), str(b) if isinstance(b, Symbol) else b))
        elif not _equals_no_length(b):
            answers.are_all = False
    return result, answers
