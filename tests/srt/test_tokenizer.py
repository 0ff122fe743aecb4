"""Tokenizers: rebuilt from GGUF, read from files, bytes of ids, control tokens in text."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.constrain.vocabulary import char_of_byte
from sapwood.srt.checkpoint import Checkpoint
from sapwood.srt.errors import LoadError, RequestError
from sapwood.srt.tokenizer import Tokenizer
from sapwood.srt.tokenizer.gguf_metadata import tokenizer_from_gguf

MakeJson = Callable[..., dict[str, Any]]
TEXTS = (
    "",
    "\nfoo 🤗 bar   ",
    " Hello",
    "Hello:World",
    " " * 64 + "X",
    " " * 128 + "X",
    "\ta\t\tb",
    "a\r\nb\r\n\r\n",
    "literal <0x0A> and Ġ and ▂",
    "don't I'LL they've 12345 3.14 ²½Ⅷ",
    "日本語 한국어 ﷽ é",
    "\x00\x01\x7f\u00a0\u200b\ufeff",
)


def byte_gguf(
    pre: str, merges: tuple[str, ...] = (), more: tuple[tuple[str, int], ...] = ()
) -> dict[str, Any]:
    """GGUF metadata of a byte-level tokenizer; ``more`` are tokens with their types."""
    pieces = [*char_of_byte(), *(merge.replace(" ", "") for merge in merges)]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [*pieces, *(text for text, _ in more)],
        "tokenizer.ggml.token_type": [1] * len(pieces) + [kind for _, kind in more],
        "tokenizer.ggml.merges": list(merges),
    }


SPM_PIECES = ("▁", "H", "e", "l", "o", ":", "W", "r", "d", "<", "s", ">", "/", "0", "x", "A")
SPM_JOINED = ("ll", "He", "▁He", "llo", "▁▁", "▁▁▁▁", "or", "ld", "<s", "s>", "▁Hello", "▁W", "lo")


def spm_gguf(**changes: Any) -> dict[str, Any]:
    """GGUF metadata of a SentencePiece tokenizer with byte fallback."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    types = [2, 3, 3, *[6] * 256]
    joined = [*SPM_JOINED, *SPM_PIECES]
    tokens += joined
    types += [1] * len(joined)
    scores = [0.0] * 259 + [-float(i) for i in range(len(joined))]
    tokens.append("<tool>")
    types.append(4)
    scores.append(-100.0)
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        **changes,
    }


# The real tokenizer --------------------------------------------------------------------------


def test_the_real_tokenizer(default_checkpoint: Checkpoint) -> None:
    tokenizer = default_checkpoint.tokenizer
    assert tokenizer.vocab_size == 49152
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.bos_ids) == (1, 2, [])
    assert tokenizer.special_ids == frozenset(range(17))
    assert tokenizer.encode("hi<|im_end|>\n") == [6004, 2, 198]
    assert tokenizer.token_bytes[2] == b"<|im_end|>"
    assert None not in tokenizer.token_bytes


def test_the_real_tokenizer_agrees_with_transformers(default_model_path: Path) -> None:
    """On text without digits: the oracle's conversion lacks this pre-tokenizer's rule for them."""
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(
        default_model_path.parent, gguf_file=default_model_path.name
    )
    ours = tokenizer_from_file(default_model_path)
    rng = np.random.default_rng(11)
    words = [
        "Hello",
        " world",
        "\n\n",
        "  ",
        "don't",
        "12",
        "é",
        "🤗",
        "<|im_end|>",
        "{}",
        "\t",
        "x",
    ]
    for text in (*TEXTS, *("".join(rng.choice(words, 12)) for _ in range(50))):
        if not any(char.isnumeric() for char in text):
            assert ours.encode(text) == theirs(text, add_special_tokens=False).input_ids, text


def tokenizer_from_file(path: Path) -> Tokenizer:
    from sapwood.srt.checkpoint.gguf_file import GgufFile

    return tokenizer_from_gguf(GgufFile(path).metadata)


# The real vocabulary has no piece for these bytes, and its tokenizer leaves them out.
ABSENT = (4, 6, 0x13, 0x14, 0x16, 0x1D, 0xF1, 0xF2)


@given(st.text(max_size=80).filter(lambda text: not set(ABSENT) & set(text.encode())))
@settings(max_examples=200, deadline=None)
def test_the_real_tokenizer_round_trips_c095(default_checkpoint: Checkpoint, text: str) -> None:
    """C095: any text, its markers taken as control tokens or as text."""
    tokenizer = default_checkpoint.tokenizer
    assert tokenizer.decode(tokenizer.encode(text), skip_special=False) == text
    assert tokenizer.decode(tokenizer.encode(text, control=False)) == text


# C095: round trips ---------------------------------------------------------------------------


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", ["smollm", "llama-bpe", "qwen2", "spm", "hybrid"])
def test_round_trips_c095(kind: str, text: str, byte_level_json: MakeJson) -> None:
    if kind == "spm":
        tokenizer = tokenizer_from_gguf(spm_gguf())
    elif kind == "hybrid":
        tokenizer = Tokenizer(hybrid(byte_level_json))
    else:
        tokenizer = tokenizer_from_gguf(byte_gguf(kind, merges=("Ġ H", "l l", "Ġ Ġ")))
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode(tokenizer.encode(text, control=False)) == text
    whole = b"".join(tokenizer.token_bytes[token] or b"" for token in ids[len(tokenizer.bos_ids) :])
    assert whole.removeprefix(b" " if tokenizer.adds_blank else b"") == text.encode()


def hybrid(byte_level_json: MakeJson) -> dict[str, Any]:
    """A byte-level vocabulary under a decoder of SentencePiece's."""
    data = byte_level_json(("Ġ H",))
    steps = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "Fuse"}]
    return {**data, "decoder": {"type": "Sequence", "decoders": steps}}


def test_the_dummy_blank_is_dropped_at_the_start_only_c095() -> None:
    tokenizer = tokenizer_from_gguf(spm_gguf())
    assert tokenizer.adds_blank
    ids = tokenizer.encode("Hello", add_bos=False)
    assert [tokenizer.token_bytes[token] for token in ids] == [b" Hello"]
    assert tokenizer.decode(ids) == "Hello"
    assert tokenizer.decode(ids, at_start=False) == " Hello"
    assert tokenizer.decode([*ids, *ids]) == "Hello Hello"
    plain = tokenizer_from_gguf(spm_gguf(**{"tokenizer.ggml.add_space_prefix": False}))
    assert not plain.adds_blank
    assert plain.decode(plain.encode(" Hello")) == " Hello"


def test_bytes_are_not_read_from_text_c095() -> None:
    """The text ``<0x0A>`` is six characters, not the byte that has this name."""
    tokenizer = tokenizer_from_gguf(spm_gguf())
    newline = tokenizer.encode("\n", add_bos=False)
    assert [tokenizer.token_bytes[token] for token in newline] == [b" ", b"\n"]
    assert newline[-1] not in tokenizer.encode("<0x0A>")


# Rules of the formats ------------------------------------------------------------------------


def test_sentencepiece_joins_by_score() -> None:
    """Against the algorithm as SentencePiece states it, on random strings."""
    metadata = spm_gguf()
    tokenizer = tokenizer_from_gguf(metadata)
    tokens = metadata["tokenizer.ggml.tokens"]
    score = dict(zip(tokens[259:-1], metadata["tokenizer.ggml.scores"][259:-1], strict=True))
    rng = np.random.default_rng(5)
    for _ in range(200):
        text = "".join(rng.choice(list(" HeloWrd<s>"), rng.integers(1, 24)))
        parts = list("▁" + text.replace(" ", "▁"))
        while True:
            joins = [
                (-score[a + b], i)
                for i, (a, b) in enumerate(itertools.pairwise(parts))
                if a + b in score
            ]
            if not joins:
                break
            at = min(joins)[1]
            parts[at : at + 2] = ["".join(parts[at : at + 2])]
        expected = [tokens.index(part) for part in parts]
        assert tokenizer.encode(text, add_bos=False, control=False) == expected, text


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [("smollm", "1 2 3 4 5"), ("llama-bpe", "123 45"), ("qwen2", "1 2 3 4 5")],
)
def test_digits_are_split_as_each_pre_tokenizer_has_it(pre: str, pieces: str) -> None:
    tokenizer = tokenizer_from_gguf(byte_gguf(pre, merges=("1 2", "12 3", "123 4", "4 5")))
    got = [tokenizer.token_bytes[token] for token in tokenizer.encode("12345", add_bos=False)]
    assert got == [piece.encode() for piece in pieces.split()]


def test_llama_3_takes_a_whole_word_before_merging() -> None:
    metadata = byte_gguf("llama-bpe", merges=("h e",), more=(("hello", 1), ("<|eot_id|>", 3)))
    tokenizer = tokenizer_from_gguf(metadata)
    assert [tokenizer.token_bytes[t] for t in tokenizer.encode("hello")] == [b"hello"]


def test_qwen_2_normalises_to_nfc() -> None:
    tokenizer = tokenizer_from_gguf(byte_gguf("qwen2"))
    assert tokenizer.decode(tokenizer.encode("e\u0301")) == "é"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tokenizer.ggml.model": "bert"}, "model 'bert' is not supported"),
        ({"tokenizer.ggml.pre": "tekken"}, "pre-tokenizer 'tekken' is not supported"),
        ({"tokenizer.ggml.pre": None}, "pre-tokenizer None is not supported"),
        ({"tokenizer.ggml.tokens": []}, "has no tokenizer"),
        ({"tokenizer.ggml.token_type": [1]}, "256 tokens and 1 types"),
        ({"tokenizer.ggml.tokens": ["a"] * 256}, "token 'a' twice"),
        ({"tokenizer.ggml.bos_token_id": 256}, "bos_token_id is 256"),
        ({"tokenizer.ggml.merges": ["a ñandu"]}, "cannot be built"),
        ({"tokenizer.ggml.model": "llama"}, "256 tokens and 0 scores"),
    ],
)
def test_gguf_tokenizers_that_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(LoadError, match=words):
        tokenizer_from_gguf({**byte_gguf("smollm"), **changes})


def test_unused_ids_are_no_tokens() -> None:
    metadata = byte_gguf("qwen2", more=(("[PAD]", 5), ("[PAD]", 5), ("<|end|>", 3)))
    tokenizer = tokenizer_from_gguf(metadata)
    assert tokenizer.token_bytes[256:] == (None, None, b"<|end|>")
    assert tokenizer.decode(tokenizer.encode("[PAD]")) == "[PAD]"


def test_the_unknown_token_is_special() -> None:
    tokenizer = tokenizer_from_gguf(spm_gguf())
    assert tokenizer.encode("<unk>", add_bos=False) == [0]
    assert 0 not in tokenizer.encode("<unk>", control=False)


# C063: what an empty text is -----------------------------------------------------------------


def test_an_empty_text_is_only_the_bos_c063(byte_level_json: MakeJson) -> None:
    assert tokenizer_from_gguf(spm_gguf()).encode("") == [1]
    assert tokenizer_from_gguf(spm_gguf(**{"tokenizer.ggml.add_bos_token": False})).encode("") == []
    assert tokenizer_from_gguf(byte_gguf("smollm")).encode("") == []
    with_bos = {**byte_gguf("llama-bpe", more=(("<s>", 3),)), "tokenizer.ggml.bos_token_id": 256}
    assert tokenizer_from_gguf(with_bos).encode("") == [256], "as llama.cpp has it for Llama 3"
    data = byte_level_json(special=("<s>",))
    assert Tokenizer(data).encode("") == []
    assert Tokenizer(data, special_tokens={"bos_token": "<s>"}, add_bos=True).encode("") == [256]


def test_bos_is_as_the_post_processor_or_the_caller_says(byte_level_json: MakeJson) -> None:
    data = byte_level_json(special=("<s>", "</s>"))
    start, text, end = (
        {"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "</s>", "type_id": 0}},
    )
    data["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [start, text, end],
        "pair": [start, text, end],
        "special_tokens": {
            name: {"id": name, "ids": [number], "tokens": [name]}
            for name, number in (("<s>", 256), ("</s>", 257))
        },
    }
    tokenizer = Tokenizer(data, special_tokens={"bos_token": "<s>"})
    assert tokenizer.adds_bos
    assert tokenizer.encode("a") == [256, 97], "an end is never put after a prompt"
    assert tokenizer.encode("a", add_bos=False) == [97]
    told = Tokenizer(data, special_tokens={"bos_token": "<s>"}, add_bos=False)
    assert told.encode("a") == [97]
    assert told.encode("a", add_bos=True) == [256, 97]


# C080: control tokens in text ----------------------------------------------------------------

MARKERS = ("<|im_start|>", "<|im_end|>", "<s>")


def test_control_tokens_in_text_c080(byte_level_json: MakeJson) -> None:
    """C080: with ``control=False`` no id is a control id, whatever merges would make of the text;
    with it on, markers are tokens."""
    merges = ("< s", "<s >", "i m")
    data = byte_level_json(merges, special=("<|im_end|>",), added=("<tool_call>",))
    data["added_tokens"].append({**data["added_tokens"][0], "content": "<s>", "id": 257})
    tokenizer = Tokenizer(data)
    assert tokenizer.control_ids == {257, 259, 260}
    for marker, token in tokenizer.markers.items():
        assert tokenizer.encode(f"a{marker}b") == [97, token, 98]
        ids = tokenizer.encode(f"a{marker}b", control=False)
        assert not tokenizer.control_ids & set(ids)
        assert tokenizer.decode(ids) == f"a{marker}b"
    assert tokenizer.encode("im <s", control=False) == tokenizer.encode("im <s")


def test_words_added_for_compression_are_not_control_tokens(byte_level_json: MakeJson) -> None:
    tokenizer = Tokenizer(byte_level_json(added=("    ", "function", "[INST]")))
    assert list(tokenizer.markers) == ["[INST]"]
    assert tokenizer.encode("    function", control=False) == [256, 257]


def test_whole_words_of_llama_3_are_not_control_tokens() -> None:
    """Its vocabulary is looked up before merging, and a file's control tokens are part of it."""
    metadata = byte_gguf("llama-bpe", more=(("end", 3), ("<|x|>", 3), ("plain", 1)))
    tokenizer = tokenizer_from_gguf(metadata)
    for text in ("end", "<|x|>"):
        assert tokenizer.encode(text) == [256 + ("end", "<|x|>").index(text)]
        assert not tokenizer.control_ids & set(tokenizer.encode(text, control=False))
    assert tokenizer.encode("plain", control=False) == [258]


@given(st.lists(st.sampled_from([*MARKERS, "<|im_", "end|>", "<", ">", "a", " ", "\n", "|"])))
@settings(max_examples=100, deadline=None)
def test_no_text_makes_a_control_id_c080(default_checkpoint: Checkpoint, pieces: list[str]) -> None:
    tokenizer, text = default_checkpoint.tokenizer, "".join(pieces)
    ids = tokenizer.encode(text, control=False)
    assert not tokenizer.control_ids & set(ids)
    assert tokenizer.decode(ids) == text


def test_what_the_vocabulary_cannot_write_is_left_out(default_checkpoint: Checkpoint) -> None:
    for byte in ABSENT[:6]:
        assert default_checkpoint.tokenizer.encode(f"a{chr(byte)}b") == [81, 82]


METASPACE = {"type": "Metaspace", "replacement": "▁", "split": False}
PREPENDING = [
    {"type": "Prepend", "prepend": "▁"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
]
FOLDING = [{"type": "NFKC"}, {"type": "Lowercase"}]


@pytest.mark.parametrize(
    "parts",
    [
        {"pre_tokenizer": {**METASPACE, "prepend_scheme": "first"}},
        {"pre_tokenizer": {**METASPACE, "prepend_scheme": "always"}},
        {"normalizer": {"type": "Sequence", "normalizers": PREPENDING}},
        {"normalizer": {"type": "Sequence", "normalizers": FOLDING}},
    ],
    ids=["first", "always", "prepending", "folding"],
)
@pytest.mark.parametrize("flag", ["none", "lstrip", "rstrip", "single_word", "normalized"])
def test_a_rendered_template_is_cut_as_the_plain_tokenizer_cuts_it(
    parts: dict[str, Any], flag: str
) -> None:
    """Blanks before and after markers, first and later pieces, whatever the tokenizer's rules."""
    pieces = ["<unk>", *(f"<0x{i:02X}>" for i in range(256)), "▁", *"abHelo<|im_end>\n", "<|end|>"]
    vocab = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    names = ("lstrip", "rstrip", "single_word", "normalized")
    flags = {name: name == flag for name in names}
    marker = {"id": vocab["<|end|>"], "content": "<|end|>", "special": True, **flags}
    model = {"type": "BPE", "vocab": vocab, "merges": [], "byte_fallback": True}
    model["unk_token"] = "<unk>"
    data = {"version": "1.0", "added_tokens": [marker], "model": model, **parts}
    tokenizer = Tokenizer(data)
    for text in (
        "<|end|>Hello<|end|>\n Hello <|end|>",
        " <|end|> a  b<|end|><|end|>",
        "a<|end|>b",
        "Hello \n",
        "<|END|>",
    ):
        if flag != "normalized" or "normalizer" not in parts:
            assert tokenizer.encode_chat(text) == tokenizer.encode(text)
        broken = text.replace("<|", "<\ue000|")
        literal = tokenizer.encode_chat(broken, "\ue000")
        assert literal == tokenizer.encode(text, control=False)
        assert vocab["<|end|>"] not in literal


def test_literal_text_may_hold_any_character(default_checkpoint: Checkpoint) -> None:
    """There is no placeholder that a text could forge."""
    text = "".join(map(chr, range(0xE000, 0xE100))) + "\U000f0000<|im_end|>\U0010fffd"
    ids = default_checkpoint.tokenizer.encode(text, control=False)
    assert default_checkpoint.tokenizer.decode(ids) == text
    assert 2 not in ids


# The rest ------------------------------------------------------------------------------------


def test_unpaired_surrogates_are_the_users_fault(byte_level_json: MakeJson) -> None:
    with pytest.raises(RequestError, match="surrogate"):
        Tokenizer(byte_level_json()).encode("a\ud800")


def test_decoding_ids_that_are_cut_or_unknown(byte_level_json: MakeJson) -> None:
    tokenizer = Tokenizer(byte_level_json(special=("<s>",)))
    assert tokenizer.decode([0xE2, 0x82]) == "\ufffd"
    assert tokenizer.decode_bytes([0xE2, 0x82]) == b"\xe2\x82"
    assert tokenizer.decode([97, 256, 98]) == "ab"
    assert tokenizer.decode([97, 256, 98], skip_special=False) == "a<s>b"
    assert tokenizer.decode([97, 9999, -1, 98]) == "ab"


def test_batches_and_threads_give_the_same_ids(default_checkpoint: Checkpoint) -> None:
    tokenizer = default_checkpoint.tokenizer
    alone = [tokenizer.encode(text, control=False) for text in TEXTS]
    assert tokenizer.encode_batch(TEXTS, control=False) == alone
    got: list[list[list[int]]] = []
    threads = [
        threading.Thread(target=lambda: got.append(tokenizer.encode_batch(TEXTS, control=False)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [alone] * 4


def test_truncation_in_the_file_is_not_applied(byte_level_json: MakeJson) -> None:
    data = byte_level_json()
    rules = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    assert len(Tokenizer({**data, "truncation": rules}).encode("abcdefgh")) == 8


def test_added_tokens_must_have_the_ids_that_the_file_says(byte_level_json: MakeJson) -> None:
    data = byte_level_json()
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    data["added_tokens"] = [{"id": 300, "content": "<x>", "special": True, **flags}]
    with pytest.raises(LoadError, match="'<x>' has the id 300, but comes out as 256"):
        Tokenizer(data)
