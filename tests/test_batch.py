"""``sapwood batch``: no line lost, none doubled, wherever a run is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sapwood import batch as module
from sapwood.batch import Answer, Output, run
from sapwood.cli import main
from sapwood.srt.errors import UsageError


def request(name: str, text: str = "x", url: str = "/v1/completions") -> str:
    body = {"prompt": text, "max_tokens": 4, "temperature": 0}
    return json.dumps({"custom_id": name, "method": "POST", "url": url, "body": body})


class Echo:
    """Answers with the prompt. ``down`` says which calls find nobody."""

    def __init__(self, down: int = 0) -> None:
        self.calls: list[Any] = []
        self.down = down

    async def answer(self, url: str, body: Mapping[str, Any]) -> Answer:
        self.calls.append(body["prompt"])
        await asyncio.sleep(0)
        if len(self.calls) <= self.down:
            return Answer(503, {"error": {}}, again=True)
        return Answer(200, {"id": "x", "text": body["prompt"]})


class Silent:
    def see(self, answer: Answer) -> None:
        pass


def go(source: Path, out: Path, target: Any = None, concurrency: int = 4) -> int:
    output = Output(out)
    try:
        return asyncio.run(run(source, output, target or Echo(), Silent(), concurrency))
    finally:
        output.close()


def entries(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines()]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "in.jsonl"
    file.write_text("\n".join(request(f"r{i}", f"text {i} é") for i in range(9)) + "\n")
    return file


def test_every_line_is_answered_once(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert go(source, out) == 0
    found = {entry["custom_id"]: entry for entry in entries(out)}
    assert len(found) == len(entries(out)) == 9
    assert found["r3"]["response"]["body"]["text"] == "text 3 é"
    assert found["r3"]["error"] is None


def test_killed_at_any_byte_nothing_is_lost_or_doubled(source: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole.jsonl"
    go(source, whole)
    data = whole.read_bytes()
    part = tmp_path / "part.jsonl"
    for cut in range(0, len(data) + 1, 7):
        part.write_bytes(data[:cut])
        target = Echo()
        go(source, part, target)
        names = [entry["custom_id"] for entry in entries(part)]
        assert sorted(names) == [f"r{i}" for i in range(9)]
        assert len(target.calls) == 9 - data[:cut].count(b"\n")


def test_a_line_that_is_wrong_becomes_an_error_line(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [
        "nonsense",
        "[]",
        '{"url": "/v1/completions", "body": {}}',
        request("twice"),
        request("twice"),
        request("where", url="/v1/embeddings"),
        '{"custom_id": "body", "url": "/v1/completions", "body": 3}',
        '{"custom_id": "get", "method": "GET", "url": "/v1/completions", "body": {}}',
        '{"custom_id": "s", "url": "/v1/completions", "body": {"stream": true}}',
        "",
        request("good"),
    ]
    source.write_text("\n".join(lines))
    assert go(source, out) == 0
    found = {entry["id"]: entry for entry in entries(out)}
    assert len(found) == 10
    wrong = {id for id, entry in found.items() if entry["error"] is not None}
    assert wrong == {f"batch_req_{number}" for number in (1, 2, 3, 5, 6, 7, 8, 9)}
    assert "line 4 has the same custom_id" in found["batch_req_5"]["error"]["message"]
    target = Echo()
    go(source, out, target)
    assert not target.calls


def test_nobody_there_is_tried_again_and_left_for_the_next_run(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.0)
    out = tmp_path / "out.jsonl"
    assert go(source, out, Echo(down=5)) == 0
    assert len(entries(out)) == 9
    out.unlink()
    assert go(source, out, Echo(down=10_000)) == 9
    assert out.read_text() == ""
    assert go(source, out) == 0


def test_two_runs_do_not_write_one_file(source: Path, tmp_path: Path) -> None:
    output = Output(tmp_path / "out.jsonl")
    with pytest.raises(UsageError, match="another run"):
        Output(tmp_path / "out.jsonl")
    output.close()
    Output(tmp_path / "out.jsonl").close()


def test_another_file_is_not_written_over(source: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("something dear\n")
    with pytest.raises(UsageError, match="no line of a batch's output"):
        Output(other)
    assert other.read_text() == "something dear\n"
    out = tmp_path / "out.jsonl"
    go(source, out)
    source.write_text(request("else") + "\n")
    with pytest.raises(UsageError, match="another input"):
        go(source, out)


def test_input_is_read_as_there_is_room(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(request(str(i)) for i in range(200)))
    running, most = 0, 0

    class Counting(Echo):
        async def answer(self, url: str, body: Mapping[str, Any]) -> Answer:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            running -= 1
            return await super().answer(url, body)

    go(source, tmp_path / "out.jsonl", Counting(), concurrency=7)
    assert most == 7


def test_the_command_with_a_model(
    tmp_path: Path, default_model_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    chat = {
        "messages": [{"role": "user", "content": "A number, as JSON."}],
        "max_tokens": 30,
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
    }
    lines = [
        request("text", "One two three"),
        json.dumps({"custom_id": "held", "url": "/v1/chat/completions", "body": chat}),
        json.dumps({"custom_id": "bad", "url": "/v1/completions", "body": {"prompt": 3}}),
    ]
    source.write_text("\n".join(lines))
    argv = [
        "batch",
        str(source),
        str(out),
        "--model",
        str(default_model_path),
        "--kv-tokens",
        "4096",
    ]
    assert main(argv) == 1
    found = {entry["custom_id"]: entry["response"] for entry in entries(out)}
    assert found["text"]["body"]["choices"][0]["text"]
    answer = found["held"]["body"]["choices"][0]["message"]["content"]
    assert isinstance(json.loads(answer)["a"], int)
    assert found["bad"]["status_code"] == 400
    assert "3 of 3 lines are answered, 1 of them with errors" in capsys.readouterr().err


def test_a_killed_run_is_resumed(tmp_path: Path, default_model_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(request(f"r{i}", f"Story {i}:") for i in range(40)))
    argv = [
        *(sys.executable, "-m", "sapwood", "batch", str(source), str(out)),
        *("--model", str(default_model_path), "--kv-tokens", "4096", "--concurrency", "2"),
    ]
    process = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    try:
        for _ in range(1200):
            if out.exists() and out.read_bytes().count(b"\n") >= 3:
                break
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.05)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert 3 <= out.read_bytes().count(b"\n") < 40
    assert subprocess.run(argv, stderr=subprocess.DEVNULL).returncode == 0
    assert sorted(entry["custom_id"] for entry in entries(out)) == sorted(
        f"r{i}" for i in range(40)
    )
