"""Programs: their kinds, their checks, and their meaning one vertex at a time."""
