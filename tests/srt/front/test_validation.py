"""What is refused at the front door, and how."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_create_params

from sapwood.srt.errors import RequestError
from sapwood.srt.front.bodies import ChatBody, CompletionBody, GenerateBody, NativeParams
from sapwood.srt.front.protocol import NOT_YET, decode
from sapwood.srt.front.resolve import namespace
from tests.fakes.scripted_worker import BOS, VOCAB, Script, make_parts

from .conftest import send

CHAT, COMPLETIONS, GENERATE = "/v1/chat/completions", "/v1/completions", "/generate"
HI = [{"role": "user", "content": "hi"}]


def chat(post, **fields):
    return post(CHAT, {"messages": HI, **fields})


def complete(post, prompt="x", **fields):
    return post(COMPLETIONS, {"prompt": prompt, **fields})


def native(post, **params):
    return post(GENERATE, {"text": "x", "sampling_params": params})


def refused(response, param, status=400, code=None):
    """The error of an answer that must be one, with OpenAI's shape."""
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param
    assert error["message"]
    if code is not None:
        assert error["code"] == code
    return error


# C070: unknown, null and extra fields


@pytest.mark.parametrize(
    ("field", "nearest"),
    [("temprature", "temperature"), ("max_token", "max_tokens"), ("mesages", "messages")],
)
def test_c070_unknown_fields_are_refused_with_the_nearest(post, field, nearest):
    error = refused(chat(post, **{field: 1}), field, code="unknown_parameter")
    assert repr(nearest) in error["message"]


def test_c070_unknown_fields_inside(post):
    response = chat(post, stream_options={"include_usag": True})
    error = refused(response, "stream_options.include_usag")
    assert "'include_usage'" in error["message"]
    error = refused(native(post, max_tokens=5), "sampling_params.max_tokens")
    assert "'max_new_tokens'" in error["message"]
    assert "nearest" in refused(chat(post, foo=1), "foo")["message"]


@pytest.mark.parametrize(
    ("body", "params"),
    [
        (ChatBody, chat_create_params.CompletionCreateParamsBase),
        (CompletionBody, completion_create_params.CompletionCreateParamsBase),
    ],
)
def test_c070_every_published_field_is_known(body, params):
    known = {field.encode_name for field in msgspec.structs.fields(body)}
    assert set(params.__annotations__) <= known


@pytest.mark.parametrize(
    ("path", "body", "fixed"),
    [
        (CHAT, ChatBody, {"messages": HI}),
        (COMPLETIONS, CompletionBody, {"prompt": "x"}),
        (GENERATE, GenerateBody, {"text": "x"}),
    ],
)
def test_c070_null_is_the_default(parts, post, path, body, fixed):
    nulls = {
        f.encode_name: None for f in msgspec.structs.fields(body) if f.encode_name not in fixed
    }
    assert post(path, fixed).status_code == 200
    assert post(path, {**nulls, **fixed}).status_code == 200
    plain, with_nulls = parts.worker.submits
    assert plain.params == with_nulls.params


def test_native_nulls_are_defaults(parts, post):
    nulls = {field.encode_name: None for field in msgspec.structs.fields(NativeParams)}
    assert native(post).status_code == native(post, **nulls).status_code == 200
    assert parts.worker.submits[0].params == parts.worker.submits[1].params


def test_c070_fields_without_meaning_are_accepted(post):
    response = chat(
        post,
        user="u",
        store=True,
        metadata={"a": "b"},
        service_tier="auto",
        parallel_tool_calls=False,
        prediction={"type": "content", "content": "x"},
        reasoning_effort="low",
        modalities=["text"],
        safety_identifier="s",
        prompt_cache_key="k",
        verbosity="low",
        response_format={"type": "text"},
        tool_choice="none",
        tools=[],
    )
    assert response.status_code == 200


def test_c070_messages_of_an_earlier_answer_can_be_sent_back(post):
    message = chat(post).json()["choices"][0]["message"]
    extra = {"annotations": None, "audio": None, "function_call": None, "tool_calls": None}
    assert post(CHAT, {"messages": [*HI, {**message, **extra}, *HI]}).status_code == 200


@pytest.mark.parametrize("model", ["tiny", "default", None])
def test_c070_names_of_the_model(post, model):
    assert chat(post, model=model).status_code == 200


@pytest.mark.parametrize("model", ["gpt-4", "", "TINY"])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, GENERATE, "/tokenize"])
def test_c070_wrong_model_is_a_404(post, model, path):
    fields = {
        CHAT: {"messages": HI},
        COMPLETIONS: {"prompt": "x"},
        GENERATE: {"text": "x"},
        "/tokenize": {"prompt": "x"},
    }
    response = post(path, {**fields[path], "model": model})
    refused(response, "model", 404, "model_not_found")


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        (CHAT, "functions", [{"name": "f"}]),
        (CHAT, "audio", {"voice": "x", "format": "wav"}),
        (CHAT, "modalities", ["text", "audio"]),
        (CHAT, "web_search_options", {"a": 1}),
        (CHAT, "guided_decoding_backend", "x"),
        (CHAT, "logits_processors", ["x"]),
        (CHAT, "chat_template", "{{ messages }}"),
        (COMPLETIONS, "suffix", "x"),
        (COMPLETIONS, "best_of", 3),
        (GENERATE, "lora_path", "x"),
        (GENERATE, "image_data", "x"),
    ],
)
def test_what_would_change_the_answer_is_refused(parts, post, path, field, value):
    fixed = {CHAT: {"messages": HI}, COMPLETIONS: {"prompt": "x"}, GENERATE: {"text": "x"}}
    error = refused(post(path, {**fixed[path], field: value}), field, code="unsupported_parameter")
    assert NOT_YET[field] in error["message"]
    assert not parts.worker.submits


@pytest.mark.parametrize("field", ["stop_regex", "custom_params"])
def test_native_fields_that_would_change_the_answer_are_refused(parts, post, field):
    refused(native(post, **{field: "x"}), f"sampling_params.{field}")
    assert not parts.worker.submits


def test_best_of_equal_to_n_is_what_happens_anyway(post):
    assert complete(post, n=2, best_of=2).status_code == 200
    assert complete(post, best_of=1).status_code == 200


# Bodies that are no JSON, or not what was asked for


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"nope", b"\xff", b'{"messages": NaN}', b'{"temperature": Infinity}', b"[" * 10**5],
)
def test_malformed_json_is_a_400(post, body):
    response = post(CHAT, content=body)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"5", b"null"])
def test_a_body_must_be_an_object(post, body):
    assert refused(post(CHAT, content=body), None)


def test_missing_field_is_named(post):
    refused(post(CHAT, {}), "messages", code="missing_parameter")


@pytest.mark.parametrize("send_length", [True, False])
def test_too_large_a_body_is_a_413(send_length):
    parts = make_parts(max_body_bytes=1000)
    body = json.dumps({"prompt": "x" * 2000}).encode()

    async def pieces():
        for start in range(0, len(body), 100):
            yield body[start : start + 100]

    response = send(parts, "POST", COMPLETIONS, content=body if send_length else pieces())
    refused(response, None, 413, "body_too_large")
    parts.front.close()


def test_wrong_paths_and_methods(post, parts):
    refused(post("/v2/nothing"), None, 404)
    response = send(parts, "GET", CHAT)
    refused(response, None, 405)
    assert response.headers["allow"] == "POST"


# Ranges: each field at both ends, beyond them, and of the wrong type

RANGES = {
    "temperature": (0.0, 2.0, float),
    "top_p": (1e-9, 1.0, float),
    "min_p": (0.0, 1.0, float),
    "repetition_penalty": (0.01, 2.0, float),
    "presence_penalty": (-2.0, 2.0, float),
    "frequency_penalty": (-2.0, 2.0, float),
    "top_k": (-1, 2**31 - 1, int),
    "n": (1, 128, int),
    "seed": (-(2**63), 2**63 - 1, int),
}


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, GENERATE])
@pytest.mark.parametrize("field", RANGES)
def test_ranges(post, path, field):
    low, high, kind = RANGES[field]

    def ask(value):
        if path == GENERATE:
            return native(post, **{field: value, "max_new_tokens": 1})
        fixed = {"messages": HI} if path == CHAT else {"prompt": "x"}
        return post(path, {**fixed, field: value, "max_tokens": 1})

    step = 1 if kind is int else 0.001
    assert ask(low).status_code == ask(high).status_code == 200
    full = field if path != GENERATE else f"sampling_params.{field}"
    for bad in (low - step, high + step, 2**63 if kind is int else 1e300):
        refused(ask(bad), full)
    for wrong in ("1", True, [1], {"a": 1}, *((1.5,) if kind is int else ())):
        refused(ask(wrong), full)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("field", ["temperature", "top_p", "min_p", "presence_penalty", "n"])
def test_numbers_that_are_none(post, field, word):
    body = f'{{"prompt": "x", "{field}": {word}}}'.encode()
    assert post(COMPLETIONS, content=body).status_code == 400


@given(st.dictionaries(st.sampled_from(sorted(RANGES)), st.floats() | st.integers(), max_size=4))
@settings(max_examples=60, deadline=None)
def test_any_numbers_are_run_or_refused(values):
    intake = PARTS.front.intake
    body = json.dumps({"prompt": "x", **values}).encode()
    try:
        prepared = intake.completion(decode(body, CompletionBody))
    except RequestError:
        return
    for name, value in values.items():
        low, high, _ = RANGES[name]
        assert low <= value <= high or (name == "top_p" and value > 0)
    assert prepared.prompts[0].params.n == values.get("n", 1)


PARTS = make_parts()


# C061: budgets


def budget_of(parts):
    return parts.worker.submits[-1].params.max_tokens


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("bad", [-1, 1.5, "5", True])
def test_c061_bad_budgets(post, path, bad):
    fixed = {"messages": HI} if path == CHAT else {"prompt": "x"}
    refused(post(path, {**fixed, "max_tokens": bad}), "max_tokens")
    if path == CHAT:
        refused(post(path, {**fixed, "max_completion_tokens": bad}), "max_completion_tokens")


def test_c061_defaults_and_clipping(parts, post):
    complete(post)
    assert budget_of(parts) == 16
    complete(post, max_tokens=None)
    assert budget_of(parts) == 16
    complete(post, max_tokens=10**12)
    assert budget_of(parts) == 127
    chat(post)
    prompt = len(parts.worker.submits[-1].prompt_ids)
    assert budget_of(parts) == 128 - prompt
    native(post)
    assert budget_of(parts) == 127
    native(post, max_new_tokens=10**12)
    assert budget_of(parts) == 127


def test_c061_which_name_wins(parts, post):
    chat(post, max_tokens=3, max_completion_tokens=5)
    assert budget_of(parts) == 5
    chat(post, max_tokens=3)
    assert budget_of(parts) == 3
    chat(post, max_completion_tokens=4)
    assert budget_of(parts) == 4


def test_c061_zero(parts, post):
    reply = chat(post, max_tokens=0).json()
    assert reply["choices"][0]["finish_reason"] == "length"
    assert reply["usage"]["completion_tokens"] == 0
    reply = native(post, max_new_tokens=0).json()
    assert reply["text"] == ""
    assert reply["meta_info"]["finish_reason"] == {"type": "length", "length": 0}
    assert len(parts.front.journal) == 0


def test_min_tokens(parts, post):
    refused(complete(post, min_tokens=17), "min_tokens")
    refused(complete(post, min_tokens=-1), "min_tokens")
    refused(native(post, min_new_tokens=129), "sampling_params.min_new_tokens")
    complete(post, min_tokens=200, max_tokens=300)
    assert parts.worker.submits[-1].params.min_tokens == budget_of(parts) == 127


# C062: token ids


@pytest.mark.parametrize(
    "bias", [{"999999": 5}, {"-1": 5}, {"abc": 5}, {"5": 1e9}, {"5": "x"}, {str(VOCAB): 1}, [5]]
)
def test_c062_bad_logit_bias(post, bias):
    refused(complete(post, logit_bias=bias), "logit_bias")


def test_c062_nan_bias(post):
    assert post(COMPLETIONS, content=b'{"prompt":"x","logit_bias":{"5":NaN}}').status_code == 400


@pytest.mark.parametrize("ids", [[999999], [-1], [VOCAB], [10**30], [1] * 129])
def test_c062_bad_stop_token_ids(post, ids):
    refused(complete(post, stop_token_ids=ids), "stop_token_ids")


def test_c062_good_ids(parts, post):
    complete(post, logit_bias={"5": -100, str(VOCAB - 1): 100}, stop_token_ids=[0, VOCAB - 1])
    params = parts.worker.submits[0].params
    assert params.logit_bias == {5: -100.0, VOCAB - 1: 100.0}
    assert params.stop_token_ids == (0, VOCAB - 1)


# C063: prompts


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        ([-1], "prompt"),
        ([[-1]], "prompt"),
        ([10**9], "prompt"),
        ([10**40], "prompt"),
        ([VOCAB], "prompt"),
        ([], "prompt"),
        ("", "prompt"),
        ([""], "prompt"),
        ([[]], "prompt[0]"),
        ([1, "a"], "prompt[0]"),
        (["x", [1]], "prompt[1]"),
        ([[1], "x"], "prompt[1]"),
        ([[1, "a"]], "prompt[0][1]"),
        ([True], "prompt[0]"),
        ([1.0], "prompt[0]"),
        ([None], "prompt[0]"),
        ({"a": 1}, "prompt"),
        (5, "prompt"),
        (None, "prompt"),
    ],
)
def test_c063_bad_prompts(parts, post, prompt, param):
    refused(complete(post, prompt), param)
    assert not parts.worker.submits


def test_c063_offending_value_is_named(post):
    assert "1000000000" in refused(complete(post, [1, 10**9]), "prompt")["message"]


def test_c063_empty_text_with_a_start_token():
    parts = make_parts(bos=True)
    response = send(parts, "POST", COMPLETIONS, json={"prompt": ""})
    assert response.status_code == 200
    assert parts.worker.submits[0].prompt_ids == [BOS]
    send(parts, "POST", COMPLETIONS, json={"prompt": "a"})
    assert parts.worker.submits[1].prompt_ids == [BOS, ord("a")]
    parts.front.close()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "text"),
        ({"text": "x", "input_ids": [1]}, "text"),
        ({"text": ""}, "text"),
        ({"text": []}, "text"),
        ({"input_ids": []}, "input_ids"),
        ({"input_ids": [[]]}, "input_ids[0]"),
        ({"input_ids": [VOCAB]}, "input_ids"),
        ({"input_ids": [[1], 2]}, "input_ids[1]"),
    ],
)
def test_c063_bad_native_prompts(post, fields, param):
    refused(post(GENERATE, fields), param)


def test_lone_surrogates_are_refused(post):
    assert post(COMPLETIONS, content=b'{"prompt": "\\ud800"}').status_code == 400


# C067: the edge of the context


@pytest.mark.parametrize("length", [126, 127, 128, 129, 10000])
@pytest.mark.parametrize("budget", [None, 1, 5])
def test_c067_prompt_lengths(parts, post, length, budget):
    parts.worker.script = lambda submit: Script(b"z" * 200)
    response = complete(post, "x" * length, max_tokens=budget)
    if length >= 128:
        error = refused(response, "prompt", code="context_length_exceeded")
        assert str(length) in error["message"]
        assert "128" in error["message"]
        assert not parts.worker.submits
    else:
        usage = response.json()["usage"]
        assert usage["prompt_tokens"] == length
        assert usage["completion_tokens"] == min(128 - length, budget or 16)
        assert response.json()["choices"][0]["finish_reason"] == "length"


def test_c067_chat(post):
    long = [{"role": "user", "content": "x" * 1000}]
    error = refused(post(CHAT, {"messages": long}), "messages", code="context_length_exceeded")
    assert "128" in error["message"]
    empty = post("/tokenize", {"messages": [{"role": "user", "content": ""}]}).json()["count"]
    for length in (126, 127, 128, 129):
        messages = [{"role": "user", "content": "x" * (length - empty)}]
        response = post(CHAT, {"messages": messages, "ignore_eos": True})
        assert response.status_code == (200 if length < 128 else 400)
        if length < 128:
            assert response.json()["usage"]["prompt_tokens"] == length
        cut = post(CHAT, {"messages": messages, "truncate_prompt_tokens": -1}).json()
        assert cut["usage"]["prompt_tokens"] == min(length, 127)


def test_c067_truncation_cuts_the_start(parts, post):
    text = "a" * 100 + "b" * 100
    reply = complete(post, text, truncate_prompt_tokens=50, max_tokens=5).json()
    assert reply["usage"]["prompt_tokens"] == 50
    assert parts.worker.submits[-1].prompt_ids == [*b"b" * 50]
    reply = complete(post, text, truncate_prompt_tokens=-1, max_tokens=5).json()
    assert reply["usage"]["prompt_tokens"] == 123
    reply = complete(post, text, truncate_prompt_tokens=-1, max_tokens=10**6, echo=True).json()
    assert reply["usage"]["prompt_tokens"] == 1
    assert reply["choices"][0]["text"].startswith("bHello")
    reply = complete(post, text, truncate_prompt_tokens=-1).json()
    assert reply["usage"]["prompt_tokens"] == 127, "a default budget takes no room"
    for length in (126, 127, 128, 129):
        body = {"text": "c" * length, "truncate_prompt_tokens": -1}
        assert post("/generate", body).json()["meta_info"]["prompt_tokens"] == min(length, 127)
    for bad in (0, -2):
        refused(complete(post, text, truncate_prompt_tokens=bad), "truncate_prompt_tokens")
    refused(complete(post, text, truncate_prompt_tokens=150), "prompt")


# C039: stops


@pytest.mark.parametrize("stop", ["", [""], ["a", ""], 5, ["x"] * 200, ["x" * 10_000], {"a": "b"}])
def test_c039_bad_stops(post, stop):
    refused(complete(post, stop=stop), "stop")
    refused(complete(post, stop=[1]), "stop[0]")
    refused(complete(post, stop=[None]), "stop[0]")


@pytest.mark.parametrize(
    ("stop", "taken"), [([], ()), (None, ()), ("abc", ("abc",)), (["a", "b"], ("a", "b"))]
)
def test_c039_good_stops(parts, post, stop, taken):
    assert complete(post, stop=stop).status_code == 200
    assert parts.worker.submits[0].params.stop == taken
    assert native(post, stop=stop).status_code == 200
    assert parts.worker.submits[1].params.stop == taken


# C041: n


@pytest.mark.parametrize("n", [0, -1, 10000, 2**63, 2**70])
def test_c041_bad_n(parts, post, n):
    refused(chat(post, n=n), "n")
    refused(complete(post, n=n), "n")
    refused(native(post, n=n), "sampling_params.n")
    assert not parts.worker.submits


def test_c041_too_many_samples_in_all(post):
    refused(complete(post, ["x"] * 30, n=128), "n")


def test_c044_validation_comes_before_the_stream(post):
    response = chat(post, stream=True, n=0)
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/json"


# Log-probabilities


def test_logprobs_ranges(post):
    assert chat(post, logprobs=True, top_logprobs=20).status_code == 200
    refused(chat(post, logprobs=True, top_logprobs=21), "top_logprobs")
    refused(chat(post, logprobs=True, top_logprobs=-1), "top_logprobs")
    refused(chat(post, top_logprobs=2), "top_logprobs")
    refused(chat(post, logprobs=1), "logprobs")
    assert complete(post, logprobs=0).status_code == 200
    refused(complete(post, logprobs=21), "logprobs")
    refused(complete(post, logprobs=True), "logprobs")


# Defaults, names, namespaces


def test_the_models_own_defaults_come_between(post):
    parts = make_parts(defaults={"temperature": 0.6, "top_k": 50.0, "top_p": 0.9})
    for fields in ({}, {"temperature": 0.1, "top_k": -1}):
        send(parts, "POST", CHAT, json={"messages": HI, **fields})
    first, second = (submit.params for submit in parts.worker.submits)
    assert (first.temperature, first.top_k, first.top_p, first.min_p) == (0.6, 50, 0.9, 0.0)
    assert (second.temperature, second.top_k, second.top_p) == (0.1, 0, 0.9)
    parts.front.close()


def test_all_parameters_arrive(parts, post):
    complete(
        post,
        temperature=0.5,
        top_p=0.4,
        top_k=3,
        min_p=0.2,
        repetition_penalty=1.1,
        presence_penalty=0.3,
        frequency_penalty=0.6,
        min_tokens=2,
        max_tokens=9,
        ignore_eos=True,
        skip_special_tokens=False,
        include_stop_str_in_output=True,
        logprobs=2,
        echo=True,
        priority=4,
    )
    submit = parts.worker.submits[0]
    params = submit.params
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.5, 0.4, 3, 0.2)
    assert params.repetition_penalty == 1.1
    assert (params.presence_penalty, params.frequency_penalty) == (0.3, 0.6)
    assert (params.min_tokens, params.max_tokens) == (2, 9)
    assert params.ignore_eos
    assert not params.skip_special_tokens
    assert params.include_stop
    assert (params.logprobs, params.prompt_logprobs_from, params.prompt_logprobs_top) == (2, 0, 2)
    assert submit.priority == 4


def test_salts_keep_prefixes_apart(parts, post):
    for salt in (None, "", "a", "b", "a"):
        complete(post, cache_salt=salt)
    spaces = [submit.namespace for submit in parts.worker.submits]
    assert spaces[0] == spaces[1]
    assert spaces[2] == spaces[4]
    assert len(set(spaces)) == 3
    assert namespace("b", tenant="a") != namespace("", tenant="ab") != namespace("ab")
    refused(complete(post, cache_salt="x" * 2000), "cache_salt")


@pytest.mark.parametrize("rid", ["", "x" * 10_000, "a\nb", ["a"]])
def test_c064_bad_rids(post, rid):
    refused(complete(post, rid=rid), "rid")
    if isinstance(rid, str):
        refused(post(GENERATE, {"text": "x", "rid": rid}), "rid")


def test_c064_rids_of_a_batch(post):
    refused(post(GENERATE, {"text": ["x", "y"], "rid": ["a", "a"]}), "rid")
    refused(post(GENERATE, {"text": ["x", "y"], "rid": ["a"]}), "rid")
    refused(post(GENERATE, {"text": ["x", "y"], "rid": ["a", ""]}), "rid")
