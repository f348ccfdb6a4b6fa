"""Arithmetic of complex numbers over the field: pairs of residues, in one word each.

The prime is 3 modulo 4, so that -1 has no square root among the residues, and pairs are a field of p**2 elements. A
pair is `real + imaginary * 2**31`: one of a real number is its residue. The names are those of `arithmetic.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from codelet.field import arithmetic
from codelet.field.arithmetic import PRIME


def pair(real: np.ndarray, imaginary: np.ndarray) -> np.ndarray:
    """Complex numbers of their parts."""
    return real | imaginary << 31


def parts(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The real and the imaginary parts of complex numbers."""
    return x & PRIME, x >> 31


def conjugate(x: np.ndarray) -> np.ndarray:
    """The complex conjugates."""
    real, imaginary = parts(x)
    return pair(real, arithmetic.negative(imaginary))


def square_of_size(x: np.ndarray) -> np.ndarray:
    """Numbers times their conjugates: residues."""
    real, imaginary = parts(x)
    return arithmetic.reduced(real * real + imaginary * imaginary)


def _by_part(function: Any, *operands: np.ndarray, **named: Any) -> np.ndarray:
    reals, imaginaries = zip(*map(parts, operands), strict=True)
    return pair(function(*reals, **named), function(*imaginaries, **named))


def add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return _by_part(arithmetic.add, a, b)


def subtract(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return _by_part(arithmetic.subtract, a, b)


def negative(a: np.ndarray) -> np.ndarray:
    return _by_part(arithmetic.negative, a)


def _product(a: np.ndarray, b: np.ndarray, multiplied: Any) -> np.ndarray:
    (a, b), (c, d) = parts(a), parts(b)
    real = arithmetic.subtract(multiplied(a, c), multiplied(b, d))
    return pair(real, arithmetic.add(multiplied(a, d), multiplied(b, c)))


def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return _product(a, b, arithmetic.multiply)


def matrix_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return _product(a, b, arithmetic.matrix_product)


def power(a: np.ndarray, exponent: int) -> np.ndarray:
    return arithmetic.power(a, exponent, multiply)


def inverse(a: np.ndarray) -> np.ndarray:
    """The number that makes one with another; 0 of 0."""
    return multiply(conjugate(a), arithmetic.inverse(square_of_size(a)))


def total(x: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    return _by_part(arithmetic.total, x, axes=axes)


def product(x: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    return arithmetic.product(x, axes, multiply)


def running_sum(x: np.ndarray, axis: int) -> np.ndarray:
    return _by_part(arithmetic.running_sum, x, axis=axis)


_PAIRS = sys.modules[__name__]


def numbers_of(dtype: Any) -> ModuleType:
    """The arithmetic of a dtype: this module, or `arithmetic`."""
    return _PAIRS if np.issubdtype(dtype, np.complexfloating) else arithmetic
