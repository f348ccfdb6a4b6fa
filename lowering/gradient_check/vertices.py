"""Vertices checked: the adjoint of a codelet beside differences of what the codelet computes.

In come fields of vertices. Each of the fields by which there is a gradient is moved along a direction of its own, and
what it makes of all results is weighed by numbers drawn once: so a field that is wrong is told by itself. All is
computed in float64, unless the codelet itself makes narrower numbers of these.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet.jaxprs.equations import inner_jaxprs, variables
from codelet.tracing.adjoints import AdjointCodelet, adjoint_of
from codelet.tracing.field_types import FieldType
from codelet.tracing.statics import Settings, restored
from codelet.tracing.traced_codelet import TracedCodelet
from lowering.gradient_check.differences import Steps, Verdict, judge, steps_for, tolerance

ROUNDING = 16
"""How many roundings of its size a value is supposed to be off by."""

_DEBUG_INFO = jax_core.DebugInfo("codelet", "checked", None, None)


def real(value: Any) -> Any:
    """The real part, of complex numbers too."""
    return jnp.real(value) if jnp.iscomplexobj(value) else value


def wide(dtype: Any) -> np.dtype:
    """The dtype of 64 bits for one of floats; any other as it is."""
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return np.dtype(np.complex128)
    return np.dtype(np.float64) if jnp.issubdtype(dtype, jnp.floating) else np.dtype(dtype)


def precision(dtypes: Sequence[Any]) -> float:
    """The relative precision of the narrowest of some dtypes of floats."""
    return max((float(jnp.finfo(own).eps) for own in dtypes if jnp.issubdtype(own, jnp.inexact)), default=2.0**-52)


def _equations(jaxpr: jax_core.Jaxpr) -> list[jax_core.JaxprEqn]:
    return [one for eqn in jaxpr.eqns for one in (eqn, *(e for own in inner_jaxprs(eqn) for e in _equations(own)))]


def _narrows(traced: TracedCodelet) -> bool:
    """Whether a codelet of 64 bits makes narrower floats of these."""
    for eqn in _equations(traced.jaxpr.jaxpr):
        read, made = ([getattr(var.aval, "dtype", bool) for var in own] for own in (variables(eqn.invars), eqn.outvars))
        if precision(read) < 1e-12 < precision(made) and any(jnp.issubdtype(own, jnp.inexact) for own in read):
            return True
    return False


def rules_in(traced: TracedCodelet) -> tuple[str, ...]:
    """The derivative rules of a user's or a library's that a codelet has: `custom_vjp`, `custom_jvp`."""
    names = {eqn.primitive.name for eqn in _equations(traced.jaxpr.jaxpr)}
    return tuple(rule for rule in ("custom_vjp", "custom_jvp") if any(name.startswith(rule) for name in names))


class _Measured(NamedTuple):
    """What was computed for vertices, each moved along one direction.

    Attributes:
        values: the weighed sum of all results, at every place of the steps.
        sizes: the sum of the sizes of what that is a sum of.
        slope: the slope by the adjoint.
        spread: the size of what that is a sum of.
        moved: the size of the change that rounding all inputs makes, over the precision.
        tangent: the slope by `jax.jvp`.
    """

    values: np.ndarray
    sizes: np.ndarray
    slope: np.ndarray
    spread: np.ndarray
    moved: np.ndarray
    tangent: np.ndarray


@dataclass(frozen=True, eq=False)
class Checker:
    """A codelet, for fields of some types, whose gradients are checked.

    Attributes:
        traced: the codelet, of floats of 64 bits where it can be.
        adjoint: its adjoint; None where no gradient goes through it.
        settings: what JAX is set to.
        wrt: the fields by which there are gradients.
        of: the results that they are of.
        eps: the precision in which it is computed.
        has_forward: whether `jax.jvp` goes through it.
    """

    traced: TracedCodelet
    adjoint: AdjointCodelet | None
    settings: Settings
    wrt: tuple[str, ...]
    of: tuple[str, ...]
    eps: float
    has_forward: bool

    @property
    def steps(self) -> Steps:
        """The steps by which fields are moved."""
        return steps_for(self.eps)

    def forward(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The results. What the codelet prints, it prints where vertices run, not here."""
        jaxpr = self.traced.jaxpr.jaxpr
        dropped = lambda eqn: all(isinstance(var, jax_core.DropVar) for var in eqn.outvars)  # noqa: E731
        eqns = [eqn for eqn in jaxpr.eqns if not dropped(eqn)]
        effects = set().union(*(eqn.effects for eqn in eqns))
        silent = jax_core.Jaxpr(
            jaxpr.constvars, jaxpr.invars, jaxpr.outvars, eqns, effects or jax_core.no_effects, debug_info=_DEBUG_INFO
        )
        run = jax_core.jaxpr_as_fun(jax_core.ClosedJaxpr(silent, self.traced.jaxpr.consts))
        return dict(zip(self.traced.outputs, run(*(values[name] for name in self.traced.inputs)), strict=True))

    def weighed(self, weights: Mapping[str, Any], results: Mapping[str, Any]) -> tuple[Any, Any]:
        """The weighed sum of the results, and the sum of the sizes of its terms."""
        terms = [weights[name] * results[name] for name in self.of]
        return sum(jnp.sum(real(own)) for own in terms), sum(jnp.sum(jnp.abs(own)) for own in terms)

    def contributions(self, values: Mapping[str, Any], weights: Mapping[str, Any]) -> dict[str, Any]:
        """The gradient with respect to each field."""
        made = {name: jnp.zeros_like(values[name]) for name in self.wrt}
        if self.adjoint is not None:
            names, results = self.adjoint.fields, self.forward(values)
            given = {own: values[name] for name, own in names.inputs.items()}
            given |= {own: results[name] for name, own in names.results.items()}
            given |= {own: weights[name] for name, own in names.cotangents.items()}
            found = self.adjoint.function(**given)
            made |= {name: found[own] for name, own in names.contributions.items()}
        return made

    def measure(self, values: Any, directions: Any, weights: Any) -> Any:
        """What is computed of one vertex and one direction."""

        def moved(t: Any) -> dict[str, Any]:
            return {**values, **{n: values[n] + t.astype(own.dtype) * own for n, own in directions.items()}}

        weighed = lambda t: self.weighed(weights, self.forward(moved(t)))  # noqa: E731
        places = jnp.asarray(self.steps.places, jnp.zeros((), self.real_dtype).dtype)
        sums, sizes = jax.lax.map(weighed, places)
        slopes = self.contributions(values, weights)
        terms = [slopes[name] * directions[name] for name in self.wrt]
        slope = sum(jnp.sum(real(own)) for own in terms)
        spread = jnp.sqrt(sum(jnp.sum(jnp.abs(own) ** 2) for own in terms))
        rounded = sum(jnp.sum(jnp.abs(slopes[name] * values[name])) for name in self.wrt)
        tangent = jnp.full_like(slope, jnp.nan)
        if self.has_forward:
            smooth = {name: values[name] for name in self.wrt}
            _, tangents = jax.jvp(lambda own: self.forward({**values, **own}), (smooth,), (directions,))
            tangent = self.weighed(weights, tangents)[0]
        return sums, sizes[0], slope, spread, rounded, tangent

    @functools.cached_property
    def _run(self) -> Callable[..., Any]:
        return jax.jit(jax.vmap(self.measure))

    @property
    def real_dtype(self) -> np.dtype:
        """The dtype of real numbers of its precision."""
        return np.dtype(np.float64) if self.eps < 1e-12 else np.dtype(np.float32)

    def run(self, values: Any, directions: Any, weights: Any) -> _Measured:
        """What is computed of vertices, one after another along the first axis of all arrays."""
        with restored(self.settings):
            return _Measured(*(np.asarray(own, np.float64) for own in self._run(values, directions, weights)))

    def verdicts(self, values: Any, directions: Any, weights: Any, rtol: float | None) -> list[Verdict]:
        """What differences say of the slope of each vertex along its direction."""
        found, rtol = self.run(values, directions, weights), rtol or tolerance(self.eps)
        verdicts = []
        for sums, size, slope, spread, moved, tangent in zip(*found, strict=True):
            noise = ROUNDING * self.eps * (float(size) + float(moved) if np.isfinite(moved) else float(size))
            verdict = judge(self.steps, sums, float(slope), spread=float(spread), noise=noise, rtol=rtol)
            if verdict.kind == "right" and np.isfinite(tangent):
                off, scale = abs(tangent - slope), max(abs(tangent), spread)
                if off > rtol * scale + 64 * noise:
                    verdict = verdict._replace(kind="wrong", difference=float(tangent), error=float(off / scale))
            verdicts.append(verdict)
        return verdicts


def _has_forward(traced: TracedCodelet, wrt: Sequence[str]) -> bool:
    """Whether `jax.jvp` goes through a codelet."""
    if "custom_vjp" in rules_in(traced):
        return False
    structs = {name: kind.struct() for name, kind in traced.inputs.items()}

    def tangents(values: Mapping[str, Any]) -> Any:
        run = lambda own: traced.call(*({**values, **own}[name] for name in traced.inputs))  # noqa: E731
        smooth = {name: values[name] for name in wrt}
        return jax.jvp(run, (smooth,), (smooth,))[1]

    try:
        jax.eval_shape(tangents, structs)
    except (TypeError, NotImplementedError):
        return False
    return True


def checker_of(family_codelet: TracedCodelet, types: Mapping[str, FieldType], wrt: Any, of: Any) -> Checker:
    """What checks a codelet for fields of some types.

    Args:
        family_codelet: the codelet, as vertices run it.
        types: of its inputs, lengths known.
        wrt: the fields by which there are gradients.
        of: the results that they are of.
    """
    own, static = family_codelet.codelet, family_codelet.static
    settings = (True, *family_codelet.settings[1:])
    with restored(settings):
        try:
            traced = own.specialise(
                {name: kind._replace(dtype=wide(kind.dtype)) for name, kind in types.items()}, static
            )
            is_wide = not _narrows(traced)
            if is_wide:
                return _checker(traced, settings, wrt, of, 2.0**-52)
        except Exception:  # it is for its own types alone, as a jaxpr is
            pass
    with restored(family_codelet.settings):
        traced = own.specialise(types, static)
        dtypes = [kind.dtype for kind in (*traced.inputs.values(), *traced.outputs.values())]
        return _checker(traced, family_codelet.settings, wrt, of, precision(dtypes))


def _checker(traced: TracedCodelet, settings: Settings, wrt: Any, of: Any, eps: float) -> Checker:
    adjoint = adjoint_of(traced, wrt, of)
    return Checker(traced, adjoint, settings, tuple(wrt), tuple(of), eps, _has_forward(traced, wrt))
