"""An agent: a model that calls functions until it can answer.

    sapwood serve --port 30000
    python docs/examples/agent_loop.py http://127.0.0.1:30000

Arguments are held to each function's schema while they are sampled, so that the loop has nothing
to repair: whatever is called, is called as it can be. The first turn must call; a model that knows
what it does would be asked with ``auto`` from the start.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import openai

TREES = {"oak": 40, "birch": 25, "spruce": 50, "yew": 20}
TURNS = 4


def height(tree: str) -> str:
    """How high a kind of tree grows."""
    return f"A {tree} grows {TREES[tree]} metres high."


def compare(first: str, second: str) -> str:
    """Which of two kinds of trees grows higher."""
    higher = first if TREES[first] >= TREES[second] else second
    return f"Of {first} and {second}, the {higher} grows higher: {TREES[higher]} metres."


def described(function: Callable[..., str], *parameters: str) -> dict[str, Any]:
    """A function of names of trees, as a model is told of it."""
    return {
        "type": "function",
        "function": {
            "name": function.__name__,
            "description": function.__doc__,
            "parameters": {
                "type": "object",
                "properties": {name: {"enum": list(TREES)} for name in parameters},
                "required": list(parameters),
                "additionalProperties": False,
            },
        },
    }


FUNCTIONS: Mapping[str, Callable[..., str]] = {"height": height, "compare": compare}
TOOLS: Any = [described(height, "tree"), described(compare, "first", "second")]


def asked(client: openai.OpenAI, question: str) -> list[Any]:
    """The whole conversation: the question, calls and their results, the answer."""
    messages: list[Any] = [{"role": "user", "content": question}]
    for turn in range(TURNS):
        choice = "required" if turn == 0 else "none" if turn == TURNS - 1 else "auto"
        reply = client.chat.completions.create(
            model="default",
            messages=messages,
            tools=TOOLS,
            tool_choice=choice,  # type: ignore[arg-type]
            parallel_tool_calls=False,
            temperature=0,
            max_tokens=100,
        )
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            break
        for call in message.tool_calls:
            assert call.type == "function"
            arguments = json.loads(call.function.arguments)
            result = FUNCTIONS[call.function.name](**arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return messages


def main(url: str) -> None:
    """Asks one question and shows all that is said."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        for message in asked(client, "Which grows higher, an oak or a birch?"):
            for call in message.get("tool_calls", ()):
                function = call["function"]
                print(f"{'call':>9}: {function['name']}({function['arguments']})")
            if message.get("content"):
                print(f"{message['role']:>9}: {message['content']}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:30000")
