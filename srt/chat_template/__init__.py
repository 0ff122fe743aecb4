"""Chat messages to a prompt, by the model's own Jinja template."""

from .sources import template_sources
from .template import ChatOptions, ChatTemplate

__all__ = ["ChatOptions", "ChatTemplate", "template_sources"]
