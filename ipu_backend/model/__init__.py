"""The model of the IPU: its numbers, what a vertex costs on it, and a profile of what a plan costs."""
