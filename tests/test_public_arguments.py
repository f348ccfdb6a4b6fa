"""Wrong arguments of what is public: for each argument of each function, whatever it is given, an error of ours."""

from __future__ import annotations

import inspect
import shutil
import warnings

import pytest

import codelet as cl
from codelet.schema import COUNT, FLAG, TEXT, accepts, are_wholes, is_index, is_number, is_whole, of_class, one_of
from tests.ops_calls import WRONG
from tests.public_calls import CALLS, World

FUNCTIONS = ("a class", "a function", "a function of nothing")
"""Wrong values that are functions: where one is expected, what it raises is its own."""

TAKE_FUNCTIONS = ("cycles", "layer_of", "placement", "trip_count")
"""Arguments that may be functions, though the right call gives none."""

APART = {
    "Codelet",
    "Comparison",
    "ComputeSet",
    "Diagram",
    "Edge",
    "Engine.graph",
    "Equality",
    "Family",
    "Function",
    "Gradient",
    "GradientCheck",
    "Index",
    "MachinePlan",
    "Picture",
    "Profile",
    "Program",
    "Results",
    "StepProfile",
    "Stream",
    "Witness",
}
"""Public names of which nobody makes one, but for a library: the parts of what functions return."""


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    """What is written under a name that is no path goes nowhere that stays."""
    monkeypatch.chdir(tmp_path)


def _arguments(name: str) -> list[int | str]:
    _, positional, named = CALLS[name](World())
    return [*range(len(positional)), *named]


@pytest.mark.parametrize("name", CALLS)
def test_the_call_that_others_are_made_of_is_right(name):
    function, positional, named = CALLS[name](World())
    function(*positional, **named)


def test_every_public_function_is_called():
    called = {name.partition("/")[0].partition(".")[0] for name in CALLS}
    others = {"Lowered", "LoweredFunction", "Record", "Recompute", "Tensor", "Traced", "Vertex", "ops"}
    for name in set(cl.__all__) - called - APART - others:
        own = getattr(cl, name)
        assert inspect.isclass(own), name
        assert issubclass(own, (Exception, Warning)), name


def _foreign(name: str, place: int | str, wrong: str) -> str | None:
    """What is raised for one wrong argument that is no error of ours; None where nothing is."""
    world = World()
    function, positional, named = CALLS[name](world)
    given = positional if isinstance(place, int) else named
    if wrong in FUNCTIONS and (callable(given[place]) or place in TAKE_FUNCTIONS):  # type: ignore[index,call-overload]
        return None
    given[place] = WRONG[wrong](world.graph)  # type: ignore[index,call-overload]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(*positional, **named)
    except cl.CodeletError as error:
        return None if error.problem else f"{name}: {place} = {wrong}: an error without words"
    except Exception as error:
        return f"{name}: {place} = {wrong}: {type(error).__name__}: {str(error)[:80]}"
    finally:
        shutil.rmtree(world.folder, ignore_errors=True)
    return None


def _wrong(name: str) -> list[tuple[int | str, str]]:
    """The arguments of a function, each with each of what it may be given."""
    return [(place, wrong) for place in _arguments(name) for wrong in WRONG]


@pytest.mark.parametrize("name", CALLS)
def test_no_wrong_argument_gives_a_foreign_error(name):
    every, first = _wrong(name), list(CALLS).index(name)
    found = [_foreign(name, *own) for own in every[first % 17 :: 17]]
    assert [own for own in found if own] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_no_wrong_argument_of_all_gives_a_foreign_error(name):
    assert [own for own in (_foreign(name, *each) for each in _wrong(name)) if own] == []


# --- words ------------------------------------------------------------------------------------------------


def _told(name: str, place: int | str, value: object) -> cl.CodeletError:
    world = World()
    function, positional, named = CALLS[name](world)
    given = positional if isinstance(place, int) else named
    given[place] = value  # type: ignore[index,call-overload]
    with pytest.raises(cl.CodeletError) as caught:
        function(*positional, **named)
    return caught.value


@pytest.mark.parametrize(
    ("name", "place", "value", "problem", "expected"),
    [
        ("draw", "packed", 2, "packed of draw is invalid", "a number from 0 to 1"),
        ("draw", "title", None, "title of draw is invalid", "text"),
        ("Engine.run", "wait", "yes", "wait of Engine.run is invalid", "True or False"),
        ("Engine.machine", "allow_out_of_memory", 1, "of Engine.machine is invalid", "True or False"),
        ("Checkpoints.save", 0, "engine", "engine of Checkpoints.save is invalid", "a cl.Engine"),
        ("Profile.advice", 0, -1, "most of Profile.advice is invalid", "an integer from 0"),
        ("Profile.tables", "layer_of", "conv", "layer_of of Profile.tables is invalid", "a function"),
        ("Profile.cycles_of", 0, "compue", "a profile has no such kind of phase", "compute"),
        ("Traced.layer_of", 0, 3, "name of Traced.layer_of is invalid", "text"),
        ("lower", "shared", 3, "shared names something other than an input", "in a list"),
        ("trace", "donate_argnums", 1, "donate_argnums numbers no arguments", "of the 1 arguments"),
        ("trace", "donate_argnums", "x", "donate_argnums numbers no arguments", "from 0"),
        ("where", 2, 2**63, "cl.where is given a number that no index holds", "64 bits"),
        ("Traced.__call__", "scale", 2**70, "is given a number that its dtype does not hold", "float32"),
        ("IPU", 0, {"mk2": 1}, "there is no such chip", "mk1, mk2, bow"),
    ],
)
def test_a_wrong_argument_is_told(name, place, value, problem, expected):
    error = _told(name, place, value)
    assert problem in error.problem
    assert expected in str(error)


def test_a_donated_argument_may_be_counted_from_the_end():
    first, last = (
        cl.trace(lambda a, b: (a + 1, b * 2), 1.0, 2.0, donate_argnums=own, target=cl.IPU(num_tiles=1))
        for own in (1, iter([-1]))
    )
    assert str(first.program) == str(last.program)
    assert "WriteUndef" in str(first.program)


# --- the schema -------------------------------------------------------------------------------------------


class Own:
    @accepts(cl.OperationError, count=COUNT, title=TEXT, flag=FLAG, way=one_of("left", "right"))
    def method(self, count, *, title="", flag=None, way="left"):
        """What it is given."""
        return count, title, flag, way


def test_what_is_left_off_is_accepted_and_what_is_not_in_the_schema_is_pythons():
    own = Own()
    assert own.method(3) == (3, "", None, "left")
    assert own.method(count=3, flag=None, title="a") == (3, "a", None, "left")
    with pytest.raises(TypeError):
        own.method()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        own.method(3, other=1)  # type: ignore[call-arg]
    assert own.method.__doc__ == "What it is given."
    assert str(inspect.signature(own.method)) == "(count, *, title='', flag=None, way='left')"


@pytest.mark.parametrize(
    "given", [{"count": 0}, {"count": True}, {"count": 3, "title": None}, {"count": 3, "way": "up"}]
)
def test_what_the_schema_refuses_is_named(given):
    name = next(reversed(given))
    with pytest.raises(cl.OperationError, match=f"^{name} of Own.method is invalid\n"):
        Own().method(**given)


def test_kinds():
    import numpy as np

    assert is_whole(np.int64(3), 3)
    assert not is_whole(np.int64(3), 4)
    assert not is_whole(np.bool_(True))
    assert not is_whole(2.0)
    assert not is_whole(np.array(3))
    assert is_index(np.array(3), 3)
    assert not is_index(True)
    assert is_number(np.float32(0.5), 0, 1)
    assert not is_number(float("nan"))
    assert not is_number(True)
    assert are_wholes((1, np.int32(2)), 0)
    assert not are_wholes("12", 0)
    assert not are_wholes({1: 2}, 0)
    assert of_class("a text", str).accepts("")
    assert not of_class("a text", str).accepts(3)
