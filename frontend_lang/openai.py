"""``OpenAI``: any server of OpenAI's kind as a runtime."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from typing import Any, Self

from .chats import chat
from .http_client import HttpClient
from .openai_shape import answers, deltas
from .refusal import Unsupported, refuse
from .runtime import Answer, Delta, Prompt, Request, Score, ScoreRequest

OFFICIAL = "https://api.openai.com/v1"

_PLAIN = ("temperature", "top_p", "n", "stop", "presence_penalty", "frequency_penalty", "seed")
_OF_CHATS = ("json_schema", "tools", "tool_choice", "parallel_tool_calls")
_CANNOT = (
    "min_tokens", "stop_token_ids", "stop_regex", "top_k", "min_p", "repetition_penalty",
    "ignore_eos", "logprob_start_len", "regex", "ebnf", "grammar", "structural_tag", "lenient",
    "whitespace", "on_budget", "skip_special_tokens", "no_stop_trim", "cache_salt", "priority",
)  # fmt: skip


class OpenAI:
    """Chat completions for programs with roles, completions for those without.

    Only what OpenAI documents is sent; the rest is refused by its name (``Unsupported``): so are
    ``select``, and text of the assistant's before a ``gen``, unless ``continues`` says that the
    server takes ``continue_final_message``, as vLLM and SGLang do.

    ``model_name`` and ``api_key`` go with each request; without a key ``$OPENAI_API_KEY`` counts.
    ``is_chat_model=False`` refuses roles, ``True`` refuses programs without them.
    """

    def __init__(
        self,
        model_name: str,
        is_chat_model: bool | None = None,
        chat_template: Any = None,
        is_azure: bool = False,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        continues: bool = False,
        verify: bool | str = True,
        transport: Any = None,
    ) -> None:
        if chat_template is not None:
            raise Unsupported("OpenAI's chat completions have their own template;", "chat_template")
        if is_azure:
            raise Unsupported("this runtime", "is_azure")
        self._model = model_name
        self._is_chat_model = is_chat_model
        self._continues = continues
        url = base_url or os.environ.get("OPENAI_BASE_URL") or OFFICIAL
        key = api_key if api_key is not None else os.environ.get("OPENAI_API_KEY")
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        self._official = url.rstrip("/") == OFFICIAL
        self._http = HttpClient(url, headers=headers, verify=verify, transport=transport)

    def close(self) -> None:
        """Closes the connections of programs that were run without an event loop of their own."""
        self._http.close()

    async def aclose(self) -> None:
        """Closes the connections of this event loop."""
        await self._http.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    async def generate(self, request: Request) -> list[Answer]:
        """All samples of one prompt."""
        path, body = self._asked(request)
        return answers(await self._http.post(path, body))

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """One sample in pieces."""
        path, body = self._asked(request)
        options = {"stream": True, "stream_options": {"include_usage": True}}
        async for delta in deltas(self._http.events(path, {**body, **options})):
            yield delta

    async def score(self, request: ScoreRequest) -> list[Score]:
        """Refused: these routes tell nothing of a prompt's tokens."""
        raise Unsupported("OpenAI", "select and choices")

    async def render(self, prompt: Prompt) -> str:
        """The messages in a form of our own: the template is not known."""
        turns = "".join(f"{message['role']}: {message['content']}\n" for message in chat(prompt))
        return turns if prompt.is_chat else prompt.text

    async def flush(self) -> bool:
        """There is no way to empty a cache that is not ours."""
        return False

    def _asked(self, request: Request) -> tuple[str, dict[str, Any]]:
        changed = request.sampling.changed()
        refuse("OpenAI", changed, _CANNOT)
        body: dict[str, Any] = {"model": self._model}
        body |= {key: changed[key] for key in _PLAIN if key in changed}
        if request.sampling.logit_bias is not None:
            body["logit_bias"] = {str(k): v for k, v in request.sampling.logit_bias.items()}
        if request.prompt.is_chat:
            return "/chat/completions", {**body, **self._of_chat(request)}
        if self._is_chat_model:
            raise ValueError("a chat model takes programs with roles: system(), user()...")
        refuse("OpenAI's completions", changed, _OF_CHATS)
        body |= {"prompt": request.prompt.text, "max_tokens": request.sampling.max_tokens}
        if request.sampling.return_logprob:
            body["logprobs"] = request.sampling.top_logprobs_num
        return "/completions", body

    def _of_chat(self, request: Request) -> dict[str, Any]:
        if self._is_chat_model is False:
            raise ValueError("a completion model takes programs without roles")
        sampling = request.sampling
        budget = "max_completion_tokens" if self._official else "max_tokens"
        body: dict[str, Any] = {"messages": chat(request.prompt)}
        if sampling.max_tokens is not None:
            body[budget] = sampling.max_tokens
        if request.prompt.text:
            if not self._continues:
                raise Unsupported("OpenAI", "text of the assistant's before a gen")
            body |= {"add_generation_prompt": False, "continue_final_message": True}
        if sampling.json_schema is not None:
            schema = json.loads(sampling.json_schema)
            held = {"name": "answer", "schema": schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": held}
        for key in _OF_CHATS[1:]:
            if getattr(sampling, key) is not None:
                body[key] = getattr(sampling, key)
        if sampling.return_logprob:
            body |= {"logprobs": True, "top_logprobs": sampling.top_logprobs_num}
        return body
