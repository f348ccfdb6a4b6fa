"""Fast execution: a plan as a pure JAX function on arrays in logical order.

A checked plan comes in; out comes a function that JAX traces, whose jaxpr `lowering/jaxprs` then rewrites.
"""
