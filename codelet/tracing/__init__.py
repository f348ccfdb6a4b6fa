"""Tracing: Python functions as codelets.

In come a function and the types of its fields; out comes a `TracedCodelet`, a jaxpr with named inputs and outputs.
"""
