"""Which options of a choice a text may still become."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence


class ChoiceReader:
    """A beginning of one of some texts. See ``ending_matcher.Reader``.

    The options are sorted: those that begin as the text does are next to each other.
    """

    __slots__ = ("_options", "_shortest", "_size", "_start", "_stop", "exacting")

    def __init__(self, options: Sequence[bytes]) -> None:
        self._options = sorted(options)
        self._start, self._stop, self._size = 0, len(self._options), 0
        self._shortest = min(self._options, key=len)
        self.exacting = False

    def feed(self, data: bytes) -> ChoiceReader:
        """After more text; ``ValueError`` where no option goes on so."""
        size = self._size + len(data)
        text = self._options[self._start][: self._size] + data
        start = bisect_left(self._options, text, self._start, self._stop)
        stop = self._stop
        # 0xFF is no byte of UTF-8: beyond all options that begin with the text.
        stop = bisect_left(self._options, text + b"\xff", start, stop)
        if start == stop:
            raise ValueError(f"no option goes on with {data!r}")
        other = ChoiceReader.__new__(ChoiceReader)
        other._options, other._size = self._options, size
        other._start, other._stop = start, stop
        kept = self._shortest.startswith(text)
        other._shortest = self._shortest if kept else min(self._options[start:stop], key=len)
        other.exacting = False
        return other

    def endings(self) -> Iterator[bytes]:
        """The rest of the shortest option."""
        yield self._shortest[self._size :]

    def may_end(self) -> bool:
        """Whether the text is an option."""
        return len(self._options[self._start]) == self._size

    @property
    def may_be_cut(self) -> bool:
        """There is no free text."""
        return False

    def keeps(self, ending: bytes, before: object) -> bool:
        """Only what ``feed`` kept."""
        return False
