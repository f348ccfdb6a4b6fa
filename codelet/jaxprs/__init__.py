"""Jaxprs: the properties of their primitives, and how they are traversed, run and rebuilt.

Readers of jaxprs ask here: the front ends, which make graphs of them, and the lowering, which makes them of graphs.
"""
