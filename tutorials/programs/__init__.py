"""Whole programs, each beside its plain JAX twin: `python -m tutorials.programs.NAME`, from the root of a checkout."""
