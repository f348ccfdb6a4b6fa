"""Programs over a prime field: they are evaluated where numbers are exact, and all other operations are
uninterpreted.
"""
