"""The container format GGUF: key-value metadata and a table of tensors over one mapped file.

Read from the format's description. The ``gguf`` package's reader builds a numpy view for every
string, which takes seconds for a vocabulary and would be paid for in every process; its tables of
types and its dequantisation are used as they are.
"""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ..errors import LoadError

SUPPORTED_TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K")
_PLAIN = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q"}
_SCALARS[12] = "d"
_STRING, _ARRAY = 8, 9
_MAX_DIMS = 4

T = TypeVar("T")


class GgufTensor(NamedTuple):
    """Where a tensor lies. ``shape`` is row-major; ``dtype`` one of ``SUPPORTED_TYPES``."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    start: int
    nbytes: int


class GgufFile:
    """An open GGUF file: ``metadata`` by key, ``tensors`` by name. ``LoadError`` where it is broken
    or has a tensor type that is not supported."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise LoadError(f"{path} cannot be read: {error}") from error
        try:
            self._read()
        except (struct.error, UnicodeDecodeError, IndexError) as error:
            raise LoadError(f"{path} is not a complete GGUF file: {error}") from error

    def _read(self) -> None:
        cursor = _Cursor(self._map)
        if self._map[:4] != b"GGUF":
            raise LoadError(f"{self.path} is not a GGUF file")
        cursor.at = 4
        version = cursor.scalar("I")
        if version not in (2, 3):
            raise LoadError(
                f"{self.path} has GGUF version {version} (or is big-endian); 2 and 3 are supported"
            )
        n_tensors, n_keys = cursor.scalar("Q"), cursor.scalar("Q")
        self.metadata: dict[str, Any] = {}
        for _ in range(n_keys):
            key = cursor.string()
            self.metadata[key] = cursor.value(cursor.scalar("I"))
        infos = [_tensor_info(cursor) for _ in range(n_tensors)]
        if self.get("split.count", int, 1) > 1:
            raise LoadError(f"{self.path} is a part of a split model; join its parts first")
        alignment = self.get("general.alignment", int, 32)
        if alignment < 1:
            raise LoadError(f"{self.path}: general.alignment is {alignment}")
        base = -(-cursor.at // alignment) * alignment
        self.tensors: dict[str, GgufTensor] = {}
        for name, shape, kind, offset in infos:
            if name in self.tensors:
                raise LoadError(f"{self.path} has two tensors of the name {name}")
            self.tensors[name] = self._tensor(name, shape, kind, base + offset)

    def _tensor(self, name: str, shape: tuple[int, ...], kind: int, start: int) -> GgufTensor:
        import gguf

        try:
            quant = gguf.GGMLQuantizationType(kind)
        except ValueError:
            raise LoadError(f"tensor {name} has the unknown GGUF type {kind}") from None
        if quant.name not in SUPPORTED_TYPES:
            raise LoadError(
                f"tensor {name} has the type {quant.name}; "
                f"supported are {', '.join(SUPPORTED_TYPES)}"
            )
        block, size = gguf.GGML_QUANT_SIZES[quant]
        if not shape or min(shape) < 1 or shape[-1] % block:
            raise LoadError(f"tensor {name} has the shape {list(shape)}, not whole {quant.name}")
        nbytes = math.prod(shape) // block * size
        if start + nbytes > len(self._map):
            raise LoadError(f"{self.path} is cut off: tensor {name} reaches past its end")
        return GgufTensor(name, shape, str(quant.name), start, nbytes)

    def stored(self, tensor: GgufTensor) -> npt.NDArray[Any]:
        """A read-only view of a tensor in the file: its elements, or uint8[rows, bytes]."""
        kind = _PLAIN.get(tensor.dtype, np.uint8)
        count = tensor.nbytes // np.dtype(kind).itemsize
        flat: npt.NDArray[Any] = np.frombuffer(self._map, kind, count, tensor.start)
        return flat.reshape(*tensor.shape[:-1], -1)

    def size(self, key: str, default: int | None = None) -> int:
        """A metadata value that counts something: an integer from 1."""
        value = self.get(key, int, default)
        if value < 1:
            raise LoadError(f"{self.path}: {key} is {value}; it must be 1 or more")
        return value

    def get(self, key: str, kind: type[T], default: T | None = None) -> T:
        """A metadata value of a known type; ``LoadError`` where it is missing or of another."""
        value = self.metadata.get(key, default)
        if value is None:
            raise LoadError(f"{self.path} lacks the metadata {key}")
        if kind is float and isinstance(value, int):
            value = float(value)
        if not isinstance(value, kind):
            raise LoadError(f"{self.path}: {key} is {value!r}, not of type {kind.__name__}")
        return value


class _Cursor:
    """Reads values one after another."""

    __slots__ = ("_data", "at")

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self.at = 0

    def scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self._data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def string(self) -> str:
        size = self.scalar("Q")
        raw = self._data[self.at : self.at + size]
        if len(raw) != size:
            raise IndexError("a string reaches past its end")
        self.at += size
        return raw.decode()

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self._array(self.scalar("I"), self.scalar("Q"))
        if kind not in _SCALARS:
            raise LoadError(f"a metadata value has the unknown GGUF type {kind}")
        return self.scalar(_SCALARS[kind])

    def _array(self, kind: int, count: int) -> list[Any]:
        if kind in _SCALARS:
            size = count * struct.calcsize("<" + _SCALARS[kind])
            if self.at + size > len(self._data):
                raise IndexError("an array reaches past its end")
            values = list(struct.unpack_from(f"<{count}{_SCALARS[kind]}", self._data, self.at))
            self.at += size
            return values
        if kind == _STRING:
            return self._strings(count)
        return [self.value(kind) for _ in range(count)]

    def _strings(self, count: int) -> list[str]:
        # The hot loop of opening a file: hundreds of thousands of tokens and merges.
        data, at, size_at = self._data, self.at, struct.Struct("<Q").unpack_from
        strings = []
        for _ in range(count):
            (size,) = size_at(data, at)
            start, at = at + 8, at + 8 + size
            strings.append(data[start:at].decode())
        if at > len(data):
            raise IndexError("a string reaches past its end")
        self.at = at
        return strings


def _tensor_info(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    """Name, row-major shape, type and offset; GGUF lists dimensions fastest first."""
    name = cursor.string()
    n_dims = cursor.scalar("I")
    if n_dims > _MAX_DIMS:
        raise LoadError(f"tensor {name} has {n_dims} dimensions")
    dims = [cursor.scalar("Q") for _ in range(n_dims)]
    return name, tuple(reversed(dims)), cursor.scalar("I"), cursor.scalar("Q")
