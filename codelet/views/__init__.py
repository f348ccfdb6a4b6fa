"""Views: tensors of variables by NumPy's rules, as index arithmetic on symbols of grids.

In comes an expression that a user writes between brackets; out come `Tensor`s, each a source and an `Index` into it.
"""
