"""Text to token ids and back."""

from .tokenizer import Tokenizer

__all__ = ["Tokenizer"]
