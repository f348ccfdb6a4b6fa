"""Whole products: the contributions of a product of matrices to its operands, planned as a product by itself.

Where no number of blocks divides a product, its blocks are several families: the rest along rows, columns and the
summed dimension has separate families. Block by block, contributions would be partial sums of as many shapes. In come
the family of inner products that all of them are (`whole_families.py`) and one of its fields. Out comes its
contribution as a product: the cotangents of the results times the other operand, summed over the axes that the other
operand alone depends on. `ops.dot_general` plans it as any other product.

An operand whose windows overlap is refused: its contributions are gathered (`gathered.py`) or summed by places.
"""

from __future__ import annotations

from typing import NamedTuple

from codelet.graphs.family import Family
from codelet.refused import Refused
from codelet.views.grids import Axis
from codelet.views.index import Index
from codelet.views.tensor import Tensor
from lowering.adjoint.fields import is_injective
from lowering.jaxprs.reduced_maps import as_inner_product


class WholeProduct(NamedTuple):
    """The contribution of a family of inner products to an operand, as a product.

    Attributes:
        other: the name of the operand that the cotangents are multiplied with.
        out: of the results.
        batch: the axes that both operands depend on.
        rows: those that the one alone which the contribution is for depends on.
        columns: those of the other alone, which are summed over.
        places: the flat positions that the contribution is for, with batch, rows and then the field's dimensions.
    """

    other: str
    out: str
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    places: Index

    def slopes(self, cotangents: Tensor) -> Tensor:
        """The cotangents of the results, as the vertices write these: batch, rows, columns."""
        return Tensor(cotangents.source, cotangents.index.lifted((*self.batch, *self.rows, *self.columns)))

    def operand(self, other: Tensor) -> Tensor:
        """The other operand, as the vertices read it: batch, columns, and the field's dimensions."""
        return Tensor(other.source, other.index.lifted((*self.batch, *self.columns)))

    @property
    def dimension_numbers(
        self,
    ) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]]]:
        """Of cotangents times the other operand; the results are batch, rows, and the field's dimensions."""
        batch, count = len(self.batch), len(self.columns)
        left = tuple(range(batch + len(self.rows), batch + len(self.rows) + count))
        return (left, tuple(range(batch, batch + count))), (tuple(range(batch)), tuple(range(batch)))


def as_whole_product(family: Family, name: str) -> WholeProduct | None:
    """The contribution of a family through a field as a product; None where it is none."""
    product = as_inner_product(family.codelet)
    if (
        isinstance(product, Refused)
        or name not in product.fields
        or product.precision is not None
        or not family.num_vertices
    ):
        return None
    (other,) = (own for own in product.fields if own != name)
    outs = [own.name for own in family.fields if own.is_written]
    views = [family.by_name[own].tensor for own in (name, other, *outs)]
    known = [view for view in views if view is not None and view.rows is None and not view.index.tables]
    if len(known) < 3 or len({view.dtype for view in known}) > 1 or known[0].dtype != product.reduced_in:
        return None
    field, others, out = ({axis for axis, step in view.index.symbols if step} for view in known)
    batch, rows, columns = (
        tuple(axis for axis in family.axes if (axis in field, axis in others) == own)
        for own in ((True, True), (True, False), (False, True))
    )
    places = known[0].index.lifted((*batch, *rows))
    if not columns or not out == {*family.axes} == field | others or not is_injective(places):
        return None
    return WholeProduct(other, outs[0], batch, rows, columns, places)
