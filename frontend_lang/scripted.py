"""``Scripted``: a runtime that answers from a script, to test programs without a model."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

from .runtime import Answer, Delta, Prompt, Request, Sampling, Score, ScoreRequest

Line = str | Answer | BaseException | Mapping[str, Any] | list[Any] | Callable[[Any], Any]


class ScriptError(AssertionError):
    """The program asked for something that its script does not foresee."""


class Scripted:
    """Answers from a script; keeps what it was asked in ``requests``.

    ``script`` is one of

    * a mapping from variable names (``None`` for a nameless ``gen``) to answers;
    * a list of answers, given in the order in which requests arrive;
    * a function from a request to an answer.

    An answer is a text, or an ``Answer`` with all that a runtime could say; a list in a mapping is
    used up one by one, and ``n`` at once where a ``gen`` asks for ``n``. An exception is raised. A
    function is called with the request. For a ``select`` it is the choice to be taken, or a
    mapping from choices to log-probabilities: one number, one for each token, or pairs of a
    token's text and its number (equal heads of two choices are then the same tokens). ``alone``
    maps choices to the same without a prompt.

    Texts are cut at the request's stop strings, and checked against its ``regex``; an answer to a
    ``json_schema`` must be JSON. A token is a character. ``delay`` are seconds before each answer.
    """

    def __init__(
        self,
        script: Mapping[Any, Line] | Iterable[Line] | Callable[[Any], Line],
        *,
        alone: Mapping[str, Any] | None = None,
        delay: float = 0.0,
    ) -> None:
        self._by_name: dict[Any, Any] = {}
        self._in_order: list[Any] | None = None
        self._function: Callable[[Any], Any] | None = None
        if isinstance(script, Mapping):
            self._by_name = {k: list(v) if isinstance(v, list) else v for k, v in script.items()}
        elif callable(script):
            self._function = script
        else:
            self._in_order = list(script)
        self._alone = dict(alone or {})
        self._delay = delay
        self._heads: dict[str, int] = {}
        self.requests: list[Request | ScoreRequest] = []

    async def generate(self, request: Request) -> list[Answer]:
        """The script's answers, cut and checked."""
        self.requests.append(request)
        lines = [self._line(request) for _ in range(request.sampling.n)]
        await asyncio.sleep(self._delay)
        return [self._spoken(line, request) for line in lines]

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """The answer word by word."""
        answer = (await self.generate(request))[0]
        for word in re.findall(r"\S*\s*", answer.text):
            if word:
                yield Delta(text=word)
        yield Delta(text="", meta=answer.meta, tool_calls=answer.tool_calls)

    async def score(self, request: ScoreRequest) -> list[Score]:
        """The script's scores."""
        self.requests.append(request)
        if not request.prompt.is_chat and not request.prompt.text and self._alone:
            return [self._of_ids(ids) for ids in request.continuations]
        line = self._line(request)
        await asyncio.sleep(self._delay)
        line = self._resolved(line, request)
        texts = [str(text) for text in request.continuations]
        if isinstance(line, str):
            if line not in texts:
                raise ScriptError(f"the script selects {line!r}, which is none of {texts}")
            line = {text: 0.0 if text == line else -1.0 for text in texts}
        missing = [text for text in texts if text not in line]
        if missing:
            raise ScriptError(f"the script has no score for {missing[0]!r}")
        return [self._score(text, line[text]) for text in texts]

    async def render(self, prompt: Prompt) -> str:
        """A template of our own."""
        turns = [f"<|{m.role}|>\n{m.content}\n" for m in prompt.messages]
        return "".join(turns) + prompt.text

    async def flush(self) -> bool:
        """There is no cache."""
        return True

    def _line(self, request: Request | ScoreRequest) -> Any:
        if self._function is not None:
            return self._function(request)
        if self._in_order is not None:
            if not self._in_order:
                raise ScriptError(f"the script has ended; asked for {request.name!r}")
            return self._in_order.pop(0)
        if request.name not in self._by_name:
            raise ScriptError(f"the script has no answer for {request.name!r}")
        line = self._by_name[request.name]
        if not isinstance(line, list):
            return line
        if not line:
            raise ScriptError(f"the script's answers for {request.name!r} are used up")
        return line.pop(0)

    def _resolved(self, line: Any, request: Request | ScoreRequest) -> Any:
        if callable(line) and not isinstance(line, type):
            line = line(request)
        if isinstance(line, BaseException):
            raise line
        return line

    def _spoken(self, line: Any, request: Request) -> Answer:
        said = self._resolved(line, request)
        if isinstance(said, Answer):
            return said
        if not isinstance(said, str):
            raise ScriptError(f"the answer to {request.name!r} is {said!r}, which is no text")
        return _answer(request, said)

    def _score(self, text: str, given: Any) -> Score:
        listed = given if isinstance(given, list) else [given]
        pairs = [one if isinstance(one, tuple) else (None, one) for one in listed]
        heads, head = [], ""
        for at, (piece, _) in enumerate(pairs):
            head = text[: at + 1] if piece is None else head + piece
            heads.append(text if at == len(pairs) - 1 else head)
        ids = [self._heads.setdefault(head, len(self._heads)) for head in heads]
        return Score(ids=tuple(ids), logprobs=tuple(float(value) for _, value in pairs))

    def _of_ids(self, ids: str | tuple[int, ...]) -> Score:
        names = {number: piece for piece, number in self._heads.items()}
        text = ids if isinstance(ids, str) else names[ids[-1]]
        if text not in self._alone:
            raise ScriptError(f"alone= has no score for {text!r}")
        return self._score(text, self._alone[text])


def _check(sampling: Sampling, text: str) -> None:
    """As far as Python alone can: a grammar of EBNF is not read."""
    if sampling.regex is not None and re.fullmatch(sampling.regex, text) is None:
        raise ScriptError(f"{text!r} does not match the regex {sampling.regex!r}")
    if sampling.json_schema is not None:
        try:
            json.loads(text)
        except ValueError as error:
            raise ScriptError(f"{text!r} is no JSON: {error}") from error


def _answer(request: Request, text: str) -> Answer:
    sampling = request.sampling
    ends = [(text.find(stop), stop) for stop in sampling.stop if stop in text]
    reason: dict[str, Any] = {"type": "stop", "matched": None}
    if ends:
        at, stop = min(ends)
        text, reason = text[:at], {"type": "stop", "matched": stop}
    _check(sampling, text)
    read = sum(len(m.content) for m in request.prompt.messages) + len(request.prompt.text)
    meta = {"prompt_tokens": read, "completion_tokens": len(text), "cached_tokens": 0}
    return Answer(text=text, meta={**meta, "finish_reason": reason})
