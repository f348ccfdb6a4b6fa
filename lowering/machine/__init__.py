"""The machine: the tile of everything, exchange between tiles, live ranges and addresses.

A checked plan comes in; out come a `Placement`, an `Exchange`, a `Liveness` and a `Memory`, and cycles by step.
"""
