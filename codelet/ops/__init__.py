"""Operations made of codelets, planned over the tiles of a machine by their cycles: the counterpart of Poplar's
PopLibs.

Each is a plain function of a graph and tensors: it adds compute sets in a scope of its name, and returns tensors. It is
built of codelets and `graph.add_vertex` alone, as a user's operation would be, and differentiated through `cl.lower`;
every one that has a gradient has it as an operation as well.

    arguments, blocks      what operations are given, and vertices block by block
    schema                 what arguments that are no tensors may be, by name
    planning, partials     the search for the cheapest way, and sums of partial results
    ways, prices           ways to cut a grid in columns, and what vertices and steps take with each
    homes, followed        where operands lie, and the plan of an operation of several parts
    blockwise              what is done to the blocks of a grid: works, of which most operations are (block_planning
                           plans them, of the blocks that likely_blocks finds; work_prices)
    reduce                 sum, prod, max, min, all, any (reduce_gradients); arg_reduce: argmax, argmin
    cumulative             running sums, products, largest and smallest, and their gradients
    pairs                  a codelet for all workers of a tile, and the same of one
    norm                   batch, layer and group norm (norm_codelets, normalizing)
    rms_norm               root-mean-square norm
    moments                means, variances, averages that run from step to step
    cross_entropy          cross-entropy with probabilities or classes
    softmax                softmax, log_softmax, logsumexp (rows: whole ones, or cut ones by steps)
    dot_general, matmul    matrix products (product_planning: as works, in several turns)
    random                 random numbers, dropout, keys (random_codelets: from counters to numbers)
    recurrent              cells of recurrent networks
    attention, multi_head  attention of queries to keys; with projections
    sort, top_k            sorting, the greatest elements (sort_planning; lines; put_lines: their gradients)
    convolution            convolutions and their gradients (convolved: what they all are; conv_arguments; conv_prices,
                           conv_planning; windows: where windows lie)
    pooling                maximum and average pooling, and their gradients (pooling_codelets, pool_planning,
                           pool_vertices); reduce_window: sums, greatest and least elements of any windows
    elementwise            any function of elements (element_functions, element_layout)
    choices                select, clamp, cast
    fill                   numbers made of nothing
    indexing, lookups      gather and scatter, and the usual ones by name (lookup_planning plans them;
                           scatter_gradients)
    moves                  views of arrays end to end, padded, reversed
    optimisers             sgd, momentum, adam, adamw: all parameters a step on, in place
"""

from typing import Any

from codelet.deprecated import OLD_OPERATIONS as _OLD_OPERATIONS
from codelet.deprecated import warn_old as _warn_old
from codelet.ops.arg_reduce import argmax as argmax
from codelet.ops.arg_reduce import argmin as argmin
from codelet.ops.attention import dot_product_attention as dot_product_attention
from codelet.ops.attention import dot_product_attention_gradient as dot_product_attention_gradient
from codelet.ops.choices import cast as cast
from codelet.ops.choices import cast_gradient as cast_gradient
from codelet.ops.choices import clamp as clamp
from codelet.ops.choices import clamp_gradient as clamp_gradient
from codelet.ops.choices import select as select
from codelet.ops.choices import select_gradient as select_gradient
from codelet.ops.choices import select_n as select_n
from codelet.ops.choices import select_n_gradient as select_n_gradient
from codelet.ops.convolution import conv_general_dilated as conv_general_dilated
from codelet.ops.convolution import conv_input_gradient as conv_input_gradient
from codelet.ops.convolution import conv_kernel_gradient as conv_kernel_gradient
from codelet.ops.convolution import plan_conv as plan_conv
from codelet.ops.cross_entropy import cross_entropy as cross_entropy
from codelet.ops.cross_entropy import cross_entropy_gradient as cross_entropy_gradient
from codelet.ops.cross_entropy import cross_entropy_label_gradient as cross_entropy_label_gradient
from codelet.ops.cumulative import cummax as cummax
from codelet.ops.cumulative import cummax_gradient as cummax_gradient
from codelet.ops.cumulative import cummin as cummin
from codelet.ops.cumulative import cummin_gradient as cummin_gradient
from codelet.ops.cumulative import cumprod as cumprod
from codelet.ops.cumulative import cumprod_gradient as cumprod_gradient
from codelet.ops.cumulative import cumsum as cumsum
from codelet.ops.cumulative import cumsum_gradient as cumsum_gradient
from codelet.ops.dot_general import dot_general as dot_general
from codelet.ops.dot_general import dot_general_gradient as dot_general_gradient
from codelet.ops.elementwise import map as map
from codelet.ops.elementwise import map_gradient as map_gradient
from codelet.ops.elementwise import plan_map as plan_map
from codelet.ops.fill import fill as fill
from codelet.ops.fill import iota as iota
from codelet.ops.followed import plan_operation as plan_operation
from codelet.ops.indexing import gather as gather
from codelet.ops.indexing import gather_gradient as gather_gradient
from codelet.ops.indexing import plan_gather as plan_gather
from codelet.ops.indexing import scatter as scatter
from codelet.ops.lookups import dynamic_slice as dynamic_slice
from codelet.ops.lookups import dynamic_slice_gradient as dynamic_slice_gradient
from codelet.ops.lookups import dynamic_update_slice as dynamic_update_slice
from codelet.ops.lookups import dynamic_update_slice_gradient as dynamic_update_slice_gradient
from codelet.ops.lookups import embedding as embedding
from codelet.ops.lookups import embedding_gradient as embedding_gradient
from codelet.ops.lookups import take as take
from codelet.ops.lookups import take_gradient as take_gradient
from codelet.ops.matmul import matmul as matmul
from codelet.ops.matmul import matmul_gradient as matmul_gradient
from codelet.ops.matmul import plan_matmul as plan_matmul
from codelet.ops.moments import mean as mean
from codelet.ops.moments import mean_gradient as mean_gradient
from codelet.ops.moments import running_average as running_average
from codelet.ops.moments import running_average_gradient as running_average_gradient
from codelet.ops.moments import var as var
from codelet.ops.moments import var_gradient as var_gradient
from codelet.ops.moves import concatenate as concatenate
from codelet.ops.moves import concatenate_gradient as concatenate_gradient
from codelet.ops.moves import lax_pad as lax_pad
from codelet.ops.moves import lax_pad_gradient as lax_pad_gradient
from codelet.ops.moves import pad as pad
from codelet.ops.moves import reverse as reverse
from codelet.ops.multi_head import multi_head_attention as multi_head_attention
from codelet.ops.multi_head import multi_head_attention_gradient as multi_head_attention_gradient
from codelet.ops.norm import batch_norm as batch_norm
from codelet.ops.norm import batch_norm_gradient as batch_norm_gradient
from codelet.ops.norm import batch_norm_inference as batch_norm_inference
from codelet.ops.norm import batch_norm_inference_gradient as batch_norm_inference_gradient
from codelet.ops.norm import group_norm as group_norm
from codelet.ops.norm import group_norm_gradient as group_norm_gradient
from codelet.ops.norm import layer_norm as layer_norm
from codelet.ops.norm import layer_norm_gradient as layer_norm_gradient
from codelet.ops.optimisers import adam as adam
from codelet.ops.optimisers import adam_state as adam_state
from codelet.ops.optimisers import adamw as adamw
from codelet.ops.optimisers import momentum as momentum
from codelet.ops.optimisers import sgd as sgd
from codelet.ops.pooling import avg_pool as avg_pool
from codelet.ops.pooling import avg_pool_gradient as avg_pool_gradient
from codelet.ops.pooling import max_pool as max_pool
from codelet.ops.pooling import max_pool_gradient as max_pool_gradient
from codelet.ops.pooling import plan_max_pool as plan_max_pool
from codelet.ops.random import bernoulli as bernoulli
from codelet.ops.random import dropout as dropout
from codelet.ops.random import dropout_gradient as dropout_gradient
from codelet.ops.random import fold_in as fold_in
from codelet.ops.random import normal as normal
from codelet.ops.random import random_bits as random_bits
from codelet.ops.random import split_key as split_key
from codelet.ops.random import uniform as uniform
from codelet.ops.random_planning import plan_draw as plan_draw
from codelet.ops.recurrent import gru_cell as gru_cell
from codelet.ops.recurrent import gru_cell_gradient as gru_cell_gradient
from codelet.ops.recurrent import lstm_cell as lstm_cell
from codelet.ops.recurrent import lstm_cell_gradient as lstm_cell_gradient
from codelet.ops.reduce import all as all
from codelet.ops.reduce import any as any
from codelet.ops.reduce import max as max
from codelet.ops.reduce import min as min
from codelet.ops.reduce import plan_reduce as plan_reduce
from codelet.ops.reduce import prod as prod
from codelet.ops.reduce import sum as sum
from codelet.ops.reduce_gradients import max_gradient as max_gradient
from codelet.ops.reduce_gradients import prod_gradient as prod_gradient
from codelet.ops.reduce_gradients import sum_gradient as sum_gradient
from codelet.ops.reduce_window import reduce_window as reduce_window
from codelet.ops.reduce_window import reduce_window_tangent as reduce_window_tangent
from codelet.ops.rms_norm import rms_norm as rms_norm
from codelet.ops.rms_norm import rms_norm_gradient as rms_norm_gradient
from codelet.ops.scatter_gradients import old_scatter_gradient as _old_scatter_gradient
from codelet.ops.scatter_gradients import scatter_gradient as scatter_gradient
from codelet.ops.softmax import log_softmax as log_softmax
from codelet.ops.softmax import log_softmax_gradient as log_softmax_gradient
from codelet.ops.softmax import logsumexp as logsumexp
from codelet.ops.softmax import logsumexp_gradient as logsumexp_gradient
from codelet.ops.softmax import softmax as softmax
from codelet.ops.softmax import softmax_gradient as softmax_gradient
from codelet.ops.sort import argsort as argsort
from codelet.ops.sort import plan_sort as plan_sort
from codelet.ops.sort import sort as sort
from codelet.ops.sort import sort_gradient as sort_gradient
from codelet.ops.sort import sort_together as sort_together
from codelet.ops.top_k import plan_top_k as plan_top_k
from codelet.ops.top_k import top_k as top_k
from codelet.ops.top_k import top_k_gradient as top_k_gradient

__all__ = [
    "adam",
    "adam_state",
    "adamw",
    "all",
    "any",
    "argmax",
    "argmin",
    "argsort",
    "avg_pool",
    "avg_pool_gradient",
    "batch_norm",
    "batch_norm_gradient",
    "batch_norm_inference",
    "batch_norm_inference_gradient",
    "bernoulli",
    "cast",
    "cast_gradient",
    "clamp",
    "clamp_gradient",
    "concatenate",
    "concatenate_gradient",
    "conv_general_dilated",
    "conv_input_gradient",
    "conv_kernel_gradient",
    "cross_entropy",
    "cross_entropy_gradient",
    "cross_entropy_label_gradient",
    "cummax",
    "cummax_gradient",
    "cummin",
    "cummin_gradient",
    "cumprod",
    "cumprod_gradient",
    "cumsum",
    "cumsum_gradient",
    "dot_general",
    "dot_general_gradient",
    "dot_product_attention",
    "dot_product_attention_gradient",
    "dropout",
    "dropout_gradient",
    "dynamic_slice",
    "dynamic_slice_gradient",
    "dynamic_update_slice",
    "dynamic_update_slice_gradient",
    "embedding",
    "embedding_gradient",
    "fill",
    "fold_in",
    "gather",
    "gather_gradient",
    "group_norm",
    "group_norm_gradient",
    "gru_cell",
    "gru_cell_gradient",
    "iota",
    "lax_pad",
    "lax_pad_gradient",
    "layer_norm",
    "layer_norm_gradient",
    "log_softmax",
    "log_softmax_gradient",
    "logsumexp",
    "logsumexp_gradient",
    "lstm_cell",
    "lstm_cell_gradient",
    "map",
    "map_gradient",
    "matmul",
    "matmul_gradient",
    "max",
    "max_gradient",
    "max_pool",
    "max_pool_gradient",
    "mean",
    "mean_gradient",
    "min",
    "momentum",
    "multi_head_attention",
    "multi_head_attention_gradient",
    "normal",
    "pad",
    "plan_conv",
    "plan_draw",
    "plan_gather",
    "plan_map",
    "plan_matmul",
    "plan_max_pool",
    "plan_operation",
    "plan_reduce",
    "plan_sort",
    "plan_top_k",
    "prod",
    "prod_gradient",
    "random_bits",
    "reduce_window",
    "reduce_window_tangent",
    "reverse",
    "rms_norm",
    "rms_norm_gradient",
    "running_average",
    "running_average_gradient",
    "scatter",
    "scatter_gradient",
    "select",
    "select_gradient",
    "select_n",
    "select_n_gradient",
    "sgd",
    "softmax",
    "softmax_gradient",
    "sort",
    "sort_gradient",
    "sort_together",
    "split_key",
    "sum",
    "sum_gradient",
    "take",
    "take_gradient",
    "top_k",
    "top_k_gradient",
    "uniform",
    "var",
    "var_gradient",
]


def __getattr__(name: str) -> Any:
    if name in _OLD_OPERATIONS:
        _warn_old(f"ops.{name}", f"ops.{_OLD_OPERATIONS[name]}")
        return globals()[_OLD_OPERATIONS[name]]
    if (found := _old_scatter_gradient(name)) is not None:
        return found
    raise AttributeError(f"module 'codelet.ops' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
