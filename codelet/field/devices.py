"""Programs over a mesh: the values of each device, in lockstep, and the communication between them.

A value is a list of one for each device along the axes that a `shard_map` names, in row-major order of these. Every
equation is that of each device by itself, but for collectives, and for loops and calls, whose bodies have them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet.field.calls import PLAIN_CALLS, called, looped, nothing, scanned
from codelet.field.meanings import Field, NotUnderstood, meaning, runs_jaxprs
from codelet.field.moves import joined, piled, row
from codelet.field.order import extreme_along
from codelet.field.pairs import numbers_of
from codelet.field.values import Unknown, Value, is_known, moved
from codelet.jaxprs.equations import literal_value
from codelet.jaxprs.primitives import CUSTOM, says_nothing

Spread = list[Value]
"""A value for each device."""


def _names(entry: Any) -> tuple[Any, ...]:
    """The axes of a mesh that one dimension is cut over."""
    if entry is None:
        return ()
    return tuple(entry) if isinstance(entry, (tuple, list)) else (entry,)


def _cut(value: Value, axis: int, parts: int) -> list[Value]:
    """A value in so many equal parts along an axis."""
    size = value.shape[axis] // parts
    items = [slice(k * size, (k + 1) * size) for k in range(parts)]
    return [moved(value, lambda own, lead, at=at: own[(slice(None),) * (lead + axis) + (at,)]) for at in items]


class _DeviceRuns:
    """Evaluates the program of each device of a mesh.

    Attributes:
        field: how one of them is evaluated.
        sizes: of the axes by name, in order.
    """

    def __init__(self, field: Field, sizes: dict[Any, int]):
        self.field, self.sizes = field, sizes
        self.numbers = np.arange(int(np.prod([*sizes.values()], dtype=int))).reshape(*sizes.values())

    def groups(self, eqn: Any, name: str = "axes") -> list[list[int]]:
        """The devices that differ along some axes alone, in the order of these.

        Raises:
            NotUnderstood: groups that a user names.
        """
        if not says_nothing(eqn.params.get("axis_index_groups")):
            raise NotUnderstood(eqn, "groups of devices that are named one by one")
        axes = [own for own in _names(eqn.params[name]) if not isinstance(own, int)]
        if not all(own in self.sizes for own in axes):
            raise NotUnderstood(eqn, f"an axis that is none of {', '.join(map(str, self.sizes))}")
        places = [[*self.sizes].index(own) for own in axes]
        others = [d for d in range(self.numbers.ndim) if d not in places]
        count = int(np.prod([self.sizes[own] for own in axes], dtype=int))
        return self.numbers.transpose(*others, *places).reshape(-1, count).tolist()

    def run(self, jaxpr: Any, inputs: Sequence[Spread]) -> list[Spread]:
        """The results of a jaxpr, closed or not."""
        opened: jax_core.Jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
        values: dict[Any, Spread] = dict(zip(opened.invars, inputs, strict=True))
        values.update(
            (var, self.everywhere(self.field.known(own)))
            for var, own in zip(opened.constvars, getattr(jaxpr, "consts", ()), strict=True)
        )

        def at(atom: Any) -> Spread:
            if isinstance(atom, jax_core.Literal):
                return self.everywhere(self.field.known(literal_value(atom)))
            return values[atom]

        for eqn in opened.eqns:
            values.update(zip(eqn.outvars, self.results(eqn, [at(own) for own in eqn.invars]), strict=True))
        return [at(own) for own in opened.outvars]

    def everywhere(self, value: Value) -> Spread:
        """The same value on every device."""
        return [value] * self.numbers.size

    def results(self, eqn: Any, operands: Sequence[Spread]) -> list[Spread]:
        """The results of an equation on each device."""
        name = eqn.primitive.name
        if name in COLLECTIVES:
            return COLLECTIVES[name](self, eqn, operands)
        if runs_jaxprs(eqn):
            if name not in _CONTROL:
                raise NotUnderstood(eqn, "it is within a program over a mesh")
            return _CONTROL[name](self, eqn, operands)
        each = [self.field.equation(eqn, [own[k] for own in operands]) for k in range(self.numbers.size)]
        return [list(own) for own in zip(*each, strict=True)] if eqn.outvars else []


def _call(devices: _DeviceRuns, eqn: Any, operands: Sequence[Spread]) -> list[Spread]:
    return devices.run(called(eqn), operands)


def _scan(devices: _DeviceRuns, eqn: Any, operands: Sequence[Spread]) -> list[Spread]:
    field = devices.field
    each = lambda own, k: [row(one, k) for one in own]  # noqa: E731
    stack = lambda rows: [piled(field, own, 0) for own in map(list, zip(*rows, strict=True))]  # noqa: E731
    return scanned(eqn, operands, devices.run, each, stack, lambda var: devices.everywhere(nothing(field, var)))


def _while(devices: _DeviceRuns, eqn: Any, operands: Sequence[Spread]) -> list[Spread]:
    return looped(eqn, operands, devices.run, lambda says: bool(_agreed(eqn, says)))


def _agreed(eqn: Any, numbers: Spread) -> int:
    """The number that all devices have.

    Raises:
        NotUnderstood: it is not known, or not the same.
    """
    if not is_known(numbers):
        raise NotUnderstood(eqn, "where control goes depends on floats that are not known")
    found = {int(np.asarray(own)) for own in numbers}
    if len(found) > 1:
        raise NotUnderstood(eqn, "control goes another way on each device")
    return found.pop()


def _cond(devices: _DeviceRuns, eqn: Any, operands: Sequence[Spread]) -> list[Spread]:
    branches, (which, *others) = eqn.params["branches"], operands
    numbers = [own for own in which if not isinstance(own, Unknown)]
    if len(numbers) == len(which) and len({int(np.asarray(own)) for own in numbers}) > 1:
        each = [devices.field.equation(eqn, [own[k] for own in operands]) for k in range(len(which))]
        return [list(own) for own in zip(*each, strict=True)]
    chosen = _agreed(eqn, which)
    return devices.run(branches[min(max(chosen, 0), len(branches) - 1)], others)


_CONTROL: dict[str, Callable[[_DeviceRuns, Any, Sequence[Spread]], list[Spread]]] = {
    **dict.fromkeys((*PLAIN_CALLS, *CUSTOM), _call),
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}


# --- collectives --------------------------------------------------------------------------------------------


def _along(field: Field, kind: str, value: Value, axes: Sequence[int]) -> Value:
    """The sum, the greatest or the least along dimensions of an array, which `jax.vmap` makes of a separate axis."""
    if not isinstance(value, Unknown):
        function = {"sum": jnp.sum, "max": jnp.max, "min": jnp.min}[kind]
        return np.asarray(function(value, tuple(axes)).astype(value.dtype))
    if kind == "sum":
        made = numbers_of(value.dtype).total(value.residues, [1 + d for d in axes])
        return Unknown(made, value.dtype).of_degree(value.degree)
    return extreme_along(field, kind, value, axes)


def _of_a_map(kind: str, name: str) -> None:
    @meaning(
        name,
        "axes",
        "axis_index_groups",
        said="a sum, or a set, along an axis of `jax.vmap`",
        is_exact=kind == "sum",
        takes_complex=kind == "sum",
    )
    def run(field: Field, eqn: Any, *operands: Value) -> Sequence[Value]:
        if not all(isinstance(axis, int) for axis in eqn.params["axes"]):
            raise NotUnderstood(eqn, "an axis of devices that no `shard_map` names")
        return [_along(field, kind, own, eqn.params["axes"]) for own in operands]


for _kind, _name in (("sum", "psum"), ("max", "pmax"), ("min", "pmin")):
    _of_a_map(_kind, _name)


def _reduction(kind: str) -> Callable[[_DeviceRuns, Any, Sequence[Spread]], list[Spread]]:
    def run(devices: _DeviceRuns, eqn: Any, operands: Sequence[Spread]) -> list[Spread]:
        along = [axis for axis in eqn.params["axes"] if isinstance(axis, int)]
        made = [[_along(devices.field, kind, each, along) for each in own] if along else list(own) for own in operands]
        operands = [list(own) for own in made]
        for group in devices.groups(eqn):
            for own, result in zip(operands, made, strict=True):
                total = _along(devices.field, kind, piled(devices.field, [own[k] for k in group], 0), [0])
                for k in group:
                    result[k] = total
        return made

    return run


def _permuted(devices: _DeviceRuns, eqn: Any, operands: Sequence[Spread]) -> list[Spread]:
    made = []
    for own in operands:
        result: Spread = [np.zeros(own[0].shape, own[0].dtype)] * len(own)
        for group in devices.groups(eqn, "axis_name"):
            for source, target in eqn.params["perm"]:
                result[group[target]] = own[group[source]]
        made.append(result)
    return made


def _gathered(devices: _DeviceRuns, eqn: Any, operands: Sequence[Spread]) -> list[Spread]:
    join = joined if eqn.params["tiled"] else piled
    made = [list(own) for own in operands]
    for group in devices.groups(eqn, "axis_name"):
        for own, result in zip(operands, made, strict=True):
            whole = join(devices.field, [own[k] for k in group], eqn.params["all_gather_dimension"])
            for k in group:
                result[k] = whole
    return made


def _dealt(devices: _DeviceRuns, eqn: Any, operands: Sequence[Spread]) -> list[Spread]:
    split, behind = eqn.params["split_axis"], eqn.params["concat_axis"]
    if not eqn.params["tiled"]:
        raise NotUnderstood(eqn, "what is dealt is not tiled")
    made = [list(own) for own in operands]
    for group in devices.groups(eqn, "axis_name"):
        for own, result in zip(operands, made, strict=True):
            parts = [_cut(own[k], split, len(group)) for k in group]
            for place, k in enumerate(group):
                result[k] = joined(devices.field, [part[place] for part in parts], behind)
    return made


def _summed_apart(devices: _DeviceRuns, eqn: Any, operands: Sequence[Spread]) -> list[Spread]:
    axis, made = eqn.params["scatter_dimension"], [list(own) for own in operands]
    for group in devices.groups(eqn, "axis_name"):
        for own, result in zip(operands, made, strict=True):
            total = _along(devices.field, "sum", piled(devices.field, [own[k] for k in group], 0), [0])
            for k, part in zip(group, _cut(total, axis, len(group)), strict=True):
                if not eqn.params["tiled"]:
                    part = moved(part, lambda array, lead: np.squeeze(array, lead + axis))
                result[k] = part
    return made


def _own_number(devices: _DeviceRuns, eqn: Any, operands: Sequence[Spread]) -> list[Spread]:
    made = devices.everywhere(np.zeros((), np.int32))
    for group in devices.groups(eqn, "axis_name"):
        for place, k in enumerate(group):
            made[k] = np.asarray(place, np.int32)
    return [made]


def _unchanged(devices: _DeviceRuns, eqn: Any, operands: Sequence[Spread]) -> list[Spread]:
    return [*operands]


COLLECTIVES: dict[str, Callable[[_DeviceRuns, Any, Sequence[Spread]], list[Spread]]] = {
    **dict.fromkeys(("psum", "psum_invariant", "psum2"), _reduction("sum")),
    "pmax": _reduction("max"),
    "pmin": _reduction("min"),
    "ppermute": _permuted,
    **dict.fromkeys(("all_gather", "all_gather_invariant"), _gathered),
    "all_to_all": _dealt,
    "reduce_scatter": _summed_apart,
    "axis_index": _own_number,
    **dict.fromkeys(("pbroadcast", "pvary", "pcast"), _unchanged),
}


@meaning("shard_map", every=True, degree=None, said="what each device runs, in lockstep, with what crosses")
def shard_map(field: Field, eqn: Any, *operands: Value) -> Sequence[Value]:
    params = eqn.params
    mesh = params["mesh"]
    manual = params.get("newly_manual_axes") or params.get("manual_axes") or frozenset(mesh.axis_names)
    sizes = {name: mesh.shape[name] for name in mesh.axis_names if name in manual}
    devices = _DeviceRuns(field, sizes)
    places = np.stack(np.unravel_index(np.arange(devices.numbers.size), tuple(sizes.values())), 1)
    at = {name: places[:, k] for k, name in enumerate(sizes)}

    def number(device: int, names: Sequence[Any]) -> int:
        made = 0
        for name in names:
            made = made * sizes[name] + int(at[name][device])
        return made

    def parts(value: Value, spec: Any) -> Spread:
        made: Spread = devices.everywhere(value)
        for d, entry in enumerate(tuple(spec)):
            if names := [name for name in _names(entry) if name in sizes]:
                count = int(np.prod([sizes[name] for name in names]))
                made = [_cut(own, d, count)[number(k, names)] for k, own in enumerate(made)]
        return made

    def whole(own: Spread, spec: Any) -> Value:
        """From the devices whose numbers are 0 along all other axes."""

        def of_devices(chosen: list[int], entries: list[tuple[int, Any]]) -> Value:
            if not entries:
                return own[chosen[0]]
            (d, names), *left = entries
            count = int(np.prod([sizes[name] for name in names]))
            each = [[k for k in chosen if number(k, names) == part] for part in range(count)]
            return joined(field, [of_devices(part, left) for part in each], d)

        entries = [(d, [n for n in _names(entry) if n in sizes]) for d, entry in enumerate(tuple(spec))]
        return of_devices([*range(devices.numbers.size)], [(d, names) for d, names in entries if names])

    given = [parts(own, spec) for own, spec in zip(operands, params["in_specs"], strict=True)]
    results = devices.run(params["jaxpr"], given)
    return [whole(own, spec) for own, spec in zip(results, params["out_specs"], strict=True)]
