"""The command line: ``sapwood serve | generate | chat | batch | schemas | version``.

Nothing heavy is imported before the command is known.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from sapwood import __version__
from sapwood.flags import FlagError, Parser, add_flags, collect
from sapwood.srt.config import (
    CacheConfig,
    ModelOptions,
    SchedulerConfig,
    ServerConfig,
    flag,
)
from sapwood.srt.errors import LoadError, RequestError, UsageError

if TYPE_CHECKING:
    from sapwood.srt.engine import Engine
    from sapwood.srt.params import SamplingParams

SERVER_PARTS: dict[str, Any] = {each.name: each.default_factory for each in fields(ServerConfig)}
ENGINE_PARTS: tuple[Any, ...] = (ModelOptions, CacheConfig, SchedulerConfig)


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How text is sampled."""

    max_tokens: int = flag(256, "most tokens of an answer", low=1)
    temperature: float | None = flag(None, "0 is greedy; default: the model's, or 1", low=0, high=2)
    top_p: float | None = flag(
        None, "keep the likeliest tokens of this total probability", low=0, high=1
    )
    top_k: int | None = flag(None, "keep so many of the likeliest tokens; 0 is all", low=0)
    seed: int | None = flag(None, "the same seed gives the same text")
    stop: tuple[str, ...] = flag((), "end before this text; may be given several times")

    def given(self) -> dict[str, Any]:
        """What was asked for, by the names of the HTTP interface."""
        return {name: value for name, value in asdict(self).items() if value not in (None, ())}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code: 0, 1 where it failed, 2 for a bad command line."""
    parser, commands = make_parser()
    given, unknown = parser.parse_known_args(argv)
    command = commands.get(given.command, parser)
    if unknown:
        command.refuse_unknown(unknown)
    try:
        run: Callable[[argparse.Namespace], int] = given.run
        return run(given)
    except (UsageError, LoadError, RequestError) as error:
        print(f"sapwood: {error}", file=sys.stderr)
        return 2 if isinstance(error, FlagError) else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output has seen enough
        sys.stderr.close()
        return 141


def make_parser() -> tuple[Parser, dict[str, Parser]]:
    """The parser, and that of each command."""
    parser = Parser(prog="sapwood", description="A structured-generation server.")
    parser.set_defaults(command=None, run=lambda given: _print_help(parser))
    parser.add_argument("--version", action="version", version=f"sapwood {__version__}")
    adding = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
    commands: dict[str, Parser] = {}

    def command(usage: str, run: Callable[[argparse.Namespace], int], help: str) -> Parser:
        name = usage.split()[0]
        made: Parser = adding.add_parser(
            name, help=help, description=f"{help[0].upper()}{help[1:]}.", usage=f"sapwood {usage}"
        )
        made.set_defaults(command=name, run=run)
        commands[name] = made
        return made

    _add_serve(
        command(
            "serve [MODEL] [flags]", serve, "serve a model over HTTP (OpenAI and native interface)"
        )
    )
    _add_generate(
        command(
            "generate [PROMPT ...] [flags]",
            generate,
            "continue prompts with a model in this process",
        )
    )
    _add_chat(
        command("chat [flags]", chat, "talk to a running server, or to a model in this process")
    )
    _add_batch(
        command(
            "batch INPUT OUTPUT [--server URL] [flags]",
            batch,
            "answer the lines of an OpenAI batch file; a second start goes on where one ended",
        )
    )
    _add_schemas(
        command(
            "schemas check FILE [--json] [--model MODEL]",
            schemas,
            "tell which schemas are enforced, which are refused, and why",
        )
    )
    command("version", version, "print the version")
    return parser, commands


def _print_help(parser: Parser) -> int:
    parser.print_help()
    return 0


def _add_serve(parser: Parser) -> None:
    model = ModelOptions.__dataclass_fields__["model"].metadata["help"]
    parser.add_argument("place", nargs="?", metavar="MODEL", help=model)
    parser.add_argument("--model", help="the same, as a flag")
    for kind in SERVER_PARTS.values():
        add_flags(parser, kind, skip=("model",))


def serve(given: argparse.Namespace) -> int:
    """``sapwood serve``."""
    if given.place is not None:
        if given.model not in (None, given.place):
            raise FlagError(f"two models: {given.place} and --model {given.model}")
        given.model = given.place
    parts = {name: collect(kind, given) for name, kind in SERVER_PARTS.items()}
    from sapwood.srt.launch import serve as serve_until_told

    return serve_until_told(ServerConfig(**parts))


def _add_generate(parser: Parser) -> None:
    parser.add_argument(
        "prompts", nargs="*", metavar="PROMPT", help="default: standard input is the prompt"
    )
    parser.add_argument("--chat", action="store_true", help="each prompt is a user's chat message")
    parser.add_argument("--lines", action="store_true", help="each input line is a prompt")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each answer")
    add_flags(parser, SamplingOptions)
    for kind in ENGINE_PARTS:
        add_flags(parser, kind)


def generate(given: argparse.Namespace) -> int:
    """``sapwood generate``: streams one answer, or prints a JSON object for each of several."""
    sampling = collect(SamplingOptions, given)
    prompts = given.prompts or _prompts_of_input(given.lines)
    asked: list[Any] = [as_chat(text) if given.chat else text for text in prompts]
    with open_engine(given) as engine:
        params = sampling_params(sampling, engine)
        if len(asked) == 1 and not given.json:
            for piece in engine.stream(asked[0], params):
                print(piece.text, end="", flush=True)
            print()
            return 0
        for prompt, done in zip(prompts, engine.generate(asked, params), strict=True):
            print(json.dumps(_shown(prompt, done), ensure_ascii=False))
    return 0


def _prompts_of_input(lines: bool) -> list[str]:
    text = sys.stdin.read()
    prompts = [line for line in text.splitlines() if line.strip()] if lines else [text]
    if not any(prompts):
        raise UsageError("there is no prompt: give one as an argument or on standard input")
    return prompts


def as_chat(text: str) -> list[dict[str, str]]:
    """A chat that consists of one message."""
    return [{"role": "user", "content": text}]


def _shown(prompt: str, done: Any) -> dict[str, Any]:
    return {
        "prompt": prompt,
        "text": done.text,
        "finish_reason": done.finish.reason,
        "prompt_tokens": done.prompt_tokens,
        "cached_tokens": done.cached_tokens,
        "completion_tokens": len(done.ids),
        "seed": done.seed,
    }


def _add_chat(parser: Parser) -> None:
    parser.add_argument("--url", help="a running server, such as http://127.0.0.1:30000")
    parser.add_argument("--api-key", help="sent to the server as a bearer token")
    parser.add_argument("--system", help="a system message before the conversation")
    add_flags(parser, SamplingOptions)
    for kind in ENGINE_PARTS:
        add_flags(parser, kind)


def chat(given: argparse.Namespace) -> int:
    """``sapwood chat``."""
    from sapwood.chat import RemoteModel, converse

    sampling = collect(SamplingOptions, given)
    if given.url is not None:
        remote = RemoteModel(given.url, given.api_key, given.model, sampling.given())
        return converse(remote.answer, given.system)
    print("loading the model ...", file=sys.stderr)
    with open_engine(given) as engine:
        params = sampling_params(sampling, engine)

        def answer(messages: list[dict[str, str]]) -> Iterable[str]:
            return (piece.text for piece in engine.stream(messages, params))

        return converse(answer, given.system)


def _add_batch(parser: Parser) -> None:
    parser.add_argument("input", help="lines of {custom_id, method, url, body}")
    parser.add_argument("output", help="gets a line for each, as they are finished")
    parser.add_argument("--server", help="a running server; default: a model in this process")
    parser.add_argument("--api-key", help="sent to the server as a bearer token")
    parser.add_argument(
        "--concurrency", type=int, default=64, help="requests at the same time (default: 64)"
    )
    for kind in ENGINE_PARTS:
        add_flags(parser, kind)


def batch(given: argparse.Namespace) -> int:
    """``sapwood batch``."""
    from sapwood.batch_command import batch as run

    return run(given, open_engine)


def _add_schemas(parser: Parser) -> None:
    parser.add_argument("action", choices=["check"], help="what to do")
    parser.add_argument(
        "file", help="a schema, or lines of {id, schema, tests: [{valid, data}]} (.jsonl, .gz)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON lines, the totals last")
    parser.add_argument("--model", default=None, help="whose tokenizer is used")


def schemas(given: argparse.Namespace) -> int:
    """``sapwood schemas check``."""
    from sapwood.schemas import schemas as run

    return run(given)


def version(given: argparse.Namespace) -> int:
    """``sapwood version``."""
    print(f"sapwood {__version__}")
    return 0


def open_engine(given: argparse.Namespace) -> Engine:
    """The engine that the flags ask for."""
    options: dict[str, Any] = {}
    for kind in ENGINE_PARTS:
        part = collect(kind, given)
        options.update({each.name: getattr(part, each.name) for each in fields(part)})
    from sapwood.srt.engine import Engine

    return Engine(**options)


def sampling_params(sampling: SamplingOptions, engine: Engine) -> SamplingParams:
    """What was asked for, over what the model's makers advise."""
    from sapwood.srt.params import SamplingParams

    known = SamplingParams.__struct_fields__
    advised = {name: value for name, value in engine.model.defaults.items() if name in known}
    return SamplingParams(**{**advised, **sampling.given()})


if __name__ == "__main__":
    sys.exit(main())
