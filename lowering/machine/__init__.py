"""The machine: the tile of everything, what moves between tiles, what is live when, and at which address.

A checked plan comes in; out come a `Placement`, an `Exchange`, a `Liveness` and a `Memory`, and cycles by step.
"""
