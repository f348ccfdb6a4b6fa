"""The mesh: words of arrays whose rows are dealt to devices, taken where they are and brought where they are not.

In come pieces, which word of a flat array each word is; out come functions inside `jax.shard_map`. `positions.py` and
`selection.py` take words of one array, `dealt.py` of arrays that differ by device, `crossing.py` brings them across.
"""
