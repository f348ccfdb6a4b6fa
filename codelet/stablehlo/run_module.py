"""Evaluation: the operations of a module, one after another, on values.

Constants stay arrays of NumPy until something is computed of them, so that the counters of loops are known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import codelet.stablehlo.operations  # noqa: F401 (they enter themselves in the table)
from codelet.errors import CodeletError, ModelError
from codelet.refusals import REFUSALS
from codelet.stablehlo.hlo_operation import HloOperation
from codelet.stablehlo.operation_table import KEEPS_CONSTANTS, OPERATIONS

_NAME = re.compile(r'"([^"]*)"')
_SCOPE = re.compile(r"[^\w./\-() ,<>\[\]=*]")


class ModuleRunner:
    """Evaluates the functions of a module.

    Attributes:
        functions: by name.
    """

    def __init__(self, functions: Mapping[str, Any]):
        self.functions = functions

    def function(self, name: str, *operands: Any) -> list[Any]:
        """The results of a function.

        Raises:
            ModelError: there is none of the name.
        """
        if name not in self.functions:
            raise ModelError(
                "the module calls a function that it does not have", given=name, expected=", ".join(self.functions)
            )
        item = self.functions[name]
        return self.block(item.regions[0].blocks[0], operands, {})

    def _call(self, name: str, *operands: Any) -> list[Any]:
        """A function that another one calls: jitted under its name, so that it is a function of the graph."""

        def run(*received: Any) -> list[Any]:
            return [jnp.asarray(item) for item in self.function(name, *received)]

        run.__name__ = re.sub(r"_\d+$", "", name) or name
        return jax.jit(run)(*operands)

    def block(self, block: Any, operands: Sequence[Any], outer: Mapping[Any, Any], wanted: Any = None) -> list[Any]:
        """The results of a block.

        Args:
            block: its operations.
            operands: the values of its arguments.
            outer: values of the enclosing blocks.
            wanted: other values of the block than those that it returns.
        """
        values = {**outer, **dict(zip(block.arguments, operands, strict=True))}
        for one in block.operations:
            item = one.operation
            if str(item.name) in ("func.return", "stablehlo.return"):
                return [values[own] for own in (item.operands if wanted is None else wanted)]
            results = self._results(item, values)
            values.update(zip(item.results, results, strict=True))
        raise ModelError(
            "a block returns nothing", given="no return at its end", expected="func.return or stablehlo.return"
        )

    def _results(self, item: Any, values: Mapping[Any, Any]) -> Sequence[Any]:
        """The results of an operation.

        Raises:
            ModelError: its function fails.
        """
        name = str(item.name)
        operands = [values[operand] for operand in item.operands]
        if name not in KEEPS_CONSTANTS:
            operands = [jnp.asarray(one) if isinstance(one, np.ndarray) else one for one in operands]
        output = HloOperation(item, [self._region(region, values) for region in item.regions], self._call, values.get)
        try:
            with jax.named_scope(_scope(item)):
                result = OPERATIONS[name](output, *operands)
        except CodeletError:
            raise
        except REFUSALS as error:
            raise output.error(
                "it cannot be computed", given=str(error)[:400], expected="operands as StableHLO has them"
            ) from error
        return result if isinstance(result, tuple) else (result,)

    def _region(self, region: Any, outer: Mapping[Any, Any]) -> Callable[..., list[Any]]:
        return lambda *operands, wanted=None: self.block(region.blocks[0], operands, outer, wanted)


def _scope(operation: Any) -> str:
    """The name that an operation has in the program it comes from, without its last part."""
    result = _NAME.search(str(operation.location))
    path = result[1] if result is not None else ""
    parts = [part for part in _SCOPE.sub("_", path).split("/") if part][:-1]
    return "/".join(part for part in parts if not part.startswith("jit(")) or "stablehlo"
