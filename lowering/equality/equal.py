"""Whether two programs are equal: the one function for it."""

from __future__ import annotations

from typing import Any

from codelet.errors import ProgramError
from codelet.schema import SIZE, accepts, one_of
from lowering.equality.answer import Equality
from lowering.equality.compare import compared
from lowering.equality.sides import sides_of


@accepts(ProgramError, casts=one_of("identity", "exact"), seed=SIZE)
def equal(f: Any, g: Any, *examples: Any, casts: str = "identity", seed: int = 0) -> Equality:
    """Decide if two programs compute the same, for any floating-point inputs.

    Args:
        f: a JAX function, a lowered graph, a traced function, or `(graph, program)`, which maps a dict of arrays by the
            names of variables to such a dict.
        g: the other, with results of the same structure, shapes and dtypes.
        examples: the arguments of both: arrays, or `jax.ShapeDtypeStruct`, in any pytrees. Floating-point values are
            replaced by random ones. Others are used as given, or random if only their type is given.
        casts: "identity": a conversion between floats of different precision changes nothing. "exact": a conversion
            that loses digits is an unknown function.
        seed: of the random numbers.

    Returns:
        A `cl.Equality`: the verdict, with the probability that it is wrong, a witness or a reason.

    Raises:
        ProgramError: programs that raise, have effects, or return other structures, shapes or dtypes.

    >>> import jax.numpy as jnp
    >>> import codelet as cl
    >>> x = jnp.ones((8, 3))
    >>> cl.equal(lambda x: (x @ x.T).sum(), lambda x: (x.sum(0) ** 2).sum(), x).verdict
    'equal'
    >>> print(cl.equal(lambda x: x * 2, lambda x: x.at[3, 1].set(x[3, 2]) * 2, x).witness.element)
    (3, 1)
    """
    return compared(*sides_of(f, g, examples), examples, casts=casts, seed=seed)
