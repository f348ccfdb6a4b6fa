"""Modules of StableHLO as functions of JAX.

In comes a text, a portable artifact, or a result of `jax.export`; out comes a function that JAX traces as any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.mlir import ir
from jax.interpreters.mlir import make_ir_context

from codelet.errors import ModelError
from codelet.stablehlo import attributes
from codelet.stablehlo.artifact_text import artifact_text
from codelet.stablehlo.operation_table import OPERATIONS
from codelet.stablehlo.run_module import ModuleRunner

_RETURNS = ("func.return", "stablehlo.return", "func.func")


class Module:
    """A StableHLO module as a function. Made by `cl.stablehlo.load`.

    Args:
        module: the parsed module.
        context: its MLIR context.
        exported: the `jax.export.Exported` with the structure of arguments and results, or `None`.

    Attributes:
        inputs: the types of its arguments, in order, as `jax.ShapeDtypeStruct`.
        outputs: those of its results.

    >>> import codelet as cl, jax, jax.numpy as jnp
    >>> text = jax.jit(jnp.tanh).lower(jnp.ones(3)).as_text()
    >>> module = cl.stablehlo.load(text)
    >>> module.outputs[0].shape, [y.tolist() for y in module(jnp.zeros(3))]
    ((3,), [[0.0, 0.0, 0.0]])
    """

    def __init__(self, module: Any, context: Any, exported: Any = None):
        self._module, self._context, self._exported = module, context, exported  # which the functions lie in
        functions = {
            str(item.operation.attributes["sym_name"]).strip('"'): item.operation
            for item in module.body.operations
            if str(item.operation.name) == "func.func"
        }
        main = "main" if "main" in functions else next(iter(functions), "")
        if not main:
            raise ModelError("the module has no function", given="no func.func", expected="a function @main")
        _check(functions.values())
        self._main, self._evaluator = main, ModuleRunner(functions)
        self.__name__ = exported.fun_name if exported is not None else main
        block = functions[main].regions[0].blocks[0]
        self.inputs = tuple(_struct(item.type) for item in block.arguments)
        returned = list(block.operations)[-1].operation
        self.outputs = tuple(_struct(item.type) for item in returned.operands)

    def __call__(self, *arguments: Any) -> Any:
        """The results: in the structure of the exported function, or a tuple.

        Args:
            arguments: arrays.

        Raises:
            ModelError: other arguments, or an operation that cannot be computed.
        """
        if self._exported is None:
            return tuple(self._run(arguments))
        leaves, tree = jax.tree.flatten((arguments, {}))
        if tree != self._exported.in_tree:
            raise ModelError(
                "the arguments are not in the structure of what was exported",
                given=str(tree),
                expected=str(self._exported.in_tree),
            )
        remaining = [leaves[k] for k in self._exported.module_kept_var_idx]
        return jax.tree.unflatten(self._exported.out_tree, self._run(remaining))

    def _run(self, leaves: Sequence[Any]) -> list[Any]:
        if len(leaves) != len(self.inputs):
            raise ModelError(
                f"{self.__name__!r} is given another number of arrays than it has",
                given=len(leaves),
                expected=str(len(self.inputs)),
            )
        arrays = [jnp.asarray(item) for item in leaves]
        for k, (item, kind) in enumerate(zip(arrays, self.inputs, strict=True)):
            if item.shape != kind.shape or item.dtype != jax.dtypes.canonicalize_dtype(kind.dtype):
                raise ModelError(
                    f"argument {k} of {self.__name__!r} is of another type",
                    given=f"{item.dtype}{list(item.shape)}",
                    expected=f"{kind.dtype}{list(kind.shape)}",
                )
        with self._context:
            return [jnp.asarray(item) for item in self._evaluator.function(self._main, *arrays)]

    def __repr__(self) -> str:
        text = lambda kinds: ", ".join(f"{kind.dtype}{list(kind.shape)}" for kind in kinds)  # noqa: E731
        return f"Module({self.__name__!r}, {text(self.inputs)} -> {text(self.outputs)})"


def _struct(kind: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(attributes.shape_of(kind), attributes.element_of(kind))


def _all(operations: Any) -> Iterator[Any]:
    for item in operations:
        yield item
        for region in item.regions:
            for block in region.blocks:
                yield from _all([one.operation for one in block.operations])


def _check(functions: Any) -> None:
    """That something computes every operation.

    Raises:
        ModelError: nothing does; it has all of them, with how often each occurs.
    """
    missing = Counter(
        str(operation.name)
        for operation in _all(functions)
        if str(operation.name) not in OPERATIONS and str(operation.name) not in _RETURNS
    )
    if missing:
        raise ModelError(
            "nothing here computes some of its operations",
            given=", ".join(f"{name} ({count})" for name, count in missing.most_common()),
            expected=", ".join(sorted(name.partition(".")[2] for name in OPERATIONS))[:300] + ", ...",
        )


def load(source: Any) -> Module:
    """Load a StableHLO module as a JAX function.

    Args:
        source: its text; the bytes of a portable artifact, or of a text; or a `jax.export.Exported`, whose structure of
            arguments and results is kept.

    An artifact is read in a separate process, which takes about a second: jaxlib's reader may end its process on one
    that is damaged. A result of `jax.export` needs none.

    Returns:
        A `Module`: `module(*arguments)`.

    Raises:
        ModelError: none of these, an unsupported operation, or open dimensions.

    >>> import codelet as cl, jax, jax.numpy as jnp
    >>> exported = jax.export.export(jax.jit(lambda x: 2 * x))(jnp.ones(3))
    >>> module = cl.stablehlo.load(exported)
    >>> module(jnp.arange(3.0)).tolist(), module.inputs[0].shape
    ([0.0, 2.0, 4.0], (3,))
    """
    exported = source if isinstance(source, jax.export.Exported) else None
    if exported is not None:
        source = exported.mlir_module()
    if not isinstance(source, (str, bytes)):
        raise ModelError(
            "cl.stablehlo.load is given no module",
            given=type(source).__name__,
            expected="text, bytes, or a jax.export.Exported",
        )
    context = make_ir_context()
    try:
        if isinstance(source, bytes) and source.startswith(b"ML\xefR"):
            source = artifact_text(source)
        with context:
            module = ir.Module.parse(source)
    except (ir.MLIRError, ValueError, RuntimeError) as error:
        raise ModelError(
            "this is no module of StableHLO",
            given=str(error)[:300],
            expected="what jax.export, or TensorFlow, writes",
        ) from error
    with context:
        return Module(module, context, exported)
