"""SGLang's native ``/generate``."""

from __future__ import annotations

import pytest

from tests.fakes.scripted_worker import END, Script

from .conftest import chunks_of

URL = "/generate"


def test_whole_answer(parts, post):
    parts.worker.script = lambda submit: Script(b"Hello!", cached=2)
    fields = {"text": "abc", "sampling_params": {"temperature": 0}, "rid": "r1"}
    reply = post(URL, fields).json()
    meta = reply["meta_info"]
    assert reply["text"] == "Hello!"
    assert reply["output_ids"] == [*b"Hello!", END]
    assert meta.pop("e2e_latency") > 0
    assert meta == {
        "id": "r1",
        "finish_reason": {"type": "stop", "matched": END},
        "prompt_tokens": 3,
        "completion_tokens": 7,
        "cached_tokens": 2,
        "seed": parts.worker.submits[0].seed,
    }


def test_input_ids(parts, post):
    assert post(URL, {"input_ids": [1, 2]}).json()["meta_info"]["prompt_tokens"] == 2
    replies = post(URL, {"input_ids": [[1, 2], [3]]}).json()
    assert [reply["meta_info"]["prompt_tokens"] for reply in replies] == [2, 1]


def test_stream_is_cumulative(post):
    fields = {"text": "a", "stream": True, "sampling_params": {"max_new_tokens": 3}}
    chunks = chunks_of(post(URL, fields))
    assert [chunk["text"] for chunk in chunks] == ["H", "He", "Hel"]
    assert [chunk["output_ids"] for chunk in chunks][-1] == [*b"Hel"]
    reasons = [chunk["meta_info"]["finish_reason"] for chunk in chunks]
    assert reasons == [None, None, {"type": "length", "length": 3}]
    assert "index" not in chunks[0]


def test_batches_and_samples_are_lists(parts, post):
    parts.worker.script = lambda submit: Script(bytes(submit.prompt_ids) + b"%d" % submit.choice)
    fields = {"text": ["a", "b"], "sampling_params": {"n": 2}, "rid": "job"}
    replies = post(URL, fields).json()
    assert [reply["text"] for reply in replies] == ["a0", "a1", "b0", "b1"]
    ids = [reply["meta_info"]["id"] for reply in replies]
    assert ids == ["job_0", "job_0", "job_1", "job_1"]
    assert isinstance(post(URL, {"text": ["a"]}).json(), list)
    one = post(URL, {"text": "a", "sampling_params": {"n": 2}}).json()
    assert [reply["text"] for reply in one] == ["a0", "a1"]
    chunks = chunks_of(post(URL, {**fields, "stream": True}))
    last = {chunk["index"]: chunk["text"] for chunk in chunks}
    assert last == {0: "a0", 1: "a1", 2: "b0", 3: "b1"}


def test_parameters_for_each_prompt(parts, post):
    fields = {
        "text": ["a", "b"],
        "sampling_params": [{"temperature": 0}, {"temperature": 0.5, "max_new_tokens": 1}],
        "return_logprob": [True, False],
        "top_logprobs_num": [2, 0],
    }
    replies = post(URL, fields).json()
    assert [submit.params.temperature for submit in parts.worker.submits] == [0, 0.5]
    assert len(replies[0]["meta_info"]["output_top_logprobs"][0]) == 2
    assert "output_token_logprobs" not in replies[1]["meta_info"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"sampling_params": [{}]}, "sampling_params"),
        ({"sampling_params": [{"n": 1}, {"n": 2}]}, "sampling_params"),
        ({"return_logprob": [True]}, "return_logprob"),
        ({"logprob_start_len": -2}, "logprob_start_len"),
        ({"logprob_start_len": [0, 1, 2]}, "logprob_start_len"),
        ({"top_logprobs_num": 21}, "top_logprobs_num"),
    ],
)
def test_bad_lists(post, fields, param):
    response = post(URL, {"text": ["a", "b"], **fields})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


def test_logprobs(post):
    fields = {"text": "abc", "return_logprob": True, "sampling_params": {"max_new_tokens": 2}}
    meta = post(URL, fields).json()["meta_info"]
    assert meta["output_token_logprobs"] == [[-72.0, 72, None], [-101.0, 101, None]]
    assert "input_token_logprobs" not in meta
    assert "output_top_logprobs" not in meta

    more = {"logprob_start_len": 0, "top_logprobs_num": 2, "return_text_in_logprobs": True}
    meta = post(URL, {**fields, **more}).json()["meta_info"]
    assert meta["input_token_logprobs"] == [[None, 97, "a"], [-98.0, 98, "b"], [-99.0, 99, "c"]]
    assert meta["input_top_logprobs"][0] is None
    assert meta["input_top_logprobs"][1][0] == [-98.0, 98, "b"]
    assert len(meta["output_top_logprobs"]) == 2


@pytest.mark.parametrize(("start", "count"), [(0, 3), (2, 1), (3, 0)])
def test_prompt_logprobs_from_a_position(parts, post, start, count):
    fields = {"text": "abc", "return_logprob": True, "logprob_start_len": start}
    meta = post(URL, fields).json()["meta_info"]
    assert len(meta["input_token_logprobs"]) == count
    response = post(URL, {**fields, "logprob_start_len": 4})
    assert response.status_code == 400
    assert "3 tokens" in response.json()["error"]["message"]


def test_c061_scoring_without_output(post):
    fields = {"text": "abc", "return_logprob": True, "logprob_start_len": 0}
    reply = post(URL, {**fields, "sampling_params": {"max_new_tokens": 0}}).json()
    assert reply["output_ids"] == []
    assert len(reply["meta_info"]["input_token_logprobs"]) == 3


def test_seeds(parts, post):
    for params in ({"seed": 5}, {"sampling_seed": 5}, {"seed": 5, "sampling_seed": 6}):
        post(URL, {"text": "a", "sampling_params": params})
    assert [submit.seed for submit in parts.worker.submits] == [5, 5, 5]
