"""Labels: under which scopes the equations of a jaxpr are added to a graph, and of which line of the user's they are.

Scopes come from the names that JAX notes for each equation: `jax.named_scope`, the names of jitted functions, and those
that Equinox gives its layers, `eqx.nn.Linear`. A layer's name is that of the field of the user's module, `layers/0`,
which is read off its parameters. An equation that reads one is of the layer that the parameter is of, and so are its
neighbours in the same scope.
"""

from __future__ import annotations

import functools
import itertools
import linecache
import posixpath
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jax.extend import core as jax_core

from codelet.errors import Line, SavedLine
from codelet.jaxprs.equations import inner_jaxprs, variables
from codelet.jaxprs.primitives import MOVING

BACKWARD = "backward"
"""The scope of equations that reverse-mode differentiation made."""

_TRANSFORMED = re.compile(r"^(\w+)\((.*)\)$")
_LAYER = re.compile(r"^eqx\.nn\.\w+$")
_UNNAMED = ("jit", "jvp", "vmap", "transpose", "checkpoint", "rematted_computation", "")


def _split(text: str) -> list[str]:
    """The parts of a name stack, at those slashes that are in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "/" and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


@functools.lru_cache(maxsize=1 << 12)
def scopes_of(name_stack: str) -> tuple[tuple[str, ...], bool]:
    """The scopes in a name stack, without the transformations around them, and whether it is of a backward pass.

    >>> scopes_of("transpose(jvp(head))/eqx.nn.Conv2d")
    (('head', 'eqx.nn.Conv2d'), True)
    """
    found: list[str] = []
    is_backward = False
    for part in _split(name_stack):
        if (match := _TRANSFORMED.match(part)) is not None:
            inner, backward = scopes_of(match[2])
            found.extend(inner)
            is_backward |= backward or match[1] == "transpose"
        elif part not in _UNNAMED:
            found.append(part)
    return tuple(found), is_backward


@functools.cache
def _libraries() -> tuple[str, ...]:
    names = ("jax", "jaxlib", "equinox", "numpy", "codelet", "lowering", "ipu_backend", "optax", "jaxtyping")
    paths = [getattr(sys.modules.get(name), "__path__", None) for name in names]
    return tuple(str(Path(path).resolve()) for own in paths if own for path in own)


def is_library(filename: str) -> bool:
    """True if a file is none of the user's: of JAX, Equinox, or codelet itself, its models excepted."""
    path = filename if filename.startswith("<") else str(Path(filename).resolve())
    return path.startswith(_libraries()) and "/codelet/models/" not in path.replace("\\", "/")


@functools.cache
def _line(filename: str, number: int) -> Line:
    return Line(SavedLine(f"{filename}:{number}", linecache.getline(filename, number).strip()), number)


_is_library = functools.cache(is_library)


def line_of(eqn: jax_core.JaxprEqn) -> Line | None:
    """The innermost line of the user's that an equation is of."""
    traceback = eqn.source_info.traceback
    for frame in () if traceback is None else traceback.frames:
        if not _is_library(frame.file_name):
            return _line(frame.file_name, frame.line_num)
    return None


def owner(path: str) -> str:
    """The module that a parameter is of, by the path of the parameter within its argument."""
    return path.partition("/")[2].rpartition("/")[0]


def within(paths: Mapping[Any, str]) -> dict[Any, str]:
    """The paths of parameters within their container."""
    folders = [posixpath.dirname(path) for path in paths.values() if "/" in path]
    outer = posixpath.commonpath(folders) if folders else ""
    return {var: path.removeprefix(outer) for var, path in paths.items() if path.startswith(outer + "/")}


def roots(jaxpr: jax_core.Jaxpr) -> dict[Any, Any]:
    """For each variable that only holds another one moved, the other one."""
    found: dict[Any, Any] = {}
    for eqn in jaxpr.eqns:
        operands = variables(eqn.invars)
        if eqn.primitive.name in (*MOVING, "convert_element_type", "copy") and len(operands) == 1:
            found.update(dict.fromkeys(eqn.outvars, found.get(operands[0], operands[0])))
    return found


def origins(jaxpr: jax_core.Jaxpr, paths: Mapping[Any, str]) -> dict[Any, str]:
    """Of which parameter each variable is, however it is moved.

    Args:
        jaxpr: whose variables.
        paths: of its inputs that are parameters.
    """
    moved = {var: paths[root] for var, root in roots(jaxpr).items() if root in paths}
    return {**moved, **paths}


def labels(jaxpr: jax_core.Jaxpr, paths: Mapping[Any, str]) -> list[str]:
    """Under which scopes each equation of a jaxpr is added.

    Args:
        jaxpr: whose equations.
        paths: of its inputs that are parameters.
    """
    known, root = origins(jaxpr, paths), roots(jaxpr)
    stacks = [str(eqn.source_info.name_stack) for eqn in jaxpr.eqns]
    owner_of = {var: name for var, path in known.items() if (name := owner(path))}
    owners = [
        "" if inner_jaxprs(eqn) else next((owner_of[var] for var in variables(eqn.invars) if var in owner_of), "")
        for eqn in jaxpr.eqns
    ]
    read = lambda eqn: [root.get(var, var) for var in variables(eqn.invars) if var not in owner_of]  # noqa: E731
    in_layers = [any(map(_LAYER.match, scopes_of(stack)[0])) for stack in stacks]
    outer = _common([own for own, is_layer in zip(owners, in_layers, strict=True) if is_layer])
    owners = [own.removeprefix(outer) for own in owners]
    read_by: dict[Any, str] = {}  # of what a layer reads, the layer: its gradient reads it again
    found: list[str] = []
    for begin, end in _runs(stacks):
        scopes, is_backward = scopes_of(stacks[begin])
        eqns, own = jaxpr.eqns[begin:end], owners[begin:end]
        if in_layers[begin]:
            if not any(own):
                own = [next((read_by[var] for var in read(eqn) if var in read_by), "") for eqn in eqns]
            own = _spread(own)
            for eqn, name in zip(eqns, own, strict=True):
                read_by.update(dict.fromkeys(read(eqn), name) if name and not is_backward else {})
        found += [_label(scopes, name, is_backward) for name in own]
    return found


def _common(modules: Sequence[str]) -> str:
    """The beginning that the paths of modules have in common, where there are several."""
    several = {own for own in modules if own}
    return posixpath.commonpath(several) + "/" if len(several) > 1 and posixpath.commonpath(several) else ""


def _label(scopes: Sequence[str], module: str, is_backward: bool) -> str:
    """The scopes of an equation: those of layers by the module's name, where it is known."""
    layers = [k for k, scope in enumerate(scopes) if _LAYER.match(scope)]
    own = module or (scopes[layers[0]].rpartition(".")[2] if layers else "")
    if layers:
        named = [*scopes[: layers[0]], own, *(s for s in scopes[layers[0] :] if not _LAYER.match(s))]
    else:
        named = _joined(list(scopes), own.split("/"))
    return "/".join(dict.fromkeys(part for part in [BACKWARD * is_backward, *named] if part))


def _joined(scopes: list[str], module: list[str]) -> list[str]:
    """Scopes with the path of a module behind them; the part they share is named once.

    Flax and haiku name the scopes of a layer as they do its parameters, behind `params`.
    """
    for start in range(len(module)):
        for count in range(len(module) - start, 0, -1):
            if scopes[-count:] == module[start : start + count]:
                return [*scopes, *module[start + count :]]
    return [*scopes, *(module[1:] if scopes and module[0] == "params" else module)]


def _runs(keys: Sequence[str]) -> list[tuple[int, int]]:
    """Where equal neighbours begin and end."""
    edges = [0, *(k for k in range(1, len(keys)) if keys[k] != keys[k - 1]), len(keys)]
    return [(a, b) for a, b in itertools.pairwise(edges) if a < b]


def _spread(owners: Sequence[str]) -> list[str]:
    """Those without an owner are of the one before, or else of the first."""
    found: list[str] = []
    current = next((own for own in owners if own), "")
    for own in owners:
        current = own or current
        found.append(current)
    return found
