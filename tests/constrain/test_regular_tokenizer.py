"""Regular constraints on the default model's own tokenizer, and on one of SentencePiece's kind."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from sapwood.constrain.compile import ConstraintCompiler
from sapwood.constrain.expression import read_expression
from sapwood.constrain.grammar import Compiler
from sapwood.constrain.matcher import Matcher
from sapwood.constrain.spec import Choice, Grammar, JsonSchema, Regex
from sapwood.constrain.vocabulary import Vocabulary
from sapwood.srt.checkpoint import Checkpoint

Encode = Callable[[str], list[int]]

PATTERNS = [
    r"-?[0-9]+(\.[0-9]+)?",
    r"(cat|category|dog)s?",
    r"[a-z]{1,5} [a-z]+",
    r"(?i)yes|no",
    r"[\x{1F600}-\x{1F64F}]{3}",
    r"(是|否)[^a-z]?",
    r"[0-9]{4}-[0-9][0-9]-[0-9][0-9]",
    r".{0,3}",
    r"\n[a-z]+",
    r"The answer is (A|B|C|D)\.",
]


@pytest.fixture(scope="module")
def encode(default_checkpoint: Checkpoint) -> Encode:
    tokenizer = default_checkpoint.tokenizer
    return lambda text: list(tokenizer.encode(text, add_bos=False, control=False))


@pytest.fixture(scope="module")
def vocabulary(default_checkpoint: Checkpoint) -> Vocabulary:
    return default_checkpoint.vocabulary


@pytest.fixture(scope="module")
def compiler(vocabulary: Vocabulary, encode: Encode) -> ConstraintCompiler:
    return ConstraintCompiler(vocabulary, encode)


@pytest.fixture(scope="module")
def engine(vocabulary: Vocabulary, encode: Encode) -> Compiler:
    return Compiler(vocabulary, encode)


def mask(matcher: Matcher, size: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    row = np.zeros((size + 31) // 32, np.int32)
    matcher.fill(row)
    return np.unpackbits(row.view(np.uint8), bitorder="little").astype(np.bool_)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_engines_agree(
    compiler: ConstraintCompiler, engine: Compiler, vocabulary: Vocabulary, pattern: str
) -> None:
    """C026: the same masks along random walks, end tokens included; NUL apart."""
    rng = random.Random(pattern)
    nul = [t for t, text in enumerate(vocabulary.token_bytes) if text and b"\0" in text]
    ends = sorted(vocabulary.eos_ids)
    compiled = compiler.compile(Regex(pattern))
    assert compiled.engine == "outlines-core"
    other = engine.regex(read_expression(pattern).text)
    for _ in range(4):
        ours, theirs = compiled.matcher(), other.matcher()
        for _ in range(12):
            mine, yours = mask(ours, vocabulary.size), mask(theirs, vocabulary.size)
            yours[nul] = False
            assert ours.can_stop == theirs.can_stop == bool(mine[ends].all())
            if yours.sum() == 1 and not ours.can_stop:
                # Where text is forced llguidance allows only its usual tokenisation.
                assert mine[yours].all()
                mine = yours
            elif not ours.is_complete:
                assert (mine == yours).all(), np.flatnonzero(mine != yours)[:9]
            tokens = np.flatnonzero(mine)
            token = int(rng.choice(tokens))
            if token in vocabulary.eos_ids:
                break
            ours.consume([token])
            theirs.consume([token])


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_least_number_of_tokens(
    compiler: ConstraintCompiler, vocabulary: Vocabulary, pattern: str
) -> None:
    """Random texts within the least budget that a place allows come to their end in it."""
    rng = random.Random(pattern)
    compiled = compiler.compile(Regex(pattern))
    for _ in range(5):
        matcher, budget, out = compiled.matcher(), rng.randint(12, 20), list[int]()
        while not out or out[-1] not in vocabulary.eos_ids:
            token = int(rng.choice(np.flatnonzero(mask(matcher, vocabulary.size))))
            left = budget - len(out) - 1
            if matcher.advance(token, left) != "ok":
                token = matcher.completion()[0]
                assert matcher.advance(token, left) == "ok"
            out.append(token)
        assert len(out) <= budget


SCHEMAS = [
    '{"type": "object", "properties": {"securityProtocolVersion": {"type": "integer"},'
    ' "ssid": {"type": "string"}}, "required": ["securityProtocolVersion", "ssid"]}',
    '{"type": "object", "properties": {"größe": {"enum": ["klein", "klingend"]}},'
    ' "required": ["größe"], "additionalProperties": false}',
    '{"type": "array", "items": {"const": "same text"}, "minItems": 2, "maxItems": 3}',
]


@pytest.mark.parametrize(
    "constraint",
    [
        *(JsonSchema(schema=schema) for schema in SCHEMAS),
        *map(Regex, PATTERNS),
        Choice(("category one", "category two", "catalogue")),
        Grammar('root ::= "key: " ("first" | "second") "; the end"'),
    ],
)
def test_forced_tokens_are_usual_and_could_not_have_been_longer(
    compiler: ConstraintCompiler,
    vocabulary: Vocabulary,
    encode: Encode,
    constraint: JsonSchema | Regex | Choice | Grammar,
) -> None:
    """C032: forced tokens are the usual ones for their text, may be consumed, and no token that
    the mask allows at one of them goes on beyond the forced text."""
    rng = random.Random(str(constraint))
    compiled = compiler.compile(constraint)
    for _ in range(3):
        matcher = compiled.matcher()
        for _ in range(20):
            forced = matcher.forced()
            text = b"".join(vocabulary.token_bytes[token] or b"" for token in forced)
            if forced:
                whole = not text.decode(errors="replace").count("\ufffd")
                assert not whole or encode(text.decode())[: len(forced)] == forced
            for token in forced:
                allowed = np.flatnonzero(mask(matcher, vocabulary.size))
                assert token in allowed
                for other in map(int, allowed):
                    assert text.startswith(vocabulary.token_bytes[other] or b"")
                matcher.consume([token])
                text = text[len(vocabulary.token_bytes[token] or b"") :]
            allowed = np.flatnonzero(mask(matcher, vocabulary.size))
            token = int(rng.choice(allowed))
            if token in vocabulary.eos_ids:
                break
            matcher.consume([token])


def metaspace() -> tuple[Tokenizer, Vocabulary]:
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    pieces += ["▁", "a", "b", "c", "x", "y", ">", "▁a", "ab", "▁ab", "a>", "▁▁", "x▁", "是"]
    scores = [0.0] * 3 + [-20.0] * 256 + [-float(9 - len(piece)) for piece in pieces[259:]]
    tokenizer = Tokenizer(
        models.Unigram(list(zip(pieces, scores, strict=True)), unk_id=0, byte_fallback=True)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return tokenizer, Vocabulary.from_tokenizer(tokenizer, [2])


@pytest.mark.parametrize(
    ("constraint", "text"),
    [
        (Regex(r"[a-z]+ [a-z]+"), b"ab ab"),
        (Regex(r"\n[a-z]+"), b"\nab"),
        (Grammar('root ::= "a>"'), b"a>"),
        (Grammar('root ::= [a-z]+ ">" [a-z]'), b"ab>c"),
        (Choice(("x  y", "是", "q")), b"x  y"),
        (JsonSchema(schema='{"const": "x  y"}'), b'"x  y"'),
    ],
)
def test_sentencepiece(constraint: Regex | Grammar | Choice | JsonSchema, text: bytes) -> None:
    """C029: exact texts, of any tokens that have their bytes; no blank before them."""
    tokenizer, vocabulary = metaspace()
    compiler = ConstraintCompiler(
        vocabulary, lambda text: tokenizer.encode(text, add_special_tokens=False).ids
    )
    rng = random.Random(1)
    compiled = compiler.compile(constraint)
    for _ in range(5):
        matcher, written = compiled.matcher(), b""
        while written != text:
            tokens = [
                int(token)
                for token in np.flatnonzero(mask(matcher, vocabulary.size))
                if vocabulary.token_bytes[token]
                and text.startswith(written + (vocabulary.token_bytes[token] or b""))
            ]
            assert tokens, written
            token = rng.choice(tokens)
            assert matcher.advance(token, 50) == "ok"
            written += vocabulary.token_bytes[token] or b""
        assert matcher.can_stop
    completion = compiled.matcher().completion()
    assert completion[-1] == 2
    assert not mask(compiled.matcher(), vocabulary.size)[[0, 1]].any()
