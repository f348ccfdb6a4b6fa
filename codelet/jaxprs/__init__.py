"""Jaxprs: what is known of their primitives, and how they are looked through, run and rebuilt.

What reads jaxprs asks here: the front ends, which make graphs of them, and the lowering, which makes them of graphs.
"""
