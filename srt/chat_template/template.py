"""The chat template of a model: messages in, prompt out."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict, Unpack

import jinja2

from ..errors import LoadError, RequestError
from ..tokenizer import Tokenizer
from .content import ContentForm, Message, normalized
from .environment import ChatEnvironment, TemplateRefusalError
from .literal import Markers, rewritten, strings, unused_chars

_RESERVED = frozenset(
    {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"}
)
_PROBES = ("wq1zv", "kx7jp")


class ChatOptions(TypedDict, total=False):
    """What a request may say beside its messages.

    ``tools`` and ``documents`` are handed to the template. ``add_generation_prompt`` (on unless
    told otherwise) ends the prompt with the start of an answer; ``continue_final_message`` ends it
    with the last message's text, for the model to go on with. ``variables`` go to the template
    (``enable_thinking``...).
    """

    tools: Sequence[Mapping[str, Any]] | None
    documents: Sequence[Mapping[str, Any]] | None
    add_generation_prompt: bool
    continue_final_message: bool
    variables: Mapping[str, Any] | None


class Rendered(NamedTuple):
    """A prompt's text. ``literal`` is a character that it has where it is not to be taken for a
    control token; it is no part of the text itself."""

    text: str
    literal: str | None


class ChatTemplate:
    """Renders messages with a model's template and tokenises the result.

    ``sources`` are Jinja sources by name: ``default``, and ``tool_use`` where a model has its own
    for requests with tools. Without any, every request is refused with a 400 that says so. A
    source that does not compile is a ``LoadError``.

    By default (``control=False``) no text of the client's, wherever it stands, becomes a control
    token; see ``Markers`` for how. The one exception are added tokens that are not special
    (``<think>``, ``<tool_call>``) in assistant messages: that is where the model itself wrote
    them, and templates look for them there.

    Safe to use from several threads.
    """

    def __init__(
        self,
        sources: Mapping[str, str],
        tokenizer: Tokenizer,
        *,
        seconds: float = 10.0,
        characters: int = 2**25,
    ) -> None:
        self._tokenizer = tokenizer
        self._environment = ChatEnvironment(seconds=seconds, characters=characters)
        self._templates = {name: self._compiled(text) for name, text in sources.items()}
        self._source_text = "\n".join(sources.values())
        self._markers = Markers(tokenizer.markers)
        special = tokenizer.special_ids
        self._special = Markers(m for m, token in tokenizer.markers.items() if token in special)
        self._forms: dict[tuple[str, str], frozenset[ContentForm]] = {}
        if sources:
            tokenizer.encode_chat("")  # builds its guard now, and not in the first request
        self._lock = threading.Lock()

    def encode(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        control: bool = False,
        **options: Unpack[ChatOptions],
    ) -> list[int]:
        """Token ids of the prompt, BOS included where the template writes it.

        ``control=True`` lets clients' text form control tokens. ``RequestError`` 400 for malformed
        messages and for whatever the template refuses, with its own words.
        """
        rendered = self._rendered(messages, options, control)
        if control:
            return self._tokenizer.encode(rendered.text, add_bos=False)
        return self._tokenizer.encode_chat(rendered.text, rendered.literal)

    def render(self, messages: Sequence[Mapping[str, Any]], **options: Unpack[ChatOptions]) -> str:
        """The prompt's text; errors as for ``encode``."""
        return self._rendered(messages, options, True).text

    def _rendered(
        self, messages: Sequence[Mapping[str, Any]], options: ChatOptions, control: bool
    ) -> Rendered:
        goes_on = options.get("continue_final_message", False)
        opens = options.get("add_generation_prompt", True)
        name, template = self._chosen(options)
        data = {
            "messages": normalized(messages, lambda role, listed: self._form(name, role, listed)),
            "tools": options.get("tools"),
            "documents": options.get("documents"),
            **_variables(options),
        }
        literal, end = unused_chars(2, [*strings(data), self._source_text])
        if not control:
            data = self._defused(data, literal)
        if goes_on:
            _mark_end(data["messages"][-1], end)
        text = self._run(template, {**data, "add_generation_prompt": opens})
        if goes_on:
            text = _cut(text, end)
        return Rendered(text, None) if control else Rendered(_unescaped(text, literal), literal)

    def _defused(self, data: Mapping[str, Any], char: str) -> dict[str, Any]:
        def changed(value: Any, markers: Markers) -> Any:
            return rewritten(value, lambda text: markers.defused(text, char))

        messages = [
            changed(message, self._special if message["role"] == "assistant" else self._markers)
            for message in data["messages"]
        ]
        rest = {key: changed(value, self._markers) for key, value in data.items()}
        return {**rest, "messages": messages}

    def _chosen(self, options: ChatOptions) -> tuple[str, jinja2.Template]:
        name = "tool_use" if options.get("tools") and "tool_use" in self._templates else "default"
        template = self._templates.get(name)
        if template is None:
            raise RequestError(
                "this model has no chat template; use completions, or start the server with one",
                param="messages",
                code="no_chat_template",
            )
        if options.get("continue_final_message") and options.get("add_generation_prompt", True):
            raise RequestError(
                "continue_final_message and add_generation_prompt cannot both be true",
                param="continue_final_message",
            )
        return name, template

    def _compiled(self, source: str) -> jinja2.Template:
        try:
            return self._environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise LoadError(f"chat template, line {error.lineno}: {error.message}") from error

    def _run(self, template: jinja2.Template, variables: Mapping[str, Any]) -> str:
        try:
            return self._environment.limited(
                template, {**self._tokenizer.special_tokens, **variables}
            )
        except RequestError:
            raise
        except TemplateRefusalError as error:
            raise RequestError(f"the chat template says: {error}", param="messages") from error
        except Exception as error:  # a template is a program; whatever it does is the request's
            raise RequestError(
                f"the chat template cannot render these messages: {type(error).__name__}: {error}",
                param="messages",
            ) from error

    def _form(self, name: str, role: str, listed: bool) -> ContentForm:
        """Parts where the client sent parts and the template can take them, or takes nothing
        else; a string otherwise."""
        with self._lock:
            forms = self._forms.get((name, role))
            if forms is None:
                forms = self._forms[name, role] = self._probed(name, role)
        if "parts" in forms and (listed or "string" not in forms):
            return "parts"
        return "string"

    def _probed(self, name: str, role: str) -> frozenset[ContentForm]:
        """Which forms of content come out as text, tried on a conversation with two words."""
        contents: dict[ContentForm, Any] = {
            "string": "".join(_PROBES),
            "parts": [{"type": "text", "text": word} for word in _PROBES],
        }
        return frozenset(
            form for form, content in contents.items() if self._shows(name, role, content)
        )

    def _shows(self, name: str, role: str, content: Any) -> bool:
        lead = {"role": "user", "content": content}
        if role not in _CONVERSATIONS:
            return False
        messages = [*_CONVERSATIONS[role]]
        messages[messages.index(_PROBED)] = {**lead, "role": role}
        try:
            variables = {"messages": messages, "tools": None, "documents": None}
            text = self._run(self._templates[name], {**variables, "add_generation_prompt": False})
        except RequestError:
            return False
        printed = any(f"{quote}type{quote}" in text for quote in "'\"")
        return not printed and all(word in text for word in _PROBES)


_PROBED: Message = {}
_USER: Message = {"role": "user", "content": "hello"}
_CALL: Message = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"id": "call00000", "type": "function", "function": {"name": "f", "arguments": {}}}
    ],
}
_CONVERSATIONS: Mapping[str, list[Message]] = {
    "system": [_PROBED, _USER],
    "developer": [_PROBED, _USER],
    "user": [_PROBED],
    "assistant": [_USER, _PROBED],
    "tool": [_USER, _CALL, _PROBED],
}


def _variables(options: ChatOptions) -> Mapping[str, Any]:
    variables = options.get("variables") or {}
    for name in variables:
        if name in _RESERVED:
            raise RequestError(
                f"chat_template_kwargs cannot set {name!r}", param=f"chat_template_kwargs.{name}"
            )
    return variables


def _mark_end(message: Message, end: str) -> None:
    content = message["content"]
    if isinstance(content, str):
        message["content"] = content + end
    else:
        parts = content or [{"type": "text", "text": ""}]
        message["content"] = [*parts[:-1], {**parts[-1], "text": parts[-1]["text"] + end}]


def _cut(text: str, end: str) -> str:
    head, found, _ = text.rpartition(end)
    if not found:
        raise RequestError(
            "the chat template does not show the final message's text, so it cannot be continued",
            param="continue_final_message",
        )
    return head.replace(end, "")


def _unescaped(text: str, literal: str) -> str:
    """Templates that print JSON in ASCII escape the character; then that is what is taken out."""
    escape = f"\\u{ord(literal):04x}"
    return text.replace(escape, literal).replace(escape.upper().replace("\\U", "\\u"), literal)
