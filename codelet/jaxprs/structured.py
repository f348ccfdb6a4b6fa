"""Structured primitives in files: loops, branches, calls and reductions by a function, in forms of the library's.

Their parameters are jaxprs, counts and types of JAX's that change from release to release. Each has a function that
writes its meaning. Another makes it again by JAX's public functions, or binds it where the JAX at hand has the
parameters of the form.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import scan_counts
from codelet.jaxprs.jaxpr_codec import STRUCTURED, JaxprReader, JaxprWriter
from codelet.jaxprs.plain import NotPlainError, Plain, check_form, mapped, text, whole
from codelet.jaxprs.primitive_set import public_primitives
from codelet.jaxprs.primitives import says_nothing

Params = Mapping[str, Plain]


def _only(eqn: jax_core.JaxprEqn, *understood: str, **fixed: Any) -> dict[str, Any]:
    """The parameters of an equation, none of which says anything beyond some, or those with fixed values.

    Raises:
        NotPlainError: one does.
    """
    for name, value in eqn.params.items():
        if name not in understood and not (name in fixed and value == fixed[name]) and not says_nothing(value):
            raise NotPlainError(f"{eqn.primitive.name} with {name}={value!r:.60}")
    return eqn.params


@functools.cache
def _params_of(name: str) -> frozenset[str]:
    """The parameters that a loop or a choice has in the JAX at hand."""
    one = jax.ShapeDtypeStruct((1,), jnp.float32)
    probes = {
        "scan": lambda x: lax.scan(lambda carry, _: (carry, None), x, None, length=2)[0],
        "cond": lambda x: lax.cond(x[0] > 0, lambda y: y, lambda y: y + 1, x),
    }
    (eqn,) = [eqn for eqn in jax.make_jaxpr(probes[name])(one).eqns if eqn.primitive.name == name]
    return frozenset(eqn.params)


def _as_function(closed: jax_core.ClosedJaxpr) -> Any:
    return jax_core.jaxpr_as_fun(closed)


# --- calls ------------------------------------------------------------------------------------------------------


def _write_jit(writer: JaxprWriter, eqn: jax_core.JaxprEqn) -> Params:
    return {"name": str(eqn.params["name"]), "jaxpr": writer.jaxpr(eqn.params["jaxpr"])}


def _read_jit(reader: JaxprReader, params: Params, operands: list[Any]) -> Sequence[Any]:
    mapped(dict(params), "name", "jaxpr")
    function = _as_function(reader.closed(params["jaxpr"]))
    called = lambda *fields: function(*fields)  # noqa: E731 - which can be given the name it had
    called.__name__ = called.__qualname__ = text(params["name"], 1000)
    return jax.jit(called)(*operands)


def _write_remat(writer: JaxprWriter, eqn: jax_core.JaxprEqn) -> Params:
    _only(eqn, "jaxpr", "prevent_cse", differentiated=False)
    return {"jaxpr": writer.jaxpr(eqn.params["jaxpr"]), "prevent_cse": writer.value(eqn.params["prevent_cse"])}


def _read_remat(reader: JaxprReader, params: Params, operands: list[Any]) -> Sequence[Any]:
    mapped(dict(params), "jaxpr", "prevent_cse")
    function = _as_function(reader.closed(params["jaxpr"]))
    return jax.checkpoint(lambda *fields: function(*fields), prevent_cse=reader.value(params["prevent_cse"]))(*operands)


# --- loops and choices --------------------------------------------------------------------------------------------


def _write_scan(writer: JaxprWriter, eqn: jax_core.JaxprEqn) -> Params:
    params = eqn.params
    split = params.get("_split_transpose")
    if split:
        raise NotPlainError(f"scan with _split_transpose={split!r}")
    num_consts, num_carry = scan_counts(eqn)
    return {
        "jaxpr": writer.jaxpr(params["jaxpr"]),
        "num_consts": int(num_consts),
        "num_carry": int(num_carry),
        "length": writer.value(params["length"]),
        "reverse": bool(params["reverse"]),
        "unroll": writer.value(params["unroll"]),
    }


def _read_scan(reader: JaxprReader, params: Params, operands: list[Any]) -> Sequence[Any]:
    mapped(dict(params), "jaxpr", "num_consts", "num_carry", "length", "reverse", "unroll")
    body = reader.closed(params["jaxpr"])
    first = whole(params["num_consts"], 0, len(operands))
    carried = whole(params["num_carry"], 0, len(operands) - first)
    how = {"length": reader.value(params["length"]), "reverse": params["reverse"], "unroll": params["unroll"]}
    check_form(type(how["reverse"]) is bool and type(how["unroll"]) in (bool, int), "how a scan runs")
    accepted = _params_of("scan")
    if {"num_consts", "num_carry"} <= accepted:
        counts = {"num_consts": first, "num_carry": carried, "jaxpr": body}
        more: dict[str, Any] = {"_split_transpose": False} if "_split_transpose" in accepted else {}
        _check_scan(body, operands, first, carried, how["length"])
        if "linear" in accepted:
            more["linear"] = (False,) * len(operands)
        return public_primitives()["scan"].bind(*operands, **counts, **how, **more)
    function = _as_function(body)

    def turn(carry: Any, row: Any) -> tuple[list[Any], list[Any]]:
        results = function(*operands[:first], *carry, *row)
        return results[:carried], results[carried:]

    last, stacked = lax.scan(turn, operands[first : first + carried], operands[first + carried :], **how)
    return [*last, *stacked]


def _check_scan(body: jax_core.ClosedJaxpr, operands: list[Any], first: int, carried: int, length: Any) -> None:
    """Check that the operands of a scan fit its body: a bound primitive is not checked again."""
    kinds = [jax.typeof(operand) for operand in operands]
    rows = kinds[first + carried :]
    check_form(all(row.ndim and row.shape[0] == length for row in rows), "the rows of a scan")
    expected = [kind.shape for kind in kinds[: first + carried]] + [row.shape[1:] for row in rows]
    check_form([tuple(aval.shape) for aval in body.in_avals] == expected, "the operands of a scan")
    check_form([aval.dtype for aval in body.in_avals] == [kind.dtype for kind in kinds], "the dtypes of a scan")
    carries = list(zip(body.in_avals[first : first + carried], body.out_avals[:carried], strict=True))
    check_form(all((a.shape, a.dtype) == (b.shape, b.dtype) for a, b in carries), "what a scan carries")


def _write_while(writer: JaxprWriter, eqn: jax_core.JaxprEqn) -> Params:
    params = _only(eqn, "cond_jaxpr", "body_jaxpr", "cond_nconsts", "body_nconsts")
    return {
        "condition": writer.jaxpr(params["cond_jaxpr"]),
        "body": writer.jaxpr(params["body_jaxpr"]),
        "of_condition": int(params["cond_nconsts"]),
        "of_body": int(params["body_nconsts"]),
    }


def _read_while(reader: JaxprReader, params: Params, operands: list[Any]) -> Sequence[Any]:
    mapped(dict(params), "condition", "body", "of_condition", "of_body")
    condition, body = reader.closed(params["condition"]), reader.closed(params["body"])
    first = whole(params["of_condition"], 0, len(operands))
    second = first + whole(params["of_body"], 0, len(operands) - first)
    kinds = [(tuple(kind.shape), kind.dtype) for kind in map(jax.typeof, operands)]
    types = lambda avals: [(tuple(aval.shape), aval.dtype) for aval in avals]  # noqa: E731
    check_form(types(condition.in_avals) == kinds[:first] + kinds[second:], "the condition of a loop")
    check_form(types(body.in_avals) == kinds[first:], "the body of a loop")
    check_form(types(body.out_avals) == kinds[second:], "what a loop carries")
    check_form(types(condition.out_avals) == [((), np.dtype(bool))], "the condition of a loop")
    return public_primitives()["while"].bind(
        *operands, cond_jaxpr=condition, body_jaxpr=body, cond_nconsts=first, body_nconsts=second - first
    )


def _default_platform(platforms: Sequence[Any]) -> int:
    """The number of the branch for all platforms, where others are for kernels alone, which no codelet is.

    Raises:
        NotPlainError: a branch for another platform.
    """
    if platforms[-1] is not None or any(name != "mosaic" for names in platforms[:-1] for name in names):
        raise NotPlainError(f"a choice by platforms, {platforms!r:.60}")
    return len(platforms) - 1


def _write_platform(_: JaxprWriter, eqn: jax_core.JaxprEqn) -> Params:
    return {"branch": _default_platform(_only(eqn, "platforms")["platforms"])}


def _read_platform(_: JaxprReader, params: Params, __: list[Any]) -> Sequence[Any]:
    return [np.int32(whole(mapped(dict(params), "branch")["branch"], 0, 100))]


def _write_cond(writer: JaxprWriter, eqn: jax_core.JaxprEqn) -> Params:
    params = _only(eqn, "branches", "branches_platforms")
    _default_platform(params.get("branches_platforms") or (None,))
    return {"branches": [writer.jaxpr(branch) for branch in params["branches"]]}


def _read_cond(reader: JaxprReader, params: Params, operands: list[Any]) -> Sequence[Any]:
    mapped(dict(params), "branches")
    check_form(type(params["branches"]) is list and params["branches"] and operands, "the branches of a choice")
    branches = tuple(reader.closed(branch) for branch in params["branches"])
    kinds = [(tuple(kind.shape), kind.dtype) for kind in map(jax.typeof, operands)]
    types = lambda avals: [(tuple(aval.shape), aval.dtype) for aval in avals]  # noqa: E731
    check_form(kinds[0] == ((), np.dtype(np.int32)), "what chooses a branch")
    check_form(all(types(item.in_avals) == kinds[1:] for item in branches), "the operands of a choice")
    first = types(branches[0].out_avals)
    check_form(all(types(item.out_avals) == first for item in branches), "the results of a choice")
    more = {"branches_platforms": None} if "branches_platforms" in _params_of("cond") else {}
    return public_primitives()["cond"].bind(*operands, branches=branches, **more)


# --- reductions by a function -------------------------------------------------------------------------------------


def _write_reduce(writer: JaxprWriter, eqn: jax_core.JaxprEqn) -> Params:
    params = _only(eqn, "jaxpr", "dimensions", "computation")
    return {"jaxpr": writer.jaxpr(params["jaxpr"]), "dimensions": writer.value(tuple(params["dimensions"]))}


def _halves(operands: list[Any]) -> int:
    check_form(operands and len(operands) % 2 == 0, "the operands of a reduction")
    return len(operands) // 2


def _read_reduce(reader: JaxprReader, params: Params, operands: list[Any]) -> Sequence[Any]:
    mapped(dict(params), "jaxpr", "dimensions")
    half, closed = _halves(operands), reader.closed(params["jaxpr"])
    function = _as_function(closed)
    combine = lambda left, right: tuple(function(*left, *right))  # noqa: E731
    return lax.reduce(tuple(operands[:half]), tuple(operands[half:]), combine, reader.value(params["dimensions"]))


_WINDOW = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")


def _write_window(writer: JaxprWriter, eqn: jax_core.JaxprEqn) -> Params:
    params = _only(eqn, "jaxpr", "consts", *_WINDOW)
    if tuple(params["consts"]):
        raise NotPlainError("reduce_window with constants in its function")
    return {"jaxpr": writer.jaxpr(params["jaxpr"]), **{name: writer.value(tuple(params[name])) for name in _WINDOW}}


def _read_window(reader: JaxprReader, params: Params, operands: list[Any]) -> Sequence[Any]:
    mapped(dict(params), "jaxpr", *_WINDOW)
    half, closed = _halves(operands), reader.closed(params["jaxpr"])
    function = _as_function(closed)
    combine = lambda left, right: tuple(function(*left, *right))  # noqa: E731
    shapes = [reader.value(params[name]) for name in _WINDOW]
    return lax.reduce_window(tuple(operands[:half]), tuple(operands[half:]), combine, *shapes)


# --- others -------------------------------------------------------------------------------------------------------


@functools.cache
def _solve_record() -> Any:
    """JAX's type for the parts of a linear solve."""
    solve = lambda b: lax.custom_linear_solve(lambda x: x, b, lambda _, y: y)  # noqa: E731
    eqns = jax.make_jaxpr(solve)(jax.ShapeDtypeStruct((1,), jnp.float32)).eqns
    return type(next(eqn for eqn in eqns if eqn.primitive.name == "custom_linear_solve").params["jaxprs"])


_SOLVES = ("matvec", "vecmat", "solve", "transpose_solve")


def _write_solve(writer: JaxprWriter, eqn: jax_core.JaxprEqn) -> Params:
    params = _only(eqn, "const_lengths", "jaxprs")
    jaxprs = [getattr(params["jaxprs"], name) for name in _SOLVES]
    return {
        "lengths": [int(getattr(params["const_lengths"], name)) for name in _SOLVES],
        "jaxprs": [None if jaxpr is None else writer.jaxpr(jaxpr) for jaxpr in jaxprs],
    }


def _read_solve(reader: JaxprReader, params: Params, operands: list[Any]) -> Sequence[Any]:
    mapped(dict(params), "lengths", "jaxprs")
    lengths = [whole(length, 0, len(operands)) for length in params["lengths"]]
    jaxprs = [None if plain is None else reader.closed(plain) for plain in params["jaxprs"]]
    record = _solve_record()
    check_form(len(lengths) == len(jaxprs) == len(_SOLVES) and sum(lengths) <= len(operands), "a linear solve")
    built = [record(**dict(zip(_SOLVES, parts, strict=True))) for parts in (lengths, jaxprs)]
    return public_primitives()["custom_linear_solve"].bind(*operands, const_lengths=built[0], jaxprs=built[1])


def _write_wrap(writer: JaxprWriter, eqn: jax_core.JaxprEqn) -> Params:
    return {"impl": writer.value(eqn.params["impl"])}


def _read_wrap(reader: JaxprReader, params: Params, operands: list[Any]) -> Sequence[Any]:
    mapped(dict(params), "impl")
    tag, name = params["impl"]
    check_form(tag == "k", "a random generator")
    reader.value(params["impl"])
    return [jax.random.wrap_key_data(*operands, impl=text(name))]


def _write_nothing(_: JaxprWriter, eqn: jax_core.JaxprEqn) -> Params:
    _only(eqn)
    return {}


def _read_unwrap(_: JaxprReader, params: Params, operands: list[Any]) -> Sequence[Any]:
    mapped(dict(params))
    return [jax.random.key_data(*operands)]


def _write_size(writer: JaxprWriter, eqn: jax_core.JaxprEqn) -> Params:
    return {"dim": writer.value(eqn.params["dim"])}


def _read_size(reader: JaxprReader, params: Params, _: list[Any]) -> Sequence[Any]:
    mapped(dict(params), "dim")
    return [jnp.asarray(reader.value(params["dim"]))]


STRUCTURED.update(
    {
        "jit": (_write_jit, _read_jit),
        "remat2": (_write_remat, _read_remat),
        "scan": (_write_scan, _read_scan),
        "while": (_write_while, _read_while),
        "cond": (_write_cond, _read_cond),
        "platform_index": (_write_platform, _read_platform),
        "reduce": (_write_reduce, _read_reduce),
        "reduce_window": (_write_window, _read_window),
        "custom_linear_solve": (_write_solve, _read_solve),
        "random_wrap": (_write_wrap, _read_wrap),
        "random_unwrap": (_write_nothing, _read_unwrap),
        "dim_as_value": (_write_size, _read_size),
    }
)
