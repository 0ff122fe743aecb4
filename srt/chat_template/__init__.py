"""Chat messages to a prompt, by the model's own Jinja template."""

from .template import ChatOptions, ChatTemplate

__all__ = ["ChatOptions", "ChatTemplate"]
