"""Schemas of our own: each keyword, draft, spelling and kind of refusal, with what it takes."""

from __future__ import annotations

from typing import Any, NamedTuple


class Case(NamedTuple):
    """A schema, and values that it takes and does not take."""

    name: str
    schema: Any
    valid: list[Any]
    invalid: list[Any]


class Refused(NamedTuple):
    """A schema that is refused, and where; ``lenient`` if it can be done without the keyword."""

    name: str
    schema: Any
    pointer: str
    keyword: str
    lenient: bool = False


def _uri(draft: str) -> str:
    return f"http://json-schema.org/draft-{draft}/schema#"


D04, D06, D07 = _uri("04"), _uri("06"), _uri("07")
D19, D20 = (f"https://json-schema.org/draft/{each}/schema" for each in ("2019-09", "2020-12"))
_A, _B = {"required": ["a"]}, {"required": ["b"]}
_CLOSED = {"type": "object", "additionalProperties": False}
_OPTIONAL = {**_CLOSED, "properties": {"a": {}, "b": {}, "c": {}}}
_STRINGS = {"type": "array", "items": {"type": "string"}}

VALUES = [
    Case("true", True, [None, 1, {"a": []}], []),
    Case("empty", {}, [None, "x", [1]], []),
    Case("type", {"type": "integer"}, [0, -7, 10**15], [1.5, "1", None, True]),
    Case("types", {"type": ["string", "null"]}, ["", None], [0, [], False]),
    Case("whole floats", {"type": "number"}, [1, 1.5, -0.25, 1e3], ["1", True]),
    Case("boolean", {"type": "boolean"}, [True, False], [0, 1, "true", None]),
    Case("const", {"const": {"a": [1, "x"]}}, [{"a": [1, "x"]}], [{"a": [1]}, {}]),
    Case("const null", {"const": None}, [None], [0, False, ""]),
    Case("enum", {"enum": ["a", 1, None, [2]]}, ["a", 1, None, [2]], ["b", 2, True, []]),
    Case("enum, type", {"type": "string", "enum": ["a", 1]}, ["a"], [1, "b"]),
    Case("C012 enum, not ASCII", {"enum": ["良好", "Ärger", "😀 ok"]}, ["良好", "😀 ok"], ["?"]),
    Case("default", {"type": "string", "default": 3, "examples": [1], "title": "t"}, ["a"], [3]),
]

NUMBERS = [
    Case(
        "C006 bounds",
        {"type": "number", "minimum": -4, "maximum": 4},
        [-4, -3.5, -0.1, 0, 0.25, 4],
        [-4.5, 4.1, 5, -5, "0", 4.0000001],
    ),
    Case("C006 above", {"type": "number", "exclusiveMinimum": 0}, [0.1, 3], [0, -1]),
    Case("C006 from below", {"type": "integer", "minimum": -5}, [-5, -1, 0, 123456], [-6]),
    Case("C006 whole", {"type": "integer", "minimum": 3, "maximum": 120}, [3, 99, 120], [2, 121]),
    Case(
        "exclusive, both",
        {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 4},
        [2, 3],
        [1, 4],
    ),
    Case(
        "exclusive of 04", {"type": "number", "minimum": 1, "exclusiveMinimum": True}, [2, 1.5], [1]
    ),
    Case(
        "not exclusive of 04",
        {"type": "number", "maximum": 1, "exclusiveMaximum": False},
        [1, 0],
        [2],
    ),
    Case("multipleOf", {"type": "integer", "multipleOf": 3}, [0, 3, -9], [1, 4]),
    Case("multipleOf a fraction", {"type": "number", "multipleOf": 0.25}, [1, 0.75, 75.0], [0.3]),
    Case("multipleOf, small", {"type": "number", "multipleOf": 0.01}, [0.07, 4.35], [0.075]),
    Case(
        "multiples, several",
        {"type": "integer", "allOf": [{"multipleOf": 4}, {"multipleOf": 6}]},
        [12, 0],
        [4, 6],
    ),
    Case("bounds speak of numbers", {"minimum": 3}, ["a", None, 4], [2]),
]

STRINGS = [
    Case(
        "lengths",
        {"type": "string", "minLength": 2, "maxLength": 3},
        ["ab", "abc", "😀é"],
        ["a", "abcd", "😀"],
    ),
    Case("lengths speak of strings", {"maxLength": 1}, [12, None, "a"], ["ab"]),
    Case(
        "C010 pattern is searched for",
        {"type": "string", "pattern": r"\S"},
        [" x ", "a", "あ"],
        ["", "   ", 5],
    ),
    Case("C010 anchored", {"type": "string", "pattern": "^dag"}, ["dag-1"], ["a dag"]),
    Case("C010 an end", {"type": "string", "pattern": r"\.json$"}, ["a.json"], ["a.json5"]),
    Case(
        "C010 classes",
        {"type": "string", "pattern": r"^\d{2}\/\w+$"},
        ["12/ab"],
        ["123/ab", "১২/ab", "12/é"],
    ),
    Case("pattern, quotes", {"type": "string", "pattern": '^a"b\\\\c$'}, ['a"b\\c'], ["abc"]),
    Case(
        "pattern, lengths",
        {"type": "string", "pattern": "^a*$", "maxLength": 2},
        ["", "aa"],
        ["aaa", "b"],
    ),
    Case(
        "pattern, look-ahead",
        {"type": "string", "pattern": "^(?!no)[a-z]+$"},
        ["yes", "on"],
        ["no", "nope", "A"],
    ),
    Case(
        "pattern, two",
        {"type": "string", "allOf": [{"pattern": "a"}, {"pattern": "b"}]},
        ["ab", "ba"],
        ["a", "b"],
    ),
    Case("pattern, empty class", {"type": "string", "pattern": "^[^]$"}, ["a", "\n"], ["", "ab"]),
]

OBJECTS = [
    Case(
        "properties",
        {"type": "object", "properties": {"a": {"type": "integer"}}},
        [{}, {"a": 1}, {"b": "x"}],
        [{"a": "x"}, []],
    ),
    Case(
        "properties speak of objects",
        {"properties": {"a": {"type": "integer"}}},
        [3, "x", {"a": 1}],
        [{"a": "x"}],
    ),
    Case("required", {"type": "object", "required": ["b", "a"]}, [{"b": 1, "a": 2}], [{"a": 1}]),
    Case(
        "additionalProperties",
        {"properties": {"a": {}}, "additionalProperties": False},
        [{"a": 1}, {}, 7],
        [{"a": 1, "b": 2}],
    ),
    Case(
        "C005",
        {
            "type": "object",
            "properties": {"lang": {"const": "py"}, "ver": {"const": 3}},
            "required": ["ver", "note"],
            "additionalProperties": {"type": "string"},
        },
        [{"ver": 3, "note": "x"}, {"lang": "py", "ver": 3, "note": "", "k": "v"}],
        [{"ver": 3}, {"ver": 3, "note": 1}, {"ver": 3, "lang": "rust", "note": "x"}],
    ),
    Case(
        "C009",
        {
            "type": "object",
            "properties": {"name": {"type": "string"}, "s_1": {"minimum": 2}},
            "patternProperties": {"^s_": {"type": "integer"}},
            "required": ["name", "s_1"],
            "additionalProperties": False,
        },
        [{"name": "n", "s_1": 2}, {"name": "n", "s_1": 2, "s_9": -4}],
        [
            {"name": "n", "s_1": "x"},
            {"name": "n", "s_1": 1},
            {"name": "n", "s_1": 2, "t": 1},
            {"name": "n", "s_1": 2, "s_9": "q"},
        ],
    ),
    Case(
        "C009 propertyNames",
        {
            "type": "object",
            "propertyNames": {"pattern": "^[a-z]{1,3}$"},
            "additionalProperties": {"type": "integer"},
        },
        [{}, {"abc": 1}],
        [{"abcd": 1}, {"A": 1}, {"a": "x"}],
    ),
    Case(
        "propertyNames, lengths",
        {"type": "object", "propertyNames": {"maxLength": 2}},
        [{"ab": 1}, {}],
        [{"abc": 1}],
    ),
    Case(
        "propertyNames, declared",
        {"properties": {"a": {}, "bcd": {}}, "propertyNames": {"maxLength": 2}, "type": "object"},
        [{"a": 1}],
        [{"bcd": 1}],
    ),
    Case(
        "patterns that overlap",
        {"type": "object", "patternProperties": {"^a": {"type": "integer"}, "b$": {"minimum": 3}}},
        [{"ab": 3}, {"a": 1}, {"b": "x"}],
        [{"ab": 2}, {"ab": "x"}, {"a": "x"}],
    ),
    Case(
        "minProperties alone",
        {"type": "object", "minProperties": 2},
        [{"a": 1, "b": 2}],
        [{"a": 1}],
    ),
    Case(
        "maxProperties alone",
        {"type": "object", "maxProperties": 1},
        [{"a": 1}],
        [{"a": 1, "b": 2}],
    ),
    Case(
        "counts beside optional keys",
        {**_OPTIONAL, "minProperties": 1, "maxProperties": 2},
        [{"a": 1}, {"b": 1, "c": 2}],
        [{}, {"a": 1, "b": 2, "c": 3}],
    ),
    Case(
        "dependentRequired",
        {**_OPTIONAL, "dependentRequired": {"a": ["b"]}},
        [{}, {"b": 1}, {"a": 1, "b": 2}],
        [{"a": 1}, {"a": 1, "c": 2}],
    ),
    Case(
        "dependencies on names",
        {**_OPTIONAL, "dependencies": {"a": ["b", "c"]}},
        [{"b": 1}, {"a": 1, "b": 2, "c": 3}],
        [{"a": 1}, {"a": 1, "b": 2}],
    ),
    Case(
        "dependencies on a name",
        {**_OPTIONAL, "dependencies": {"a": "b"}},
        [{"a": 1, "b": 2}],
        [{"a": 1}],
    ),
    Case(
        "dependencies on a schema",
        {**_OPTIONAL, "dependencies": {"a": {"minProperties": 2}}},
        [{"b": 1}, {"a": 1, "c": 2}],
        [{"a": 1}],
    ),
    Case(
        "dependentSchemas",
        {**_OPTIONAL, "dependentSchemas": {"a": {"properties": {"b": False}}}},
        [{"a": 1}, {"b": 1}],
        [{"a": 1, "b": 2}],
    ),
    Case(
        "unevaluatedProperties",
        {
            "type": "object",
            "properties": {"a": {}},
            "allOf": [{"properties": {"b": {"type": "integer"}}}],
            "unevaluatedProperties": False,
        },
        [{"a": 1, "b": 2}, {}],
        [{"a": 1, "c": 2}, {"b": "x"}],
    ),
    Case(
        "unevaluated, of choices",
        {
            "type": "object",
            "unevaluatedProperties": False,
            "anyOf": [
                {"properties": {"a": {"const": 1}}, "required": ["a"]},
                {"properties": {"b": {"const": 2}}, "required": ["b"]},
            ],
        },
        [{"a": 1}, {"b": 2}, {"a": 1, "b": 2}],
        [{"a": 1, "b": 3}, {"a": 1, "c": 1}],
    ),
]

ARRAYS = [
    Case("items", _STRINGS, [[], ["a", "b"]], [["a", 1], "a"]),
    Case(
        "C008 prefixItems",
        {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
        [[], ["a"], ["a", 1], ["a", 1, True]],
        [[1], ["a", "b"], ["a", 1.5], {}],
    ),
    Case("C008 none", {**_STRINGS, "maxItems": 0}, [[]], [["a"]]),
    Case(
        "C008 one",
        {"type": "array", "prefixItems": [{"type": "string"}], "items": False, "minItems": 1},
        [["a"]],
        [[], ["a", "b"]],
    ),
    Case(
        "C008 two",
        {"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": "boolean"}},
        [[True, False]],
        [[True], [True, True, True]],
    ),
    Case(
        "items, a list",
        {"type": "array", "items": [{"type": "string"}], "additionalItems": {"type": "integer"}},
        [[], ["a", 1, 2]],
        [[1], ["a", "b"]],
    ),
    Case(
        "items, a closed list",
        {"type": "array", "items": [{}, {}], "additionalItems": False},
        [[1], [1, 2]],
        [[1, 2, 3]],
    ),
    Case(
        "additionalItems beside a schema",
        {**_STRINGS, "additionalItems": False},
        [["a", "b"]],
        [[1]],
    ),
    Case(
        "uniqueItems",
        {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
        [[], [1, 2, 3]],
        [[1, 1], [1, 2, 1]],
    ),
    Case(
        "uniqueItems, enum",
        {"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True, "minItems": 2},
        [["a", "b"], ["b", "a"]],
        [["a", "a"], ["a"]],
    ),
    Case(
        "uniqueItems, deep",
        {"type": "array", "uniqueItems": True},
        [[{"a": 1}, {"a": 2}], [[], {}, 0, False]],
        [[{"a": 1}, {"a": 1}], [1, 1.0]],
    ),
    Case("contains", {"type": "array", "contains": {"const": 7}}, [[7], [1, 7]], [[], [1]]),
    Case(
        "contains, counted",
        {"type": "array", "contains": {"type": "string"}, "minContains": 2, "maxContains": 2},
        [["a", 1, "b"]],
        [["a"], ["a", "b", "c"], []],
    ),
    Case(
        "contains, none",
        {"type": "array", "contains": {"const": 1}, "minContains": 0, "maxContains": 1},
        [[], [1], [2]],
        [[1, 1]],
    ),
    Case(
        "unevaluatedItems",
        {
            "type": "array",
            "prefixItems": [{"const": 1}],
            "allOf": [{"prefixItems": [{}, {"const": 2}]}],
            "unevaluatedItems": False,
        },
        [[1], [1, 2]],
        [[1, 2, 3], [2]],
    ),
]

COMBINED = [
    Case(
        "C003",
        {
            "type": "object",
            "properties": {"mode": {"enum": ["auto", "manual"]}, "level": {"type": "integer"}},
            "required": ["mode"],
            "additionalProperties": False,
            "anyOf": [{"required": ["level"]}, {"properties": {"mode": {"const": "auto"}}}],
        },
        [{"mode": "auto"}, {"mode": "manual", "level": 3}, {"mode": "auto", "level": 0}],
        [{"mode": "manual"}, {"mode": "auto", "extra": 1}, {"level": 3}, "auto", 7],
    ),
    Case("allOf", {"allOf": [{"type": "integer"}, {"minimum": 2}]}, [2, 3], [1, "a"]),
    Case(
        "anyOf",
        {"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]},
        [1, "a"],
        ["ab", None],
    ),
    Case("oneOf, apart", {"oneOf": [{"type": "integer"}, {"type": "string"}]}, [1, "a"], [None]),
    Case(
        "oneOf, overlapping",
        {"type": "integer", "oneOf": [{"multipleOf": 2}, {"multipleOf": 3}]},
        [2, 3, 4],
        [6, 5, 0],
    ),
    Case(
        "oneOf, one in another",
        {"oneOf": [{"type": "number"}, {"type": "integer"}]},
        [1.5],
        [1, "a"],
    ),
    Case(
        "oneOf, keys",
        {"type": "object", "oneOf": [_A, _B]},
        [{"a": 1}, {"b": 1}],
        [{}, {"a": 1, "b": 2}],
    ),
    Case(
        "oneOf, told apart",
        {
            "oneOf": [
                {
                    **_CLOSED,
                    "properties": {"k": {"const": "x"}, "n": {"type": "integer"}},
                    "required": ["k", "n"],
                },
                {
                    **_CLOSED,
                    "properties": {"k": {"const": "y"}, "s": {"type": "string"}},
                    "required": ["k", "s"],
                },
            ]
        },
        [{"k": "x", "n": 1}, {"k": "y", "s": "a"}],
        [{"k": "x", "s": "a"}, {"k": "z"}],
    ),
    Case("not a type", {"not": {"type": ["string", "object"]}}, [1, None, []], ["a", {}]),
    Case("not a constant", {"type": "string", "not": {"const": "a"}}, ["", "b", "ab"], ["a"]),
    Case("not a pattern", {"type": "string", "not": {"pattern": "^x"}}, ["a", ""], ["x", "xa"]),
    Case(
        "not required", {"type": "object", "not": {"required": ["a"]}}, [{}, {"b": 1}], [{"a": 1}]
    ),
    Case("not a multiple", {"type": "integer", "not": {"multipleOf": 2}}, [1, 13], [0, 12]),
    Case(
        "if, then, else",
        {
            "type": "object",
            "properties": {"k": {"enum": ["x", "y"]}, "n": {}},
            "required": ["k"],
            "if": {"properties": {"k": {"const": "x"}}},
            "then": {"required": ["n"]},
            "else": {"properties": {"n": False}},
        },
        [{"k": "x", "n": 1}, {"k": "y"}],
        [{"k": "x"}, {"k": "y", "n": 1}],
    ),
    Case("if alone", {"if": {"type": "string"}, "type": "integer"}, [1], ["a"]),
    Case("then without if", {"then": False, "else": False, "type": "integer"}, [1], ["a"]),
]

REFERENCES = [
    Case("$defs", {"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}}, [1], ["a"]),
    Case(
        "definitions",
        {
            "items": {"$ref": "#/definitions/a"},
            "type": "array",
            "definitions": {"a": {"type": "integer"}},
        },
        [[1]],
        [["a"]],
    ),
    Case(
        "beside",
        {"$ref": "#/$defs/a", "minimum": 3, "$defs": {"a": {"type": "integer"}}},
        [3],
        [2, "a"],
    ),
    Case(
        "beside, 07",
        {
            "$schema": D07,
            "properties": {"x": {"$ref": "#/definitions/a", "minimum": 3}},
            "definitions": {"a": {"type": "integer"}},
        },
        [{"x": 2}],
        [{"x": "a"}],
    ),
    Case(
        "into properties",
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/properties/a"}},
        },
        [{"b": 1}],
        [{"b": "x"}],
    ),
    Case(
        "into a list",
        {"type": "array", "prefixItems": [{"type": "integer"}, {"$ref": "#/prefixItems/0"}]},
        [[1, 2]],
        [[1, "a"]],
    ),
    Case(
        "into what is rewritten",
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/not/properties/z"}},
            "not": {"required": ["z"], "properties": {"z": {"type": "integer"}}},
        },
        [{"a": 1}, {"z": "x"}],
        [{"a": "x"}, {"z": 1}],
    ),
    Case("escapes", {"$ref": "#/$defs/a~1b%25~0c", "$defs": {"a/b%~c": {"const": 1}}}, [1], [2]),
    Case("elsewhere", {"$ref": "#/x-parts/p", "x-parts": {"p": {"type": "null"}}}, [None], [1]),
    Case("$anchor", {"$ref": "#here", "$defs": {"a": {"$anchor": "here", "const": 1}}}, [1], [2]),
    Case(
        "$id",
        {
            "$id": "http://x.test/root",
            "$ref": "part",
            "$defs": {"a": {"$id": "/part", "type": "integer"}},
        },
        [1],
        ["a"],
    ),
    Case(
        "$id, a base",
        {
            "$id": "http://x.test/root",
            "$ref": "part#/$defs/b",
            "$defs": {"a": {"$id": "part", "$defs": {"b": {"type": "integer"}}}},
        },
        [1],
        ["a"],
    ),
    Case(
        "id of 04",
        {
            "$schema": D04,
            "id": "http://x.test/root",
            "allOf": [{"$ref": "#part"}],
            "definitions": {"a": {"id": "#part", "type": "integer"}},
        },
        [1],
        ["a"],
    ),
    Case(
        "its own $id",
        {
            "$id": "http://x.test/root",
            "type": "object",
            "properties": {"a": {"$ref": "http://x.test/root#/$defs/n"}},
            "$defs": {"n": {"type": "null"}},
        },
        [{"a": None}],
        [{"a": 1}],
    ),
    Case(
        "$dynamicRef",
        {"$dynamicRef": "#n", "$defs": {"n": {"$dynamicAnchor": "n", "type": "integer"}}},
        [1],
        ["a"],
    ),
    Case(
        "$recursiveRef",
        {"$schema": D19, "type": "object", "additionalProperties": {"$recursiveRef": "#"}},
        [{}, {"a": {"b": {}}}],
        [{"a": 1}],
    ),
    Case(
        "C020",
        {
            "$ref": "#/$defs/Node",
            "$defs": {
                "Node": {
                    **_CLOSED,
                    "properties": {
                        "v": {"type": "integer"},
                        "kids": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
                    },
                    "required": ["v", "kids"],
                }
            },
        },
        [{"v": 1, "kids": []}, {"v": 1, "kids": [{"v": 2, "kids": [{"v": 3, "kids": []}]}]}],
        [{"v": 1}, {"v": 1, "kids": [{"v": 2}]}, {"v": 1, "kids": [1]}],
    ),
    Case("the root", {"type": "array", "items": {"$ref": "#"}}, [[], [[[]]]], [[1], 1]),
    Case(
        "unused definitions",
        {"type": "null", "$defs": {"x": {"$ref": "http://far.test/x"}}},
        [None],
        [1],
    ),
]

DRAFTS = [
    Case("04 knows no if", {"$schema": D04, "type": "integer", "if": {}, "then": False}, [1], []),
    Case("04 knows no contains", {"$schema": D04, "type": "array", "contains": False}, [[1]], []),
    Case(
        "06 knows contains",
        {"$schema": D06, "type": "array", "contains": {"const": 1}},
        [[1]],
        [[]],
    ),
    Case("06 knows no if", {"$schema": D06, "type": "integer", "if": {}, "then": False}, [1], []),
    Case(
        "07 knows if",
        {"$schema": D07, "type": "integer", "if": {"minimum": 5}, "then": {"maximum": 6}},
        [1, 5],
        [7],
    ),
    Case(
        "07 knows no dependentRequired",
        {"$schema": D07, "type": "object", "dependentRequired": {"a": ["b"]}},
        [{"a": 1}],
        [],
    ),
    Case(
        "2019-09",
        {"$schema": D19, "type": "object", "dependentRequired": {"a": ["b"]}},
        [{}, {"a": 1, "b": 2}],
        [{"a": 1}],
    ),
    Case("2020-12", {"$schema": D20, "type": "array", "prefixItems": [{"const": 1}]}, [[1]], [[2]]),
    Case(
        "04, exclusive",
        {"$schema": D04, "type": "integer", "maximum": 3, "exclusiveMaximum": True},
        [2],
        [3],
    ),
]

FORMATS = [
    Case(f"format {name}", {"type": "string", "format": name}, valid, invalid)
    for name, valid, invalid in [
        ("date", ["2024-02-29", "1999-12-31"], ["2023-02-29", "2024-13-01", "2024-1-1", ""]),
        ("time", ["10:00:00Z", "23:59:59.5+02:00"], ["24:00:00Z", "10:00:00", "10:60:00Z"]),
        ("date-time", ["2024-02-29T10:00:00Z"], ["2024-02-30T10:00:00Z", "2024-02-29"]),
        ("duration", ["P1Y2M", "PT5S", "P3W"], ["P", "1D", "P1S", "PT"]),
        ("email", ["a@b.cd", "a.b+c@d.e"], ["a", "a@", "@b", "a b@c.d"]),
        ("hostname", ["a.b-c", "x1"], ["-a", "a-", "a..b", "a_b", "ab--c"]),
        ("idn-hostname", ["münchen.de", "例え.jp", "a-b"], ["-ü", "ü..a", "・", ""]),
        ("idn-email", ["ü@ö.de", "a.b@c"], ["ü", "@ö", "a@-b", "a b@c"]),
        ("ipv4", ["127.0.0.1"], ["256.0.0.1", "1.2.3", "01.2.3.4"]),
        ("ipv6", ["::1", "2001:db8::8a2e:370:7334", "1::2:1.2.3.4"], [":::", "1", "12345::"]),
        ("uri", ["http://a.b/c?d=e#f", "urn:x:y", "http://[::1]:80/"], ["//a", "a b", "x"]),
        ("uri-reference", ["/a/b", "#f", "http://a.b"], ["\\a", "a b"]),
        ("iri", ["http://ä.de/ö"], ["ö", "a b"]),
        ("iri-reference", ["/ö#ü"], ["\\a"]),
        ("uri-template", ["http://a.b/{c}"], ["http://a.b/{c"]),
        ("uuid", ["2eb8aa08-aa98-11ea-b4aa-73b441d16380"], ["2eb8aa08-aa98-11ea-b4aa", ""]),
        ("json-pointer", ["", "/a/b~1c"], ["a", "/~2"]),
        ("relative-json-pointer", ["0#", "1/a"], ["/a", "-1", "01"]),
        ("regex", ["^a+$", "x", "^[a-z_]{3,16}$"], ["(", "a**"]),
        ("host-name", ["a.b-c", "x1"], ["-a", "a..b", "a_b"]),
        ("ip-address", ["127.0.0.1"], ["256.0.0.1", "1.2.3"]),
        (
            "color",
            ["red", "#0aF", "#00aaff", "rgb(1, 2,3)", "rgb(1%,2.5%,3%)"],
            ["", "rouge", "#12"],
        ),
        ("phone", ["+31 42 123 4567", "(0607) 123 4567", "030-123"], ["", "x", "+", "12 a"]),
        ("utc-millisec", ["anything"], []),
        ("x-unknown", ["", "anything"], []),
    ]
] + [
    Case(
        "format, lengths",
        {"type": "string", "format": "email", "maxLength": 6},
        ["a@b.cd"],
        ["ab@cd.ef"],
    ),
    Case(
        "format, pattern",
        {"type": "string", "format": "date", "pattern": "^2"},
        ["2024-01-01"],
        ["1999-01-01"],
    ),
    Case("format speaks of strings", {"format": "date"}, [3, None, "2024-01-01"], ["x"]),
]

CASES = [
    *(*VALUES, *NUMBERS, *STRINGS, *OBJECTS, *ARRAYS, *COMBINED, *REFERENCES, *DRAFTS, *FORMATS)
]

REFUSED = [
    Refused("C001 a type", {"type": "strng"}, "", "type"),
    Refused("C001 properties", {"type": "object", "properties": [1, 2]}, "", "properties"),
    Refused("C001 enum", {"properties": {"a": {"enum": []}}}, "/properties/a", "enum"),
    Refused("C001 items", {"type": "array", "items": "integer"}, "", "items"),
    Refused("C001 a reference", {"items": {"$ref": "#/$defs/Nope"}}, "/items", "$ref"),
    Refused(
        "C001 a pattern", {"allOf": [{"type": "string", "pattern": "([a-z"}]}, "/allOf/0", "pattern"
    ),
    Refused("a name's pattern", {"patternProperties": {"([a": {}}}, "", "patternProperties"),
    Refused(
        "C001 no value",
        {
            "properties": {"q": {"type": "string", "format": "ipv4", "pattern": "^[a-z]$"}},
            "required": ["q"],
            "type": "object",
        },
        "/properties/q",
        "format",
    ),
    Refused(
        "C001 too few values",
        {
            "allOf": [{"required": ["q"]}],
            "type": "object",
            "properties": {
                "q": {
                    "type": "array",
                    "uniqueItems": True,
                    "minItems": 3,
                    "items": {"type": "boolean"},
                }
            },
        },
        "/properties/q",
        "uniqueItems",
    ),
    Refused("C001 a draft", {"$schema": "x", "type": "string"}, "", "$schema"),
    Refused("C001 a const", {"items": {"const": 10**30 + 1}}, "/items", "const"),
    Refused("a list", [1], "", ""),
    Refused("false", False, "", ""),
    Refused(
        "minLength", {"properties": {"a/b": {"minLength": -1}}}, "/properties/a~1b", "minLength"
    ),
    Refused("maxItems", {"maxItems": 1.5}, "", "maxItems"),
    Refused("minimum", {"minimum": "3"}, "", "minimum"),
    Refused("multipleOf", {"multipleOf": 0}, "", "multipleOf"),
    Refused("required", {"required": "a"}, "", "required"),
    Refused("dependentRequired", {"dependentRequired": {"a": "b"}}, "", "dependentRequired"),
    Refused("anyOf", {"anyOf": []}, "", "anyOf"),
    Refused("uniqueItems", {"uniqueItems": 1}, "", "uniqueItems"),
    Refused("format", {"format": 3}, "", "format"),
    Refused("C020 a loop", {"$ref": "#"}, "", "$ref"),
    Refused(
        "C020 a longer loop",
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        "",
        "$ref",
    ),
    Refused(
        "a loop in a union",
        {"items": {"anyOf": [{"type": "null"}, {"$ref": "#/items"}]}},
        "/items/anyOf/1",
        "$ref",
    ),
    Refused("remote", {"items": {"$ref": "http://far.test/x"}}, "/items", "$ref", True),
    Refused("draft-03", {"items": {"extends": {}}}, "/items", "extends", True),
    Refused("draft-03 divisibleBy", {"divisibleBy": 2}, "", "divisibleBy", True),
    Refused(
        "several dynamic anchors",
        {
            "items": {"$dynamicRef": "#n"},
            "$defs": {"a": {"$dynamicAnchor": "n"}, "b": {"$id": "b", "$dynamicAnchor": "n"}},
        },
        "/items",
        "$dynamicRef",
        True,
    ),
]
