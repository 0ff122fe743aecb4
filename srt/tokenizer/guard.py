"""A tokenizer whose control tokens cannot be written by any text."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from typing import Any

import tokenizers

_PRIVATE = range(0xF0000, 0xFFFFE)
"""Private-use characters: no case, no normal form other than themselves, no meaning in text."""


class Guard:
    """The same tokenizer under other names for its control tokens.

    Each marker (``<|im_end|>``) is replaced by an alias of random private-use characters, in the
    list of added tokens and in the model's vocabulary alike. Whatever a text says, it can then not
    form a control token, since nobody outside this process knows the aliases; and the template's
    own markers, exchanged for their aliases, are cut out, stripped and numbered exactly as the
    original tokenizer does it.
    """

    def __init__(self, data: Mapping[str, Any], markers: Mapping[str, int]) -> None:
        self._aliases = {marker: _alias() for marker in markers}
        longest_first = sorted(self._aliases, key=len, reverse=True)
        self._markers = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
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
        added = [
            {**entry, "content": aliases.get(entry["content"], entry["content"])}
            for entry in data.get("added_tokens") or ()
        ]
        return {**data, "added_tokens": added, "model": _renamed_model(data["model"], aliases)}


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
