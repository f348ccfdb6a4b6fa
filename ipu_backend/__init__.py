"""The machine: IPU targets, the cost of graphs on them, and the engine that runs graphs on their model."""

from ipu_backend.model.costs import CyclesError as CyclesError
from ipu_backend.model.costs import UnknownCyclesWarning as UnknownCyclesWarning
from ipu_backend.model.ipu import IPU as IPU
from ipu_backend.model.machine import Machine as Machine
from ipu_backend.model.machine import Route as Route
from ipu_backend.model.machine import TargetError as TargetError
from ipu_backend.model.profile import FigureError as FigureError
from ipu_backend.model.profile import Profile as Profile
from ipu_backend.model.report.comparison import Comparison as Comparison
from ipu_backend.model.report.comparison import compare as compare
from ipu_backend.model.report.record import Record as Record
from ipu_backend.model.tables import Tables as Tables
from ipu_backend.running.checkpoints import Checkpoints as Checkpoints
from ipu_backend.running.engine import Engine as Engine
