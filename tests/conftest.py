"""Settings of the test run: hypothesis is derandomised, has no deadline, and prints how to reproduce."""

import gc
import os
from importlib.metadata import version

# Two processes share two cores: one thread each is fastest.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Plans are made anew: a test would find those of another run.
os.environ.setdefault("CODELET_CACHE", "0")

import jax
import pytest
from hypothesis import HealthCheck, settings

from tests.examples import FACTOR

settings.register_profile(
    "codelet",
    derandomize=True,
    max_examples=100 * FACTOR,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
# Drawn anew at every run, by `--hypothesis-seed`: what `tests/campaign.py` asks for.
settings.register_profile("campaign", settings.get_profile("codelet"), derandomize=False, database=None)
settings.load_profile("codelet")

_COMPILED_SOON = (
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
)
"""Flags for programs that run once, for less than they take to compile: a quarter of the time, for the same HLO.

Slow tests are compiled as users compile, and so is everything where XLA may not know these flags: it would abort.
"""


def _compile_soon() -> None:
    """Set the flags, for this process and those it starts, unless somebody else has set some."""
    if version("jaxlib").startswith("0.10."):
        os.environ.setdefault("XLA_FLAGS", " ".join(_COMPILED_SOON))


DEVICES = 8
"""How many devices the host has for tests of meshes; all others use the first."""


def pytest_configure(config: pytest.Config) -> None:
    """Compile quick tests quickly; share what others compile between the processes of a run, and with the next run."""
    gc.disable()  # what is imported stays, and to look through it for garbage is a third of what collecting tests takes
    if "device_count" not in os.environ.get("XLA_FLAGS", ""):
        jax.config.update("jax_num_cpu_devices", DEVICES)
    cache = getattr(config, "cache", None)
    if config.getoption("markexpr") == "not slow":
        _compile_soon()  # sooner than it takes to keep it: 5 % of all tests went there
    elif cache is not None:
        jax.config.update("jax_compilation_cache_dir", str(cache.mkdir("jax")))
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


def pytest_collection_finish() -> None:
    """Look for garbage seldom, and not among all that was imported: 1 to 6 % of the time went there."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()
