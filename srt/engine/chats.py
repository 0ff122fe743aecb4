"""The server's chat completions in this process: the same bodies, the same answers."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from ..chat_template import ChatTemplate
from ..errors import RequestError
from ..front.bodies import ChatBody
from ..front.chat_answer import ChatAnswer
from ..front.chat_prompt import ChatPrompts
from ..front.entry import Call, Prepared
from ..front.intake import Intake
from ..front.model_info import ModelInfo
from ..front.protocol import decode
from ..front.token_names import TokenNames
from ..tokenizer import Tokenizer
from ..tool_calls import CallFormat


class Chat(NamedTuple):
    """A request as it was read, and as it is to be submitted."""

    body: ChatBody
    prepared: Prepared


class Chats:
    """Reads bodies and writes replies; no state, safe to use from several threads.

    ``format`` is the model's way to call tools.
    """

    def __init__(self, model: ModelInfo, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self._model = model
        self._names = TokenNames(tokenizer)
        self._intake = Intake(model, tokenizer, template)
        self.format: CallFormat = ChatPrompts(template).format

    def read(self, given: Mapping[str, Any]) -> Chat:
        """``RequestError`` for whatever the server would refuse, and for ``stream``."""
        try:
            body = decode(msgspec.json.encode(given), ChatBody)
        except (TypeError, OverflowError, RecursionError) as error:
            raise RequestError(f"the body is no JSON: {error}") from error
        if body.stream:
            raise RequestError("a reply of the engine's is whole", param="stream")
        return Chat(body, self._intake.chat(body))

    def reply(self, call: Call, body: ChatBody) -> dict[str, Any]:
        """The server's answer, read from JSON."""
        answer = ChatAnswer(call, body, self._model, self._names, int(time.time()))
        replied: dict[str, Any] = json.loads(answer.whole())
        return replied
