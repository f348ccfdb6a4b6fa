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
    """Whether two programs compute the same, for whatever floats they are given.

    Args:
        f: a function of JAX, a lowered graph, a traced function, or a graph with a program, `(graph, program)`, by its
            meaning: of a dict of arrays by the names of variables, to such a dict.
        g: another, whose results have the same structure, shapes and dtypes.
        examples: what both are given: arrays, or `jax.ShapeDtypeStruct`, in any structure. Of floats the values do not
            matter; all else is taken as it is, and drawn where only its type is given.
        casts: "identity", if a conversion between floats of different precision changes nothing; "exact", if it is a
            function of which nothing is known where it loses digits.
        seed: of what is drawn.

    Returns:
        The verdict, with the chance that it is wrong, a witness or a reason.

    Raises:
        ProgramError: programs that raise, have effects, or give other structures, shapes or dtypes.

    >>> import jax.numpy as jnp
    >>> import codelet as cl
    >>> x = jnp.ones((8, 3))
    >>> cl.equal(lambda x: (x @ x.T).sum(), lambda x: (x.sum(0) ** 2).sum(), x).verdict
    'equal'
    >>> print(cl.equal(lambda x: x * 2, lambda x: x.at[3, 1].set(x[3, 2]) * 2, x).witness.element)
    (3, 1)
    """
    return compared(*sides_of(f, g, examples), examples, casts=casts, seed=seed)
