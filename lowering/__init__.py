"""From graphs to pure JAX functions. `pipeline.py` is the table of contents."""

from lowering.adjoint.gradient import Gradient as Gradient
from lowering.adjoint.gradient import gradient as gradient
from lowering.adjoint.recompute import Recompute as Recompute
from lowering.builders import LoweredFunction as LoweredFunction
from lowering.builders import lower as lower
from lowering.equality.answer import Equality as Equality
from lowering.equality.answer import Witness as Witness
from lowering.equality.equal import equal as equal
from lowering.gradient_check.check_gradient import check_gradient as check_gradient
from lowering.gradient_check.report import GradientCheck as GradientCheck
from lowering.lower import Lowered as Lowered
from lowering.plan.plan import Plan as Plan
