"""Completions, whole and streamed."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from ..messages import TokenLogprobs
from .bodies import CompletionBody
from .chat_answer import matched
from .chunks import Chunks
from .cursor import Cursor, News
from .entry import Call, Choice, Prompt
from .model_info import ModelInfo
from .openai_replies import ChunkHead, CompletionChoice, CompletionReply, Usage, encode, warnings_of
from .token_names import CompletionLogprobs, TextOffsets, TokenNames


class _Part:
    """One choice: its prompt, the reader's place, and where in the text its tokens start."""

    __slots__ = ("cursor", "offsets", "prompt")

    def __init__(self, choice: Choice, prompt: Prompt, *, echo: bool, every_id: bool) -> None:
        self.cursor = Cursor(choice, every_id=every_id)
        self.prompt = prompt
        starts_late = 0 if echo or prompt.text is None else len(prompt.text)
        self.offsets = TextOffsets(prompt.params.skip_special_tokens, starts_late)


class CompletionAnswer:
    """Writes the answer to one completion request."""

    def __init__(
        self, call: Call, body: CompletionBody, model: ModelInfo, names: TokenNames, created: int
    ) -> None:
        self._call = call
        self._names = names
        self._echo = bool(body.echo)
        self._wants_ids = bool(body.return_token_ids)
        self._head = ChunkHead(
            id=f"cmpl-{call.id}",
            object="text_completion",
            created=created,
            model=model.name,
            system_fingerprint=model.fingerprint,
            seed=call.seed,
        )
        self._chunks = Chunks(call, self._head, body.stream_options)
        self._open = [
            _Part(choice, entry.prompt, echo=self._echo, every_id=self._wants_ids)
            for entry in call.entries
            for choice in entry.choices
        ]

    def whole(self) -> bytes:
        """The body of an answer that is not streamed."""
        head = self._head
        taken = [(part, part.cursor.take()) for part in self._open]
        return encode(
            CompletionReply(
                id=head.id,
                created=head.created,
                model=head.model,
                choices=[self._choice(part, news) for part, news in taken if news is not None],
                usage=Usage.of(self._call),
                system_fingerprint=head.system_fingerprint,
                seed=self._call.seed,
                warnings=warnings_of(self._call),
            )
        )

    def news(self) -> bytes:
        """Frames for what has come since the last call."""
        frames = []
        for part in self._open:
            news = part.cursor.take()
            if news is not None:
                frames.append(self._chunks.frame(self._choice(part, news)))
        self._open = [part for part in self._open if not part.cursor.ended]
        return b"".join(frames)

    def end(self) -> bytes:
        """What follows the last choice's end."""
        return self._chunks.end()

    def _choice(self, part: _Part, news: News) -> CompletionChoice:
        opens = self._echo and news.is_first
        made = CompletionChoice(
            index=part.cursor.choice.index,
            text=(part.prompt.text or "") + news.text if opens else news.text,
            logprobs=self._logprobs(part, news, opens),
        )
        if self._wants_ids:
            made.token_ids = news.ids
            made.prompt_token_ids = part.prompt.ids if news.is_first else UNSET
        if news.finish is not None:
            made.finish_reason = news.finish.reason
            made.matched_stop = matched(news.finish)
        return made

    def _logprobs(self, part: _Part, news: News, opens: bool) -> CompletionLogprobs | None:
        wanted = part.prompt.params.logprobs
        if wanted is None:
            return None
        items: Sequence[TokenLogprobs] = news.logprobs
        if opens:
            items = [*(part.cursor.choice.prompt_logprobs or ()), *items]
        return self._names.completion(items, part.offsets, wanted > 0)
