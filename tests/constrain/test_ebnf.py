"""GBNF: what is read, what is refused and where, and texts that begin and end as a grammar says."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sapwood.constrain.compile import Compiled, ConstraintCompiler
from sapwood.constrain.matcher import Matcher
from sapwood.constrain.refusal import Refusal
from sapwood.constrain.spec import Grammar
from sapwood.constrain.vocabulary import Vocabulary

EOS, SPECIAL = 256, 257
VOCABULARY = Vocabulary(
    (*(bytes([b]) for b in range(256)), b"<eos>", b"<|tool|>", b"ab", b"\xc3\xa9", b'": '),
    frozenset({EOS}),
    frozenset({EOS, SPECIAL}),
)
COMPILER = ConstraintCompiler(VOCABULARY, lambda text: list(text.encode()))

JSON = r"""
# A small grammar of JSON.
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""


def grammar(text: str) -> Compiled:
    return COMPILER.compile(Grammar(text))


def mask(matcher: Matcher) -> set[int]:
    row = np.full((VOCABULARY.size + 31) // 32, -1, np.int32)
    matcher.fill(row)
    return {int(t) for t in np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))}


def accepts(compiled: Compiled, text: str | bytes) -> bool:
    matcher = compiled.matcher()
    for token in text.encode() if isinstance(text, str) else text:
        if token not in mask(matcher):
            return False
        matcher.consume([token])
    return EOS in mask(matcher)


def closes(matcher: Matcher) -> list[int]:
    fork, tokens = matcher.fork(), matcher.completion()
    assert tokens
    assert tokens[-1] == EOS
    for n, token in enumerate(tokens):
        assert fork.advance(token, len(tokens) - n - 1) == "ok"
    return tokens


@pytest.mark.parametrize(
    ("text", "right", "wrong"),
    [
        ('root ::= "{" [a-z]+ "}"', ["{ab}"], ["{}", "{A}", "{ab"]),
        ('root ::= "{" "}"', ["{}"], ["{", "{}}"]),
        ('root ::= "a" "bc" | "ab" "d"', ["abc", "abd"], ["ab", "abcd"]),
        ('root ::= [a-z]* "abc"', ["abc", "abcabc", "xabc"], ["ab", "abcx"]),
        ('root ::= x | "b"\nx ::= "a" x | "c"', ["c", "aac", "b"], ["a", ""]),
        ("root ::= [^a-c\\n\\]-]+", ["d\\^é🙂", "\\x"], ["a", "]", "-", "\n", ""]),
        ("root ::= .{2}", ["é\n", "🙂x"], ["a", "abc"]),
        ('root ::= "\\x41\\u00e9\\U0001F600\\"\\\\\\t"', ['Aé😀"\\\t'], ["A"]),
        ('root ::= "a"{2} "b"{0,2} "c"{1,}', ["aac", "aabbcc"], ["ac", "aabbbc"]),
        ('root ::= ("a" | "b"\n | "c")+ # end\n\n', ["abc"], ["", "d"]),
        ('root ::= "a"\n  | "b"\n  | x-1\nx-1 ::= "c"', ["a", "b", "c"], ["ab"]),
        ('root ::= ""', [""], ["a"]),
        ("root ::=", [""], ["a"]),
        ('root ::= "a" "b"?*', ["a", "abb"], ["b"]),
        ('root ::= "a>"', ["a>"], ["a"]),
        ('unused ::= missing-not\nmissing-not ::= "x"\nroot ::= "a"', ["a"], ["x"]),
        ('root ::= "<|tool|>"', ["<|tool|>"], ["<"]),
        ('root ::= "是" | [α-ω]', ["是", "λ"], ["a"]),
    ],
)
def test_texts(text: str, right: list[str], wrong: list[str]) -> None:
    """C023, C025, C026, C029."""
    compiled = grammar(text)
    for each in right:
        assert accepts(compiled, each), each
        matcher = compiled.matcher()
        for token in each.encode():
            closes(matcher)
            assert matcher.advance(token, 1000) == "ok"
        closes(matcher)
    for each in wrong:
        assert not accepts(compiled, each), each
    assert SPECIAL not in mask(compiled.matcher())


@pytest.mark.parametrize(
    ("text", "right", "wrong"),
    [
        ('root ::= root "a" | "b"', ["b", "baa"], ["a", "ab"]),
        ('root ::= e\ne ::= e "+" e | [0-9]', ["1", "1+2+3"], ["+", "1+", "12"]),
        ('root ::= ("a"*)*', ["", "aaa"], ["b"]),
        ('root ::= ("")+ "x"', ["x"], ["", "xx"]),
        ('root ::= (("a" | "")* | "b"?)+ "c"', ["c", "aabc", "abac"], ["ca"]),
        ('root ::= root | "a"', ["a"], ["aa"]),
        ('root ::= x root "a" | "b"\nx ::= "" | "c"', ["b", "cba", "ba"], ["a"]),
        ('root ::= x "a" | "b"\nx ::= root "c" | "d"', ["b", "da", "bca"], ["c"]),
    ],
)
def test_left_recursion_and_loops_of_nothing(text: str, right: list[str], wrong: list[str]) -> None:
    """C027."""
    compiled = grammar(text)
    for each in right:
        assert accepts(compiled, each), each
    for each in wrong:
        assert not accepts(compiled, each), each


@pytest.mark.parametrize(
    ("text", "place", "word"),
    [
        ('Root ::= "a"', "", "no rule named 'root'"),
        ("", "", "no rule named 'root'"),
        ("# nothing", "", "no rule named 'root'"),
        ("root ::= missing", "line 1, column 10", "no rule named 'missing'"),
        ('root := "a"', "line 1, column 6", "'::=' is missing"),
        ('root ::= "a"\nroot ::= "b"', "line 2, column 1", "is there already"),
        ('root ::= "a', "line 1, column 10", "not closed"),
        ('root ::= "a"\n  [b', "line 2, column 3", "not closed"),
        ('root ::= ("a"', "line 1, column 10", "not closed"),
        ('root ::= "a")', "line 1, column 13", "name of a rule"),
        ("root ::= *", "line 1, column 10", "not expected"),
        ('root ::= "a"{3,1}', "line 1, column 13", "not possible"),
        ('root ::= "a"{x}', "line 1, column 13", "not a repetition"),
        ('root ::= "\\q"', "line 1, column 11", "unknown escape"),
        ("root ::= [z-a]", "line 1, column 10", "later character"),
        ("root ::= []", "line 1, column 10", "without characters"),
        ('root ::= "a" root', "line 1, column 1", "no text that ends"),
        ('root ::= "a" | x\nx ::= "y" x', "line 2, column 1", "no text that ends"),
        ("root ::= <|tool|>", "line 1, column 10", "tokens"),
        ('root ::= "a"' + "*" * 1000, "line 1, column 13", "too many"),
        ("root ::= " + "(" * 1000, "line 1", "deeper"),
        ('root ::= "a"{9999} | ("b"{9999}){99}', "", "parts"),
    ],
)
def test_refused_with_its_place(text: str, place: str, word: str) -> None:
    """C027."""
    with pytest.raises(Refusal, match=f"{place}.*{word}"):
        grammar(text)


def test_json() -> None:
    compiled = grammar(JSON)
    assert compiled.engine == "llguidance"
    for text in ('{"a": [1, -2.5e+7, {"b": "\\u00e9\\n🙂"}], "c": null}', "{}", '{"a":\n\t\t{}}'):
        assert accepts(compiled, text), text
    for text in ("[]", '{"a" 1}', '{"a": 01}', '{"a": "\n"}'):
        assert not accepts(compiled, text), text


@pytest.mark.parametrize("seed", range(12))
def test_random_texts_close_within_the_budget(seed: int) -> None:
    """Random tokens within a budget, as the server takes them, come to an end that the grammar
    takes."""
    rng = random.Random(seed)
    compiled = grammar(JSON)
    matcher = compiled.matcher()
    budget, out = 60, list[int]()
    while not out or out[-1] != EOS:
        allowed = sorted(mask(matcher))
        assert allowed
        token = rng.choice(allowed)
        verdict = matcher.advance(token, budget - len(out) - 1)
        if verdict != "ok":
            assert verdict == "budget"
            token = matcher.completion()[0]
            assert matcher.advance(token, budget - len(out) - 1) == "ok"
        out.append(token)
    assert len(out) <= budget
    text = b"".join(VOCABULARY.token_bytes[token] or b"" for token in out[:-1])
    assert accepts(compiled, text)


def test_the_shortest_ending_is_taken() -> None:
    matcher = grammar(JSON).matcher()
    assert bytes(closes(matcher)[:-1]) == b"{}"
    matcher.consume(b'{"a":[[{"b')
    assert bytes(closes(matcher)[:-1]) in (b'":0}]]}', b'":[]}]]}', b'":{}}]]}')
    matcher.consume(b"\xf0\x9f")
    assert len(closes(matcher)) == 2 + len('":0}]]}') + 1


def test_what_is_forced() -> None:
    """C032."""
    matcher = grammar('root ::= "key: " ("a" | "b") "; end"').matcher()
    assert bytes(matcher.forced()) == b"key: "
    matcher.consume(b"key: a")
    assert bytes(matcher.forced()) == b"; end"
    matcher.consume(b"; end")
    assert matcher.is_complete
    assert mask(matcher) == {EOS}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('start: %json {"x-guidance": {"lenient": true}, "uniqueItems": true}', "%json"),
        ('start: "a"\n  | %json {}', "line 2, column 5"),
        ('%llguidance {"allow_initial_skip": true}\nstart: "a"', "%llguidance"),
        ("start: <[256]>", "control tokens"),
        ("start: <|tool|>", "control tokens"),
        ("start: missing", "unknown name"),
        ("start: (", "Expected token"),
        ('start: "a', "lexer error"),
        ("%import file.X\nstart: X", "Unknown"),
        ('start: /\n"/ %json {"type": "null"}', "line 2, column 4"),
        ('start: x "b"\nx[lazy]: /a*/', "no text can be begun"),
    ],
)
def test_what_lark_may_not_do(text: str, word: str) -> None:
    """C023, C027: schemas and control tokens have constraints that check them."""
    with pytest.raises(Refusal, match=word):
        COMPILER.compile(Grammar(text, "lark"))


def test_lark() -> None:
    text = 'start: x+ "%json <|tool|> \\"<[1]>" // %json\nx: /[a-z<\\[|]%json/ | INT\n'
    text += "%import common.INT"
    compiled = COMPILER.compile(Grammar(text, "lark"))
    assert accepts(compiled, 'a%json12%json <|tool|> "<[1]>')
    assert not accepts(compiled, "a%json")
