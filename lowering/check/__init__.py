"""Checks: what is wrong with a plan, told before anything runs. A plan comes in, and out comes the same or an error."""
