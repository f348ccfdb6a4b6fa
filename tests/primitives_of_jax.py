"""All primitives that JAX can stage, with the parameters of its own tests: how each is added to a graph.

python -m tests.primitives_of_jax             what became of them, by primitive
python -m tests.primitives_of_jax lax_sort    of one group alone

The programs are those that JAX's own tests of its exporters run. They are private, and so in tests alone.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Iterator
from multiprocessing import get_context
from typing import Any, NamedTuple

import jax
import numpy as np
from jax._src.internal_test_util import test_harnesses

import codelet as cl
from codelet.errors import OneVertexWarning

BY_RULES, ONE_VERTEX, REFUSED, NOT_BY_JAX = "by rules", "by one vertex", "refused", "not by JAX itself"
LOADED = "loaded"


class Outcome(NamedTuple):
    """What became of a program.

    Attributes:
        name: of the program.
        what: one of the words above, or what is wrong.
        why: the message of what was refused, or is wrong.
    """

    name: str
    what: str
    why: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether the values are others, or an error is no own one."""
        return self.what not in (BY_RULES, ONE_VERTEX, LOADED, REFUSED, NOT_BY_JAX)


def groups() -> dict[str, list[Any]]:
    """The programs by what they are of."""
    found: dict[str, list[Any]] = {}
    for harness in test_harnesses.all_harnesses:
        found.setdefault(harness.group_name, []).append(harness)
    return found


def _numbers(value: Any) -> np.ndarray:
    if jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    held = np.asarray(value)
    return held.astype(
        np.complex128 if np.iscomplexobj(held) else np.float64 if held.dtype.kind not in "biu" else held.dtype
    )


def _differs(found: Any, expected: Any) -> str:
    """How results differ from others; nothing where they do not."""
    if jax.tree.structure(found) != jax.tree.structure(expected):
        return "another structure"
    for own, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        if (own.shape, own.dtype) != (other.shape, other.dtype):
            return f"{own.dtype}{own.shape} for {other.dtype}{other.shape}"
        is_float = jax.numpy.issubdtype(own.dtype, np.inexact)
        tolerance = 64 * float(jax.numpy.finfo(own.dtype).eps) if is_float else 0
        a, b = _numbers(own), _numbers(other)
        with np.errstate(invalid="ignore", over="ignore"):
            scale = float(np.abs(b[np.isfinite(b)]).max(initial=1)) if is_float else 0
            if not np.allclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
                return f"{a.reshape(-1)[:4]} for {b.reshape(-1)[:4]}"
    return ""


def outcome(harness: Any) -> Outcome:
    """What becomes of a program."""
    name = harness.fullname
    with jax.enable_x64(True), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        given = harness.dyn_args_maker(np.random.RandomState(0))
        try:
            expected = jax.jit(harness.dyn_fun)(*given)
        except Exception as error:
            return Outcome(name, NOT_BY_JAX, f"{type(error).__name__}: {error}"[:200])
        try:
            traced = cl.trace(harness.dyn_fun, *given)
            found = jax.jit(traced)(*given)
        except cl.CodeletError as error:
            return Outcome(name, REFUSED, f"{type(error).__name__}: {error}"[:400])
        except Exception as error:
            return Outcome(name, f"a foreign error, {type(error).__name__}", str(error)[:400])
        difference = _differs(found, expected)
    if difference:
        return Outcome(name, "other values", difference)
    return Outcome(name, ONE_VERTEX if any(issubclass(own.category, OneVertexWarning) for own in told) else BY_RULES)


def outcome_of_exported(harness: Any) -> Outcome:
    """What becomes of a program that JAX has exported, and that is loaded again."""
    name = harness.fullname
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = harness.dyn_args_maker(np.random.RandomState(0))
        try:
            function = jax.jit(harness.dyn_fun)
            exported, expected = jax.export.export(function)(*given), function(*given)
        except Exception as error:
            return Outcome(name, NOT_BY_JAX, f"{type(error).__name__}: {error}"[:200])
        try:
            found = jax.jit(cl.stablehlo.load(exported))(*given)
        except cl.CodeletError as error:
            return Outcome(name, REFUSED, f"{error}"[:400])
        except Exception as error:
            return Outcome(name, f"a foreign error, {type(error).__name__}", str(error)[:400])
        difference = _differs(found, expected)
    return Outcome(name, "other values", difference) if difference else Outcome(name, LOADED)


def outcomes(group: str) -> list[Outcome]:
    """What becomes of the programs of a group."""
    return [outcome(harness) for harness in groups()[group]]


def _all(names: list[str], workers: int) -> Iterator[tuple[str, list[Outcome]]]:
    with get_context("spawn").Pool(workers, maxtasksperchild=8) as pool:
        yield from zip(names, pool.imap(outcomes, names), strict=True)


def main() -> None:
    """Print what became of the programs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", help="those alone")
    parser.add_argument("--workers", type=int, default=2, help="processes at once")
    arguments = parser.parse_args()
    total: Counter[str] = Counter()
    for group, found in _all(arguments.groups or list(groups()), arguments.workers):
        counts = Counter(own.what for own in found)
        total += counts
        print(f"{group:34}", ", ".join(f"{count:,} {what}" for what, count in counts.items()), flush=True)
        for own in found:
            if own.is_wrong or own.what == REFUSED:
                print("   ", own.name, own.what, own.why.replace("\n", " "), sep="; ", flush=True)
    print(f"{'all':34}", ", ".join(f"{count:,} {what}" for what, count in total.items()))


if __name__ == "__main__":
    main()
