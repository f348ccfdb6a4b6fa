"""Several processes on this machine, connected over loopback by `jax.distributed`, each with two host devices.

`together("job")` starts them on a function of `tests/process_jobs.py` and waits. In each, names are hashed otherwise,
so that nothing may hang on the order of sets. Run as a program, this module is one of the processes.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).parents[1]
DEVICES = 2
"""Of each process."""
HEARTBEAT = 10
"""Seconds after which a process that is silent is taken for dead, and for which one that ends waits for others."""


@dataclass
class Ended:
    """A process that has ended: its exit code, what it wrote, and after how many seconds."""

    code: int
    said: str
    seconds: float


def start(job: str, *arguments: object, count: int = 2) -> list[subprocess.Popen[str]]:
    """Start processes on a job."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = []
    for k in range(count):
        command = [sys.executable, "-m", "tests.processes", str(k), str(count), str(port), job, *map(str, arguments)]
        environment = {**os.environ, "PYTHONHASHSEED": str(k + 1), "JAX_PLATFORMS": "cpu"}
        processes.append(
            subprocess.Popen(
                command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
        )
    return processes


def ended(processes: Sequence[subprocess.Popen[str]], seconds: float) -> list[Ended]:
    """What has become of processes; those that still run after so many seconds are killed, which is their exit code."""
    begun, found = monotonic(), []
    try:
        for process in processes:
            try:
                said, _ = process.communicate(timeout=max(0.1, begun + seconds - monotonic()))
            except subprocess.TimeoutExpired:
                for each in processes:
                    each.kill()
                said, _ = process.communicate()
            found.append(Ended(process.returncode, said, monotonic() - begun))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return found


def together(job: str, *arguments: object, seconds: float = 300, count: int = 2) -> list[str]:
    """What processes wrote that have done a job, all of them without an error."""
    found = ended(start(job, *arguments, count=count), seconds)
    for k, own in enumerate(found):
        assert own.code == 0, f"process {k} ended with {own.code}:\n{own.said}"
    return [own.said for own in found]


def main(number: str, count: str, port: str, job: str, *arguments: str) -> None:
    """Be one of the processes."""
    import jax

    jax.config.update("jax_num_cpu_devices", DEVICES)
    jax.distributed.initialize(
        f"127.0.0.1:{port}",
        int(count),
        int(number),
        initialization_timeout=60,
        heartbeat_timeout_seconds=HEARTBEAT,
        shutdown_timeout_seconds=HEARTBEAT,
    )
    from tests import process_jobs

    getattr(process_jobs, job)(*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
