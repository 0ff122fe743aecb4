"""From what callers hand to the engine to prompts that are fit to be submitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..chat_template import ChatTemplate
from ..errors import RequestError
from ..front.entry import Prepared, Prompt
from ..front.held import Held
from ..front.model_info import ModelInfo
from ..front.resolve import fitted, fresh_seed, namespace
from ..params import SamplingParams, check_token_id
from ..tokenizer import Tokenizer
from ..tool_calls import CallFormat, in_call_order

Message = Mapping[str, Any]
PromptLike = str | Sequence[int] | Sequence[Message]
"""A text, token ids, or a chat's messages."""


def is_batch(given: Any) -> bool:
    """Whether a list of prompts was given, and not one prompt."""
    if isinstance(given, str) or not given:
        return False
    return not isinstance(given[0], int | Mapping)


class Prompts:
    """Tokenises and checks; no state, safe to use from several threads."""

    def __init__(
        self, model: ModelInfo, tokenizer: Tokenizer, template: ChatTemplate, format: CallFormat
    ) -> None:
        self._model = model
        self._format = format
        self.tokenizer = tokenizer
        self._template = template

    def prepared(
        self,
        prompt: PromptLike,
        params: SamplingParams | None,
        cache_salt: str | None,
        held: Held | None = None,
    ) -> Prepared:
        """One prompt to be submitted; ``RequestError`` for what cannot be run."""
        params = self.with_defaults(params)
        params.check(self._model.vocab_size)
        text = prompt if isinstance(prompt, str) else None
        fit = fitted(Prompt(self.ids(prompt), params, None, text, held), self._model)
        seed = fresh_seed() if params.seed is None else params.seed
        return Prepared([fit], seed, namespace(cache_salt))

    def with_defaults(self, params: SamplingParams | None) -> SamplingParams:
        """The given parameters, or those that the model's makers advise."""
        if params is not None:
            return params
        known = {
            name: int(value) if name == "top_k" else value
            for name, value in self._model.defaults.items()
            if name in SamplingParams.__struct_fields__
        }
        return msgspec.structs.replace(SamplingParams(), **known)

    def ids(
        self, prompt: PromptLike, *, answers: bool = True, continues: bool = False
    ) -> list[int]:
        """The token ids of a prompt; ``RequestError`` for one that is none.

        A chat ends with the start of an answer (``answers``), or where its last message is to be
        gone on with, with that message's text (``continues``).
        """
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt)
        if not prompt:
            raise RequestError("the prompt is empty", param="prompt")
        if isinstance(prompt[0], Mapping):
            messages = in_call_order([_message(part) for part in prompt])
            return self._template.encode(
                self._format.messages(messages, ()),
                add_generation_prompt=answers and not continues,
                continue_final_message=continues,
            )
        ids = [_integer(token) for token in prompt]
        for token in ids:
            check_token_id(token, self._model.vocab_size, "prompt")
        return ids

    def continuation(self, prompt: PromptLike, text: str | Sequence[int]) -> tuple[list[int], int]:
        """Ids of prompt and continuation together, and where they leave the prompt's own.

        Where both are texts they are tokenised as one, so that a choice whose first characters
        merge with the prompt's last token is scored as the model would write it.
        """
        base = self.ids(prompt)
        if not isinstance(text, str):
            whole = [*base, *(_integer(token) for token in text)]
        elif isinstance(prompt, str):
            whole = self.tokenizer.encode(prompt + text)
        else:
            whole = [*base, *self.tokenizer.encode(text, add_bos=False)]
        start = 0
        while start < min(len(base), len(whole)) and base[start] == whole[start]:
            start += 1
        if start == len(whole):
            raise RequestError("the continuation adds no token", param="continuations")
        return whole, start


def _integer(token: Any) -> int:
    if isinstance(token, bool) or not hasattr(token, "__index__"):
        raise RequestError(f"a prompt of ids holds {token!r}, which is no token id", param="prompt")
    return int(token)


def _message(part: Any) -> Message:
    if not isinstance(part, Mapping):
        raise RequestError(f"a chat holds {part!r}, which is no message", param="messages")
    return part
