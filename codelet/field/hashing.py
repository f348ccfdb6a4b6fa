"""Functions of which nothing is known but that equal operands give equal results: hashes of residues.

Each is computed of all draws of a number together, in two words of 64 bits, by mixing that loses nothing. For one
operand of up to four draws no two inputs give the same words. Of several operands, a chance of about 2**-128 for each
pair.

Source: the finalizer of SplitMix64, G. Steele, D. Lea and C. Flood, Fast splittable pseudorandom number
generators, 2014.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from codelet.field.arithmetic import PRIME

Words = tuple[Any, Any]
"""Two words of 64 bits for each element."""


def key_of(name: object) -> tuple[int, int]:
    """Two words for a name, the same in every process."""
    digest = hashlib.blake2b(repr(name).encode(), digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


def _mixed(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        x = x ^ (x >> np.uint64(30))
        x = x * np.uint64(0xBF58476D1CE4E5B9)
        x = x ^ (x >> np.uint64(27))
        x = x * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def words_of(residues: np.ndarray) -> Words:
    """The residues of all draws, the first dimension, as two words: two draws in each, others folded in."""
    own = residues.astype(np.uint64)
    high = own >> np.uint64(31)
    if high.any():  # of complex numbers; of those that are real, as of residues
        state = words_of(own & np.uint64(PRIME))
        more, is_real = absorbed(state, words_of(high)), ~high.any(0)
        return tuple(np.where(is_real, *both) for both in zip(state, more, strict=True))  # type: ignore[return-value]
    first, second = np.zeros(own.shape[1:], np.uint64), np.zeros(own.shape[1:], np.uint64)
    for k in range(0, len(own), 4):
        parts = [own[k + d] if k + d < len(own) else np.uint64(0) for d in range(4)]
        first, second = absorbed(
            (first, second), (parts[0] | parts[1] << np.uint64(31), parts[2] | parts[3] << np.uint64(31))
        )
    return first, second


def absorbed(state: Words, more: Words) -> Words:
    """A state after two more words."""
    with np.errstate(over="ignore"):
        first = _mixed(state[0] ^ more[0])
        second = _mixed((state[1] ^ more[1]) + first)
        return _mixed(first + (second >> np.uint64(7))), second


def residues_of(words: Words, draws: int) -> np.ndarray:
    """Residues of so many draws, made from two words."""
    made = []
    for k in range(0, draws, 4):
        first, second = absorbed(words, (np.uint64(k + 1), np.uint64(0)))
        made += [first & np.uint64(PRIME), first >> np.uint64(31) & np.uint64(PRIME)]
        made += [second & np.uint64(PRIME), second >> np.uint64(31) & np.uint64(PRIME)]
    stacked = np.stack([np.broadcast_to(own, np.shape(words[0])) for own in made[:draws]]).astype(np.int64)
    return np.where(stacked == PRIME, 0, stacked)


def state_of(name: object, operands: Sequence[Words]) -> Words:
    """The state after a function's name and its operands, in order."""
    one, two = key_of(name)
    state: Words = (np.uint64(one), np.uint64(two))
    for own in operands:
        state = absorbed(state, own)
    return state


def uninterpreted(name: object, *operands: np.ndarray) -> np.ndarray:
    """A function of which nothing is known, of residues of some draws each.

    Args:
        name: of the function, with all its parameters.
        operands: (draws, ...) each, which are broadcast to one another.
    """
    words = [words_of(own) for own in operands]
    return residues_of(state_of(name, words), len(operands[0]))
