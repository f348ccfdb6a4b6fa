"""Replicas: runs of one graph side by side, along an axis of a mesh, each on its part of a batch.

What a replica is given of an input, and gives of an output, is a row of an array with one axis more, the first, cut
along the mesh's axis. A shared input is one value, that all replicas have; its gradient is the sum of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import jax
from jax.sharding import Mesh, PartitionSpec

from codelet.errors import ArrayError, ProgramError
from codelet.hostdata import Place
from lowering.arrays import Array
from lowering.plan.arguments import Argument


@dataclass(frozen=True)
class Replicas:
    """How often a graph runs side by side, and what all its runs share.

    Attributes:
        axis: of the mesh.
        count: how many there are.
        shared: the names of the inputs that are one value for all.
    """

    axis: str
    count: int
    shared: frozenset[str]

    @property
    def key(self) -> tuple[str, int, tuple[str, ...]]:
        """What tells it from others, written alike in every process."""
        return self.axis, self.count, tuple(sorted(self.shared))

    def places(self, inputs: Iterable[Place]) -> list[Place]:
        """What arrays are for, from what those of one replica are for."""
        rows = lambda own: Argument(own.name, (self.count, *own.shape), own.dtype)  # noqa: E731
        return [own if own.name in self.shared else rows(own) for own in inputs]

    def spec(self, name: str, spec: PartitionSpec) -> PartitionSpec:
        """How the array of an input is cut, from how that of one replica is."""
        return spec if name in self.shared else self.rows(spec)

    def rows(self, spec: PartitionSpec) -> PartitionSpec:
        """How arrays with a row for each replica are cut, from how those of one are."""
        return PartitionSpec(self.axis, *spec)

    def each(self, function: Callable[..., Sequence[Array]], names: Sequence[str]) -> Callable[..., list[Array]]:
        """A function of what one replica has, as one of what a device has: rows, of which there is one."""

        def run(*arrays: Array) -> list[Array]:
            given = [own if name in self.shared else own[0] for name, own in zip(names, arrays, strict=True)]
            return [result[None] for result in function(*given)]

        return run

    def mapped(self, name: str, function: Callable[[Array], Array]) -> Callable[[Array], Array]:
        """A function of what one replica is given of an input, as one of what all are given."""
        return function if name in self.shared else jax.vmap(function)


def without_axis(mesh: Mesh, replicas: Replicas | None) -> dict[str, int]:
    """How long the axes of a mesh are over which a graph is cut: all but that of replicas."""
    return {name: n for name, n in mesh.shape.items() if replicas is None or name != replicas.axis}


def checked_replicas(mesh: Mesh | None, axis: str | None, shared: Iterable[str]) -> Replicas | None:
    """Replicas along an axis of a mesh; None where none is named.

    Raises:
        ProgramError: an axis that the mesh does not have, or something shared by no replicas.
    """
    names = frozenset(shared)
    if axis is None:
        if names:
            raise ProgramError(
                "inputs are shared where there are no replicas",
                given=f"shared={sorted(names)}",
                expected="an axis of the mesh along which the graph is replicated",
                fix='replicas="batch"',
            )
        return None
    axes = () if mesh is None else mesh.axis_names
    if mesh is None or axis not in axes:
        raise ProgramError(
            "a graph is replicated along an axis that the mesh does not have",
            given=f"replicas={axis!r}, " + ("no mesh" if mesh is None else f"a mesh of {', '.join(map(repr, axes))}"),
            expected="the name of an axis of the mesh",
            fix='mesh=jax.make_mesh((replicas, devices), ("batch", "devices")), replicas="batch"',
        )
    return Replicas(axis, mesh.shape[axis], names)


def row_shape(name: str, shape: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The shape of what one replica is given of an argument.

    Raises:
        ArrayError: the argument has no row for each replica.
    """
    if shape[:1] != (count,):
        raise ArrayError(
            f"the argument {name!r} has no row for each replica",
            given=f"shape {shape}",
            expected=f"({count}, ...), as there are {count} replicas",
            fix=f'x.reshape({count}, -1, *x.shape[1:]) of a batch, or shared=["{name}"] for what all replicas have',
        )
    return shape[1:]


def check_shared(replicas: Replicas | None, names: Iterable[str]) -> None:
    """See that what replicas share are inputs.

    Raises:
        ProgramError: a name that is none.
    """
    known = list(names)
    unknown = sorted(replicas.shared.difference(known)) if replicas is not None else []
    if unknown:
        raise ProgramError(
            "what replicas share is no input",
            given=", ".join(map(repr, unknown)),
            expected=f"names of inputs: {', '.join(map(repr, known)) or 'there are none'}",
        )
