"""What clients may send to have functions called."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from .json_text import ABSENT


class FunctionField(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``tools[].function``. Arguments are held to ``parameters`` whatever ``strict`` says."""

    name: str
    description: str | None = None
    parameters: msgspec.Raw = ABSENT
    strict: bool | None = None


class ToolField(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One of ``tools``. ``custom`` is known so that it can be refused by name."""

    type: str
    function: FunctionField | None = None
    custom: Any = None


class FunctionName(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The function of a ``tool_choice``."""

    name: str


class ChoiceField(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """``tool_choice`` as an object. All but functions is known to be refused by name."""

    type: str
    function: FunctionName | None = None
    custom: Any = None
    allowed_tools: Any = None
    mode: Any = None
    tools: Any = None


ToolChoiceField = Literal["none", "auto", "required"] | ChoiceField
