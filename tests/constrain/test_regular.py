"""Expressions and choices: both engines against each other and against ``re``, and the promises
of their matchers, on a vocabulary of bytes and a few longer tokens."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
import unicodedata
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from sapwood.constrain.compile import Compiled, ConstraintCompiler
from sapwood.constrain.expression import read_expression
from sapwood.constrain.grammar import Compiler
from sapwood.constrain.index_pool import IndexLimits, IndexPool
from sapwood.constrain.matcher import Matcher
from sapwood.constrain.refusal import Refusal
from sapwood.constrain.spec import Choice, Regex
from sapwood.constrain.vocabulary import Vocabulary

EOS, SECOND, SPECIAL, WORDS = 256, 257, 258, (b"cat", b"ego", b" \xf0", b"\x9f\x98", b"12", b"\0a")
VOCABULARY = Vocabulary(
    (*(bytes([b]) for b in range(256)), b"<eos>", b"<end>", b"<|tool|>", None, *WORDS),
    frozenset({EOS, SECOND}),
    frozenset({EOS, SECOND, SPECIAL}),
)


def encode(text: str) -> list[int]:
    """The longest tokens first."""
    data, at, tokens = text.encode(), 0, []
    while at < len(data):
        token = next((260 + i for i, w in enumerate(WORDS) if data.startswith(w, at)), data[at])
        tokens.append(token)
        at += len(VOCABULARY.token_bytes[token] or b"")
    return tokens


COMPILER = ConstraintCompiler(VOCABULARY, encode)
ENGINE = Compiler(VOCABULARY, encode)


def mask(matcher: Matcher) -> set[int]:
    row = np.full((VOCABULARY.size + 31) // 32 + 1, -1, np.int32)
    matcher.fill(row)
    return {int(t) for t in np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))}


def accepts(compiled: Compiled, text: str | bytes) -> bool:
    matcher = compiled.matcher()
    for token in encode(text) if isinstance(text, str) else text:
        if token not in mask(matcher):
            return False
        matcher.consume([token])
    assert matcher.can_stop == (EOS in mask(matcher))
    return matcher.can_stop


def closes(matcher: Matcher) -> None:
    """The completion that the matcher names can be taken, in as many tokens as it has."""
    fork, tokens = matcher.fork(), matcher.completion()
    assert tokens[-1] in (EOS, SECOND)
    for n, token in enumerate(tokens):
        assert token in mask(fork)
        assert fork.advance(token, len(tokens) - n - 1) == "ok"


SMALL = [
    (r"-?[0-9]+(\.[0-9]+)?", ["12.75", "5", "-0.5", "007"], ["", "12.", "-", ".5", "1 "]),
    (r"(cat|category)", ["cat", "category"], ["ca", "catego", "cats"]),
    (r"(foo|foobar)", ["foo", "foobar"], ["foob", "foobarfoo"]),
    (r"a?", ["", "a"], ["aa"]),
    (r"a*", ["", "aaa"], ["b"]),
    (r"", [""], ["a"]),
    (r"()|x", ["", "x"], ["xx"]),
    (r"a??b*?", ["", "ab", "bb"], ["aab"]),
    (r"(?i)caT", ["cat", "CAT", "cAt"], ["ca"]),
    (r"(?i:a)b", ["Ab", "ab"], ["AB"]),
    (r"[\x{1F600}-\x{1F64F}]{3}", ["😀😁😂"], ["😀", "😀😁", "abc", "😀😁😂😃"]),
    (r"(是|否)", ["是", "否"], ["", "是否"]),
    (r".{4}", ["abcd", "é是😀x"], ["abc", "abcde", "ab\nc"]),
    (r"[^a-z]+", ["A", " 😀", "1\n"], ["", "a", "Aa"]),
    (r"\d\w\s", ["1a ", "١é\u2003"], ["aa ", "1a"]),
    (r"\p{Lu}+", ["AÉ"], ["a"]),
    (r"[[:alpha:]&&[^b]]+", ["ac"], ["b", "1"]),
    (r"^ab$", ["ab"], ["a"]),
    (r"^a|b$", ["a", "b"], ["ab", "^a"]),
    (r"\A(a|^b)\z|c", ["a", "b", "c"], ["ac"]),
    (r"(a$|b)", ["a", "b"], ["a$"]),
    (r"x(?:$)?", ["x"], ["x$"]),
    (r"[)(|$^]+\$\(", ["^$(", ")|($("], ["$("]),
    (r"[]a]{2}", ["]a", "]]"], ["a"]),
    (r"a{2,3}b{2}c{1,}", ["aabbc", "aaabbccc"], ["abbc", "aabb"]),
    (r"\n[a-z]+ [a-z]+", ["\nab cd"], ["ab cd"]),
    (r"(ab|cd)*ef", ["ef", "abcdef"], ["abc"]),
    (r"[ab]*a[ab]{2}", ["aab", "baaa"], ["ab", "bbb"]),
]


@pytest.mark.parametrize(("pattern", "right", "wrong"), SMALL, ids=[each[0] for each in SMALL])
def test_texts(pattern: str, right: list[str], wrong: list[str]) -> None:
    """C026, C029: whole texts and nothing else, in both engines."""
    text = read_expression(pattern).text
    for compiled in (COMPILER.compile(Regex(pattern)), ENGINE.regex(text)):
        for each in right:
            assert accepts(compiled, each), (compiled.engine, each)
        for each in wrong:
            assert not accepts(compiled, each), (compiled.engine, each)


@pytest.mark.parametrize("pattern", [each[0] for each in SMALL])
def test_engines_agree_on_masks(pattern: str) -> None:
    agree(pattern, random.Random(pattern), walks=6)


def agree(pattern: str, rng: random.Random, walks: int) -> None:
    """Random walks over masks that must be the same in both engines, but for NUL."""
    compiled = COMPILER.compile(Regex(pattern))
    other = ENGINE.regex(read_expression(pattern).text)
    nul = {0, 260 + WORDS.index(b"\0a")}
    for _ in range(walks):
        ours, theirs = compiled.matcher(), other.matcher()
        for _ in range(12):
            allowed = mask(ours)
            other_mask = mask(theirs) - nul
            if len(other_mask) == 1 and not ours.can_stop:
                # Where the text is forced llguidance allows only its usual tokenisation.
                assert other_mask <= allowed
                assert theirs.forced()[0] in other_mask
                allowed = other_mask
            elif not ours.is_complete:
                assert allowed - nul == other_mask
            assert ours.can_stop == theirs.can_stop
            assert (EOS in allowed) == ours.can_stop == (SECOND in allowed)
            closes(ours)
            tokens = sorted(allowed - {EOS, SECOND} - nul)
            if not tokens:
                assert ours.is_complete
                break
            token = rng.choice(tokens)
            ours.consume([token])
            theirs.consume([token])


def random_expression(rng: random.Random, depth: int) -> str:
    kind = rng.randrange(8 if depth else 3)
    inner = [random_expression(rng, depth - 1) for _ in range(rng.randint(1, 3))] if depth else []
    if kind < 3:
        return rng.choice(["a", "b", "cat", "[ab]", "[^a]", "é", ".", r"\d", "", "12", "[a-cé]"])
    if kind == 3:
        return "(" + "|".join(inner) + ")"
    if kind == 4:
        return f"(?:{inner[0]}){rng.choice(['*', '+', '?', '{2}', '{1,3}', '{0,2}', '*?'])}"
    return "".join(f"(?:{each})" for each in inner)


@pytest.mark.parametrize("seed", range(60))
def test_engines_agree_on_random_expressions(seed: int) -> None:
    rng = random.Random(seed)
    pattern = random_expression(rng, 3)
    agree(pattern, rng, walks=2)
    compiled = COMPILER.compile(Regex(pattern))
    for _ in range(20):
        text = "".join(rng.choices(["a", "b", "cat", "1", "2", "é"], k=rng.randint(0, 5)))
        assert accepts(compiled, text) == bool(re.fullmatch(pattern, text)), text


@pytest.mark.parametrize(
    ("bad", "place", "word"),
    [
        ("a)|(b", 1, "closes no group"),
        ("(a", 0, "not closed"),
        ("[a", 0, "not closed"),
        ("a(?=b)", 1, "look-ahead"),
        ("a(?!b)", 1, "look-ahead"),
        ("(?<=a)b", 0, "look-behind"),
        ("(?<!a)b", 0, "look-behind"),
        (r"(a)\1", 3, "back-reference"),
        (r"(?P<n>a)(?P=n)", 8, "back-reference"),
        (r"\bfoo", 0, "word boundary"),
        (r"a\B", 1, "word boundary"),
        ("a^b", 1, "not at the beginning"),
        ("a$b", 1, "not at the end"),
        ("(a$|b)c", 2, "not at the end"),
        ("(^a)*", 1, "not at the beginning"),
        ("*a", 0, "repeats nothing"),
        ("a{", 1, "no repetition"),
        ("a{,3}", 1, "no repetition"),
        ("a{3,2}", 1, "not possible"),
        ("a*+", 2, "repetition of a repetition"),
        ("(?>a)", 0, "atomic"),
        ("(?x)a b", 0, "flag 'x'"),
        ("(?m)^a", 0, "flag 'm'"),
        (r"\ud800", 0, "no character"),
        (r"\y", 0, "not known"),
        ("\\", 0, "nothing after it"),
    ],
)
def test_refused_with_its_place(bad: str, place: int, word: str) -> None:
    """C001."""
    with pytest.raises(Refusal, match=f"at character {place}: .*{word}"):
        COMPILER.compile(Regex(bad))


def test_refused_by_the_engine_or_for_having_no_text() -> None:
    for bad in (r"\p{Nonsense}", "[b-a]", r"[^\x{0}-\x{10FFFF}]", r"[a&&b]"):
        with pytest.raises(Refusal):
            COMPILER.compile(Regex(bad))


def test_a_large_expression_goes_to_the_other_engine() -> None:
    """The choice is stated, and texts close in time there too."""
    compiled = COMPILER.compile(Regex(r"<.{0,200}>"))
    assert compiled.engine == "llguidance"
    assert COMPILER.compile(Regex(r"<[a-z]{0,20}>")).engine == "outlines-core"
    matcher = compiled.matcher()
    matcher.consume(b"<ab\xf0\x9f")
    assert len(matcher.completion()) == 4
    closes(matcher)
    assert matcher.advance(0x98, 2) == "budget"
    assert matcher.advance(0x98, 3) == "ok"
    closes(matcher)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"a\x00", "a\0"),
        ("a\0", "a\0"),
        (r"\u{0}*b", "\0b"),
        (r"[\x00-\x05]{2}", "\1\0"),
        (r"[^a]\x{0}", "b\0"),
    ],
)
def test_nul_goes_to_the_other_engine(pattern: str, text: str) -> None:
    compiled = COMPILER.compile(Regex(pattern))
    assert compiled.engine == "llguidance"
    assert accepts(compiled, text)
    matcher = compiled.matcher()
    for token in text.encode():
        closes(matcher)
        assert matcher.advance(token, 10) == "ok"


def test_the_largest_expressions() -> None:
    with pytest.raises(Refusal, match="more than 20000 characters"):
        COMPILER.compile(Regex("x{50000}"))
    assert len(COMPILER.compile(Regex("x{15000}")).matcher().completion()) == 15001


@pytest.mark.parametrize("pattern", [r"<.{0,20}>", r"[ab]*a[ab]{22}", r"\p{L}{1,99}x", "x{300}"])
def test_what_would_explode_is_not_tried(pattern: str) -> None:
    compiled = COMPILER.compile(Regex(pattern))
    assert compiled.engine == "llguidance"
    closes(compiled.matcher())


def test_limits_stop_the_work() -> None:
    explosive = r"[ab]*a[ab]{22}"
    with pytest.raises(Refusal, match=r"more than 0\.5 s"):
        IndexPool({b"a": [0]}, 5, IndexLimits(seconds=0.5)).compile(explosive)
    with pytest.raises(Refusal, match="more than 32 MB"):
        IndexPool({b"a": [0]}, 5, IndexLimits(memory=32 << 20)).compile(explosive)
    again = IndexPool({b"a": [0]}, 5, IndexLimits(memory=200 << 20))
    with pytest.raises(Refusal):
        again.compile(explosive)
    assert again.compile("a*").by_token is not None


def test_a_process_that_died_is_replaced() -> None:
    pool = IndexPool({b"a": [0]}, 5)
    assert pool.compile("a*").by_token is not None
    pool._idle[0]._process.kill()
    pool._idle[0]._process.wait()
    assert pool.compile("a*").by_token is not None


def test_processes_outlive_the_threads_that_started_them() -> None:
    pool = IndexPool({b"a": [0]}, 5)
    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(lambda n: pool.compile(f"a{{{n}}}").by_token, range(1, 9)))
    time.sleep(0.1)
    assert 1 <= len(pool._idle) <= 2
    assert all(child.is_alive for child in pool._idle)


def test_special_tokens_are_never_text() -> None:
    """C023, C025: nothing but an end token after the whole match."""
    matcher = COMPILER.compile(Regex(r"<[a-z]{5,9}>|[0-9]{3}")).matcher()
    assert not mask(matcher) & {EOS, SECOND, SPECIAL, 259}
    matcher.consume(b"123")
    assert mask(matcher) == {EOS, SECOND}
    assert matcher.is_complete
    matcher.consume([SECOND])
    assert mask(matcher) == {EOS, SECOND}
    with pytest.raises(ValueError, match="may not come"):
        matcher.consume([ord("1")])
    matcher.rollback(2)
    assert not mask(matcher) - {*b"0123456789", 264}


def test_forced_runs_stop_where_a_token_may_go_on() -> None:
    """C032: `cat` is one token; `1` may become `12`; ` ` may be the beginning of ` \\xf0`."""
    assert COMPILER.compile(Regex("category")).matcher().forced() == encode("category")
    assert COMPILER.compile(Regex("x1[0-9]")).matcher().forced() == encode("x")
    assert COMPILER.compile(Regex("x1[3-9]")).matcher().forced() == encode("x1")
    assert COMPILER.compile(Regex("x .")).matcher().forced() == encode("x")
    assert COMPILER.compile(Regex("a|b")).matcher().forced() == []
    matcher = COMPILER.compile(Regex("cat(egory)?")).matcher()
    assert matcher.forced() == encode("cat")
    matcher.consume(matcher.forced())
    assert matcher.forced() == []
    matcher.consume(b"e")
    assert matcher.forced() == encode("gory")


def test_the_budget_is_exact() -> None:
    """Distances count tokens: three letters are one token here."""
    matcher = COMPILER.compile(Regex("x?(category|[a-b]{9})")).matcher()
    assert len(matcher.completion()) == len([*encode("category"), EOS])
    assert matcher.advance(ord("x"), 4) == "budget"
    assert matcher.advance(ord("a"), 8) == "budget"
    assert matcher.advance(ord("a"), 9) == "ok"
    assert matcher.advance(ord("b"), None) == "ok"
    with pytest.raises(ValueError, match="may not come"):
        matcher.advance(ord("c"), 100)


def test_a_refused_run_changes_nothing() -> None:
    matcher = COMPILER.compile(Choice(("cat", "category"))).matcher()
    fork = matcher.fork()
    with pytest.raises(ValueError, match="may not come"):
        matcher.consume(b"cab")
    assert matcher.forced() == fork.forced() == encode("cat")
    matcher.consume(b"cat")
    assert matcher.can_stop
    assert not matcher.is_complete
    with pytest.raises(ValueError, match="cannot take"):
        matcher.rollback(4)


@pytest.mark.parametrize("many", [False, True])
def test_choices(many: bool) -> None:
    """C023, C026: quotes, blanks, controls and characters of several bytes; one may be empty."""
    options = ['say "hi"', "", "是", "🙂", "a\\b", "a\nb", "a", "<|tool|>", "$^.*", "{}", "a<b"]
    more = [f"option {i}" for i in range(999)] if many else []
    compiled = COMPILER.compile(Choice((*options, *more)))
    assert compiled.engine == ("llguidance" if many else "outlines-core")
    for option in (*options, *more[:3]):
        assert accepts(compiled, option), option
    for text in ("say", "b", "A", "a\\", "\x9f"):
        assert not accepts(compiled, text), text
    matcher = compiled.matcher()
    for token in b"a<b":
        closes(matcher)
        assert matcher.advance(token, 10) == "ok"
    closes(matcher)


@pytest.mark.parametrize("options", [(), ("a", "b", "a"), ("\ud800",)])
def test_bad_choices(options: tuple[str, ...]) -> None:
    with pytest.raises(Refusal):
        COMPILER.compile(Choice(options))


def test_a_choice_with_nothing_but_an_empty_text() -> None:
    matcher = COMPILER.compile(Choice(("",))).matcher()
    assert mask(matcher) == {EOS, SECOND}
    assert matcher.completion() == [EOS]


def test_a_choice_of_very_many() -> None:
    rng = random.Random(1)
    options = tuple({f"{rng.random():.12f}"[2:] for _ in range(20_000)})
    matcher = COMPILER.compile(Choice(options)).matcher()
    for token in options[7].encode():
        assert matcher.advance(token, 13) == "ok"
    assert matcher.is_complete
    nested = tuple("a" * n for n in range(300))
    compiled = COMPILER.compile(Choice(nested))
    assert all(accepts(compiled, option) for option in nested[::37])
    assert not accepts(compiled, "a" * 300)
    with pytest.raises(Refusal, match="bytes together"):
        COMPILER.compile(Choice(("a" * 5_000_000, "b" * 5_000_000)))


def test_classes_are_those_of_unicode() -> None:
    compiled = COMPILER.compile(Regex(r"\w"))
    for char in "aé是ß_1":
        assert accepts(compiled, char) == (char == "_" or unicodedata.category(char)[0] in "LN")


def test_the_engine_is_not_imported_here() -> None:
    code = (
        "import sys, sapwood.constrain.compile as c;"
        "sys.exit(any(m.startswith('outlines') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
