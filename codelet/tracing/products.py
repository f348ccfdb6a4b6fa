"""Products: the vector-Jacobian product of a codelet as a jaxpr, and the part of it that each contribution needs.

In come a codelet and the types of its fields. Out comes the jaxpr of JAX's product, and which of its values are results
of the codelet. So whoever takes a part of it may read a result where it was made before.

JAX's derivative rules may compute results in another way than the codelet. That of Cholesky's factor zeroes the part
above the diagonal, where the primitive itself leaves anything, and so may a `custom_jvp`. So a value is a result only
where it is computed in the same way as the codelet computes it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from jax.extend import core as jax_core

from codelet.jaxprs.batchable import batchable
from codelet.jaxprs.equations import Atomic, variables
from codelet.jaxprs.rebuild import inline
from codelet.jaxprs.winners import with_steady_winners
from codelet.tracing.alike import computed_alike
from codelet.tracing.codelets import Codelet
from codelet.tracing.field_types import FieldType
from codelet.tracing.returned import returned_fields

_DEBUG_INFO = jax_core.DebugInfo("codelet", "adjoint", None, None)


class Needs(NamedTuple):
    """The needs of some values of a jaxpr: equations, and the inputs that are used."""

    eqns: tuple[jax_core.JaxprEqn, ...]
    used: frozenset[Any]


def _needs(jaxpr: jax_core.Jaxpr, wanted: Sequence[Atomic], given: Collection[Any]) -> Needs:
    """The needs of values of a jaxpr where its inputs and some more values are given."""
    waiting, known = set(variables(wanted)), {*jaxpr.invars, *given}
    eqns = []
    for eqn in reversed(jaxpr.eqns):
        if waiting.isdisjoint(set(eqn.outvars).difference(given)):
            continue
        waiting.update(variables(eqn.invars))
        # What is given is not made, though the equation makes something else.
        made = [jax_core.Var(var.aval) if var in given else var for var in eqn.outvars]
        eqns.append(eqn.replace(outvars=made))
    return Needs(tuple(eqns[::-1]), frozenset(waiting & known))


def _reached(jaxpr: jax_core.Jaxpr, given: Collection[Any]) -> set[Any]:
    """The values of a jaxpr that depend on some of its inputs."""
    found = set(given)
    for eqn in jaxpr.eqns:
        if not found.isdisjoint(variables(eqn.invars)):
            found.update(eqn.outvars)
    return found


class Product(NamedTuple):
    """The vector-Jacobian product of a codelet for some types.

    Attributes:
        jaxpr: from the fields and the cotangents to the contributions.
        consts: its constants.
        fields: the variable of each input.
        cotangents: the variable of the cotangent of each result, of those that are given.
        contributions: the cotangent of each input, of those asked for.
        results: the value that each result is, of those that equations make.
    """

    jaxpr: jax_core.Jaxpr
    consts: Sequence[Any]
    fields: Mapping[str, Any]
    cotangents: Mapping[str, Any]
    contributions: Mapping[str, Atomic]
    results: Mapping[str, Any]

    @property
    def reached(self) -> tuple[str, ...]:
        """The inputs whose contribution depends on a cotangent at all."""
        found = _reached(self.jaxpr, self.cotangents.values())
        own = self.contributions.items()
        return tuple(name for name, atom in own if not isinstance(atom, jax_core.Literal) and atom in found)

    @property
    def readable(self) -> tuple[str, ...]:
        """The results that may be read rather than made again, each once."""
        found: dict[Any, str] = {}
        for name, var in self.results.items():
            found.setdefault(var, name)
        return tuple(found.values())

    def needs(self, wanted: Sequence[str], results: Collection[str] = ()) -> Needs:
        """The needs of the contributions for some inputs, where some results are read."""
        own = [self.contributions[name] for name in wanted]
        return _needs(self.jaxpr, own, {self.results[name] for name in results})

    def closed(
        self, inputs: Sequence[str], results: Sequence[str], cotangents: Sequence[str], wanted: Sequence[str]
    ) -> jax_core.ClosedJaxpr:
        """From some inputs, results and cotangents to the contributions for some inputs."""
        eqns, _ = self.needs(wanted, results)
        invars = [self.fields[name] for name in inputs]
        invars += [self.results[name] for name in results]
        invars += [self.cotangents[name] for name in cotangents]
        outvars = [self.contributions[name] for name in wanted]
        read = set(variables([*outvars, *(atom for eqn in eqns for atom in eqn.invars)]))
        held = [(var, own) for var, own in zip(self.jaxpr.constvars, self.consts, strict=True) if var in read]
        jaxpr = jax_core.Jaxpr([var for var, _ in held], invars, outvars, list(eqns), debug_info=_DEBUG_INFO)
        return jax_core.ClosedJaxpr(jaxpr, [own for _, own in held])


def product_of(
    codelet: Codelet,
    types: Mapping[str, FieldType],
    static: Mapping[str, Hashable],
    wrt: Sequence[str],
    of: Sequence[str],
) -> Product:
    """The vector-Jacobian product of a codelet.

    Args:
        codelet: whose.
        types: of all its inputs, in order; lengths may be JAX's symbols of one trace.
        static: all its static values.
        wrt: the inputs that contributions are asked for.
        of: the results whose cotangents are given; those of others are zero.
    """
    structs = {name: kind.struct() for name, kind in types.items()}

    def as_written(*fields: Any) -> dict[str, Any]:
        return returned_fields(codelet.name, codelet.function_now(*fields, **static), codelet.static)

    traced, kinds = jax.make_jaxpr(as_written, return_shape=True)(*structs.values())
    plain = batchable(traced)
    steady = with_steady_winners(plain, once=True)

    def rewritten(*fields: Any) -> dict[str, Any]:
        return jax.tree.unflatten(jax.tree.structure(kinds), jax_core.jaxpr_as_fun(steady)(*fields))

    forward = as_written if steady is traced else rewritten

    def product(fields: Sequence[Any], cotangents: Sequence[Any]) -> Sequence[Any]:
        given = dict(zip(types, fields, strict=True))

        def smooth(*own: Any) -> list[Any]:
            results = forward(*{**given, **dict(zip(wrt, own, strict=True))}.values())
            return [results[name] for name in of]

        _, back = jax.vjp(smooth, *(given[name] for name in wrt))
        return back([*cotangents])

    closed = inline(jax.make_jaxpr(product)([*structs.values()], [kinds[name] for name in of]))
    # What is printed was printed when the vertex itself ran.
    silent = [eqn for eqn in closed.jaxpr.eqns if any(not isinstance(var, jax_core.DropVar) for var in eqn.outvars)]
    # The order of a dict in a jaxpr is that of its names. With lengths that are not known nobody reads results.
    ragged = any(kind.is_ragged for kind in types.values())
    same = dict(zip(sorted(kinds), [{} for _ in kinds] if ragged else computed_alike(plain, closed), strict=True))
    results = {name: next(iter(same[name])) for name in kinds if same[name]}
    first = {var: results[name] for name in results for var in same[name]}
    at = lambda atom: atom if isinstance(atom, jax_core.Literal) else first.get(atom, atom)  # noqa: E731
    eqns = [eqn.replace(invars=list(map(at, eqn.invars))) for eqn in silent]
    variables_of = closed.jaxpr.constvars, closed.jaxpr.invars, list(map(at, closed.jaxpr.outvars))
    # Of a jaxpr without values for its constants, newer releases of JAX take these for inputs.
    closed = jax_core.ClosedJaxpr(jax_core.Jaxpr(*variables_of, eqns, debug_info=_DEBUG_INFO), closed.consts)
    jaxpr, inputs = closed.jaxpr, len(types)
    return Product(
        jaxpr,
        closed.consts,
        dict(zip(types, jaxpr.invars[:inputs], strict=True)),
        dict(zip(of, jaxpr.invars[inputs:], strict=True)),
        dict(zip(wrt, jaxpr.outvars, strict=True)),
        results,
    )
