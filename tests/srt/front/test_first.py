def test_chat(post):
    r = post("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]})
    assert r.status_code == 200
    assert r.json()["choices"][0]["message"]["content"] == "Hello!"
    r = post(
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": "hi"}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "logprobs": True,
        },
    )
    r = post("/v1/completions", {"prompt": ["a", "b"], "stream": True, "n": 2})
    r = post("/generate", {"text": "a"})
    r = post("/v1/chat/completions", {"message": [{"role": "user", "content": "hi"}]})
    r = post("/v1/nothing", {"message": [{"role": "user", "content": "hi"}]})
