"""Tool calls: how each family of models writes them, what holds a model to it, and reading them.

Pure: text and constraints in, text and constraints out.
"""

from .arguments import Arguments, arguments_of, dumped, holds_arguments
from .choice import ToolChoice, ToolUse
from .detect import FORMATS, chosen_format
from .format import CallFormat, Message
from .history import in_call_order
from .layout import Layout
from .reader import ArgumentsPiece, CallReader, CallStart, ContentPiece, Event
from .tool import Tool

__all__ = [
    "FORMATS",
    "Arguments",
    "ArgumentsPiece",
    "CallFormat",
    "CallReader",
    "CallStart",
    "ContentPiece",
    "Event",
    "Layout",
    "Message",
    "Tool",
    "ToolChoice",
    "ToolUse",
    "arguments_of",
    "chosen_format",
    "dumped",
    "holds_arguments",
    "in_call_order",
]
