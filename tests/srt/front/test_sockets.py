"""What needs a real connection: OpenAI's client, clients that leave, streams that break."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time

import httpx
import openai
import pytest

from sapwood.srt.front import http_server
from tests.fakes.scripted_worker import Script

HI = [{"role": "user", "content": "hi"}]
LONG = Script(b"abcdefghij" * 1000)


def eventually(condition, seconds=5.0):
    """Waits for something that another thread brings about."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.005)


def quiet(running):
    """Nothing in flight, and the worker has nothing left to do."""
    return len(running.parts.front.journal) == 0 and not running.parts.worker.running


@pytest.fixture
def slow(start):
    """A server whose worker goes on for long, a token every 2 ms."""
    running = start(context_length=20000)
    running.parts.worker.script = lambda submit: LONG
    running.parts.worker.delay = 0.002
    return running


# OpenAI's client


def test_sync_client(running):
    with running.openai() as client:
        reply = client.chat.completions.create(model="tiny", messages=HI)
        assert reply.choices[0].message.content == "Hello!"
        assert reply.usage.prompt_tokens_details.cached_tokens == 0
        stream = client.chat.completions.create(
            model="default", messages=HI, stream=True, stream_options={"include_usage": True}
        )
        chunks = list(stream)
        assert chunks[-1].usage.completion_tokens == 7
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        assert text == "Hello!"
        reply = client.completions.create(model="tiny", prompt=["a", "b"], n=2, logprobs=1)
        assert [choice.index for choice in reply.choices] == [0, 1, 2, 3]
        assert [model.id for model in client.models.list()] == ["tiny"]
        assert client.models.retrieve("tiny").id == "tiny"


def test_sync_client_helpers(running):
    with running.openai() as client:
        with client.chat.completions.stream(model="tiny", messages=HI) as stream:
            final = stream.get_final_completion()
        assert final.choices[0].message.content == "Hello!"
        raw = client.chat.completions.with_raw_response.create(model="tiny", messages=HI, seed=3)
        assert raw.headers["x-seed"] == "3"


def test_sync_client_errors(running):
    with running.openai() as client:
        with pytest.raises(openai.NotFoundError) as missing:
            client.chat.completions.create(model="gpt-4", messages=HI)
        assert missing.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError) as bad:
            client.chat.completions.create(model="tiny", messages=HI, temperature=9)
        assert bad.value.param == "temperature"
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(
                model="tiny", messages=HI, extra_body={"tempratur": 1}, stream=True
            )


def test_async_client(running):
    async def one(client, i):
        stream = await client.chat.completions.create(model="tiny", messages=HI, stream=True, n=2)
        texts = ["", ""]
        async for chunk in stream:
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
        return texts

    async def go():
        url = f"{running.url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="x", max_retries=0) as client:
            reply = await client.chat.completions.create(model="tiny", messages=HI)
            assert reply.choices[0].message.content == "Hello!"
            return await asyncio.gather(*(one(client, i) for i in range(20)))

    assert asyncio.run(go()) == [["Hello!", "Hello!"]] * 20
    eventually(lambda: quiet(running))


# C044: errors in the middle


def fail_after_three(running):
    worker = running.parts.worker
    running.call(lambda: setattr(worker, "manual", True))
    for _ in range(3):
        running.call(worker.step)


@pytest.mark.parametrize("how", ["worker", "abort"])
def test_c044_error_in_the_middle_of_a_stream(slow, how):
    slow.parts.worker.manual = True
    chunks = []
    with slow.openai() as client:

        def read():
            stream = client.chat.completions.create(
                model="tiny", messages=HI, stream=True, extra_body={"rid": "r1"}
            )
            chunks.extend(stream)

        raised = []

        def run():
            try:
                read()
            except openai.APIError as error:
                raised.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        eventually(lambda: slow.parts.worker.running)
        fail_after_three(slow)
        if how == "worker":
            slow.call(lambda: slow.parts.front.fail("the worker is gone"))
        else:
            reply = httpx.post(f"{slow.url}/abort_request", json={"rid": "r1"})
            assert reply.json() == {"aborted": 1}
        thread.join(5)
        assert not thread.is_alive()
    assert len(raised) == 1
    assert raised[0].code == ("worker_failed" if how == "worker" else "request_aborted")
    assert all(chunk.choices[0].finish_reason is None for chunk in chunks)
    eventually(lambda: quiet(slow))


def test_c044_frames_of_a_failed_stream(slow):
    body = {"messages": HI, "stream": True}
    with httpx.stream("POST", f"{slow.url}/v1/chat/completions", json=body) as response:
        slow.call(lambda: slow.parts.front.fail("gone"))
        lines = [line for line in response.iter_lines() if line]
    assert json.loads(lines[-1].removeprefix("data: "))["error"]["code"] == "worker_failed"
    assert "data: [DONE]" not in lines
    assert sum("error" in line for line in lines) == 1


def test_c044_failure_before_the_first_token(slow):
    slow.parts.worker.manual = True
    replies = []

    def ask(stream):
        body = {"messages": HI, "stream": stream}
        replies.append(httpx.post(f"{slow.url}/v1/chat/completions", json=body))

    threads = [threading.Thread(target=ask, args=(stream,)) for stream in (True, False)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(slow.parts.worker.running) == 2)
    slow.call(lambda: slow.parts.front.fail("gone"))
    for thread in threads:
        thread.join(5)
    assert [reply.status_code for reply in replies] == [503, 503]
    assert httpx.post(f"{slow.url}/generate", json={"text": "x"}).status_code == 503


def test_abort_of_a_native_request_is_an_answer(slow):
    slow.parts.worker.manual = True
    replies = []

    def ask():
        fields = {"text": "x", "rid": "r1", "sampling_params": {"n": 2}}
        replies.append(httpx.post(f"{slow.url}/generate", json=fields))

    thread = threading.Thread(target=ask)
    thread.start()
    eventually(lambda: slow.parts.worker.running)
    fail_after_three(slow)
    httpx.post(f"{slow.url}/abort_request", json={"rid": "r1"})
    thread.join(5)
    (reply,) = replies
    assert reply.status_code == 200
    assert [part["text"] for part in reply.json()] == ["abc", "abc"]
    assert [part["meta_info"]["finish_reason"]["type"] for part in reply.json()] == ["abort"] * 2
    eventually(lambda: quiet(slow))


# C057: clients that leave


def raw_post(running, path, body):
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
    connection = socket.create_connection(("127.0.0.1", running.port))
    connection.sendall(head.encode() + data)
    return connection


PATHS = {
    "/v1/chat/completions": {"messages": HI},
    "/v1/completions": {"prompt": "x", "max_tokens": 9000},
    "/generate": {"text": ["x", "y"], "sampling_params": {"max_new_tokens": 9000}},
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("when", ["before the first token", "after some"])
def test_c057_client_goes_away(slow, stream, when):
    worker = slow.parts.worker
    worker.manual = when == "before the first token"
    connections = [
        raw_post(slow, path, {**body, "stream": stream, **({} if "gen" in path else {"n": 4})})
        for path, body in PATHS.items()
    ]
    eventually(lambda: len(worker.running) == 10)
    if not worker.manual:
        eventually(lambda: worker.steps > 5)
    for connection in connections:
        connection.close()
    eventually(lambda: quiet(slow), 2.0)
    assert len(worker.aborts) == 4
    worker.script = lambda submit: Script(b"ok")
    slow.call(lambda: setattr(worker, "manual", False))
    reply = httpx.post(f"{slow.url}/generate", json={"text": "x"})
    assert reply.json()["text"] == "ok"


def test_a_client_that_takes_nothing_is_dropped(start):
    running = start(context_length=10_000_000, stall_seconds=0.3)
    worker = running.parts.worker
    worker.script = lambda submit: Script(b"x" * 4_000_000, step=20_000)
    worker.delay = 0.02
    body = {"text": "x", "stream": True, "sampling_params": {"max_new_tokens": 4_000_000}}
    connection = raw_post(running, "/generate", body)
    eventually(lambda: worker.steps > 1)
    eventually(lambda: quiet(running))
    assert worker.aborts
    connection.settimeout(5)
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(2**20):
            pass
    connection.close()


def test_a_slow_client_gets_everything(start):
    running = start(context_length=100_000)
    running.parts.worker.script = lambda submit: Script(b"0123456789" * 2000, step=100)
    body = {"prompt": "x", "stream": True, "max_tokens": 20_000}
    text = ""
    with httpx.stream("POST", f"{running.url}/v1/completions", json=body) as response:
        for i, line in enumerate(response.iter_lines()):
            if i % 50 == 0:
                time.sleep(0.01)
            if line.startswith("data: {"):
                text += json.loads(line[6:])["choices"][0]["text"]
    assert text == "0123456789" * 2000


# C064: rids


def test_c064_same_rid_while_alive(slow):
    first = raw_post(slow, "/generate", {"text": "x", "rid": "r1", "stream": True})
    eventually(lambda: slow.parts.worker.running)
    again = httpx.post(f"{slow.url}/generate", json={"text": "y", "rid": "r1"})
    assert again.status_code == 409
    assert again.json()["error"]["param"] == "rid"
    assert len(slow.parts.worker.running) == 1
    first.close()
    eventually(lambda: quiet(slow))
    slow.parts.worker.script = lambda submit: Script(b"ok")
    for _ in range(2):
        again = httpx.post(f"{slow.url}/generate", json={"text": "y", "rid": "r1"})
        assert again.json()["meta_info"]["id"] == "r1"


def test_c064_abort_while_the_second_is_refused(slow):
    """C064: the abort reaches the one that lives, and another's rid that begins alike does not."""
    first = raw_post(slow, "/generate", {"text": "x", "rid": "r1", "stream": True})
    other = raw_post(slow, "/generate", {"text": "x", "rid": "r10", "stream": True})
    eventually(lambda: len(slow.parts.worker.running) == 2)
    again = httpx.post(f"{slow.url}/generate", json={"text": "y", "rid": "r1"})
    assert again.status_code == 409
    assert httpx.post(f"{slow.url}/abort_request", json={"rid": "r1"}).status_code == 200
    eventually(lambda: len(slow.parts.worker.running) == 1)
    first.close()
    other.close()
    eventually(lambda: quiet(slow))


# C056: flush


def test_c056_flush_while_a_request_runs(slow):
    connection = raw_post(slow, "/generate", {"text": "x", "stream": True})
    eventually(lambda: slow.parts.worker.running)
    assert httpx.post(f"{slow.url}/flush_cache").status_code == 409
    connection.close()
    eventually(lambda: quiet(slow))
    assert httpx.post(f"{slow.url}/flush_cache").status_code == 200


# The connection itself


def test_too_large_a_body_over_a_socket(start):
    running = start(max_body_bytes=10_000)
    connection = socket.create_connection(("127.0.0.1", running.port))
    connection.sendall(b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
    assert connection.recv(100).startswith(b"HTTP/1.1 413")
    connection.close()


def test_headers_without_end_are_refused(running):
    connection = socket.create_connection(("127.0.0.1", running.port))
    connection.settimeout(10)
    connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX: ")
    with contextlib.suppress(ConnectionError):
        for _ in range(4096):  # 64 MiB, if nobody stops it
            connection.sendall(b"a" * 16384)
        pytest.fail("all of it was taken")
    connection.close()
    assert httpx.get(f"{running.url}/health").status_code == 200


def test_headers_a_little_too_long_are_told_so(running):
    connection = socket.create_connection(("127.0.0.1", running.port))
    connection.settimeout(10)
    connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n")
    for _ in range(66):  # the last one is too much
        connection.sendall(b"X: " + b"a" * 1000 + b"\r\n")
        time.sleep(0.002)
    assert connection.recv(100).startswith(b"HTTP/1.1 431")
    connection.close()


def test_headers_that_do_not_come(running, monkeypatch):
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", running.port)) as connection:
        connection.settimeout(10)
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHo")
        assert connection.recv(100).startswith(b"HTTP/1.1 408")
    with httpx.Client(base_url=running.url) as client:  # one that is complete is left alone
        for _ in range(3):
            assert client.get("/health").status_code == 200
            time.sleep(0.3)


def test_a_body_that_does_not_come(start):
    running = start(stall_seconds=0.2)
    connection = socket.create_connection(("127.0.0.1", running.port))
    connection.sendall(b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
    connection.settimeout(5)
    assert connection.recv(100).startswith(b"HTTP/1.1 408")
    connection.close()


def test_one_connection_serves_many_requests(running):
    with httpx.Client(base_url=running.url) as client:
        for _ in range(5):
            body = {"messages": HI, "stream": True}
            assert client.post("/v1/chat/completions", json=body).text.endswith("[DONE]\n\n")
            assert client.post("/v1/chat/completions", json={"messages": []}).status_code == 400


def test_encoding_does_not_hold_the_event_loop(start):
    """While a long text is tokenised, others are answered."""
    running = start(max_body_bytes=2**26)
    release, entered = threading.Event(), threading.Event()
    encode = running.parts.front.intake.completion

    def wait(body):
        entered.set()
        assert release.wait(10)
        return encode(body)

    running.parts.front.intake.completion = wait
    thread = threading.Thread(
        target=httpx.post, args=(f"{running.url}/v1/completions",), kwargs={"json": {"prompt": "x"}}
    )
    thread.start()
    assert entered.wait(5)
    assert httpx.get(f"{running.url}/health").status_code == 200
    assert httpx.post(f"{running.url}/generate", json={"text": "x"}).status_code == 200
    release.set()
    thread.join(5)
