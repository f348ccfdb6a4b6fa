"""Plans and jaxprs of programs and networks are those that are kept, to the letter."""

from __future__ import annotations

import pytest

from tests.golden import FOLDER, GOLDEN, file_of, text_of


@pytest.mark.parametrize("name", GOLDEN)
def test_a_plan_and_what_runs_are_as_they_were(name: str):
    """The same of JAX 0.10 and 0.12; where they are to change, `python -m tests.golden --write`."""
    assert text_of(name) == file_of(name).read_text()


def test_every_file_is_of_a_program():
    assert {path.name for path in FOLDER.iterdir() if path.is_file()} == {file_of(name).name for name in GOLDEN}
