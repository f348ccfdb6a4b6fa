"""Same jaxprs: what a pass on jaxprs makes of a function gives the same, bit for bit, and has the same slopes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet.jaxprs.equations import inner_jaxprs
from codelet.jaxprs.rebuild import inline

Pass = Callable[[jax_core.ClosedJaxpr], jax_core.ClosedJaxpr]


def equations(jaxpr: Any) -> Iterator[Any]:
    """The equations of a jaxpr, those in loops and calls too."""
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield eqn
        for inner in inner_jaxprs(eqn):
            yield from equations(inner)


def primitives(jaxpr: Any) -> list[str]:
    """The names of all primitives of a jaxpr, those in loops and calls too."""
    return [eqn.primitive.name for eqn in equations(jaxpr)]


def assert_same(found: Any, expected: Any) -> None:
    """That two lists of arrays are the same."""
    for own, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (own.shape, own.dtype) == (other.shape, other.dtype)
        wide = np.float32 if own.dtype.itemsize == 2 else own.dtype  # of bfloat16 numpy knows no NaN
        np.testing.assert_array_equal(np.asarray(own, wide), np.asarray(other, wide))


def after(rule: Pass, function: Callable[..., Any], *arguments: Any) -> jax_core.ClosedJaxpr:
    """What a pass makes of a function, seen to give the same as that for some arguments, and to be a jaxpr."""
    closed = inline(jax.make_jaxpr(function)(*arguments))
    made = rule(closed)
    assert [var.aval.shape for var in made.jaxpr.outvars] == [var.aval.shape for var in closed.jaxpr.outvars]
    assert_same(*jax.jit(lambda *own: [jax_core.jaxpr_as_fun(each)(*own) for each in (made, closed)])(*arguments))
    return made


def assert_same_slopes(rule: Pass, function: Callable[..., Any], *arguments: Any) -> None:
    """That what a pass makes of a function, and of its gradient, has the same slopes, but for the order of sums."""

    def loss(own: jax_core.ClosedJaxpr) -> Callable[..., Any]:
        made = jax_core.jaxpr_as_fun(own)
        weighted = lambda k, a: jnp.sum(jnp.sin(jnp.asarray(a, np.float32)) * (1 + k))  # noqa: E731
        return lambda *given: sum(weighted(k, own) for k, own in enumerate(made(*given)))

    places = [k for k, own in enumerate(arguments) if jnp.issubdtype(own.dtype, jnp.floating)]
    closed = inline(jax.make_jaxpr(function)(*arguments))
    plain, ruled = (jax.grad(loss(own), places) for own in (closed, rule(closed)))
    of_gradient = rule(inline(jax.make_jaxpr(plain)(*arguments)))
    runs = plain, ruled, jax_core.jaxpr_as_fun(of_gradient)
    expected, *found = jax.jit(lambda *given: [list(run(*given)) for run in runs])(*arguments)
    for several in found:
        for own, other in zip(several, expected, strict=True):
            np.testing.assert_allclose(own.astype(np.float32), other.astype(np.float32), rtol=2e-5, atol=2e-5)
