"""The tokenizer and the chat templates of a Hugging Face checkpoint directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import LoadError
from .tokenizer import Tokenizer

_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")


def read_json(path: Path) -> Mapping[str, Any]:
    """A JSON object; empty where the file does not exist, ``LoadError`` where it is broken."""
    if not path.is_file():
        return {}
    try:
        data = json.loads(path.read_bytes())
    except ValueError as error:
        raise LoadError(f"{path} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise LoadError(f"{path} does not hold a JSON object")
    return data


def tokenizer_from_files(folder: Path) -> Tokenizer:
    """Reads ``tokenizer.json``, ``tokenizer_config.json`` and ``special_tokens_map.json``."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        old = [name for name in ("tokenizer.model", "vocab.json") if (folder / name).is_file()]
        hint = f"; {old[0]} is of another kind, which transformers converts" if old else ""
        raise LoadError(f"{folder} has no tokenizer.json{hint}")
    data = dict(read_json(path))
    if not isinstance(data.get("model"), dict) or "vocab" not in data["model"]:
        raise LoadError(f"{path} is not a tokenizer")
    config = read_json(folder / "tokenizer_config.json")
    special = _special_tokens(folder, config)
    try:
        data["added_tokens"] = _added(data, config, special)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise LoadError(f"the added tokens of {folder} are malformed: {error!r}") from error
    adds_bos = config.get("add_bos_token")
    return Tokenizer(
        data,
        special_tokens=special,
        add_bos=adds_bos if isinstance(adds_bos, bool) and "bos_token" in special else None,
    )


def eos_from_files(folder: Path) -> int | None:
    """The id of the tokenizer's end token, without building the tokenizer."""
    config = read_json(folder / "tokenizer_config.json")
    text = _special_tokens(folder, config).get("eos_token")
    data = read_json(folder / "tokenizer.json")
    if text is None or not data:
        return None
    for entry in _added(data, config, {"eos_token": text}):
        if entry["content"] == text:
            return int(entry["id"])
    return None


def templates_from_files(folder: Path) -> Mapping[str, str]:
    """Chat templates by name; a file of its own goes before ``tokenizer_config.json``."""
    found = _named(read_json(folder / "tokenizer_config.json").get("chat_template"))
    found |= _named(read_json(folder / "chat_template.json").get("chat_template"))
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        found[path.stem] = path.read_text(encoding="utf-8")
    single = folder / "chat_template.jinja"
    if single.is_file():
        found["default"] = single.read_text(encoding="utf-8")
    return found


def _named(template: Any) -> dict[str, str]:
    """One template, a list of named ones, or an object of them."""
    if template is None:
        return {}
    if isinstance(template, str):
        return {"default": template}
    if isinstance(template, Mapping):
        template = [{"name": name, "template": text} for name, text in template.items()]
    try:
        return {str(entry["name"]): str(entry["template"]) for entry in template}
    except (TypeError, KeyError) as error:
        raise LoadError("the chat_template is neither text nor a list of named texts") from error


def _special_tokens(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for source in (config, read_json(folder / "special_tokens_map.json")):
        for name in _NAMES:
            token = source.get(name)
            text = token.get("content") if isinstance(token, Mapping) else token
            if isinstance(text, str):
                found.setdefault(name, text)
    return found


def _added(
    data: Mapping[str, Any], config: Mapping[str, Any], special: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The added tokens of all files, by id.

    ``tokenizer_config.json`` may list some that ``tokenizer.json`` has only as pieces, and the
    end token must be one even where neither lists it.
    """
    entries = {entry["content"]: dict(entry) for entry in data.get("added_tokens") or ()}
    for number, entry in (config.get("added_tokens_decoder") or {}).items():
        known = entries.setdefault(entry["content"], {**_FLAGS, **entry, "id": int(number)})
        known["special"] = known["special"] or bool(entry.get("special"))
    vocab = data["model"]["vocab"]
    for text in special.values():
        if text not in entries and isinstance(vocab, Mapping) and text in vocab:
            entries[text] = {**_FLAGS, "id": vocab[text], "content": text, "special": True}
    return sorted(entries.values(), key=lambda entry: int(entry["id"]))


_FLAGS = {
    "special": False,
    "normalized": False,
    "single_word": False,
    "lstrip": False,
    "rstrip": False,
}
