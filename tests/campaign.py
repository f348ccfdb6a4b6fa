"""A long campaign: generated tests draw anew, with another seed in every round, until so many CPU hours are spent.

    python -m tests.campaign --hours 3 --seed 1 [what pytest takes: files, -k, -m]

Each round is a process of pytest that runs every generated test, quick and slow, in an order of its own. Failures are
printed as they are found, with what reproduces them; a table of how many cases each test drew comes last. Add
`CODELET_EXAMPLES=10` for ten times as many cases of each test in a round.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

COUNTS = re.compile(r"(\d+) passing\D+?(\d+) failing")
"""What statistics say of each phase, in the words of all releases of hypothesis."""

STATISTICS = "_hypothesis_stats"
"""Where hypothesis' plugin of pytest keeps in a report what it drew."""

PLAN = "CODELET_CAMPAIGN"
"""The variable of the environment that tells a round its plan."""


def cpu_seconds() -> float:
    """What this process and those it waited for have taken."""
    taken = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(own.ru_utime + own.ru_stime for own in taken)


class Round:
    """A plugin of pytest: runs generated tests alone, in an order drawn by the seed, for a time, and counts cases."""

    def __init__(self, seed: int, seconds: float, path: Path):
        self.seed, self.seconds, self.path = seed, seconds, path
        self.cases: collections.Counter[str] = collections.Counter()
        self.failed: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [own for own in items if hasattr(getattr(own, "obj", None), "hypothesis")]
        random.Random(self.seed).shuffle(items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for passing, failing in COUNTS.findall(report.__dict__.get(STATISTICS) or ""):
            self.cases[report.nodeid] += int(passing) + int(failing)
        if report.failed:
            self.failed.append(report.nodeid)
            print(f"\n{report.nodeid} with seed {self.seed}\n{report.longreprtext}\n", flush=True)
        self.path.write_text(json.dumps({"cases": self.cases, "failed": self.failed}))

    def pytest_runtest_logfinish(self) -> None:
        if cpu_seconds() > self.seconds:
            self.session.shouldstop = "the hours are spent"

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self.session = session


def run_round(seed: int, seconds: float, path: Path, arguments: list[str]) -> int:
    """One round, in this process."""
    how = ["-n", "0", "-q", "-m", "slow or not slow", "--hypothesis-profile=campaign", f"--hypothesis-seed={seed}"]
    how += ["--tb=no", "--no-header", "--disable-warnings"]
    return pytest.main([*how, *(arguments or ["tests"])], plugins=[Round(seed, seconds, path)])


def campaign(hours: float, seed: int, arguments: list[str]) -> int:
    """Rounds until the hours are spent; the number of failures."""
    cases: collections.Counter[str] = collections.Counter()
    failed: list[str] = []
    started = time.time()
    while (left := 3600 * hours - cpu_seconds()) > 0:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "counts.json"
            plan = json.dumps({"seed": seed, "seconds": left, "path": str(path)})
            subprocess.run([sys.executable, "-m", "tests.campaign", *arguments], env={**os.environ, PLAN: plan})
            if not path.exists():
                return 1
            found = json.loads(path.read_text())
        cases.update(found["cases"])
        failed += [f"{name} with seed {seed}" for name in found["failed"]]
        seed += 1
    for name, count in sorted(cases.items()):
        print(f"{count:8,} cases  {name}")
    print(
        f"{cases.total():8,} cases in {cpu_seconds() / 3600:.2f} CPU hours, {(time.time() - started) / 3600:.2f} hours"
    )
    print("\n".join(f"failed: {own}" for own in failed) or "none failed")
    return len(failed)


def main() -> int:
    if PLAN in os.environ:
        plan = json.loads(os.environ.pop(PLAN))
        return run_round(plan["seed"], plan["seconds"], Path(plan["path"]), sys.argv[1:])
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--hours", type=float, default=1.0, help="of CPU time")
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    own, arguments = parser.parse_known_args()
    return campaign(own.hours, own.seed, arguments)


if __name__ == "__main__":
    sys.exit(main())
