"""The functions that compute each operation, a file for each family of them."""

from codelet.stablehlo.operations import (  # noqa: F401 (they enter themselves in the table)
    array_moves,
    contractions,
    element_wise,
    library_calls,
    module_calls,
    places,
    reducing,
    regions,
    sorting,
)
