"""What can go wrong, by whose fault it is.

A user's fault is a ``ValueError`` that names what was wrong and what would be right; it carries the
HTTP status and OpenAI's error fields, so that every route reports it alike.
"""

from __future__ import annotations


class RequestError(ValueError):
    """A request that is refused: wrong, too large, unknown, or not now.

    ``param`` is the field at fault (``"messages[0].content"``), ``code`` OpenAI's machine-readable
    reason (``"context_length_exceeded"``), ``status`` the HTTP status.
    """

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        status: int = 400,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
        self.status = status

    @property
    def type(self) -> str:
        """OpenAI's ``error.type`` for this status."""
        if self.status == 404:
            return "not_found_error"
        return "invalid_request_error" if self.status < 500 else "server_error"


class LoadError(ValueError):
    """A checkpoint, tokenizer or configuration that cannot be served; the text names the part."""


class UsageError(ValueError):
    """A command line that cannot be carried out: one clear line and a non-zero exit."""
