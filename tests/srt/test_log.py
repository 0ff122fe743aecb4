"""Log lines: one event a line, as text or as JSON."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sapwood.srt import log
from sapwood.srt.config import LogConfig


@pytest.fixture
def written() -> Iterator[Callable[..., io.StringIO]]:
    """Configures logging onto a string, and puts all back afterwards."""
    stream = io.StringIO()
    ours = logging.getLogger("sapwood")
    former = logging.root.handlers[:], logging.root.level, ours.level

    def configure(**config: Any) -> io.StringIO:
        log.configure(LogConfig(**config), "worker", stream)
        return stream

    yield configure
    logging.root.handlers[:], level, own = former
    logging.root.setLevel(level)
    ours.setLevel(own)
    logging.captureWarnings(False)


def test_text_lines(written: Callable[..., io.StringIO]) -> None:
    stream = written()
    log.Log("part").info("serving", url="http://x", seconds=1.23456, note="two words", none="")
    log.Log("part").debug("not shown")
    assert stream.getvalue().split(maxsplit=1)[1] == (
        'info    worker      serving url=http://x seconds=1.23 note="two words" none=""\n'
    )


def test_no_value_can_forge_a_line(written: Callable[..., io.StringIO]) -> None:
    stream = written()
    log.Log("part").warning("odd\nevent", value="a\nb\x1b[31m\u2028c")
    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()


def test_json_lines(written: Callable[..., io.StringIO]) -> None:
    stream = written(log_format="json", log_level="debug")
    log.Log("part").debug("dropped", bytes=5)
    logging.getLogger("other").warning("of a %s", "library")
    try:
        raise ValueError("x")
    except ValueError:
        logging.getLogger("other").exception("failed")
    first, second, third = map(json.loads, stream.getvalue().splitlines())
    assert first.pop("time") > 0
    assert first == {
        "level": "debug",
        "process": "worker",
        "part": "part",
        "event": "dropped",
        "bytes": 5,
    }
    assert second["event"] == "of a library"
    assert "ValueError: x" in third["traceback"]


def test_level_is_for_our_own_lines(written: Callable[..., io.StringIO]) -> None:
    stream = written(log_level="error")
    log.Log("part").warning("not shown")
    log.Log("part").error("shown")
    assert "shown" in stream.getvalue()
    assert "not" not in stream.getvalue()
