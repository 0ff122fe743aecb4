"""JSON over HTTP for the runtimes that talk to servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from . import loops

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx


class ServerError(RuntimeError):
    """A server refused a request, or failed. ``param`` and ``code`` are as OpenAI has them."""

    def __init__(
        self, message: str, *, status: int, code: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param


class HttpClient:
    """One server. Usable on several event loops, on each with connections of its own.

    There is no limit to connections and to how long an answer may take: programs decide both.
    Cancelling a task closes its connection.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        verify: bool | str = True,
        connect_seconds: float = 10.0,
        transport: Any = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._headers = dict(headers or {})
        self._verify = verify
        self._connect_seconds = connect_seconds
        self._transport = transport
        self._clients: dict[asyncio.AbstractEventLoop, httpx.AsyncClient] = {}

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The answer's JSON; ``ServerError`` for a refusal, ``ConnectionError`` for no answer."""
        with self._reached():
            response = await self._client().post(self.url + path, json=body)
            self._check(response.status_code, response.content)
            return self._json(response)

    async def get(self, path: str) -> Any:
        """Like ``post``."""
        with self._reached():
            response = await self._client().get(self.url + path)
            self._check(response.status_code, response.content)
            return self._json(response)

    async def events(self, path: str, body: Mapping[str, Any]) -> AsyncIterator[Any]:
        """The JSON of server-sent events up to ``[DONE]``; ``ServerError`` also for an error in
        mid-stream, and ``ConnectionError`` for a stream that ends before its end."""
        with self._reached():
            request = self._client().stream("POST", self.url + path, json=body)
            async with request as response:
                if response.status_code >= 400:
                    self._check(response.status_code, await response.aread())
                async for line in response.aiter_lines():
                    if not line.startswith("data:"):
                        continue
                    data = line[5:].strip()
                    if data == "[DONE]":
                        return
                    event = json.loads(data)
                    if isinstance(event, dict) and event.get("error"):
                        raise _error(event["error"], 500)
                    yield event
            raise ConnectionError(f"{self.url} ended its answer before its end")

    async def aclose(self) -> None:
        """Closes the connections of this event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    def close(self) -> None:
        """Closes the connections of the loop that programs without one of their own share."""
        loop = loops.BACKGROUND.loop()
        if loop in self._clients:
            asyncio.run_coroutine_threadsafe(self.aclose(), loop).result()

    def _client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            for other in [known for known in self._clients if known.is_closed()]:
                del self._clients[other]
            client = self._clients[loop] = self._made()
        return client

    def _made(self) -> httpx.AsyncClient:
        import httpx

        return httpx.AsyncClient(
            headers=self._headers,
            verify=self._verify,
            timeout=httpx.Timeout(None, connect=self._connect_seconds),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=256),
            transport=self._transport,
        )

    @contextmanager
    def _reached(self) -> Iterator[None]:
        import httpx

        try:
            yield
        except httpx.TransportError as error:
            why = str(error) or type(error).__name__
            raise ConnectionError(f"{self.url} cannot be reached: {why}") from error

    def _json(self, response: httpx.Response) -> Any:
        try:
            return response.json()
        except ValueError as error:
            shown = response.content[:200].decode(errors="replace")
            raise ServerError(
                f"{self.url} answered what is no JSON: {shown!r}", status=response.status_code
            ) from error

    def _check(self, status: int, content: bytes) -> None:
        if status < 400:
            return
        try:
            told = json.loads(content)
        except ValueError:
            told = None
        if isinstance(told, dict) and "error" in told:
            raise _error(told["error"], status)
        shown = content[:500].decode(errors="replace")
        raise ServerError(f"{self.url} answered {status}: {shown}", status=status)


def _error(told: Any, status: int) -> ServerError:
    if not isinstance(told, dict):
        return ServerError(str(told), status=status)
    code = told.get("code")
    return ServerError(
        str(told.get("message", told)),
        status=status,
        code=None if code is None else str(code),
        param=told.get("param"),
    )
