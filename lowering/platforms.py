"""Platforms: what a graph is lowered for, and which rules and kernels are meant for which platforms, and why.

XLA's backends are slow and fast at different things. Each rule on jaxprs (`lowering/jaxprs`) and each kernel
(`lowering/fast/kernels.py`) has a line in `MEANT`: where it runs, and the row that says so, measured on CPUs
(docs/passes.md, benchmarks/README.md) or counted in what is compiled for GPUs (docs/gpu.md). Values are the same
whichever rules run, so that a function that was lowered for one platform runs on every other.

The platform is that of JAX's default device unless `cl.lower(..., platform=)` says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import jax
from jax.extend import core as jax_core

from codelet.errors import ProgramError

Rule = Callable[[jax_core.ClosedJaxpr], jax_core.ClosedJaxpr]
"""What makes another jaxpr of one, with the same results."""

PLATFORMS = ("cpu", "gpu", "tpu")
"""As `jax.default_backend` calls them."""

_SAME = {"cuda": "gpu", "rocm": "gpu"}

_chosen: ContextVar[str | None] = ContextVar("platform", default=None)


def platform_now() -> str:
    """The platform that is lowered for: the one that was chosen, else that of JAX's default device.

    >>> with lowering_for("gpu"):
    ...     platform_now()
    'gpu'
    """
    chosen = _chosen.get()
    if chosen is not None:
        return chosen
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    given = jax.default_backend() if device is None else getattr(device, "platform", device)
    return _SAME.get(given, given)


def checked_platform(given: object) -> str | None:
    """A platform that a user gives, by the name that `PLATFORMS` has for it; None for none.

    Raises:
        ProgramError: no platform.
    """
    name = _SAME.get(given, given) if isinstance(given, str) else given
    if name is not None and name not in PLATFORMS:
        raise ProgramError(
            "a graph is lowered for a platform that there is not",
            given=f"platform={given!r:.80}",
            expected=f"one of {', '.join(map(repr, PLATFORMS))}",
            fix="leave it off for that of JAX's default device",
        )
    return name  # type: ignore[return-value]


@contextmanager
def lowering_for(platform: str | None) -> Iterator[None]:
    """Where graphs are lowered for a platform; for None as without it."""
    before = _chosen.set(_chosen.get() if platform is None else platform)
    try:
        yield
    finally:
        _chosen.reset(before)


class Meant(NamedTuple):
    """Where a rule or kernel runs, and why."""

    on: tuple[str, ...]
    why: str


_ALL = PLATFORMS
_CPU = ("cpu",)

MEANT: dict[str, Meant] = {
    # Kernels, in the order in which they are tried.
    "segments": Meant(_ALL, "one scatter for rows of any lengths: `messages`"),
    "buckets": Meant(_ALL, "a codelet of rows has no other way"),
    "a convolution": Meant(_ALL, "windows are not copied: `conv`"),
    "windows of one element": Meant(
        ("gpu",), "a convolution strides as it reads: `ops_conv/resnet50/shortcut3`, one kernel for two on an A100"
    ),
    "windows reduced": Meant(_ALL, "a window is reduced a dimension at a time: `correlate/1024`"),
    "a pooling": Meant(_ALL, "the same: `ops_pool`"),
    "windows element by element": Meant(
        _ALL, "one loop over slices, no stack of them: `life/windows` 1.8; on a GPU 1.25"
    ),
    "vmap": Meant(_ALL, "everything else"),
    # Rules on jaxprs, in the order of `simplify`.
    "equal_constants_once": Meant(_ALL, "what equal tables give is computed once: `adjoint_messages` 1.14"),
    "compare_tables": Meant(_CPU, "a quarter of a table's bytes: `bitonic` 1.09; on a GPU 62 kernels in place of 58"),
    "as_one_number": Meant(_ALL, "arrays of one number are not read: `npbench/lu/trace_of_grad` 2.21 of the bytes"),
    "slices_in_order": Meant(_ALL, "no transposed tables: `ops_embedding/gradient` 4.8"),
    "within_bounds": Meant(_ALL, "no selects for places beyond the ends: `loops/fori_own`"),
    "as_one_slice": Meant(_ALL, "a slice alone is touched, not all that a loop carries: `loops/fori_own`"),
    "repeat_less": Meant(_ALL, "`npbench/mlp/adjoint` 4.4 of the bytes"),
    "contract": Meant(_ALL, "sums of products are products of matrices: `matvec`"),
    "contract_in_order": Meant(_ALL, "`npbench/scattering_self_energies/odd/adjoint` 1.1"),
    "dots_in_memory_order": Meant(_ALL, "no transposes before products: `ops_attention` 1.1"),
    "join_tables": Meant(_ALL, "`adjoint_messages` 1.78 of the bytes; on a GPU 4 kernels in place of 6"),
    "drop_single_dimensions": Meant(_ALL, "`npbench/azimint_naive/adjoint` 2.8"),
    "reshape_once": Meant(_ALL, "`ops_norm/group` 1.6"),
    "make_in_shape": Meant(_ALL, "`ops_attention` 1.1"),
    "numbers of places": Meant(
        ("gpu",), "as their vector: `npbench/azimint_hist/adjoint` 6 kernels for 7; on a CPU 1.04 of the time"
    ),
    "reduce_in_shape": Meant(_ALL, "`npbench/azimint_naive/adjoint` 6"),
    "join_side_by_side": Meant(_ALL, "one product in place of one for each part: `npbench/mlp/odd/adjoint`"),
    "slice_before_loops": Meant(_ALL, "`npbench/seidel_2d/grad_of_traced` 7.8 of the bytes"),
    "columns_as_rows": Meant(_ALL, "rows of memory in every turn: `npbench/adi` 1.10"),
    "forward_updates": Meant(_ALL, "no array is copied in a turn: `loops/fori_rows/4000x100/adjoint` 1,000"),
    "scan_rows": Meant(_ALL, "gradients of loops are linear: `loops/scan/grad_of_traced` 2,000 of the bytes"),
    "turns_at_once": Meant(
        ("gpu",), "one kernel in place of one for each turn: `loops/fori_own/4000x100/grad_of_traced` 24,004"
    ),
    "pad_in_common": Meant(_ALL, "`npbench/vadv/trace_of_grad` 1.17"),
    "pad_widely": Meant(_ALL, "`npbench/heat_3d/trace_of_grad` 1.5"),
    "carry_extended": Meant(_CPU, "a pass less in a turn: `life/wrap` 1.3; on a GPU twice the temporary memory"),
    "update_safely": Meant(_ALL, "values: XLA would run such an update in place, over what it has still to read"),
    "updates by comparisons": Meant(
        ("gpu",), "no mask is kept: `npbench/lu/grad_of_traced` 0.07 of the temporary memory; on a CPU twice the time"
    ),
    "scatter_small_updates": Meant(_CPU, "2 us for 400; on a GPU `npbench/durbin` launches 10,497 kernels for 8,998"),
    "reduce_by_halves": Meant(_CPU, "XLA's CPU backend reduces major dimensions 10 to 50 times slower"),
    "multiply_narrowly": Meant(_CPU, "products that XLA's CPU backend does slowly: `resnet18_step`"),
    "multiply_thinly": Meant(_CPU, "products that XLA's CPU backend does slowly: `npbench/mlp`"),
    "round_in_products": Meant(
        ("gpu",),
        "products are written once, in the dtype that they have: `gpt2/float16/step` 2.6 of the temporary memory",
    ),
    "recompute": Meant(_ALL, "`lattice_boltzmann/one/gradient` 4.1; on a GPU 605 kernels in place of 1,205"),
    "broadcast_positions": Meant(
        ("gpu",), "a mask of rows and columns is fused with what it selects: `npbench/symm`, 3 kernels in place of 4"
    ),
    "sum_divided_others": Meant(
        ("gpu",), "a softmax and its gradient are a kernel each: `ops_softmax/rows/gradient_operation`, 2 in place of 3"
    ),
    # What is differentiated in the place of a jaxpr: `slopes.py`.
    "with_steady_winners": Meant(_ALL, "values: maxima that XLA computes twice would lose their slopes"),
    "with_slopes_added": Meant(_ALL, "one cotangent in place of two: `loop_gradients/wave` 1.8"),
    "with_slices_together": Meant(_ALL, "on CPUs by updates in place, elsewhere by pads, chosen when XLA compiles"),
    "with_slopes_of_scans": Meant(_ALL, "`loops/scan/4000x100/grad_of_traced` 2,000 of the bytes"),
}
"""Where each kernel and each rule runs, and for which reason: a row by its ratio without it, or by its bytes."""


def is_meant(name: str) -> bool:
    """True if a rule or kernel runs on the platform that is lowered for, or `MEANT` does not name it, as in tests."""
    meant = MEANT.get(name)
    return meant is None or meant.on == _ALL or platform_now() in meant.on


def after(closed: jax_core.ClosedJaxpr, *rules: Rule) -> jax_core.ClosedJaxpr:
    """A jaxpr after rules, one after another: those that are meant for the platform that is lowered for."""
    for rule in rules:
        if is_meant(getattr(rule, "__name__", "")):
            closed = rule(closed)
    return closed
