"""Regular expressions as JSON schemas mean them (ECMA-262), for Python's engine."""

from __future__ import annotations

import re
import sys
import unicodedata
import warnings
from functools import lru_cache

_SPACES = r"\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_ENDS = r"\n\r\u2028\u2029"
_OUTSIDE = {
    "d": "[0-9]",
    "D": "[^0-9]",
    "w": "[0-9A-Za-z_]",
    "W": "[^0-9A-Za-z_]",
    "s": f"[{_SPACES}]",
    "S": f"[^{_SPACES}]",
}
_INSIDE = {"d": "0-9", "w": "0-9A-Za-z_", "s": _SPACES}
_NAMED = {
    "Alphabetic": "L",
    "Letter": "L",
    "Lowercase_Letter": "Ll",
    "Uppercase_Letter": "Lu",
    "Mark": "M",
    "Number": "N",
    "Decimal_Number": "Nd",
    "digit": "Nd",
    "Punctuation": "P",
    "punct": "P",
    "Symbol": "S",
    "Separator": "Z",
    "Space_Separator": "Zs",
    "Other": "C",
    "Control": "Cc",
}
_CATEGORY = re.compile(r"[LMNPSZC][a-z]?")


def found(expression: str, text: str) -> bool:
    """Whether an expression is found in a text. ``re.error`` for one that cannot be read."""
    return compiled(expression).search(text) is not None


@lru_cache(2048)
def compiled(expression: str) -> re.Pattern[str]:
    """The expression for Python. ``re.error`` for one that cannot be read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of sets that look like those of later versions
        return re.compile(_Translation(expression).text(), re.ASCII)


class _Translation:
    """One pass over an expression."""

    __slots__ = ("_at", "_source")

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0

    def text(self) -> str:
        """The whole expression as Python writes it."""
        out = []
        while self._at < len(self._source):
            char = self._source[self._at]
            if char == "\\":
                out.append(self._escape(in_class=False))
            elif char == "[":
                out.append(self._class())
            else:
                self._at += 1
                out.append(self._plain(char))
        return "".join(out)

    def _plain(self, char: str) -> str:
        rest = self._source[self._at :]
        if char == "$":
            return r"\Z"
        if char == ".":
            return f"[^{_ENDS}]"
        if char == "{" and rest.startswith(","):
            return r"\{"
        if char == "(" and rest.startswith("?<") and rest[2:3] not in ("=", "!"):
            self._at += 2
            return "(?P<"
        return char

    def _class(self) -> str:
        source = self._source
        for empty, meaning in (("[^]", r"[\s\S]"), ("[]", "(?!)")):
            if source.startswith(empty, self._at):
                self._at += len(empty)
                return meaning
        out, negated = ["["], False
        self._at += 1
        if source.startswith("^", self._at):
            out, negated = ["[^"], True
            self._at += 1
        others: list[str] = []
        while self._at < len(source) and source[self._at] != "]":
            char = source[self._at]
            if char == "\\":
                kind = source[self._at + 1 : self._at + 2]
                if kind in ("D", "W", "S"):  # what is in none of these: said beside the class
                    others.append(_OUTSIDE[kind])
                    self._at += 2
                else:
                    out.append(self._escape(in_class=True))
            else:
                out.append("\\[" if char == "[" else char)
                self._at += 1
        if self._at >= len(source):
            raise re.error("a class is not closed")
        self._at += 1
        return _joined("".join(out) + "]", others, negated)

    def _escape(self, *, in_class: bool) -> str:
        source, at = self._source, self._at + 1
        kind = source[at : at + 1]
        self._at = at + 1
        if kind in _OUTSIDE:
            return _INSIDE[kind] if in_class else _OUTSIDE[kind]
        if kind in ("p", "P") and source.startswith("{", self._at):
            name = self._braced()
            ranges = _ranges(name, negated=kind == "P")
            return ranges if in_class else f"[{ranges}]"
        if kind == "u" and source.startswith("{", self._at):
            return _literal(int(self._braced(), 16))
        if kind == "u":
            return self._units()
        if kind == "c":
            self._at += 1
            return _literal(ord(source[at + 1 : at + 2] or "@") % 32)
        if kind == "0":
            return r"\x00"
        if kind == "k" and source.startswith("<", self._at):
            end = source.index(">", self._at) if ">" in source[self._at :] else self._at
            name, self._at = source[self._at + 1 : end], end + 1
            return f"(?P={name})"
        return f"\\{kind}"

    def _braced(self) -> str:
        end = self._source.find("}", self._at)
        if end < 0:
            raise re.error("a brace is not closed")
        name, self._at = self._source[self._at + 1 : end], end + 1
        return name

    def _units(self) -> str:
        """``\\uXXXX``, or two of them for one character."""
        pair = re.compile(r"([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
        both = pair.match(self._source, self._at)
        if both:
            self._at = both.end()
            high, low = int(both[1], 16), int(both[2], 16)
            return _literal(0x10000 + ((high - 0xD800) << 10) + low - 0xDC00)
        digits = self._source[self._at : self._at + 4]
        if not re.fullmatch("[0-9a-fA-F]{4}", digits):
            raise re.error("an escape of a character needs four digits")
        self._at += 4
        return f"\\u{digits}"


def _joined(written: str, others: list[str], negated: bool) -> str:
    """A class, and classes that it holds besides."""
    if not others:
        return written
    if not negated:
        return f"(?:{'|'.join([*others, written] if written != '[]' else others)})"
    within = [f"(?!{each})" for each in others]
    anything = r"[\s\S]"
    return f"(?:{''.join(within)}{anything if written == '[^]' else written})"


def _literal(code: int) -> str:
    return f"\\U{code:08x}"


@lru_cache(64)
def _ranges(name: str, *, negated: bool) -> str:
    """The characters of a general category, as the inside of a class."""
    name = name.rpartition("=")[2]
    wanted = _NAMED.get(name, name)
    if not _CATEGORY.fullmatch(wanted):
        raise re.error(f"characters of the kind {name!r} are not known")
    parts, start = [], None
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and (
            unicodedata.category(chr(code)).startswith(wanted) is not negated
        )
        if inside and start is None:
            start = code
        elif not inside and start is not None:
            parts.append(f"{_literal(start)}-{_literal(code - 1)}")
            start = None
    return "".join(parts)
