"""Gradients checked: what derivatives say of vertices and of programs, beside what differences of values do.

A graph, a program and values come in; out comes which gradients are right, and which vertex and field are wrong.
"""
