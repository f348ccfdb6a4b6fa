"""Tables that are looked up and updated by parts and copies, and constants that are known while tracing."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax import lax

from tests.ops_cases import array
from tests.patterns.pattern import Closed, Drawn, Form, Pattern, Program
from tests.same_jaxprs import equations

MODES = ("clip", "fill", "promise_in_bounds")
UNIQUE: dict[str, Any] = {"unique_indices": True, "wrap_negative_indices": False}

# --- join_tables ---------------------------------------------------------------------------------------------------


@st.composite
def sums_of_tables(draw: Any) -> Program:
    """Some tables of zeros to which updates are added, and the sum of these, by batches along any dimensions."""
    batches = draw(st.lists(st.integers(1, 4), min_size=1, max_size=2))
    rows, columns = draw(st.integers(1, 5)), draw(st.sampled_from([(), (1,), (3,), (2, 3)]))
    count, mode = draw(st.integers(1, 4)), draw(st.sampled_from(MODES))
    ends = (0, rows - 1) if mode == "promise_in_bounds" else (-2, rows + 1)
    indices = array((*batches, count), jnp.int32, draw(st.integers(0, 99)), *ends)
    # Integers, which are summed alike in any order.
    updates = array((*batches, count, *columns), jnp.int32).astype(draw(st.sampled_from([jnp.float32, jnp.bfloat16])))
    at = draw(st.integers(0, len(columns)))
    is_filled, kept = draw(st.booleans()), draw(st.integers(0, len(batches) - 1))
    is_put_last, is_regrouped = draw(st.booleans()), draw(st.booleans())
    size = rows * math.prod(columns)
    first = draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))

    def one(indices: Any, updates: Any) -> Any:
        table = jnp.full((*columns[:at], rows, *columns[at:]), 1 if is_filled else 0, updates.dtype)
        where = (slice(None),) * at + (indices,)
        moved = jnp.moveaxis(updates, 0, at) if at else updates
        return table.at[where].add(moved, mode=mode, wrap_negative_indices=False)

    def function(indices: Any, updates: Any) -> Any:
        run = one
        for _ in batches:
            run = jax.vmap(run)
        made = run(indices, updates)
        if is_regrouped:  # elements in another order, so many at a time, with the batches between them
            turned = jnp.moveaxis(made, len(batches), -1).reshape(*made.shape[: len(batches)], first, size // first)
            return jnp.moveaxis(turned, len(batches), 0).sum((*range(1, kept + 2),))
        if is_put_last:  # rows in two parts, and batches behind them, as blocks that sum some elements have it
            made = made.reshape(*made.shape[: len(batches)], -1)
            return jnp.moveaxis(made, 0, -1).sum((*range(kept), -1))
        return made.sum(tuple(range(kept + 1)))

    return Program(function, (indices, updates), facts=is_filled)


def are_one_table(closed: Closed, program: Program) -> None:
    """Tables of zeros are one, to which all updates are added, in no order."""
    batches = program.arguments[0].shape[:-1]
    if program.facts or math.prod(batches) == 1 or batches[0] == 1:
        return
    (own,) = (eqn.params for eqn in equations(closed) if eqn.primitive.name == "scatter-add")
    assert len(own["dimension_numbers"].operand_batching_dims) < len(batches)
    assert not own["unique_indices"]
    assert not own["indices_are_sorted"]


@st.composite
def blocks_of_rows(draw: Any) -> Program:
    """Rows in blocks, of which each looks up, or updates, those that are its own; and by how much indices are less."""
    blocks, rows, count = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
    columns = draw(st.sampled_from([(), (2,)]))
    dtype = draw(st.sampled_from([jnp.int32, jnp.uint32]))
    low = -3 if dtype == jnp.int32 else 0
    indices = array((count,), dtype, draw(st.integers(0, 99)), low, blocks * rows + 2)
    step = draw(st.sampled_from([rows, rows, rows, rows + 1, 1]))
    table, updates = array((blocks * rows, *columns)), array((count, *columns), seed=1)
    op = draw(st.sampled_from(["gather", "add", "set", "max"]))
    put = {"add": lax.scatter_add, "set": lax.scatter, "max": lax.scatter_max}.get(op, lax.scatter)
    fill = draw(st.sampled_from([0, 0, 1]))

    def function(table: Any, updates: Any, indices: Any) -> Any:
        def one(block: Any, first: Any) -> Any:
            own = indices - first.astype(indices.dtype)
            windows = tuple(range(1, 1 + len(columns)))
            if op == "gather":
                numbers = lax.GatherDimensionNumbers(windows, (0,), (0,))
                return lax.gather(block, own[:, None], numbers, (1, *columns), mode="fill", fill_value=fill)
            numbers = lax.ScatterDimensionNumbers(windows, (0,), (0,))
            return put(block, own[:, None], updates, numbers, mode="drop")

        firsts = lax.iota(jnp.int32, blocks) * step
        made = jax.vmap(one)(table.reshape(blocks, rows, *columns), firsts)
        return made.sum(0) if op == "gather" else made.reshape(table.shape)

    is_joined = step == rows and (op != "gather" or not fill)
    return Program(function, (table, updates, indices), facts=(blocks, is_joined), name=op)


def are_all_rows(closed: Closed, program: Program) -> None:
    """Blocks whose rows follow each other are all rows at once."""
    blocks, is_joined = program.facts
    (own,) = (eqn for eqn in equations(closed) if eqn.primitive.name.split("-")[0] in ("gather", "scatter"))
    assert blocks == 1 or (not own.params["dimension_numbers"].operand_batching_dims) == is_joined


@st.composite
def parts_of_rows(draw: Any) -> Program:
    """Rows of a table in parts of any sizes, each updated by what is for it, and put side by side; by which mistake."""
    batch, sizes = draw(st.integers(1, 3)), draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    count, rows = draw(st.integers(1, 3)), sum(sizes)
    dtype = draw(st.sampled_from([jnp.int32, jnp.uint32]))
    low = -3 if dtype == jnp.int32 else 0
    indices, updates = array((batch, count), dtype, draw(st.integers(0, 99)), low, rows + 2), array((batch, count))
    table = array((batch, rows), seed=1)
    put = draw(st.sampled_from([lax.scatter_add, lax.scatter, lax.scatter_max]))
    mistake = draw(st.sampled_from([None] * 4 + ["start", "updates", "mode", "order"]))
    is_new, is_turned, wrong = draw(st.booleans()), draw(st.booleans()), draw(st.integers(0, len(sizes) - 1))
    firsts = np.cumsum([0, *sizes[:-1]])

    def function(table: Any, updates: Any, indices: Any) -> Any:
        made = []
        for k, (first, size) in enumerate(zip(firsts, sizes, strict=True)):
            is_wrong, own = k == wrong, jnp.zeros((batch, size)) if is_new else table[:, first : first + size]
            less = first + 1 if is_wrong and mistake == "start" else first
            at = indices[..., None] - jnp.asarray(less, indices.dtype)
            given = updates + 1 if is_wrong and mistake == "updates" else updates
            mode = "clip" if is_wrong and mistake == "mode" else "drop"
            numbers = lax.ScatterDimensionNumbers((), (1,), (1,), (0,), (0,))
            if is_turned and k % 2:  # as another dimension of a table that lies otherwise
                numbers = lax.ScatterDimensionNumbers((), (0,), (0,), (1,), (0,))
                made.append(put(own.T, at, given, numbers, mode=mode).T)
            else:
                made.append(put(own, at, given, numbers, mode=mode))
        return jnp.concatenate(made[::-1] if mistake == "order" else made, 1)

    return Program(function, (table, updates, indices), facts=1 if mistake is None else len(sizes))


def are_so_many(closed: Closed, program: Program) -> None:
    """Parts of rows side by side are all rows, where there is no mistake."""
    assert sum(eqn.primitive.name.startswith("scatter") for eqn in equations(closed)) == program.facts


def looked_up_and_put(
    x: Any, read: Any, put: Any, size: int | None = None, mode: str = "promise_in_bounds", start: float = 0.0
) -> Any:
    """Elements that one table looks up, put by another, into as many as it has unless there are more."""
    own = x.reshape(-1).at[jnp.asarray(read)].get(mode=mode, wrap_negative_indices=False)
    whole = jnp.full(len(put) if size is None else size, start, x.dtype)
    return whole.at[jnp.asarray(put)].set(own, mode="drop", **UNIQUE)


@st.composite
def known_tables(draw: Any) -> Program:
    """What is looked up by one known table and put by another, each place once."""
    size, extent = draw(st.integers(65, 200)), draw(st.integers(2, 40))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    read, put = random.integers(0, extent, size, np.int32), random.permutation(size).astype(np.int32)
    shape, mode = draw(st.sampled_from([(extent,), (extent, 1), (1, extent)])), draw(st.sampled_from(MODES))
    start = draw(st.sampled_from([0.0, 2.0]))
    function = lambda x: jnp.sin(looked_up_and_put(x, read, put, size, mode, start))  # noqa: E731
    return Program(function, (array(shape),))


def are_one_lookup(closed: Closed, program: Program) -> None:
    """Two known tables are one, by which is looked up where it belongs."""
    names = [eqn.primitive.name for eqn in closed.jaxpr.eqns]
    assert [name for name in names if name in ("gather", "scatter")] == ["gather"]


# --- constants -----------------------------------------------------------------------------------------------------

COMPARISONS = {
    "equal": jnp.equal,
    "not_equal": jnp.not_equal,
    "less": jnp.less,
    "less_equal": jnp.less_equal,
    "greater": jnp.greater,
    "greater_equal": jnp.greater_equal,
}


@st.composite
def constants(draw: Any) -> Program:
    """Tables that are compared with numbers, equal tables of several shapes, and arrays that hold one number."""
    size, of = draw(st.sampled_from((20, 80, 96, 120))), draw(st.integers(2, 9))
    kind = draw(st.sampled_from((np.int8, np.uint8, np.int16, np.int32)))
    table = (np.random.default_rng(draw(st.integers(0, 99))).permutation(size) % of).astype(kind)
    number, fill = kind(draw(st.integers(0, of))), draw(st.sampled_from((0.0, -0.0, 1.5, np.nan)))
    steps = draw(st.lists(st.sampled_from(("compared", "looked up", "filled", "carried")), min_size=1, max_size=4))
    compare, is_first = COMPARISONS[draw(st.sampled_from(sorted(COMPARISONS)))], draw(st.booleans())

    def function(x: Any) -> Any:
        made = [x]
        for k, step in enumerate(steps):
            own = table if k % 2 else table.reshape(2, -1)
            own, filled = jnp.asarray(own), jnp.full((size,), np.float32(fill))
            match step:
                case "compared":
                    answer = compare(number, own) if is_first else compare(own, number)
                    x = jnp.where(answer.reshape(-1), x, -x)
                case "looked up":
                    x = x[own.reshape(-1).astype(np.int32)] + x
                case "filled":
                    x = x + filled
                case "carried":
                    turn = lambda _, held: (held[0] + held[1], held[1])  # noqa: E731
                    x = lax.fori_loop(0, 2, turn, (x, filled))[0]
            made.append(x)
        return made[1:]

    return Program(function, (np.arange(size, dtype=np.float32),), name=", ".join(steps))


def joined_tables(
    programs: st.SearchStrategy[Program], form: Form, tolerance: float, quick: int = 4, slopes: int = 16
) -> Drawn:
    """Programs whose tables are joined to some form: most are tried with their slopes, which have the values too."""
    return Drawn(
        programs,
        ("join_tables",),
        quick=quick,
        slow=0,
        slopes=slopes,
        slow_slopes=100,
        tolerance=tolerance,
        forms={"join_tables": form},
        moves_no_more=False,
    )


PATTERN = Pattern(
    "tables",
    "Parts and copies of a table are one table, and a constant holds no more than what is asked of it.",
    {
        "sums_of_tables": joined_tables(sums_of_tables(), are_one_table, tolerance=3e-2),
        "blocks_of_rows": joined_tables(blocks_of_rows(), are_all_rows, tolerance=1e-5),
        "parts_of_rows": joined_tables(parts_of_rows(), are_so_many, tolerance=1e-5),
        "known_tables": joined_tables(known_tables(), are_one_lookup, quick=1, slopes=7, tolerance=1e-5),
        "constants": Drawn(
            constants(), ("equal_constants_once", "compare_tables", "as_one_number"), quick=20, moves_no_more=False
        ),
    },
    ("adjoint_messages", "bitonic", "mnist_traced_step", "npbench/lu/trace_of_grad"),
)
