"""The adjoint: the backward pass of a program, as vertices and programs of the same graph.

A checked plan comes in, and what is differentiated by what; out come cotangents, and the programs that make them.
"""
