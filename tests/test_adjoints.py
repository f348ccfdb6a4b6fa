"""Adjoints of codelets: what they read, and that they are JAX's own vector-Jacobian products."""

from __future__ import annotations

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.extend import core as jax_core

import codelet as cl
from codelet.tracing.adjoints import AdjointCodelet, adjoint_of
from codelet.tracing.field_types import FieldType
from codelet.tracing.lengths import length_symbols
from codelet.tracing.trace_ragged import trace_ragged
from tests import strategies as s
from tests.at_once import at_once
from tests.examples import examples, few
from tests.ragged_codelets import row_dot, row_order, row_shift, row_sum


@cl.codelet
def dot(x, w):
    return jnp.dot(x, w)


@cl.codelet
def tanh_all(x):
    return jnp.tanh(x)


@cl.codelet
def scaled(x, k, *, by=2.0):
    return {"out": by * x * k, "the sum, Σ": jnp.sum(jnp.exp(x))}


@cl.codelet
def accumulate(x, acc):
    return {"acc": jnp.sin(acc) + jnp.sum(x**2)}


@cl.codelet
def settle(acc):
    return {"acc": jnp.exp(acc)}


@cl.codelet
def clip_up(x):
    return clipped(x)


@jax.custom_vjp
def clipped(x):
    return jnp.maximum(x, 0)


clipped.defvjp(lambda x: (clipped(x), None), lambda _, g: (7 * g,))


@jax.custom_jvp
def rounded(x):
    return jnp.round(jnp.exp(x))


@rounded.defjvp
def _(primals, tangents):
    """Through the rounding: its result is another than that of the function."""
    grown = jnp.exp(primals[0])
    return grown, grown * tangents[0]


@cl.codelet
def round_up(x):
    return rounded(x)


@jax.custom_jvp
def grown(x):
    return jnp.exp(x)


@grown.defjvp
def _(primals, tangents):
    result = grown(*primals)
    return result, result * tangents[0]


@cl.codelet
def grow(x):
    return grown(x)


@cl.codelet
def counts(n, x):
    return {"n": n + 1, "out": x[0] * n}


@cl.codelet
def compared(x, y):
    return jnp.where(x > 0, y, 2 * y)


@cl.codelet
def speaks(x):
    jax.debug.print("x is {}", x)
    return x * x


def vjp_by_hand(codelet: cl.Codelet, fields: dict, static: dict, adjoint: AdjointCodelet, slopes: dict) -> dict:
    """What JAX gives for the codelet's function itself."""
    wrt = list(adjoint.fields.contributions)

    def smooth(*own):
        returned = codelet.function(*{**fields, **dict(zip(wrt, own, strict=True))}.values(), **static)
        return returned if isinstance(returned, dict) else {"out": returned}

    results, back = jax.vjp(smooth, *(fields[name] for name in wrt))
    zero = lambda v: jnp.zeros_like(v) if jnp.issubdtype(v.dtype, jnp.inexact) else np.zeros(v.shape, jax.dtypes.float0)  # noqa: E731
    found = back({name: slopes.get(name, zero(own)) for name, own in results.items()})
    return dict(zip(wrt, found, strict=True))


def run(adjoint: AdjointCodelet, codelet: cl.Codelet, fields: dict, static: dict, slopes: dict) -> dict:
    """What the adjoint gives, of the fields that it asks for."""
    returned = codelet.function(*fields.values(), **static)
    results = returned if isinstance(returned, dict) else {"out": returned}
    own = adjoint.fields
    given = {own.inputs[name]: fields[name] for name in own.inputs}
    given |= {own.results[name]: results[name] for name in own.results}
    given |= {own.cotangents[name]: slopes[name] for name in own.cotangents}
    made = adjoint.function(**given)
    return {name: made[field] for name, field in own.contributions.items()}


class TestFields:
    def test_what_is_linear_needs_nothing_of_itself(self):
        fields = {"x": jnp.ones(3), "w": jnp.ones(3)}
        assert list(dot.adjoint(fields, wrt=["x"]).inputs) == ["w", "d_out"]
        assert list(dot.adjoint(fields).inputs) == ["x", "w", "d_out"]

    def test_a_result_is_read_rather_than_made_again(self):
        assert list(tanh_all.adjoint({"x": jnp.ones(3)}).inputs) == ["out", "d_out"]

    def test_what_is_overwritten_is_read_as_it_is_after(self):
        own = settle.adjoint({"acc": jnp.ones(())})
        assert list(own.inputs) == ["result_acc", "d_acc"]
        assert own.fields.contributions == {"acc": "d_acc"}

    def test_a_result_is_read_only_where_the_derivative_rule_makes_the_same(self):
        assert list(round_up.adjoint({"x": jnp.ones(3)}).inputs) == ["x", "d_out"]
        assert list(grow.adjoint({"x": jnp.ones(3)}).inputs) == ["out", "d_out"]

    @pytest.mark.slow
    def test_what_a_factor_of_cholesky_leaves_above_the_diagonal_is_not_read(self):
        """The primitive leaves anything there; JAX's rule for it reads zeros."""
        lower = jax.make_jaxpr(lambda a: jax.lax.linalg.cholesky(a, symmetrize_input=False))(jnp.eye(3)).eqns[0]
        assert lower.primitive.name == "cholesky"
        known = jax_core.DebugInfo("tests", "factor", None, None)
        one = jax_core.ClosedJaxpr(jax_core.Jaxpr((), lower.invars, lower.outvars, [lower], debug_info=known), ())
        factor = cl.codelet_from_jaxpr(one, ["a"], name="factor")
        a = jnp.array([[4.0, 7.0, -5.0], [1.0, 5.0, 6.0], [2.0, -1.0, 6.0]])
        own = factor.adjoint({"a": a})
        slopes = {"out": jnp.arange(9.0).reshape(3, 3)}
        found, expected = run(own, factor, {"a": a}, {}, slopes), vjp_by_hand(factor, {"a": a}, {}, own, slopes)
        np.testing.assert_allclose(found["a"], expected["a"], 1e-5, 1e-5)

    def test_an_in_out_field_has_one_cotangent(self):
        own = accumulate.adjoint({"x": jnp.ones(3), "acc": jnp.ones(())})
        assert list(own.inputs) == ["x", "acc", "d_acc"]
        assert own.fields.contributions == {"x": "d_x", "acc": "d_acc"}

    def test_integers_have_none(self):
        own = counts.adjoint({"n": jnp.int32(3), "x": jnp.ones(2)})
        assert own.fields.contributions == {"x": "d_x"}
        assert own.fields.cotangents == {"out": "d_out"}
        assert list(own.inputs) == ["n", "d_out"]

    def test_a_field_that_only_decides_gets_nothing(self):
        own = compared.adjoint({"x": jnp.ones(3), "y": jnp.ones(3)})
        assert own.fields.contributions == {"y": "d_y"}

    def test_names_of_results_that_no_parameter_may_have(self):
        own = scaled.adjoint({"x": jnp.ones(3), "k": jnp.ones(())}, of=["the sum, Σ"])
        assert list(own.inputs) == ["x", "d_the_sum__Σ"]

    def test_it_prints_nothing_that_the_vertex_has_printed(self, capfd):
        own = speaks.adjoint({"x": jnp.ones(())})
        assert float(jax.jit(own.function)(x=jnp.float32(3), d_out=jnp.float32(1))["d_x"]) == 6
        jax.effects_barrier()
        assert capfd.readouterr().out == ""

    def test_it_is_one_object(self):
        traced = dot.specialise({"x": FieldType((3,), np.dtype("float32")), "w": FieldType((3,), np.dtype("float32"))})
        assert adjoint_of(traced, ["x"], ["out"]) is adjoint_of(traced, ["x"], ["out"])
        own = adjoint_of(traced, ["x"], ["out"])
        assert own is not None
        assert own.adding(["x"]) is own.adding(["x"])
        assert own.adding(["x"]).adding(["x"]) is own.adding(["x"])

    def test_there_is_none_of_integers(self):
        traced = dot.specialise({"x": FieldType((3,), np.dtype("int32")), "w": FieldType((3,), np.dtype("int32"))})
        assert adjoint_of(traced, ["x", "w"], ["out"]) is None


class TestValues:
    @few(
        "codelet",
        [dot, tanh_all, scaled, accumulate, settle, clip_up, round_up, grow, counts, compared],
        quick=["dot", "settle"],
    )
    @examples(12)
    @given(data=st.data())
    def test_they_are_those_of_jax(self, codelet, data):
        random = np.random.default_rng(data.draw(st.integers(0, 99)))
        size = data.draw(st.integers(1, 4))
        shapes = {"x": (size,), "w": (size,), "y": (size,), "acc": (), "k": ()}
        fields = {
            name: jnp.int32(3) if name == "n" else jnp.asarray(random.uniform(-1, 1, shapes[name]), jnp.float32)
            for name in codelet.inputs
        }
        static = {"by": 3.0} if codelet is scaled else {}
        returned = codelet.function(*fields.values(), **static)
        results = returned if isinstance(returned, dict) else {"out": returned}
        smooth = [name for name, own in results.items() if jnp.issubdtype(own.dtype, jnp.floating)]
        of = data.draw(st.lists(st.sampled_from(smooth), min_size=1, unique=True))
        adjoint = codelet.adjoint({**fields, **static}, of=of)
        slopes = {name: jnp.asarray(random.uniform(-1, 1, results[name].shape), jnp.float32) for name in of}
        expected = vjp_by_hand(codelet, fields, static, adjoint, slopes)
        found = run(adjoint, codelet, fields, static, slopes)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, 1e-6, 1e-6)

    def test_what_is_added(self):
        own = dot.adjoint({"x": jnp.ones(3), "w": jnp.ones(3)}, wrt=["x"]).adding(["x"])
        assert list(own.inputs) == ["w", "d_out", "d_x"]
        made = own.function(w=jnp.arange(3.0), d_out=2.0, d_x=jnp.ones(3))
        assert made["d_x"].tolist() == [1, 3, 5]

    def test_twice(self):
        """The adjoint of an adjoint: of a cube, by its cotangent and by itself."""
        cube = cl.codelet(lambda x: x**3)
        first = cube.adjoint({"x": jnp.float32(2)})
        second = first.adjoint({"x": jnp.float32(2), "d_out": jnp.float32(1)})
        made = second.function(x=jnp.float32(2), d_out=jnp.float32(1), d_d_x=jnp.float32(1))
        assert (float(made["d_x"]), float(made["d_d_out"])) == (12, 12)

    @few("codelet", [row_sum, row_shift, row_dot, row_order], quick=["row_sum"])
    def test_ragged(self, codelet):
        n = length_symbols()[0]
        lengths = [1, 2, 3, 5, 7, 8]
        row, one = FieldType((n,), np.dtype("float32")), FieldType((), np.dtype("float32"))
        types = {name: row if name in "xz" else one for name in codelet.inputs}
        traced = trace_ragged(codelet, types, {}, [{n: k} for k in lengths])
        adjoint = adjoint_of(traced, list(codelet.inputs), list(traced.outputs))
        assert adjoint is not None
        own = {kind: getattr(adjoint.fields, kind) for kind in ("inputs", "results", "cotangents")}
        kinds = {own["inputs"][name]: types[name] for name in own["inputs"]}
        kinds |= {own["cotangents"][name]: traced.outputs[name] for name in own["cotangents"]}
        again = trace_ragged(adjoint, kinds, {}, [{n: k} for k in lengths])
        assert again.outputs[adjoint.fields.contributions["x"]].shape == (n,)
        random = np.random.default_rng(0)
        for k in lengths:
            draw = lambda kind: jnp.asarray(random.uniform(-1, 1, kind.at({n: k}).shape), jnp.float32)  # noqa: E731
            fields = {name: draw(kind) for name, kind in types.items()}
            slopes = {name: draw(kind) for name, kind in traced.outputs.items()}
            found, expected = at_once(
                lambda fields, slopes: run(adjoint, codelet, fields, {}, slopes),
                lambda fields, slopes: vjp_by_hand(codelet, fields, {}, adjoint, slopes),
            )(fields, slopes)
            for name, value in found.items():
                np.testing.assert_allclose(value, expected[name], 1e-5, 1e-5)

    def test_the_lengths_that_it_depends_on_are_seen(self):
        """By the fields that take the least, of those that are not overwritten; by none where a cotangent shows it."""

        @cl.codelet
        def counted(x, acc, k, z, y):
            return {"acc": acc + 1, "out": y * x.shape[0] * z.shape[0]}

        n, m = length_symbols()[:2]
        shapes = {"x": ((n,), "float32"), "acc": ((n,), "int8"), "k": ((n,), "int16"), "z": ((m,), "bool")}
        types = {name: FieldType(shape, np.dtype(kind)) for name, (shape, kind) in shapes.items()}
        types["y"] = FieldType((), np.dtype("float32"))
        adjoint = adjoint_of(counted.specialise(types), ["x", "y"], ["out"])
        assert adjoint is not None
        assert list(adjoint.inputs) == ["z", "k", "d_out"]
        moved = cl.codelet(lambda x, y: x + y).specialise({"x": types["x"], "y": types["y"]})
        adjoint = adjoint_of(moved, ["y"], ["out"])
        assert adjoint is not None
        assert list(adjoint.inputs) == ["d_out"]

    def test_pickled(self):
        own = pickle.loads(pickle.dumps(s.gather_up.adjoint({"x": jnp.ones(3), "y": jnp.ones(2)}).adding(["y"])))
        assert list(own.inputs) == ["x", "y", "d_out", "d_y"]
        before = s.gather_up.adjoint({"x": jnp.ones(3), "y": jnp.ones(2)}).adding(["y"])
        given = {"x": jnp.arange(3.0), "y": jnp.ones(2), "d_out": 2.0, "d_y": jnp.ones(2)}
        np.testing.assert_array_equal(own.function(**given)["d_y"], before.function(**given)["d_y"])


@pytest.mark.parametrize("turns", [7, lambda x, n, *, more: x.size + more], ids=["a number", "a function"])
def test_loops_turn_as_often_as_the_user_says(turns):
    @cl.codelet(trip_count=turns)
    def powers(x, n, *, more=4):
        return x * jax.lax.while_loop(lambda k: k < more + n, lambda k: k + 1, n).astype(x.dtype)

    fields = {"x": jnp.ones(3), "n": jnp.int32(1)}
    adjoint = powers.adjoint(fields, wrt=["x"])
    said = adjoint.hints.trip_count
    if callable(said):
        vector, number = jax.ShapeDtypeStruct((3,), np.float32), jax.ShapeDtypeStruct((), np.int32)
        said = said(**{name: number if name == "n" else vector for name in adjoint.inputs})
    assert said == 7


class TestMistakes:
    def test_what_has_no_derivative(self):
        @cl.codelet
        def unbounded(x):
            return jax.lax.while_loop(lambda y: y < 10, lambda y: 2 * y, x)

        with pytest.raises(cl.CodeletTraceError) as error:
            unbounded.adjoint({"x": jnp.float32(1)})
        said = "codelet 'unbounded' has no adjoint by its field 'x': ValueError: Reverse-mode differentiation does"
        assert said in str(error.value)
        assert "a loop with a bound that is known" in str(error.value)

    def test_what_depends_on_nothing(self):
        with pytest.raises(cl.CodeletTraceError, match="no result of floats depends smoothly on an input of floats"):
            counts.adjoint({"n": jnp.int32(1), "x": jnp.int32([1])})

    def test_a_field_that_there_is_none_of(self):
        with pytest.raises(cl.UnknownFieldError, match="codelet 'dot' has no field 'y'"):
            dot.adjoint({"x": jnp.ones(3), "w": jnp.ones(3)}, wrt=["y"])
        with pytest.raises(cl.MissingFieldError, match="nothing for its field 'w'"):
            dot.adjoint({"x": jnp.ones(3)})
