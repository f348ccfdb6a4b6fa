"""Programs over a prime field: what they compute where numbers are exact, and all else is not interpreted."""
