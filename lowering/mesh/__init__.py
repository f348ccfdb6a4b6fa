"""The mesh: words of arrays that are dealt to devices, taken where they are and brought where they are not.

In come pieces, which word of a flat array each word is; out come functions inside `jax.shard_map`. `positions.py` and
`selection.py` take words of one array, `dealt.py` of arrays that differ by device, `crossing.py` brings them across.

`mesh_fused.py` is fused execution over a mesh, from a checked plan to a jaxpr: `choose_homes.py` says where variables
live (`homes.py`), `dealing.py` which vertices run where, `core_and_edges.py` which of them need what other devices
have; `local_steps.py` plans a compute set for each device, by subfamilies (`subfamilies.py`) over parts of sources
(`parts.py`) that hold what is touched (`touching.py`), which `addresses.py` finds; `device_fused.py` runs that.

Values of streams come as variables are cut (`fed.py`). `processes.py` has what is otherwise where the devices of a mesh
are of several processes.
"""
