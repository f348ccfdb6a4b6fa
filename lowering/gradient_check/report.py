"""Reports: the result of a check of gradients, as a table that prints and shows in notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codelet.display import as_html, as_table
from codelet.errors import Line
from codelet.graphs.family import counted
from codelet.graphs.vertices import Vertex
from lowering.gradient_check.differences import Kind, Verdict

_SHOWN = 8
"""How many findings are printed."""

_HEADS = ("compute set", "codelet", "checked", "in", "greatest error", "kinks", "unstable", "wrong", "notes")


def number(value: float) -> str:
    """A number to the digits that tell two apart which differ by a part in a million."""
    return f"{value:.8g}"


@dataclass(frozen=True, eq=False, repr=False)
class Finding:
    """A wrong gradient, or one that differences do not confirm.

    Attributes:
        vertex: the vertex; `None` for the gradient of the whole program.
        field: the field, or the tensor, that it is with respect to.
        quantity: the derivative, `d out[1] / d x[2]`.
        verdict: both numbers, and the one-sided differences.
        line: the user's line that added the vertex, or called the function; `None` for the whole program.
    """

    vertex: Vertex | None
    field: str
    quantity: str
    verdict: Verdict
    line: Line | None = None

    @property
    def kind(self) -> Kind:
        """Wrong, or why that is undecided."""
        return self.verdict.kind

    def __repr__(self) -> str:
        return f"<Finding {self}>"

    def __str__(self) -> str:
        where, found = "the whole program" if self.vertex is None else repr(self.vertex), self.verdict
        told = f"{self.quantity} is {number(found.slope)} by the gradient"
        if self.kind == "wrong":
            return f"wrong: {where}: {told}, {number(found.difference)} by differences"
        if self.kind == "kink":
            sides = f"{number(found.left)} from the left, {number(found.right)} from the right"
            return f"kink: {where}: {told}, {sides}"
        return f"unstable: {where}: {told}, differences do not converge"


@dataclass(frozen=True, eq=False)
class Checked:
    """The checks of the vertices of one compute set and codelet, or of the whole program.

    Attributes:
        compute_set: its name; "the whole program".
        codelet: its name.
        count: how many vertices were checked; for the whole program, along how many directions.
        total: how many vertices there are.
        dtype: the dtype of the computation.
        verdicts: one for each vertex and field, or each direction.
        notes: remarks, such as that values are of the first iteration of a loop, or that it never ran.
    """

    compute_set: str
    codelet: str
    count: int
    total: int
    dtype: str
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...] = ()

    def num(self, kind: Kind) -> int:
        """The number of its verdicts of a kind."""
        return sum(own.kind == kind for own in self.verdicts)

    @property
    def greatest_error(self) -> float:
        """The largest difference between a gradient and the finite differences, relative to its size."""
        return max((own.error for own in self.verdicts if own.kind in ("right", "wrong")), default=0.0)

    @property
    def row(self) -> tuple[object, ...]:
        """A row of the report."""
        noun = "directions" if self.total == 0 else f"of {self.total:,}"
        return (
            self.compute_set,
            self.codelet,
            f"{self.count:,} {noun}",
            self.dtype,
            f"{self.greatest_error:.1e}" if self.verdicts else "",
            self.num("kink"),
            self.num("unstable"),
            self.num("wrong"),
            "; ".join(self.notes),
        )


@dataclass(frozen=True, eq=False)
class GradientCheck:
    """The result of `cl.check_gradient`. It prints, and notebooks show a table.

    Attributes:
        title: the gradient, and its tensor.
        checked: one entry for each compute set and codelet in the backward pass, then the whole program.
        findings: wrong gradients; then kinks, and gradients whose differences do not converge.

    >>> import codelet as cl
    >>> graph = cl.Graph()
    >>> x, y = graph.add_variable("x", ()), graph.add_variable("y", ())
    >>> graph.add_vertex("square", cl.codelet(lambda x: x * x), x=x, out=y)
    >>> found = cl.check_gradient(graph, of=y, wrt=x, values={x: 3.0})
    >>> found, found.wrong, found.kinks, found.unstable
    (<GradientCheck: gradient of y with respect to x: right>, (), (), ())
    """

    title: str
    checked: tuple[Checked, ...]
    findings: tuple[Finding, ...]

    @property
    def wrong(self) -> tuple[Finding, ...]:
        """The findings of wrong gradients.

        >>> import codelet as cl, jax
        >>> @jax.custom_jvp
        ... def square(x):
        ...     return x * x
        >>> @square.defjvp
        ... def _(x, dx):
        ...     return square(*x), x[0] * dx[0]
        >>> graph = cl.Graph()
        >>> x, y = graph.add_variable("x", ()), graph.add_variable("y", ())
        >>> graph.add_vertex("square", cl.codelet(square), x=x, out=y)
        >>> try:
        ...     cl.check_gradient(graph, of=y, wrt=x, values={x: 3.0})
        ... except cl.GradientError as error:
        ...     print(error.check.wrong[0])
        wrong: vertex of square / square at number 0: d out / d x is 3 by the gradient, 6 by differences
        """
        return tuple(own for own in self.findings if own.kind == "wrong")

    @property
    def kinks(self) -> tuple[Finding, ...]:
        """The findings where derivatives from the left and the right differ, as of relu at 0; at most a few of each
        field.

        >>> import codelet as cl, jax
        >>> graph = cl.Graph()
        >>> x, y = graph.add_variable("x", ()), graph.add_variable("y", ())
        >>> graph.add_vertex("act", cl.codelet(jax.nn.relu), x=x, out=y)
        >>> print(cl.check_gradient(graph, of=y, wrt=x, values={x: 0.0}).kinks[0])
        kink: vertex of act / relu at number 0: d out / d x is 0 by the gradient, 0 from the left, 1 from the right
        """
        return tuple(own for own in self.findings if own.kind == "kink")

    @property
    def unstable(self) -> tuple[Finding, ...]:
        """The findings where differences do not converge; at most a few of each field.

        >>> import codelet as cl, jax.numpy as jnp
        >>> graph = cl.Graph()
        >>> x, y = graph.add_variable("x", ()), graph.add_variable("y", ())
        >>> graph.add_vertex("root", cl.codelet(lambda x: jnp.sign(x) * jnp.sqrt(jnp.abs(x))), x=x, out=y)
        >>> finding = cl.check_gradient(graph, of=y, wrt=x, values={x: 0.0}).unstable[0]
        >>> finding.field, finding.kind
        ('x', 'unstable')
        """
        return tuple(own for own in self.findings if own.kind == "unstable")

    @property
    def _heading(self) -> str:
        is_seen = not self.unstable or any(own.num("right") for own in self.checked)
        return f"{self.title}: {'wrong' if self.wrong else 'right' if is_seen else 'not to be told'}"

    def __str__(self) -> str:
        rows = [[str(own) for own in row] for row in (_HEADS, *(own.row for own in self.checked))]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(own.ljust(n) for own, n in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([self._heading, *lines, *_few(self.findings)])

    def __repr__(self) -> str:
        return f"<GradientCheck: {self._heading}>"

    def _repr_html_(self) -> str:
        heading = counted(len(self.findings), "finding", "findings")
        folded = {heading: "\n".join(map(str, self.findings))} if self.findings else {}
        return as_html(self._heading, as_table(_HEADS, [own.row for own in self.checked]), folded)


def _few(findings: Sequence[Finding]) -> list[str]:
    more = [f"and {len(findings) - _SHOWN:,} more in `.findings`"] if len(findings) > _SHOWN else []
    return [str(own) for own in findings[:_SHOWN]] + more
