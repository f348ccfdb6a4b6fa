"""Stages of a job: how long each takes, and a line on the standard error stream for those that take over a second.

Where tqdm is installed, which the extra `progress` brings, the line is a bar over the stages.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

DELAY_SECONDS = 1.0


class Stages:
    """The stages of a job, in the order of their names.

    Args:
        names: of all there are.
        delay: seconds before a stage shows, and between the times that it is shown again.

    Attributes:
        seconds: that each stage took, of those that are over.

    >>> stages = Stages(["count"])
    >>> with stages.stage("count"):
    ...     total = sum(range(10))
    >>> list(stages.seconds)
    ['count']
    """

    def __init__(self, names: Sequence[str], *, delay: float = DELAY_SECONDS):
        self.names, self.seconds = tuple(names), dict[str, float]()
        self._delay = delay

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """One stage, timed; shown from a thread of its own, as what it does tells nothing of how far it is."""
        is_over, start = threading.Event(), time.perf_counter()
        teller = threading.Thread(target=self._tell, args=(name, start, is_over), daemon=True)
        teller.start()
        try:
            yield
        finally:
            is_over.set()
            teller.join()
            self.seconds[name] = time.perf_counter() - start

    @contextmanager
    def following(self) -> Iterator[Callable[[str], None]]:
        """Stages one after another: what begins the one of a name, and so ends the one before."""
        with ExitStack() as running:

            def begin(name: str) -> None:
                running.close()
                running.enter_context(self.stage(name))

            yield begin

    def _tell(self, name: str, start: float, is_over: threading.Event) -> None:
        if is_over.wait(self._delay):
            return
        number = self.names.index(name)
        bar = _bar(name, number, len(self.names))
        while True:
            seconds = time.perf_counter() - start
            if bar is not None:
                bar.set_postfix_str(f"{seconds:.0f} s")
            elif sys.stderr.isatty():
                print(f"\r{name} ({number + 1} of {len(self.names)}): {seconds:.0f} s", end="", file=sys.stderr)
                sys.stderr.flush()
            if is_over.wait(self._delay):
                break
        seconds = time.perf_counter() - start
        if bar is not None:
            bar.set_postfix_str(f"{seconds:.1f} s", refresh=False)
            bar.update()
            bar.close()
        else:
            again = "\r" if sys.stderr.isatty() else ""
            text = f"{again}{name} ({number + 1} of {len(self.names)}): {seconds:.1f} s"
            print(text, file=sys.stderr, flush=True)


def _bar(name: str, number: int, total: int) -> Any:
    """A bar over all stages, or None without tqdm."""
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    bar_format = "{desc:8}|{bar:20}| {n_fmt} of {total_fmt} stages{postfix}"
    return tqdm(initial=number, total=total, desc=name, bar_format=bar_format, file=sys.stderr)
