"""What an engine is asked, on one that only writes it down."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import sapwood as sw
from sapwood.frontend_lang.run import DETAILS

from .test_gen import UNUSUAL

ELSEWHERE = {
    "no_stop_trim": ("include_stop", True),
    "return_logprob": ("logprobs", 0),
    "top_logprobs_num": ("logprobs", 2),
    "logprob_start_len": ("prompt_logprobs_from", 4),
}
"""What the engine has under other names."""
IN_BODY = ("tools", "tool_choice", "parallel_tool_calls")
REFUSED = ("stop_regex", "priority")


class Recorder:
    """Keeps what it is asked; answers with nothing."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}

    def tokenize(self, prompt: Any, **options: Any) -> list[int]:
        return [1, 2, 3, 4, 5]

    def decode(self, ids: list[int], **options: Any) -> str:
        return "?"

    async def agenerate(self, ids: list[int], params: Any, **options: Any) -> Any:
        fields = msgspec.structs.asdict(params)
        self.asked = {**fields, **options}
        finish = SimpleNamespace(reason="stop", matched=None)
        sample = SimpleNamespace(text="", ids=[], cached_tokens=0, finish=finish, seed=0)
        sample.warnings = sample.logprobs = sample.prompt_logprobs = None
        return [sample] * params.n

    async def ascore(self, *asked: Any) -> Any:
        raise AssertionError("nothing is to be scored")

    async def achat(self, body: dict[str, Any]) -> Any:
        self.asked = body
        message = {"role": "assistant", "content": ""}
        return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


@pytest.mark.parametrize("name", sorted(UNUSUAL))
def test_c087_every_parameter_reaches_an_engine(name: str) -> None:
    """C087: under its own name or another, or it is refused by name."""
    value = UNUSUAL[name]
    beside: dict[str, Any] = {"return_logprob": True} if name in DETAILS else {}
    if name in IN_BODY[1:]:
        beside["tools"] = UNUSUAL["tools"]
    engine = Recorder()

    @sw.function
    def program(s: sw.State) -> None:
        s += sw.user("u") + sw.assistant(sw.gen("x", **{name: value}, **beside))

    if name in REFUSED:
        with pytest.raises(sw.Unsupported, match=name):
            program.run(backend=engine)
        return
    program.run(backend=engine)
    if name == "return_text_in_logprobs":
        return  # the runtime's own doing, tried on the real model
    arrived, want = ELSEWHERE.get(name, (name, value))
    assert engine.asked[arrived] == want
