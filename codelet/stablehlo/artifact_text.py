"""The text of a portable artifact of StableHLO, read in a process of its own.

jaxlib's reader of bytecode ends the process that it runs in on some of the artifacts that are damaged. So this file is
also a script: an artifact on standard input, its text on standard output.
"""

import contextlib
import signal
import subprocess
import sys

from jax.extend.mlir import deserialize_portable_artifact, ir
from jax.interpreters.mlir import make_ir_context

LONGEST_SECONDS, MOST_BYTES, BYTES_EACH = 60.0, 1 << 33, 64
"""What the process may take: seconds, and bytes of addresses, those for each byte of the artifact besides; seconds too
are more for large ones."""

_SECONDS_OF_BYTE = 1e-6


def read_artifact(data: bytes) -> str:
    """The text of an artifact, read by this process.

    Args:
        data: the artifact.
    """
    with make_ir_context():
        text = str(deserialize_portable_artifact(data))
        ir.Module.parse(text)  # what this process survives others do
    return text


def artifact_text(data: bytes) -> str:
    """The text of an artifact.

    Args:
        data: the artifact.

    Raises:
        ValueError: it is none, or is damaged.
    """
    command, longest = [sys.executable, "-P", __file__], LONGEST_SECONDS + _SECONDS_OF_BYTE * len(data)
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=longest, check=False)
    except subprocess.TimeoutExpired:
        raise ValueError(f"reading it takes longer than {longest:.0f} s") from None
    if done.returncode < 0:
        raise ValueError(f"it is damaged: reading it ends with {signal.Signals(-done.returncode).name}")
    if done.returncode:
        raise ValueError(done.stderr.decode(errors="replace").strip()[-300:])
    return done.stdout.decode()


def _main() -> None:
    data = sys.stdin.buffer.read()
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        most = MOST_BYTES + BYTES_EACH * len(data)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        text = read_artifact(data)
    except (ir.MLIRError, ValueError, RuntimeError, MemoryError) as error:
        sys.exit(str(error)[:300] or type(error).__name__)
    sys.stdout.buffer.write(text.encode())


if __name__ == "__main__":
    _main()
