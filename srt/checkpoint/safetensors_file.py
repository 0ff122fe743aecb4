"""The container format safetensors: a JSON header over one mapped file, and indexed shards.

Read here rather than by its package because numpy has no bfloat16, and a view of the file is all
that is needed.
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import LoadError
from .weights import Weight, shortened

_DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}
_INDEX = "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


def read_safetensors(path: Path) -> dict[str, Weight]:
    """Every tensor of one file, under the names in it. ``LoadError`` where the file is broken or
    stores a tensor in a type that is not supported."""
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise LoadError(f"{path} cannot be read: {error}") from error
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 + size:
        raise LoadError(f"{path} is cut off: its header reaches past its end")
    try:
        header = json.loads(data[8 : 8 + size])
        header.pop("__metadata__", None)
        return {
            name: Weight(name, *_located(name, entry, data, 8 + size, path))
            for name, entry in header.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, LoadError):
            raise
        raise LoadError(f"{path} is not a safetensors file: {error}") from error


def _located(
    name: str, entry: Mapping[str, Any], data: mmap.mmap, base: int, path: Path
) -> tuple[tuple[int, ...], str, npt.NDArray[Any]]:
    """Shape, type and view of a tensor."""
    dtype = entry["dtype"]
    if dtype not in _DTYPES:
        raise LoadError(f"tensor {name} is stored as {dtype}; supported are {', '.join(_DTYPES)}")
    shape = tuple(int(size) for size in entry["shape"])
    start, stop = entry["data_offsets"]
    count = math.prod(shape)
    if start < 0 or base + stop > len(data):
        raise LoadError(f"{path} is cut off: tensor {name} reaches past its end")
    if stop - start != count * np.dtype(_DTYPES[dtype]).itemsize:
        raise LoadError(f"{path}: tensor {name} has {stop - start} bytes, not those of its shape")
    stored: npt.NDArray[Any] = np.frombuffer(data, _DTYPES[dtype], count, base + start)
    return shape, dtype, stored.reshape(shape)


def read_directory(folder: Path) -> dict[str, Weight]:
    """Every tensor of a checkpoint directory: of its index's shards, or of its only file."""
    index = folder / _INDEX
    if index.is_file():
        return _read_shards(folder, index)
    single = folder / "model.safetensors"
    if single.is_file():
        # Copies in another layout (consolidated.safetensors) go by other names.
        surplus = [path.name for path in sorted(folder.glob("model-*.safetensors"))]
        if surplus:
            raise LoadError(
                f"{folder} has model.safetensors and, in no index, {shortened(surplus)}"
            )
        return read_safetensors(single)
    found = sorted(folder.glob("*.safetensors"))
    if len(found) == 1:
        return read_safetensors(found[0])
    if found:
        raise LoadError(f"{folder} has several .safetensors files and no {_INDEX}")
    pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if pickles:
        raise LoadError(
            f"{folder} has its weights only as pickle files ({shortened(pickles)}), which can run "
            f"code when they are read; convert them to safetensors"
        )
    raise LoadError(f"{folder} has no .safetensors file")


def _read_shards(folder: Path, index: Path) -> dict[str, Weight]:
    try:
        owners: dict[str, str] = dict(json.loads(index.read_bytes())["weight_map"])
    except (ValueError, KeyError, TypeError) as error:
        raise LoadError(f"{index} is not an index of shards: {error}") from error
    shards = sorted(set(owners.values()))
    if any(Path(shard).name != shard for shard in shards):
        raise LoadError(f"{index} names a file outside its directory")
    missing = [shard for shard in shards if not (folder / shard).is_file()]
    if missing:
        raise LoadError(f"shards are missing from {folder}: {shortened(missing)}")
    weights: dict[str, Weight] = {}
    for shard in shards:
        for name, weight in read_safetensors(folder / shard).items():
            if owners.get(name) != shard:
                raise LoadError(
                    f"{shard} has the tensor {name}, which {_INDEX} does not place there"
                )
            weights[name] = weight
    absent = [name for name in owners if name not in weights]
    if absent:
        raise LoadError(f"tensors are missing from their shards: {shortened(absent)}")
    return weights
