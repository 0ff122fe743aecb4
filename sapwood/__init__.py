"""Sapwood: a structured-generation server for language models.

Names are loaded when first used, so that ``import sapwood`` stays cheap and pulls in no torch: a
program that only talks to a remote server pays for none of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_LAZY = {
    "Engine": "sapwood.srt.engine",
    "SamplingParams": "sapwood.srt.params",
    "Outcome": "sapwood.frontend_lang.state",
    "Program": "sapwood.frontend_lang.program",
    "Runtime": "sapwood.frontend_lang.runtime",
    "Scripted": "sapwood.frontend_lang.scripted",
    "Server": "sapwood.frontend_lang.server",
    "RuntimeEndpoint": "sapwood.frontend_lang.endpoint",
    "OpenAI": "sapwood.frontend_lang.openai",
    "ServerError": "sapwood.frontend_lang.http_client",
    "Unsupported": "sapwood.frontend_lang.refusal",
    "State": "sapwood.frontend_lang.state",
    "assistant": "sapwood.frontend_lang.building",
    "assistant_begin": "sapwood.frontend_lang.building",
    "assistant_end": "sapwood.frontend_lang.building",
    "flush_cache": "sapwood.frontend_lang.backend",
    "function": "sapwood.frontend_lang.program",
    "gen": "sapwood.frontend_lang.building",
    "gen_float": "sapwood.frontend_lang.building",
    "gen_int": "sapwood.frontend_lang.building",
    "gen_string": "sapwood.frontend_lang.building",
    "get_server_info": "sapwood.frontend_lang.backend",
    "greedy_token_selection": "sapwood.frontend_lang.choices",
    "select": "sapwood.frontend_lang.building",
    "set_default_backend": "sapwood.frontend_lang.backend",
    "system": "sapwood.frontend_lang.building",
    "system_begin": "sapwood.frontend_lang.building",
    "system_end": "sapwood.frontend_lang.building",
    "token_length_normalized": "sapwood.frontend_lang.choices",
    "tool": "sapwood.frontend_lang.building",
    "trace": "sapwood.frontend_lang.tracing",
    "unconditional_likelihood_normalized": "sapwood.frontend_lang.choices",
    "user": "sapwood.frontend_lang.building",
    "user_begin": "sapwood.frontend_lang.building",
    "user_end": "sapwood.frontend_lang.building",
}

if TYPE_CHECKING:
    from sapwood.frontend_lang.backend import flush_cache as flush_cache
    from sapwood.frontend_lang.backend import get_server_info as get_server_info
    from sapwood.frontend_lang.backend import set_default_backend as set_default_backend
    from sapwood.frontend_lang.building import assistant as assistant
    from sapwood.frontend_lang.building import assistant_begin as assistant_begin
    from sapwood.frontend_lang.building import assistant_end as assistant_end
    from sapwood.frontend_lang.building import gen as gen
    from sapwood.frontend_lang.building import gen_float as gen_float
    from sapwood.frontend_lang.building import gen_int as gen_int
    from sapwood.frontend_lang.building import gen_string as gen_string
    from sapwood.frontend_lang.building import select as select
    from sapwood.frontend_lang.building import system as system
    from sapwood.frontend_lang.building import system_begin as system_begin
    from sapwood.frontend_lang.building import system_end as system_end
    from sapwood.frontend_lang.building import tool as tool
    from sapwood.frontend_lang.building import user as user
    from sapwood.frontend_lang.building import user_begin as user_begin
    from sapwood.frontend_lang.building import user_end as user_end
    from sapwood.frontend_lang.choices import greedy_token_selection as greedy_token_selection
    from sapwood.frontend_lang.choices import token_length_normalized as token_length_normalized
    from sapwood.frontend_lang.choices import (
        unconditional_likelihood_normalized as unconditional_likelihood_normalized,
    )
    from sapwood.frontend_lang.endpoint import RuntimeEndpoint as RuntimeEndpoint
    from sapwood.frontend_lang.http_client import ServerError as ServerError
    from sapwood.frontend_lang.openai import OpenAI as OpenAI
    from sapwood.frontend_lang.program import Program as Program
    from sapwood.frontend_lang.program import function as function
    from sapwood.frontend_lang.refusal import Unsupported as Unsupported
    from sapwood.frontend_lang.runtime import Runtime as Runtime
    from sapwood.frontend_lang.scripted import Scripted as Scripted
    from sapwood.frontend_lang.server import Server as Server
    from sapwood.frontend_lang.state import Outcome as Outcome
    from sapwood.frontend_lang.state import State as State
    from sapwood.frontend_lang.tracing import trace as trace
    from sapwood.srt.engine import Engine as Engine
    from sapwood.srt.params import SamplingParams as SamplingParams

__all__ = [
    "Engine",
    "OpenAI",
    "Outcome",
    "Program",
    "Runtime",
    "RuntimeEndpoint",
    "SamplingParams",
    "Scripted",
    "Server",
    "ServerError",
    "State",
    "Unsupported",
    "__version__",
    "assistant",
    "assistant_begin",
    "assistant_end",
    "flush_cache",
    "function",
    "gen",
    "gen_float",
    "gen_int",
    "gen_string",
    "get_server_info",
    "greedy_token_selection",
    "select",
    "set_default_backend",
    "system",
    "system_begin",
    "system_end",
    "token_length_normalized",
    "tool",
    "trace",
    "unconditional_likelihood_normalized",
    "user",
    "user_begin",
    "user_end",
]


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'sapwood' has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
