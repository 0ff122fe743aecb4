"""Answers of OpenAI's routes, whole and streamed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from .runtime import Answer, Delta


def answers(reply: Mapping[str, Any]) -> list[Answer]:
    """All choices of a chat completion or a completion."""
    ordered = sorted(reply["choices"], key=lambda choice: int(choice["index"]))
    return [_answer(choice, reply) for choice in ordered]


async def deltas(events: AsyncIterator[Any]) -> AsyncIterator[Delta]:
    """The only choice of a streamed one. The last has what is known of the whole."""
    calls: dict[int, dict[str, Any]] = {}
    last: dict[str, Any] = {"index": 0, "finish_reason": None}
    whole: dict[str, Any] = {}
    async for event in events:
        whole |= {key: event[key] for key in _OF_ALL if event.get(key) is not None}
        for choice in event["choices"]:
            part = choice.get("delta", choice)
            text = (part.get("content") if "delta" in choice else part.get("text")) or ""
            _collect(calls, part.get("tool_calls") or ())
            last |= {key: choice[key] for key in _ENDS if choice.get(key) is not None}
            _extend(last, choice)
            if text:
                yield Delta(text=text)
    meta = _meta(last, whole)
    yield Delta(text="", meta=meta, tool_calls=tuple(calls[at] for at in sorted(calls)))


_OF_ALL = ("id", "usage", "seed", "warnings")
_ENDS = ("finish_reason", "matched_stop")


def _extend(last: dict[str, Any], choice: Mapping[str, Any]) -> None:
    """Joins pieces of a choice's token ids and log-probabilities: lists in both."""
    if choice.get("token_ids"):
        last.setdefault("token_ids", []).extend(choice["token_ids"])
    joined = last.setdefault("logprobs", {})
    for key, part in (choice.get("logprobs") or {}).items():
        if isinstance(part, list):
            joined.setdefault(key, []).extend(part)


def _answer(choice: Mapping[str, Any], reply: Mapping[str, Any]) -> Answer:
    message = choice.get("message")
    meta = _meta(choice, reply)
    if message is None:
        return Answer(text=choice["text"], meta=meta)
    if message.get("refusal"):
        meta["refusal"] = message["refusal"]
    calls = message.get("tool_calls") or ()
    if calls:
        meta["tool_calls"] = calls
    return Answer(text=message.get("content") or "", meta=meta, tool_calls=tuple(calls))


def _meta(choice: Mapping[str, Any], reply: Mapping[str, Any]) -> dict[str, Any]:
    usage = reply.get("usage") or {}
    details = usage.get("prompt_tokens_details") or {}
    known = {
        "id": reply.get("id"),
        "prompt_tokens": usage.get("prompt_tokens"),
        "completion_tokens": usage.get("completion_tokens"),
        "cached_tokens": details.get("cached_tokens"),
        "seed": reply.get("seed"),
        "warnings": reply.get("warnings"),
        "output_ids": choice.get("token_ids"),
        "logprobs": choice.get("logprobs") or None,
    }
    if len(reply.get("choices", ())) > 1:
        ids = choice.get("token_ids")
        known["completion_tokens"] = None if ids is None else len(ids)
    meta = {key: value for key, value in known.items() if value is not None}
    return {**meta, "finish_reason": _finish(choice, known["completion_tokens"])}


def _finish(choice: Mapping[str, Any], written: int | None) -> dict[str, Any]:
    reason = choice.get("finish_reason")
    if reason == "length":
        return {"type": "length", "length": written}
    return {"type": reason, "matched": choice.get("matched_stop")}


def _collect(calls: dict[int, dict[str, Any]], parts: Any) -> None:
    """Joins the pieces of calls."""
    for part in parts:
        told = part.get("function") or {}
        call = calls.setdefault(
            part["index"], {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        )
        call["id"] = part.get("id") or call["id"]
        call["function"]["name"] += told.get("name") or ""
        call["function"]["arguments"] += told.get("arguments") or ""
