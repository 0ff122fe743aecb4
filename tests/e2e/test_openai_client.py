"""The default model behind a real server, asked by the ``openai`` client."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

HEADER = "You are an agent that works with files. " + " ".join(
    f"Rule {i}: read file number {i} before you write file number {i + 1}." for i in range(60)
)


@pytest.fixture
def client(server: Any) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def said(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def test_chat_whole_and_streamed_are_the_same(client: openai.OpenAI) -> None:
    ask: dict[str, Any] = {
        "model": "default",
        "messages": said("What is a tree?"),
        "temperature": 0,
        "max_tokens": 24,
    }
    whole = client.chat.completions.create(**ask)
    text = whole.choices[0].message.content
    assert text
    assert whole.choices[0].finish_reason in ("stop", "length")
    stream = client.chat.completions.create(
        **ask, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    streamed = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert streamed == text
    assert all(isinstance(chunk.model_extra["seed"], int) for chunk in chunks if chunk.model_extra)
    assert all("seed" in (chunk.model_extra or {}) for chunk in chunks)
    usage = chunks[-1].usage
    assert usage is not None
    assert whole.usage is not None
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.prompt_tokens_details is not None
    # All of the prompt but its last token, whose logits are needed, was there already.
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens - 1


def test_the_model_is_the_real_one(client: openai.OpenAI) -> None:
    reply = client.completions.create(
        model="default", prompt="The capital of France is", temperature=0, max_tokens=1
    )
    assert reply.choices[0].text == " Paris"


def test_second_turn_finds_the_whole_first_turn(client: openai.OpenAI) -> None:
    """Prefix hits survive across requests, with outputs in the tree too."""
    messages = said("Name a tree that grows in Norway, and one that grows in Spain.")
    first = client.chat.completions.create(
        model="default", messages=messages, temperature=0, max_tokens=16
    )
    assert first.usage is not None
    messages += [
        {"role": "assistant", "content": first.choices[0].message.content},
        {"role": "user", "content": "And in Japan?"},
    ]
    second = client.chat.completions.create(
        model="default", messages=messages, temperature=0, max_tokens=4
    )
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    cached = second.usage.prompt_tokens_details.cached_tokens
    assert cached is not None
    # The last token was sampled and not computed; where text ends, tokens may merge otherwise.
    assert cached >= first.usage.prompt_tokens + first.usage.completion_tokens - 3


def test_sixteen_agents_compute_their_header_once(server: Any) -> None:
    """Cold requests that share a header, sent at once: a counter tells what was computed."""
    computed = "sapwood_prefix_misses_tokens_total"

    async def ask_all() -> list[Any]:
        async with openai.AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key="none", max_retries=0
        ) as client:
            return await asyncio.gather(
                *(
                    client.chat.completions.create(
                        model="default",
                        messages=[{"role": "system", "content": HEADER}, *said(f"Task {i}: go.")],
                        temperature=0,
                        max_tokens=8,
                    )
                    for i in range(16)
                )
            )

    before = server.metric(computed)
    replies = asyncio.run(ask_all())
    prompts = [reply.usage.prompt_tokens for reply in replies]
    cached = [reply.usage.prompt_tokens_details.cached_tokens for reply in replies]
    assert min(prompts) > 900
    server.until(lambda: server.metric("sapwood_running_requests") == 0, "all done")
    news = server.metric(computed) - before
    assert news == sum(prompts) - sum(cached)
    assert news < max(prompts) + 16 * 24
    assert sorted(cached)[1] > 900


def test_async_streams_beside_each_other(server: Any) -> None:
    async def read(client: openai.AsyncOpenAI, number: int) -> str:
        stream = await client.chat.completions.create(
            model="default",
            messages=said(f"Count from {number} on."),
            temperature=0,
            max_tokens=12,
            stream=True,
        )
        return "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])

    async def main() -> list[str]:
        async with openai.AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key="none", max_retries=0
        ) as client:
            return await asyncio.gather(*(read(client, number) for number in range(4)))

    assert all(asyncio.run(main()))


def test_errors_name_what_is_wrong(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.chat.completions.create(model="default", messages=said("x"), temperature=9)
    with pytest.raises(openai.NotFoundError, match="no-such-model"):
        client.chat.completions.create(model="no-such-model", messages=said("x"))
    with pytest.raises(openai.BadRequestError, match="8192"):
        client.completions.create(model="default", prompt=[5] * 9000, max_tokens=5)
    assert [model.id for model in client.models.list()]


def test_stop_string_over_the_wire(client: openai.OpenAI) -> None:
    """C037: matched by the worker, cut by the detokenizer, through all processes."""
    ask: dict[str, Any] = {"model": "default", "temperature": 0, "max_tokens": 40}
    ask["prompt"] = "1, 2, 3, 4, 5, 6,"
    free = client.completions.create(**ask).choices[0]
    stopped = client.completions.create(**ask, stop=[" 9, 1"]).choices[0]
    assert " 9, 1" in free.text
    assert stopped.text == free.text.partition(" 9, 1")[0]
    assert stopped.finish_reason == "stop"
    streamed = client.completions.create(**ask, stop=[" 9, 1"], stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == stopped.text


def test_the_readmes_clients_run(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[2] / "README.md"
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"__name__": "readme"}
    run = [block for block in blocks if "client" in block]
    for block in run:
        code = block.replace("http://127.0.0.1:30000", server.url)
        exec(compile(code, str(page), "exec", dont_inherit=True), names)
    assert len(run) == 2
    out = capsys.readouterr().out
    assert "cached prompt tokens:" in out
    assert "length_in_km=" in out
