"""Rules for matrix products and convolutions: the cheapest of PopLibs' vertices, as its planner chooses."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from codelet.tracing.cases import ever, greatest
from ipu_backend.model.compiled_loops import compiled_loop, in_turns
from ipu_backend.model.costs import Cost, Mode, ceil_div, either, sourced
from ipu_backend.model.cycle_rules import cycle_rules, rule
from ipu_backend.model.dtypes import is_float8, name_of, software_factor, vector_width
from ipu_backend.model.equations import Equation, itemsize_of, size_of
from ipu_backend.model.poplibs_moves import fill_cycles
from ipu_backend.model.poplibs_products import (
    ProductSizes,
    horizontal_mac_cycles,
    matrix_unit,
    matrix_unit_cycles,
    outer_product_cycles,
    scaled_add_cycles,
    vertical_mac_cycles,
)
from ipu_backend.model.poplibs_reductions import reduce_continuous_cycles
from ipu_backend.model.shared import as_guess, cheapest, guess_shared, shared

MULTIPLY_ADD = 2 + 2
"""Instructions to multiply two elements and add that up: two operations, two loads."""


def _loop_cost(product: ProductSizes, width: int, factor: int, mode: Mode) -> Cost:
    """One loop for each result, over what it sums; workers share the results.

    Or each worker sums part of every result, after which one of them adds up what they have found.
    """
    turns, results = ceil_div(product.summed, width), mode.share(product.results)
    whole = compiled_loop(results * turns, MULTIPLY_ADD * factor, mode, results=results)
    if mode.workers == 1:
        return whole
    parts = compiled_loop(product.results * mode.share(turns), MULTIPLY_ADD * factor, mode, results=product.results)
    parts += compiled_loop(product.results * mode.workers, 1 + factor, mode, results=product.results)
    return cheapest((whole, parts), mode)


def _on_matrix_unit(product: ProductSizes, eqn: Equation, mode: Mode) -> Cost | None:
    """What a product takes on the matrix unit; None where there is none, or one result of a pass would be of use."""
    float_sums = itemsize_of(eqn.results[0].aval.dtype) >= 4
    dtypes = eqn.operands[0].aval.dtype, eqn.dtype
    units = (matrix_unit(dtype, mode, float_sums=float_sums) for dtype in dtypes)
    unit = next((unit for unit in units if unit is not None), None)
    return matrix_unit_cycles(unit, product, mode) if unit is not None and ever(product.columns > 1) else None


def product_cost(product: ProductSizes, eqn: Equation, mode: Mode) -> Cost:
    """What a product takes: on the matrix unit where the machine has one, or on the vector unit.

    Compiled code uses neither the matrix unit nor PopLibs' vertices: it is one loop for each result. So are, by a
    guess, products of dtypes that no vector instruction multiplies.
    """
    if not product.results or not product.summed:
        return shared(fill_cycles(mode.share(product.results), eqn.results[0].aval.dtype), mode)
    held, dtype = eqn.operands[0].aval.dtype, eqn.dtype
    width, factor = vector_width(dtype, mode.machine.vector_bytes), software_factor(dtype)
    has_instructions = name_of(dtype) in ("float16", "float32")
    if mode.compiled or not has_instructions:
        found = _loop_cost(product, width if mode.vectorised and has_instructions else 1, factor, mode)
        return found if mode.compiled and factor == 1 else as_guess(found)
    half, float_sums = dtype == np.float16, itemsize_of(eqn.results[0].aval.dtype) >= 4
    forms = [horizontal_mac_cycles(product, width, mode, half=half, float_sums=float_sums)]
    few = product.positions < mode.workers
    if ever(few):  # each of them sums a part, and one adds the parts up
        part, one = replace(product, depth=mode.share(product.depth)), replace(mode, workers=1)
        worker = horizontal_mac_cycles(part, width, one, half=half, float_sums=float_sums).worker + 10 - float_sums
        parts = reduce_continuous_cycles(product.results, mode.workers, dtype, mode.machine.vector_bytes)
        forms.append(either(few, replace(forms[0], worker=worker) + shared(parts, mode), forms[0]))
    if is_float8(held):  # the vector unit has no float8
        casts = sum(mode.machine.tables.float8.read_cycles(mode.share(size_of(own))) for own in eqn.operands[:2])
        forms = [form + sourced(casts) for form in forms]
    on_unit = _on_matrix_unit(product, eqn, mode)
    if on_unit is not None:
        forms.append(either(product.columns > 1, on_unit, forms[0]))
    is_outer = product.summed == 1
    if ever(is_outer):
        rows = mode.share(product.positions)
        outer = shared(outer_product_cycles(rows, product.columns, product.groups, half=half), mode)
        forms.append(either(is_outer, outer, forms[0]))
    by_channel = (product.depth == 1) & (product.columns == 1) & (product.groups > 1)
    if half and ever(by_channel):
        forms.append(either(by_channel, vertical_mac_cycles(product, mode, float_sums=float_sums), forms[0]))
    return cheapest(forms, mode)


def _dots(eqn: Equation) -> tuple[ProductSizes, ProductSizes]:
    """A matrix product with its second operand for the weights, and with its first."""
    (contracted, _), (batch, _) = eqn.params["dimension_numbers"]
    left, right = (operand.aval.shape for operand in eqn.operands)
    depth = math.prod(left[d] for d in contracted)
    groups = math.prod(left[d] for d in batch)
    rows, columns = (math.prod(shape) // greatest(1, depth * groups) for shape in (left, right))
    return ProductSizes(1, rows, depth, columns, (), groups), ProductSizes(1, columns, depth, rows, (), groups)


def dot_cost(eqn: Equation, mode: Mode) -> Cost:
    """A matrix product: either operand is the field, and the other the weights."""
    return cheapest([product_cost(own, eqn, mode) for own in _dots(eqn)], mode)


rule("dot_general")(dot_cost)


@rule("sum_of_products")
def _sum_of_products(eqn: Equation, mode: Mode) -> Cost:
    """A sum of a product of two arrays: a dot product for each result. In assembly a guess.

    PopLibs has dot products within convolutions alone. Where what is summed does not lie side by side, a vector of
    results is summed at a time, and what is loaded for it, a vector of each array in a cycle, takes the time.
    """
    shape, axes = eqn.operands[0].aval.shape, eqn.params["axes"]
    each = math.prod(shape[axis] for axis in axes)
    product = ProductSizes(1, 1, each, 1, (), eqn.size)
    if mode.compiled or eqn.size == 1 or not eqn.size * each:
        found = product_cost(product, eqn, mode)
        return found if mode.compiled else as_guess(found)
    width, results = vector_width(eqn.dtype, mode.machine.vector_bytes), mode.share(eqn.size)
    moved = [axis for axis, size in enumerate(shape) if size > 1]
    if set(moved[-1:]) <= set(axes):
        turns, vectors = ceil_div(each, width), results
    else:
        turns, vectors = 2 * each, ceil_div(results, width)
    return guess_shared((17 + vectors * (12 + turns)) * software_factor(eqn.dtype), mode)


@rule("scaled_add")
def _scaled_add(eqn: Equation, mode: Mode) -> Cost:
    """`x + s * y`: PopLibs' `scaledAddTo`, or compiled a loop of two operations, two loads and a store."""
    half, width = eqn.dtype == np.float16, vector_width(eqn.dtype, mode.machine.vector_bytes)
    if mode.compiled:
        turns = in_turns(mode.share(eqn.size), width, mode)
        return compiled_loop(turns, MULTIPLY_ADD + 1, mode, begin=26 if half else 29)
    worker, supervisor = scaled_add_cycles(eqn.size, width, mode.workers, subtracts=eqn.params["subtracts"])
    return Cost(worker, supervisor if mode.workers > 1 else 0)


def _positions(eqn: Equation) -> ProductSizes:
    """A convolution as products, one for each position of the kernel, without zeros between the field's elements."""
    numbers = eqn.params["dimension_numbers"]
    out_features, depth, *kernel = (eqn.operands[1].aval.shape[d] for d in numbers.rhs_spec)
    groups = eqn.params["feature_group_count"] * eqn.params["batch_group_count"]
    batch, _, *field = (eqn.results[0].aval.shape[d] for d in numbers.out_spec)
    *tall, width = [ceil_div(size, apart) for size, apart in zip(field, eqn.params["lhs_dilation"], strict=True)] or [1]
    return ProductSizes(batch * math.prod(tall), width, depth, out_features // groups, tuple(kernel), groups)


@rule("conv_general_dilated")
def _convolution(eqn: Equation, mode: Mode) -> Cost:
    return product_cost(_positions(eqn), eqn, mode)


def weights_of(eqn: Equation, mode: Mode) -> int | None:
    """Which operand the matrix unit loads as weights in assembly; None for an equation that runs without it."""
    if eqn.primitive not in ("dot_general", "conv_general_dilated"):
        return None
    ways = zip((1, 0), _dots(eqn), strict=True) if eqn.primitive == "dot_general" else [(1, _positions(eqn))]
    best = cycle_rules[eqn.primitive](eqn, mode)
    assert isinstance(best, Cost)
    own = ((operand, _on_matrix_unit(product, eqn, mode)) for operand, product in ways)
    return next((operand for operand, cost in own if cost == best and cost), None)


@rule("scaled_dot")
def _scaled_dot(eqn: Equation, mode: Mode) -> Cost:
    """A product of blocks that have a scale each, as if every element took its scale before: a guess."""
    found = dot_cost(eqn._replace(operands=eqn.operands[:2]), mode)
    elements = mode.share(sum(size_of(operand) for operand in eqn.operands[:2]))
    return as_guess(found + compiled_loop(elements, MULTIPLY_ADD, mode, begin=0))


@rule("ragged_dot_general")
def _ragged_dot(eqn: Equation, mode: Mode) -> Cost:
    """Products of groups whose sizes are known late: as if all were as long. A guess."""
    numbers = eqn.params["ragged_dot_dimension_numbers"]
    (contracted, _), (batch, _) = numbers.dot_dimension_numbers
    left, right = (operand.aval.shape for operand in eqn.operands[:2])
    depth, groups = (math.prod(left[d] for d in own) for own in (contracted, batch))
    sets = math.prod(right[d] for d in numbers.rhs_group_dimensions)
    rows = ceil_div(math.prod(left), max(1, depth * groups * sets))
    columns = math.prod(right) // max(1, depth * groups * sets)
    found = product_cost(ProductSizes(1, rows, depth, columns, (), groups * sets), eqn, mode)
    return as_guess(found)
