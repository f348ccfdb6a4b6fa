"""The engine's state: the arrays of every variable, and which of its elements have a value.

An `EngineState` is never changed: writing to it makes another, so that a run or a write that fails has changed nothing.
Variables are known by identity, since what is no variable of the graph (a counter, a flag) may have any name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from codelet.errors import ArrayError, NotFiniteError, UninitializedReadError
from codelet.graphs.graph import Graph
from codelet.graphs.vertices import gather
from codelet.hostdata import as_array, as_own_array
from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import Tensor
from ipu_backend.running.names import Names
from lowering.fast.execution import Execution
from lowering.plan.elements import ElementSet


class Later:
    """What a run has left out: the arrays of some variables, made by the same run again once one of them is asked for.

    Args:
        asked: told which variable is asked for by itself.
        make: runs again, and gives the arrays.
    """

    def __init__(self, asked: Callable[[Variable], object], make: Callable[[], dict[Variable, Any]]):
        self._asked = asked
        self._make: Callable[[], dict[Variable, Any]] | None = make
        self._made: dict[Variable, Any] = {}

    def of(self, variable: Variable, *, asked: bool = False) -> Any:
        """The array of a variable, which the host asks for by itself, or with all others."""
        if asked:
            self._asked(variable)
        if self._make is not None:
            self._made, self._make = self._make(), None
        return self._made[variable]

    def is_deleted(self) -> bool:
        """Whether what it would be made of is gone: never, since no run overwrites that."""
        return False


@dataclass(frozen=True, eq=False)
class EngineState:
    """What an engine holds.

    Attributes:
        arrays: of each variable that anything was written to, as its execution holds it, or where that is made later.
        written: the elements that have a value, those of constants among them.
    """

    arrays: Mapping[Variable, Any]
    written: ElementSet

    def held(self, variable: Variable, *, asked: bool = False) -> Any:
        """The array of a variable, which may be made for it; see `Later.of`."""
        own = self.arrays[variable]
        return own.of(variable, asked=asked) if isinstance(own, Later) else own

    def without(self, lost: Iterable[Variable]) -> EngineState:
        """It without any value of some variables."""
        gone, written = set(lost), self.written.copy()
        for variable in gone:
            written.remove_variable(variable)
        return EngineState({variable: held for variable, held in self.arrays.items() if variable not in gone}, written)


def empty_state(graph: Graph) -> EngineState:
    """The state in which only constants have values."""
    return EngineState({}, ElementSet.of_variables(v for v in graph.sources if v.value is not None))


# --- reading ------------------------------------------------------------------------------------------


def _logical(state: EngineState, execution: Execution, variable: Variable, *, asked: bool = False) -> np.ndarray:
    """The values of a variable, zeros where it has none."""
    if variable.value is not None:
        return np.asarray(variable.value)
    if variable not in state.arrays:
        return np.zeros(variable.shape, variable.dtype)
    return np.asarray(execution.unload(variable, state.held(variable, asked=asked)))


def read_view(state: EngineState, execution: Execution, tensor: Tensor, *, check: bool = True) -> np.ndarray:
    """The values of a view without symbols, as an array of its own.

    Args:
        state: where they are.
        execution: how they are stored.
        tensor: the view.
        check: see that all of them are there, as where the host asks for them by themselves.

    Raises:
        UninitializedReadError: an element that has no value.
    """
    missing = state.written.first_missing(tensor, ()) if check else None
    if missing is not None:
        raise UninitializedReadError(
            f"{tensor.graph.element_text(missing)} is read by the host before anything has given it a value",
            expected="engine.write or engine.run before",
        )
    if tensor.is_whole_variable:
        assert isinstance(tensor.source, Variable)
        return np.array(_logical(state, execution, tensor.source, asked=check))
    variables = source_variables(tensor.source)
    flat = {own.first_element: _logical(state, execution, own, asked=check).reshape(-1) for own in variables}
    return np.array(gather(flat, tensor))


def check_finite(tensor: Tensor, array: Any, what: str) -> None:
    """See that an array for a view, or of one, holds finite numbers; `what` is what an error calls it.

    Raises:
        NotFiniteError: it holds NaN or infinity.
    """
    if not jnp.issubdtype(tensor.dtype, jnp.inexact):
        return
    bad = np.argwhere(~np.asarray(jnp.isfinite(array)))
    if len(bad):
        where = tuple(bad[0].tolist())
        named = repr(tensor.source.name) if isinstance(tensor.source, Variable) else tensor
        raise NotFiniteError(
            f"{what} {named} holds a number that is not finite",
            given=f"{np.asarray(array)[where]} at {list(where)}",
            expected="finite numbers, since check_finite is on",
        )


# --- writing ------------------------------------------------------------------------------------------


class Writing:
    """Values that are to be written to a state, all of them or none: `done` makes the state after."""

    def __init__(self, state: EngineState, execution: Execution):
        self.state = state
        self.execution = execution
        self._named: set[Variable] = set()  # as a whole
        self._whole: dict[Variable, jax.Array] = {}
        self._parts: dict[Variable, np.ndarray] = {}  # values that were written in part
        self._written = state.written.copy()

    def write(self, tensor: Tensor, value: Any) -> jax.Array:
        """Write an array to a view without symbols.

        Returns:
            The array.

        Raises:
            ArrayError: another shape, a dtype that does not fit, or elements that cannot be written.
        """
        if tensor.is_whole_variable:
            (variable,) = source_variables(tensor.source)
            if variable in self._named:
                raise ArrayError(
                    f"two arrays are written to {variable.name!r}", given="its name and a tensor", expected="one"
                )
            self._named.add(variable)
        if isinstance(value, Tracer):
            raise ArrayError(
                "what the host writes is traced",
                given=value,
                expected="an array: an engine runs outside of jax.jit, jax.grad and the like",
                fix="engine.function(inputs=..., outputs=...) is a pure function of the same program",
            )
        variables = source_variables(tensor.source)
        for variable in variables:
            if variable.value is not None:
                raise ArrayError(
                    f"the host cannot write the constant {variable.name!r}", given=tensor, expected="a variable"
                )
        if tensor.is_whole_variable:
            (variable,) = variables
            array = self._whole[variable] = as_own_array(value, variable)
            self._parts.pop(variable, None)
            self._written.add_variable(variable)
            return array
        array = as_array(value, _ViewedArray(repr(tensor), tensor.shape, tensor.dtype))
        numbers, values = tensor.elements().reshape(-1), np.asarray(array).reshape(-1)
        if (numbers < 0).any() or len(np.unique(numbers)) < len(numbers):
            what = "holds padding" if (numbers < 0).any() else "names an element twice"
            raise ArrayError(
                f"a view that the host writes {what}",
                given=tensor,
                expected="a view that names every element once, and has no padding",
            )
        for variable in variables:
            own = numbers - variable.first_element
            inside = (own >= 0) & (own < variable.size)
            self._part(variable)[own[inside]] = values[inside]
        self._written.add(tensor, ())
        return array

    def _part(self, variable: Variable) -> np.ndarray:
        """The flat values of a variable, which may be changed."""
        if variable not in self._parts:
            whole = self._whole.pop(variable, None)
            before = _logical(self.state, self.execution, variable) if whole is None else whole
            self._parts[variable] = np.array(before).reshape(-1)
        return self._parts[variable]

    def forget(self, tensor: Tensor) -> None:
        """Have a view without symbols hold no values."""
        self._written.remove(tensor)

    def done(self) -> EngineState:
        """The state after."""
        made = {**self._whole, **{v: jax.device_put(flat.reshape(v.shape)) for v, flat in self._parts.items()}}
        held = {v: self.execution.load(v, array) for v, array in made.items()}
        return EngineState({**self.state.arrays, **held}, self._written)


@dataclass(frozen=True)
class _ViewedArray:
    """A view as a place for an array."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype


# --- all of it ------------------------------------------------------------------------------------------


def snapshot(state: EngineState, execution: Execution) -> dict[str, np.ndarray]:
    """The values of all variables that have any, by name; masked where only some of its elements do."""
    found = {}
    for variable in state.arrays:
        flags = state.written.flags(variable).reshape(variable.shape)
        if flags.any() or not variable.size:
            values = np.array(_logical(state, execution, variable))
            found[variable.name] = values if flags.all() else np.ma.MaskedArray(values, mask=~flags)
    return found


def by_tensor(to: Any, values: Any) -> dict[Any, Any]:
    """What is written, by tensor: from a pytree of tensors, or names, and one of arrays, or a number for all elements.

    Raises:
        ArrayError: pytrees that are not alike.
    """
    leaves, structure = jax.tree.flatten(to)
    if np.ndim(values) == 0 and isinstance(values, (bool, int, float, complex, np.generic)):
        fill = lambda own: np.full(own.shape, values, own.dtype) if isinstance(own, Tensor) else values  # noqa: E731
        return {own: fill(own) for own in leaves}
    try:
        return dict(zip(leaves, structure.flatten_up_to(values), strict=True))
    except ValueError as error:
        raise ArrayError(
            "what is written is not in the structure of what it is written to",
            given=f"{jax.tree.structure(values)!s:.200}",
            expected=f"{structure!s:.200}",
        ) from error


def written_to(state: EngineState, execution: Execution, names: Names, values: Any, *, check: bool) -> EngineState:
    """The state after what `engine.write` is given is written to it.

    Args:
        state: before.
        execution: how values are stored.
        names: what the host means by names.
        values: what is written, by names and tensors.
        check: see that it is finite.

    Raises:
        ArrayError, NotInGraphError, ViewError, NotFiniteError: as `engine.write` says.
    """
    if not isinstance(values, Mapping):
        raise ArrayError(
            "what is written does not say where to",
            given=f"{type(values).__name__}: {values!r:.80}",
            expected="a dict of arrays by name or tensor",
            fix='engine.write({"x": array})',
        )
    writing = Writing(state, execution)
    for name, value in values.items():
        tensor = names.tensor(name, "written")
        array = writing.write(tensor, value)
        if check:
            check_finite(tensor, array, "the array for")
    return writing.done()


def restored(before: EngineState, execution: Execution, names: Names, values: Any, *, check: bool) -> EngineState:
    """The state of a snapshot, and of nothing besides.

    Args:
        before: any state of the same engine, for its constants.
        execution: how it is to be stored.
        names: what the host means by names.
        values: what `snapshot` gave.
        check: see that it is finite.

    Raises:
        ArrayError, NotInGraphError, NotFiniteError: as `engine.load_state` says.
    """
    if not isinstance(values, Mapping):
        raise ArrayError(
            "what is loaded is no state",
            given=f"{type(values).__name__}: {values!r:.80}",
            expected="a dict of arrays by name, as engine.state gives it",
        )
    writing = Writing(before.without(before.arrays), execution)
    for name, value in values.items():
        whole = names.tensor(name, "loaded")
        if not whole.is_whole_variable:
            raise ArrayError("a state is of whole variables", given=whole, expected="the name of a variable")
        if check:
            check_finite(whole, value, "the array for")
        masked = np.ma.is_masked(value)
        writing.write(whole, value.data if masked else value)
        if masked:
            gone = np.flatnonzero(np.ma.getmaskarray(value))
            writing.forget(whole.flatten()[gone])
    return writing.done()
