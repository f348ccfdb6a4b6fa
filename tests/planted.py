"""Which test finds a fault in each rule on jaxprs: `python -m tests.planted [RULE ...] [--tests FILE ...]`.

Each rule of `lowering/jaxprs/simplify.py` makes a mistake in turn wherever it changes a jaxpr
(`tests/planted_plugin.py`), and the quick tests run in a fresh process until the first fails: those that name the rule
first, then those by pattern.
Before that all of them run without a fault, and have to pass.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.ablation import RULES

ROOT = Path(__file__).parents[1]
TESTS = ("tests/test_patterns.py", "tests/patterns", "tests/test_programs.py", "tests/test_npbench.py")


def run_with_fault(rule: str, files: Sequence[str], seed: int = 0) -> dict[str, Any]:
    """The report of a run of some tests with a fault in a rule, up to the first test that fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        told = {"CODELET_PLANTED": rule, "CODELET_PLANTED_REPORT": str(path), "CODELET_PLANTED_SEED": str(seed)}
        options = ["-n", "0", "-p", "no:randomly", "-p", "tests.planted_plugin", "-q", *["-x"] * bool(rule)]
        command = [sys.executable, "-m", "pytest", *options, *files]
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, **told}, capture_output=True, text=True)
        kept = json.loads(path.read_text()) if path.exists() else {"broken": ["no report"], "failed": []}
        return {"collected": 0, "planted": 0, **kept, "status": done.returncode, "output": done.stdout[-2000:]}


def verdict(report: dict[str, Any]) -> str:
    """How a run ended, in words."""
    if report["broken"]:
        return f"COLLECTION ERROR in {', '.join(report['broken'])}"
    if not report["collected"]:
        return "NO TEST RAN"
    if report["failed"]:
        return f"`{report['failed'][0].removeprefix('tests/')}`"
    if report["status"]:
        return f"pytest ended with {report['status']}"
    if not report["planted"]:
        return f"NO FAULT was planted: the rule changed {report.get('changed', 0)} jaxprs"
    return "NOT FOUND"


def main(argv: Sequence[str] | None = None) -> int:
    """Print by which test the fault in each rule is found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rules", nargs="*", metavar="RULE", help="all when none is named")
    parser.add_argument("--tests", nargs="+", metavar="FILE", default=TESTS, help="the tests, in order")
    parser.add_argument("--seed", type=int, default=0, help="of the faults")
    arguments = parser.parse_args(argv)
    control = run_with_fault("", arguments.tests)
    if control["failed"] or control["broken"] or control["status"] or not control["collected"]:
        print(f"without a fault: {verdict(control)}\n{control['output']}")
        return 1
    print(f"Without a fault {control['passed']} of {control['collected']} tests pass.\n")
    print("| rule | found by | faults planted until then |\n|---|---|---:|")
    missed = 0
    for rule in arguments.rules or RULES:
        report = run_with_fault(rule, arguments.tests, arguments.seed)
        missed += not report["failed"] or bool(report["broken"])
        print(f"| `{rule}` | {verdict(report)} | {report['planted']} |", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
