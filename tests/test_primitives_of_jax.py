"""Every primitive that JAX can stage, with the parameters of its own tests: right values, or an own error."""

from __future__ import annotations

import pytest

from tests.primitives_of_jax import ONE_VERTEX, groups, outcomes

FEW = ["integer_pow", "select_and_gather_add", "top_k", "lu"]
"""Groups that the quick suite looks at."""

ALL = [pytest.param(own, marks=() if own in FEW else pytest.mark.slow) for own in groups()]


@pytest.mark.parametrize("group", ALL)
def test_none_has_other_values_or_a_foreign_error(group):
    wrong = [own for own in outcomes(group) if own.is_wrong]
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.slow
def test_linear_algebra_is_by_one_vertex():
    """And is told as such, so that the counts can be believed."""
    assert any(own.what == ONE_VERTEX for own in outcomes("lu"))
