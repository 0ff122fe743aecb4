"""The formats that JSON schema's drafts define: as expressions, and as checks of whole strings.

The expressions are regular, so that an engine can enforce them and an open string be ended; where
they say too little, as of days of a month, the check says the rest.
Sources: RFC 3339 (dates and times, durations), RFC 3986 (URIs), RFC 3987 (IRIs), RFC 5321 (mail
addresses), RFC 1123 (host names), RFC 4291 (IPv6), RFC 4122 (UUIDs), RFC 6570 (URI templates),
RFC 6901 (JSON pointers); of draft-03's, CSS 2.1 (colors) and E.123 (telephone numbers).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping

from .ecma import compiled

_HOUR = r"([01][0-9]|2[0-3])"
_LEAP_YEAR = r"([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
_DATE = (
    r"([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    rf"|02-(0[1-9]|1[0-9]|2[0-8]))|{_LEAP_YEAR}-02-29)"
)
# A leap second comes at midnight UTC; it is taken only as UTC writes it.
_TIME = (
    rf"({_HOUR}:[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|z|[+-]{_HOUR}:[0-5][0-9])"
    r"|23:59:60(\.[0-9]+)?(Z|z|[+-]00:00))"
)
_LABEL = r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_HOST = rf"{_LABEL}(\.{_LABEL})*"
# Two hyphens in the third and fourth place are kept for encoded names, which are not taken.
_A, _H = "[a-zA-Z0-9]", "[a-zA-Z0-9-]"
_PLAIN = rf"{_A}({_H}?{_A}|{_H}[a-zA-Z0-9-]{_A}|{_H}({_A}{_H}|-{_A}){_H}{{0,58}}{_A})?"
# Letters that any international name may hold, whatever stands beside them: small ones of Latin,
# Greek and Cyrillic, kana, Han, Hangul.
_LETTERS = (
    "\u00df-\u00f6\u00f8-\u00ff\u03b1-\u03c1\u03c3-\u03c9\u0430-\u044f"
    "\u3042-\u3094\u30a2-\u30f4\u4e00-\u9fa5\uac00-\ud7a3"
)
_LOCAL = rf"[a-z0-9{_LETTERS}]"
_INTERNATIONAL = rf"({_PLAIN}|{_LOCAL}{{1,12}})"
_BYTE = r"(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = rf"{_BYTE}(\.{_BYTE}){{3}}"
_HEX = r"[0-9a-fA-F]"
_GROUP = rf"{_HEX}{{1,4}}"
_IPV6 = (
    rf"(({_GROUP}:){{7}}({_GROUP}|:)|({_GROUP}:){{6}}{_IPV4}|({_GROUP}:){{1,6}}:({_GROUP})?"
    rf"|({_GROUP}:){{1,5}}(:{_GROUP}){{1,2}}|({_GROUP}:){{1,4}}(:{_GROUP}){{1,3}}"
    rf"|({_GROUP}:){{1,3}}(:{_GROUP}){{1,4}}|({_GROUP}:){{1,2}}(:{_GROUP}){{1,5}}"
    rf"|{_GROUP}:(:{_GROUP}){{1,6}}|::({_GROUP}(:{_GROUP}){{0,6}})?|::({_GROUP}:){{0,5}}{_IPV4}"
    rf"|({_GROUP}:){{1,5}}:{_IPV4}|({_GROUP}:){{1,4}}(:{_GROUP}){{1}}:{_IPV4}"
    rf"|({_GROUP}:){{1,3}}(:{_GROUP}){{1,2}}:{_IPV4}|({_GROUP}:){{1,2}}(:{_GROUP}){{1,3}}:{_IPV4}"
    rf"|{_GROUP}:(:{_GROUP}){{1,4}}:{_IPV4})"
)
_BEYOND = "\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef\U00010000-\U0001fffd\U00020000-\U0002fffd"
_EXPRESSION = (
    r"\{[+#./;?&]?([a-zA-Z0-9_](\.?[a-zA-Z0-9_])*(:[1-9][0-9]{0,3}|\*)?)"
    r"(,[a-zA-Z0-9_](\.?[a-zA-Z0-9_])*(:[1-9][0-9]{0,3}|\*)?)*\}"
)
_ATOM = r"[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]"

_NAMED_COLORS = (
    "aqua black blue fuchsia gray green lime maroon navy olive orange purple red silver teal white "
    "yellow"
)
_PART = "[ ]?[+-]?[0-9]{1,5}"
_SHARE = rf"{_PART}(\.[0-9]{{1,5}})?%"
_COLOR = (
    f"({'|'.join(_NAMED_COLORS.split())}|#({_HEX}{{3}}){{1,2}}"
    rf"|rgb\({_PART}[ ]?,{_PART}[ ]?,{_PART}[ ]?\)|rgb\({_SHARE}[ ]?,{_SHARE}[ ]?,{_SHARE}[ ]?\))"
)
_DIGITS = "[0-9]{1,5}"
_PHONE = rf"(\({_DIGITS}\)[ ]|\+?{_DIGITS}([ ]\({_DIGITS}\))?[ -]?)({_DIGITS}[ -]?){{0,5}}{_DIGITS}"


def _uri(beyond: str, *, relative: bool) -> str:
    """The grammar of RFC 3986, with further characters for RFC 3987."""
    percent = rf"%{_HEX}{_HEX}"
    plain = rf"a-zA-Z0-9._~!$&'()*+,;={beyond}\-"
    segment = rf"([{plain}:@]|{percent})"
    authority = (
        rf"(([{plain}:]|{percent})*@)?(\[({_IPV6}|[vV]{_HEX}+\.[a-zA-Z0-9._~!$&'()*+,;=:-]+)\]|([{plain}]|{percent})*)"
        r"(:[0-9]*)?"
    )
    rest = rf"(\?({segment}|[/?])*)?(#({segment}|[/?])*)?"
    path = rf"(//{authority}(/{segment}*)*|/({segment}+(/{segment}*)*)?"
    absolute = rf"[a-zA-Z][a-zA-Z0-9+.-]*:{path}|{segment}+(/{segment}*)*)?{rest}"
    if not relative:
        return absolute
    return rf"({absolute}|{path}|([{plain}@]|{percent})+(/{segment}*)*)?{rest})"


PATTERNS: Mapping[str, str] = {
    name: f"^{expression}$"
    for name, expression in {
        "date": _DATE,
        "time": _TIME,
        "date-time": f"{_DATE}[Tt]{_TIME}",
        "duration": (
            r"P([0-9]+W|([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)"
            r"(T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S))?"
            r"|T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S))"
        ),
        "email": rf"{_ATOM}+(\.{_ATOM}+)*@{_HOST}",
        "hostname": rf"{_PLAIN}(\.{_PLAIN})*",
        "idn-hostname": rf"{_INTERNATIONAL}(\.{_INTERNATIONAL})*",
        "idn-email": (
            rf"([a-zA-Z0-9!#$%&'*+/=?^_`{{|}}~{_LETTERS}-]+"
            rf"(\.[a-zA-Z0-9!#$%&'*+/=?^_`{{|}}~{_LETTERS}-]+)*)@{_INTERNATIONAL}"
            rf"(\.{_INTERNATIONAL})*"
        ),
        "ipv4": _IPV4,
        "color": _COLOR,
        "phone": _PHONE,
        "ipv6": _IPV6,
        "uri": _uri("", relative=False),
        "uri-reference": _uri("", relative=True),
        "iri": _uri(_BEYOND, relative=False),
        "iri-reference": _uri(_BEYOND, relative=True),
        "uri-template": (
            rf"([!#$&()*+,./0-9:;=?@A-Z\[\]_a-z~{_BEYOND}\-]|%{_HEX}{_HEX}|{_EXPRESSION})*"
        ),
        "uuid": rf"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}",
        "json-pointer": r"(/([^/~]|~[01])*)*",
        "relative-json-pointer": r"(0|[1-9][0-9]*)(#|(/([^/~]|~[01])*)*)",
    }.items()
}
"""Expressions that the strings of a format match, and but for a few details no others."""


def holds(name: str, text: str) -> bool:
    """Whether a string has a format; any string has one that no draft defines."""
    expression = _COMPILED.get(name)
    if expression is not None and expression.fullmatch(text) is None:
        return False
    check = _CHECKS.get(name)
    return check is None or check(text)


def _is_email(text: str) -> bool:
    local, _, domain = text.rpartition("@")
    return len(local) <= 64 and len(domain) <= 253


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return "%" not in text


_ODD = re.compile(r"\(\?(?![:=!<])|\\[^dDwWsSbBnrtvfcxu0-9pPk^$\\.*+?()\[\]{}|/-]|\\0[0-9]")
"""What other dialects have, and ECMA's does not."""

_BRACES = re.compile(r"\\.|\[(\\.|[^\]\\])*\]|\{[0-9]+(,[0-9]*)?\}")
"""Where braces and brackets may stand."""


def _is_regex(text: str) -> bool:
    try:
        groups = compiled(text).groups
    except (re.error, RecursionError, OverflowError):
        return False
    if any(int(each) > groups for each in re.findall(r"\\([1-9][0-9]*)", text)):
        return False
    plain = re.sub(r"\\[pPuk][{<][^}>]*[}>]", "", text)
    if _ODD.search(plain.replace(r"\\", "")):
        return False
    return not set("{}]") & set(_BRACES.sub("", plain))


_COMPILED = {name: re.compile(expression[1:-1], re.ASCII) for name, expression in PATTERNS.items()}
_CHECKS: Mapping[str, Callable[[str], bool]] = {
    "email": _is_email,
    "idn-email": _is_email,
    "hostname": lambda text: len(text) <= 253,
    "idn-hostname": lambda text: len(text) <= 60,
    "ipv6": _is_ipv6,
    "regex": _is_regex,
}
