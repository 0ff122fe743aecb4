"""What runs in each step: pure decisions, with no clock, no I/O and no device."""

from .events import Events
from .scheduler import Scheduler

__all__ = ["Events", "Scheduler"]
