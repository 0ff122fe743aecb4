"""``/v1/completions``."""

from __future__ import annotations

import pytest
from openai.types import Completion

from tests.fakes.scripted_worker import END, Script

from .conftest import chunks_of

URL = "/v1/completions"


def test_whole_answer(post):
    reply = post(URL, {"model": "tiny", "prompt": "abc"}).json()
    Completion.model_validate(reply, strict=True)
    assert reply["object"] == "text_completion"
    assert reply["choices"][0]["text"] == "Hello!"
    assert reply["choices"][0]["finish_reason"] == "stop"
    assert reply["usage"]["prompt_tokens"] == 3


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("prompt", [["a", "bb"], [[97], [98, 98]]])
def test_c041_index_is_prompt_times_n_plus_sample(parts, post, stream, prompt):
    def script(submit):
        return Script(bytes(submit.prompt_ids) * (1 + 3 * submit.choice))

    parts.worker.script = script
    options = {"stream": stream, "stream_options": {"include_usage": True}, "max_tokens": 50}
    response = post(URL, {"prompt": prompt, "n": 3, **options})
    texts, ends = {}, []
    if stream:
        *chunks, last = chunks_of(response)
        usage = last["usage"]
        assert last["choices"] == []
        for chunk in chunks:
            for choice in chunk["choices"]:
                texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
                ends += [choice["index"]] if choice["finish_reason"] else []
    else:
        usage = response.json()["usage"]
        for choice in response.json()["choices"]:
            texts[choice["index"]] = choice["text"]
            ends.append(choice["index"])
    assert sorted(ends) == list(range(6))
    assert texts == {
        0: "a",
        1: "a" * 4,
        2: "a" * 7,
        3: "b" * 2,
        4: "b" * 8,
        5: "b" * 14,
    }
    assert usage["prompt_tokens"] == 3
    assert usage["completion_tokens"] == sum(map(len, texts.values())) + 6


def test_ids_and_text_are_the_same_prompt(parts, post):
    post(URL, {"prompt": [72, 105]})
    post(URL, {"prompt": "Hi"})
    first, second = parts.worker.submits
    assert first.prompt_ids == second.prompt_ids == [72, 105]


def test_raw_prompts_keep_control_tokens(parts, post):
    post(URL, {"prompt": "a<|im_end|>"})
    assert parts.worker.submits[0].prompt_ids == [97, END]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("prompt", ["abc", [97, 98, 99]])
def test_echo(parts, post, stream, prompt):
    response = post(URL, {"prompt": prompt, "echo": True, "n": 2, "stream": stream})
    if stream:
        texts = ["", ""]
        for chunk in chunks_of(response):
            texts[chunk["choices"][0]["index"]] += chunk["choices"][0]["text"]
    else:
        texts = [choice["text"] for choice in response.json()["choices"]]
    assert texts == ["abcHello!", "abcHello!"]


@pytest.mark.parametrize("stream", [True, False])
def test_logprobs_with_echo(parts, post, stream):
    response = post(
        URL, {"prompt": "ab", "echo": True, "logprobs": 2, "max_tokens": 2, "stream": stream}
    )
    if stream:
        got = {"tokens": [], "token_logprobs": [], "text_offset": [], "top_logprobs": []}
        for chunk in chunks_of(response):
            for name, values in chunk["choices"][0]["logprobs"].items():
                got[name] += values
    else:
        got = response.json()["choices"][0]["logprobs"]
    assert got["tokens"] == ["a", "b", "H", "e"]
    assert got["token_logprobs"] == [None, -98.0, -72.0, -101.0]
    assert got["text_offset"] == [0, 1, 2, 3]
    assert got["top_logprobs"][0] is None
    assert [len(top) for top in got["top_logprobs"][1:]] == [2, 2, 2]


def test_logprobs_without_echo(post):
    reply = post(URL, {"prompt": "ab", "logprobs": 0, "max_tokens": 2}).json()
    got = reply["choices"][0]["logprobs"]
    assert got["tokens"] == ["H", "e"]
    assert got["text_offset"] == [2, 3]
    assert got["top_logprobs"] == [None, None]


def test_offsets_count_characters(parts, post):
    parts.worker.script = lambda submit: Script("é😊x".encode())
    reply = post(URL, {"prompt": "a", "logprobs": 1}).json()
    got = reply["choices"][0]["logprobs"]
    assert got["text_offset"] == [1, 1, 2, 2, 2, 2, 3, 4]
    assert len(got["tokens"]) == reply["usage"]["completion_tokens"]


def test_scoring_without_generation(post):
    fields = {"prompt": "abc", "max_tokens": 0, "echo": True, "logprobs": 1}
    reply = post(URL, fields).json()
    assert reply["choices"][0]["text"] == "abc"
    assert reply["choices"][0]["logprobs"]["token_logprobs"] == [None, -98.0, -99.0]
    assert reply["choices"][0]["finish_reason"] == "length"


def test_token_ids_on_request(parts, post):
    fields = {"prompt": "ab", "return_token_ids": True, "max_tokens": 2}
    choice = post(URL, fields).json()["choices"][0]
    assert choice["token_ids"] == [*b"He"]
    assert choice["prompt_token_ids"] == [*b"ab"]
    chunks = chunks_of(post(URL, {**fields, "stream": True}))
    assert [chunk["choices"][0]["token_ids"] for chunk in chunks] == [[72], [101]]
    assert "prompt_token_ids" not in chunks[1]["choices"][0]


def test_matched_stop_string(parts, post):
    from sapwood.srt.messages import Finish

    parts.worker.script = lambda submit: Script(b"one.two", Finish("stop", ".two"))
    choice = post(URL, {"prompt": "x", "stop": [".two"]}).json()["choices"][0]
    assert (choice["text"], choice["matched_stop"]) == ("one", ".two")
    fields = {"prompt": "x", "stop": [".two"], "include_stop_str_in_output": True}
    assert post(URL, fields).json()["choices"][0]["text"] == "one.two"
