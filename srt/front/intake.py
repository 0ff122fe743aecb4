"""From a request's body to prompts that are fit to be submitted. Runs in threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from ..chat_template import ChatTemplate
from ..errors import RequestError
from ..params import SamplingParams, check_token_id
from ..tokenizer import Tokenizer
from .bodies import (
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    GenerateBody,
    NativeParams,
    TokenizeBody,
)
from .chat_prompt import ChatPrompts
from .constraint import given, held, with_options
from .entry import Prepared, Prompt
from .held import Held
from .model_info import ModelInfo
from .protocol import refuse_unsupported
from .resolve import (
    chat_params,
    checked_priority,
    checked_rid,
    completion_params,
    fitted,
    fresh_seed,
    namespace,
    native_params,
)
from .tool_use import read_tools

T = TypeVar("T")

MAX_CHOICES = 2048
"""Samples that one request may ask for, over all its prompts."""

MAX_CONSTRAINTS = 32_000_000
"""Bytes of constraints that one request may send, counted for each sample."""

_OPENAI = ("custom_logit_processor", "logits_processors", "lora_path")
_CHAT = (
    "functions",
    "function_call",
    "audio",
    "modalities",
    "web_search_options",
    "moderation",
    "chat_template",
)
_GENERATE = (
    "lora_path",
    "image_data",
    "audio_data",
    "video_data",
    "input_embeds",
    "session_params",
    "custom_logit_processor",
    "return_hidden_states",
    "token_ids_logprob",
)
_NATIVE = ("stop_regex", "custom_params")


class Intake:
    """Checks requests, fills in their defaults and tokenises them.

    No state, safe to use from several threads; tokenising a long text takes a while, so a server
    calls it in a thread pool. All methods raise ``RequestError`` for what cannot be run.
    ``control`` lets text in chat messages form control tokens. ``tool_format`` names the way in
    which the model calls tools; ``auto`` finds it out from the template.
    """

    def __init__(
        self,
        model: ModelInfo,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        *,
        control: bool = False,
        tool_format: str = "auto",
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        special = tokenizer.special_ids
        self._special_names = {n: t for n, t in tokenizer.markers.items() if t in special}
        self._chats = ChatPrompts(template, control=control, tool_format=tool_format)

    def chat(self, body: ChatBody) -> Prepared:
        """One prompt, made by the model's chat template."""
        refuse_unsupported(body, (*_OPENAI, *_CHAT))
        self.model.check_name(body.model)
        params = chat_params(body, self.model)
        tools = read_tools(body, self._chats.format)
        constraint = given(body)
        if tools is not None:
            tools, constraint = tools.beside(constraint)
            if tools.use.mode != "none":
                marks = tools.marks(self._special_names)
                params = msgspec.structs.replace(params, shown_ids=marks)
        constraint = with_options(constraint, body)
        ids = self._chats.ids(body, () if tools is None else tools.shown)
        budget_at, wanted = "max_tokens", body.max_tokens
        if body.max_completion_tokens is not None:
            budget_at, wanted = "max_completion_tokens", body.max_completion_tokens
        name = checked_rid(body.rid)
        prompt = Prompt(ids, params, name, held=constraint, budget_at=budget_at)
        prompt = fitted(prompt, self.model, body.truncate_prompt_tokens, "messages", wanted)
        prepared = self._prepared([prompt], body.cache_salt, body.priority)
        return prepared._replace(tools=tools)

    def completion(self, body: CompletionBody) -> Prepared:
        """One prompt, or a list of them."""
        refuse_unsupported(body, (*_OPENAI, "suffix", "use_beam_search"))
        if body.best_of is not None and body.best_of != (1 if body.n is None else body.n):
            refuse_unsupported(body, ("best_of",))
        self.model.check_name(body.model)
        params = completion_params(body, self.model)
        constraint = held(body)
        given = prompt_list(body.prompt, "prompt")
        _check_choices(len(given), params.n)
        pairs = self._read_prompts(given, "prompt")
        names, call_names = _rids(body.rid, len(pairs))
        prompts = []
        for (ids, text), name in zip(pairs, names, strict=True):
            prompt = Prompt(ids, params, name, text, constraint)
            cut_to = body.truncate_prompt_tokens
            prompt = fitted(prompt, self.model, cut_to, wanted=body.max_tokens)
            if text is None or len(prompt.ids) < len(ids):
                shown = self.tokenizer.decode(prompt.ids) if body.echo else None
                prompt = prompt._replace(text=shown)
            prompts.append(prompt)
        return self._prepared(prompts, body.cache_salt, body.priority, call_names)

    def generate(self, body: GenerateBody) -> Prepared:
        """SGLang's native request: one prompt, or a list with its own parameters for each."""
        refuse_unsupported(body, _GENERATE)
        self.model.check_name(body.model)
        if (body.text is None) == (body.input_ids is None):
            raise RequestError("exactly one of text and input_ids is needed", param="text")
        param = "text" if body.text is not None else "input_ids"
        given = body.text if body.text is not None else body.input_ids
        listed = prompt_list(given, param)
        resolved = self._native_params(body, len(listed))
        _check_choices(len(listed), resolved[0].n)
        pairs = self._read_prompts(listed, param)
        names, call_names = _rids(body.rid, len(pairs))
        cut_to = body.truncate_prompt_tokens
        given_params = _each(body.sampling_params, len(pairs), "sampling_params", NativeParams())
        wanted = [params.max_new_tokens for params in given_params]
        given_prompts = [
            Prompt(ids, params, name, held=each, budget_at=f"{where}max_new_tokens")
            for (ids, _), params, name, (each, where) in zip(
                pairs, resolved, names, _native_held(body, len(pairs)), strict=True
            )
        ]
        prompts = [
            fitted(prompt, self.model, cut_to, param, budget)
            for prompt, budget in zip(given_prompts, wanted, strict=True)
        ]
        return self._prepared(prompts, body.cache_salt, body.priority, call_names)

    def tokenize(self, body: TokenizeBody) -> list[list[int]]:
        """Ids of each text; a single text or chat gives one list."""
        self.model.check_name(body.model)
        if (body.prompt is None) == (body.messages is None):
            raise RequestError("exactly one of prompt and messages is needed", param="prompt")
        if body.messages is not None:
            tools = read_tools(body, self._chats.format)
            return [self._chats.ids(body, () if tools is None else tools.shown)]
        texts = [body.prompt] if isinstance(body.prompt, str) else list(body.prompt or ())
        add_bos = False if body.add_special_tokens is False else None
        return self.tokenizer.encode_batch(texts, add_bos=add_bos)

    @property
    def tool_format(self) -> str:
        """The format in which the model calls tools."""
        return self._chats.format.name

    def detokenize(self, body: DetokenizeBody) -> list[str]:
        """Text of each list of ids; a flat list gives one text."""
        self.model.check_name(body.model)
        skip = body.skip_special_tokens is not False
        lists = prompt_list(body.tokens, "tokens") if body.tokens else []
        checked = [self._checked_ids(ids, "tokens") for ids in lists if isinstance(ids, list)]
        return [self.tokenizer.decode(ids, skip_special=skip) for ids in checked or [[]]]

    def _read_prompts(
        self, given: Sequence[str | list[int]], param: str
    ) -> list[tuple[list[int], str | None]]:
        """Ids of each prompt, and its text where that is what was given."""
        texts = [part for part in given if isinstance(part, str)]
        encoded = iter(self.tokenizer.encode_batch(texts) if texts else ())
        return [
            (next(encoded), part)
            if isinstance(part, str)
            else (self._checked_ids(part, param), None)
            for part in given
        ]

    def _checked_ids(self, ids: list[int], param: str) -> list[int]:
        for token in ids:
            check_token_id(token, self.model.vocab_size, param)
        return ids

    def _native_params(self, body: GenerateBody, count: int) -> list[SamplingParams]:
        given = _each(body.sampling_params, count, "sampling_params", NativeParams())
        wanted = _each(body.return_logprob, count, "return_logprob", False)
        starts = _each(body.logprob_start_len, count, "logprob_start_len", -1)
        tops = _each(body.top_logprobs_num, count, "top_logprobs_num", 0)
        resolved = []
        for params, logprob, start, top in zip(given, wanted, starts, tops, strict=True):
            refuse_unsupported(params, _NATIVE, "sampling_params.")
            resolved.append(
                native_params(params, self.model, logprob=logprob, start=start, top=top)
            )
        if len({(params.n, params.seed) for params in resolved}) > 1:
            raise RequestError(
                "n and seed must be the same for all prompts", param="sampling_params"
            )
        return resolved

    def _prepared(
        self,
        prompts: list[Prompt],
        salt: str | None,
        priority: int | None,
        names: tuple[str, ...] = (),
    ) -> Prepared:
        _check_constraints(prompts)
        seed = prompts[0].params.seed
        return Prepared(
            prompts,
            fresh_seed() if seed is None else seed,
            namespace(salt),
            checked_priority(priority),
            names,
        )


def prompt_list(given: Any, param: str) -> list[str | list[int]]:
    """A prompt in any of OpenAI's four forms as a list of texts and lists of ids.

    ``RequestError`` with the place of whatever is neither, or is empty.
    """
    if isinstance(given, str):
        return [given]
    if not given:
        raise RequestError(f"{param} is empty", param=param)
    if all(type(part) is int for part in given):
        return [given]
    for i, part in enumerate(given):
        path = f"{param}[{i}]"
        if isinstance(part, list):
            for j, token in enumerate(part):
                if type(token) is not int:
                    raise RequestError(f"{path}[{j}] must be a token id", param=f"{path}[{j}]")
            if not part:
                raise RequestError(f"{path} is empty", param=path)
        elif not isinstance(part, str):
            raise RequestError(f"{path} must be a text or a list of token ids", param=path)
        if type(part) is not type(given[0]):
            raise RequestError(
                f"{path} is of another kind than {param}[0]: texts and ids cannot be mixed",
                param=path,
            )
    return list(given)


def _each(value: T | list[T] | None, count: int, name: str, default: T) -> list[T]:
    """One value for each prompt, from one for all of them or a list."""
    if not isinstance(value, list):
        return [default if value is None else value] * count
    if len(value) != count:
        raise RequestError(f"{name} has {len(value)} entries for {count} prompts", param=name)
    return value


def _native_held(body: GenerateBody, count: int) -> list[tuple[Held | None, str]]:
    """A constraint for each prompt, and where its parameters are; one for all is read once."""
    given = body.sampling_params
    if isinstance(given, list):
        places = [f"sampling_params[{i}]." for i in range(len(given))]
        return [(held(params, at), at) for params, at in zip(given, places, strict=True)]
    return [(held(given or NativeParams(), "sampling_params."), "sampling_params.")] * count


def _check_constraints(prompts: Sequence[Prompt]) -> None:
    """Each sample is sent with its own constraint: a large one for many samples is too much."""
    found = [(prompt.held, prompt.params.n) for prompt in prompts if prompt.held is not None]
    sizes = {id(each): each.size for each in {id(each): each for each, _ in found}.values()}
    size = sum(sizes[id(each)] * n for each, n in found)
    if size > MAX_CONSTRAINTS:
        path = found[0][0].path
        raise RequestError(
            f"{path} for all samples of the request makes {size} bytes; the most is "
            f"{MAX_CONSTRAINTS}: ask for fewer samples at once",
            param=path,
        )


def _rids(rid: str | list[str] | None, count: int) -> tuple[list[str | None], tuple[str, ...]]:
    """A rid for each prompt, and those that stand for all: one rid with many prompts does both."""
    if isinstance(rid, list):
        if len(rid) != count:
            raise RequestError(f"rid has {len(rid)} entries for {count} prompts", param="rid")
        if len(set(rid)) != count:
            raise RequestError("rid names two prompts alike", param="rid")
        return [checked_rid(one) for one in rid], ()
    checked = checked_rid(rid)
    if checked is None or count == 1:
        return [checked] * count, ()
    return [f"{checked}_{i}" for i in range(count)], (checked,)


def _check_choices(prompts: int, n: int) -> None:
    if prompts * n > MAX_CHOICES:
        raise RequestError(
            f"{prompts} prompts with n = {n} ask for {prompts * n} samples; "
            f"one request may have {MAX_CHOICES}",
            param="n",
        )
