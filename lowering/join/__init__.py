"""Join: families that an operation was cut into are that operation again, where a check shows that they are all of it.

Nothing here searches: what the families may be a partition of is read off their steps (`recognise`), and is believed
only where every point of it is computed once, by a vertex that does just that (`exact_cover`).
"""
