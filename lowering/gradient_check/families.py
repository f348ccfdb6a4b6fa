"""Families checked: which vertices of a program are looked at, and what of their gradients is found.

In come a plan, what is differentiated and by what, and values. Each family that the gradient goes through is checked at
vertices spread over it, with the values that they have when the program first runs them.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from codelet.graphs.family import Family
from codelet.graphs.vertices import Vertex
from codelet.tracing.adjoints import is_smooth
from codelet.views.sources import Variable, source_variables
from lowering.adjoint.flows import families_of, moves_of, reached, varied_variables
from lowering.gradient_check.differences import Kind, Verdict
from lowering.gradient_check.probes import Seen, Site, look
from lowering.gradient_check.report import Checked, Finding
from lowering.gradient_check.vertices import Checker, checker_of
from lowering.plan.plan import Plan
from lowering.plan.steps import CallStep, ExecuteStep, Step
from lowering.plan.walk import bodies

_ELEMENTS = 1 << 20
"""How many elements the vertices of a family that are looked at have in all; but one vertex is looked at always."""

_LENGTHS = 4
"""How many different lengths of ragged fields are looked at in a family."""

_TOLD = 4
"""How many findings of each kind are told of a field."""

_ONE_BY_ONE = 64
"""How many elements of a field, and of the results, are tried to find one that is wrong by itself."""


@dataclass(frozen=True)
class Options:
    """How a gradient is checked.

    Attributes:
        vertices: how many of a family are looked at, at most.
        seed: of all that is drawn.
        rtol: how far a gradient may be from the differences; None for what the precision allows.
        ignored: the codelets, by name or themselves, that are not looked at.
    """

    vertices: int
    seed: int
    rtol: float | None
    ignored: Collection[object]

    def ignores(self, family: Family) -> bool:
        """Whether the vertices of a family are not looked at."""
        own = family.codelet.codelet
        return any(given == own.name or getattr(given, "frozen", lambda: None)() is own for given in self.ignored)


# --- which vertices -------------------------------------------------------------------------------------


def _useful_variables(plan: Plan, of: Collection[Variable]) -> frozenset[Variable]:
    """The variables on which those of some others may depend, these included."""
    return reached(of, [(written, read) for read, written in moves_of(plan)])


def spread_over(count: int, most: int, random: np.random.Generator) -> list[int]:
    """At most so many numbers below `count`, one drawn in each of equal parts; the first and the last among them."""
    if count <= most:
        return list(range(count))
    ends = np.linspace(1, count - 1, max(most - 2, 0) + 1).astype(int)
    inside = [int(random.integers(a, max(b, a + 1))) for a, b in itertools.pairwise(ends)]
    return sorted({0, *inside, count - 1}) if most > 1 else [int(random.integers(count))]


def _few_lengths(vertices: Sequence[Vertex]) -> list[Vertex]:
    """Those vertices of a ragged family that are of a few lengths: the shortest, the longest, some between."""
    lengths = defaultdict(list)
    for vertex in vertices:
        shapes = tuple(getattr(own, "shape", ()) for own in vertex.fields.values())
        lengths[shapes].append(vertex)
    keys = sorted(lengths)
    kept = {keys[k] for k in np.linspace(0, len(keys) - 1, min(len(keys), _LENGTHS)).astype(int)}
    return [vertex for key in keys if key in kept for vertex in lengths[key]]


def _site(
    family: Family, varied: Collection[Variable], useful: Collection[Variable], options: Options, **line: Any
) -> Site | None:
    """What of a family is looked at; None where no gradient goes through it."""
    touches = lambda field, which: any(own in which for own in source_variables(field.tensor.source))  # noqa: E731
    smooth = [own for own in family.fields if own.tensor is not None and own.tensor.size and is_smooth(own.type)]
    wrt = tuple(own.name for own in smooth if own.is_read and touches(own, varied))
    of = tuple(own.name for own in smooth if own.is_written and touches(own, useful))
    if not wrt or not of or not family.num_vertices or options.ignores(family):
        return None
    inputs = [family.by_name[name].tensor for name in family.codelet.inputs]
    elements = sum(own.size // (own.rows.total if own.rows is not None else 1) for own in inputs if own is not None)
    most = max(1, min(options.vertices, _ELEMENTS // max(1, elements * len(wrt))))
    random = np.random.default_rng([options.seed, family.num_vertices])
    chosen = [Vertex(family, number) for number in spread_over(family.num_vertices, most, random)]
    return Site(family, tuple(_few_lengths(chosen) if family.rows else chosen), wrt, of, **line)


def _runs(steps: Sequence[Step]) -> Iterator[ExecuteStep | CallStep]:
    """The steps that run vertices, or functions with derivatives."""
    for step in steps:
        if isinstance(step, (ExecuteStep, CallStep)):
            yield step
        else:
            for own in bodies(step):
                yield from _runs(own)


def sites_of(
    plan: Plan, wrt: Collection[Variable], of: Collection[Variable], options: Options
) -> dict[Step, list[Site]]:
    """What is looked at of each step of a plan without calls, but of functions with derivatives."""
    varied, useful = varied_variables(plan, wrt), _useful_variables(plan, of)
    found: dict[Step, list[Site]] = {}
    known: dict[Family, Site | None] = {}
    for step in dict.fromkeys(_runs(plan.steps)):
        if isinstance(step, CallStep):
            made = [_site(own, varied, useful, options, line=step.line) for own in families_of(step)]
        else:
            families = [own for own in plan.graph.families if own.compute_set.name == step.name]
            for family in families:
                if family not in known:
                    known[family] = _site(family, varied, useful, options)
            made = [known[family] for family in families]
        found[step] = [own for own in made if own is not None]
    return found


# --- what is found --------------------------------------------------------------------------------------


def magnitudes(values: np.ndarray) -> np.ndarray:
    """By how much to move values for a step of one: by their size, and by a tenth of all their size at least."""
    sizes = np.abs(np.where(np.isfinite(values), values, 0)).astype(np.float64)
    whole = float(np.sqrt(np.mean(sizes**2))) if sizes.size else 0.0
    return np.maximum(sizes, 0.1 * whole) if whole else np.ones(sizes.shape)


def drawn(random: np.random.Generator, shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Normal numbers."""
    made = random.standard_normal(tuple(shape))
    return (made + 1j * random.standard_normal(tuple(shape)) if np.dtype(dtype).kind == "c" else made).astype(dtype)


def _element(name: str, shape: Sequence[int], place: int) -> str:
    """An element of a field, as text."""
    at = ", ".join(str(int(k)) for k in np.unravel_index(place, tuple(shape))) if shape else ""
    return f"{name}[{at}]" if at else name


class _SiteGroup:
    """Vertices of a site whose fields have the same shapes."""

    def __init__(self, checker: Checker, fields: Sequence[Mapping[str, Any]], options: Options):
        self.checker, self.options = checker, options
        self.random = np.random.default_rng([options.seed, len(fields)])
        kinds = checker.traced.inputs
        self.values = {
            name: np.stack([np.asarray(own[name], kind.dtype) for own in fields]) for name, kind in kinds.items()
        }
        self.results = {name: checker.traced.outputs[name] for name in checker.of}

    def verdicts(self) -> list[tuple[int, str, Verdict]]:
        """Of every vertex, by its place, and every field, what differences say along one direction."""
        wrt, count = self.checker.wrt, len(next(iter(self.values.values())))
        rows = [(k, name) for name in wrt for k in range(count)]
        places = np.array([k for k, _ in rows])
        directions = {
            name: np.zeros((len(rows), *self.values[name].shape[1:]), self.values[name].dtype) for name in wrt
        }
        for row, (k, name) in enumerate(rows):
            own = self.values[name][k]
            directions[name][row] = magnitudes(own) * drawn(self.random, own.shape, own.dtype)
        weights = {
            name: drawn(self.random, (len(rows), *kind.shape), kind.dtype) for name, kind in self.results.items()
        }
        values = {name: own[places] for name, own in self.values.items()}
        found = self.checker.verdicts(values, directions, weights, self.options.rtol)
        return [(k, name, verdict) for (k, name), verdict in zip(rows, found, strict=True)]

    def _try(self, k: int, field: str, elements: Any, weights: Mapping[str, np.ndarray]) -> list[Verdict]:
        """What differences say of a vertex's elements, each by weights of its own, as partial derivatives."""
        count = len(next(iter(weights.values())))
        values = {name: np.broadcast_to(own[k], (count, *own.shape[1:])) for name, own in self.values.items()}
        directions = {name: np.zeros(values[name].shape, values[name].dtype) for name in self.checker.wrt}
        sizes = magnitudes(self.values[field][k]).reshape(-1)[list(elements)]
        directions[field].reshape(count, -1)[np.arange(count), list(elements)] = sizes
        found = self.checker.verdicts(values, directions, weights, self.options.rtol)
        slopes = ("slope", "difference", "left", "right")
        return [v._replace(**{n: getattr(v, n) / s for n in slopes}) for v, s in zip(found, sizes, strict=True)]

    def told(self, k: int, field: str, verdict: Verdict) -> tuple[str, Verdict]:
        """A wrong gradient or a kink as one element of a result's by one of a field, where one is so by itself."""
        shape = self.values[field].shape[1:]
        size = int(np.prod(shape))
        elements = np.arange(size) if size <= _ONE_BY_ONE else np.sort(self.random.choice(size, _ONE_BY_ONE, False))
        weights = {name: drawn(self.random, kind.shape, kind.dtype) for name, kind in self.results.items()}
        every = {name: np.broadcast_to(own, (len(elements), *own.shape)) for name, own in weights.items()}
        place, _ = _worst(verdict.kind, self._try(k, field, elements, every))
        if place is None:
            return f"the slope along a direction of {field!r}", verdict
        element = int(elements[place])
        outputs = [(name, j) for name, kind in self.results.items() for j in range(int(np.prod(kind.shape)))]
        outputs = outputs[:_ONE_BY_ONE]
        each = {name: np.zeros((len(outputs), *kind.shape), kind.dtype) for name, kind in self.results.items()}
        for row, (name, j) in enumerate(outputs):
            each[name].reshape(len(outputs), -1)[row, j] = 1
        place, found = _worst(verdict.kind, self._try(k, field, [element] * len(outputs), each))
        if place is None:
            return f"the slope along a direction of {field!r}", verdict
        name, j = outputs[place]
        return f"d {_element(name, self.results[name].shape, j)} / d {_element(field, shape, element)}", found


def _worst(kind: Kind, verdicts: Sequence[Verdict]) -> tuple[int | None, Verdict]:
    """The place of the verdict of a kind that is off the most, of kinks that whose sides are, and it."""
    size = lambda own: own.error if kind == "wrong" else abs(own.right - own.left)  # noqa: E731
    alike = [k for k, own in enumerate(verdicts) if own.kind == kind]
    place = max(alike, key=lambda k: size(verdicts[k]), default=None)
    return place, verdicts[place or 0]


def _groups(fields: Sequence[Mapping[str, Any]]) -> Iterator[list[int]]:
    """The places of vertices whose fields have the same shapes."""
    alike = defaultdict(list)
    for k, own in enumerate(fields):
        alike[tuple((name, np.shape(value)) for name, value in sorted(own.items()))].append(k)
    yield from alike.values()


_Checkers = dict[Any, Checker]


def _check_site(site: Site, seen: Seen, options: Options, known: _Checkers) -> tuple[Checked, list[Finding]]:
    family, codelet = site.family, site.family.codelet
    notes = ["values of the first iteration"] if seen.is_in_loop else []
    entry: Callable[..., Checked] = lambda dtype, verdicts: Checked(  # noqa: E731
        family.compute_set.name,
        codelet.name,
        len(site.vertices) if seen.fields is not None else 0,
        family.num_vertices,
        dtype,
        tuple(verdicts),
        tuple(notes),
    )
    if seen.fields is None:
        notes[:] = ["not run with these values, in the first iteration of loops"] if seen.is_in_loop else ["not run"]
        return entry("", ()), []
    verdicts, findings, dtypes = [], [], []
    for places in _groups(seen.fields):
        fields = [seen.fields[k] for k in places]
        types = {n: kind._replace(shape=np.shape(fields[0][n])) for n, kind in codelet.inputs.items()}
        if any(not np.prod(types[name].shape) for name in site.wrt):
            continue
        key = codelet, tuple(types.values()), site.wrt, site.of
        if key not in known:
            known[key] = checker_of(codelet, types, site.wrt, site.of)
        checker = known[key]
        dtypes.append("float64" if checker.eps < 1e-12 else "its own dtypes")
        if checker.eps > 1e-12:
            notes.append("not in float64, since it casts, or is of one dtype: looser")
        if not checker.has_forward:
            notes.append("no jax.jvp of a custom_vjp")
        group = _SiteGroup(checker, fields, options)
        told = defaultdict(int)
        for k, name, verdict in group.verdicts():
            verdicts.append(verdict)
            told[name, verdict.kind] += 1
            if verdict.kind == "right" or told[name, verdict.kind] > _TOLD:
                continue
            vertex = site.vertices[places[k]]
            what = f"the slope along a direction of {name!r}"
            if verdict.kind != "unstable":
                what, verdict = group.told(k, name, verdict)
            findings.append(Finding(vertex, name, what, verdict, site.line or vertex.line))
    notes[:] = dict.fromkeys(notes)
    return entry(", ".join(dict.fromkeys(dtypes)), verdicts), findings


def check_families(
    plan: Plan, sites: Mapping[Step, Sequence[Site]], values: Mapping[str, Any], options: Options
) -> tuple[list[Checked], list[Finding]]:
    """Check the gradients of vertices.

    Args:
        plan: without calls but of functions with derivatives; its inputs have values.
        sites: what is looked at of its steps.
        values: an array for every input and input stream, by name.
        options: how.
    """
    known: _Checkers = {}
    checked, findings = [], []
    for site, seen in (look(plan, sites, values) if any(sites.values()) else {}).items():
        own, found = _check_site(site, seen, options, known)
        checked.append(own)
        findings += found
    return checked, findings
