"""A tokenizer whose control tokens cannot be written by any text."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers

_PRIVATE = range(0xF0000, 0xFFFFE)
"""Private-use characters: no case, no normal form other than themselves, no meaning in text."""


class Guard:
    """The same tokenizer under other names for its control tokens.

    Each marker (``<|im_end|>``) is replaced by an alias of random private-use characters, in the
    list of added tokens and in the model's vocabulary alike. Whatever a text says, it can then not
    form a control token, since nobody outside this process knows the aliases; and the template's
    own markers, exchanged for their aliases, are cut out, stripped and numbered as the original
    tokenizer does it. (Only a marker that is to be looked for in normalised text is taken as it is
    written: a lower-casing tokenizer would have found it in capitals too.)
    """

    def __init__(self, data: Mapping[str, Any], markers: Mapping[str, int]) -> None:
        self._aliases = {marker: _alias() for marker in markers}
        self._markers = _pattern(data.get("added_tokens") or (), self._aliases)
        self.tokenizer = tokenizers.Tokenizer.from_str(json.dumps(self._renamed(data)))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()

    def substitute(self, text: str, literal: str | None) -> str:
        """Exchanges markers for aliases, then takes out ``literal``, a character that no alias
        has (any in the Basic Multilingual Plane)."""
        text = self._markers.sub(lambda match: self._aliases[match[0]], text)
        return text if literal is None else text.replace(literal, "")

    def _renamed(self, data: Mapping[str, Any]) -> dict[str, Any]:
        aliases = self._aliases
        plain = {"single_word": False, "normalized": False}
        added = [
            {**entry, **plain, "content": aliases[entry["content"]]}
            if entry["content"] in aliases
            else entry
            for entry in data.get("added_tokens") or ()
        ]
        return {**data, "added_tokens": added, "model": _renamed_model(data["model"], aliases)}


def _pattern(added: Sequence[Mapping[str, Any]], aliases: Mapping[str, str]) -> re.Pattern[str]:
    """Finds markers as the tokenizer does: the leftmost, of those the longest; some of them only
    where they do not touch a word."""
    parts = []
    for entry in sorted(added, key=lambda entry: -len(entry["content"])):
        if entry["content"] in aliases:
            literal = re.escape(entry["content"])
            alone = bool(entry.get("single_word"))
            parts.append(rf"(?<!\w){literal}(?!\w)" if alone else literal)
    return re.compile("|".join(parts) or r"(?!)")


def _renamed_model(model: Mapping[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    renamed = dict(model)
    vocab = model["vocab"]
    if isinstance(vocab, Mapping):
        renamed["vocab"] = {aliases.get(piece, piece): token for piece, token in vocab.items()}
    else:
        renamed["vocab"] = [[aliases.get(piece, piece), score] for piece, score in vocab]
    unknown = model.get("unk_token")
    if isinstance(unknown, str) and unknown in aliases:
        renamed["unk_token"] = aliases[unknown]
    if "merges" in model:
        renamed["merges"] = [merge for merge in model["merges"] if not _touches(merge, aliases)]
    return renamed


def _touches(merge: str | list[str], aliases: Mapping[str, str]) -> bool:
    """Whether a merge makes a control token, or needs one."""
    left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
    return left in aliases or right in aliases or left + right in aliases


def _alias() -> str:
    return "".join(chr(_PRIVATE[secrets.randbelow(len(_PRIVATE))]) for _ in range(10))
