"""The ways to ask for a constraint, and what is wrong with the others."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.constrain.spec import Choice, Grammar, JsonSchema, Regex, StructuralTag, Tag
from sapwood.srt.errors import RequestError
from sapwood.srt.front.bodies import ChatBody, GenerateBody
from sapwood.srt.front.protocol import decode
from tests.fakes.scripted_worker import make_parts

CHAT, COMPLETIONS, GENERATE = "/v1/chat/completions", "/v1/completions", "/generate"
OPENAI = (CHAT, COMPLETIONS)
FIXED = {
    CHAT: {"messages": [{"role": "user", "content": "hi"}]},
    COMPLETIONS: {"prompt": "x"},
    GENERATE: {"text": "x"},
}
SCHEMA = {"type": "object", "properties": {"b": {"const": 1.0}, "a": {"maximum": 10**30}}}
TEXT = '{"type":"object","properties":{"b":{"const":1.0},"a":{"maximum":1' + "0" * 30 + "}}}"
ANY_OBJECT = JsonSchema(schema='{"type":"object"}')
STRUCTURES = [
    {"begin": "<f=a>", "schema": SCHEMA, "end": "</f>"},
    {"begin": "<f=b>", "schema": True, "end": ""},
]
TAGS = {"structures": STRUCTURES, "triggers": ["<f="]}
TAGS_SPEC = StructuralTag(
    tags=(
        Tag(begin="<f=a>", schema=TEXT, end="</f>"),
        Tag(begin="<f=b>", schema="true", end=""),
    ),
    triggers=("<f=",),
)


def ask(post, path, /, **fields):
    """A request; fields of ``/generate`` go into its ``sampling_params``."""
    if path == GENERATE:
        fields = {"sampling_params": fields}
    return post(path, {**FIXED[path], **fields})


def refused(response, param, *words):
    """The message of a 400 of OpenAI's shape, which must name the field and hold the words."""
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    for word in (*([param] if param else []), *words):
        assert word in error["message"]
    return error["message"]


def constraint_of(parts, response):
    assert response.status_code == 200, response.text
    return parts.worker.submits[-1].constraint


def json_schema(schema=SCHEMA, **fields):
    return {"type": "json_schema", "json_schema": {"name": "r", "schema": schema, **fields}}


# What is understood


@pytest.mark.parametrize("path", OPENAI)
@pytest.mark.parametrize(
    ("form", "wanted"),
    [
        (None, None),
        ({"type": "text"}, None),
        ({"type": "json_object"}, ANY_OBJECT),
        (json_schema(), JsonSchema(schema=TEXT)),
        (json_schema(strict=True, description="d"), JsonSchema(schema=TEXT)),
        (json_schema(strict=False), JsonSchema(schema=TEXT)),
        (
            {"type": "json_schema", "json_schema": {"name": "r", "schema": True}},
            JsonSchema(schema="true"),
        ),
        ({"type": "structural_tag", **TAGS}, TAGS_SPEC),
    ],
)
def test_c021_response_formats(parts, post, path, form, wanted):
    response = ask(post, path, response_format=form)
    assert constraint_of(parts, response) == wanted


SHARED = [
    ("json_schema", SCHEMA, JsonSchema(schema=TEXT)),
    ("json_schema", json.dumps(SCHEMA, indent=2), JsonSchema(schema=TEXT)),
    ("regex", "a+", Regex("a+")),
    ("choice", ["yes", "no"], Choice(("yes", "no"))),
    ("ebnf", 'root ::= "x"', Grammar('root ::= "x"')),
    ("grammar", 'root ::= "x"', Grammar('root ::= "x"')),
    ("grammar", {"syntax": "lark", "definition": 'start: "x"'}, Grammar('start: "x"', "lark")),
    ("structural_tag", TAGS, TAGS_SPEC),
    ("structural_tag", {"type": "structural_tag", **TAGS}, TAGS_SPEC),
    ("structural_tag", json.dumps(TAGS), TAGS_SPEC),
]


@pytest.mark.parametrize("path", FIXED)
@pytest.mark.parametrize(("field", "value", "wanted"), SHARED)
def test_fields_of_all_routes(parts, post, path, field, value, wanted):
    assert constraint_of(parts, ask(post, path, **{field: value})) == wanted


@pytest.mark.parametrize("path", OPENAI)
@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"guided_json": SCHEMA}, JsonSchema(schema=TEXT)),
        ({"guided_json": json.dumps(SCHEMA)}, JsonSchema(schema=TEXT)),
        ({"guided_regex": "a+"}, Regex("a+")),
        ({"guided_choice": ["yes", "no"]}, Choice(("yes", "no"))),
        ({"guided_grammar": 'root ::= "x"'}, Grammar('root ::= "x"')),
        ({"structured_outputs": {"json": SCHEMA}}, JsonSchema(schema=TEXT)),
        ({"structured_outputs": {"regex": "a+"}}, Regex("a+")),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, Choice(("yes", "no"))),
        ({"structured_outputs": {"grammar": 'root ::= "x"'}}, Grammar('root ::= "x"')),
        ({"structured_outputs": {"json_object": True}}, ANY_OBJECT),
        ({"structured_outputs": {"structural_tag": json.dumps(TAGS)}}, TAGS_SPEC),
    ],
)
def test_other_servers_names(parts, post, path, fields, wanted):
    assert constraint_of(parts, ask(post, path, **fields)) == wanted


def test_one_constraint_for_all_choices_and_prompts(parts, post):
    post(COMPLETIONS, {"prompt": ["x", "y"], "n": 2, "regex": "a+", "on_budget": "cut"})
    assert [submit.constraint for submit in parts.worker.submits] == [Regex("a+")] * 4
    assert {submit.on_budget for submit in parts.worker.submits} == {"cut"}


def test_a_constraint_for_each_prompt_of_a_list(parts, post):
    given = [{"regex": "a+"}, {}, {"json_schema": {}, "whitespace": 2}]
    post(GENERATE, {"text": ["x", "y", "z"], "sampling_params": given})
    wanted = [Regex("a+"), None, JsonSchema(schema="{}", whitespace=2)]
    assert [submit.constraint for submit in parts.worker.submits] == wanted
    refused(
        post(GENERATE, {"text": ["x", "y"], "sampling_params": [{}, {"regex": ""}]}),
        "sampling_params[1].regex",
    )


@pytest.mark.parametrize("path", FIXED)
def test_c015_options(parts, post, path):
    fields = {"json_schema": "{}", "lenient": True, "whitespace": 16, "on_budget": "cut"}
    wanted = JsonSchema(schema="{}", lenient=True, whitespace=16)
    assert constraint_of(parts, ask(post, path, **fields)) == wanted
    assert parts.worker.submits[-1].on_budget == "cut"
    plain = constraint_of(parts, ask(post, path, json_schema="{}"))
    assert plain == JsonSchema(schema="{}", lenient=False, whitespace=0)
    assert parts.worker.submits[-1].on_budget == "close"
    assert constraint_of(parts, ask(post, path, structural_tag=TAGS, lenient=True)).lenient
    # What happens anyway may be asked for without any constraint.
    response = ask(post, path, lenient=False, whitespace=0, on_budget="close")
    assert constraint_of(parts, response) is None


# C021: what is not understood


@pytest.mark.parametrize("path", OPENAI)
@pytest.mark.parametrize(
    ("form", "param", "word"),
    [
        ({"type": "json_schema", "schema": SCHEMA}, ".schema", "json_schema.schema"),
        ({"type": "json_schema", **json_schema()["json_schema"]}, ".name", "unknown"),
        ({"type": "json_schema"}, ".json_schema", "missing"),
        ({"type": "json_schema", "json_schema": None}, ".json_schema", "missing"),
        ({"type": "json_schema", "json_schema": {"name": "r"}}, ".json_schema.schema", "missing"),
        ({"type": "json_schema", "json_schema": {"schema": {}}}, ".json_schema.name", "missing"),
        (json_schema(name=""), ".json_schema.name", "1 to 64"),
        (json_schema(name="a b"), ".json_schema.name", "letters"),
        (json_schema(name="a" * 65), ".json_schema.name", "1 to 64"),
        (json_schema(name=5), ".json_schema.name", "`str`"),
        (json_schema(name=None), ".json_schema.name", "`str`"),
        (json_schema(strict="yes"), ".json_schema.strict", "`bool`"),
        (json_schema(extra=1), ".json_schema.extra", "unknown"),
        (json_schema(json.dumps(SCHEMA)), ".json_schema.schema", "string"),
        (json_schema([1, 2]), ".json_schema.schema", "list"),
        (json_schema(5), ".json_schema.schema", "object"),
        (json_schema(None), ".json_schema.schema", "missing"),
        ({"type": "json_schema", "json_schema": SCHEMA}, ".json_schema.type", "unknown"),
        ({"type": "json_schema", "json_schema": "x"}, ".json_schema", "object"),
        ({**json_schema(), "type": "json_object"}, ".json_schema", "`json_schema`"),
        ({**json_schema(), "type": "text"}, ".json_schema", "`json_schema`"),
        ({"type": "text", "triggers": ["x"]}, ".triggers", "`structural_tag`"),
        ({"type": "yaml"}, ".type", "`json_object`"),
        ({"type": "JSON_SCHEMA"}, ".type", "`json_schema`"),
        ({"type": None}, ".type", "`str`"),
        ({"type": 5}, ".type", "`str`"),
        ({}, ".type", "missing"),
        ("json_object", "", "object"),
        ([], "", "object"),
        (True, "", "object"),
        ({"type": "structural_tag"}, ".structures", "missing"),
        ({"type": "structural_tag", "structures": STRUCTURES}, ".triggers", "missing"),
        ({"type": "structural_tag", "format": {"type": "tag"}}, ".format.begin", "missing"),
        ({"type": "structural_tag", "format": {"type": "or"}}, ".format.type", "`triggered_tags`"),
        ({"type": "structural_tag", "format": {}}, ".format.type", "missing"),
        ({"type": "structural_tag", "format": "x"}, ".format", "object"),
        ({"type": "structural_tag", **TAGS, "format": {}}, ".structures", "format"),
        ({"type": "text", "format": {}}, ".format", "`structural_tag`"),
        ({"type": "structural_tag", **TAGS, "structures": []}, ".structures", "empty"),
        ({"type": "structural_tag", **TAGS, "triggers": []}, ".structures[0].begin", "trigger"),
        ({"type": "structural_tag", **TAGS, "triggers": [""]}, ".triggers[0]", "empty"),
        ({"type": "structural_tag", **TAGS, "triggers": ["<f=", "<g"]}, ".triggers[1]", "begin"),
        ({"type": "structural_tag", **TAGS, "triggers": "<f="}, ".triggers", "array"),
    ],
)
def test_c021_wrong_shapes(parts, post, path, form, param, word):
    refused(ask(post, path, response_format=form), f"response_format{param}", word)
    assert not parts.worker.submits


def tag(begin, **content):
    content = content or {"type": "json_schema", "json_schema": SCHEMA}
    return {"type": "tag", "begin": begin, "content": content, "end": "</f>"}


SPEC = Tag(begin="<f=a>", schema=TEXT, end="</f>")


@pytest.mark.parametrize(
    ("form", "wanted"),
    [
        (
            tag("<f=a>"),
            StructuralTag(
                tags=(SPEC,), triggers=(), free_text=False, at_least_one=True, stop_after_first=True
            ),
        ),
        (
            {"type": "triggered_tags", "triggers": ["<f"], "tags": [tag("<f=a>")]},
            StructuralTag(tags=(SPEC,), triggers=("<f",)),
        ),
        (
            {
                "type": "triggered_tags",
                "triggers": ["<f"],
                "tags": [tag("<f=a>")],
                "at_least_one": True,
                "stop_after_first": True,
            },
            StructuralTag(tags=(SPEC,), triggers=("<f",), at_least_one=True, stop_after_first=True),
        ),
        (
            {
                "type": "tags_with_separator",
                "tags": [tag("<f=a>")],
                "separator": ",",
                "at_least_one": True,
            },
            StructuralTag(
                tags=(SPEC,), triggers=(), free_text=False, separator=",", at_least_one=True
            ),
        ),
    ],
)
def test_nested_structural_tags(parts, post, form, wanted):
    given = {"type": "structural_tag", "format": form}
    assert constraint_of(parts, ask(post, CHAT, response_format=given)) == wanted
    assert constraint_of(parts, ask(post, GENERATE, structural_tag=json.dumps(given))) == wanted


@pytest.mark.parametrize(
    ("form", "param"),
    [
        (tag(""), ".begin"),
        (tag("<f", type="any_text"), ".content.type"),
        (tag("<f", type="regex", pattern="a"), ".content.type"),
        (tag("<f", type="json_schema"), ".content.json_schema"),
        (tag("<f", type="json_schema", json_schema="{}"), ".content.json_schema"),
        (tag("<f", type="json_schema", json_schema={}, x=1), ".content.x"),
        ({"type": "triggered_tags", "triggers": ["<f"], "tags": []}, ".tags"),
        ({"type": "triggered_tags", "triggers": ["<g"], "tags": [tag("<f")]}, ".triggers[0]"),
        ({"type": "triggered_tags", "triggers": [], "tags": [tag("<f")]}, ".tags[0].begin"),
        ({"type": "triggered_tags", "tags": [tag("<f")]}, ".triggers"),
        ({"type": "tags_with_separator", "tags": [tag("<f")]}, ".separator"),
        ({"type": "tags_with_separator", "tags": [tag("<f"), 5], "separator": ""}, ".tags[1]"),
    ],
)
def test_wrong_nested_structural_tags(parts, post, form, param):
    given = {"type": "structural_tag", "format": form}
    refused(ask(post, CHAT, response_format=given), f"response_format.format{param}")
    assert not parts.worker.submits


@pytest.mark.parametrize(
    ("structure", "param"),
    [
        ({"begin": "", "schema": {}, "end": ""}, ".begin"),
        ({"begin": "<g", "schema": {}, "end": ""}, ".begin"),
        ({"begin": "<f", "end": ""}, ".schema"),
        ({"begin": "<f", "schema": None, "end": ""}, ".schema"),
        ({"begin": "<f", "schema": "{}", "end": ""}, ".schema"),
        ({"begin": "<f", "schema": {}}, ".end"),
        ({"begin": "<f", "schema": {}, "end": "", "x": 1}, ".x"),
        ({"schema": {}, "end": ""}, ".begin"),
        ("<f", ""),
    ],
)
@pytest.mark.parametrize("quoted", [True, False])
def test_wrong_structures(parts, post, structure, param, quoted):
    tags = {"structures": [{"begin": "<f", "schema": {}, "end": ""}, structure]}
    tags["triggers"] = ["<f"]
    given = json.dumps(tags) if quoted else tags
    path = "sampling_params.structural_tag.structures[1]" + param
    refused(ask(post, GENERATE, structural_tag=given), path)
    assert not parts.worker.submits


DEEP = "[" * 400 + "]" * 400


@pytest.mark.parametrize("path", FIXED)
@pytest.mark.parametrize(
    ("fields", "param", "word"),
    [
        ({"json_schema": ""}, "json_schema", "JSON"),
        ({"json_schema": "{'type': 'object'}"}, "json_schema", "JSON"),
        ({"json_schema": '"{}"'}, "json_schema", "string"),
        ({"json_schema": [1]}, "json_schema", "list"),
        ({"json_schema": 5}, "json_schema", "object"),
        ({"json_schema": '{"enum": [NaN]}'}, "json_schema", "JSON"),
        ({"json_schema": '{"maximum": 1e999}'}, "json_schema", "JSON"),
        ({"json_schema": '{"const": "\\ud800"}'}, "json_schema", "JSON"),
        ({"json_schema": '{"type": "null", "type": "string"}'}, "json_schema", "'type'"),
        ({"json_schema": '{"maximum": ' + "9" * 5000 + "}"}, "json_schema", "out of range"),
        ({"json_schema": '{"enum": ' + DEEP + "}"}, "json_schema", "256"),
        ({"json_schema": '{"enum": ' + DEEP * 100 + "}"}, "json_schema", "JSON"),
        ({"json_schema": '{"title": "' + "x" * 10**6 + '"}'}, "json_schema", "1000000"),
        ({"regex": ""}, "regex", "empty"),
        ({"regex": 5}, "regex", "`str`"),
        ({"choice": []}, "choice", "empty"),
        ({"choice": "yes"}, "choice", "array"),
        ({"choice": [1]}, "choice[0]", "`str`"),
        ({"choice": [None]}, "choice[0]", "`str`"),
        ({"ebnf": ""}, "ebnf", "empty"),
        ({"ebnf": {"syntax": "ebnf", "definition": "x"}}, "ebnf", "`str`"),
        ({"grammar": ""}, "grammar", "empty"),
        ({"grammar": {"syntax": "lark", "definition": ""}}, "grammar.definition", "empty"),
        ({"grammar": {"syntax": "yacc", "definition": "x"}}, "grammar.syntax", "`lark`"),
        ({"grammar": {"definition": "x"}}, "grammar.syntax", "missing"),
        ({"structural_tag": "x"}, "structural_tag", "JSON"),
        ({"structural_tag": []}, "structural_tag", "object"),
        ({"structural_tag": {"type": "x", **TAGS}}, "structural_tag.type", "`structural_tag`"),
        ({"structural_tag": '{"triggers": []}'}, "structural_tag.structures", "missing"),
        ({"regex": "a", "choice": ["a"]}, "choice", "regex"),
        ({"json_schema": {}, "structural_tag": TAGS}, "structural_tag", "json_schema"),
        ({"lenient": True}, "lenient", "JSON schema"),
        ({"whitespace": 1}, "whitespace", "JSON schema"),
        ({"on_budget": "cut"}, "on_budget", "constraint"),
        ({"regex": "a", "lenient": True}, "lenient", "JSON schema"),
        ({"regex": "a", "whitespace": 1}, "whitespace", "JSON schema"),
        ({"structural_tag": TAGS, "whitespace": 1}, "whitespace", "JSON schema"),
        ({"json_schema": {}, "whitespace": 17}, "whitespace", "16"),
        ({"json_schema": {}, "whitespace": -1}, "whitespace", "16"),
        ({"json_schema": {}, "whitespace": 1.5}, "whitespace", "`int`"),
        ({"json_schema": {}, "whitespace": True}, "whitespace", "`int`"),
        ({"json_schema": {}, "lenient": 1}, "lenient", "`bool`"),
        ({"json_schema": {}, "on_budget": "drop"}, "on_budget", "`cut`"),
    ],
)
def test_c001_c021_wrong_fields(parts, post, path, fields, param, word):
    prefix = "sampling_params." if path == GENERATE else ""
    refused(ask(post, path, **fields), prefix + param, word)
    assert not parts.worker.submits
    assert ask(post, path).status_code == 200


@pytest.mark.parametrize("path", OPENAI)
@pytest.mark.parametrize(
    ("fields", "param", "word"),
    [
        ({"guided_json": "x"}, "guided_json", "JSON"),
        ({"guided_regex": ""}, "guided_regex", "empty"),
        ({"guided_choice": []}, "guided_choice", "empty"),
        ({"guided_grammar": 5}, "guided_grammar", "`str"),
        ({"guided_whitespace_pattern": " "}, "guided_whitespace_pattern", "whitespace"),
        ({"structured_outputs": {}}, "structured_outputs", "exactly one"),
        ({"structured_outputs": {"json_object": False}}, "structured_outputs", "exactly one"),
        (
            {"structured_outputs": {"json": {}, "regex": "a"}},
            "structured_outputs",
            "structured_outputs.json and structured_outputs.regex",
        ),
        ({"structured_outputs": {"yaml": 1}}, "structured_outputs.yaml", "unknown"),
        ({"structured_outputs": {"regex": ""}}, "structured_outputs.regex", "empty"),
        ({"schema": {}}, "schema", "response_format.json_schema.schema"),
    ],
)
def test_c021_other_servers_names_in_wrong_shapes(parts, post, path, fields, param, word):
    refused(ask(post, path, **fields), param, word)
    assert not parts.worker.submits


@pytest.mark.parametrize("path", OPENAI)
@pytest.mark.parametrize("first", ["json_schema", "regex", "guided_json", "structured_outputs"])
def test_c021_two_constraints_are_refused_by_their_names(parts, post, path, first):
    values = {"structured_outputs": {"regex": "a"}, "regex": "a"}
    message = refused(
        ask(post, path, response_format={"type": "json_object"}, **{first: values.get(first, {})}),
        "structured_outputs.regex" if first == "structured_outputs" else "response_format",
    )
    assert first in message
    assert "response_format" in message
    assert not parts.worker.submits


def test_text_is_no_constraint(parts, post):
    response = ask(post, CHAT, response_format={"type": "text"}, regex="a")
    assert constraint_of(parts, response) == Regex("a")


def test_deep_bodies_are_a_400(post):
    body = b'{"prompt": "x", "json_schema": ' + b"[" * 10**5 + b"]" * 10**5 + b"}"
    response = post(COMPLETIONS, content=body)
    assert response.status_code == 400
    assert "deep" in response.json()["error"]["message"]


def test_broken_utf8_in_a_schema_is_a_400(post):
    body = b'{"prompt": "x", "json_schema": {"const": "\xff"}}'
    refused(post(COMPLETIONS, content=body), "json_schema", "JSON")


def test_schemas_keep_their_order_and_their_numbers(parts, post):
    text = '{"properties":{"z":{"const":1.0},"a":{"const":1},"m":{"maximum":1e2}},"x":"\\u00e9"}'
    body = b'{"prompt": "x", "json_schema": ' + text.encode() + b"}"
    assert post(COMPLETIONS, content=body).status_code == 200
    quoted = {"prompt": "x", "json_schema": text.replace(":", ": ")}
    assert post(COMPLETIONS, quoted).status_code == 200
    first, second = parts.worker.submits
    assert first.constraint == second.constraint == JsonSchema(schema=text)
    assert msgspec.json.decode(first.constraint.schema) == json.loads(text)


def test_c001_a_large_schema_for_many_samples_is_refused(parts, post):
    large = {"title": "x" * 900_000}
    body = {"prompt": ["x"] * 4, "json_schema": large}
    refused(post(COMPLETIONS, {**body, "n": 10}), "json_schema", "32000000")
    each = {"text": ["x"] * 40, "sampling_params": {"json_schema": large}}
    refused(post(GENERATE, each), "sampling_params.json_schema", "fewer samples")
    assert not parts.worker.submits
    assert post(COMPLETIONS, body).status_code == 200


NAMES = (
    "type", "json_schema", "name", "schema", "strict", "structures", "triggers", "format", "begin",
    "end", "tags", "content", "json", "regex", "choice", "grammar", "syntax", "definition",
)  # fmt: skip
WORDS = (
    "text",
    "json_object",
    "json_schema",
    "structural_tag",
    "tag",
    "triggered_tags",
    "lark",
    "",
)
LEAVES = st.sampled_from(WORDS) | st.none() | st.booleans() | st.integers() | st.text(max_size=3)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5)
    ),
    max_leaves=12,
)
FIELDS = (
    "response_format", "structured_outputs", "json_schema", "regex", "choice", "ebnf", "grammar",
    "structural_tag", "guided_json", "guided_grammar", "lenient", "whitespace", "on_budget",
)  # fmt: skip
NATIVE = tuple(name for name in FIELDS[2:] if not name.startswith("guided"))
INTAKE = make_parts().front.intake


def read(work, body, kind):
    """What a request is held to, or its refusal."""
    try:
        return work(decode(json.dumps(body).encode(), kind)).prompts[0].held
    except RequestError as error:
        return error


@given(st.dictionaries(st.sampled_from(FIELDS), VALUES, min_size=1, max_size=2))
@settings(max_examples=400, deadline=None)
def test_c021_any_json_is_understood_or_refused(fields):
    """Never a fault of ours, never ignored, and never refused without the name of a field."""
    found = read(INTAKE.chat, {**FIXED[CHAT], **fields}, ChatBody)
    quiet = ({"type": "text"}, None, False, 0, "close")
    if isinstance(found, RequestError):
        assert found.status == 400
        assert found.param.split(".")[0].split("[")[0] in fields
    elif found is None:
        assert all(value in quiet for value in fields.values())
    native = {name: value for name, value in fields.items() if name in NATIVE}
    found = read(INTAKE.generate, {"text": "x", "sampling_params": native}, GenerateBody)
    if isinstance(found, RequestError):
        assert found.status == 400
        assert found.param.startswith("sampling_params.")
    elif found is None:
        assert all(value in quiet for value in native.values())
