"""Tokenizers and chat templates of checkpoint directories."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sapwood.srt.checkpoint import open_checkpoint
from sapwood.srt.errors import LoadError
from sapwood.srt.tokenizer.files import (
    eos_from_files,
    templates_from_files,
    tokenizer_from_files,
)

MakeJson = Callable[..., dict[str, Any]]


def write(folder: Path, **files: Any) -> Path:
    """Files by name; ``_`` stands for the dot. Text as it is, the rest as JSON."""
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def test_special_tokens_as_text_and_as_objects(tmp_path: Path, byte_level_json: MakeJson) -> None:
    write(
        tmp_path,
        tokenizer__json=byte_level_json(special=("<s>", "</s>")),
        tokenizer_config__json={
            "bos_token": "<s>",
            "eos_token": {"content": "</s>", "lstrip": False},
            "add_bos_token": True,
            "clean_up_tokenization_spaces": True,
        },
    )
    tokenizer = tokenizer_from_files(tmp_path)
    assert tokenizer.special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}
    assert tokenizer.encode("a , b") == [256, *b"a , b"]
    assert tokenizer.decode(tokenizer.encode("a , b")) == "a , b", "blanks are not cleaned up"
    assert eos_from_files(tmp_path) == 257


def test_special_tokens_of_the_older_map(tmp_path: Path, byte_level_json: MakeJson) -> None:
    write(
        tmp_path,
        tokenizer__json=byte_level_json(special=("<s>",)),
        special_tokens_map__json={"eos_token": "<s>"},
    )
    assert tokenizer_from_files(tmp_path).eos_id == 256
    assert eos_from_files(tmp_path) == 256


def test_tokens_that_only_the_configuration_adds(tmp_path: Path, byte_level_json: MakeJson) -> None:
    """Listed in ``tokenizer_config.json``, or an end token that is a mere piece."""
    data = byte_level_json(special=("<s>", "<t>", "</s>"))
    data["added_tokens"] = []
    write(
        tmp_path,
        tokenizer__json=data,
        tokenizer_config__json={
            "eos_token": "</s>",
            "added_tokens_decoder": {"256": {"content": "<s>", "special": True}},
        },
    )
    tokenizer = tokenizer_from_files(tmp_path)
    assert tokenizer.special_ids == {256, 258}
    assert tokenizer.encode("<s><t></s>") == [256, *b"<t>", 258]
    assert eos_from_files(tmp_path) == 258


def test_templates_in_all_places(tmp_path: Path) -> None:
    assert templates_from_files(tmp_path) == {}
    write(tmp_path, tokenizer_config__json={"chat_template": "one"})
    assert templates_from_files(tmp_path) == {"default": "one"}
    named = [{"name": "default", "template": "two"}, {"name": "tool_use", "template": "tools"}]
    write(tmp_path, tokenizer_config__json={"chat_template": named})
    assert templates_from_files(tmp_path) == {"default": "two", "tool_use": "tools"}
    write(tmp_path, chat_template__json={"chat_template": "three"})
    assert templates_from_files(tmp_path)["default"] == "three"
    write(tmp_path, chat_template__jinja="four")
    assert templates_from_files(tmp_path) == {"default": "four", "tool_use": "tools"}
    (tmp_path / "additional_chat_templates").mkdir()
    write(tmp_path / "additional_chat_templates", rag__jinja="five")
    assert templates_from_files(tmp_path)["rag"] == "five"
    write(tmp_path, chat_template__json={"chat_template": [1]})
    with pytest.raises(LoadError, match="chat_template"):
        templates_from_files(tmp_path)


def test_directories_without_a_usable_tokenizer(
    write_hf: Callable[..., Path], byte_level_json: MakeJson
) -> None:
    folder = write_hf()
    checkpoint = open_checkpoint(folder)
    assert checkpoint.chat_template is None
    with pytest.raises(LoadError, match=r"has no tokenizer\.json"):
        _ = checkpoint.tokenizer
    (folder / "tokenizer.model").write_bytes(b"\n")
    with pytest.raises(LoadError, match=r"tokenizer\.model is of another kind"):
        tokenizer_from_files(folder)
    write(folder, tokenizer__json={"model": {}})
    with pytest.raises(LoadError, match="is not a tokenizer"):
        tokenizer_from_files(folder)
    write(folder, tokenizer__json={"model": {"type": "Magic", "vocab": {}}})
    with pytest.raises(LoadError, match="cannot be built"):
        tokenizer_from_files(folder)
    write(folder, tokenizer__json={**byte_level_json(), "added_tokens": [{"id": 1}]})
    with pytest.raises(LoadError, match="malformed"):
        tokenizer_from_files(folder)
    write(folder, tokenizer__json=byte_level_json())
    with pytest.raises(LoadError, match=r"ids up to 255.*ends at 63"):
        _ = open_checkpoint(folder).tokenizer


def test_files_that_transformers_writes(tmp_path: Path, byte_level_json: MakeJson) -> None:
    transformers = pytest.importorskip("transformers")
    import tokenizers

    data = byte_level_json(("h e",), special=("<s>", "</s>"))
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(json.dumps(data)),
        bos_token="<s>",
        eos_token="</s>",
    )
    theirs.chat_template = "{{ messages[0]['content'] }}"
    theirs.save_pretrained(tmp_path)
    ours = tokenizer_from_files(tmp_path)
    assert ours.encode("<s>hello</s>") == theirs("<s>hello</s>").input_ids
    assert (ours.bos_id, ours.eos_id) == (theirs.bos_token_id, theirs.eos_token_id)
    assert templates_from_files(tmp_path) == {"default": theirs.chat_template}
