"""Checks: the mistakes of a plan, reported before anything runs. A plan comes in, and out comes the same or
an error.
"""
