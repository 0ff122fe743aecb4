"""A progress bar, where one is asked for."""

from __future__ import annotations

from typing import Any


class Progress:
    """Counts on standard error; silent unless ``shown``."""

    def __init__(self, total: int, *, shown: bool) -> None:
        self._bar: Any = None
        if shown:
            from tqdm import tqdm

            self._bar = tqdm(total=total)

    def one(self) -> None:
        """One more is done."""
        if self._bar is not None:
            self._bar.update(1)

    def close(self) -> None:
        """Leaves the bar as it stands."""
        if self._bar is not None:
            self._bar.close()
