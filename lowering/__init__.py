"""From graphs to pure JAX functions. `pipeline.py` is the table of contents."""
