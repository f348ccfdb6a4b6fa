"""What the language makes does not change once it is made: nobody can assign to it, and copies and pickles neither."""

import copy
import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

import codelet as cl
from codelet.views.rows import Rows
from codelet.views.sources import Patchwork


def made():
    """One of each class, by how it is made."""
    x = cl.Graph().add_variable("x", (4, 6))
    i = cl.grid(4)
    rows = cl.table([3, 1, 0, 2, 2, 1], offsets=[0, 2, 2, 5, 6])
    strided = x[1, 2:4]
    assert strided.layout is not None
    ragged = x[0, rows[i]]
    joined = cl.concatenate([x, x.pad(1)[:, :6]]).source
    assert isinstance(joined, Patchwork)
    return {
        "axis": i.axes[0],
        "symbol": i,
        "table": cl.table([2, 0, 1, 3])[i],
        "condition": i < 2,
        "ragged table": rows,
        "ragged": rows[i],
        "rows": ragged.rows,
        "variable": x.source,
        "patchwork": joined,
        "patch": joined.patches[0],
        "whole tensor": x,
        "strided tensor": strided,
        "strided tensor, asked": x[:, 1:3].T[0],
        "tensor at a symbol": x[i, 2],
        "ragged tensor": ragged,
    }


def parts(value):
    """The names of what a value holds."""
    slots = {name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())}
    return sorted(slots | set(getattr(value, "__dict__", {})))


@pytest.mark.parametrize("kind", made())
def test_nothing_that_is_made_can_be_changed(kind):
    value = made()[kind]
    for one in (value, copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert type(one) is type(value)
        assert repr(one) == repr(value)
        assert parts(one)
        for name in parts(one):
            before = getattr(one, name)
            with pytest.raises(FrozenInstanceError):
                setattr(one, name, before)
            with pytest.raises(FrozenInstanceError):
                delattr(one, name)
            assert getattr(one, name) is before
        with pytest.raises((AttributeError, TypeError)):
            one.something_else = 1


def test_what_is_found_when_asked_is_kept():
    x = cl.Graph().add_variable("x", (4, 6))
    view = x[1, 2:4]
    assert view.index is view.index
    assert view.find_layout() is view.layout is x[2, 0:2].layout
    rows = Rows(cl.grid(3).axes, np.array([2, 0, 1]))
    assert rows.offsets is rows.offsets
    assert (rows.count, rows.total, rows.offsets.tolist(), rows.lengths.tolist()) == (3, 3, [0, 2, 2, 3], [2, 0, 1])


def test_rows_are_of_lengths_of_their_own():
    lengths = np.array([2, 0, 1])
    rows = Rows(cl.grid(3).axes, lengths)
    lengths[0] = 9
    assert rows.total == 3
    with pytest.raises(ValueError, match="read-only"):
        rows.lengths[0] = 9
