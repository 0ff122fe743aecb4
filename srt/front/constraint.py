"""From the many ways to ask for a constraint to the one that travels."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec

from sapwood.constrain.spec import (
    Choice,
    Grammar,
    JsonSchema,
    Regex,
    StructuralTag,
)

from ..errors import RequestError
from .constraint_fields import (
    ConstraintFields,
    GrammarDefinition,
    GrammarField,
    JsonSchemaFormat,
    OpenAIConstraintFields,
    ResponseFormat,
    StructuredOutputs,
)
from .held import Held
from .json_text import is_given, object_text, schema_text
from .protocol import decode, filled, missing
from .tags import StructuralTagFields, structural_tag

MAX_WHITESPACE = 16
"""Most blanks and newlines that a request may allow between the parts of JSON."""

ANY_OBJECT = JsonSchema(schema='{"type":"object"}')
"""What ``json_object`` means."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FORMATS: dict[str, tuple[str, ...]] = {
    "text": (),
    "json_object": (),
    "json_schema": ("json_schema",),
    "structural_tag": ("structures", "triggers", "format"),
}


class _Found(NamedTuple):
    """A constraint that was given, before it is read."""

    path: str
    read: Callable[[], Held]


def held(fields: ConstraintFields, prefix: str = "") -> Held | None:
    """The constraint that a request gives, if it gives one. ``prefix`` leads the fields' names.

    ``RequestError`` for one of the wrong shape, for two, and for options without one.
    """
    return with_options(given(fields, prefix), fields, prefix)


def given(fields: ConstraintFields, prefix: str = "") -> Held | None:
    """The same without its options, for what is put together with others first."""
    found = [*_own(fields, prefix), *_openai(fields)]
    if len(found) > 1:
        raise RequestError(
            f"{found[0].path} and {found[1].path} both constrain the output; give one of them",
            param=found[1].path,
        )
    return found[0].read() if found else None


def _own(fields: ConstraintFields, prefix: str) -> Iterator[_Found]:
    return _given(fields, _FIELDS, prefix)


def _openai(fields: ConstraintFields) -> Iterator[_Found]:
    if not isinstance(fields, OpenAIConstraintFields):
        return
    yield from _given(fields, _GUIDED, "")
    form = fields.response_format
    if form is not None:
        _check_format(form)
        if form.type != "text":
            yield _Found("response_format", partial(_response_format, form))
    outputs = fields.structured_outputs
    if outputs is not None:
        yield _structured(outputs)


def _given(
    fields: msgspec.Struct, readers: Mapping[str, Callable[[Any, str], Held]], prefix: str
) -> Iterator[_Found]:
    for name, read in readers.items():
        value = getattr(fields, name)
        if _is_set(value):
            yield _Found(prefix + name, partial(read, value, prefix + name))


def _is_set(value: Any) -> bool:
    return is_given(value) if isinstance(value, msgspec.Raw) else value is not None


def _structured(outputs: StructuredOutputs) -> _Found:
    """The one constraint of vLLM's field."""
    path = "structured_outputs"
    found = list(_given(outputs, _STRUCTURED, f"{path}."))
    if outputs.json_object:
        found.append(_Found(f"{path}.json_object", partial(Held, ANY_OBJECT, path)))
    if len(found) != 1:
        names = " and ".join(each.path for each in found) or "nothing"
        raise RequestError(
            f"{path} must hold exactly one constraint, and holds {names}", param=path
        )
    return found[0]


def _check_format(form: ResponseFormat) -> None:
    """A response format must have the fields of its type, and no others."""
    path = "response_format"
    if form.type not in _FORMATS:
        known = ", ".join(f"`{name}`" for name in _FORMATS)
        raise RequestError(
            f"{path}.type is {form.type[:64]!r}; it must be one of {known}", param=f"{path}.type"
        )
    for kind, names in _FORMATS.items():
        for name in names:
            if kind != form.type and _is_set(getattr(form, name)):
                raise RequestError(
                    f"{path}.{name} goes with the type `{kind}`, and not with `{form.type}`",
                    param=f"{path}.{name}",
                )


def _response_format(form: ResponseFormat) -> Held:
    path = "response_format"
    if form.type == "json_schema":
        if form.json_schema is None:
            raise missing(f"{path}.json_schema")
        return _json_schema_format(form.json_schema, f"{path}.json_schema")
    if form.type == "structural_tag":
        fields = StructuralTagFields(
            structures=form.structures, triggers=form.triggers, format=form.format
        )
        return structural_tag(fields, path)
    return Held(ANY_OBJECT, path)


def _json_schema_format(form: JsonSchemaFormat, path: str) -> Held:
    if not _NAME.fullmatch(form.name):
        raise RequestError(
            f"{path}.name is {form.name[:80]!r}; it must have 1 to 64 letters, digits, `_` or `-`",
            param=f"{path}.name",
        )
    if not is_given(form.schema):
        raise missing(f"{path}.schema")
    return Held(JsonSchema(schema=schema_text(form.schema, f"{path}.schema")), f"{path}.schema")


def _schema(raw: msgspec.Raw, path: str) -> Held:
    return Held(JsonSchema(schema=schema_text(raw, path, quoted=True)), path)


def _regex(pattern: str, path: str) -> Held:
    return Held(Regex(filled(pattern, path)), path)


def _choice(options: list[str], path: str) -> Held:
    if not options:
        raise RequestError(f"{path} is empty; it must list one text or more", param=path)
    return Held(Choice(tuple(options)), path)


def _grammar(given: GrammarField, path: str) -> Held:
    if isinstance(given, GrammarDefinition):
        inner = f"{path}.definition"
        return Held(Grammar(filled(given.definition, inner), given.syntax), inner)
    return Held(Grammar(filled(given, path)), path)


def _tag(raw: msgspec.Raw, path: str) -> Held:
    return structural_tag(decode(object_text(raw, path).encode(), StructuralTagFields, path), path)


def with_options(given: Held | None, fields: ConstraintFields, prefix: str = "") -> Held | None:
    """The constraint with its options. Those that ask for what happens anyway go with anything."""
    whitespace = fields.whitespace or 0
    if not 0 <= whitespace <= MAX_WHITESPACE:
        raise RequestError(
            f"{prefix}whitespace is {whitespace}; it must be in [0, {MAX_WHITESPACE}]",
            param=f"{prefix}whitespace",
        )
    on_budget = fields.on_budget or "close"
    if given is None:
        _refuse_option(prefix, "on_budget", on_budget == "cut", "a constraint")
    kept = None if given is None else given.constraint
    if isinstance(kept, JsonSchema):
        kept = msgspec.structs.replace(kept, lenient=bool(fields.lenient), whitespace=whitespace)
    else:
        _refuse_option(prefix, "whitespace", whitespace > 0, "a JSON schema")
        if isinstance(kept, StructuralTag):
            kept = msgspec.structs.replace(kept, lenient=bool(fields.lenient))
        else:
            _refuse_option(prefix, "lenient", bool(fields.lenient), "a JSON schema")
    if given is None or kept is None:
        return None
    return given._replace(constraint=kept, on_budget=on_budget)


def _refuse_option(prefix: str, name: str, given: bool, wanted: str) -> None:
    if given:
        raise RequestError(
            f"{prefix}{name} goes with {wanted}, and the request has none", param=f"{prefix}{name}"
        )


_FIELDS: dict[str, Callable[[Any, str], Held]] = {
    "json_schema": _schema,
    "regex": _regex,
    "choice": _choice,
    "ebnf": _grammar,
    "grammar": _grammar,
    "structural_tag": _tag,
}
_GUIDED: dict[str, Callable[[Any, str], Held]] = {
    "guided_json": _schema,
    "guided_regex": _regex,
    "guided_choice": _choice,
    "guided_grammar": _grammar,
}
_STRUCTURED: dict[str, Callable[[Any, str], Held]] = {
    "json": _schema,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
    "structural_tag": _tag,
}
