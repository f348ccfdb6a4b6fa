"""Progress: a bar that shows how far a run's loops over streams are, drawn by tqdm, which an extra brings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from codelet.errors import MissingExtraError
from ipu_backend.running.streaming import Chunks, Part, Turns

CHUNKS = 20
"""Into how many chunks at least a loop falls whose progress is shown: each is waited for."""


@contextmanager
def progress_bar(parts: Sequence[Part], text: str) -> Iterator[Callable[[int], object]]:
    """A bar on the standard error stream, and what moves it on by so many iterations.

    Args:
        parts: what runs.
        text: what stands before the bar.

    Raises:
        MissingExtraError: tqdm is not installed.
    """
    try:
        from tqdm import tqdm
    except ImportError:
        raise MissingExtraError(
            "a progress bar needs a library that is not installed",
            given="a Python without tqdm",
            expected="the extra `progress`",
            fix="pip install 'codelet-graphs[progress]' (in a checkout: pip install -e '.[progress]')",
        ) from None
    turns = sum(part.step.count for part in parts if isinstance(part, Chunks | Turns))
    with tqdm(total=turns or None, desc=text, unit="turn") as bar:
        yield bar.update
