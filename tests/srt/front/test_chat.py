"""``/v1/chat/completions``."""

from __future__ import annotations

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from sapwood.srt.messages import Finish, Refused
from tests.fakes.scripted_worker import END, START, Script

from .conftest import chunks_of

URL = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]
PROMPT = [START, *b"user\nhi", END, *b"\n", START, *b"assistant\n"]


def ask(post, **fields):
    return post(URL, {"model": "tiny", "messages": HI, **fields})


def test_whole_answer(parts, post):
    parts.worker.script = lambda submit: Script(b"Hello!", cached=5)
    reply = ask(post).json()
    assert reply["object"] == "chat.completion"
    assert reply["choices"][0]["message"] == {
        "role": "assistant",
        "content": "Hello!",
        "refusal": None,
    }
    assert reply["choices"][0]["finish_reason"] == "stop"
    assert reply["choices"][0]["matched_stop"] == END
    assert reply["usage"] == {
        "prompt_tokens": len(PROMPT),
        "completion_tokens": 7,
        "total_tokens": len(PROMPT) + 7,
        "prompt_tokens_details": {"cached_tokens": 5},
    }
    assert parts.worker.submits[0].prompt_ids == PROMPT
    assert reply["seed"] == parts.worker.submits[0].seed


def test_c070_reply_fits_the_public_type_strictly(post):
    reply = ask(post, n=2, logprobs=True, top_logprobs=3).json()
    ChatCompletion.model_validate(reply, strict=True)
    plain = ask(post).json()
    ChatCompletion.model_validate(plain, strict=True)


@pytest.mark.parametrize("text", [b"Hello!", b"H", b""])
@pytest.mark.parametrize("usage", [True, False, None])
def test_c040_frames_of_a_stream(parts, post, text, usage):
    parts.worker.script = lambda submit: Script(text)
    options = {} if usage is None else {"stream_options": {"include_usage": usage}}
    chunks = chunks_of(ask(post, stream=True, **options))
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk, strict=True)
        assert ("usage" in chunk) == bool(usage)
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    if usage:
        last = chunks.pop()
        assert last["choices"] == []
        assert last["usage"]["completion_tokens"] == len(text) + 1
        assert last["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
        assert all(chunk["usage"] is None for chunk in chunks)
    first, *others = [chunk["choices"][0] for chunk in chunks]
    assert first["delta"] == {"role": "assistant", "content": ""}
    assert first["finish_reason"] is None
    assert all("role" not in choice["delta"] for choice in others)
    assert [choice["finish_reason"] for choice in others[:-1]] == [None] * (len(others) - 1)
    assert others[-1]["finish_reason"] == "stop"
    assert "".join(choice["delta"].get("content", "") for choice in others) == text.decode()


def test_c040_one_token(parts, post):
    chunks = chunks_of(ask(post, stream=True, max_tokens=1))
    assert [chunk["choices"][0]["delta"].get("content") for chunk in chunks] == ["", "H"]
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("stream", [True, False])
def test_c041_choices_keep_apart(parts, post, stream):
    texts = [b"one", b"and two, which is longer", b""]
    parts.worker.script = lambda submit: Script(texts[submit.choice])
    response = ask(post, n=3, stream=stream)
    if stream:
        got, ends = ["", "", ""], []
        for chunk in chunks_of(response):
            for choice in chunk["choices"]:
                got[choice["index"]] += choice["delta"].get("content", "")
                ends += [choice["index"]] if choice["finish_reason"] else []
        assert sorted(ends) == [0, 1, 2]
    else:
        choices = response.json()["choices"]
        assert [choice["index"] for choice in choices] == [0, 1, 2]
        got = [choice["message"]["content"] for choice in choices]
        assert response.json()["usage"]["prompt_tokens"] == len(PROMPT)
    assert got == [text.decode() for text in texts]
    assert {submit.rid for submit in parts.worker.submits} == {parts.worker.submits[0].rid}
    assert len({submit.seed for submit in parts.worker.submits}) == 1


@pytest.mark.parametrize("stream", [True, False])
def test_c042_bytes_of_partial_characters(parts, post, stream):
    text = "😊“"
    parts.worker.script = lambda submit: Script(text.encode())
    response = ask(post, logprobs=True, top_logprobs=5, stream=stream)
    if stream:
        chunks = chunks_of(response)
        parts_of = [c["choices"][0]["logprobs"] for c in chunks]
        content = [item for part in parts_of if part for item in part["content"]]
    else:
        content = response.json()["choices"][0]["logprobs"]["content"]
        assert response.json()["usage"]["completion_tokens"] == len(content)
    assert len(content) == len(text.encode()) + 1
    assert bytes(b for item in content for b in item["bytes"] or ()) == text.encode()
    assert content[0]["token"] == "bytes:\\xf0"
    assert content[-1]["token"] == "<|im_end|>"
    assert content[-1]["bytes"] is None
    for item in content:
        assert len(item["top_logprobs"]) == 5
        assert all(top["bytes"] for top in item["top_logprobs"])
        same = [top for top in item["top_logprobs"] if top["token"] == item["token"]]
        assert same[0]["logprob"] == item["logprob"]


def test_c042_a_stop_token_that_is_cut_has_no_bytes(parts, post):
    parts.worker.script = lambda submit: Script(b"ab!", Finish("stop", ord("!")))
    reply = ask(post, logprobs=True).json()["choices"][0]
    assert reply["message"]["content"] == "ab"
    assert [item["bytes"] for item in reply["logprobs"]["content"]] == [[97], [98], None]


def test_minus_infinity_is_a_number(parts, post):
    parts.worker.text_logprobs = lambda token, top: msg(token)
    content = ask(post, logprobs=True, top_logprobs=1, max_tokens=1).json()
    item = content["choices"][0]["logprobs"]["content"][0]
    assert item["logprob"] == item["top_logprobs"][0]["logprob"] == -9999.0


def msg(token):
    from sapwood.srt.messages import TokenLogprobs

    return TokenLogprobs(token, float("-inf"), [(token, float("-inf"))])


def test_text_that_is_held_back_comes_with_the_stop(parts, post):
    script = Script(b"ab\n\nUsage", Finish("length"))
    parts.worker.script = lambda submit: script
    chunks = chunks_of(ask(post, stream=True, stop="\n\nUser:"))
    texts = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
    assert "".join(texts) == "ab\n\nUsage"
    assert "" not in texts[1:]


def test_refusal_by_the_worker_has_its_status_even_for_a_stream(parts, post):
    def refuse(submit):
        return Script(
            b"",
            refused=Refused(
                rid=submit.rid,
                choice=0,
                epoch=0,
                message="the queue is full",
                status=503,
                code="queue_full",
            ),
        )

    parts.worker.script = refuse
    for stream in (True, False):
        response = ask(post, stream=stream)
        assert response.status_code == 503
        assert response.json()["error"]["code"] == "queue_full"
        assert response.headers["retry-after"] == "1"
    assert len(parts.front.journal) == 0


@pytest.mark.parametrize("stream", [True, False])
def test_a_row_that_fails_is_an_error(parts, post, stream):
    parts.worker.script = lambda submit: Script(b"", Finish("error", None, "NaN in the logits"))
    response = ask(post, stream=stream)
    assert response.status_code == 500
    assert response.json()["error"]["type"] == "server_error"
    assert len(parts.front.journal) == 0


def test_token_ids_on_request(parts, post):
    reply = ask(post, return_token_ids=True).json()
    assert reply["choices"][0]["token_ids"] == [*b"Hello!", END]
    chunks = chunks_of(ask(post, return_token_ids=True, stream=True, stop="ll?"))
    ids = [t for c in chunks for t in c["choices"][0].get("token_ids", ())]
    assert ids == [*b"Hello!", END]


def test_prefill_of_the_assistant(parts, post):
    messages = [*HI, {"role": "assistant", "content": "Well, "}]
    post(URL, {"messages": messages, "continue_final_message": True})
    assert parts.worker.submits[0].prompt_ids == [*PROMPT, *b"Well, "]


def test_content_parts_are_joined(parts, post):
    content = [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]
    post(URL, {"messages": [{"role": "user", "content": content, "name": "Ann"}]})
    assert parts.worker.submits[0].prompt_ids == PROMPT


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ([{"role": "critic", "content": "x"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ([{"role": "user", "content": "x", "nmae": "y"}], "messages[0].nmae"),
    ],
)
def test_bad_messages_say_where(post, messages, param):
    error = post(URL, {"messages": messages})
    assert error.status_code == 400
    assert error.json()["error"]["param"] == param


def test_seed_is_taken_or_made(parts, post):
    response = ask(post, seed=-7)
    assert response.json()["seed"] == -7
    assert response.headers["x-seed"] == "-7"
    seeds = {ask(post).json()["seed"] for _ in range(3)}
    assert len(seeds) == 3
    assert all(0 <= seed < 2**53 for seed in seeds)


def test_no_template_is_a_400(parts):
    from tests.fakes.scripted_worker import make_parts

    from .conftest import send

    bare = make_parts(template=None)
    response = send(bare, "POST", URL, json={"messages": HI})
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "no_chat_template"
    assert send(bare, "POST", "/v1/completions", json={"prompt": "x"}).status_code == 200
    bare.front.close()


def test_continuous_usage(post):
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = chunks_of(ask(post, stream=True, stream_options=options))
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == 7
