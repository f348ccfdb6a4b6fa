"""Whether two programs are equal: evaluated over a prime field, and distinguished by a witness in floats."""
