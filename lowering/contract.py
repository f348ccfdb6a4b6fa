"""Contract: sums of dot products become one product with longer rows.

Vertices that multiply chunks, and vertices that add the chunks' results up, emit as

    reduce_sum over a batch dimension of (dot_general with that batch dimension)

possibly with transposes between. That is one `dot_general` that contracts the batch dimension as well,
and XLA runs it as one matrix product. Calls of jitted functions are inlined, since they would hide the
pattern, and equations that nothing needs are dropped.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax import lax
from jax.extend import core as jax_core

from lowering.views import reshape, transpose

Atom = Any  # a jaxpr's Var or Literal

_DEBUG_INFO = jax_core.DebugInfo("lowering", "one equation", None, None)

_CALLS = ("jit", "pjit", "closed_call", "core_call")


def bind(eqn: jax_core.JaxprEqn, inputs: Sequence[Any]) -> list[Any]:
    """Run an equation with its own parameters, so that custom derivative rules are kept.

    As a jaxpr of one equation, which is how JAX's public interface lets an equation be run.
    """
    variables, operands = [], []
    for atom, operand in zip(eqn.invars, inputs, strict=True):
        if not isinstance(atom, jax_core.Literal) and not any(atom is v for v in variables):
            variables.append(atom)
            operands.append(operand)
    kept = [var for var in eqn.outvars if not isinstance(var, jax_core.DropVar)]
    jaxpr = jax_core.Jaxpr((), variables, kept, [eqn], eqn.effects, debug_info=_DEBUG_INFO)
    results = iter(jax_core.jaxpr_as_fun(jax_core.ClosedJaxpr(jaxpr, ()))(*operands))
    return [None if isinstance(var, jax_core.DropVar) else next(results) for var in eqn.outvars]


# --- inlining -----------------------------------------------------------------------------------------


def _evaluate_inlined(jaxpr: jax_core.Jaxpr, consts: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    values: dict[Any, Any] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *inputs], strict=True))
    value = lambda atom: atom.val if isinstance(atom, jax_core.Literal) else values[atom]  # noqa: E731
    for eqn in jaxpr.eqns:
        operands = [value(atom) for atom in eqn.invars]
        if eqn.primitive.name in _CALLS:
            inner = eqn.params["jaxpr"]
            results = _evaluate_inlined(inner.jaxpr, inner.consts, operands)
        else:
            results = bind(eqn, operands)
        values.update(zip(eqn.outvars, results, strict=True))
    return [value(atom) for atom in jaxpr.outvars]


def retrace(function: Callable[..., list[Any]], like: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A function traced for the inputs of a jaxpr."""
    structs = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype, weak_type=v.aval.weak_type) for v in like.jaxpr.invars]
    return jax.make_jaxpr(function)(*structs)


def inline(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr without calls of jitted functions."""
    return retrace(lambda *inputs: _evaluate_inlined(closed.jaxpr, closed.consts, inputs), closed)


# --- the rule -----------------------------------------------------------------------------------------


class _SummedDot(NamedTuple):
    """A sum over batch dimensions of a dot, seen through transposes: `order` is the transposes as one."""

    dot: jax_core.JaxprEqn
    summed: tuple[int, ...]
    order: tuple[int, ...]


def _find_summed_dot(eqn: jax_core.JaxprEqn, makers: dict[Any, Any], uses: Counter[Any]) -> _SummedDot | None:
    """Whether a `reduce_sum` is a sum over batch dimensions of a dot that nothing else uses."""
    atom: Atom = eqn.invars[0]
    order = tuple(range(atom.aval.ndim))
    while not isinstance(atom, jax_core.Literal) and uses[atom] == 1 and (maker := makers.get(atom)) is not None:
        if maker.primitive.name == "transpose":
            permutation = maker.params["permutation"]
            order = tuple(permutation[d] for d in order)
            atom = maker.invars[0]
            continue
        if maker.primitive.name == "dot_general":
            (_, _), (left_batch, _) = maker.params["dimension_numbers"]
            summed = tuple(order[axis] for axis in eqn.params["axes"])
            return _SummedDot(maker, summed, order) if all(d < len(left_batch) for d in summed) else None
        return None
    return None


def _merge_contracted(array: Any, dims: Sequence[int]) -> Any:
    """Neighbouring dimensions `dims` as one."""
    shape = array.shape
    merged = 1
    for d in dims:
        merged *= shape[d]
    return reshape(array, (*shape[: dims[0]], merged, *shape[dims[-1] + 1 :]))


def _contracted_dot(found: _SummedDot, left: Any, right: Any) -> Any:
    """The dot with its summed batch dimensions contracted, in memory order, neighbouring ones merged."""
    (left_inner, right_inner), (left_batch, right_batch) = found.dot.params["dimension_numbers"]
    pairs = sorted(
        [
            *zip(left_inner, right_inner, strict=True),
            *((left_batch[d], right_batch[d]) for d in found.summed),
        ]
    )
    kept = [d for d in range(len(left_batch)) if d not in found.summed]
    batch = [(left_batch[d], right_batch[d]) for d in kept]
    left_dims, right_dims = [a for a, _ in pairs], [b for _, b in pairs]
    runs = lambda dims: all(b == a + 1 for a, b in itertools.pairwise(dims))  # noqa: E731
    if len(pairs) > 1 and runs(left_dims) and runs(right_dims):
        gone = len(pairs) - 1
        left, right = _merge_contracted(left, left_dims), _merge_contracted(right, right_dims)
        batch = [(a - gone * (a > left_dims[0]), b - gone * (b > right_dims[0])) for a, b in batch]
        left_dims, right_dims = left_dims[:1], right_dims[:1]
    parameters = dict(found.dot.params)
    parameters["dimension_numbers"] = (
        (tuple(left_dims), tuple(right_dims)),
        tuple(zip(*batch, strict=True)) or ((), ()),
    )
    return lax.dot_general(left, right, **_public(parameters))


def _public(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a dot equation that `lax.dot_general` takes."""
    return {name: parameters[name] for name in ("dimension_numbers", "precision", "preferred_element_type")}


def _summed_order(found: _SummedDot) -> list[int]:
    """Where the kept dimensions of the contracted dot go, for the result to be laid out as the sum's was."""
    kept = [d for d in range(len(found.order)) if d not in found.summed]
    return [kept.index(d) for d in found.order if d not in found.summed]


# --- evaluation on demand -----------------------------------------------------------------------------


class _Contractor:
    """Evaluates a jaxpr from its results backwards, so that what nobody needs is never run."""

    def __init__(self, closed: jax_core.ClosedJaxpr, inputs: Sequence[Any]):
        jaxpr = closed.jaxpr
        self.jaxpr = jaxpr
        self.values: dict[Any, Any] = dict(
            zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, *inputs], strict=True)
        )
        self.makers = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
        self.uses = Counter(
            atom
            for atoms in (*(eqn.invars for eqn in jaxpr.eqns), jaxpr.outvars)
            for atom in atoms
            if not isinstance(atom, jax_core.Literal)
        )
        self.contractions = {
            eqn: found
            for eqn in jaxpr.eqns
            if eqn.primitive.name == "reduce_sum"
            and (found := _find_summed_dot(eqn, self.makers, self.uses)) is not None
        }

    def needed(self) -> list[jax_core.JaxprEqn]:
        """The equations to run, in order: those with effects, and those that results depend on."""
        wanted = {atom for atom in self.jaxpr.outvars if not isinstance(atom, jax_core.Literal)}
        found = []
        for eqn in reversed(self.jaxpr.eqns):
            if eqn.effects or any(var in wanted for var in eqn.outvars):
                found.append(eqn)
                source = self.contractions[eqn].dot if eqn in self.contractions else eqn
                wanted.update(atom for atom in source.invars if not isinstance(atom, jax_core.Literal))
        return found[::-1]

    def value(self, atom: Atom) -> Any:
        return atom.val if isinstance(atom, jax_core.Literal) else self.values[atom]

    def run(self) -> list[Any]:
        for eqn in self.needed():
            if eqn in self.contractions:
                found = self.contractions[eqn]
                dot = _contracted_dot(found, *map(self.value, found.dot.invars))
                results = [transpose(dot, _summed_order(found))]
            elif eqn.primitive.name == "scan":
                body = contract(eqn.params["jaxpr"])
                results = eqn.primitive.bind(*map(self.value, eqn.invars), **{**eqn.params, "jaxpr": body})
            else:
                results = bind(eqn, [self.value(atom) for atom in eqn.invars])
            self.values.update(zip(eqn.outvars, results, strict=True))
        return [self.value(atom) for atom in self.jaxpr.outvars]


def contract(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr with sums of dots contracted, in the bodies of loops as well."""
    closed = inline(closed)
    return retrace(lambda *inputs: _Contractor(closed, inputs).run(), closed)
