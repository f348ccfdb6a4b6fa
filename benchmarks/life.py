"""Conway's game of life on a torus of bytes: periodic neighbours, written in three ways."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from benchmarks.harness import Comparison, Row, benchmark
from tutorials.programs.life import VARIANTS, twin


@benchmark
def life(side: int = 1024, steps: int = 100) -> Generator[Comparison | Row, Row, None]:
    """Life on a torus of 1024 x 1024 bytes, 100 steps: neighbours by `%`, by a wrapped pad, and as windows of 3 x 3."""
    for variant in VARIANTS:
        yield replace(twin(side, steps, variant), bar=1.1)
