"""What a structural tag means, worked out: its texts with control tokens told from text, which tags
each trigger begins, and the grammar in the engine's language."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .refusal import Refusal
from .spec import StructuralTag
from .vocabulary import Vocabulary

_MARK = re.compile(rb"\xff<(\d+)>")


def mark(token: int) -> bytes:
    """Bytes that stand for a control token among text: no UTF-8 holds the first of them."""
    return b"\xff<%d>" % token


def parts(text: bytes) -> Iterator[bytes | int]:
    """A marked text as pieces of text and control tokens, in order."""
    at = 0
    for match in _MARK.finditer(text):
        if match.start() > at:
            yield text[at : match.start()]
        yield int(match[1])
        at = match.end()
    if at < len(text):
        yield text[at:]


class Marker:
    """Finds the names of control tokens in texts."""

    __slots__ = ("_eos_ids", "_ids", "_names")

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._eos_ids = vocabulary.eos_ids
        self._ids: dict[bytes, int] = {}
        for token in sorted(vocabulary.special_ids | vocabulary.eos_ids, reverse=True):
            name = vocabulary.token_bytes[token]
            if name:
                self._ids[name] = token
        longest_first = sorted(self._ids, key=len, reverse=True)
        self._names = re.compile(b"|".join(map(re.escape, longest_first)) or b"(?!)")

    def marked(self, text: str, pointer: str, keyword: str) -> bytes:
        """A text with marks for control tokens; ``Refusal`` if one of them ends the output."""
        data = text.encode()
        for name in self._names.findall(data):
            if self._ids[name] in self._eos_ids:
                raise Refusal(pointer, keyword, f"{name.decode()!r} ends the output")
        return self._names.sub(lambda match: mark(self._ids[match[0]]), data)


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """Marked text that may be completed in free text, and the tags that it begins."""

    text: bytes
    tags: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class TagPlan:
    """The texts of a structural tag, marked.

    ``begins`` and ``ends`` are those of its tags; ``triggers`` are all different, and each stops
    after the first control token in it.
    """

    begins: tuple[bytes, ...]
    ends: tuple[bytes, ...]
    triggers: tuple[Trigger, ...]
    prefix: bytes
    separator: bytes
    suffix: bytes
    free_text: bool
    required: bool
    once: bool
    most: int


def tag_plan(constraint: StructuralTag, vocabulary: Vocabulary) -> TagPlan:
    """Reads a structural tag; ``Refusal`` for what can never be written."""
    marker = Marker(vocabulary)
    prefix = marker.marked(constraint.prefix, "", "prefix")
    begins, ends = [], []
    for i, tag in enumerate(constraint.tags):
        begins.append(marker.marked(tag.begin, f"/tags/{i}", "begin"))
        ends.append(marker.marked(tag.end, f"/tags/{i}", "end"))
    triggers = _triggers(constraint, marker, [prefix + begin for begin in begins])
    if not constraint.free_text:
        triggers = ()
        if not begins:
            raise Refusal("", "tags", "without free text and tags nothing can be written")
    elif begins:
        reached = {i for trigger in triggers for i in trigger.tags}
        for i in range(len(begins)):
            if i not in reached and not (reached and constraint.prefix):
                raise Refusal(f"/tags/{i}", "begin", "no trigger begins it")
    elif constraint.at_least_one:
        raise Refusal("", "at_least_one", "there are no tags")
    return TagPlan(
        begins=tuple(begins),
        ends=tuple(ends),
        triggers=triggers,
        prefix=prefix,
        separator=marker.marked(constraint.separator, "", "separator"),
        suffix=marker.marked(constraint.suffix, "", "suffix"),
        free_text=constraint.free_text,
        required=constraint.at_least_one,
        once=constraint.stop_after_first,
        most=constraint.most,
    )


def _triggers(
    constraint: StructuralTag, marker: Marker, leads: Sequence[bytes]
) -> tuple[Trigger, ...]:
    found: dict[bytes, dict[int, None]] = {}
    for text in constraint.triggers:
        whole = marker.marked(text, "", "triggers")
        if not whole:
            raise Refusal("", "triggers", "an empty trigger")
        control = _MARK.search(whole)
        tags = found.setdefault(whole[: control.end()] if control else whole, {})
        tags.update((i, None) for i, lead in enumerate(leads) if lead.startswith(whole))
    return tuple(Trigger(text=text, tags=tuple(sorted(tags))) for text, tags in found.items())


# -- the grammar -----------------------------------------------------------------------------------


def lark(plan: TagPlan, schemas: Sequence[Any]) -> str:
    """The grammar in llguidance's dialect of Lark; ``schemas`` are those of the tags in the
    dialect that it enforces whole, or more."""
    rules: dict[str, str] = {}
    bodies = []
    named: dict[str, str] = {}
    for i, schema in enumerate(schemas):
        text = json.dumps({**(schema if isinstance(schema, dict) else {}), **_SEPARATORS})
        name = named.setdefault(text, f"json_{len(named)}")
        rules[name] = f"%json {text}"
        rules[f"body_{i}"] = _sequence(name, plan.ends[i])
        bodies.append(f"body_{i}")
    more = _more(plan, bodies, rules)
    if plan.free_text:
        _free(plan, bodies, more, rules)
    else:
        leads = [plan.prefix + begin for begin in plan.begins]
        run = _choice(_sequence(lead, body, more) for lead, body in zip(leads, bodies, strict=True))
        rules["start"] = run if plan.required else f'"" | {run}'
    return "\n".join(f"{name}: {body}" for name, body in rules.items())


_SEPARATORS = {
    "x-guidance": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
}


def _more(plan: TagPlan, bodies: Sequence[str], rules: dict[str, str]) -> str:
    """What follows the first tag of a run."""
    if plan.once or not bodies:
        return _sequence(plan.suffix)
    following = []
    lazy = plan.free_text and not plan.suffix
    for i, body in enumerate(bodies):
        lead = plan.separator + plan.begins[i]
        if lazy and lead and not _MARK.search(lead):
            # Free text could go on with the same characters: it is a tag as soon as it can be.
            rules[f"next_{i}[lazy]"] = _literal(lead)
            following.append(f"next_{i} {body}")
        else:
            following.append(_sequence(lead, body))
    rules["following"] = _choice(following)
    return f"following{_times(plan, 1)} {_sequence(plan.suffix)}"


def _free(plan: TagPlan, bodies: Sequence[str], more: str, rules: dict[str, str]) -> None:
    """Rules for free text with runs in it."""
    texts = [each.text for each in plan.triggers if not _MARK.search(each.text)]
    never = f" & ~(/(?s:.*)/ ({_choice(map(_literal, texts))}) /(?s:.*)/)" if texts else ""
    rules["TEXT"] = f"/(?s:.*)/{never}"
    runs = []
    for n, trigger in enumerate(plan.triggers):
        if not trigger.tags:
            continue
        control = _MARK.search(trigger.text)
        if control:
            before = trigger.text[: control.start()]
            rules[f"BEFORE_{n}"] = f"(/(?s:.*)/ {_sequence(before)}){never}"
            head = f"BEFORE_{n} {_sequence(control[0])}"
        else:
            dead = [each.text for each in plan.triggers if not each.tags and each.text in texts]
            without = f" & ~(/(?s:.*)/ ({_choice(map(_literal, dead))}) /(?s:.*)/)" if dead else ""
            rules[f"HEAD_{n}"] = f"(/(?s:.*)/ {_literal(trigger.text)}){without}"
            rules[f"head_{n}[lazy]"] = f"HEAD_{n}"
            head = f"head_{n}"
        rests = (
            _sequence((plan.prefix + plan.begins[i])[len(trigger.text) :], bodies[i], more)
            for i in trigger.tags
        )
        runs.append(f"{head} ({_choice(rests)})")
    if not runs:
        rules["start"] = "TEXT"
        return
    rules["run"] = _choice(runs)
    if plan.once:
        rules["start"] = "run" if plan.required else "TEXT | run"
    else:
        again = "run" + _times(plan, 1 if plan.required else 0)
        rules["start"] = f"run {again} TEXT" if plan.required else f"{again} TEXT"


def _times(plan: TagPlan, already: int) -> str:
    """How often more may come."""
    return f"{{0,{plan.most - already}}}" if plan.most else "*"


def _choice(texts: Any) -> str:
    return " | ".join(texts)


def _sequence(*pieces: bytes | str) -> str:
    """Marked texts (bytes) and names of rules (str), one after the other."""
    written: list[str] = []
    for piece in pieces:
        if isinstance(piece, str):
            written.append(piece)
        else:
            written += (
                f"<[{each}]>" if isinstance(each, int) else _literal(each) for each in parts(piece)
            )
    return " ".join(written) if any(written) else '""'


def _literal(text: bytes) -> str:
    """An expression of the engine's that matches a text and nothing else."""
    plain = "".join(
        c if c.isascii() and c.isalnum() else f"\\x{{{ord(c):x}}}" for c in text.decode()
    )
    return f"/{plain}/"
