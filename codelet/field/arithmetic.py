"""Arithmetic modulo the prime 2**31 - 1, of arrays of residues: sums, products, powers, and the residues of floats.

A product of two residues fits 64 bits. Products of matrices are made of those of their halves, of 15 and 16 bits, in
float64, whose sums are exact up to 2**53: that is the BLAS's work. Where no more than 2,048 are summed the smaller of
the two is cut into two or three pieces, and the other stays whole.

Source: A. Karatsuba and Y. Ofman, Multiplication of multidigit numbers on automata, 1963: three products for four.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

PRIME = (1 << 31) - 1
"""A Mersenne prime, and 3 modulo 4: -1 has no square root, so that pairs of residues are complex numbers."""

Product = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""What multiplies arrays by element."""

MOST_SUMMED = 1 << 18
"""So many products of halves are summed at once at most: each is below 2**34."""


FEW = 12
"""Residues whose powers Python makes faster than NumPy."""


LEAST_BITS = 11
"""Of pieces of a residue: three of them."""


MOST_AT_ONCE = 1 << 22
"""Elements of matrices that are multiplied at once, of which there are several copies meanwhile."""


def reduced(x: np.ndarray) -> np.ndarray:
    """Numbers from 0 to 2**63 modulo the prime."""
    return x % PRIME


def add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The sum of residues."""
    return _modulo(a + b)


def negative(a: np.ndarray) -> np.ndarray:
    """The number that makes zero with a residue."""
    return _modulo(PRIME - a)


def subtract(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The difference of residues."""
    made = a - b
    made += PRIME
    return _modulo(made)


def _modulo(x: np.ndarray) -> np.ndarray:
    """New numbers from 0 modulo the prime, in their place: NumPy divides by a constant without division."""
    return np.remainder(x, PRIME, out=x) if isinstance(x, np.ndarray) else x % PRIME


def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product of residues."""
    return _modulo(a * b)


def power(a: np.ndarray, exponent: int, multiplied: Product = multiply) -> np.ndarray:
    """A power of residues, or of other things that are multiplied, by an exponent from 0."""
    if multiplied is multiply and a.size <= FEW:
        made = [pow(int(own), exponent, PRIME) for own in a.reshape(-1)]
        return np.array(made, np.int64).reshape(a.shape)
    made, square = np.ones_like(a), a
    while exponent:
        if exponent & 1:
            made = multiplied(made, square)
        exponent >>= 1
        square = multiplied(square, square) if exponent else square
    return made


def inverse(a: np.ndarray) -> np.ndarray:
    """The number that makes one with a residue; 0 of 0."""
    return power(a, PRIME - 2)


def root(a: np.ndarray) -> np.ndarray:
    """A power that stands for a square root: of a product the product of the roots, and of `-a` the negative.

    Its square is `a`, or the negative of it.
    """
    return power(a, (3 * PRIME - 1) // 4)


def total(x: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    """The sum along some axes: of up to 2**32 residues, which 63 bits hold."""
    return reduced(x.sum(axis=tuple(axes), dtype=np.int64)) if axes else x


def product(x: np.ndarray, axes: Sequence[int], multiplied: Product = multiply) -> np.ndarray:
    """The product along some axes."""
    for axis in sorted(axes, reverse=True):
        x = np.moveaxis(x, axis, 0)
        while len(x) > 1:
            half = len(x) // 2
            x = np.concatenate([multiplied(x[:half], x[half : 2 * half]), x[2 * half :]])
        x = x[0] if len(x) else np.ones(x.shape[1:], np.int64)
    return x


def running_sum(x: np.ndarray, axis: int) -> np.ndarray:
    """The sums of all elements along an axis up to each of them."""
    return reduced(np.cumsum(x, axis))


def running(x: np.ndarray, axis: int, combine: Any) -> np.ndarray:
    """The prefix combination, by `combine`, of all elements along an axis, in logarithmically many steps."""
    x, reach = np.moveaxis(x, axis, 0), 1
    while reach < len(x):
        x = np.concatenate([x[:reach], combine(x[:-reach], x[reach:])])
        reach *= 2
    return np.moveaxis(x, 0, axis)


def matrix_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product of (..., rows, n) and (..., n, columns)."""
    n = a.shape[-1]
    if n > MOST_SUMMED:
        parts = range(0, n, MOST_SUMMED)
        each = [matrix_product(a[..., k : k + MOST_SUMMED], b[..., k : k + MOST_SUMMED, :]) for k in parts]
        return reduced(np.sum(each, axis=0))
    if a.ndim > 2 and len(a) == len(b) and max(a.size, b.size, math.prod((*a.shape[:-1], b.shape[-1]))) > MOST_AT_ONCE:
        made = np.empty((*a.shape[:-1], b.shape[-1]), np.int32)
        for k in range(len(a)):
            made[k] = matrix_product(a[k], b[k])
        return made
    bits = min(16, 22 - max(n - 1, 0).bit_length())  # so that all sums are below 2**53
    if bits >= LEAST_BITS and a.size <= b.size:
        return _by_pieces(a, b, bits)
    if bits >= LEAST_BITS:
        return _by_pieces(b.swapaxes(-1, -2), a.swapaxes(-1, -2), bits).swapaxes(-1, -2)
    low_a, high_a, low_b, high_b = a & 0xFFFF, a >> 16, b & 0xFFFF, b >> 16
    low, high = _exact_product(low_a, low_b), _exact_product(high_a, high_b)
    middle = _exact_product(low_a + high_a, low_b + high_b)
    middle -= low
    middle -= high
    made = _modulo(middle)
    made <<= 16
    made += low
    high <<= 1  # 2**32 is 2
    made += high
    return _modulo(made)


def _by_pieces(a: np.ndarray, b: np.ndarray, bits: int) -> np.ndarray:
    """The product of matrices, one of them in pieces of so many bits and the other as it is."""
    whole, made = b.astype(np.float64), np.zeros((), np.int64)
    for shift in reversed(range(0, 31, bits)):
        piece = (a >> shift) & ((1 << bits) - 1)
        part = np.matmul(piece.astype(np.float64), whole).astype(np.int64)
        part += made << bits
        made = _modulo(part)
    return made


def _exact_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product of matrices of integers, below 2**53."""
    return np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64)


# --- what floats stand for ----------------------------------------------------------------------------------

MOST_BITS = 24
"""Significant bits of the floats that stand for simple fractions."""


def _simplest(numerator: np.ndarray, halves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The fractions of least denominators within half a unit of `numerator / 2**halves`, by continued fractions.

    Source: the Stern-Brocot tree, R. Graham, D. Knuth and O. Patashnik, Concrete Mathematics, section 4.5.
    """
    a, b = 2 * numerator - 1, 2 * numerator + 1
    below = above = np.int64(2) << halves
    made = np.zeros_like(numerator), np.ones_like(numerator)
    p = [np.zeros_like(numerator), np.ones_like(numerator)]
    q = [np.ones_like(numerator), np.zeros_like(numerator)]
    left = np.arange(len(numerator))
    while len(left):
        whole = a // below
        is_whole = whole * below == a
        ends = is_whole | ((whole + 1) * above <= b)
        last = np.where(is_whole, whole, whole + 1)
        done = left[ends]
        made[0][done] = last[ends] * p[1][ends] + p[0][ends]
        made[1][done] = last[ends] * q[1][ends] + q[0][ends]
        go = ~ends
        left, whole = left[go], whole[go]
        p = [p[1][go], whole * p[1][go] + p[0][go]]
        q = [q[1][go], whole * q[1][go] + q[0][go]]
        a, b, below, above = above[go], below[go], b[go] - whole * above[go], a[go] - whole * below[go]
    return made


def of_floats(values: np.ndarray) -> np.ndarray:
    """The residues that finite floats stand for: of the simplest fraction that is rounded to each.

    That is 1/3 of 0.33333334, so that a number means the same in every dtype. Very large and very small ones, and those
    of more than 24 bits that no simple fraction is rounded to, are taken exactly: an integer times a power of two.
    """
    flat = np.abs(np.asarray(values).reshape(-1)).astype(np.float64)
    mantissa, exponent = np.frexp(flat)
    bits = _significant(np.asarray(values).dtype)
    whole = np.ldexp(mantissa, bits).astype(np.int64)  # below 2**53
    halves = bits - exponent.astype(np.int64)
    numerator, denominator = reduced(whole), power_of_two(-halves)
    short = np.minimum(bits, MOST_BITS)
    near = np.rint(np.ldexp(mantissa, short)).astype(np.int64)
    tried = np.flatnonzero((flat > 0) & (short - exponent > 0) & (short - exponent < 60 - short))
    if len(tried):
        up, down = _simplest(near[tried], (short - exponent[tried]).astype(np.int64))
        fits = (up / down).astype(values.dtype) == flat[tried].astype(values.dtype)
        tried, up, down = tried[fits], up[fits], down[fits]
        numerator[tried], denominator[tried] = reduced(up), inverse(reduced(down))
    made = multiply(numerator, denominator)
    return np.where(np.signbit(values.reshape(-1)), negative(made), made).reshape(values.shape)


def power_of_two(exponents: np.ndarray) -> np.ndarray:
    """Powers of two: 2**31 is one."""
    return np.int64(1) << exponents % 31


def _significant(dtype: np.dtype) -> int:
    """How many significant bits the numbers of a dtype have."""
    return int(jnp.finfo(dtype).nmant) + 1
