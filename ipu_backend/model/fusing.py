"""Which elementwise equations share a loop, and what is a view of what.

In come the equations of a jaxpr in order, each with what it is: a loop, free, or something else that takes time; out
come loops, with what they read, and what of all that is computed is read beyond its loop.

Neighbouring elementwise equations of one shape are one loop, as in the codelets that PopLibs generates for its map
expressions, and as a compiler makes of loops written one after another. A loop ends where something is computed from
its results that does not go through them element by element.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jax.extend import core as jax_core

from ipu_backend.model.equations import Equation, size_of
from ipu_backend.model.fused_loops import Accumulation, FusedLoop, LoopOperation
from ipu_backend.model.rows import Conversion, Loop
from ipu_backend.model.vector_broadcasts import matrix_and_vector


def _shape_of(eqn: Equation) -> tuple[int, ...]:
    shape = tuple(eqn.results[0].aval.shape)
    return shape if math.prod(shape) != 1 else ()


@dataclass(eq=False)
class Fusion:
    """The equations of a jaxpr in loops, as far as they are elementwise.

    Attributes:
        loops: in the order of their first equations.
        loop_of: of what a loop computes, which.
        computed: what else takes time to compute.
        constants: what is known before the vertex runs.
        views: of what is free, what it is a view of.
        read: of what loops compute, what is read beyond them.
    """

    loops: list[FusedLoop] = field(default_factory=list)
    loop_of: dict[Any, FusedLoop] = field(default_factory=dict)
    computed: set[Any] = field(default_factory=set)
    constants: set[Any] = field(default_factory=set)
    views: dict[Any, Any] = field(default_factory=dict)
    read: set[Any] = field(default_factory=set)
    _open: list[FusedLoop] = field(default_factory=list)

    def _open_loop(self, shape: tuple[int, ...]) -> FusedLoop | None:
        """The open loop of a shape, which is compared, since sizes that are many have no hash in common."""
        return next((own for own in self._open if own.shape is shape or own.shape == shape), None)

    def whole(self, atom: Any) -> Any:
        """What a value is a view of, of all of its elements in order."""
        while not isinstance(atom, jax_core.Literal) and atom in self.views:
            if size_of(self.views[atom]) != size_of(atom):
                break
            atom = self.views[atom]
        return atom

    def origin(self, atom: Any) -> Any:
        """What a value is a view of, of whichever elements."""
        while not isinstance(atom, jax_core.Literal) and atom in self.views:
            atom = self.views[atom]
        return atom

    def is_number(self, atom: Any) -> bool:
        """Whether a value is one number, or one that is repeated."""
        while size_of(atom) != 1 and not isinstance(atom, jax_core.Literal) and atom in self.views:
            atom = self.views[atom]
        return size_of(atom) == 1

    def is_constant(self, atom: Any) -> bool:
        """Whether a value is known before the vertex runs."""
        found = self.origin(atom)
        return isinstance(found, jax_core.Literal) or found in self.constants

    def look(self, eqn: Equation) -> None:
        """Take in an equation that is free."""
        several = len(eqn.operands) == len(eqn.results)
        operands = eqn.operands if several else eqn.operands[:1] * len(eqn.results)
        self.views.update(zip(eqn.results, operands, strict=True))

    def apart(self, eqn: Equation) -> None:
        """Take in an equation that takes time, and is no loop."""
        for atom in eqn.operands:
            self._end(self.origin(atom))
        self.computed.update(eqn.results)

    def join(self, eqn: Equation, loop: Loop, conversion_of: Callable[[Any], Conversion | None]) -> None:
        """Take in an elementwise equation: as part of the open loop of its shape, or of a new one."""
        shape = _shape_of(eqn)
        operands = [atom for atom in eqn.operands if not self.is_constant(atom)]
        for atom in operands * 2:  # again, since one may end the loop that those before it go through
            origin, own = self.origin(atom), self._open_loop(shape)
            goes_through = own is not None and origin in own.results and origin is self.whole(atom)
            if not goes_through:
                self._end(origin)
        own = self._open_loop(shape)
        if own is None:
            own = FusedLoop(shape)
            self._open.append(own)
            self.loops.append(own)
        arrays = [self.whole(atom) for atom in operands if not (shape and self.is_number(atom))]
        by_scalar = len(arrays) == 1 and len(eqn.operands) > 1
        own.operations.append(LoopOperation(loop, by_scalar, matrix_and_vector(eqn) if len(arrays) == 2 else None))
        for whole in arrays:
            in_a_register = self.loop_of.get(whole) is own or (not shape and whole in self.computed)
            if not in_a_register:
                own.reads.setdefault(whole, conversion_of(whole))
        for result in eqn.results:
            own.results[result] = conversion_of(result)
            self.loop_of[result] = own
        self.computed.update(eqn.results)

    def accumulate(self, eqn: Equation) -> bool:
        """Take in a reduction along the last axes of what an open loop computes: it joins the loop. Else False."""
        operand = eqn.operands[0]
        origin = self.origin(operand)
        loop = None if isinstance(origin, jax_core.Literal) else self.loop_of.get(origin)
        rank, axes = len(operand.aval.shape), sorted(eqn.params["axes"])
        if loop is None or loop not in self._open or origin not in loop.results or not loop.shape:
            return False
        if origin is not self.whole(operand) or axes != list(range(rank - len(axes), rank)) or not eqn.size:
            return False
        (result,) = eqn.results
        squares, casts = bool(eqn.params.get("squared")), operand.aval.dtype != result.aval.dtype
        loop.accumulations[result] = Accumulation(1 + squares + casts, eqn.size)
        self.loop_of[result] = loop
        self.computed.add(result)
        return True

    def _end(self, origin: Any) -> None:
        """What is computed by a loop is read by something else, which runs after it."""
        loop = None if isinstance(origin, jax_core.Literal) else self.loop_of.get(origin)
        if loop is None:
            return
        if loop.shape:  # one number stays in a register
            self.read.add(origin)
        if loop in self._open:
            self._open.remove(loop)

    def stored(self, loop: FusedLoop) -> list[Any]:
        """Those of a loop's results that are read beyond it."""
        return [own for own in loop.results if own in self.read]
