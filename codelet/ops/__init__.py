"""Operations made of codelets, planned over the tiles of a machine by their cycles: what Poplar's PopLibs are.

Each is a plain function of a graph and tensors: it adds compute sets in a scope of its name, and returns tensors. It is
built of codelets and `graph.add_vertex` alone, as a user's own operation would be, and differentiated through
`cl.lower`; every one that has a gradient has it as an operation as well.

    arguments, blocks      what operations are given, and vertices block by block
    planning, partials     the search for the cheapest way, and sums of partial results
    matmul                 matrix products (product_planning plans them)
    elementwise            any function of elements (element_functions, element_layout; elementwise_planning plans it)
    choices                select, clamp, cast
    fill                   numbers made of nothing
"""

from codelet.ops.choices import cast as cast
from codelet.ops.choices import cast_gradient as cast_gradient
from codelet.ops.choices import clamp as clamp
from codelet.ops.choices import clamp_gradient as clamp_gradient
from codelet.ops.choices import select as select
from codelet.ops.choices import select_gradient as select_gradient
from codelet.ops.choices import select_n as select_n
from codelet.ops.choices import select_n_gradient as select_n_gradient
from codelet.ops.elementwise import map as map
from codelet.ops.elementwise import map_gradient as map_gradient
from codelet.ops.elementwise import plan_map as plan_map
from codelet.ops.fill import fill as fill
from codelet.ops.fill import iota as iota
from codelet.ops.matmul import dot_general as dot_general
from codelet.ops.matmul import dot_general_gradients as dot_general_gradients
from codelet.ops.matmul import matmul as matmul
from codelet.ops.matmul import matmul_gradients as matmul_gradients
from codelet.ops.matmul import plan_matmul as plan_matmul
