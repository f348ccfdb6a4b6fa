"""Captured: a function as it is now, whatever becomes of the numbers around it.

In comes a function that may use variables of the function it is written in, or globals of its module. Out comes the
same code with copies of these variables, so that it means later what it means now; a key that distinguishes it from the
function at other times; and the objects to check to see whether anything has changed since. Functions that it calls by
such names are taken along, where they are of the same module or have variables.

Known weakness: names are frozen, and arrays of NumPy's copied, those in tuples too. But a list, a dict, an object, a
class or a module stays the user's, since a codelet may append to it; a change inside it is seen where the function
runs, not where it was traced, and `unchanged.py` finds the difference. A name that the function assigns to itself
(`global`, `nonlocal`) stays the user's as well, and modules and classes of libraries are assumed to be unchanged. The
arrays that `jax.jit` keeps are JAX's. So are its caches for arrays that are kept there, or in a list, a dict or an
object, from when other numbers of bits were allowed.
"""

from __future__ import annotations

import dis
import enum
import functools
import operator
import sys
from collections.abc import Callable, Hashable, Iterable
from dataclasses import is_dataclass
from decimal import Decimal
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import jax
import numpy as np

from codelet.tracing.statics import static_key

_MISSING = object()
"""What a name that stands for nothing yet holds."""

_TAKEN_AS_THEY_ARE = ModuleType, type, BuiltinFunctionType

_FUNCTIONS = FunctionType, type(jax.jit(abs)), np.ufunc
"""Types of what is called and holds nothing but code."""

_LIBRARIES = sys.stdlib_module_names | {"codelet", "jax", "jaxlib", "ml_dtypes", "numpy"}
"""Packages whose modules and classes nobody changes."""

_PLAIN = (bool, int, float, complex, str, bytes, type(None), tuple, frozenset, range, slice, np.generic, np.dtype)
_PLAIN = (*_PLAIN, Decimal, enum.Enum)
"""What is the same where it is equal, type by type."""


class Captured(NamedTuple):
    """A function as it is at a time.

    Attributes:
        function: computes later the same as the original now; the original itself where it uses no such names.
        key: equal where nothing that was captured tells two times apart, and its parts are alive.
        cells: variables of functions around it, with their values.
        names: globals, with their values.
        arrays: arrays, with copies.
        may_hold_more: whether its captured values may change inside: it has arrays, lists, dicts, objects, or a class
            or a module of the user's.
    """

    function: Any
    key: Hashable
    cells: list[tuple[CellType, Any]]
    names: list[tuple[dict[str, Any], str, Any]]
    arrays: list[tuple[np.ndarray, np.ndarray]]
    may_hold_more: bool

    @property
    def is_empty(self) -> bool:
        """Whether nothing that could change was captured."""
        return not self.cells and not self.names

    def holds(self) -> bool:
        """Whether everything is still as it was."""
        for cell, value in self.cells:
            if _contents(cell) is not value:
                return False
        for where, name, value in self.names:
            if where.get(name, _MISSING) is not value:
                return False
        return all(_array_key(array) == _array_key(copy) for array, copy in self.arrays)


class Capturing:
    """An object that runs functions that may capture something: a codelet."""

    def frozen(self) -> Capturing:
        """It as it is now."""
        raise NotImplementedError

    @property
    def captured(self) -> tuple[Captured, ...]:
        """Its functions, as they were when it was frozen last."""
        raise NotImplementedError


class _UsedNames(NamedTuple):
    """The names that code, with the functions written in it, loads from globals and assigns to outside itself."""

    loaded: tuple[str, ...]
    assigned: frozenset[str]
    cells_assigned: frozenset[str]


@functools.lru_cache(maxsize=4096)
def _uses(code: CodeType) -> _UsedNames:
    loaded: dict[str, None] = {}
    assigned, cells_assigned = set(), set()
    for instruction in dis.get_instructions(code):
        match instruction.opname:
            case "LOAD_GLOBAL" | "LOAD_NAME":
                loaded[instruction.argval] = None
            case "STORE_GLOBAL" | "DELETE_GLOBAL":
                assigned.add(instruction.argval)
            case "STORE_DEREF" | "DELETE_DEREF":
                cells_assigned.add(instruction.argval)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            own = _uses(inner)
            loaded.update(dict.fromkeys(own.loaded))
            assigned |= own.assigned
            cells_assigned |= own.cells_assigned
    return _UsedNames(tuple(loaded), frozenset(assigned), frozenset(cells_assigned))


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def _array_key(array: np.ndarray) -> Hashable:
    return array.dtype.name, array.dtype.str, array.shape, array.tobytes()


def _is_users(held: Any) -> bool:
    """Whether something is a class or a module of no library's."""
    home = held.__name__ if isinstance(held, ModuleType) else held.__module__ if isinstance(held, type) else "builtins"
    return home.split(".")[0] not in _LIBRARIES


def _is_of_library(held: Any) -> bool:
    """Whether something is a function of a library's, as Python or JAX makes them."""
    return isinstance(held, _FUNCTIONS) and (held.__module__ or "").split(".")[0] in _LIBRARIES


def _is_plain(parts: Iterable[Any]) -> bool:
    """Whether all parts of something are numbers, text and the like."""
    return {*map(type, parts)} <= {bool, int, float, complex, str, bytes, type(None)}


def _own_function(function: Any) -> FunctionType | None:
    """The Python function that something callable runs."""
    while isinstance(function, (functools.partial, MethodType)):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    return function if isinstance(function, FunctionType) else None


class _Freezing:
    """One walk through the captured values of a function, and through theirs."""

    def __init__(self, home: dict[str, Any] | None, copied: Callable[[np.ndarray], np.ndarray] = np.copy):
        self.home, self.copied = home, copied
        self.within: dict[int, Any] | None = None  # copies of lists, dicts and objects, where these are made
        self.frozen_home: dict[str, Any] | None = None
        self.cells: list[tuple[CellType, Any]] = []
        self.names: list[tuple[dict[str, Any], str, Any]] = []
        self.arrays: list[tuple[np.ndarray, np.ndarray]] = []
        self.functions: dict[int, tuple[Any, int]] = {}
        self.keys_of_names: dict[str, Hashable] = {}
        self.may_hold_more = False

    def value(self, held: Any) -> tuple[Any, Hashable]:
        """The later replacement of a value, and its key."""
        if isinstance(held, FunctionType):
            return self.function(held)
        if type(held) is functools.partial:
            inner, key = self.value(held.func)
            args, keys = zip(*map(self.value, held.args), strict=True) if held.args else ((), ())
            named = {name: self.value(part) for name, part in held.keywords.items()}
            frozen = functools.partial(inner, *args, **{name: part for name, (part, _) in named.items()})
            same = inner is held.func and all(map(operator.is_, args, held.args))
            same = same and all(part is held.keywords[name] for name, (part, _) in named.items())
            values = (*keys, *(key for _, key in named.values()))
            return held if same else frozen, ("partial", key, values, tuple(held.keywords))
        if isinstance(held, MethodType):
            self.may_hold_more = True
            inner, key = self.value(held.__func__)
            own = held.__self__ if self.within is None else self.value(held.__self__)[0]
            same = inner is held.__func__ and own is held.__self__
            return held if same else MethodType(inner, own), (key, id(held.__self__))
        if isinstance(held, Capturing):
            frozen = held.frozen()
            for part in held.captured:
                self.cells += part.cells
                self.names += part.names
                self.arrays += part.arrays
                self.may_hold_more |= part.may_hold_more
            return frozen, ("codelet", id(frozen))
        if type(held) is np.ndarray and held.dtype != object:
            copy = self.copied(held)
            self.arrays.append((held, copy))
            self.may_hold_more = True  # to JAX, which may remember it as it was
            return copy, ("array", _array_key(copy))
        if self.within is not None:
            return self.copy_within(held, self.within), ("object", id(held))
        if type(held) is tuple and not _is_plain(held):  # which is what its parts are
            parts = [self.value(part) for part in held]
            same = all(own is part for (own, _), part in zip(parts, held, strict=True))
            return held if same else tuple(own for own, _ in parts), ("tuple", *(key for _, key in parts))
        if isinstance(held, _PLAIN) or is_dataclass(held):
            try:
                return held, static_key(held)
            except TypeError:  # it holds something that may change
                pass
        self.may_hold_more |= not _is_of_library(held)
        return held, ("object", id(held))

    def copy_within(self, held: Any, made: dict[int, Any]) -> Any:
        """A list, a tuple, a dict or an object of a class of the user's, with the replacements of its parts."""
        if id(held) in made:
            return made[id(held)]
        if type(held) in (list, tuple) and not _is_plain(held):
            made[id(held)] = own = [*held]
            own[:] = [self.value(part)[0] for part in held]
            made[id(held)] = own = own if type(held) is list else tuple(own)
            return own
        if type(held) is dict and not _is_plain(held.values()):
            made[id(held)] = own = dict(held)
            own.update((name, self.value(part)[0]) for name, part in held.items())
            return own
        if type(held).__reduce_ex__ is object.__reduce_ex__ and hasattr(held, "__dict__") and _is_users(type(held)):
            made[id(held)] = own = object.__new__(type(held))
            vars(own).update((name, self.value(part)[0]) for name, part in vars(held).items())
            return own
        return held

    def function(self, held: FunctionType) -> tuple[Any, Hashable]:
        """A function with its variables as they are now."""
        if id(held) in self.functions:
            return self.functions[id(held)][0], ("again", self.functions[id(held)][1])
        uses = _uses(held.__code__)
        at_home = held.__globals__ is self.home and not uses.assigned
        self.may_hold_more |= bool(uses.assigned) or (held.__globals__ is not self.home and not _is_of_library(held))
        own_names = [name for name in uses.loaded if at_home and self.may_change(name)]
        defaults = [self.value(value) for value in held.__defaults__ or ()]
        named = {name: self.value(value) for name, value in (held.__kwdefaults__ or {}).items()}
        given = (*(held.__defaults__ or ()), *(held.__kwdefaults__ or {}).values())
        own_defaults = not all(
            own is value for (own, _), value in zip((*defaults, *named.values()), given, strict=True)
        )
        if not own_names and not held.__closure__ and not own_defaults:
            self.functions[id(held)] = held, len(self.functions)
            if held.__globals__ is not self.home:
                return held, ("function", id(held))
        frozen, cells = held, held.__closure__ or ()
        if own_names or cells or own_defaults:
            if own_names and self.frozen_home is None:
                self.frozen_home = dict(self.home or {})
            where = self.frozen_home if own_names and self.frozen_home is not None else held.__globals__
            kept = [name in uses.cells_assigned or _contents(cell) is _MISSING for name, cell in _named_cells(held)]
            copies = tuple(cell if keep else CellType() for cell, keep in zip(cells, kept, strict=True))
            frozen = FunctionType(held.__code__, where, held.__name__, held.__defaults__, copies)
            frozen.__defaults__ = None if held.__defaults__ is None else tuple(own for own, _ in defaults)
            frozen.__kwdefaults__ = {name: own for name, (own, _) in named.items()} or held.__kwdefaults__
            frozen.__qualname__, frozen.__module__, frozen.__doc__ = held.__qualname__, held.__module__, held.__doc__
            frozen.__dict__.update(held.__dict__)
            self.functions[id(held)] = frozen, len(self.functions)
            own_keys = [self.cell(cell, copy) for cell, copy in zip(cells, copies, strict=True)]
        else:
            own_keys = []
        default_keys = tuple(key for _, key in (*defaults, *named.values()))
        key = held.__code__, held.__code__.co_filename, default_keys, tuple(own_keys), tuple(map(self.name, own_names))
        return frozen, key

    def may_change(self, name: str) -> bool:
        """Whether a name of the module stands for something that another may take the place of."""
        assert self.home is not None
        if name not in self.home:
            builtins = self.home.get("__builtins__", {})
            return name not in (builtins if isinstance(builtins, dict) else vars(builtins))
        self.may_hold_more |= _is_users(self.home[name])
        return not isinstance(self.home[name], _TAKEN_AS_THEY_ARE)

    def cell(self, cell: CellType, copy: CellType) -> Hashable:
        """The key of a variable, which is put in its copy."""
        if cell is copy:
            self.may_hold_more = True
            return "the user's"
        held = _contents(cell)
        if isinstance(held, _TAKEN_AS_THEY_ARE):
            self.may_hold_more |= _is_users(held)
            copy.cell_contents = held
            return id(held)
        self.cells.append((cell, held))
        copy.cell_contents, key = self.value(held)
        return key

    def name(self, name: str) -> Hashable:
        """The key of a global, which is put among the frozen ones."""
        assert self.home is not None
        assert self.frozen_home is not None
        if name not in self.keys_of_names:
            held = self.home.get(name, _MISSING)
            self.names.append((self.home, name, held))
            self.keys_of_names[name] = name, None
            if held is not _MISSING:
                self.frozen_home[name], key = self.value(held)
                self.keys_of_names[name] = name, key
        return self.keys_of_names[name]


def _named_cells(function: FunctionType) -> list[tuple[str, CellType]]:
    return list(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))


def captured(function: Callable[..., Any]) -> Captured:
    """A function as it is now.

    >>> k = 2
    >>> def make():
    ...     k = 2
    ...     def times(x):
    ...         return k * x
    ...     now = captured(times)
    ...     k = 3
    ...     return times(5), now.function(5), now.holds()
    >>> make()
    (15, 10, False)
    """
    own = _own_function(function)
    walk = _Freezing(None if own is None else own.__globals__)
    frozen, key = walk.value(function)
    return Captured(frozen, key, walk.cells, walk.names, walk.arrays, walk.may_hold_more)


def _walk_apart(function: Callable[..., Any]) -> _Freezing:
    own = _own_function(function)
    return _Freezing(None if own is None else own.__globals__, np.ndarray.view)


def apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function with views of the arrays that it captures, and copies of its functions.

    JAX remembers its conversion of an array of the host by identity, as long as anything holds that. An array of 64
    bits that it has seen while it allowed 32 stays one of 32 to it, and the other way round; and one that it had to
    convert keeps its numbers, whatever is written to it.

    >>> table = np.arange(3.0)
    >>> def make(table):
    ...     return lambda: table
    >>> frozen = captured(make(table)).function
    >>> apart(frozen)() is frozen(), np.shares_memory(apart(frozen)(), frozen())
    (False, True)
    """
    return _walk_apart(function).value(function)[0]


def apart_within(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """It with copies of lists, dicts and objects too, and views of the arrays in them; None if JAX converts none.

    >>> named = {"table": np.arange(3.0)}
    >>> def make(named):
    ...     return lambda: named["table"]
    >>> apart_within(make(named))() is named["table"], apart_within(make({"k": 2.0})) is None
    (False, True)
    """
    walk = _walk_apart(function)
    walk.within = {}
    found, _ = walk.value(function)
    is_converted = any(jax.dtypes.canonicalize_dtype(own.dtype) != own.dtype for own, _ in walk.arrays)
    return found if is_converted else None
