"""``sapwood schemas check``: which schemas are enforced, which are refused, and whether rightly."""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from sapwood.constrain.compile import Compiled, ConstraintCompiler
from sapwood.constrain.grammar import MatcherError
from sapwood.constrain.order import in_schema_order
from sapwood.constrain.refusal import Refusal
from sapwood.constrain.spec import JsonSchema
from sapwood.srt.checkpoint import find_model, open_checkpoint
from sapwood.srt.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What came of one schema: ``right``, ``refused``, ``wrongly_accepted``/``_rejected``."""

    id: str
    outcome: str
    pointer: str = ""
    keyword: str = ""
    reason: str = ""
    tests: tuple[int, ...] = ()
    """Which instances were judged wrongly."""

    def line(self) -> str:
        """As people read it."""
        if self.outcome == "right":
            return f"{self.id}: right"
        if self.outcome == "refused":
            return f"{self.id}: refused at {self.pointer or '/'} ({self.keyword}): {self.reason}"
        return f"{self.id}: {self.outcome}: instance {', '.join(map(str, self.tests))}"


class Checker:
    """Judges instances as the server would: token by token, through matcher and masks."""

    __slots__ = ("_compiler", "_eos_ids", "_row", "_tokenizer")

    def __init__(self, model: str | None = None) -> None:
        checkpoint = open_checkpoint(find_model(model))
        tokenizer = checkpoint.tokenizer
        vocabulary = checkpoint.vocabulary
        self._tokenizer = tokenizer
        self._eos_ids = sorted(vocabulary.eos_ids)
        self._compiler = ConstraintCompiler(vocabulary, self._encode)
        self._row = np.zeros((vocabulary.size + 31) // 32, np.int32)

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_bos=False, control=False)

    def verdict(self, name: str, schema: Any, tests: list[Mapping[str, Any]]) -> Verdict:
        """Compiles a schema and judges its instances."""
        try:
            grammar = self._compiler.compile(JsonSchema(schema=json.dumps(schema)))
        except Refusal as no:
            return Verdict(
                id=name, outcome="refused", pointer=no.pointer, keyword=no.keyword, reason=no.reason
            )
        wrong = [
            (i, test["valid"])
            for i, test in enumerate(tests)
            if self.accepts(grammar, in_schema_order(test["data"], schema)) != test["valid"]
        ]
        for outcome, valid in (("wrongly_accepted", False), ("wrongly_rejected", True)):
            found = tuple(i for i, expected in wrong if expected is valid)
            if found:
                return Verdict(id=name, outcome=outcome, tests=found)
        return Verdict(id=name, outcome="right")

    def accepts(self, grammar: Compiled, value: Any) -> bool:
        """Whether every token of the value's text is allowed, and an end token after it."""
        matcher = grammar.matcher()
        text = json.dumps(value, ensure_ascii=False)
        try:
            for token in self._encode(text):
                matcher.fill(self._row)
                if not self._allowed(token) or matcher.advance(token) != "ok":
                    return False
            matcher.fill(self._row)
        except MatcherError:
            return False
        return any(self._allowed(token) for token in self._eos_ids)

    def _allowed(self, token: int) -> bool:
        return bool(int(self._row[token // 32]) >> (token % 32) & 1)


def schemas(given: argparse.Namespace) -> int:
    """Runs ``sapwood schemas check``; 1 where a verdict is wrong, or a lone schema is refused."""
    entries = list(_entries(Path(given.file)))
    checker = Checker(given.model)
    totals = dict.fromkeys(("right", "refused", "wrongly_accepted", "wrongly_rejected"), 0)
    for name, schema, tests in entries:
        verdict = checker.verdict(name, schema, tests)
        totals[verdict.outcome] += 1
        _say(verdict, as_json=given.json)
    print(json.dumps(totals) if given.json else ", ".join(f"{n} {k}" for k, n in totals.items()))
    alone = len(entries) == 1 and not entries[0][2]
    wrong = totals["wrongly_accepted"] + totals["wrongly_rejected"]
    return int(bool(wrong or (alone and totals["refused"])))


def _say(verdict: Verdict, *, as_json: bool) -> None:
    if as_json:
        shown = {key: value for key, value in vars(verdict).items() if value not in ((), "")}
        print(json.dumps(shown, ensure_ascii=False))
    elif verdict.outcome != "right":
        print(verdict.line())
    sys.stdout.flush()


def _entries(path: Path) -> Iterator[tuple[str, Any, list[Mapping[str, Any]]]]:
    """The schemas of a file: one, or a line each."""
    try:
        with _opened(path) as file:
            text = file.read()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    if ".jsonl" not in path.suffixes:
        yield path.name, _parsed(text, str(path)), []
        return
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            entry = _parsed(line, f"{path}:{number}")
            if not isinstance(entry, dict) or "schema" not in entry:
                raise UsageError(f"{path}:{number}: a line needs a `schema`")
            yield str(entry.get("id", number)), entry["schema"], entry.get("tests", [])


def _opened(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"{where}: not JSON: {error}") from error
