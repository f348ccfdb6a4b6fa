"""The version of codelet, stated here alone: `pyproject.toml` reads it from this file, so that no tag is needed."""

VERSION = "0.1.0"
