"""Whether a child still lives, judged from its beats: pure, with times handed in."""

from __future__ import annotations

from .lifeline import BEAT_SECONDS

LATE = 4 * BEAT_SECONDS
"""A parent that wakes up so many seconds late was itself stopped; its clock proves nothing."""


class Watch:
    """One child's signs of life. Times are seconds of the monotonic clock.

    ``silent`` is how long a child may give no sign at all (its process is stopped or starved),
    ``stuck`` how long one piece of work may take once it is ready.
    """

    __slots__ = ("_checked", "_heard", "_ready", "_silent", "_stuck", "_stuck_limit")

    def __init__(self, now: float, *, silent: float, stuck: float) -> None:
        self._silent = silent
        self._stuck_limit = stuck
        self._heard = now
        self._checked = now
        self._ready = False
        self._stuck = 0.0

    def beat(self, now: float, stuck: float) -> None:
        """The child gave a sign of life."""
        self._heard = now
        self._stuck = stuck

    def ready(self) -> None:
        """The child has started; from now on its work is timed."""
        self._ready = True

    def verdict(self, now: float) -> str | None:
        """What is wrong with the child, or ``None``. To be asked about every ``BEAT_SECONDS``."""
        late, self._checked = now - self._checked > LATE, now
        if late:  # we were stopped with it (Ctrl-Z): count anew
            self._heard = now
            return None
        if now - self._heard > self._silent:
            return f"it gave no sign of life for {self._silent:g} s"
        if self._ready and self._stuck > self._stuck_limit:
            return f"it has been in one step for more than {self._stuck_limit:g} s"
        return None
