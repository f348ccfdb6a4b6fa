"""Old names work for one release: each does what the new one does, and warns once, at the user's line."""

import pickle
import warnings

import pytest

from codelet.deprecated import callable_still, old_arguments, old_attribute, old_order


class Loop:
    @old_arguments(turns="iterations")
    def __init__(self, body, *, iterations=1):
        """A loop."""
        self.body, self.iterations = body, iterations

    turns = old_attribute("Loop.turns", "iterations")

    @property
    def steps(self):
        return callable_still([1, 2], "Loop.steps")


@old_order(("values", "outputs", "program"), lambda second: isinstance(second, dict))
def run(graph, program=None, *, values, outputs):
    return graph, program, values, outputs


def test_a_keyword_under_its_old_name():
    with pytest.warns(DeprecationWarning, match=r"codelet: Loop\(turns=\.\.\.\) is now iterations=; the old") as told:
        made = Loop("body", turns=3)
    assert made.iterations == 3
    assert told[0].filename == __file__
    with pytest.raises(TypeError, match="given iterations= and, under its old name, turns="):
        Loop("body", turns=3, iterations=3)
    assert Loop.__init__.__doc__ == "A loop."


def test_an_attribute_under_its_old_name():
    made = Loop("body", iterations=2)
    with pytest.warns(DeprecationWarning, match=r"Loop\.turns is now iterations"):
        assert made.turns == 2
    with pytest.raises(AttributeError):
        made.other  # noqa: B018


def test_arguments_in_their_old_order():
    with pytest.warns(DeprecationWarning, match="run with values, outputs, program by position is now by keyword"):
        found = run("graph", {}, ["y"], "program")
    assert found == ("graph", "program", {}, ["y"]) == run("graph", "program", values={}, outputs=["y"])


def test_a_method_that_is_a_property():
    steps = Loop("body").steps
    assert steps == [1, 2]
    assert type(pickle.loads(pickle.dumps(steps))) is list
    with pytest.warns(DeprecationWarning, match=r"Loop\.steps\(\) is now Loop\.steps, a property"):
        assert steps() == [1, 2]


def test_new_names_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Loop("body", iterations=2)
        run("graph", values={}, outputs=[])
