"""The table of contents of the lowering: every pass, in order, with the room and the file that it is in.

    decorated functions, vertices, a program        codelet/
    plan   -> normal-form families, steps           collect (join_ragged, split_exceptions: rules of it)
           -> reads and writes of every step        dataflow (touch, control; by them the solver, which
                                                      initialized, prune, zeros, rotate and liveness ask)
    check  -> checked                               check (races, aliases, initialized, sizes, nesting)
    fast   -> without what no output needs          prune
           -> zeros copied to whole variables       zeros
           -> copies in loops as changes of place   rotate, and prune again
    join   -> families that are all of one, as it   join: of a compute set phases (strided_phases), blocks
                                                      (whole_steps: refine, by unmap and slices_unmapped;
                                                      alike_families), over several partial sums (compose, by
                                                      key_parts), beside which uneven blocks write other results too;
                                                      products of what these multiply. What may be whole
                                                      (partition_of: lattice_pieces, recognise) is checked
                                                      (exact_cover); what is alike but for its variables once
                                                      (alike_steps)
    fast   -> how each compute set and copy runs    compute_sets: what is read (short_axes, extend; inputs, by sources,
                                                      patchwork, reads, partition), by which
                                                      kernel (kernels: ragged by segments and row_rules,
                                                      convolutions, pooling (moving_windows of both;
                                                      result_order of pooling and vmapped), vmapped
                                                      with reduced_windows, by window_reductions,
                                                      small_windows, draws and reduced_as_it_lies), how
                                                      all is written (writes, by assembly); which kernels and
                                                      rules are meant for the platform (platforms); calls
                                                      in a row as loops (calls)
           -> a pure JAX function                   steps (feeds, forward_only, derivatives, execution), which only
                                                      follows that
    jaxprs -> traced                                simplify (remade, traced_once: of what rules make of equations)
           -> one array for equal tables            equal_constants
           -> booleans for tables that are compared compare_tables
           -> numbers for arrays that are one       one_number
           -> gathers, scatters in memory's order   slice_order
           -> nothing for places that lie within    within_bounds (intervals), in codelet/jaxprs
           -> slices at places as such              one_slice: slice_roots
           -> parts of what is repeated, once       repeat_less
           -> sums of products contracted           contract
           -> dots of what lies in memory           dots_in_memory_order (contraction), and contract of these
           -> parts and copies of tables one        join_tables (summed, tables_of_updates, blocks_of_rows,
                                                      scatters_side_by_side, order_of_tables)
           -> dimensions of one element left out    single_dimensions
           -> results made in the shapes they have  map_shapes, reduce_in_shape (of parts apart);
                                                      dots_in_memory_order of these
           -> reshapes, transposes in a row as one  reshape_once (stretches)
           -> products of parts side by side one    products_side_by_side (parts)
           -> what turns take parts of sliced once  slice_before_loops
           -> rows of what loops take columns of    columns_as_rows
           -> what is read of updates as what was put
                                                    forward_updates (counted_rows)
           -> rows scanned over, and stacked        scan_rows (counted_rows; parts)
           -> turns that only map rows, at once     turns_at_once
           -> loops that carry what they extend     carry_extended
           -> updates that XLA would miscompile     in_place
           -> updates that XLA runs over all of it  small_updates
           -> slow reductions done by halves        reduce_by_halves
           -> slow products made in other ways      narrow_products, thin_products
           -> products only rounded rounded at once rounded_products
           -> cheap steps of loops done again       recompute
           -> masks of positions broadcast          single_dimensions
           -> no sums of shares that are results    shares_summed
    lower  -> a function                            slopes; what each step moves fast/work (moved)
           -> branches that call the host           choices_of_host
           -> where it is differentiated (slopes):
              slopes of rows changed in place       scan_rows
              slopes of maxima that hold            winners
              slopes of updates that add            added_in_place
              slopes of small slices                slices_together

Over a mesh (`mesh/mesh_fused.py`) the passes up to join are followed by: where variables live (choose_homes),
each compute set for each device (local_steps, by compute_sets), and from `steps` on the same.

`plan_graph` ends where fast execution and the model of the machine part: both start from its result. The
machine is planned by `plan_machine`, from the unfused plan:

    a checked plan                                    plan_graph, plan_engine
    machine -> the tile of every element and vertex   place: the cheapest by step_cycles (superstep, phases) of
                                                      candidates (placer, votes, balance, blocks, footprint); of
                                                      irregular plans parts (irregular: hypergraph, partitioners,
                                                      unit_model, unit_moves, orders); constrained
            -> what moves between tiles in every step exchange (touched, multicast, region, messages, words)
            -> what is live when, and where           liveness (live_variables: of the plan alone)
            -> an address for all of it               memory
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import jax
from jax.extend import core as jax_core

from codelet.display import as_html
from codelet.garbage import collecting_seldom
from codelet.graphs.graph import Graph
from codelet.programs.program import Program
from codelet.views.sources import Variable
from codelet.views.tensor import Tensor
from lowering.check.check import check, check_graph
from lowering.check.nesting import nesting_told
from lowering.check.sizes import check_machine_size
from lowering.fast.compute_sets import choose_kernels
from lowering.fast.prune import prune
from lowering.fast.rotate import rotate
from lowering.fast.steps import emit
from lowering.fast.zeros import copy_few_zeros
from lowering.jaxprs.simplify import trace_simplified
from lowering.join.join import join
from lowering.machine.exchange import Exchange, plan_exchange
from lowering.machine.liveness import Liveness, live_ranges
from lowering.machine.memory import Memory, plan_memory
from lowering.machine.place import Method, place_and_exchange
from lowering.machine.placement import Placement
from lowering.plan.collect import collect
from lowering.plan.dataflow import flow
from lowering.plan.plan import Plan
from lowering.plan.steps import Step
from lowering.plan.streams import copied_streams, fed_types
from lowering.platforms import lowering_for, platform_now


def plan_graph(graph: Graph, program: Program, inputs: Sequence[Variable], outputs: Sequence[Tensor]) -> Plan:
    """A checked plan of a graph and program, as a function of its inputs."""
    with collecting_seldom():
        return check(flow(collect(graph, program, inputs, outputs)))


def plan_part(
    plan: Plan,
    steps: Sequence[Step],
    given: Sequence[Variable] = (),
    made: Collection[Variable] = (),
    left: Collection[Variable] = (),
) -> Plan:
    """Some steps of a plan, on state: all variables that they touch are inputs, all that they write outputs.

    Args:
        plan: the plan.
        steps: some of its steps.
        given: more inputs, which need not be variables of the graph.
        made: variables that are not inputs: the steps write all of each before they read any of it.
        left: those of them that are not outputs either.
    """
    writes = {variable for step in steps for variable in step.writes}
    touched = writes | {variable for step in steps for variable in step.reads}
    inputs = tuple(v for v in plan.variables if v in touched and v.value is None and v not in made)
    outputs = tuple(plan.graph.variable(v.name) for v in plan.variables if v in writes and v not in left)
    copied = copied_streams(steps)
    streams = tuple(stream for stream in plan.streams if stream in copied)
    return replace(plan, steps=tuple(steps), inputs=(*inputs, *given), outputs=outputs, streams=streams)


def plan_engine(graph: Graph, program: Program) -> Plan:
    """A checked plan of a graph and program on state: all variables that it touches are inputs, all that it writes
    outputs.

    Initialisation is not checked, since the host may write any element.
    """
    plan = flow(collect(graph, program, (), ()))
    return check_graph(plan_part(plan, plan.steps))


def plan_fast(plan: Plan) -> Plan:
    """The plan that fast execution runs, with the way of running each compute set and copy. It prints."""
    with nesting_told(plan.steps), collecting_seldom():
        pruned = prune(rotate(copy_few_zeros(prune(plan))))
        fast = choose_kernels(join(pruned))
    needed = set(pruned.families)
    unneeded = tuple(family for family in plan.families if family not in needed)
    return replace(fast, unneeded=unneeded, platform=platform_now())


def compile_fast(plan: Plan) -> jax_core.ClosedJaxpr:
    """The jaxpr of a plan of `plan_fast`, for the platform that it was made for, with its tables as constants."""
    structs = [jax.ShapeDtypeStruct(variable.shape, variable.dtype) for variable in plan.inputs]
    with nesting_told(plan.steps), collecting_seldom(), lowering_for(plan.platform):
        return trace_simplified(emit(plan), *structs, *fed_types(plan), inputs="apart")


def compile_plan(plan: Plan) -> jax_core.ClosedJaxpr:
    """The jaxpr of a checked plan."""
    return compile_fast(plan_fast(plan))


@dataclass(frozen=True, eq=False)
class MachinePlan:
    """A plan on the machine: the result of each pass. Made by `Engine.machine`; it and its parts print.

    Attributes:
        placement: the tile of every element and vertex.
        exchange: the words that each tile sends and receives, by step.
        liveness: the live range of every variable.
        memory: the address of every variable and other occupant of each tile, in bytes.

    >>> import codelet as cl
    >>> graph = cl.Graph(cl.IPU(num_tiles=2))
    >>> x, i = graph.add_variable("x", (4,)), cl.grid(4)
    >>> y = graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i])
    >>> plan = cl.Engine(graph).machine()
    >>> print(plan.exchange)
    exchange between 2 tiles
      0 execute double
    >>> print(str(plan.memory).splitlines()[0])
    memory of 2 tiles: 7,972 bytes
    """

    placement: Placement
    exchange: Exchange
    liveness: Liveness
    memory: Memory

    def __repr__(self) -> str:
        return f"<MachinePlan of {self.placement.plan.graph!r}: {self.memory!r}>"

    def __str__(self) -> str:
        return "\n".join(map(str, (self.placement, self.exchange, self.liveness, self.memory)))

    def _repr_html_(self) -> str:
        passes = {name: getattr(self, name) for name in ("placement", "exchange", "liveness", "memory")}
        return as_html(repr(self), folded=passes)


def plan_machine(
    plan: Plan,
    placement: Placement | Method = "balanced",
    *,
    keep: Collection[Variable] | None = None,
    allow_out_of_memory: bool = False,
) -> MachinePlan:
    """A checked plan on the machine.

    Args:
        plan: the unfused plan.
        placement: a placement of the plan without calls, or a method of `place`.
        keep: the variables that hold a value before and after the program; see `live_ranges`.
        allow_out_of_memory: report a tile that is out of memory instead of raising.

    Raises:
        OutOfTileMemoryError: a tile needs more than its memory.
        SizeError: planning would need more memory than this computer has.
        CyclesError: a codelet's `cycles=` fails.
    """
    if not allow_out_of_memory:
        check_machine_size(plan, keep)
    given = isinstance(placement, Placement)
    with collecting_seldom():
        exchange = plan_exchange(placement) if given else place_and_exchange(plan, placement)
        liveness = live_ranges(exchange, keep)
        memory = plan_memory(liveness, allow_out_of_memory=allow_out_of_memory)
    return MachinePlan(exchange.placement, exchange, liveness, memory)
