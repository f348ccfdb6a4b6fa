"""Every pattern."""

from __future__ import annotations

from tests.patterns import (
    places,
    products,
    reductions,
    rows_in_loops,
    shapes,
    slices,
    slow_products,
    tables,
    turns,
    updates,
)

_MODULES = (slices, places, rows_in_loops, turns, products, slow_products, reductions, tables, shapes, updates)

PATTERNS = {module.PATTERN.name: module.PATTERN for module in _MODULES}
"""Every pattern, by name."""
