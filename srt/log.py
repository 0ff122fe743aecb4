"""Structured log lines on standard error: an event, and fields beside it.

Lines are for operators: they name requests, counts and times, and never hold text of a prompt or an
answer. Whoever writes a line keeps to that; nothing here looks into the fields.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, TextIO

from .config import LogConfig

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


class Log:
    """Writes events of one part of the server: ``log.info("ready", seconds=1.2)``."""

    def __init__(self, part: str) -> None:
        self._logger = logging.getLogger(f"sapwood.{part}")

    def debug(self, event: str, **fields: Any) -> None:
        """For whoever looks for a fault."""
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """A landmark of ordinary running; never a line for each request."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Something is not as it should be, and the server goes on."""
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Something failed; a request, or the server."""
        self._write(logging.ERROR, event, fields)

    def _write(self, level: int, event: str, fields: dict[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={"fields": fields})


def configure(config: LogConfig, process: str, stream: TextIO | None = None) -> None:
    """Sends every log line of this process, other libraries' warnings too, to standard error."""
    output = logging.StreamHandler(stream or sys.stderr)
    output.setFormatter(JsonLines(process) if config.log_format == "json" else TextLines(process))
    logging.root.handlers[:] = [output]
    logging.root.setLevel(logging.WARNING)
    logging.getLogger("sapwood").setLevel(_LEVELS[config.log_level])
    logging.captureWarnings(True)


class TextLines(logging.Formatter):
    """``12:30:01.250 info    worker   event key=value ...``; one line, whatever the values hold.

    A field ``traceback`` alone goes below it.
    """

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """One line, and a traceback below it where there is one."""
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        event = one_line(record.getMessage())
        fields = fields_of(record)
        below = fields.pop("traceback", None)
        pairs = " ".join(f"{key}={_plain(value)}" for key, value in fields.items())
        head = f"{clock}.{int(record.msecs):03d} {record.levelname.lower():7} {self._process:11}"
        line = f"{head} {event} {pairs}".rstrip()
        if record.exc_info:
            below = self.formatException(record.exc_info)
        return f"{line}\n{below}" if below else line


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, process, part, event, and the fields."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """The object's text, without line ends."""
        entry: dict[str, Any] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "process": self._process,
            "part": record.name.removeprefix("sapwood."),
            "event": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """The fields that ``Log`` put beside the event; none for other libraries' lines."""
    fields: dict[str, Any] = getattr(record, "fields", {})
    return dict(fields)


def one_line(text: str) -> str:
    """The text with its control characters escaped, so that no value can forge a line."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    text = one_line(str(value))
    return json.dumps(text) if not text or " " in text or '"' in text else text
