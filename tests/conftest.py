"""Settings of the test run: hypothesis is derandomised, has no deadline, and prints how to reproduce."""

import os

# Two processes share two cores: one thread each is fastest.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from hypothesis import HealthCheck, settings

settings.register_profile(
    "codelet",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("codelet")
