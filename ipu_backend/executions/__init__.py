"""Executions of a plan on tiles: arrays of tiles by words, and the planned addresses."""
