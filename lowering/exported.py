"""Exported functions in files: StableHLO of `jax.export`, which runs where JAX alone is installed.

The function takes a dict of arrays by the names of the lowered function's arguments, and returns one by the names of
its results. A graph has fixed shapes; over a batch it is mapped, and exported for all sizes of that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import jax.export

from codelet.errors import SavingError
from codelet.graphs.by_tensor import key_of
from codelet.jaxprs.plain import Plain, dtype_name
from codelet.jaxprs.strict_json import written_json
from lowering.lower import Lowered

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
"""Where exported functions may run; JAX itself takes any name."""

ABOUT, FUNCTION = "exported.json", "exported/function"


def _refused(run: Lowered, error: Exception) -> SavingError:
    return SavingError(
        "a lowered function cannot be exported",
        given=f"{run!r:.80}: {type(error).__name__}: {str(error).splitlines()[0]:.200}",
        expected="a function without calls of the host, for platforms that JAX knows",
        fix='cl.save(path, run), without exported=True; platforms=("cpu",), ("cuda",) or ("tpu",)',
    )


def _kinds(run: Lowered, batched: Collection[str]) -> dict[str, jax.ShapeDtypeStruct]:
    """The types of the arguments, with a symbol for the size of the batch where there is one."""
    places = {item.name: item for item in run.arguments}
    unknown = sorted({*batched} - {*places})
    if unknown:
        raise SavingError(
            "an argument that a batch is of is none of the function's",
            given=f"batched={unknown!r:.80}",
            expected=", ".join(places),
        )
    (size,) = jax.export.symbolic_shape("batch") if batched else (None,)
    lead = {name: (size,) if name in batched else () for name in places}
    return {name: jax.ShapeDtypeStruct((*lead[name], *item.shape), item.dtype) for name, item in places.items()}


def exported_parts(
    run: Lowered, platforms: Sequence[str] | None, batched: Collection[str], names: Sequence[str] | None = None
) -> Mapping[str, list[Any]]:
    """The parts of a file of an exported function.

    Args:
        run: the lowered function.
        platforms: where it is to run; None for the one at hand.
        batched: the names of arguments that get a first dimension of any size, over which the function is mapped.
        names: of the results; None for those of their tensors.

    Raises:
        SavingError: a function that calls the host, or a platform that there is not.
    """
    if platforms is not None and not (platforms and {*platforms} <= {*PLATFORMS}):
        raise SavingError(
            "a function cannot be exported for platforms that there are not",
            given=f"platforms={platforms!r:.80}",
            expected=f"some of {', '.join(PLATFORMS)}",
        )
    kinds = _kinds(run, batched)
    keys = [str(key_of(item)) for item in run._compiled.plan.outputs] if names is None else list(names)

    def function(values: Mapping[str, Any]) -> dict[str, Any]:
        results = run.flat([values[name] for name in kinds])
        return dict(zip(keys, results, strict=False))

    mapped: Callable[..., Any] = function
    if batched:
        mapped = jax.vmap(function, in_axes=({name: 0 if name in batched else None for name in kinds},))
    try:
        exported = jax.export.export(jax.jit(mapped), platforms=platforms)(kinds)
        data = bytes(exported.serialize())
    except Exception as error:  # whatever JAX raises for what it cannot export
        raise _refused(run, error) from error
    about: Plain = {
        "platforms": list(exported.platforms),
        "inputs": [[name, [str(n) for n in item.shape], dtype_name(item.dtype)] for name, item in kinds.items()],
        "outputs": keys,
    }
    return {ABOUT: [written_json(about)], FUNCTION: [data]}
