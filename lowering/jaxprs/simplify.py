"""Simplify: a function as the jaxpr that runs, after every rule on what was emitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.extend import core as jax_core

from codelet.jaxprs.rebuild import inline
from codelet.jaxprs.within_bounds import within_bounds
from lowering.jaxprs.carry_extended import carry_extended
from lowering.jaxprs.columns_as_rows import columns_as_rows
from lowering.jaxprs.common_pads import pad_in_common
from lowering.jaxprs.compare_tables import compare_tables
from lowering.jaxprs.contract import contract, contract_in_order
from lowering.jaxprs.dots_in_memory_order import dots_in_memory_order
from lowering.jaxprs.equal_constants import equal_constants_once
from lowering.jaxprs.forward_updates import forward_updates
from lowering.jaxprs.in_place import Inputs, update_safely
from lowering.jaxprs.join_tables import join_tables
from lowering.jaxprs.map_shapes import make_in_shape
from lowering.jaxprs.narrow_products import multiply_narrowly
from lowering.jaxprs.one_number import as_one_number
from lowering.jaxprs.one_slice import as_one_slice
from lowering.jaxprs.products_side_by_side import join_side_by_side
from lowering.jaxprs.recompute import recompute
from lowering.jaxprs.reduce_by_halves import reduce_by_halves
from lowering.jaxprs.reduce_in_shape import reduce_in_shape
from lowering.jaxprs.repeat_less import repeat_less
from lowering.jaxprs.reshape_once import reshape_once
from lowering.jaxprs.rounded_products import round_in_products
from lowering.jaxprs.scan_rows import scan_rows
from lowering.jaxprs.shares_summed import sum_divided_others
from lowering.jaxprs.single_dimensions import broadcast_positions, drop_single_dimensions
from lowering.jaxprs.slice_before_loops import slice_before_loops
from lowering.jaxprs.slice_order import slices_in_order
from lowering.jaxprs.small_updates import scatter_small_updates
from lowering.jaxprs.thin_products import multiply_thinly
from lowering.jaxprs.turns_at_once import turns_at_once
from lowering.jaxprs.wide_pads import pad_widely
from lowering.platforms import after


def trace_simplified(function: Callable[..., Any], *structs: Any, inputs: Inputs = "any") -> jax_core.ClosedJaxpr:
    """A function traced for arguments of some shapes and dtypes, after every rule on jaxprs.

    `inputs` says what its arguments are; see `update_safely`.
    """
    traced = inline(equal_constants_once(jax.make_jaxpr(function)(*structs)))
    emitted = after(traced, compare_tables, as_one_number, slices_in_order, within_bounds, as_one_slice)
    products = after(emitted, repeat_less, contract, dots_in_memory_order, contract_in_order)
    tables = after(products, join_tables)
    if tables is not products:  # what blocks of rows looked up, or updated, may be one row of all
        tables = after(tables, slices_in_order, within_bounds, as_one_slice)
    shaped = after(tables, drop_single_dimensions, reshape_once, make_in_shape, reduce_in_shape)
    dots = after(shaped, dots_in_memory_order, reshape_once, join_side_by_side)
    scanned = after(dots, slice_before_loops, columns_as_rows, forward_updates, scan_rows, turns_at_once)
    if scanned is not dots:  # there are loops
        scanned = after(scanned, make_in_shape, reshape_once)
    extended = after(scanned, pad_in_common, pad_widely, carry_extended)
    updated = after(update_safely(extended, inputs), scatter_small_updates)
    products = after(updated, reduce_by_halves, multiply_narrowly, multiply_thinly, round_in_products)
    return after(products, recompute, broadcast_positions, sum_divided_others)
