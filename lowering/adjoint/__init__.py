"""The adjoint: the backward pass of a program, as vertices and programs of the same graph.

A checked plan comes in, and the tensors to differentiate, and with respect to which; out come cotangents, and the
programs that make them.
"""
