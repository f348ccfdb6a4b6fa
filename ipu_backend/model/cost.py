"""Cycles of one vertex on one worker, from the codelet's jaxpr.

In comes a traced codelet, out come cycles of one worker. One rule per JAX primitive
(`cycle_rules`), in the forms of `ipu_backend/model/poplibs.py`, composed so:

- Neighbouring elementwise equations of one shape are one loop, as in the codelets that PopLibs generates for
  its map expressions: the vertex's base is the largest of theirs, the operations' cycles add up, and loads,
  stores and the turn of the loop are paid once, as the operation that pays most for them.
- One element needs no loop and pays no base.
- What changes no value but only where it is looked for (a reshape, a slice, a broadcast) is free; what leaves
  the codelet so, or is returned as it came, pays for a copy.
- Every other equation pays its own form, base and all, so that a codelet of one equation takes exactly what
  PopLibs says. A codelet that pays no base enters and leaves in `ENTRY_CYCLES`.
- A `scan` pays its body once a turn; a `while` pays `WHILE_TURNS` turns; a `cond` its longest branch.

Known weaknesses: the base of a second loop counts the vertex's entry again; an update in place (`x.at[i].set`)
pays for the elements updated alone, as if the array it updates were never needed again; the matrix unit's
block of weights belongs to the tile, but each vertex loads it as if it were its own.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jax.extend import core as jax_core

from codelet.errors import CodeletError
from codelet.tracing.codelets import TracedCodelet
from ipu_backend.model.poplibs import (
    CONVERT_CYCLES,
    Loop,
    ceil_div,
    computed_in,
    dot_cycles,
    elementwise_loops,
    fill_cycles,
    guess_text,
    kind_of,
    loop_of,
    matrix_unit,
    outer_product_cycles,
    reduce_cycles,
    software_factor,
    vector_width,
)

if TYPE_CHECKING:
    from ipu_backend.model.ipu import IPU

ENTRY_CYCLES = 5
"""To enter and leave a vertex that pays no other base: what the codelets of Poplar's matrix-vector tutorial pay."""

WHILE_TURNS = 16
"""The turns of a loop whose number nobody knows before it runs: a guess."""

TURN_CYCLES = 6
"""To go round a loop over equations once, and to take a branch: a guess, six instructions."""

UNKNOWN_CYCLES = 100
"""For each element that a primitive without a rule reads or returns: a guess on the high side."""

THREEFRY_CYCLES = 120
"""For one block of two random words: 20 rounds of five instructions, and the keys (a count, not a measurement)."""

INDEX_CYCLES = 10
"""To compute and clamp one dynamic position: a guess."""


class CyclesError(CodeletError):
    """A codelet's own `cycles=` that fails, or returns something else than a number of cycles."""


class UnknownCyclesWarning(UserWarning):
    """A primitive whose cycles no rule knows, or a loop whose turns nobody knows."""


# --- equations ----------------------------------------------------------------------------------------


class Equation(NamedTuple):
    """An equation of a jaxpr with its calls inlined: its operands are those outside of the call."""

    primitive: str
    operands: tuple[Any, ...]
    results: tuple[Any, ...]
    params: dict[str, Any]

    @property
    def size(self) -> int:
        """The elements of the first result."""
        return math.prod(self.results[0].aval.shape)

    @property
    def dtype(self) -> Any:
        """What it computes in: the dtype of its first operand, or of its result where it has none, once converted."""
        return computed_in((self.operands or self.results)[0].aval.dtype)

    @property
    def converted(self) -> tuple[Any, ...]:
        """Those of its operands and results that are converted, since the machine does not compute in their dtype."""
        held = (atom for atom in (*self.operands, *self.results) if hasattr(atom.aval, "dtype"))
        return tuple(atom for atom in held if computed_in(atom.aval.dtype) != atom.aval.dtype)

    def bytes_width(self, ipu: IPU) -> int:
        """The elements of the result that one instruction moves."""
        return max(1, ipu.vector_bytes // _itemsize(self.results[0].aval.dtype))


def _itemsize(dtype: Any) -> int:
    return getattr(dtype, "itemsize", 8)  # random keys have none that NumPy knows: two words


def _size(atom: Any) -> int:
    return math.prod(atom.aval.shape)


_INLINED = ("jaxpr", "call_jaxpr", "fun_jaxpr")
_CALLS = {
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "call",
    "checkpoint",
    "remat",
    "remat2",
    "custom_jvp_call",
    "custom_vjp_call",
    "custom_lin",
}


def _open(jaxpr: Any) -> jax_core.Jaxpr:
    return getattr(jaxpr, "jaxpr", jaxpr)


def inlined(jaxpr: jax_core.Jaxpr, names: dict[Any, Any] | None = None) -> Iterator[Equation]:
    """The equations of a jaxpr in order, those of its calls among them.

    `names` becomes what variables inside calls stand for outside.
    """
    names = {} if names is None else names

    def outside(atom: Any) -> Any:
        return atom if isinstance(atom, jax_core.Literal) else names.get(atom, atom)

    for eqn in jaxpr.eqns:
        operands = tuple(map(outside, eqn.invars))
        inner = next((eqn.params[name] for name in _INLINED if name in eqn.params), None)
        if eqn.primitive.name in _CALLS and inner is not None:
            body = _open(inner)
            names.update(zip(body.invars, operands, strict=True))
            yield from inlined(body, names)
            names.update(zip(eqn.outvars, map(outside, body.outvars), strict=True))
        else:
            yield Equation(eqn.primitive.name, operands, tuple(eqn.outvars), eqn.params)


# --- rules --------------------------------------------------------------------------------------------

Rule = Callable[[Equation, "IPU"], "int | Loop"]
"""From an equation to the cycles of one worker, or to the loop of an elementwise one."""

cycle_rules: dict[str, Rule] = {}
"""The rule of each JAX primitive, by its name. A rule that returns 0 says that the equation is free."""


def _rule(*primitives: str) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        cycle_rules.update(dict.fromkeys(primitives, rule))
        return rule

    return add


def _is_zero(atom: Any) -> bool:
    return isinstance(atom, jax_core.Literal) and not np.any(atom.val)


@_rule(*elementwise_loops.keys() - {"cast", "select", "relu", "max"})
def _elementwise(eqn: Equation, ipu: IPU) -> Loop:
    return loop_of(eqn.primitive, eqn.dtype)


@_rule("max")
def _maximum(eqn: Equation, ipu: IPU) -> Loop:
    rectifies = kind_of(eqn.dtype) in ("half", "float") and any(map(_is_zero, eqn.operands))
    return loop_of("relu" if rectifies else "max", eqn.dtype)


@_rule("select_n")
def _select(eqn: Equation, ipu: IPU) -> Loop:
    return loop_of("select", eqn.results[0].aval.dtype)


@_rule("clamp")
def _clamp(eqn: Equation, ipu: IPU) -> Loop:
    once = loop_of("max", eqn.results[0].aval.dtype)
    return once._replace(cycles=2 * once.cycles)


@_rule("integer_pow")
def _integer_pow(eqn: Equation, ipu: IPU) -> Loop:
    """Products by squaring: one for each binary digit after the first, and one for each that is set."""
    power, once = abs(eqn.params["y"]), loop_of("mul", eqn.dtype)
    products = max(1, power.bit_length() - 1 + power.bit_count() - 1)
    reciprocal = loop_of("div", eqn.dtype).cycles if eqn.params["y"] < 0 else 0
    return once._replace(cycles=products * once.cycles + reciprocal)


@_rule("convert_element_type")
def _convert(eqn: Equation, ipu: IPU) -> Loop | int:
    before, after = eqn.operands[0].aval.dtype, eqn.results[0].aval.dtype
    if eqn.converted and before != after:
        return loop_of("cast", np.int32)._replace(cycles=CONVERT_CYCLES)
    if before == after:  # only its weakness changes
        return 0
    floats = {"half", "float"} >= {kind_of(before), kind_of(after)}
    return loop_of("cast", before if floats else np.int32)


@_rule(
    "reshape",
    "squeeze",
    "expand_dims",
    "broadcast_in_dim",
    "slice",
    "split",
    "stop_gradient",
    "bitcast_convert_type",
    "random_wrap",
    "random_unwrap",
    "random_seed",
    "optimization_barrier",
    "copy",
    "copy_p",
    "name",
    "device_put",
    "sharding_constraint",
    "debug_callback",
    "debug_print",
    "create_token",
    "after_all",
)
def _free(eqn: Equation, ipu: IPU) -> int:
    return 0


@_rule("iota", "concatenate", "stack", "pad", "empty", "empty2")
def _moved(eqn: Equation, ipu: IPU) -> int:
    """A fill or copy of the result; each further piece is set up as the first."""
    pieces = max(1, len(eqn.operands) if eqn.primitive in ("concatenate", "stack") else 1)
    return 23 * pieces + ceil_div(eqn.size, eqn.bytes_width(ipu))


@_rule("transpose", "rev")
def _rearranged(eqn: Equation, ipu: IPU) -> int:
    """One element after the other, a load and a store each: a guess. Free where the order stays."""
    shape = eqn.operands[0].aval.shape
    moved = eqn.params["permutation" if eqn.primitive == "transpose" else "dimensions"]
    real = [d for d in moved if shape[d] != 1]
    in_order = real == sorted(real) if eqn.primitive == "transpose" else not real
    return 0 if in_order else 17 + 2 * eqn.size


@_rule("dynamic_slice")
def _dynamic_slice(eqn: Equation, ipu: IPU) -> int:
    return INDEX_CYCLES * (len(eqn.operands) - 1) + 23 + ceil_div(eqn.size, eqn.bytes_width(ipu))


@_rule("dynamic_update_slice")
def _dynamic_update_slice(eqn: Equation, ipu: IPU) -> int:
    return INDEX_CYCLES * (len(eqn.operands) - 2) + 23 + ceil_div(_size(eqn.operands[1]), eqn.bytes_width(ipu))


@_rule("gather")
def _gather(eqn: Equation, ipu: IPU) -> int:
    """Each position computed, then its slice copied."""
    indices = eqn.operands[1].aval.shape
    slices = math.prod(indices[:-1])
    return 17 + slices * (INDEX_CYCLES * max(1, indices[-1])) + eqn.size * 2


@_rule("scatter", "scatter-add", "scatter_add", "scatter-mul", "scatter_mul", "scatter_min", "scatter_max")
def _scatter(eqn: Equation, ipu: IPU) -> int:
    """Each position computed, then each element of its update loaded, combined and stored."""
    indices, updates = eqn.operands[1].aval.shape, _size(eqn.operands[2])
    return 17 + math.prod(indices[:-1]) * (INDEX_CYCLES * max(1, indices[-1])) + updates * 3


cycle_rules["scatter-min"] = cycle_rules["scatter-max"] = _scatter


@_rule("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor")
def _reduce(eqn: Equation, ipu: IPU) -> int:
    """As if what is reduced were neighbours. Integers take 3 cycles to load, combine and go round: a guess."""
    each = _size(eqn.operands[0]) // max(1, eqn.size)
    cycles = 1 if kind_of(eqn.dtype) in ("half", "float") else 3
    return reduce_cycles(eqn.size, each, eqn.dtype, cycles_per_operation=cycles, vector_bytes=ipu.vector_bytes)


@_rule("argmax", "argmin")
def _arg_reduce(eqn: Equation, ipu: IPU) -> int:
    """One element after the other, compared and its position kept: a guess, 4 cycles each."""
    return 17 + 12 * eqn.size + 4 * _size(eqn.operands[0])


@_rule("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def _cumulative(eqn: Equation, ipu: IPU) -> int:
    """One element after the other: a load, the operation, a store. A guess."""
    cycles = 30 if eqn.primitive == "cumlogsumexp" else 3
    return 17 + cycles * eqn.size * software_factor(eqn.dtype)


@_rule("reduce_window_max", "reduce_window_min", "reduce_window_sum", "select_and_gather_add")
def _reduce_window(eqn: Equation, ipu: IPU) -> int:
    window = math.prod(eqn.params["window_dimensions"])
    return reduce_cycles(eqn.size, window, eqn.dtype, vector_bytes=ipu.vector_bytes)


@_rule("select_and_scatter_add")
def _select_and_scatter(eqn: Equation, ipu: IPU) -> int:
    """The gradient of a pooling: each window searched one element after the other, then one added to: a guess."""
    windows = _size(eqn.operands[0])
    return 17 + windows * (12 + 4 * math.prod(eqn.params["window_dimensions"]) + 3)


@_rule("sort", "top_k", "approx_top_k")
def _sort(eqn: Equation, ipu: IPU) -> int:
    """A heap sort of n log2 n steps, 10 cycles for each operand: a guess."""
    shape = eqn.operands[0].aval.shape
    n = shape[eqn.params.get("dimension", -1)]
    steps = _size(eqn.operands[0]) * max(1, (n - 1).bit_length())
    return 17 + 10 * steps * len(eqn.operands)


@_rule("random_bits", "threefry2x32", "random_split", "random_fold_in")
def _random(eqn: Equation, ipu: IPU) -> int:
    """Threefry as JAX computes it, for reproducible numbers; the machine's own generator is not used."""
    per_block = 1 if eqn.primitive in ("random_split", "random_fold_in") else 2
    words = eqn.size * (max(1, _itemsize(eqn.results[0].aval.dtype) // 4) if per_block == 2 else 1)
    return THREEFRY_CYCLES * ceil_div(words, per_block)


def _product_cycles(rows: int, depth: int, columns: int, kernel: int, groups: int, dtype: Any, ipu: IPU) -> int:
    """A product of (rows, depth) by (depth, columns), `kernel` of them summed, for each of `groups`.

    On the vector unit: a dot product for each result, of which those after the first pay 12 cycles as the
    results of a reduction do (that they do is a guess). On the matrix unit: for each block of weights the
    load of it, 16 bytes a cycle of the tile, and the pass of all rows. The cheaper of the two is taken, as
    PopLibs' planner does; the matrix unit only where both operands have something to share.
    """
    results = groups * rows * columns
    if not results or not depth:
        return fill_cycles(results, vector_bytes=ipu.vector_bytes)
    if depth * kernel == 1 and rows > 1 and columns > 1 and dtype == np.float32:
        return outer_product_cycles(rows, columns, groups)
    first = dot_cycles(depth * kernel, dtype, vector_bytes=ipu.vector_bytes)
    again = first - dot_cycles(0, dtype, vector_bytes=ipu.vector_bytes) + 12
    on_vectors = first + (results - 1) * again
    unit = matrix_unit(dtype, ipu.float16_macs_per_cycle if dtype == np.float16 else ipu.float32_macs_per_cycle)
    if unit is None or rows == 1 or columns == 1:
        return on_vectors
    passes = groups * kernel * ceil_div(depth, unit.inputs) * ceil_div(columns, unit.outputs)
    load = ceil_div(unit.inputs * unit.outputs * _itemsize(dtype), 16)
    return min(on_vectors, passes * (7 + load + unit.worker_cycles(rows)))


@_rule("dot_general")
def _dot_general(eqn: Equation, ipu: IPU) -> int:
    (contracted, _), (batch, _) = eqn.params["dimension_numbers"]
    left, right = (operand.aval.shape for operand in eqn.operands)
    depth = math.prod(left[d] for d in contracted)
    groups = math.prod(left[d] for d in batch)
    shared = max(1, depth * groups)
    return _product_cycles(math.prod(left) // shared, depth, math.prod(right) // shared, 1, groups, eqn.dtype, ipu)


@_rule("conv_general_dilated")
def _convolution(eqn: Equation, ipu: IPU) -> int:
    """A product for each position of the kernel, as PopLibs plans it: the rows are the field and the batch."""
    out_features, depth, *kernel = (eqn.operands[1].aval.shape[d] for d in eqn.params["dimension_numbers"].rhs_spec)
    groups = eqn.params["feature_group_count"] * eqn.params["batch_group_count"]
    columns = out_features // groups
    rows = eqn.size // max(1, out_features)
    return _product_cycles(rows, depth, columns, math.prod(kernel), groups, eqn.dtype, ipu)


# --- control flow -------------------------------------------------------------------------------------


@_rule("scan")
def _scan(eqn: Equation, ipu: IPU) -> int:
    return eqn.params["length"] * (body_cycles(_open(eqn.params["jaxpr"]), ipu).cycles + TURN_CYCLES)


@_rule("while")
def _while(eqn: Equation, ipu: IPU) -> int:
    warnings.warn(
        f"a while loop runs for a number of turns that is not known: {WHILE_TURNS} are counted; "
        "give the codelet cycles= to count others",
        UnknownCyclesWarning,
        stacklevel=1,
    )
    parts = (eqn.params["cond_jaxpr"], eqn.params["body_jaxpr"])
    return WHILE_TURNS * (sum(body_cycles(_open(part), ipu).cycles for part in parts) + TURN_CYCLES)


@_rule("cond")
def _cond(eqn: Equation, ipu: IPU) -> int:
    return TURN_CYCLES + max(body_cycles(_open(branch), ipu).cycles for branch in eqn.params["branches"])


_MOVING = {
    *("iota", "concatenate", "stack", "pad", "empty", "empty2", "transpose", "rev", "gather", "scatter"),
    *("dynamic_slice", "dynamic_update_slice"),
}
"""Primitives that move elements without computing with them: what their dtype is does not matter."""


def _has_body(eqn: Equation) -> bool:
    """Whether an equation's own equations are counted, one by one."""
    return eqn.primitive in ("scan", "while", "cond")


def _unknown(eqn: Equation, ipu: IPU) -> int:
    elements = sum(math.prod(getattr(atom.aval, "shape", ())) for atom in (*eqn.operands, *eqn.results))
    warnings.warn(
        f"no rule says how many cycles the primitive {eqn.primitive!r} takes: {UNKNOWN_CYCLES} are counted for "
        "each element it reads and returns; give the codelet cycles= to count others",
        UnknownCyclesWarning,
        stacklevel=1,
    )
    return UNKNOWN_CYCLES * elements


def _cost(eqn: Equation, ipu: IPU) -> int | Loop:
    """The cycles of an equation by its rule, and what it takes to convert what the machine does not compute in."""
    cost = cycle_rules.get(eqn.primitive, _unknown)(eqn, ipu)
    if not cost or not eqn.converted or eqn.primitive in _MOVING or _has_body(eqn):
        return cost
    for dtype in dict.fromkeys(atom.aval.dtype for atom in eqn.converted):
        said = f"{guess_text(dtype)}; give the codelet cycles= to count others"
        warnings.warn(said, UnknownCyclesWarning, stacklevel=1)
    if eqn.primitive == "convert_element_type":  # what it takes is what its rule counts
        return cost
    if isinstance(cost, Loop):
        elements = cost.elements or vector_width(eqn.dtype, ipu.vector_bytes)
        return cost._replace(cycles=cost.cycles + CONVERT_CYCLES * elements * len(eqn.converted))
    return cost + CONVERT_CYCLES * sum(map(_size, eqn.converted))


# --- codelets -----------------------------------------------------------------------------------------


class BodyCycles(NamedTuple):
    """Cycles of the equations of a jaxpr, and whether any of them has paid a vertex's base."""

    cycles: int
    paid_base: bool


class _Fused(NamedTuple):
    """Elementwise operations in one loop over `size` elements: the base, and the cycles of all turns."""

    size: int
    base: int = 0
    cycles: int = 0
    overhead: int = 0

    def joined_by(self, loop: Loop, width: int) -> _Fused:
        turns = loop.turns(self.size, width)
        base = loop.base if self.size > 1 else 0
        return _Fused(
            self.size,
            max(self.base, base),
            self.cycles + turns * loop.cycles,
            max(self.overhead, turns * loop.overhead),
        )


def body_cycles(jaxpr: jax_core.Jaxpr, ipu: IPU) -> BodyCycles:
    """Cycles of one worker that runs the equations of a jaxpr, its entry aside."""
    total, paid_base = 0, False
    fused: dict[tuple[int, ...], _Fused] = {}
    origin: dict[Any, Any] = {}  # of what is free: what it is a view of
    computed: set[Any] = set()
    names: dict[Any, Any] = {}

    def close() -> None:
        nonlocal total, paid_base
        for loop in fused.values():
            total += loop.base + loop.cycles + loop.overhead
            paid_base |= loop.base > 0
        fused.clear()

    for eqn in inlined(jaxpr, names):
        cost = _cost(eqn, ipu)
        if isinstance(cost, Loop):
            shape = eqn.results[0].aval.shape
            width = vector_width(eqn.dtype, ipu.vector_bytes)
            fused[shape] = fused.get(shape, _Fused(math.prod(shape))).joined_by(cost, width)
        elif cost:
            close()
            total += cost
            paid_base = True
        elif eqn.operands:
            origin.update(dict.fromkeys(eqn.results, eqn.operands[0]))
            continue
        computed.update(eqn.results)
    close()

    for atom in jaxpr.outvars:
        found = names.get(atom, atom) if not isinstance(atom, jax_core.Literal) else atom
        size = _size(found)
        while not isinstance(found, jax_core.Literal) and found in origin and _size(origin[found]) == size:
            found = origin[found]
        if isinstance(found, jax_core.Literal) or found not in computed:
            dtype = getattr(atom.aval, "dtype", np.float32)
            width = max(1, ipu.vector_bytes // _itemsize(dtype))
            total += 23 + ceil_div(size, width) if size > 1 else 2
            paid_base |= size > 1
    return BodyCycles(total, paid_base)


def jaxpr_cycles(jaxpr: jax_core.ClosedJaxpr, ipu: IPU) -> int:
    """Cycles of one worker for a vertex that runs a jaxpr.

    >>> import codelet as cl, jax, jax.numpy as jnp
    >>> jaxpr_cycles(jax.make_jaxpr(jnp.dot)(jnp.ones(16), jnp.ones(16)), cl.IPU())
    66
    """
    cycles, paid_base = body_cycles(jaxpr.jaxpr, ipu)
    return cycles if paid_base else ENTRY_CYCLES + cycles


def own_cycles(traced: TracedCodelet) -> int:
    """What a codelet's own `cycles=` says, of its input fields and static values.

    Raises:
        CyclesError: it fails, or returns something else than a number from 0.
    """
    assert traced.codelet.cycles is not None
    fields = {name: kind.struct() for name, kind in traced.inputs.items()}
    types = ", ".join(f"{name}: {kind}" for name, kind in traced.inputs.items())
    names = ", ".join((*traced.inputs, *traced.static))
    try:
        found = traced.codelet.cycles(**fields, **traced.static)
    except Exception as error:
        raise CyclesError(
            f"the cycles of codelet {traced.name!r} cannot be computed: {type(error).__name__}: {error}",
            given=types,
            expected=f"cycles=lambda {names}: ..., from fields with a shape, a size and a dtype, and static values",
        ) from error
    is_number = isinstance(found, (int, float, np.integer, np.floating)) and not isinstance(found, bool)
    if not is_number or not math.isfinite(found) or found < 0:
        raise CyclesError(
            f"the cycles of codelet {traced.name!r} are not a number of cycles",
            given=f"{found!r}, for {types}",
            expected="a number from 0",
        )
    return math.ceil(found)


def codelet_cycles(traced: TracedCodelet, ipu: IPU) -> int:
    """Cycles of one worker for a vertex of a codelet: what it says itself, or else the rules.

    Args:
        traced: for fields whose lengths are known; see `TracedCodelet.at`.
        ipu: the machine.

    Raises:
        CyclesError: the codelet's own `cycles=` fails.
    """
    if traced.codelet.cycles is not None:
        return own_cycles(traced)
    return jaxpr_cycles(traced.jaxpr, ipu)
