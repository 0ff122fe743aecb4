"""Chat completions, whole and streamed."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, UnsetType

from ..messages import Finish, TokenLogprobs
from .bodies import ChatBody
from .chunks import Chunks
from .cursor import Cursor, News
from .entry import Call, Choice
from .model_info import ModelInfo
from .openai_replies import (
    ChatChunkChoice,
    ChatDelta,
    ChatReply,
    ChatReplyChoice,
    ChunkHead,
    Usage,
    encode,
    warnings_of,
)
from .token_names import ChatLogprobs, TokenNames
from .turn import Turn


def matched(finish: Finish) -> str | int | UnsetType:
    """The stop string or token id that ended a sample; left out where none did."""
    return UNSET if finish.matched is None else finish.matched


class ChatAnswer:
    """Writes the answer to one chat request."""

    def __init__(
        self, call: Call, body: ChatBody, model: ModelInfo, names: TokenNames, created: int
    ) -> None:
        self._call = call
        self._names = names
        self._head = ChunkHead(
            id=f"chatcmpl-{call.id}",
            object="chat.completion.chunk",
            created=created,
            model=model.name,
            system_fingerprint=model.fingerprint,
            seed=call.seed,
        )
        params = call.prepared.prompts[0].params
        self._params = params
        self._wants_logprobs = params.logprobs is not None
        self._wants_ids = bool(body.return_token_ids)
        self._chunks = Chunks(call, self._head, body.stream_options)
        self._turns = [self._turn(choice.index) for choice in call.choices]
        self._open = [Cursor(choice, every_id=self._wants_ids) for choice in call.choices]

    def whole(self) -> bytes:
        """The body of an answer that is not streamed."""
        head = self._head
        return encode(
            ChatReply(
                id=head.id,
                created=head.created,
                model=head.model,
                choices=[self._choice(choice) for choice in self._call.choices],
                usage=Usage.of(self._call),
                system_fingerprint=head.system_fingerprint,
                seed=self._call.seed,
                warnings=warnings_of(self._call),
            )
        )

    def news(self) -> bytes:
        """Frames for what has come since the last call."""
        frames = []
        for cursor in self._open:
            news = cursor.take()
            if news is not None:
                frames += self._frames(cursor.choice.index, news)
        self._open = [cursor for cursor in self._open if not cursor.ended]
        return b"".join(frames)

    def end(self) -> bytes:
        """What follows the last choice's end."""
        return self._chunks.end()

    def _turn(self, index: int) -> Turn:
        tools = self._call.prepared.tools
        if tools is None:
            return Turn(None, str)
        key = f"{self._call.id}/{index}"
        named = tools.use.mode == "named"
        return Turn(tools.reader(), lambda n: tools.format.call_id(f"{key}/{n}"), named=named)

    def _frames(self, index: int, news: News) -> list[bytes]:
        turn = self._turns[index]
        deltas = turn.deltas(news.text, ended=news.finish is not None)
        has_more = news.finish is not None or self._wants_logprobs or self._wants_ids
        if not deltas and has_more:
            deltas = [ChatDelta()]
        chunks = [ChatChunkChoice(index=index, delta=delta) for delta in deltas]
        if chunks and self._wants_logprobs:
            chunks[0].logprobs = self._logprobs(news.logprobs, news.finish)
        if chunks and self._wants_ids:
            chunks[0].token_ids = news.ids
        if news.finish is not None:
            chunks[-1].finish_reason = turn.finish_reason(news.finish)
            chunks[-1].matched_stop = matched(news.finish)
        if news.is_first:
            chunks.insert(0, ChatChunkChoice(index=index, delta=turn.opening()))
        return [self._chunks.frame(chunk) for chunk in chunks]

    def _choice(self, choice: Choice) -> ChatReplyChoice:
        assert choice.finish is not None
        turn = self._turn(choice.index)
        message = turn.message(choice.text)
        logprobs = self._logprobs(choice.logprobs, choice.finish) if self._wants_logprobs else None
        return ChatReplyChoice(
            index=choice.index,
            message=message,
            logprobs=logprobs,
            finish_reason=turn.finish_reason(choice.finish),
            matched_stop=matched(choice.finish),
            token_ids=choice.ids if self._wants_ids else UNSET,
        )

    def _logprobs(self, items: Sequence[TokenLogprobs], finish: Finish | None) -> ChatLogprobs:
        cut = finish is not None and isinstance(finish.matched, int)
        skip_special = self._params.skip_special_tokens
        return self._names.chat(items, skip_special, cut and not self._params.include_stop)
