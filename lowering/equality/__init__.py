"""Whether two programs are equal: evaluated over a prime field, and told apart by a witness in floats."""
