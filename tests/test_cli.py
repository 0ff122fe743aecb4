"""The command line: flags from configuration, clear lines, and what each command hands on."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import fields
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, NamedTuple

import pytest

from sapwood import chat, cli
from sapwood.flags import FlagError, collect
from sapwood.srt.config import SchedulerConfig, ServerConfig
from sapwood.srt.errors import RequestError
from sapwood.srt.messages import Finish


def served(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> ServerConfig:
    """The configuration that ``sapwood serve`` would run with."""
    found: list[ServerConfig] = []

    def serve(config: ServerConfig) -> int:
        found.append(config)
        return 0

    monkeypatch.setattr("sapwood.srt.launch.serve", serve)
    assert cli.main(["serve", *arguments]) == 0
    return found[0]


def test_defaults_are_those_of_the_components(monkeypatch: pytest.MonkeyPatch) -> None:
    assert served(monkeypatch) == ServerConfig()


def test_every_field_has_a_flag_that_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for part in fields(ServerConfig):
        for each in fields(part.default_factory):  # type: ignore[arg-type]
            name = "--" + each.name.replace("_", "-")
            choices = each.metadata.get("choices")
            kind = str(each.type)
            value: Any = (
                choices[-1] if choices else "7" if kind.startswith(("int", "float")) else "x"
            )
            arguments = [name] if kind == "bool" else [name, value]
            got = getattr(getattr(served(monkeypatch, *arguments), part.name), each.name)
            wanted = True if kind == "bool" else int(value) if value == "7" else value
            assert got == wanted, name


def test_model_by_place_or_by_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    assert served(monkeypatch, "a/b", "--port", "0").model.model == "a/b"
    assert served(monkeypatch, "--model", "a/b").model.model == "a/b"
    assert cli.main(["serve", "a", "--model", "b"]) == 2


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["serve", "--prot", "1"], "sapwood serve: unknown flag --prot; did you mean --port?"),
        (["serve", "--zzz=1"], "sapwood serve: unknown flag --zzz ("),
        (["serve", "--port", "x"], "argument --port: invalid int value: 'x'"),
        (["serve", "--port"], "argument --port: expected one argument"),
        (["serve", "--dtype", "int3"], "invalid choice: 'int3'"),
        (["serve", "a", "b"], "sapwood serve: unexpected argument b"),
        (["serve", "--max-run", "3"], "unknown flag --max-run; did you mean --max-running?"),
        (["sevre"], "invalid choice: 'sevre'"),
        (["generate", "x", "--temprature", "0"], "did you mean --temperature?"),
    ],
)
def test_bad_flag_is_one_line(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    written = capsys.readouterr().err
    assert line in written
    assert len(written.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--port", "70000"], "sapwood: --port is 70000; it must be 65535 or less"),
        (["--max-running", "0"], "sapwood: --max-running is 0; it must be 1 or more"),
        (["--kv-memory", "nan"], "sapwood: --kv-memory is nan; it must be a finite number"),
        (["--kv-memory", "inf"], "sapwood: --kv-memory is inf; it must be a finite number"),
        (["--stall-seconds", "inf"], "sapwood: --stall-seconds is inf; it must be a finite number"),
    ],
)
def test_value_outside_its_range(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["serve", *arguments]) == 2
    assert capsys.readouterr().err == line + "\n"


def test_help_is_grouped_and_says_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("serve", "generate", "chat", "version"):
        with pytest.raises(SystemExit) as ended:
            cli.main([command, "--help"])
        assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "the KV pool and the tree over it:" in shown
    assert "(default: 30000)" in shown
    assert cli.main([]) == 0
    assert "commands:" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--help"], ["version"], ["serve", "--help"]])
def test_light_commands_import_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys; from sapwood.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "sys.exit(bool({'torch', 'numpy', 'zmq', 'starlette'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "apwood" in done.stdout


def test_collect_takes_what_is_given() -> None:
    parser, _ = cli.make_parser()
    given = parser.parse_args(["serve", "--max-running", "3"])
    assert collect(SchedulerConfig, given) == SchedulerConfig(max_running=3)
    given = parser.parse_args(["serve", "--max-running", "-3"])
    with pytest.raises(FlagError):
        collect(SchedulerConfig, given)


class Done(NamedTuple):
    text: str
    ids: list[int]
    finish: Finish
    prompt_tokens: int = 3
    cached_tokens: int = 1
    seed: int = 5


class EchoEngine:
    """Answers with what it was asked, in capitals."""

    asked: list[Any]

    def __init__(self, **options: Any) -> None:
        EchoEngine.asked = [options]
        self.model = type("Model", (), {"defaults": {"temperature": 0.2, "top_p": 0.9, "odd": 1}})

    def __enter__(self) -> EchoEngine:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def generate(self, prompts: list[Any], params: Any) -> list[Done]:
        self.asked.append(params)
        return [Done(_text(prompt).upper(), [1, 2], Finish("stop")) for prompt in prompts]

    def stream(self, prompt: Any, params: Any) -> Iterator[Any]:
        self.asked.append(params)
        for char in _text(prompt).upper():
            yield type("Piece", (), {"text": char})


def _text(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else " ".join(m["content"] for m in prompt)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> type[EchoEngine]:
    module = type(sys)("sapwood.srt.engine")
    module.Engine = EchoEngine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sapwood.srt.engine", module)
    return EchoEngine


def test_generate_streams_one_answer(
    engine: type[EchoEngine], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["generate", "hello", "--max-tokens", "5", "--temperature", "0"]) == 0
    assert capsys.readouterr().out == "HELLO\n"
    params = engine.asked[1]
    assert (params.max_tokens, params.temperature, params.top_p) == (5, 0.0, 0.9)
    assert engine.asked[0]["model"] is None


def test_generate_several_as_json(
    engine: type[EchoEngine],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("one\n\ntwo é\n"))
    stops = ["--stop", "x", "--stop", "y"]
    assert cli.main(["generate", "--lines", "--chat", "--model", "m.gguf", *stops]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["prompt"], first["text"], first["finish_reason"]) == ("one", "ONE", "stop")
    assert second["text"] == "TWO É"
    assert engine.asked[1].stop == ("x", "y")
    assert engine.asked[0]["model"] == "m.gguf"


def test_generate_without_a_prompt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert cli.main(["generate"]) == 1
    assert "there is no prompt" in capsys.readouterr().err


def test_conversation_remembers_and_forgets(capsys: pytest.CaptureFixture[str]) -> None:
    heard: list[list[str]] = []

    def answer(messages: chat.Messages) -> Iterator[str]:
        heard.append([message["content"] for message in messages])
        if messages[-1]["content"] == "bad":
            raise RequestError("no")
        yield from ("a", "b")

    chat.converse(answer, "sys", ["one", "", "bad", "two", "/reset", "three", "/exit", "four"])
    assert heard == [
        ["sys", "one"],
        ["sys", "one", "ab", "bad"],
        ["sys", "one", "ab", "two"],
        ["sys", "three"],
    ]
    written = capsys.readouterr()
    assert written.out == "ab\n" * 3
    assert written.err == "sapwood: no\n"


def test_ctrl_c_ends_an_answer_and_not_the_conversation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    closed = []

    def answer(messages: chat.Messages) -> Iterator[str]:
        try:
            yield "a"
            if len(messages) == 1:
                raise KeyboardInterrupt
        finally:
            closed.append(True)

    chat.converse(answer, None, ["one", "two"])
    assert capsys.readouterr().out == "a [stopped]\na\n"
    assert len(closed) == 2


class Replies(BaseHTTPRequestHandler):
    """A chat server of one kind of answer each for good and bad requests."""

    bodies: list[Any]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.bodies.append((self.path, self.headers.get("authorization"), body))
        if body["messages"][-1]["content"] == "bad":
            self._send(400, json.dumps({"error": {"message": "too bad"}}).encode())
        else:
            chunks = [{"choices": [{"delta": {"content": text}}]} for text in ("é", "b")]
            chunks.append({"choices": [], "usage": {}})
            lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
            self._send(200, "".join([*lines, "data: [DONE]\n\n"]).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def chat_server() -> Iterator[HTTPServer]:
    Replies.bodies = []
    with HTTPServer(("127.0.0.1", 0), Replies) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_chat_with_a_server(
    chat_server: HTTPServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("bad\ngood\n"))
    url = f"http://127.0.0.1:{chat_server.server_port}"
    flags = ["--api-key", "k", "--temperature", "0", "--max-tokens", "9"]
    assert cli.main(["chat", "--url", url, *flags]) == 0
    written = capsys.readouterr()
    assert written.out == "éb\n"
    assert "too bad" in written.err
    path, key, body = Replies.bodies[1]
    assert (path, key) == ("/v1/chat/completions", "Bearer k")
    assert (body["temperature"], body["max_tokens"], body["stream"]) == (0, 9, True)
    assert body["messages"] == [{"role": "user", "content": "good"}]


@pytest.mark.parametrize("address", ["ftp://x", "http://"])
def test_chat_with_an_odd_address(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["chat", "--url", address]) == 1
    assert "is no address" in capsys.readouterr().err


def test_failures_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(config: ServerConfig) -> int:
        raise RequestError("why")

    monkeypatch.setattr("sapwood.srt.launch.serve", fail)
    assert cli.main(["serve"]) == 1
    assert capsys.readouterr().err == "sapwood: why\n"
