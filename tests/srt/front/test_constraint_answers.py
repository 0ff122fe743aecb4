"""What a client hears of its constraint: refusals, warnings, ends."""

from __future__ import annotations

import msgspec
import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from sapwood.constrain.spec import Warning
from sapwood.srt.messages import Finish, Refused
from tests.fakes.scripted_worker import Script

from .conftest import chunks_of, send

CHAT, COMPLETIONS, GENERATE = "/v1/chat/completions", "/v1/completions", "/generate"
HI = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "strng"}}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "r", "schema": SCHEMA}}
MESSAGE = "/properties/a: type: `strng` is no type"
DROPPED = [
    Warning(pointer="/properties/a", keyword="not", reason="it cannot be enforced"),
    Warning(pointer="", keyword="contains", reason="neither can this"),
]
LISTED = msgspec.to_builtins(DROPPED)


def refusing(pointer="/properties/a", **fields):
    """A worker that refuses what is constrained, and runs all else."""
    told = {"code": "constraint_refused", "param": pointer, "message": MESSAGE, **fields}

    def script(submit):
        if submit.constraint is None:
            return Script(b"Hello!")
        refused = Refused(rid=submit.rid, choice=submit.choice, epoch=submit.epoch, **told)
        return Script(b"", refused=refused)

    return script


WAYS = [
    (
        CHAT,
        {"messages": HI, "response_format": FORMAT},
        "response_format.json_schema.schema/properties/a",
    ),
    (COMPLETIONS, {"prompt": "x", "guided_json": SCHEMA}, "guided_json/properties/a"),
    (COMPLETIONS, {"prompt": ["x", "y"], "json_schema": SCHEMA}, "json_schema/properties/a"),
    (
        CHAT,
        {"messages": HI, "structured_outputs": {"json": SCHEMA}},
        "structured_outputs.json/properties/a",
    ),
    (
        GENERATE,
        {"text": "x", "sampling_params": {"json_schema": SCHEMA}},
        "sampling_params.json_schema/properties/a",
    ),
    (
        GENERATE,
        {"text": ["x", "y"], "sampling_params": [{}, {"json_schema": SCHEMA}]},
        "sampling_params[1].json_schema/properties/a",
    ),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body", "param"), WAYS)
def test_c001_refusals_name_the_field_and_the_place_in_it(parts, post, path, body, param, stream):
    """A plain 400, streaming or not: nothing has been sent yet."""
    parts.worker.script = refusing()
    response = post(path, {**body, "stream": stream})
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/json"
    assert response.json()["error"] == {
        "message": f"{param}: type: `strng` is no type",
        "type": "invalid_request_error",
        "param": param,
        "code": "constraint_refused",
    }
    assert len(parts.front.journal) == 0
    assert post(COMPLETIONS, {"prompt": "x"}).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_c001_a_refusal_of_many_choices_is_told_once(parts, post, stream):
    parts.worker.script = refusing()
    body = {"messages": HI, "response_format": FORMAT, "n": 5, "stream": stream}
    response = post(CHAT, body)
    assert response.status_code == 400
    assert response.text.count("strng") == 1
    assert 'sapwood_ended_total{reason="refused"} 1' in send(parts, "GET", "/metrics").text


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {"messages": HI, "max_tokens": 3}, "max_tokens"),
        (CHAT, {"messages": HI}, "max_tokens"),
        (CHAT, {"messages": HI, "max_completion_tokens": 3}, "max_completion_tokens"),
        (COMPLETIONS, {"prompt": "x"}, "max_tokens"),
    ],
)
def test_c017_a_budget_that_is_too_small_is_named_as_it_was_given(parts, post, path, body, param):
    told = "max_tokens is 3; the shortest answer has 9 tokens"
    parts.worker.script = refusing("max_tokens", code="budget_too_small", message=told)
    error = post(path, {**body, "json_schema": SCHEMA}).json()["error"]
    assert (error["param"], error["message"]) == (param, told)


def test_c017_a_native_budget_that_is_too_small_is_named_as_it_was_given(parts, post):
    parts.worker.script = refusing("max_tokens", code="budget_too_small")
    one = {"json_schema": SCHEMA, "max_new_tokens": 3}
    error = post(GENERATE, {"text": "x", "sampling_params": one}).json()["error"]
    assert error["param"] == "sampling_params.max_new_tokens"
    error = post(GENERATE, {"text": ["x", "y"], "sampling_params": [{}, one]}).json()["error"]
    assert error["param"] == "sampling_params[1].max_new_tokens"


@pytest.mark.parametrize("code", ["constraint_refused", "constraint_timeout"])
@pytest.mark.parametrize("pointer", ["", None])
def test_refusals_without_a_place_name_the_field(parts, post, pointer, code):
    parts.worker.script = refusing(pointer, code=code)
    for fields in ({"regex": "a)("}, {"choice": ["a"]}):
        error = post(COMPLETIONS, {"prompt": "x", **fields}).json()["error"]
        name = next(iter(fields))
        assert error["param"] == name
        assert error["message"] == f"{name}: {MESSAGE}"


def test_refusals_within_tags_name_the_structure(parts, post):
    parts.worker.script = refusing("/tags/1/schema/properties/a")
    tags = {"triggers": ["<"], "structures": []}
    tags["structures"] = [{"begin": f"<{i}", "schema": SCHEMA, "end": ">"} for i in range(2)]
    error = post(COMPLETIONS, {"prompt": "x", "structural_tag": tags}).json()["error"]
    assert error["param"] == "structural_tag.structures[1].schema/properties/a"
    content = {"type": "json_schema", "json_schema": SCHEMA}
    nested = [{"begin": f"<{i}", "content": content, "end": ">"} for i in range(2)]
    form = {"type": "triggered_tags", "triggers": ["<"], "tags": nested}
    given = {"type": "structural_tag", "format": form}
    error = post(CHAT, {"messages": HI, "response_format": given}).json()["error"]
    place = "response_format.format.tags[1].content.json_schema/properties/a"
    assert error["param"] == place
    parts.worker.script = refusing("/tags/1", message="/tags/1: end: it cannot be written")
    error = post(COMPLETIONS, {"prompt": "x", "structural_tag": tags}).json()["error"]
    assert error["param"] == "structural_tag.structures[1]"
    assert error["message"] == "structural_tag.structures[1]: end: it cannot be written"
    error = post(CHAT, {"messages": HI, "response_format": given}).json()["error"]
    assert error["param"] == "response_format.format.tags[1]"


# Warnings


def warning(submit):
    return Script(b"{}", warnings=None if submit.constraint is None else DROPPED)


@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        (CHAT, {"messages": HI, "response_format": FORMAT}, ChatCompletion),
        (COMPLETIONS, {"prompt": ["x", "y"], "json_schema": SCHEMA}, Completion),
    ],
)
def test_warnings_of_a_whole_answer(parts, post, path, body, kind):
    parts.worker.script = warning
    reply = post(path, {**body, "lenient": True, "n": 2}).json()
    assert reply["warnings"] == LISTED
    kind.model_validate(reply, strict=True)
    parts.worker.script = lambda submit: Script(b"{}")
    assert "warnings" not in post(path, body).json()


@pytest.mark.parametrize("usage", [None, "include_usage", "continuous_usage_stats"])
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize(
    ("path", "prompt"), [(CHAT, {"messages": HI}), (COMPLETIONS, {"prompt": "x"})]
)
def test_warnings_of_a_stream_are_in_its_last_chunk(parts, post, path, prompt, n, usage):
    parts.worker.script = lambda submit: Script(b"{}" + b" " * submit.choice, warnings=DROPPED)
    options = None if usage is None else {"include_usage": True, usage: True}
    body = {**prompt, "json_schema": {}, "lenient": True, "n": n, "stream": True}
    *others, last = chunks_of(post(path, {**body, "stream_options": options}))
    assert last["warnings"] == LISTED
    assert all("warnings" not in chunk for chunk in others)
    assert bool(last["choices"]) == (usage is None)
    if path == CHAT:
        ChatCompletionChunk.model_validate(last, strict=True)
    parts.worker.script = lambda submit: Script(b"{}")
    for chunk in chunks_of(post(path, {**body, "stream_options": options})):
        assert "warnings" not in chunk


def test_warnings_of_native_answers(parts, post):
    parts.worker.script = warning
    given = [{"json_schema": {}, "lenient": True}, {}]
    replies = post(GENERATE, {"text": ["x", "y"], "sampling_params": given}).json()
    assert replies[0]["warnings"] == LISTED
    assert "warnings" not in replies[1]
    body = {"text": "x", "sampling_params": given[0], "stream": True}
    *others, last = chunks_of(post(GENERATE, body))
    assert last["warnings"] == LISTED
    assert others
    assert all("warnings" not in event for event in others)


# Ends, and what the server says of itself


@pytest.mark.parametrize(
    ("finish", "reason", "matched"),
    [
        (Finish("stop"), "stop", None),
        (Finish("length"), "length", None),
        (Finish("stop", "}"), "stop", "}"),
    ],
)
def test_c017_c034_ends_are_told_as_they_are(parts, post, finish, reason, matched):
    """A completed grammar is a stop with nothing matched; a stop string says that it was one."""
    parts.worker.script = lambda submit: Script(b'{"a"', finish)
    body = {"json_schema": {}, "on_budget": "cut", "max_tokens": 4}
    choice = post(COMPLETIONS, {"prompt": "x", **body}).json()["choices"][0]
    assert choice["finish_reason"] == reason
    assert choice.get("matched_stop") == matched
    native = {"json_schema": {}, "on_budget": "cut", "max_new_tokens": 4}
    meta = post(GENERATE, {"text": "x", "sampling_params": native}).json()["meta_info"]
    assert meta["finish_reason"]["type"] == reason
    assert meta["finish_reason"].get("matched") == matched


def test_server_info_shows_what_the_worker_says_of_constraints(parts):
    assert "constraints" not in send(parts, "GET", "/server_info").json()
    parts.worker.info = {"constraints": {"engines": {"json_schema": "llguidance"}}}
    shown = send(parts, "GET", "/server_info").json()
    assert shown["constraints"] == {"engines": {"json_schema": "llguidance"}}
    assert send(parts, "POST", "/flush_cache").status_code == 200
    parts.front.ready = False
    assert send(parts, "GET", "/server_info").json()["constraints"] == shown["constraints"]
