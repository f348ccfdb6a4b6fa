"""Rules for the elements of rows: primitives with parameters drawn at random, against the codelets themselves."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import codelet as cl
from codelet.jaxprs.rebuild import inline
from codelet.tracing.lengths import fresh_lengths
from lowering.fast.row_rules import ROW_RULES, NoRule, check_understood, of_one_element
from tests.examples import few

LENGTHS = [3, 0, 3]


class Drawn:
    """Parameters for an array of three dimensions, of which `at` is ragged and the others are 2 and 3."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.at = int(self.random.integers(3))
        self.axis = int(self.random.integers(3))
        self.axes = tuple(np.flatnonzero(self.random.integers(0, 2, 3)).tolist()) or (self.axis,)
        self.order = tuple(self.random.permutation(3).tolist())
        self.flag = bool(self.random.integers(2))

    def pick(self, *choices):
        return choices[self.random.integers(len(choices))]


def cumulative(d):
    function = d.pick(lax.cumsum, lax.cumprod, lax.cummax, lax.cummin, lax.cumlogsumexp)
    return lambda x: function(x, d.axis, reverse=d.flag)


def sorted_by(d):
    keys = d.pick(1, 2)
    return lambda x: lax.sort((jnp.round(x), -x, x), d.axis, num_keys=keys)[d.pick(1, 2)]


def reshaped(d):
    order = d.pick(None, d.order)

    def function(x):
        shape = [x.shape[k] for k in order or range(3)]
        return lax.reshape(x, (shape[0], 1, *shape[1:]), dimensions=order)

    return function


def merged(d):
    """A reshape that makes one dimension of the two that are not ragged, in either order, where they are neighbours."""

    def function(x):
        order = d.pick(None, d.order)
        shape = list(x.shape if order is None else [x.shape[k] for k in order])
        two = next(k for k in range(2) if all(isinstance(n, int) for n in shape[k : k + 2])) if d.at != 1 else None
        if two is None or (order is not None and isinstance(shape[1], int) is False):
            return x
        return lax.reshape(x, (*shape[:two], shape[two] * shape[two + 1], *shape[two + 2 :]), dimensions=order)

    return lambda x: function(x) if not isinstance(x.shape[d.at], int) or d.at != 1 else x


def dotted(d):
    contract = d.pick((d.axis,), ())
    left = [k for k in range(3) if k not in contract]
    batch = (d.pick(*left),) if d.flag else ()
    precision = d.pick(None, "highest", ("default", "highest"))
    wide = d.pick(None, np.float32)
    dtype = d.pick(np.float32, jnp.bfloat16)

    def function(x):
        y = (x.astype(dtype), jnp.sin(x).astype(dtype))
        numbers = ((contract, contract), (batch, batch))
        found = lax.dot_general(*y, numbers, precision=precision, preferred_element_type=wide).astype(np.float32)
        return found if sum(not isinstance(n, int) for n in found.shape) < 2 else found.sum(-1)

    return function


def converted(d):
    dtype = d.pick(np.int8, np.uint32, jnp.bfloat16, np.float16, bool)
    return lambda x: lax.convert_element_type(3 * x, dtype).astype(np.float32)


def reduced(d):
    function = d.pick(jnp.sum, jnp.prod, lambda x, a: jnp.max(x, a, initial=-9), lambda x, a: jnp.min(x, a, initial=9))
    dtype = d.pick(np.float32, np.float16, np.int8)
    return lambda x: function((3 * x).astype(dtype), d.axes).astype(np.float32)


def reduced_bits(d):
    function = d.pick(lax.reduce_or, lax.reduce_and, lax.reduce_xor)
    dtype = d.pick(bool, np.int32)
    return lambda x: function((3 * x).astype(dtype), d.axes).astype(np.float32)


def highest(d):
    function, dtype = d.pick(lax.argmax, lax.argmin), d.pick(np.int32, np.uint8)
    axis = d.pick(*(k for k in range(3) if k != d.at))
    return lambda x: function(x, axis, dtype).astype(np.float32)


def broadcast(d):
    front = d.pick(1, 4)

    def function(x):
        shape = (front, *x.shape[:1], 2, *x.shape[1:])
        return lax.broadcast_in_dim(x, shape, (1, 3, 4))

    return function


def sliced(d):
    axis = d.pick(*(k for k in range(3) if k != d.at))
    step = d.pick(1, 2)
    return lambda x: lax.slice_in_dim(x, d.pick(0, 1), None, step, axis)


def sliced_by_rows(d):
    return lambda x: lax.slice_in_dim(x, 0, x.shape[d.at] // 2, 1, d.at)


def padded(d):
    config = [d.pick((0, 0, 0), (1, 0, 0), (0, 1, 2), (-1, 1, 0)) if k != d.at else (0, 0, 0) for k in range(3)]
    return lambda x: lax.pad(x, 1.5, config)


def padded_rows(d):
    return lambda x: lax.pad(x, 1.5, [(1, 2, 0) if k == d.at else (0, 0, 0) for k in range(3)])


def gathered(d):
    axis, mode = d.pick(*(k for k in range(3) if k != d.at)), d.pick("clip", "wrap", "fill")
    return lambda x: jnp.take(x, jnp.array([1, 7, -1]), axis, mode=mode, fill_value=3.0)


def clamped(d):
    low, high = d.pick(-0.5, None), d.pick(0.5, None)

    def function(x):
        return lax.clamp(jnp.cos(x) - 1 if low is None else low, x, jnp.cos(x) if high is None else high)

    return function


def selected(d):
    scalar = d.pick(True, False)

    def function(x):
        which = x.sum().astype(np.int32) % 3 if scalar else jnp.abs(3 * x).astype(np.int32) % 3
        return lax.select_n(which, x, 2 * x, jnp.cos(x))

    return function


def joined(d):
    return lambda x: d.pick(lax.concatenate, lax.concatenate)([x, 2 * x], d.pick(*(k for k in range(3) if k != d.at)))


def counted(d):
    return lambda x: x * lax.broadcasted_iota(d.pick(np.int32, np.float32), x.shape, d.axis)


def divided(d):
    axis = d.pick(*(k for k in range(3) if k != d.at))
    return lambda x: lax.split(x, (1, x.shape[axis] - 1), axis)[d.pick(0, 1)]


def repeated(d):
    reverse = d.flag
    count = d.pick(None, 2)

    def function(x):
        step = lambda c, _: (c * 1.5 + 1, None)  # noqa: E731
        return x * lax.scan(step, 1.0, None, x.shape[d.at] if count is None else count, reverse)[0]

    return function


OPERATIONS = {
    "cumulative": cumulative,
    "sort": sorted_by,
    "reshape": reshaped,
    "merge": merged,
    "transpose": lambda d: lambda x: x.transpose(d.order),
    "rev": lambda d: lambda x: lax.rev(x, d.axes),
    "reduce_precision": lambda d: lambda x: lax.reduce_precision(x, d.pick(4, 8), d.pick(2, 7)),
    "convert": converted,
    "clamp": clamped,
    "dot": dotted,
    "argmax": highest,
    "reduce": reduced,
    "reduce bits": reduced_bits,
    "broadcast": broadcast,
    "stack": lambda d: lambda x: jnp.stack([x, 2 * x], d.pick(0, 1, 2, 3)),
    "concatenate": joined,
    "pad": padded,
    "pad rows": padded_rows,
    "slice": sliced,
    "slice rows": sliced_by_rows,
    "gather": gathered,
    "select": selected,
    "iota": counted,
    "split": divided,
    "round": lambda d: lambda x: lax.round(2 * x, d.pick(*lax.RoundingMethod)),
    "power": lambda d: lambda x: lax.integer_pow(x, d.pick(2, 3, 5)),
    "top": lambda d: lambda x: lax.top_k(jnp.moveaxis(x, 0 if d.at else 1, 2), d.pick(1, 2))[0],
    "scan": repeated,
    "lengths": lambda d: lambda x: x / (1 + x.size) + x.shape[d.at] // 2,
}
"""For parameters, a function of an array of three dimensions."""


def codelet_of(name, seed):
    """An operation as a codelet that makes one number of what it gives, in which every element has its weight."""

    def function(x):
        drawn = Drawn(seed)
        result = OPERATIONS[name](drawn)(jnp.moveaxis(x, 0, drawn.at))
        for k, size in enumerate(result.shape):
            weights = jnp.cos(1.0 + (k + 1) * jnp.arange(size))
            result = result * weights.reshape([size if j == k else 1 for j in range(result.ndim)])
        return jnp.sum(result)

    return cl.codelet(function)


def check(cases):
    graph = cl.Graph(cl.IPU(num_tiles=4))
    ends = np.concatenate([[0], np.cumsum(LENGTHS)])
    x = graph.add_variable("x", (int(ends[-1]), 2, 3))
    order = np.random.default_rng(0).permutation(x.shape[0])
    rows = cl.table(order, offsets=ends)
    i = cl.grid(len(LENGTHS))
    names = []
    for name, seed in cases:
        y = graph.add_variable(f"{name} {seed}", (len(LENGTHS),))
        graph.add_vertex(f"set {name} {seed}", codelet_of(name, seed), x=x[rows[i]], out=y[i])
        names.append(f"{name} {seed}")
    values = {"x": np.random.default_rng(1).normal(size=x.shape).astype(np.float32)}
    own = [order[a:b] for a, b in itertools.pairwise(ends)]
    plain = lambda x: {f"{n} {s}": jnp.stack([codelet_of(n, s)(x[k]) for k in own]) for n, s in cases}  # noqa: E731
    expected = jax.jit(plain)(values["x"])  # compiled at once: an operation at a time takes a minute
    found = jax.jit(cl.lower(graph, inputs=[x], outputs=names))(values)
    for name in names:
        rough = 0.05 if name.split()[0] in ("dot", "reduce", "convert") else 1e-4
        np.testing.assert_allclose(found[name], expected[name], rtol=rough, atol=rough, err_msg=name)


QUICK = [
    *("cumulative", "sort", "merge", "transpose", "rev", "clamp", "argmax", "reduce", "stack", "concatenate"),
    *("pad rows", "slice rows", "gather", "select", "split", "scan"),
]
"""An operation for every way in which rules run the rows of several lengths."""


@few(
    "names",
    [QUICK, [name for name in OPERATIONS if name not in QUICK]],
    ["quick"],
    lambda own: "quick" if own is QUICK else "others",
)
def test_parameters_of_what_rules_run(names):
    check([(name, seed) for seed, name in enumerate(OPERATIONS) if name in names])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 13))
def test_many_parameters_of_what_rules_run(seed):
    check([(name, 100 * seed + k) for k, name in enumerate(OPERATIONS)])


def test_every_parameter_is_understood():
    n, *_ = fresh_lengths()
    seen = set()
    for name, seed in itertools.product(OPERATIONS, range(3)):
        try:
            jaxpr = jax.make_jaxpr(codelet_of(name, seed).function)(jax.ShapeDtypeStruct((n, 2, 3), np.float32))
        except Exception:
            continue  # not for all lengths at once
        for eqn in inline(jaxpr).jaxpr.eqns:
            if eqn.primitive.name in ROW_RULES:
                seen.add(eqn.primitive.name)
                check_understood(eqn)
                with pytest.raises(NoRule):
                    check_understood(eqn.replace(params={**eqn.params, "new": 1}))
    assert {"cumsum", "reshape", "sort", "dot_general", "argmax", "reduce_precision", "split", "stack"} <= seen


def test_a_length_in_a_parameter_that_is_no_shape():
    n, *_ = fresh_lengths()
    (eqn,) = jax.make_jaxpr(lambda x: x[:2])(jax.ShapeDtypeStruct((4,), np.float32)).eqns
    of_one_element(eqn.replace(params={**eqn.params, "limit_indices": (n,)}))
    for start in ((n,), (1, (n + 1,))):
        with pytest.raises(NoRule):
            of_one_element(eqn.replace(params={**eqn.params, "start_indices": start}))


def test_short_floats_are_added_as_xla_adds_them():
    ends = [0, 1000, 3000]
    graph = cl.Graph()
    x, i = graph.add_variable("x", (3000,), jnp.bfloat16), cl.grid(2)
    rows = cl.table(np.arange(3000), offsets=ends)
    graph.add_vertex(
        "dot",
        cl.codelet(lambda x: jnp.dot(x, x)),
        x=x[rows[i]],
        out=(y := graph.add_variable("y", (2,), jnp.bfloat16))[i],
    )
    found = cl.lower(graph, inputs=[x], outputs=[y])({"x": np.ones(3000, jnp.bfloat16)})["y"]
    np.testing.assert_array_equal(found.astype(np.float32), [1000, 2000])
