"""Index expressions in print: as one would write them."""

from __future__ import annotations

from collections.abc import Mapping

from codelet.views.affine import AffineMap, Table
from codelet.views.grids import Axis


def _column(table: Table) -> Axis | None:
    """The symbol whose positions along a combined axis are in a table, if there is one."""
    if len(table.keys) != 1 or not isinstance(table.keys[0], Axis):
        return None
    return next((axis for axis, own in table.keys[0].ancestors.items() if own is table.values), None)


def index_text(index: AffineMap, names: Mapping[Axis, str] | None = None) -> str:
    """An index in symbols and dimensions.

    Dimensions are called f0, f1, ...; symbols by `names`, or as the user named them, and then stand for the numbers
    of their axes. Without a name positions along an axis are called i0, i1, ...
    """
    offset, terms, axes = index.offset, [], index.axes

    def called(key: int | Axis) -> str | None:
        return f"f{key}" if isinstance(key, int) else (names or {}).get(key, key.name)

    def label(key: int | Axis) -> str:
        return called(key) or ("?" if names or not isinstance(key, Axis) else f"i{axes.index(key)}")

    def term(key: int | Axis, coefficient: int) -> int:
        """Note how often a symbol or dimension is taken; the rest is returned."""
        name, rest = label(key), 0
        if isinstance(key, Axis) and called(key) is not None and (key.values.start, key.values.step) != (0, 1):
            if coefficient % key.values.step == 0:
                coefficient //= key.values.step
                rest = -coefficient * key.values.start
            else:
                name = f"position of {name}"
        terms.append((coefficient, name))
        return rest

    for key in index.keys:
        if coefficient := index.coefficient(key):
            offset += term(key, coefficient)
    for table in index.tables:
        symbol = _column(table)
        if symbol is not None and called(symbol) is not None:
            offset += term(symbol, table.scale)
        elif table.values.size == 1:
            offset += int(table.values.flat[0]) * table.scale
        else:
            terms.append((table.scale, f"table{list(table.values.shape)}[{', '.join(map(label, table.keys))}]"))
    varying = index.keys
    terms += [(0, label(axis)) for axis, coefficient in index.symbols if not coefficient and axis not in varying]
    parts = [str(offset)] if offset or not terms else []
    for coefficient, name in terms:
        factor = name if abs(coefficient) == 1 else f"{abs(coefficient)}*{name}"
        sign = "-" if coefficient < 0 else "+"
        parts.append(f"{sign} {factor}" if parts else factor if sign == "+" else f"-{factor}")
    return " ".join(parts)
