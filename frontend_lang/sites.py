"""Where a program asked for something."""

from __future__ import annotations

import sys
from pathlib import Path

_OWN = str(Path(__file__).parent)


def site() -> str:
    """``file:line`` of the nearest caller that is not of this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_own(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _is_own(path: str) -> bool:
    return path.startswith(_OWN) or path.endswith("contextlib.py")
