"""Texts of strings and numbers: how one that has been begun can end, shortest first."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator
from fractions import Fraction

from .formats import PATTERNS, holds
from .keywords import JUDGED_FORMATS
from .shape import Shape
from .text_pattern import Pattern, pattern, shortest

_ESCAPES = ("n", '"', "\\", "t", "r", "b", "f", "/")
_VARIANTS = "0123456789abcdefghijklmnopqrstuvwxyz"


def string_endings(shape: Shape, begun: str, escape: int = 0) -> Iterator[str]:
    """JSON texts that end an open string, its quote included.

    ``begun`` is what follows the opening quote, ``escape`` as ``JsonText`` has it.
    """
    for finish in _escape_endings(begun, escape):
        try:
            content = json.loads(f'"{begun}{finish}"')
        except ValueError:
            continue
        found = False
        for text in _content_endings(shape, content):
            found = True
            yield f'{finish}{json.dumps(text, ensure_ascii=False)[1:-1]}"'
        if found:
            return


def _escape_endings(begun: str, escape: int) -> Iterator[str]:
    if not escape:
        yield ""
    elif escape < 0:
        yield from _ESCAPES
    else:
        have = 4 - escape
        for digits in ("0001", "000b", "001f", "00e9", "2028"):
            if digits.startswith(begun[len(begun) - have :].lower()):
                yield digits[have:]


def _content_endings(shape: Shape, content: str) -> Iterator[str]:
    """Characters that bring a string to an end that the shape takes."""
    low, high = shape.least("minLength"), shape.most("maxLength")
    wanted = shape.all("pattern") + [
        PATTERNS[name] for name in shape.all("format") if name in PATTERNS
    ]
    patterns = [found for found in map(pattern, wanted) if found is not None]
    seen: set[str] = set()
    judged = [n for n in shape.all("format") if n in JUDGED_FORMATS and n not in PATTERNS]
    if judged:
        for size in range(5):
            for closers in itertools.product(("]", ")", "a", "}", "1}"), repeat=size):
                closed = "".join(closers)
                if all(holds(name, content + closed) for name in judged):
                    yield closed
        return
    for more in ("", *_VARIANTS):
        text = _ending(patterns, content + more, low, high)
        if text is not None and more + text not in seen:
            seen.add(more + text)
            yield more + text


def _ending(patterns: list[Pattern], begun: str, low: int, high: int | None) -> str | None:
    if high is not None and len(begun) > high:
        return None
    if not patterns:
        return "a" * (low - len(begun))
    return shortest(patterns, begun, low, high)


def is_plain_string(shape: Shape) -> bool:
    """Whether any text at all may stand in a string."""
    return not any(
        keyword in part
        for part in shape.parts
        for keyword in ("minLength", "maxLength", "pattern", "format", "enum", "const")
    )


class _Bounds:
    """The numbers that a shape takes."""

    __slots__ = ("high", "integer", "low", "multiples")

    def __init__(self, shape: Shape) -> None:
        self.integer = "number" not in shape.types
        self.multiples = [exact(each) for each in shape.all("multipleOf")]
        self.low: Fraction | None = None
        self.high: Fraction | None = None
        for value in shape.all("minimum"):
            self._raise(exact(value))
        for value in shape.all("maximum"):
            self._lower(exact(value))
        # An open bound is moved by a little: what is written has few digits.
        step = Fraction(1) if self.integer else Fraction(1, 1000)
        for value in shape.all("exclusiveMinimum"):
            self._raise(_above(exact(value), step))
        for value in shape.all("exclusiveMaximum"):
            self._lower(-_above(-exact(value), step))

    def _raise(self, value: Fraction) -> None:
        self.low = value if self.low is None else max(self.low, value)

    def _lower(self, value: Fraction) -> None:
        self.high = value if self.high is None else min(self.high, value)

    def within(self, low: int, high: int, unit: Fraction, count: int) -> Iterator[int]:
        """Up to ``count`` multiples of ``unit`` in ``[low, high]`` that are taken."""
        if self.low is not None:
            low = max(low, math.ceil(self.low / unit))
        if self.high is not None:
            high = min(high, math.floor(self.high / unit))
        step = 1
        for each in self.multiples:
            step = math.lcm(step, (each / unit).numerator)
        if self.integer and unit < 1:
            step = math.lcm(step, (1 / unit).numerator)
        first = -(-low // step) * step
        yield from itertools.islice(range(first, high + 1, step), count)


def exact(value: float) -> Fraction:
    """A number of a schema, as it is written."""
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)


def _above(value: Fraction, step: Fraction) -> Fraction:
    return (math.floor(value / step) + 1) * step


def number_endings(shape: Shape, begun: str) -> Iterator[str]:
    """Texts that end a number that has been begun, or that are one if nothing has."""
    bounds = _Bounds(shape)
    if re.search("[eE]", begun):
        if begun[-1] in "eE+-":
            yield from ("0", "1")
        else:
            yield ""
        return
    for sign in ("", "-") if not begun else (("-",) if begun[0] == "-" else ("",)):
        for digits in _digits(bounds, begun.lstrip("-"), sign == "-"):
            yield digits if begun else sign + digits


def _digits(bounds: _Bounds, begun: str, negative: bool) -> Iterator[str]:
    """Digits that end a number, those of whole numbers and of others in turns."""
    ways = [_wholes(bounds, begun, negative), _decimals(bounds, begun, negative)]
    for texts in itertools.zip_longest(*ways):
        yield from (text for text in texts if text is not None)


def _wholes(bounds: _Bounds, begun: str, negative: bool) -> Iterator[str]:
    if "." in begun:
        return
    for extra in range(0 if begun else 1, 1 if begun == "0" else 20):
        prefix = int(begun or "0") * 10**extra
        top = prefix + 10**extra - 1
        low = 10 ** (extra - 1) if not begun and extra > 1 else prefix
        for value in _signed(bounds, low, top, Fraction(1), negative):
            yield str(abs(value))[len(begun) :]


def _decimals(bounds: _Bounds, begun: str, negative: bool) -> Iterator[str]:
    whole, point, fraction = begun.partition(".")
    if bounds.integer and not point:
        return
    for extra in range(0 if fraction else 1, 8):
        places = len(fraction) + extra
        unit = Fraction(1, 10**places)
        if not whole:
            for value in _signed(bounds, 0, 10 ** (places + 12), unit, negative):
                yield _decimal(value, places)
            continue
        prefix = int(whole + fraction) * 10**extra
        for value in _signed(bounds, prefix, prefix + 10**extra - 1, unit, negative):
            yield _decimal(value, places)[len(begun) :]


_OF_A_LENGTH = 12
"""Numbers of as many digits that are tried."""


def _signed(bounds: _Bounds, low: int, high: int, unit: Fraction, negative: bool) -> Iterator[int]:
    if not negative:
        yield from bounds.within(low, high, unit, _OF_A_LENGTH)
        return
    yield from (-value for value in bounds.within(-high, -low, unit, _OF_A_LENGTH))


def _decimal(value: int, places: int) -> str:
    text = str(value).rjust(places + 1, "0")
    return f"{text[:-places]}.{text[-places:]}"
