"""The plan: families in normal form, the program as a tree of steps, what each step reads and writes.

In come a graph and a program; out comes a `Plan`, which all later passes take, and some give anew.
"""
