"""Jaxprs: walking, rebuilding and rewriting them. A jaxpr comes in, and out comes a better one that means the same."""
