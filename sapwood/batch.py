"""``sapwood batch``: the lines of an OpenAI batch file, through an engine or a server.

The output file is the only state. A line of it is written when its answer is whole, in one piece;
a second start reads which input lines it has, cuts off a line that was not finished, and goes on.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from sapwood.srt.errors import RequestError, UsageError

URLS = ("/v1/chat/completions", "/v1/completions")


class Answer(NamedTuple):
    """What came of a request: HTTP status and body. ``again`` says that trying later may help."""

    status: int
    body: dict[str, Any]
    again: bool = False


class Target(Protocol):
    """Who answers."""

    async def answer(self, url: str, body: Mapping[str, Any]) -> Answer:
        """Answers one request; failures of a request are answers too."""
        ...


class Line(NamedTuple):
    """One line of the input: ``fault`` says what is wrong with it."""

    number: int
    custom_id: str | None
    url: str = ""
    body: Mapping[str, Any] = {}
    fault: str = ""

    @property
    def id(self) -> str:
        """The id of its line in the output."""
        return f"batch_req_{self.number}"


def read_lines(file: IO[bytes]) -> Iterator[Line]:
    """The lines of a batch file, blank ones left out. What is wrong with one is its ``fault``."""
    seen: dict[str, int] = {}
    for number, raw in enumerate(file, 1):
        if raw.strip():
            line = _line(number, raw)
            if line.custom_id is not None and not line.fault:
                first = seen.setdefault(line.custom_id, number)
                if first != number:
                    line = line._replace(fault=f"line {first} has the same custom_id")
            yield line


def _line(number: int, raw: bytes) -> Line:
    try:
        given = json.loads(raw)
    except (ValueError, RecursionError) as error:
        return Line(number, None, fault=f"line {number} is not JSON: {error}")
    if not isinstance(given, dict):
        return Line(number, None, fault=f"line {number} is not a JSON object")
    name = given.get("custom_id")
    if not isinstance(name, str) or not name:
        return Line(number, None, fault=f"line {number} has no custom_id, which must be a text")
    if given.get("method", "POST") != "POST":
        return Line(number, name, fault=f"the method is {given['method']!r}; it must be POST")
    url, body = given.get("url"), given.get("body")
    if url not in URLS:
        return Line(number, name, fault=f"the url is {url!r}; it must be one of {', '.join(URLS)}")
    if not isinstance(body, dict):
        return Line(number, name, fault="the body must be a JSON object")
    if body.get("stream"):
        return Line(number, name, fault="a line of a batch is not streamed")
    return Line(number, name, url, body)


class Output:
    """The output file: what it has, and what is added to it. Locked against a second run.

    ``UsageError`` where it cannot be one, or another run writes it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise UsageError(f"another run is writing {path}") from error
        self.done: dict[str, str | None] = {}
        self.failed = 0
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        """Reads what is there, and cuts off a last line that was not finished."""
        whole = 0
        with self._path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                if not raw.endswith(b"\n"):
                    break
                try:
                    entry = json.loads(raw)
                    self.done[entry["id"]] = entry["custom_id"]
                except (ValueError, TypeError, KeyError) as error:
                    raise UsageError(
                        f"{self._path}:{number} is no line of a batch's output; "
                        "name another file, or remove it"
                    ) from error
                self.failed += _has_failed(entry)
                whole += len(raw)
        os.ftruncate(self._file, whole)

    def add(self, line: Line, answer: Answer) -> None:
        """Writes an answer, in one piece."""
        error = {"code": "invalid_line", "message": line.fault} if line.fault else None
        entry = {
            "id": line.id,
            "custom_id": line.custom_id,
            "response": None
            if error
            else {
                "status_code": answer.status,
                "request_id": str(answer.body.get("id") or line.id),
                "body": answer.body,
            },
            "error": error,
        }
        data = json.dumps(entry, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        while data:  # a disk that is full may take a part: the rest raises
            data = data[os.write(self._file, data) :]
        self.done[line.id] = line.custom_id
        self.failed += _has_failed(entry)

    def close(self) -> None:
        """Makes sure that all is on the disk."""
        try:
            os.fsync(self._file)
        finally:
            os.close(self._file)


def _has_failed(entry: Mapping[str, Any]) -> bool:
    response = entry.get("response")
    return response is None or response["status_code"] != 200


class Progress(Protocol):
    """Sees each answer."""

    def see(self, answer: Answer) -> None:
        """One more is written."""
        ...


RETRIES = 5
FIRST_PAUSE = 0.5
"""Seconds before a request is tried again; doubled each time."""


async def run(
    source: Path, output: Output, target: Target, progress: Progress, concurrency: int
) -> int:
    """Answers all lines that the output has not; the number of those that are left.

    Lines are read as there is room for them. Each is written as it is finished: in no order.
    ``UsageError`` for an output of another input, or one that cannot be written.
    """
    try:
        return await _run(source, output, target, progress, concurrency)
    except* UsageError as errors:
        raise errors.exceptions[0] from None
    except* OSError as errors:
        raise UsageError(f"the output cannot be written: {errors.exceptions[0]}") from errors


async def _run(
    source: Path, output: Output, target: Target, progress: Progress, concurrency: int
) -> int:
    left = 0
    room = asyncio.Semaphore(concurrency)

    async def one(line: Line) -> None:
        nonlocal left
        try:
            answer = Answer(400, {}) if line.fault else await _answer(line, target)
            if answer.again:
                left += 1
                return
            output.add(line, answer)
            progress.see(answer)
        finally:
            room.release()

    with source.open("rb") as file:
        async with asyncio.TaskGroup() as tasks:
            for line in read_lines(file):
                if line.id in output.done:
                    _check_same(line, output)
                    continue
                await room.acquire()
                tasks.create_task(one(line))
    return left


def _check_same(line: Line, output: Output) -> None:
    if output.done[line.id] != line.custom_id:
        raise UsageError(
            f"the output's line {line.id} is of {output.done[line.id]!r}, and the input's of "
            f"{line.custom_id!r}: the output belongs to another input"
        )


async def _answer(line: Line, target: Target) -> Answer:
    pause = FIRST_PAUSE
    for attempt in range(RETRIES + 1):
        answer = await target.answer(line.url, line.body)
        if not answer.again or attempt == RETRIES:
            return answer
        await asyncio.sleep(pause)
        pause *= 2
    raise AssertionError("unreachable")


class EngineTarget:
    """An engine in this process."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    async def answer(self, url: str, body: Mapping[str, Any]) -> Answer:
        """Answers one request."""
        chat = url == "/v1/chat/completions"
        call = self._engine.achat if chat else self._engine.acomplete
        try:
            return Answer(200, await call(body))
        except RequestError as error:
            shown = {
                "message": error.message,
                "type": error.type,
                "param": error.param,
                "code": error.code,
            }
            return Answer(error.status, {"error": shown}, error.status in _AGAIN)


_AGAIN = frozenset((429, 502, 503, 504))


class ServerTarget:
    """A server, ours or another of OpenAI's kind."""

    def __init__(self, url: str, api_key: str | None, concurrency: int) -> None:
        import httpx

        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._failures = httpx.TransportError
        self._client = httpx.AsyncClient(
            base_url=url.removesuffix("/").removesuffix("/v1"),
            headers=headers,
            timeout=None,
            limits=httpx.Limits(max_connections=concurrency),
        )

    async def answer(self, url: str, body: Mapping[str, Any]) -> Answer:
        """Answers one request."""
        try:
            response = await self._client.post(url, json=body)
        except self._failures as error:
            return Answer(0, {"error": {"message": repr(error)}}, again=True)
        try:
            found = response.json()
        except ValueError:
            found = {"error": {"message": response.text[:2000]}}
        shown = found if isinstance(found, dict) else {"error": {"message": "no JSON object"}}
        return Answer(response.status_code, shown, response.status_code in _AGAIN)

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.aclose()
