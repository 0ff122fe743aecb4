"""The engine in the caller's own process: scheduler and model, no sockets."""

from .engine import Engine as Engine
from .results import Completion as Completion
from .results import Score as Score
