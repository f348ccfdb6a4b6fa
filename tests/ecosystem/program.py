"""A program of another library: a function of arrays, what it is given, and where the like of it is documented."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

PACKAGES = {
    "flax": "flax",
    "haiku": "dm-haiku",
    "diffrax": "diffrax",
    "optimistix": "optimistix",
    "lineax": "lineax",
    "optax": "optax",
    "numpyro": "numpyro",
    "blackjax": "blackjax",
    "jraph": "jraph",
    "equinox": "equinox",
}
"""Packages by the names that they are imported by; the programs of each are in `of_<name>.py`."""


@dataclass(frozen=True)
class Program:
    """A program.

    Attributes:
        name: with its package before it.
        source: the page of the package's documentation, or the example, that has the like of it.
        make: the function, and what it is given.
        slopes: the places of the arguments by which its results are differentiated; none of what is no function of
            floats, or is differentiated already.
    """

    name: str
    source: str
    make: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]
    slopes: tuple[int, ...] = ()


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal numbers, the same for a shape and a seed whatever else was drawn."""
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def uniform(*shape: int) -> np.ndarray:
    """Numbers from 0 to 1, the same for a shape."""
    return np.random.default_rng(shape).uniform(size=shape).astype(np.float32)


def whole(most: int, *shape: int, seed: int = 0) -> np.ndarray:
    """Integers from 0 below another, the same for a shape and a seed."""
    return np.random.default_rng((seed, *shape)).integers(0, most, shape).astype(np.int32)


PROGRAMS: dict[str, Program] = {}
"""All of them, by name, of the packages that were imported so far."""


def program(name: str, source: str, *, slopes: tuple[int, ...] = ()) -> Callable[[Any], Any]:
    """Register what makes a program."""

    def registered(make: Any) -> Any:
        assert name not in PROGRAMS
        PROGRAMS[name] = Program(name, source, make, slopes)
        return make

    return registered


def is_there(package: str) -> bool:
    """Whether a package is installed."""
    return importlib.util.find_spec(package) is not None


def programs_of(package: str) -> list[Program]:
    """The programs of a package that is installed, in the order in which they are written."""
    importlib.import_module(f"tests.ecosystem.of_{package}")
    return [own for own in PROGRAMS.values() if own.name.startswith(f"{package}/")]
