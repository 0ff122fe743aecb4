"""Finding and opening models: GGUF files and Hugging Face checkpoint directories. No torch."""

from .checkpoint import Checkpoint
from .find import find_model
from .opening import open_checkpoint
from .weights import Weight

__all__ = ["Checkpoint", "Weight", "find_model", "open_checkpoint"]
