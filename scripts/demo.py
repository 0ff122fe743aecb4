"""What ``scripts/demo`` shows: a chat, a plain request, an answer by a JSON schema, a tool call,
and 16 agents that share a header."""

from __future__ import annotations

import argparse
import http.client
import json
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from sapwood.srt.checkpoint import find_model

AGENTS = 16
TOOLS = (
    "search", "fetch", "open", "edit", "build", "test", "lint", "format", "diff", "merge", "list",
    "move", "copy", "plot", "query", "deploy",
)  # fmt: skip
HEADER = "You are a careful engineering agent. You work with these tools:\n" + "\n".join(
    f"{i + 1}. {name}(path: str, options: dict) -> Report. The tool {name} is used when a task "
    f"asks to {name} something. It returns a report with the fields status, summary and details. "
    f"Never call {name} twice with the same arguments; read the report before you go on. If its "
    f"status is 'failed', say what you know, what you tried, and which other tool would help."
    for i, name in enumerate(TOOLS)
)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 30},
        "foliage": {"enum": ["evergreen", "deciduous"]},
        "height_in_metres": {"type": "integer", "minimum": 1, "maximum": 120},
        "uses": {
            "type": "array",
            "items": {"type": "string", "maxLength": 30},
            "minItems": 1,
            "maxItems": 3,
        },
    },
    "required": ["name", "foliage", "height_in_metres", "uses"],
    "additionalProperties": False,
}

ADD: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
            "additionalProperties": False,
        },
    },
}


class Figures(NamedTuple):
    """One row of the table. Times are seconds."""

    name: str
    prompt: int
    cached: int
    output: int
    seconds: float
    first: float | None = None


class Client:
    """Requests to one server, with nothing but the standard library."""

    def __init__(self, url: str) -> None:
        self._host = urllib.parse.urlsplit(url).netloc

    def chat(
        self, content: str, *, max_tokens: int, system: str | None = None, **fields: Any
    ) -> Any:
        """A whole answer. ``fields`` are further ones of the request."""
        connection, response = self._send(_body(content, max_tokens, system) | fields)
        with connection:
            return json.load(response)

    def stream(self, content: str, *, max_tokens: int) -> Iterator[Any]:
        """An answer's chunks as they come; the last one has the usage."""
        body = _body(content, max_tokens, None)
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        connection, response = self._send(body)
        with connection:
            for line in response:
                if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                    yield json.loads(line[6:])

    def _send(self, body: Any) -> tuple[Any, http.client.HTTPResponse]:
        connection = http.client.HTTPConnection(self._host, timeout=120)
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            raise SystemExit(f"the server answered {response.status}: {response.read().decode()}")
        return _Closing(connection), response


class _Closing:
    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def _body(content: str, max_tokens: int, system: str | None) -> dict[str, Any]:
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": content})
    return {"model": "default", "messages": messages, "max_tokens": max_tokens, "temperature": 0}


def show_stream(client: Client) -> Figures:
    """A streaming chat request."""
    question = "Why do leaves change their colour in autumn?"
    print(f"\n> {question}")
    start, first, usage = time.perf_counter(), None, None
    for chunk in client.stream(question, max_tokens=96):
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            text = choice["delta"].get("content") or ""
            if text and first is None:
                first = time.perf_counter() - start
            print(text, end="", flush=True)
    print()
    assert usage is not None
    return _figures("chat, streaming", [usage], time.perf_counter() - start, first)


def show_plain(client: Client) -> Figures:
    """A request that is answered as a whole."""
    question = "Write one sentence about sapwood."
    print(f"\n> {question}")
    start = time.perf_counter()
    reply = client.chat(question, max_tokens=48)
    seconds = time.perf_counter() - start
    print(reply["choices"][0]["message"]["content"])
    return _figures("chat, whole", [reply["usage"]], seconds)


def show_schema(client: Client) -> Figures:
    """An answer that is held to a JSON schema while it is sampled."""
    question = "Which tree is known for its white bark? Describe it."
    print(f"\n> {question} (JSON of a schema)")
    form = {"type": "json_schema", "json_schema": {"name": "tree", "schema": SCHEMA}}
    start = time.perf_counter()
    reply = client.chat(question, max_tokens=120, response_format=form)
    seconds = time.perf_counter() - start
    text = reply["choices"][0]["message"]["content"]
    print(text)
    print(f"  {_fault(json.loads(text)) or 'valid: every field is there, and what it must be'}")
    return _figures("chat, JSON schema", [reply["usage"]], seconds)


def _fault(tree: Any) -> str:
    """What is wrong with an answer by ``SCHEMA``; nothing should be."""
    if list(tree) != SCHEMA["required"]:
        return f"INVALID: it has the fields {list(tree)}"
    kinds = {"name": str, "foliage": str, "height_in_metres": int, "uses": list}
    wrong = [name for name, kind in kinds.items() if type(tree[name]) is not kind]
    if wrong:
        return f"INVALID: {wrong} are of other types"
    right = (
        0 < len(tree["name"]) <= 30
        and tree["foliage"] in ("evergreen", "deciduous")
        and 1 <= tree["height_in_metres"] <= 120
        and 1 <= len(tree["uses"]) <= 3
        and all(isinstance(use, str) and len(use) <= 30 for use in tree["uses"])
    )
    return "" if right else "INVALID: a value is out of its bounds"


def show_tool_call(client: Client) -> Figures:
    """A call of a function whose arguments are held to its schema."""
    question = "Add 17 and 25."
    print(f"\n> {question} (with a function to call)")
    start = time.perf_counter()
    named = {"type": "function", "function": {"name": "add"}}
    reply = client.chat(question, max_tokens=64, tools=[ADD], tool_choice=named)
    seconds = time.perf_counter() - start
    for call in reply["choices"][0]["message"]["tool_calls"]:
        arguments = json.loads(call["function"]["arguments"])
        print(f"{call['function']['name']}({arguments}) = {sum(arguments.values())}")
    return _figures("chat, tool call", [reply["usage"]], seconds)


def show_agents(client: Client) -> Figures:
    """Many requests at once with one long header: its tokens are computed once."""
    print(f"\n> {AGENTS} agents with one header, each with a task of its own")
    tasks = [f"Task {i}: {name} the file report_{i}.txt." for i, name in enumerate(TOOLS)]
    start = time.perf_counter()
    with ThreadPoolExecutor(AGENTS) as pool:
        replies = list(
            pool.map(lambda task: client.chat(task, max_tokens=48, system=HEADER), tasks[:AGENTS])
        )
    seconds = time.perf_counter() - start
    for task, reply in list(zip(tasks, replies, strict=True))[:2]:
        text = " ".join(reply["choices"][0]["message"]["content"].split())
        print(f"  {task} -> {text[:88]}...")
    print(f"  ... and {AGENTS - 2} more")
    return _figures(f"{AGENTS} agents, one header", [r["usage"] for r in replies], seconds)


def _figures(name: str, usages: list[Any], seconds: float, first: float | None = None) -> Figures:
    return Figures(
        name,
        sum(usage["prompt_tokens"] for usage in usages),
        sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages),
        sum(usage["completion_tokens"] for usage in usages),
        seconds,
        first,
    )


def print_table(rows: list[Figures]) -> None:
    """The figures, one request (or group of requests) a line."""
    print(f"\n{'':26}{'prompt':>9}{'cached':>9}{'output':>9}{'seconds':>9}{'first':>9}{'tok/s':>9}")
    for row in rows:
        first = "" if row.first is None else f"{row.first * 1000:.0f} ms"
        print(
            f"{row.name:26}{row.prompt:>9}{row.cached:>9}{row.output:>9}{row.seconds:>9.2f}"
            f"{first:>9}{row.output / row.seconds:>9.0f}"
        )


def start_server(flags: list[str]) -> subprocess.Popen[str]:
    """Starts a server that logs JSON."""
    command = [sys.executable, "-m", "sapwood", "serve", "--log-format", "json", *flags]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def serving(server: subprocess.Popen[str]) -> dict[str, Any]:
    """What a server says of itself once it serves; ends the demonstration where it does not."""
    assert server.stderr is not None
    for line in server.stderr:
        entry = _heard(line)
        if entry.get("event") == "serving":
            threading.Thread(target=_listen, args=(server.stderr,), daemon=True).start()
            return entry
    raise SystemExit(server.wait() or 1)


def _listen(lines: Iterable[str]) -> None:
    for line in lines:
        _heard(line)


def _heard(line: str) -> dict[str, Any]:
    """A log line of the server as what it says; warnings and whatever is no log line are shown."""
    try:
        entry: dict[str, Any] = json.loads(line)
    except ValueError:
        entry = {}
    if not entry or entry["level"] in ("warning", "error"):
        print(line, end="", file=sys.stderr)
    return entry


def main() -> int:
    """Runs the demonstration; the server's exit code."""
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="go on serving, on port 30000")
    given, flags = parser.parse_known_args()
    print("== finding the default model (fetched once)", flush=True)
    path = find_model(None)
    print(f"== starting the server with {path.name}", flush=True)
    port = ["--port", "30000" if given.keep else "0"]
    server = start_server([*port, *flags])
    try:
        about = serving(server)
        known = ("model", "dtype", "attention", "kv_tokens", "threads")
        shown = ", ".join(f"{name} {about[name]}" for name in known if name in about)
        print(f"== serving at {about['url']} after {about['seconds']} s ({shown})")
        client = Client(about["url"])
        shows = (show_stream, show_plain, show_schema, show_tool_call, show_agents)
        print_table([show(client) for show in shows])
        if given.keep:
            _keep(about["url"], server)
    except KeyboardInterrupt:
        pass
    finally:
        server.send_signal(signal.SIGTERM)
    code = server.wait()
    print(f"\n== the server has ended with status {code}")
    return code


def _keep(url: str, server: subprocess.Popen[str]) -> None:
    body = json.dumps(_body("Hello!", 64, None))
    print(f"\nServing at {url} until Ctrl-C. Try:\n")
    print(f"  curl {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'\n")
    server.wait()


if __name__ == "__main__":
    sys.exit(main())
