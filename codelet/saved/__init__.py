"""Saved: graphs, programs and traced functions as files, and readers of these.

In come live objects. Out comes one file: an uncompressed zip (`archive.py`) of a manifest, the graph and its codelets
as JSON (`graph_writer.py`, `codelet_tables.py`), and arrays (`safetensors.py`). Nothing of a file is imported,
unpickled or evaluated: readers know every form by name, check every number against its bounds, and build by the same
classes as users do. `docs/howto/files.md` has the format and its promises.
"""
