"""One tokenizer: ids of text, bytes of ids, and which ids text must not be able to write."""

from __future__ import annotations

import functools
import json
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers

from sapwood.constrain.vocabulary import Vocabulary

from ..errors import LoadError, RequestError
from .guard import Guard


class Tokenizer:
    """A tokenizer, made from the data of a ``tokenizer.json``.

    ``special_tokens`` are the names that a chat template may use (``bos_token``, ``eos_token``...).
    ``adds_bos`` says whether a raw prompt starts with ``bos_ids``. ``special_ids`` are left out of
    decoded text. ``control_ids`` are what a chat template writes and what ``control=False`` keeps
    text from writing: the special tokens, and added tokens in brackets such as ``<tool_call>``.

    Safe to use from several threads; encoding runs without the interpreter lock.
    """

    def __init__(
        self,
        data: Mapping[str, Any],
        *,
        special_tokens: Mapping[str, str] | None = None,
        add_bos: bool | None = None,
    ) -> None:
        self._data = data
        self._full = _load(data)
        self._lock = threading.Lock()
        self.special_tokens: dict[str, str] = dict(special_tokens or {})
        added = data.get("added_tokens") or []
        self.special_ids = frozenset(entry["id"] for entry in added if entry.get("special"))
        self.markers: dict[str, int] = {
            entry["content"]: entry["id"] for entry in added if _is_marker(entry)
        }
        self.control_ids = frozenset(self.markers.values())
        special = [name for name, token in self.markers.items() if token in self.special_ids]
        self._special_names = re.compile("|".join(map(re.escape, special)) or "(?!)")
        self._check_ids(added)
        self.bos_id = self.special_id("bos_token")
        self.eos_id = self.special_id("eos_token")
        self.bos_ids = self._prefix(add_bos)

    def __reduce__(self) -> Any:
        return _again, (self._data, self.special_tokens, self.adds_bos)

    @property
    def adds_bos(self) -> bool:
        """Whether a raw prompt gets a start token."""
        return bool(self.bos_ids)

    def special_id(self, name: str) -> int | None:
        """The id of ``bos_token``, ``eos_token``...; ``None`` where the tokenizer has none."""
        token = self.special_tokens.get(name)
        found: int | None = None if token is None else self._full.token_to_id(token)
        return found

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        """Bytes of every id, and which are special."""
        return Vocabulary.from_tokenizer_json(
            self._data, [] if self.eos_id is None else [self.eos_id]
        )

    @property
    def token_bytes(self) -> tuple[bytes | None, ...]:
        """The exact bytes of every id; ``None`` for an id that does not exist."""
        return self.vocabulary.token_bytes

    @property
    def vocab_size(self) -> int:
        """Highest token id + 1; the model may have more rows."""
        return self.vocabulary.size

    def encode(self, text: str, *, add_bos: bool | None = None, control: bool = True) -> list[int]:
        """Ids of a text. ``RequestError`` for text that is not Unicode.

        ``add_bos`` ``None`` does what the tokenizer says. With ``control=False`` no id of the text
        is one of ``control_ids``: markers written in it are ordinary characters.
        """
        return self.encode_batch([text], add_bos=add_bos, control=control)[0]

    def encode_batch(
        self, texts: Sequence[str], *, add_bos: bool | None = None, control: bool = True
    ) -> list[list[int]]:
        """Ids of each text, as ``encode`` gives them, computed in parallel."""
        prefix = self.bos_ids if add_bos is None else self._bos(add_bos)
        encoder = self._full if control else self._guard.tokenizer
        return [[*prefix, *ids] for ids in _encode(encoder, texts)]

    def encode_written(self, text: str) -> list[int]:
        """Ids of text as a model writes it: tokens such as ``<tool_call>`` are themselves, and
        special tokens' names are no special tokens."""
        return self.encode(text, add_bos=False, control=self._special_names.search(text) is None)

    def encode_chat(self, text: str, literal: str | None = None) -> list[int]:
        """Ids of a rendered chat template; no BOS is added, templates write their own.

        Markers in ``text`` become control ids. Where the client's text has one, the caller has put
        the character ``literal`` into it: it is taken out here and what it broke stays text.
        """
        return _encode(self._guard.tokenizer, [self._guard.substitute(text, literal)])[0]

    def decode(
        self, ids: Sequence[int], *, skip_special: bool = True, at_start: bool = True
    ) -> str:
        """Text of ids; incomplete UTF-8 becomes U+FFFD, ids that do not exist nothing.

        ``at_start`` says that the ids are the start of a sequence: the blank that a SentencePiece
        tokenizer puts there is dropped.
        """
        return self.decode_bytes(ids, skip_special=skip_special, at_start=at_start).decode(
            "utf-8", "replace"
        )

    def decode_bytes(
        self, ids: Sequence[int], *, skip_special: bool = True, at_start: bool = True
    ) -> bytes:
        """Like ``decode``, before the bytes are read as UTF-8."""
        table = self.token_bytes
        raw = b"".join(
            table[token] or b""
            for token in ids
            if 0 <= token < len(table) and not (skip_special and token in self.special_ids)
        )
        return raw.removeprefix(b" ") if at_start and self.adds_blank else raw

    @functools.cached_property
    def adds_blank(self) -> bool:
        """Whether encoding puts a blank before the text (SentencePiece's dummy prefix)."""
        ids = _encode(self._full, ["a"])[0]
        return b"".join(self.token_bytes[token] or b"" for token in ids) == b" a"

    @functools.cached_property
    def _cached_guard(self) -> Guard:
        return Guard(self._data, self.markers)

    @property
    def _guard(self) -> Guard:
        with self._lock:  # built once, when the first chat needs it
            return self._cached_guard

    def _check_ids(self, added: Sequence[Mapping[str, Any]]) -> None:
        """The library numbers added tokens itself; that must agree with what the files say."""
        for entry in added:
            token = self._full.token_to_id(entry["content"])
            if token != entry["id"]:
                raise LoadError(
                    f"the tokenizer's added token {entry['content']!r} has the id {entry['id']}, "
                    f"but comes out as {token}"
                )

    def _bos(self, wanted: bool) -> list[int]:
        if not wanted:
            return []
        return self.bos_ids or ([] if self.bos_id is None else [self.bos_id])

    def _prefix(self, add_bos: bool | None) -> list[int]:
        """What a raw prompt starts with: as told, or as the post-processor does it."""
        if add_bos is not None:
            return [self.bos_id] if add_bos and self.bos_id is not None else []
        plain: list[int] = self._full.encode("a", add_special_tokens=False).ids
        whole: list[int] = self._full.encode("a").ids
        for start in range(len(whole) - len(plain) + 1):
            if whole[start : start + len(plain)] == plain:
                return whole[:start]
        return []


def _load(data: Mapping[str, Any]) -> tokenizers.Tokenizer:
    try:
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(data))
    except Exception as error:  # the library raises plain Exception
        raise LoadError(f"the tokenizer cannot be built: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _encode(tokenizer: tokenizers.Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    # The batch call releases the interpreter lock; ``encode`` would hold it all along.
    try:
        encodings = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
    except (UnicodeEncodeError, TypeError) as error:
        raise RequestError("the text has a lone surrogate, which is not Unicode") from error
    return [encoding.ids for encoding in encodings]


def _is_marker(entry: Mapping[str, Any]) -> bool:
    """Whether an added token is one that a template writes, and text must not.

    Special tokens are; of the others those that look like markup (``<tool_call>``, ``[INST]``) and
    not those that are added for compression (runs of blanks, words). A single character is none:
    it could not be broken, and no tokenizer is known to have such a control token.
    """
    text = entry["content"]
    if len(text) < 2:
        return False
    if entry.get("special"):
        return True
    ends = text[0] + text[-1]
    return not any(char.isalnum() or char.isspace() for char in ends)


def _again(data: Mapping[str, Any], special_tokens: Mapping[str, str], add_bos: bool) -> Tokenizer:
    """In another process."""
    return Tokenizer(data, special_tokens=special_tokens, add_bos=add_bos)
