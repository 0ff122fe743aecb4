"""A tokenizer rebuilt from GGUF metadata, as the data of a ``tokenizer.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import LoadError
from .tokenizer import Tokenizer

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
_PREFIX = "tokenizer.ggml."

# GPT-4's rule, of which Llama 3 and Qwen 2 differ in how many digits make a piece.
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{DIGITS}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """``LoadError`` for a model or pre-tokenizer that is not known: a wrong one would still run,
    and give the model worse tokens than it was trained with."""
    model = metadata.get(_PREFIX + "model")
    tokens: list[str] = metadata.get(_PREFIX + "tokens") or []
    if not tokens:
        raise LoadError("the GGUF file has no tokenizer")
    types: list[int] = metadata.get(_PREFIX + "token_type") or [_NORMAL] * len(tokens)
    if len(types) != len(tokens):
        raise LoadError(f"the GGUF tokenizer has {len(tokens)} tokens and {len(types)} types")
    if model == "gpt2":
        data, adds_bos = _byte_level(metadata, tokens, types)
    elif model == "llama":
        data, adds_bos = _sentencepiece(metadata, tokens, types), True
    else:
        raise LoadError(f"GGUF tokenizer model {model!r} is not supported; it may be gpt2 or llama")
    data["added_tokens"] = _added(tokens, types)
    special = _special_tokens(metadata, tokens)
    adds_bos = bool(metadata.get(_PREFIX + "add_bos_token", adds_bos))
    return Tokenizer(data, special_tokens=special, add_bos=adds_bos and "bos_token" in special)


def _byte_level(
    metadata: Mapping[str, Any], tokens: Sequence[str], types: Sequence[int]
) -> tuple[dict[str, Any], bool]:
    """GPT-2's kind of byte-level BPE, and whether it adds BOS unless told otherwise."""
    name = metadata.get(_PREFIX + "pre")
    if not isinstance(name, str) or name not in _PRE_TOKENIZERS:
        raise LoadError(
            f"GGUF pre-tokenizer {name!r} is not supported; "
            f"supported are {', '.join(_PRE_TOKENIZERS)}"
        )
    data = {
        "version": "1.0",
        "normalizer": {"type": "NFC"} if name == "qwen2" else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _PRE_TOKENIZERS[name]},
        "decoder": {"type": "ByteLevel", **_BYTE_LEVEL},
        "post_processor": None,
        "model": {
            "type": "BPE",
            "vocab": _numbered(tokens, types),
            "merges": metadata.get(_PREFIX + "merges") or [],
            "ignore_merges": name == "llama-bpe",
        },
    }
    return data, bool(name == "llama-bpe")


def _sentencepiece(
    metadata: Mapping[str, Any], tokens: Sequence[str], types: Sequence[int]
) -> dict[str, Any]:
    """SentencePiece BPE: pieces are joined in the order of their scores, bytes are the fallback.

    Before each stretch of text between control tokens comes a blank, as llama.cpp has it.
    """
    scores: list[float] = metadata.get(_PREFIX + "scores") or []
    if len(scores) != len(tokens):
        raise LoadError(f"the GGUF tokenizer has {len(tokens)} tokens and {len(scores)} scores")
    blank = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    prefix = metadata.get(_PREFIX + "add_space_prefix", True)
    unknown = metadata.get(_PREFIX + "unknown_token_id")
    decoders: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    normalizers = [{"type": "Prepend", "prepend": "▁"}, blank] if prefix else [blank]
    return {
        "version": "1.0",
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "post_processor": None,
        "model": {
            "type": "BPE",
            "vocab": _numbered(tokens, types),
            "merges": merges_by_score(tokens, scores, types),
            "unk_token": None if unknown is None else tokens[unknown],
            "byte_fallback": True,
            "fuse_unk": True,
        },
    }


def merges_by_score(
    tokens: Sequence[str], scores: Sequence[float], types: Sequence[int]
) -> list[list[str]]:
    """The merge list that joins pieces as SentencePiece does: highest score of the result first.

    Every way to cut a piece in two known pieces is a merge; only normal pieces take part.
    """
    known = {token: i for i, token in enumerate(tokens) if types[i] in (_NORMAL, _USER_DEFINED)}
    merges = [
        (-scores[i], known[piece[:cut]], known[piece[cut:]], piece[:cut], piece[cut:])
        for piece, i in known.items()
        if types[i] == _NORMAL
        for cut in range(1, len(piece))
        if piece[:cut] in known and piece[cut:] in known
    ]
    return [[left, right] for _, _, _, left, right in sorted(merges)]


def _numbered(tokens: Sequence[str], types: Sequence[int]) -> dict[str, int]:
    """The vocabulary. Unused ids, which pad it to a round size, are no tokens."""
    vocab: dict[str, int] = {}
    for i, token in enumerate(tokens):
        if types[i] != _UNUSED and vocab.setdefault(token, i) != i:
            raise LoadError(f"the GGUF tokenizer has the token {token!r} twice")
    return vocab


def _added(tokens: Sequence[str], types: Sequence[int]) -> list[dict[str, Any]]:
    """Tokens that are matched as a whole before anything else."""
    return [
        {
            "id": i,
            "content": token,
            "special": types[i] != _USER_DEFINED,
            "normalized": False,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
        }
        for i, token in enumerate(tokens)
        if types[i] in (_UNKNOWN, _CONTROL, _USER_DEFINED) and token
    ]


def _special_tokens(metadata: Mapping[str, Any], tokens: Sequence[str]) -> dict[str, str]:
    names = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}
    found = {}
    for key, name in names.items():
        token = metadata.get(f"{_PREFIX}{key}_token_id")
        if token is None:
            continue
        if not 0 <= token < len(tokens):
            raise LoadError(f"{_PREFIX}{key}_token_id is {token}; there are {len(tokens)} tokens")
        found[f"{name}_token"] = tokens[token]
    return found


_BYTE_LEVEL = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def _split(digits: str) -> list[dict[str, Any]]:
    pattern = {"Regex": _SPLIT.replace("{DIGITS}", digits)}
    return [
        {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", **_BYTE_LEVEL, "use_regex": False},
    ]


_PRE_TOKENIZERS: Mapping[str, list[dict[str, Any]]] = {
    "smollm": [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", **_BYTE_LEVEL},
    ],
    "llama-bpe": _split("{1,3}"),
    "qwen2": _split(""),
}
