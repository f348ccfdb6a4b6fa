"""Host memory: whether what is to be made fits the memory of the computer that plans."""

from __future__ import annotations

import os

from codelet.errors import SizeError


def bytes_text(count: int) -> str:
    """A number of bytes in the unit that suits it."""
    for unit, name in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= unit:
            return f"{count / unit:,.1f} {name}"
    return f"{count:,} bytes"


def host_memory() -> int | None:
    """Bytes of memory that this computer has; None where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def check_host_memory(num_bytes: int, what: str) -> None:
    """See that something fits this computer's memory.

    Raises:
        SizeError: it does not: saying what, and how much it would need.
    """
    has = host_memory()
    if has is not None and num_bytes > has:
        raise SizeError(
            f"this computer's memory does not hold {what}",
            given=f"{bytes_text(num_bytes)} would be needed",
            expected=f"at most {bytes_text(has)}",
        )
