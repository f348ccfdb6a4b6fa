"""Models: some written in codelets, others plain JAX or Equinox as users bring them.

They see the language alone: no lowering, no machine. `mnist.py` is written in codelets; `networks.py` names the
others, which know nothing of graphs.
"""
