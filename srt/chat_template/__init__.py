"""Chat messages to a prompt, by the model's own Jinja template."""

from .template import ChatTemplate

__all__ = ["ChatTemplate"]
