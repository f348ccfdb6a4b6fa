"""Gathers and scatters whose indices are known while a function is traced: slices, or what is promised of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

import codelet as cl
from benchmarks.traced_steps import by_vertices
from codelet.frontends.known_places import Promises, box_of
from codelet.graphs.vertices import gather
from codelet.views.sources import source_variables
from tests.at_once import at_once, with_slopes
from tests.examples import examples, few
from tests.ops_cases import array, assert_alike

CLIP, DROP = lax.GatherScatterMode.CLIP, lax.GatherScatterMode.FILL_OR_DROP


def _scatters(function, *arguments):
    """The equations of the lowered function that gather or scatter."""
    found, jaxprs = [], [cl.trace(function, *arguments).lowered.jaxpr.jaxpr]
    for jaxpr in jaxprs:
        found += [eqn for eqn in jaxpr.eqns if eqn.primitive.name.split("-")[0] in ("gather", "scatter")]
        for eqn in jaxpr.eqns:
            inner = jax.tree.leaves(list(eqn.params.values()), is_leaf=lambda own: hasattr(own, "jaxpr"))
            jaxprs += [getattr(own.jaxpr, "jaxpr", own.jaxpr) for own in inner if hasattr(own, "jaxpr")]
    return found


def _check(function, *arguments):
    """A traced function, interpreted and lowered, has the values of the function, and its slopes."""
    traced = cl.trace(function, *arguments)
    every = at_once(*map(with_slopes, (traced, by_vertices(traced), function)))(*arguments)
    for *ours, plain in zip(*map(jax.tree.leaves, every), strict=True):
        for own in ours:
            assert_alike(own, plain)
    names = [own.source.name for own in traced.flat_inputs]
    made = source_variables(traced.outputs.source)
    given = dict(zip(names, map(np.asarray, arguments), strict=True))
    values = given | cl.interpret(
        traced.graph, values=given, outputs=[own.name for own in made if own.name not in given], program=traced.program
    )
    held = {own.first_element: np.asarray(values[own.name]).reshape(-1) for own in made}
    assert_alike(gather(held, traced.outputs), function(*arguments))


# --- drawn ------------------------------------------------------------------------------------------------------


@st.composite
def _one_item(draw, extent):
    """What indexes a dimension: a slice, a number, or an array of numbers, some of which may be beyond the ends."""
    kind = draw(st.sampled_from(["all", "slice", "slice", "number", "array"]))
    if kind == "slice":
        start = draw(st.integers(0, extent - 1))
        return slice(start, draw(st.integers(start + 1, extent)), draw(st.integers(1, 3)))
    if kind == "number":
        return draw(st.integers(-extent, extent - 1))
    if kind == "array":
        first, step = draw(st.integers(-2, extent)), draw(st.sampled_from([-1, 0, 1, 2]))
        if draw(st.booleans()):
            return np.arange(draw(st.integers(1, 4))) * step + first
        return np.array(draw(st.lists(st.integers(-extent, extent), min_size=1, max_size=4)))
    return slice(None)


@st.composite
def _indexed(draw):
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    arrays, items = 0, []
    for extent in shape:
        item = draw(_one_item(extent))
        if isinstance(item, np.ndarray):
            arrays += 1
            item = item if arrays == 1 else slice(None)
        items.append(item)
    op = draw(st.sampled_from(["get", "set", "add", "multiply", "min", "max"]))
    mode = draw(st.sampled_from([None, "clip", "fill" if op == "get" else "drop"]))
    return array(shape), tuple(items), op, mode


def _repeats(shape, items, mode):
    """Whether an element is named twice: then what is set or multiplied has no slope, or one of several."""
    places = jnp.arange(np.prod(shape)).reshape(shape).at[items].get(mode=mode or "fill", fill_value=-1)
    named = np.asarray(places).reshape(-1)
    named = named[named >= 0]
    return len(set(named.tolist())) < len(named)


def check_places(drawn):
    x, items, op, mode = drawn
    if op == "get":
        _check(lambda x: x.at[items].get(mode=mode), x)
        return
    repeats = _repeats(x.shape, items, mode)
    if repeats and op in ("set", "multiply"):
        op = "add"
    options = {"unique_indices": True} if op == "multiply" else {}
    y = array(jax.eval_shape(lambda x: x[items], x).shape, seed=1)
    _check(lambda x, y: getattr(x.at[items], op)(y, mode=mode, **options), x, y)


@pytest.mark.slow
@examples(6)
@given(_indexed())
def test_known_places_are_as_jax_has_them(drawn):
    check_places(drawn)


@pytest.mark.slow
@examples(100)
@given(_indexed())
def test_many_known_places_are_as_jax_has_them(drawn):
    check_places(drawn)


# --- slices -----------------------------------------------------------------------------------------------------

X = array((12, 8))
BOXES = {
    "rows": (slice(1, None),),
    "everything": (slice(None), slice(0, None)),
    "inner": (slice(1, -1), slice(1, -1)),
    "a row": (0,),
    "a column": (slice(None), -1),
    "every other": (slice(None, None, 2), slice(1, None, 2)),
    "of an array": (np.arange(3, 9), slice(2, 5)),
    "an element": (3, 4),
}


@few("name", BOXES, quick=["rows", "everything", "a column", "of an array", "an element"])
@few("op", ["get", "set", "add"], quick=["add"])
def test_boxes_are_slices(name, op):
    """No look-up is left of what is known to be a box, and nothing is added by scattering.

    What is added to a part of an argument may be put there by a scatter: XLA might compile another update wrong.
    """
    items = BOXES[name]
    y = X[items] * 2 + 1
    function = (lambda x, y: x[items] * y) if op == "get" else (lambda x, y: getattr(x.at[items], op)(y))
    if (name, op) != ("every other", "add"):
        assert not [own for own in _scatters(function, X, y) if op != "add" or own.primitive.name != "scatter"]
    _check(function, X, y)


def test_a_loop_updates_a_box_in_place():
    """A turn writes the rows alone: what it carries is updated by one slice, of slices of what it carries."""
    function = lambda x: lax.fori_loop(0, 4, lambda _, x: x.at[1:].add(0.5 * x[:-1]), x)  # noqa: E731
    (scan,) = (eqn for eqn in cl.trace(function, X).lowered.jaxpr.eqns if eqn.primitive.name == "scan")
    body = scan.params["jaxpr"].jaxpr
    (update,) = (eqn for eqn in body.eqns if eqn.primitive.name == "dynamic_update_slice")
    assert update.invars[0] is body.invars[-1]
    slices = [eqn for eqn in body.eqns if eqn.primitive.name == "slice"]
    assert {eqn.invars[0] for eqn in slices} == {body.invars[-1]}
    _check(function, X)


def _gradient(function, x, *others):
    """The gradient graph of the sum of what a function gives, by its first argument, with its traced function."""
    traced = cl.trace(lambda *arguments: jnp.sum(jnp.sin(function(*arguments))), x, *others)
    return traced, cl.gradient(traced.graph, of=traced.outputs, wrt=list(traced.flat_inputs), program=traced.program)


def _copied(program):
    """What a program copies, and its parts."""
    if isinstance(program, cl.Copy):
        return [program.source]
    parts = getattr(program, "programs", None) or [own for own in (getattr(program, "body", None),) if own]
    return [own for part in parts for own in _copied(part)]


def check_gradient_graphs(drawn):
    x, items, op, mode = drawn
    if op in ("min", "max", "get") or (op != "add" and _repeats(x.shape, items, mode)):
        op = "add"
    options = {"unique_indices": True} if op == "multiply" else {}
    function = lambda x, y: getattr(x.at[items], op)(y, mode=mode, **options)  # noqa: E731
    y = array(jax.eval_shape(lambda x: x[items], x).shape, seed=1)
    traced, found = _gradient(function, x, y)
    program = cl.Sequence(found.forward, found.backward)
    slopes = [found[own] for own in traced.flat_inputs]
    lowered = cl.lower(traced.graph, program, inputs=list(traced.flat_inputs), outputs=slopes)
    plain = jax.grad(lambda *arguments: jnp.sum(jnp.sin(function(*arguments))), (0, 1))
    made = at_once(lambda *arguments: lowered.flat(arguments), plain)(x, y)
    for own, expected in zip(*made, strict=True):
        assert_alike(own, expected)


@pytest.mark.slow
@examples(6)
@given(_indexed())
def test_gradient_graphs_of_known_places_are_as_jax_has_them(drawn):
    check_gradient_graphs(drawn)


@pytest.mark.slow
@examples(100)
@given(_indexed())
def test_gradient_graphs_of_many_known_places_are_as_jax_has_them(drawn):
    check_gradient_graphs(drawn)


@pytest.mark.parametrize("name", BOXES)
def test_the_cotangent_of_what_is_added_to_is_that_of_the_result(name):
    """Nothing is put to zero, and added to, where a box of a copy is added to."""
    items = BOXES[name]
    turn = lambda _, x: x.at[items].add(jnp.sin(x[items]))  # noqa: E731
    _, found = _gradient(lambda x: lax.fori_loop(0, 3, turn, x), X)
    (loop,) = (own for own in found.backward.programs if isinstance(own, cl.Repeat))
    assert not [own for own in _copied(loop) if own.source.value is not None]


def test_a_known_slice_is_put_without_vertices():
    function = lambda x, y: lax.dynamic_update_slice(x, y, (40, 1))  # noqa: E731
    traced = cl.trace(function, X, X[:3, :4])
    assert not traced.graph.compute_sets
    _check(function, X, X[:3, :4])


@pytest.mark.parametrize(
    ("places", "mode"),
    [([[1], [1]], DROP), ([[0], [2], [3]], DROP), ([[3], [2]], DROP), ([[11], [12]], DROP), ([[11], [12]], CLIP)],
    ids=["twice", "uneven", "backwards", "beyond", "clipped"],
)
def test_other_places_are_no_box(places, mode):
    assert box_of(np.array(places), [0], [0], [1], (12, 8), [1, 8], mode) is None


# --- promises ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([3, 0, 7], (True, False)),
        ([0, 3, 7], (True, True)),
        ([0, 3, 3], (False, True)),
        ([3, 0, 3], (False, False)),
        ([0, 3, 12], (False, False)),
        ([-1, 0, 4], (False, False)),
    ],
)
def test_known_places_say_what_they_are(places, expected):
    own = Promises(False, False).or_known(np.array(places)[:, None], [0], [11], is_single=True)
    assert own == expected
    windows = Promises(False, False).or_known(np.array(places)[:, None], [0], [11], is_single=False)
    assert not windows.unique_indices
    assert Promises(True, True).or_known(None, [0], [11], is_single=True) == (True, True)


@pytest.mark.parametrize("places", [[5, 0, 3], [0, 3, 5], [3, 0, 3]], ids=["unique", "sorted", "twice"])
def test_promises_are_emitted_where_they_hold(places):
    places = np.array(places)
    (gather,) = _scatters(lambda x: x[places], X)
    (scatter,) = _scatters(lambda x, y: x.at[places].add(y), X, X[:3])
    # Vertices that look up one row each promise nothing of those of others.
    assert not (gather.params["unique_indices"] and len(set(places)) < 3)
    assert scatter.params["unique_indices"] == (len(set(places)) == 3)
    assert scatter.params["indices_are_sorted"] == (sorted(places) == list(places))


def test_what_is_promised_is_passed_on():
    def function(x, y, i):
        return x.at[i].set(y, unique_indices=True, indices_are_sorted=True)

    (scatter,) = _scatters(function, X, X[:2], jnp.array([2, 5]))
    assert scatter.params["unique_indices"]
    assert scatter.params["indices_are_sorted"]
    (scatter,) = _scatters(lambda x, y, i: x.at[i].set(y), X, X[:2], jnp.array([2, 5]))
    assert not any(scatter.params[name] for name in ("unique_indices", "indices_are_sorted"))


@pytest.mark.slow
def test_sums_of_promised_tables_promise_nothing():
    """Every vertex names each element of its own table once; their sum's are named several times."""
    places = np.tile(np.arange(6)[::-1], 40)

    def loss(x):
        return jnp.sum(jax.vmap(lambda i: x.at[i].get(unique_indices=True))(places.reshape(40, 6)) ** 2)

    x = array((6,))
    traced = cl.trace(loss, x)
    found = cl.gradient(traced.graph, of=traced.outputs, wrt=list(traced.inputs), program=traced.program)
    program, outputs = cl.Sequence(found.forward, found.backward), [found[traced.inputs[0]]]
    lowered = cl.lower(traced.graph, program, inputs=list(traced.inputs), outputs=outputs)
    assert_alike(lowered.flat([x])[0], jax.grad(loss)(x))
    assert_alike(jax.grad(traced)(x), jax.grad(loss)(x))
