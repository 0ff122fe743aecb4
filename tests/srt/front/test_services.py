"""The routes beside generation."""

from __future__ import annotations

import pytest
from openai.types import Model
from prometheus_client.parser import text_string_to_metric_families

from tests.fakes.scripted_worker import END, START, Script

from .conftest import send

HI = [{"role": "user", "content": "hi"}]


def get(parts, path):
    return send(parts, "GET", path)


def test_tokenize(post):
    reply = post("/tokenize", {"prompt": "ab"}).json()
    assert reply == {"tokens": [97, 98], "count": 2, "max_model_len": 128}
    reply = post("/v1/tokenize", {"prompt": ["ab", "c"]}).json()
    assert reply["tokens"] == [[97, 98], [99]]
    assert reply["count"] == [2, 1]
    reply = post("/tokenize", {"messages": HI, "add_generation_prompt": False}).json()
    assert reply["tokens"] == [START, *b"user\nhi", END, *b"\n"]


@pytest.mark.parametrize("body", [{}, {"prompt": "a", "messages": HI}, {"prompt": [1]}])
def test_tokenize_refuses(post, body):
    assert post("/tokenize", body).status_code == 400


def test_detokenize(post):
    assert post("/detokenize", {"tokens": [97, END, 98]}).json() == {"text": "ab"}
    both = post("/v1/detokenize", {"tokens": [[97], [98]]}).json()
    assert both == {"text": ["a", "b"]}
    fields = {"tokens": [97, END], "skip_special_tokens": False}
    assert post("/detokenize", fields).json() == {"text": "a<|im_end|>"}
    assert post("/detokenize", {"tokens": []}).json() == {"text": ""}
    assert post("/detokenize", {"tokens": [999]}).status_code == 400


def test_models(parts):
    reply = get(parts, "/v1/models").json()
    assert reply["object"] == "list"
    (card,) = reply["data"]
    Model.model_validate(card)
    assert (card["id"], card["max_model_len"]) == ("tiny", 128)
    assert get(parts, "/v1/models/tiny").json() == card
    response = get(parts, "/v1/models/meta-llama/other")
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"


def test_c056_flush(parts, post):
    assert post("/flush_cache").status_code == 200
    assert get(parts, "/flush_cache").status_code == 200
    assert samples_of(parts)["sapwood_kv_pages_free",] == 99
    parts.worker.busy_on_flush = True
    response = post("/flush_cache")
    assert response.status_code == 409
    assert response.json()["error"]["code"] == "busy"


def test_abort_of_nothing(post):
    assert post("/abort_request", {"rid": "x"}).json() == {"aborted": 0}
    assert post("/abort_request", {}).status_code == 400


def test_c058_health(parts, post):
    parts.front.ready = False
    assert get(parts, "/health").status_code == 200
    assert get(parts, "/ready").status_code == 503
    response = post("/v1/chat/completions", {"messages": HI})
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "starting"
    parts.front.ready = True
    assert get(parts, "/ready").status_code == 200

    parts.front.fail("the detokenizer process ended with signal 9")
    for path in ("/health", "/ready"):
        response = get(parts, path)
        assert response.status_code == 503
        assert "detokenizer" in response.json()["error"]["message"]
    for path, body in (
        ("/v1/chat/completions", {"messages": HI}),
        ("/v1/completions", {"prompt": "x", "stream": True}),
        ("/generate", {"text": "x"}),
        ("/flush_cache", {}),
    ):
        assert post(path, body).status_code == 503
    assert get(parts, "/server_info").json()["status"] == "dead"
    assert not parts.worker.submits


def test_infos(parts, post):
    post("/generate", {"text": "a"})
    info = get(parts, "/server_info").json()
    assert info["status"] == "ready"
    assert info["model"]["served_model_name"] == "tiny"
    assert info["stats"]["steps"] == 7
    assert info["in_flight"] == 0
    assert get(parts, "/model_info").json()["context_length"] == 128


def samples_of(parts):
    text = get(parts, "/metrics").text
    families = text_string_to_metric_families(text)
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


def test_metrics(parts, post):
    parts.worker.script = lambda submit: Script(b"abc", cached=2)
    post("/v1/completions", {"prompt": "xyz", "n": 2})
    post("/v1/completions", {"prompt": "xyz", "top_p": 5})
    post("/v1/completions", {"prompt": "xyz", "model": "other"})
    figures = samples_of(parts)
    assert figures["sapwood_requests_total",] == 1
    assert figures["sapwood_samples_total",] == 2
    assert figures["sapwood_prompt_tokens_total",] == 3
    assert figures["sapwood_prompt_tokens_cached_total",] == 2
    assert figures["sapwood_time_to_first_token_seconds_count",] == 2
    assert figures["sapwood_inter_token_seconds_count",] == 6
    assert figures["sapwood_queue_seconds_sum",] == 1.0
    assert figures["sapwood_ended_total", "stop"] == 1
    assert figures["sapwood_refused_total", "invalid_request"] == 1
    assert figures["sapwood_refused_total", "model_not_found"] == 1
    assert figures["sapwood_kv_pages",] == 100
    for name in ("running_requests", "waiting_requests", "kv_pages_used", "kv_pages_evictable"):
        assert (f"sapwood_{name}",) in figures
    for name in ("prefix_hits_tokens_total", "prefix_misses_tokens_total", "output_tokens_total"):
        assert (f"sapwood_{name}",) in figures


def test_two_servers_in_one_process_count_apart(parts, post):
    from tests.fakes.scripted_worker import make_parts

    other = make_parts()
    post("/generate", {"text": "a"})
    assert samples_of(parts)["sapwood_requests_total",] == 1
    assert samples_of(other)["sapwood_requests_total",] == 0
    other.front.close()


def test_our_own_faults_are_a_plain_500(parts, post, monkeypatch):
    def broken(body):
        raise KeyError("secret")

    monkeypatch.setattr(parts.front.intake, "chat", broken)
    response = post("/v1/chat/completions", {"messages": HI})
    assert response.status_code == 500
    assert response.json()["error"]["type"] == "server_error"
    assert "secret" not in response.text
