"""Graphs: variables, families of vertices with their edges, compute sets, scopes.

In come codelets and views; out comes a `Graph`, and `Vertex`es of it on demand.
"""
