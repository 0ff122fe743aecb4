"""A conversation on the terminal, with a server or with a model in this process."""

from __future__ import annotations

import contextlib
import http.client
import json
import sys
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sapwood.srt.errors import RequestError, UsageError

Messages = list[dict[str, str]]
Answer = Callable[[Messages], Iterable[str]]
"""Gives the text of the next message, piece by piece."""


def converse(answer: Answer, system: str | None, lines: Iterable[str] | None = None) -> int:
    """Reads a message, shows the answer, and so on until the input ends.

    A Ctrl-C ends an answer, and between two answers the conversation. ``/reset`` forgets what was
    said, ``/exit`` ends.
    """
    messages = opening(system)
    for text in _typed() if lines is None else lines:
        if text.strip() == "/exit":
            break
        if text.strip() == "/reset":
            messages = opening(system)
            continue
        if text.strip():
            messages.append({"role": "user", "content": text})
            _take_turn(answer, messages)
    return 0


def opening(system: str | None) -> Messages:
    """A conversation in which nobody has said anything yet."""
    return [] if system is None else [{"role": "system", "content": system}]


def _take_turn(answer: Answer, messages: Messages) -> None:
    """Shows an answer and adds it to the conversation; a refused message is taken back."""
    said: list[str] = []
    pieces = iter(answer(list(messages)))
    try:
        for piece in pieces:
            said.append(piece)
            print(piece, end="", flush=True)
        print()
    except RequestError as error:
        print(f"sapwood: {error}", file=sys.stderr)
        messages.pop()
        return
    except KeyboardInterrupt:
        print(" [stopped]")
    finally:
        with contextlib.suppress(AttributeError):
            pieces.close()  # type: ignore[attr-defined]  # generators have it: it cancels
    messages.append({"role": "assistant", "content": "".join(said)})


def _typed() -> Iterator[str]:
    """Lines from the terminal, or from a pipe without a prompt shown."""
    prompt = "> " if sys.stdin.isatty() else ""
    if prompt:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  (gives input() its line editing)
        print("/reset starts anew, /exit or Ctrl-D ends", file=sys.stderr)
    while True:
        try:
            yield input(prompt)
        except (EOFError, KeyboardInterrupt):
            return


class RemoteModel:
    """A server's chat interface, streamed; any OpenAI-compatible server will do."""

    def __init__(
        self, url: str, api_key: str | None, model: str | None, sampling: dict[str, Any]
    ) -> None:
        parts = urllib.parse.urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"--url {url} is no address such as http://127.0.0.1:30000")
        secure = parts.scheme == "https"
        self._connect = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        self._host = parts.netloc.rpartition("@")[2]
        path = parts.path.rstrip("/")
        self._path = f"{path if path.endswith('/v1') else path + '/v1'}/chat/completions"
        self._headers = {"Content-Type": "application/json"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._body = {"model": model or "default", "stream": True, **sampling}

    def answer(self, messages: Messages) -> Iterator[str]:
        """The next message. ``RequestError`` for what the server refuses."""
        connection = self._connect(self._host, timeout=300)
        try:
            body = json.dumps({**self._body, "messages": messages})
            connection.request("POST", self._path, body, self._headers)
            response = connection.getresponse()
            if response.status != 200:
                raise RequestError(_error_of(response.read()), status=response.status)
            for line in response:
                if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                    yield _text_of(json.loads(line[6:]))
        except (OSError, http.client.HTTPException) as error:
            raise RequestError(f"{self._host}: {error}", status=503) from error
        finally:
            connection.close()


def _text_of(chunk: dict[str, Any]) -> str:
    if "error" in chunk:
        raise RequestError(str(chunk["error"].get("message", "the server failed")), status=500)
    return "".join(choice["delta"].get("content") or "" for choice in chunk.get("choices", ()))


def _error_of(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode("utf-8", "replace")[:200] or "the server gave no reason"
