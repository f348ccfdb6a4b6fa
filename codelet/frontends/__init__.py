"""Front ends: programs written for something else, as graphs of vertices.

In comes a function of JAX and examples of its arguments; out comes a `Traced`: the graph, its program, its inputs and
outputs. Everything is added by the operations of `codelet/ops` and by `graph.add_vertex`, as a user would.

    trace, traced          `cl.trace`, and what it returns
    arguments              pytrees whose leaves are arrays, or else static
    walk                   from equation to equation: values, steps of the program, labels
    labels                 scopes, modules and lines that equations are of
    rules                  which primitive is added by which function
    elementwise, views, products, ragged_products, reductions, windows, indexing, random_numbers, linear_algebra
                           the rules, by kind
    calls, loops           functions, loops and choices
    replaced               jitted functions that a user has written by hand
    by_element, element_functions
                           what equations do to single elements
    for_each               a vertex for each matrix, line or key of a batch
    rule_table             the table of docs/frontends.md, made of the rules
    one_vertex             what has no rule: a vertex that runs the primitive
    read_together          what elementwise equations read at the same places
    references             an error where arrays are changed in place
    passes                 from jaxpr to jaxpr, before anything is added
"""
