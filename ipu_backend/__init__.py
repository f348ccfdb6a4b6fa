"""The machine: IPU targets, the cost of graphs on them, and the engine that runs graphs on their model."""

from ipu_backend.cost import CyclesError as CyclesError
from ipu_backend.cost import UnknownCyclesWarning as UnknownCyclesWarning
from ipu_backend.engine import Engine as Engine
from ipu_backend.ipu import IPU as IPU
from ipu_backend.ipu import TargetError as TargetError
from ipu_backend.profile import FigureError as FigureError
from ipu_backend.profile import Profile as Profile
