"""``python serve_fakes.py JSON``: a server of the fake programs; JSON is its configuration."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from sapwood.srt.config import ServerConfig
from sapwood.srt.errors import LoadError, UsageError
from sapwood.srt.launch import serve

PROGRAMS = {
    "worker": "fake_worker",
    "detokenizer": "fake_detokenizer",
    "front": "fake_front",
}

if __name__ == "__main__":
    config = msgspec.json.decode(sys.argv[1], type=ServerConfig)
    try:
        sys.exit(serve(config, PROGRAMS, lambda config: Path("none")))
    except (LoadError, UsageError) as error:
        sys.exit(f"sapwood: {error}")
