"""From graphs to pure JAX functions. `pipeline.py` is the table of contents."""

from lowering.lower import Lowered as Lowered
from lowering.lower import LoweredFunction as LoweredFunction
from lowering.lower import lower as lower
from lowering.plan import Plan as Plan
