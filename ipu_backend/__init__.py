"""The machine: IPU targets, and the engine that runs graphs on their model."""

from ipu_backend.engine import Engine as Engine
from ipu_backend.ipu import IPU as IPU
from ipu_backend.ipu import TargetError as TargetError
