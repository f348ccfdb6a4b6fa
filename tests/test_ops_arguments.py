"""Wrong arguments of operations: for each argument of each, whatever it is given, an error of ours, or none."""

from __future__ import annotations

import inspect
import warnings

import pytest

import codelet as cl
from codelet.ops.schema import KINDS
from tests.examples import few
from tests.ops_calls import WRONG, given

OPERATIONS = cl.ops.__all__


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_call_that_others_are_made_of_is_right(operation):
    _, positional, named = given(operation)
    getattr(cl.ops, operation)(*positional, **named)


def _foreign(operation: str, place: int | str, wrong: str) -> str | None:
    """What is raised for one wrong argument that is no error of ours; None where nothing is."""
    graph, positional, named = given(operation)
    value = WRONG[wrong](graph)
    if isinstance(place, int):
        positional[place] = value
    else:
        named[place] = value
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            getattr(cl.ops, operation)(*positional, **named)
    except cl.CodeletError as error:
        return None if error.problem else f"ops.{operation}: {place} = {wrong}: an error without words"
    except Exception as error:
        return f"ops.{operation}: {place} = {wrong}: {type(error).__name__}: {str(error)[:80]}"
    return None


def _wrong(operation: str) -> list[tuple[int | str, str]]:
    """The arguments of an operation, each with each of what it may be given."""
    _, positional, named = given(operation)
    return [(place, wrong) for place in (*range(len(positional)), *named) for wrong in WRONG]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_wrong_argument_gives_a_foreign_error(operation):
    every = _wrong(operation)
    first = OPERATIONS.index(operation)
    found = [_foreign(operation, *own) for own in every[first % 17 :: 17]]
    assert [own for own in found if own] == []


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_wrong_argument_of_all_gives_a_foreign_error(operation):
    assert [own for own in (_foreign(operation, *each) for each in _wrong(operation)) if own] == []


@few("operation", OPERATIONS, quick=["plan_operation"])
def test_what_the_schema_refuses_is_told_by_its_words(operation):
    _, positional, named = given(operation)
    parameters = list(inspect.signature(getattr(cl.ops, operation)).parameters)
    for name in set(parameters) & set(KINDS):
        for wrong in WRONG:
            value = WRONG[wrong](cl.Graph())
            if KINDS[name].accepts(value):
                continue
            changed = dict(named)
            others = list(positional)
            if name in named:
                changed[name] = value
            else:
                others[parameters.index(name)] = value
            if value is inspect.signature(getattr(cl.ops, operation)).parameters[name].default:
                continue
            with pytest.raises(cl.OperationError, match=f"^{name} of ops.{operation} is invalid") as caught:
                getattr(cl.ops, operation)(*others, **changed)
            assert KINDS[name].text in str(caught.value)
