"""From a chat to the ids of its prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..chat_template import ChatTemplate
from ..errors import RequestError
from ..tool_calls import CallFormat, Message, Tool, chosen_format, in_call_order
from .bodies import ChatBody, TokenizeBody


class ChatPrompts:
    """Prompts by a model's chat template, and by the format in which the model calls tools.

    ``control`` lets text in messages form control tokens. ``tool_format`` names the format;
    ``auto`` finds it out from the template.
    """

    def __init__(
        self, template: ChatTemplate, *, control: bool = False, tool_format: str = "auto"
    ) -> None:
        self._template = template
        self._control = control
        self.format: CallFormat = chosen_format(tool_format, self._tried)

    def ids(self, body: ChatBody | TokenizeBody, tools: Sequence[Tool] = ()) -> list[int]:
        """The prompt's ids; ``RequestError`` for what the template does not take."""
        goes_on = bool(body.continue_final_message)
        opens = body.add_generation_prompt
        return self._template.encode(
            self.format.messages(in_call_order(_plain(body)), tools),
            tools=[tool.shown() for tool in tools] if tools and self.format.in_template else None,
            add_generation_prompt=not goes_on if opens is None else opens,
            continue_final_message=goes_on,
            variables=body.chat_template_kwargs,
            control=self._control,
        )

    def _tried(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None
    ) -> str | None:
        try:
            return self._template.render(messages, tools=tools)
        except RequestError:
            return None


def _plain(body: ChatBody | TokenizeBody) -> list[Message]:
    """The messages as templates know them: what was not given is not there."""
    return [
        {key: value for key, value in msgspec.structs.asdict(message).items() if value is not None}
        for message in body.messages or ()
    ]
