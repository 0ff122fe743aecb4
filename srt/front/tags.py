"""Structural tags: the shapes in which clients give them, and the constraint that they mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from sapwood.constrain.spec import StructuralTag, Tag

from ..errors import RequestError
from .held import Held
from .json_text import ABSENT, is_given, schema_text
from .protocol import decode, filled, missing


class Structure(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``begin``, JSON of a schema, ``end``."""

    begin: str
    schema: msgspec.Raw = ABSENT
    end: str


class StructuralTagFields(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A structural tag in either shape: with ``structures`` and ``triggers``, or with a
    ``format``."""

    type: Literal["structural_tag"] = "structural_tag"
    structures: list[Structure] | None = None
    triggers: list[str] | None = None
    format: msgspec.Raw = ABSENT


class _Kind(msgspec.Struct):
    """What says which fields belong to an object."""

    type: str


class _Content(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What is between ``begin`` and ``end``."""

    type: Literal["json_schema"]
    json_schema: msgspec.Raw = ABSENT


class _TagFormat(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One tag."""

    type: Literal["tag"] = "tag"
    begin: str
    content: msgspec.Raw
    end: str


class _TriggeredTags(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Free text with tags in it."""

    type: Literal["triggered_tags"]
    triggers: list[str]
    tags: list[_TagFormat]
    at_least_one: bool = False
    stop_after_first: bool = False


class _TagsWithSeparator(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Tags, and nothing but a separator between them."""

    type: Literal["tags_with_separator"]
    tags: list[_TagFormat]
    separator: str
    at_least_one: bool = False
    stop_after_first: bool = False


class _Given(NamedTuple):
    """A tag in any shape. ``path`` is its own, ``at`` that of its schema."""

    begin: str
    schema: msgspec.Raw
    end: str
    path: str
    at: str


def structural_tag(fields: StructuralTagFields, path: str) -> Held:
    """The constraint that a structural tag means; ``RequestError`` for one that could not be
    written, or that says less than is needed."""
    for name in ("structures", "triggers"):
        given = getattr(fields, name) is not None
        if given == is_given(fields.format):
            if not given:
                raise missing(f"{path}.{name}")
            raise RequestError(
                f"{path}.{name} does not go with {path}.format", param=f"{path}.{name}"
            )
    if is_given(fields.format):
        return _of_format(fields.format, path)
    tags = [
        _Given(each.begin, each.schema, each.end, where, f"{where}.schema")
        for i, each in enumerate(fields.structures or ())
        for where in (f"{path}.structures[{i}]",)
    ]
    return _held(path, f"{path}.structures", tags, fields.triggers, f"{path}.triggers")


def _of_format(raw: msgspec.Raw, whole: str) -> Held:
    """The nested shape: one tag, free text with tags in it, or tags and nothing between them."""
    path = f"{whole}.format"
    kind = _kind(raw, path, ("tag", "triggered_tags", "tags_with_separator"))
    if kind == "tag":
        tags = [_of_tag(decode(bytes(raw), _TagFormat, path), path)]
        return _held(whole, path, tags, at_least_one=True, stop_after_first=True)
    form: _TriggeredTags | _TagsWithSeparator
    if kind == "triggered_tags":
        form = decode(bytes(raw), _TriggeredTags, path)
        triggers, separator = form.triggers, ""
    else:
        form = decode(bytes(raw), _TagsWithSeparator, path)
        triggers, separator = None, form.separator
    return _held(
        whole,
        f"{path}.tags",
        [_of_tag(each, f"{path}.tags[{i}]") for i, each in enumerate(form.tags)],
        triggers,
        f"{path}.triggers",
        separator=separator,
        at_least_one=form.at_least_one,
        stop_after_first=form.stop_after_first,
    )


def _of_tag(form: _TagFormat, path: str) -> _Given:
    at = f"{path}.content"
    _kind(form.content, at, ("json_schema",))
    content = decode(bytes(form.content), _Content, at)
    return _Given(form.begin, content.json_schema, form.end, path, f"{at}.json_schema")


def _kind(raw: msgspec.Raw, path: str, known: Sequence[str]) -> str:
    """The type of an object, which must be one that is known."""
    kind = decode(bytes(raw), _Kind, path).type
    if kind not in known:
        names = ", ".join(f"`{name}`" for name in known)
        raise RequestError(
            f"{path}.type is {kind[:64]!r}; supported: {names}",
            param=f"{path}.type",
            code="unsupported_parameter",
        )
    return kind


def _held(
    path: str,
    tags_at: str,
    tags: Sequence[_Given],
    triggers: Sequence[str] | None = None,
    triggers_at: str = "",
    **options: Any,
) -> Held:
    """``triggers`` ``None``: there is no free text. Else each tag begins with a trigger, and each
    trigger begins a tag."""
    if not tags:
        raise RequestError(f"{tags_at} is empty", param=tags_at)
    for tag in tags:
        filled(tag.begin, f"{tag.path}.begin")
        if not is_given(tag.schema):
            raise missing(tag.at)
    if triggers is not None:
        _check_triggers(tags, triggers, triggers_at)
    made = StructuralTag(
        tags=tuple(
            Tag(begin=tag.begin, schema=schema_text(tag.schema, tag.at), end=tag.end)
            for tag in tags
        ),
        triggers=tuple(triggers or ()),
        free_text=triggers is not None,
        **options,
    )
    return Held(made, path, tags=tuple(tag.at for tag in tags))


def _check_triggers(tags: Sequence[_Given], triggers: Sequence[str], path: str) -> None:
    for i, trigger in enumerate(triggers):
        where = f"{path}[{i}]"
        filled(trigger, where)
        if not any(tag.begin.startswith(trigger) for tag in tags):
            raise RequestError(f"{where}: no tag begins with it", param=where)
    for tag in tags:
        if not tag.begin.startswith(tuple(triggers)):
            raise RequestError(
                f"{tag.path}.begin starts with none of the triggers, so it could never be written",
                param=f"{tag.path}.begin",
            )
