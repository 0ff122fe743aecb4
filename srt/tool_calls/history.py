"""Results of calls in a conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .format import Message


def in_call_order(messages: Sequence[Message]) -> list[Message]:
    """Results that follow a turn with several calls, in the order of the calls.

    Most templates show results without their ids, so that their order alone says which is whose;
    clients send them as they come. Results whose ids name no call, or not each its own, stay.
    """
    out: list[Message] = []
    at = 0
    while at < len(messages):
        out.append(messages[at])
        at += 1
        places = _places(out[-1])
        end = at
        while end < len(messages) and messages[end].get("role") == "tool":
            end += 1
        results = messages[at:end]
        ids = [result.get("tool_call_id") for result in results]
        if places and len(set(ids)) == len(ids) and all(each in places for each in ids):
            results = sorted(results, key=lambda result: places[result["tool_call_id"]])
        out += results
        at = end
    return out


def _places(message: Message) -> dict[str, int]:
    """Where in a turn each call is, by its id."""
    calls = message.get("tool_calls")
    if not isinstance(calls, (list, tuple)):
        return {}
    ids = [call.get("id") if isinstance(call, Mapping) else None for call in calls]
    return {each: i for i, each in enumerate(ids) if isinstance(each, str)}
