"""``Server``: our own server as a runtime, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Self

from .bodies import OF_CHATS, openai_body, parameters
from .chats import LEAD, chat, chat_options, shared
from .http_client import HttpClient
from .openai_shape import answers, deltas
from .refusal import Unsupported, refuse
from .runtime import Answer, Delta, Prompt, Request, Score, ScoreRequest

_NATIVE = {"max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens"}
_BESIDE = ("cache_salt", "priority")


class Server:
    """A Sapwood server. Chats go to its chat completions, so its template is the one that counts.

    ``verify`` is what httpx takes. ``chat_template_name`` is SGLang's, and refused: the server
    uses the model's own template. ``transport`` is for tests.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        verify: bool | str | None = None,
        chat_template_name: str | None = None,
        *,
        transport: Any = None,
    ) -> None:
        if chat_template_name is not None:
            raise Unsupported("the server uses the model's own template, and", "chat_template_name")
        headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
        verified = True if verify is None else verify
        self._http = HttpClient(base_url, headers=headers, verify=verified, transport=transport)

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
        sampling = request.sampling
        refuse("the server", sampling.changed(), ("stop_regex",))
        if sampling.return_logprob:
            reply = await self._http.post("/generate", await self._native(request))
            return [_native_answer(one) for one in (reply if isinstance(reply, list) else [reply])]
        path, body = openai_body(request)
        return answers(await self._http.post(path, body))

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """One sample in pieces."""
        refuse("the server", request.sampling.changed(), ("stop_regex",))
        if request.sampling.return_logprob:
            async for delta in self._native_stream(request):
                yield delta
            return
        path, body = openai_body(request)
        options = {"stream": True, "stream_options": {"include_usage": True}}
        async for delta in deltas(self._http.events(path, {**body, **options})):
            yield delta

    async def score(self, request: ScoreRequest) -> list[Score]:
        """All continuations in one request after what they share."""
        start, wholes = await self._wholes(request)
        reply = await self._http.post(
            "/generate",
            {
                "input_ids": wholes,
                "sampling_params": {"max_new_tokens": 0},
                "return_logprob": True,
                "logprob_start_len": start,
            },
        )
        return [_score(one["meta_info"]) for one in reply]

    async def render(self, prompt: Prompt) -> str:
        """The text of the ids."""
        if not prompt.is_chat:
            return prompt.text
        ids = await self._ids(prompt, opens=False)
        reply = await self._http.post("/detokenize", {"tokens": ids, "skip_special_tokens": False})
        return str(reply["text"])

    async def warm(self, prompt: Prompt) -> None:
        """Runs the prompt without an answer."""
        ids = await self._ids(prompt, opens=False)
        if ids:
            body = {"input_ids": ids, "sampling_params": {"max_new_tokens": 0}}
            await self._http.post("/generate", body)

    async def flush(self) -> bool:
        """Empties the server's prefix cache; ``ServerError`` 409 while requests run."""
        await self._http.post("/flush_cache", {})
        return True

    async def info(self) -> dict[str, Any]:
        """``/server_info``."""
        return dict(await self._http.get("/server_info"))

    async def _ids(self, prompt: Prompt, *, opens: bool = True) -> list[int]:
        body: dict[str, Any] = {"prompt": prompt.text}
        if prompt.is_chat:
            body = {"messages": chat(prompt), **chat_options(prompt, opens)}
        return list((await self._http.post("/tokenize", body))["tokens"])

    async def _wholes(self, request: ScoreRequest) -> tuple[int, list[list[int]]]:
        """How many ids all wholes have in common, and the wholes."""
        prompt = request.prompt
        base = await self._ids(prompt)

        async def whole(continuation: str | Sequence[int]) -> list[int]:
            if isinstance(continuation, str):
                return await self._ids(prompt.extended(continuation))
            return [*base, *continuation]

        wholes = await asyncio.gather(*map(whole, request.continuations))
        start = shared(base, wholes)
        if start == 0:
            lead = await self._ids(LEAD)
            return len(lead), [[*lead, *ids] for ids in wholes]
        return start, wholes

    async def _native(self, request: Request) -> dict[str, Any]:
        sampling = request.sampling
        refuse("the server, with log-probabilities,", sampling.changed(), OF_CHATS)
        given = parameters(sampling)
        beside = {key: given.pop(key) for key in _BESIDE if key in given}
        start = sampling.logprob_start_len
        return {
            "input_ids": await self._ids(request.prompt),
            "sampling_params": {_NATIVE.get(key, key): value for key, value in given.items()},
            "return_logprob": True,
            "logprob_start_len": -1 if start is None else start,
            "top_logprobs_num": sampling.top_logprobs_num,
            "return_text_in_logprobs": sampling.return_text_in_logprobs,
            **beside,
        }

    async def _native_stream(self, request: Request) -> AsyncIterator[Delta]:
        """``/generate`` repeats the whole text so far in each event."""
        body = {**await self._native(request), "stream": True}
        written = 0
        async for event in self._http.events("/generate", body):
            text = event["text"]
            meta = {**event["meta_info"], "output_ids": event["output_ids"]}
            yield Delta(text=text[written:], meta=meta)
            written = len(text)


def _native_answer(reply: dict[str, Any]) -> Answer:
    return Answer(
        text=reply["text"], meta={**reply["meta_info"], "output_ids": reply["output_ids"]}
    )


def _score(meta: dict[str, Any]) -> Score:
    entries = meta["input_token_logprobs"]
    return Score(
        ids=tuple(entry[1] for entry in entries),
        logprobs=tuple(0.0 if entry[0] is None else entry[0] for entry in entries),
        prompt_tokens=meta["prompt_tokens"],
        cached_tokens=meta["cached_tokens"],
    )
