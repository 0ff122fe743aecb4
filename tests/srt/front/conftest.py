"""A server over a scripted worker, without sockets and with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from sapwood.srt.front.app import make_app
from tests.fakes.scripted_worker import Parts, make_parts


@pytest.fixture
def parts() -> Iterator[Parts]:
    made = make_parts()
    yield made
    made.front.close()


def client_of(parts: Parts) -> httpx.AsyncClient:
    """Talks to the application without a socket."""
    transport = httpx.ASGITransport(make_app(parts.front), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://test")


@pytest.fixture
def post(parts: Parts) -> Callable[..., httpx.Response]:
    """Posts one body and waits for the whole answer."""

    def run(path: str, json: Any = None, **kwargs: Any) -> httpx.Response:
        async def go() -> httpx.Response:
            async with client_of(parts) as client:
                return await client.post(path, json=json, **kwargs)

        return asyncio.run(go())

    return run
