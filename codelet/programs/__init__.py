"""Programs: what runs in which order, what may be in them, and what they mean one vertex at a time."""
