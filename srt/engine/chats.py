"""The server's completions and chat completions in this process: the same bodies and answers."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from ..chat_template import ChatTemplate
from ..errors import RequestError
from ..front.bodies import ChatBody, CompletionBody
from ..front.chat_answer import ChatAnswer
from ..front.chat_prompt import ChatPrompts
from ..front.completion_answer import CompletionAnswer
from ..front.entry import Call, Prepared
from ..front.intake import Intake
from ..front.model_info import ModelInfo
from ..front.protocol import decode
from ..front.token_names import TokenNames
from ..tokenizer import Tokenizer
from ..tool_calls import CallFormat
from .constraints import encoded

B = TypeVar("B", ChatBody, CompletionBody)


class Chat(NamedTuple):
    """A request as it was read, and as it is to be submitted."""

    body: ChatBody
    prepared: Prepared


class Completing(NamedTuple):
    """A request for completions as it was read, and as it is to be submitted."""

    body: CompletionBody
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
        body = _decoded(given, ChatBody)
        return Chat(body, self._intake.chat(body))

    def read_completion(self, given: Mapping[str, Any]) -> Completing:
        """The same for completions, which may have several prompts."""
        body = _decoded(given, CompletionBody)
        return Completing(body, self._intake.completion(body))

    def reply(self, call: Call, body: ChatBody) -> dict[str, Any]:
        """The server's answer, read from JSON."""
        answer = ChatAnswer(call, body, self._model, self._names, int(time.time()))
        replied: dict[str, Any] = json.loads(answer.whole())
        return replied

    def reply_completion(self, call: Call, body: CompletionBody) -> dict[str, Any]:
        """The same for completions."""
        answer = CompletionAnswer(call, body, self._model, self._names, int(time.time()))
        replied: dict[str, Any] = json.loads(answer.whole())
        return replied


def _decoded(given: Mapping[str, Any], kind: type[B]) -> B:
    try:
        data = encoded(given)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise RequestError(f"the body is no JSON: {error}") from error
    body = decode(data, kind)
    if body.stream:
        raise RequestError("a reply of the engine's is whole", param="stream")
    return body
