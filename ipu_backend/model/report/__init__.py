"""Reports: all that a profile knows, in tables; what of it is worth mending; and a page that shows it.

`record.py` has the tables and writes them as JSON; `recorded_steps.py`, `recorded_memory.py` and `recorded_graph.py`
fill them from a profile.
"""
