"""Benchmarks: graphs of vertices beside the plain JAX that an expert would write for the same mathematics.

`python -m benchmarks NAME...` runs them, all when none is named. Each family has a file, and says there
what it measures; `benchmarks/harness.py` says how.
"""
