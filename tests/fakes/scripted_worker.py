"""A worker in this process that says what it is told to, and a byte-level model around it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sapwood.constrain.spec import Warning
from sapwood.constrain.vocabulary import char_of_byte
from sapwood.srt.chat_template import ChatTemplate
from sapwood.srt.config import FrontConfig
from sapwood.srt.detokenizer import Detokenizer
from sapwood.srt.front.intake import Intake
from sapwood.srt.front.journal import Journal
from sapwood.srt.front.model_info import ModelInfo
from sapwood.srt.front.state import Front
from sapwood.srt.messages import (
    Abort,
    Control,
    ControlReply,
    Finish,
    Opened,
    Refused,
    StepStats,
    Submit,
    TokenItem,
    TokenLogprobs,
    Tokens,
    ToWorker,
)
from sapwood.srt.metrics import Metrics
from sapwood.srt.tokenizer import Tokenizer

START, END, BOS = 256, 257, 258
VOCAB = 259
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_tokenizer(*, bos: bool = False) -> Tokenizer:
    """Ids are bytes; 256 starts a turn, 257 ends it, 258 starts a text (where asked for)."""
    names = ("<|im_start|>", "<|im_end|>", "<s>")
    added = [
        {
            "id": 256 + i,
            "content": name,
            "special": True,
            "normalized": False,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
        }
        for i, name in enumerate(names)
    ]
    byte_level = {"add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    data = {
        "version": "1.0",
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", **byte_level},
        "decoder": {"type": "ByteLevel", **byte_level},
        "post_processor": None,
        "added_tokens": added,
        "model": {
            "type": "BPE",
            "vocab": {char: i for i, char in enumerate(char_of_byte())},
            "merges": [],
        },
    }
    special = {"eos_token": "<|im_end|>", "bos_token": "<s>"}
    return Tokenizer(data, special_tokens=special, add_bos=bos)


class Script(NamedTuple):
    """What one sample says: bytes (as ids), then an end.

    Without a ``finish`` it stops at the end token, or at ``max_tokens`` if that comes first.
    ``chunks`` cuts the output into steps of several tokens.
    """

    ids: Sequence[int]
    finish: Finish | None = None
    refused: Refused | None = None
    cached: int = 0
    step: int = 1
    warnings: list[Warning] | None = None


class _Sample:
    def __init__(self, submit: Submit, script: Script) -> None:
        self.submit = submit
        self.script = script
        self.at = 0


class ScriptedWorker:
    """Answers as ``script(submit)`` says, one step at a time.

    Steps run by themselves on the event loop unless ``manual``; then ``step()`` makes one.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.script: Callable[[Submit], Script] = lambda submit: Script(b"Hello!")
        self.manual = False
        self.delay = 0.0
        self.busy_on_flush = False
        self.info: dict[str, Any] = {}
        self.submits: list[Submit] = []
        self.aborts: list[str] = []
        self.running: dict[tuple[str, int], _Sample] = {}
        self.journal: Journal | None = None
        self.steps = 0
        self._detokenizer = Detokenizer(tokenizer.token_bytes, tokenizer.special_ids)
        self._scheduled = False

    def send(self, message: ToWorker) -> None:
        """What the journal calls."""
        if isinstance(message, Submit):
            self._submit(message)
        elif isinstance(message, Abort):
            self.aborts.append(message.rid)
            for key in [key for key in self.running if key[0] == message.rid]:
                del self.running[key]
        else:
            self._later(self._reply, message)

    def step(self) -> None:
        """One step of all samples."""
        items = [self._item(sample) for sample in list(self.running.values())]
        self.steps += 1
        stats = StepStats(
            steps=self.steps,
            running=len(self.running),
            pages_total=100,
            pages_free=100,
            queue_seconds=[0.25],
        )
        self._emit(Tokens(items, stats))

    def text_logprobs(self, token: int, top: int) -> TokenLogprobs:
        """A token's log-probability is minus its id; alternatives are it and its neighbours."""
        near = [(token, -float(token)), *((t % 259, -1000.0 - t) for t in range(1, top))]
        return TokenLogprobs(token, -float(token), near[:top])

    def _submit(self, submit: Submit) -> None:
        self.submits.append(submit)
        script = self.script(submit)
        if script.refused is not None:
            self._later(self._emit, script.refused)
            return
        self.running[submit.rid, submit.choice] = _Sample(submit, script)
        params = submit.params
        self._emit(
            Opened(
                rid=submit.rid,
                choice=submit.choice,
                epoch=submit.epoch,
                stop=params.stop,
                include_stop=params.include_stop,
                skip_special_tokens=params.skip_special_tokens,
                shown_ids=params.shown_ids,
            )
        )
        self._schedule()

    def _item(self, sample: _Sample) -> TokenItem:
        submit, script, at = sample.submit, sample.script, sample.at
        params = submit.params
        budget = params.max_tokens
        assert budget is not None, "the front resolves max_tokens"
        whole = [*script.ids] if script.finish is not None else [*script.ids, END]
        ids = whole[:budget][at : at + script.step]
        sample.at += len(ids)
        finish = None
        if sample.at == len(whole):
            finish = script.finish or Finish("stop", END)
        if sample.at == budget and finish is None:
            finish = Finish("length")
        if finish is not None:
            self.running.pop((submit.rid, submit.choice), None)
        return TokenItem(
            submit.rid,
            submit.choice,
            submit.epoch,
            at,
            ids,
            script.cached,
            self._logprobs(ids, params.logprobs),
            self._prompt_logprobs(submit) if at == 0 else None,
            finish,
            script.warnings if at == 0 else None,
        )

    def _logprobs(self, ids: Sequence[int], top: int | None) -> list[TokenLogprobs] | None:
        return None if top is None else [self.text_logprobs(token, top) for token in ids]

    def _prompt_logprobs(self, submit: Submit) -> list[TokenLogprobs] | None:
        start = submit.params.prompt_logprobs_from
        if start is None:
            return None
        top = submit.params.prompt_logprobs_top
        scored = [self.text_logprobs(token, top) for token in submit.prompt_ids]
        scored[0] = TokenLogprobs(submit.prompt_ids[0], None)
        return scored[start:]

    def _emit(self, message: Any) -> None:
        reply = self._detokenizer.feed(message)
        if reply is not None and self.journal is not None:
            self.journal.receive(reply)

    def _reply(self, control: Control) -> None:
        if control.op == "info":
            state = {"steps": self.steps, "pages_total": 100, "pages_free": 99, **self.info}
            self._emit(ControlReply(control.id, True, state))
            return
        ok = not (self.busy_on_flush or self.running)
        self._emit(ControlReply(control.id, ok, {} if ok else {"message": "1 request runs"}))

    def _schedule(self) -> None:
        if self.manual or self._scheduled:
            return
        self._scheduled = True
        asyncio.get_running_loop().call_later(self.delay, self._run)

    def _run(self) -> None:
        self._scheduled = False
        if self.manual:
            return
        self.step()
        if self.running:
            self._schedule()

    def _later(self, work: Callable[[Any], None], argument: Any) -> None:
        asyncio.get_running_loop().call_soon(work, argument)


class Parts(NamedTuple):
    """A front over a scripted worker."""

    front: Front
    worker: ScriptedWorker


def make_parts(
    *,
    bos: bool = False,
    context_length: int = 128,
    defaults: dict[str, float] | None = None,
    template: str | None = CHATML,
    **config: Any,
) -> Parts:
    """A front that is ready, with a model called ``tiny``."""
    tokenizer = byte_tokenizer(bos=bos)
    model = ModelInfo(
        name="tiny",
        context_length=context_length,
        vocab_size=VOCAB,
        created=1,
        defaults=defaults or {},
    )
    sources = {} if template is None else {"default": template}
    worker = ScriptedWorker(tokenizer)
    metrics = Metrics()
    journal = Journal(worker.send, metrics=metrics)
    worker.journal = journal
    intake = Intake(model, tokenizer, ChatTemplate(sources, tokenizer))
    front = Front(intake, journal, metrics, FrontConfig(**config))
    front.ready = True
    return Parts(front, worker)
