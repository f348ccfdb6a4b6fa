"""Rules for what a library computes by an algorithm of its own: sorting, random numbers."""

from __future__ import annotations

from ipu_backend.model.costs import Cost, Mode, ceil_div, guessed
from ipu_backend.model.cycle_rules import rule
from ipu_backend.model.equations import Equation, itemsize_of, size_of

THREEFRY_CYCLES = 120
"""For one block of two random words: 20 rounds of five instructions, and the keys (a count, not a measurement)."""


@rule("sort", "top_k", "approx_top_k")
def _sort(eqn: Equation, mode: Mode) -> Cost:
    """A heap sort of n log2 n steps, 10 cycles for each operand: a guess."""
    shape = eqn.operands[0].aval.shape
    n = shape[eqn.params.get("dimension", -1)]
    steps = size_of(eqn.operands[0]) * max(1, (n - 1).bit_length())
    return guessed(17 + 10 * steps * len(eqn.operands))


@rule("random_bits", "threefry2x32", "random_split", "random_fold_in")
def _random(eqn: Equation, mode: Mode) -> Cost:
    """Threefry as JAX computes it, for reproducible numbers; the machine's own generator is not used."""
    per_block = 1 if eqn.primitive in ("random_split", "random_fold_in") else 2
    words = eqn.size * (max(1, itemsize_of(eqn.results[0].aval.dtype) // 4) if per_block == 2 else 1)
    return guessed(THREEFRY_CYCLES * ceil_div(words, per_block))
