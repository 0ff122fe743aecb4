"""Compiled constraints as bytes, for a process that has the same vocabulary."""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any


class Transfer:
    """Writes and reads. ``shared`` are objects that both sides have, in the same order: they are
    written as their number."""

    __slots__ = ("_numbers", "_shared")

    def __init__(self, shared: Sequence[object]) -> None:
        self._shared = tuple(shared)
        self._numbers = {id(each): number for number, each in enumerate(self._shared)}

    def dumps(self, value: object) -> bytes:
        """The bytes of an object."""
        file = io.BytesIO()
        pickler = _Pickler(file, protocol=5)
        pickler.numbers = self._numbers
        pickler.dump(value)
        return file.getvalue()

    def loads(self, data: bytes) -> Any:
        """The object."""
        unpickler = _Unpickler(io.BytesIO(data))
        unpickler.shared = self._shared
        return unpickler.load()


class _Pickler(pickle.Pickler):
    numbers: dict[int, int]

    def persistent_id(self, obj: Any) -> int | None:
        return self.numbers.get(id(obj))


class _Unpickler(pickle.Unpickler):
    shared: tuple[object, ...]

    def persistent_load(self, pid: int) -> object:
        return self.shared[pid]
