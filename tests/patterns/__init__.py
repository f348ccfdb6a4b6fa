"""Patterns of programs that rules on jaxprs are for: a file each; `every.py` has all, `pattern.py` what each is."""
