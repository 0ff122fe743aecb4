"""Answers as objects: pydantic models through the ``openai`` client's ``parse``.

    sapwood serve --port 30000
    python docs/examples/openai_parse.py http://127.0.0.1:30000

The model's JSON schema is enforced while the answer is sampled, so that there is nothing to repair
and nothing to ask again: each answer validates, whole or streamed.
"""

from __future__ import annotations

import asyncio
import sys
from enum import Enum
from typing import Any

import openai
from pydantic import BaseModel, Field


class Foliage(Enum):
    """How a tree spends the winter."""

    evergreen = "evergreen"
    deciduous = "deciduous"


class Tree(BaseModel):
    """A kind of tree."""

    name: str = Field(max_length=40)
    latin_name: str | None = Field(max_length=40)
    foliage: Foliage
    height_in_metres: int = Field(ge=1, le=120)


class Forest(BaseModel):
    """Some trees that grow together."""

    region: str = Field(max_length=40)
    trees: list[Tree] = Field(min_length=1, max_length=3)


def asked(text: str) -> dict[str, Any]:
    """What all requests have in common."""
    messages = [{"role": "user", "content": text}]
    return {"model": "default", "messages": messages, "temperature": 0, "max_tokens": 400}


def whole(url: str) -> Tree:
    """An answer that is parsed once it is there."""
    with openai.OpenAI(base_url=url, api_key="none") as client:
        reply = client.chat.completions.parse(**asked("Describe the oak."), response_format=Tree)
    tree = reply.choices[0].message.parsed
    assert tree is not None
    return tree


def streamed(url: str) -> Forest:
    """An answer that is shown as it grows, and parsed at its end."""
    question = asked("Describe a forest of Norway and its trees.")
    with (
        openai.OpenAI(base_url=url, api_key="none") as client,
        client.chat.completions.stream(**question, response_format=Forest) as stream,
    ):
        for event in stream:
            if event.type == "content.delta":
                print(event.delta, end="", flush=True)
        print()
        forest = stream.get_final_completion().choices[0].message.parsed
    assert forest is not None
    return forest


async def several(url: str) -> list[Tree]:
    """Many at once: the schema is compiled once, and the requests share their steps."""
    async with openai.AsyncOpenAI(base_url=url, api_key="none") as client:
        replies = await asyncio.gather(
            *(
                client.chat.completions.parse(
                    **asked(f"Describe the {name}."), response_format=Tree
                )
                for name in ("birch", "spruce", "olive tree", "baobab")
            )
        )
    return [tree for reply in replies if (tree := reply.choices[0].message.parsed) is not None]


def main() -> None:
    """All three, against the server that the command line names."""
    url = (sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:30000").rstrip("/") + "/v1"
    print(f"whole:    {whole(url)!r}")
    print(f"streamed: {streamed(url)!r}")
    for tree in asyncio.run(several(url)):
        print(f"several:  {tree!r}")


if __name__ == "__main__":
    main()
