"""Masks that are kept are those that would be computed, and only so many are."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from sapwood.constrain import grammar, mask_cache
from sapwood.constrain.compile import ConstraintCompiler
from sapwood.constrain.mask_cache import MaskCache
from sapwood.constrain.matcher import mask_words
from sapwood.constrain.spec import JsonSchema
from sapwood.srt.checkpoint import Checkpoint

SCHEMAS: list[Any] = [
    {"type": "object", "properties": {"a": {"type": "string", "pattern": "b+"}, "c": {}}},
    {"type": "object", "properties": {"a": {"type": "string", "maxLength": 4}}},
    {"type": "array", "items": {"enum": ["x", 1, None]}, "minItems": 2, "uniqueItems": True},
]


def _compiler(checkpoint: Checkpoint) -> ConstraintCompiler:
    def encode(text: str) -> list[int]:
        return checkpoint.tokenizer.encode(text, add_bos=False, control=False)

    return ConstraintCompiler(checkpoint.vocabulary, encode)


def test_the_same_masks_as_without(
    default_checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammar, "WORTH_KEEPING", -1.0)
    with_cache, without = _compiler(default_checkpoint), _compiler(default_checkpoint)
    rows = np.zeros((2, mask_words(default_checkpoint.vocabulary.size) + 1), np.int32)
    rng = random.Random(0)
    hits = 0
    get = MaskCache.get

    def counted(cache: MaskCache, place: int) -> Any:
        nonlocal hits
        found = get(cache, place)
        hits += found is not None
        return found

    for schema in SCHEMAS:
        constraint = JsonSchema(schema=json.dumps(schema))
        ours, fresh = with_cache.compile(constraint), without.compile(constraint)
        for _ in range(12):
            ours_now, fresh_now = ours.matcher(), fresh.matcher()
            for step in range(12):
                rows[:] = -1
                monkeypatch.setattr(MaskCache, "get", counted)
                ours_now.fill(rows[0])
                monkeypatch.setattr(MaskCache, "get", lambda cache, place: None)
                fresh_now.fill(rows[1])
                assert (rows[0] == rows[1]).all()
                allowed = np.flatnonzero(np.unpackbits(rows[0].view(np.uint8), bitorder="little"))
                # The first few, so that outputs begin alike, and then part.
                token = int(rng.choice(allowed[:3]))
                assert ours_now.advance(token, 500) == fresh_now.advance(token, 500)
                if step % 5 == 4:
                    back = rng.randint(0, 2)
                    ours_now.rollback(back)
                    fresh_now.rollback(back)
                    ours_now, fresh_now = ours_now.fork(), fresh_now.fork()
                if ours_now.is_complete:
                    break
    assert hits > 20


def test_only_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mask_cache, "MAX_BYTES", 3 * 8)
    cache = MaskCache(words=2)
    for place in range(3):
        cache.put(place, np.full(2, place, np.int32))
    kept = cache.get(0)
    assert kept is not None
    assert kept.tolist() == [0, 0]
    cache.put(3, np.full(2, 3, np.int32))
    assert cache.get(1) is None
    for place in (0, 2, 3):
        mask = cache.get(place)
        assert mask is not None
        assert mask.tolist() == [place, place]


def test_outputs_of_two_constraints_do_not_start_at_one_place() -> None:
    cache = MaskCache(words=2)
    assert len({cache.start() for _ in range(1000)}) == 1000
