"""Several processes on this machine, connected over loopback by `jax.distributed`, each with two host devices.

`together("job")` starts them on a function of `tests/process_jobs.py` and waits. In each, names are hashed otherwise,
so that nothing may hang on the order of sets. Run as a program, this module is one of the processes.
"""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
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


PORTS = (1 << 16) - (1 << 12)
"""The first of the ports of which JAX takes one for the coordinator, by the number of a SLURM job."""


def free_port(ports: Iterable[int]) -> int:
    """The first of some ports that is free; of port 0, any."""
    for port in ports:
        with contextlib.suppress(OSError), socket.socket() as own:
            own.bind(("127.0.0.1", port))
            return own.getsockname()[1]
    raise OSError("no port is free")


def start(job: str, *arguments: object, count: int = 2) -> list[subprocess.Popen[str]]:
    """Start processes on a job."""
    port = free_port([0])
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


def as_slurm_starts(command: Sequence[str], folder: Path, count: int = 2) -> list[subprocess.Popen[str]]:
    """Start processes of a program with the variables that SLURM would set for a job of one machine."""
    job = free_port(range(PORTS, 1 << 16)) - PORTS
    processes = []
    for k in range(count):
        slurm = {
            "SLURM_JOB_ID": job,
            "SLURM_STEP_NODELIST": "localhost",
            "SLURM_NTASKS": count,
            "SLURM_STEP_NUM_TASKS": count,
        }
        slurm |= {"SLURM_PROCID": k, "SLURM_LOCALID": k}
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}"
        environment = {**os.environ, **{name: str(value) for name, value in slurm.items()}, "XLA_FLAGS": flags}
        environment |= {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": str(k + 1)}
        processes.append(
            subprocess.Popen(
                command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
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
