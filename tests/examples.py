"""How many examples generated tests draw: a few by default, ten times as many with CODELET_EXAMPLES=10."""

import os
from typing import Any

from hypothesis import settings

FACTOR = int(os.environ.get("CODELET_EXAMPLES", "1"))


def examples(few: int, **others: Any) -> settings:
    """Settings that draw a few examples, or `FACTOR` times as many; `others` are further settings."""
    return settings(max_examples=few * FACTOR, **others)
