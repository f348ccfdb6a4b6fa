"""Signatures: all that is public keeps the rules by which its names agree."""

from __future__ import annotations

import builtins
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import codelet as cl
import ipu_backend
import lowering

PROGRAM_SECOND = {"Engine", "check_gradient", "describe", "draw", "gradient", "interpret", "lower"}
"""What takes a graph and then what of it runs."""

BANNED = {
    "checkpoint": "recompute",
    "destination_path": "path",
    "filename": "path",
    "keep": "host_visible, or max_to_keep",
    "max_steps": "max_iterations",
    "max_turns": "max_iterations",
    "memory_share": "memory_fraction",
    "repeats": "iterations",
    "turns": "trip_count",
}
"""Names of parameters that stood for several things, or for what has another name, with what is right."""

VERBS = ("iter_", "to_", "find_", "flatten", "tree_flatten")
"""How methods may begin that take nothing: they do, or make, something."""

EXCEPTIONS = {
    "lines": "an iterator of text, which programs and functions make anew for `print`",
    "summary": "the word of pandas and Keras, which is a method there",
    "image": "makes an image of PIL anew at each call",
    "inverse": "computes an index: a verb in all but form",
    "text": "the protocol by which errors word expressions, which operands share",
    "frozen": "looks whether captured numbers have changed since: not the same at each call",
    "arrival_cycles": "one of the questions that a target answers by methods, with and without arguments",
    "LoweredFunction": "made by `cl.lower` alone, which has the options by name",
    "SavingError": "pickle's own error, which is no builtin one",
    "EffectsError": "a ProgramError by which rooms of comparisons tell each other that nothing can be said",
}
"""What is not as the rules say, with the reason."""


class Public(NamedTuple):
    """Something public that is called.

    Attributes:
        name: as a user writes it, after `cl.`.
        function: of which the signature is.
        parameters: without `self`.
        is_method: whether it is of an instance.
    """

    name: str
    function: Callable[..., Any]
    parameters: list[inspect.Parameter]
    is_method: bool


def _public(name: str, function: Callable[..., Any], skipped: int) -> Public:
    return Public(name, function, [*inspect.signature(function).parameters.values()][skipped:], bool(skipped))


def all_called() -> Iterator[Public]:
    """All public functions, constructors and methods."""
    for name in cl.__all__:
        own = getattr(cl, name)
        if inspect.isclass(own):
            if not issubclass(own, BaseException):
                yield from _of_class(name, own)
        elif inspect.isfunction(own):
            yield _public(name, own, 0)
    for name in cl.ops.__all__:
        if inspect.isfunction(own := getattr(cl.ops, name)):
            yield _public(f"ops.{name}", own, 0)


def _of_class(name: str, own: type) -> Iterator[Public]:
    if inspect.isfunction(own.__dict__.get("__init__")):
        yield _public(name, own.__init__, 1)._replace(is_method=False)
    for each, value in vars(own).items():
        if each.startswith("_"):
            continue
        if isinstance(value, (staticmethod, classmethod)):
            called = _public(f"{name}.{each}", value.__func__, int(isinstance(value, classmethod)))
            yield called._replace(is_method=False)
        elif inspect.isfunction(value):
            yield _public(f"{name}.{each}", value, 1)


ALL = list(all_called())


def test_there_are_many():
    assert len(ALL) > 250
    assert len({own.name for own in ALL}) == len(ALL)
    assert len(EXCEPTIONS) <= 10


def test_dir_shows_what_all_names():
    assert dir(cl) == sorted(cl.__all__)
    assert dir(cl.ops) == sorted(cl.ops.__all__)
    assert len(set(cl.__all__)) == len(cl.__all__)


def test_the_program_comes_second():
    found = {}
    for own in ALL:
        if own.name in PROGRAM_SECOND:
            graph, program, *others = own.parameters
            assert (graph.name, program.name, program.default) == ("graph", "program", None), own.name
            assert all(other.kind is other.KEYWORD_ONLY for other in others), own.name
            found[own.name] = True
        elif any(each.name == "program" for each in own.parameters) and own.name.partition(".")[0] == "Engine":
            pytest.fail(f"{own.name} takes a program: where an engine has several, program_name names one")
    assert found.keys() == PROGRAM_SECOND


def test_an_engine_chooses_its_programs_by_name():
    for name in ("run", "machine", "profile", "function"):
        (own,) = (each for each in ALL if each.name == f"Engine.{name}")
        assert own.parameters[0].name == "program_name"


def test_no_parameter_has_a_banned_name():
    found = {
        f"{own.name}({each.name}=)": BANNED[each.name] for own in ALL for each in own.parameters if each.name in BANNED
    }
    assert found == {}


def test_nouns_are_properties():
    found = [own.name for own in ALL if own.is_method and not own.parameters]
    assert [name for name in found if not _does_something(name.rpartition(".")[2])] == []


def _does_something(name: str) -> bool:
    return name.startswith(VERBS) or name in EXCEPTIONS


def test_what_writes_a_file_is_called_write():
    for own in ALL:
        if own.is_method and any(each.name == "path" for each in own.parameters):
            last = own.name.rpartition(".")[2]
            assert last.startswith("write_") or last in ("draw", "diagram"), own.name


def test_options_are_told_by_name():
    """Of what has a default at most three arguments may be given by position, so that calls can be read."""
    found = []
    for own in ALL:
        if own.name.startswith("ops.") or own.name in EXCEPTIONS:
            continue
        optional = [e for e in own.parameters if e.kind is e.POSITIONAL_OR_KEYWORD and e.default is not e.empty]
        if len(optional) > 3 and "__dataclass_fields__" not in dir(getattr(cl, own.name.partition(".")[0])):
            found.append(own.name)
    assert found == []


def test_all_is_documented():
    found = []
    for name in [*cl.__all__, *(f"ops.{own}" for own in cl.ops.__all__)]:
        if not (_found(name).__doc__ or "").strip():
            found.append(name)
    for own in ALL:
        last, of = own.name.rpartition(".")[2], getattr(cl, own.name.partition(".")[0], None)
        inherited = inspect.isclass(of) and any(getattr(getattr(b, last, None), "__doc__", None) for b in of.__mro__)
        if not own.function.__doc__ and not inherited and "." in own.name:
            found.append(own.name)
    for name in cl.__all__:
        if inspect.isclass(kind := getattr(cl, name)):
            members = {each: value for each, value in vars(kind).items() if isinstance(value, property)}
            found += [f"{name}.{each}" for each, value in members.items() if each[0] != "_" and not value.__doc__]
    assert found == []


def _found(name: str) -> Any:
    own: Any = cl
    for part in name.split("."):
        own = getattr(own, part)
    return own


# --- operations ---------------------------------------------------------------------------------------------------

OPERATIONS = {own.name.removeprefix("ops."): own for own in ALL if own.name.startswith("ops.")}

OF_LAX = {
    "operand": "gather scatter gather_gradient plan_gather scatter_gradient",
    "window_dimensions": "reduce_window reduce_window_tangent",
}
"""Parameters with the names of `jax.lax`, and the operations that take its dimension numbers or windows with them."""

SEVERAL = {"concatenate_gradient", "map_gradient", "select_n_gradient", "sort_together"}
"""What gives a tensor for each operand, of which there may be any number: a plain tuple."""

OPERAND_KEYS = {"split_key", "fold_in"}
"""What is done to a key, which comes first, as an operand. The keys of attention are another thing."""


def test_operations_name_axes_and_operands_alike():
    banned = {"axes": "axis", "dimension": "axis", "dimensions": "axis", "operand": "x", "length": "x_shape"}
    for name, own in OPERATIONS.items():
        for parameter in own.parameters:
            if name not in OF_LAX.get(parameter.name, "").split():
                assert parameter.name not in banned, f"{name}({parameter.name}=) is {banned.get(parameter.name)}="


def test_options_of_operations_are_given_by_name():
    for name, own in OPERATIONS.items():
        for parameter in own.parameters:
            is_option = parameter.name in ("grain", "memory_fraction", "name", "dtype", "eps", "channel_axis")
            if is_option or (parameter.name == "key" and name not in OPERAND_KEYS and "attention" not in name):
                assert parameter.kind is parameter.KEYWORD_ONLY, f"{name}({parameter.name}=)"


def test_what_is_planned_is_told_how_much_memory_it_may_take():
    evenly = {"fill", "iota"}  # which are spread evenly, without a plan
    for name, own in OPERATIONS.items():
        names = {parameter.name for parameter in own.parameters}
        if "grain" in names and name not in evenly:
            assert "memory_fraction" in names, name


def test_several_results_have_names():
    for name, own in OPERATIONS.items():
        assert not name.endswith("_gradients")
        told = str(inspect.signature(own.function).return_annotation)
        assert ("tuple[" in told) == (name in SEVERAL), f"{name} -> {told}"


def test_an_operation_takes_a_graph_or_a_target_first():
    for name, own in OPERATIONS.items():
        assert own.parameters[0].name in ("graph", "target"), name


# --- errors -------------------------------------------------------------------------------------------------------


def error_classes() -> list[type[cl.CodeletError]]:
    """All errors of the library, but for those of commands and of networks that come with it."""
    for package in (cl, lowering, ipu_backend):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.startswith(
                ("codelet.__main__", "codelet.models", "ipu_backend.jobs", "ipu_backend.cli")
            ):
                importlib.import_module(module.name)
    found: list[type[cl.CodeletError]] = []
    waiting = [cl.CodeletError]
    while waiting:
        found.append(own := waiting.pop())
        waiting += own.__subclasses__()
    ours = ("codelet", "lowering", "ipu_backend")
    apart = ("codelet.models", "ipu_backend.jobs")
    return [own for own in found if own.__module__.split(".")[0] in ours and not own.__module__.startswith(apart)]


def test_errors_are_exported_and_have_a_builtin_base():
    for own in error_classes():
        if own is cl.CodeletError or own.__name__ in EXCEPTIONS:
            continue
        assert getattr(cl, own.__name__, None) is own, f"{own.__name__} is not in cl"
        assert own.__name__ in cl.__all__
        assert sum(map(_is_builtin, own.__bases__)) <= 1, f"{own.__name__} has several builtin bases"
        assert any(map(_is_builtin, own.__mro__)), f"{own.__name__} is no builtin error but Exception"


def _is_builtin(kind: type) -> bool:
    return getattr(builtins, kind.__name__, None) is kind and kind not in (Exception, BaseException, object)


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (cl.FieldTypeError, TypeError),
        (cl.ArrayError, ValueError),
        (cl.OutOfTileMemoryError, MemoryError),
        (cl.NotFiniteError, FloatingPointError),
        (cl.NotInGraphError, LookupError),
        (cl.ProgramAbortedError, RuntimeError),
        (cl.RecordError, LookupError),
    ],
)
def test_errors_are_what_python_would_raise(error, builtin):
    assert issubclass(error, builtin)
    assert "given:    1" in str(error("own", given=1))
