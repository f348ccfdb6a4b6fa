"""Settings of the test run: hypothesis is derandomised, has no deadline, and prints how to reproduce."""

import os

# Two processes share two cores: one thread each is fastest.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

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
settings.load_profile("codelet")


def pytest_configure(config: pytest.Config) -> None:
    """Share compilations between the processes of a run, and with the next run: they are most of what tests take."""
    cache = getattr(config, "cache", None)
    if cache is not None:
        jax.config.update("jax_compilation_cache_dir", str(cache.mkdir("jax")))
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
