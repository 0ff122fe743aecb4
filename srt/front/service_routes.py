"""The routes beside generation: tokens, models, orders, health, figures."""

from __future__ import annotations

import asyncio
import contextlib

from starlette.requests import Request
from starlette.responses import Response

from ..errors import RequestError
from ..messages import ControlReply, StepStats
from .bodies import AbortBody, DetokenizeBody, TokenizeBody
from .openai_replies import ModelCard, ModelList
from .respond import json_response
from .routes import body_of, front_of
from .state import Front

CONTROL_SECONDS = 10.0
"""How long an order to the worker may take."""
INFO_SECONDS = 1.0
"""How long ``/server_info`` waits for a worker that may be in the midst of a long step."""


async def tokenize(request: Request) -> Response:
    """Ids of a text, a list of texts, or a chat."""
    front, body = front_of(request), await body_of(request, TokenizeBody)
    lists = await front.in_thread(front.intake.tokenize, body)
    listed = isinstance(body.prompt, list)
    return json_response(
        {
            "tokens": lists if listed else lists[0],
            "count": [len(ids) for ids in lists] if listed else len(lists[0]),
            "max_model_len": front.intake.model.context_length,
        }
    )


async def detokenize(request: Request) -> Response:
    """Text of ids, or texts of lists of ids."""
    front, body = front_of(request), await body_of(request, DetokenizeBody)
    texts = await front.in_thread(front.intake.detokenize, body)
    listed = bool(body.tokens) and isinstance(body.tokens[0], list)
    return json_response({"text": texts if listed else texts[0]})


async def models(request: Request) -> Response:
    """OpenAI's list of models: the one that is served."""
    return json_response(ModelList(data=[_card(front_of(request))]))


async def model(request: Request) -> Response:
    """OpenAI's model card."""
    front = front_of(request)
    front.intake.model.check_name(request.path_params["name"])
    return json_response(_card(front))


async def abort_request(request: Request) -> Response:
    """Ends the request with exactly this rid; an unknown one is no error (it may just be done)."""
    front, body = front_of(request), await body_of(request, AbortBody)
    return json_response({"aborted": front.journal.abort(body.rid)})


async def flush_cache(request: Request) -> Response:
    """Empties the prefix cache; 409 while requests run or wait."""
    front = front_of(request)
    front.check_ready()
    reply = await _asked(front, "flush_cache")
    if reply.ok:
        state = await _asked(front, "info")
        if state.ok:  # no step will tell that the pages are free
            front.journal.take_stats(_stats_in(state))
        return json_response({"success": True, **reply.detail})
    message = str(reply.detail.get("message", "requests are running or waiting"))
    raise RequestError(f"the cache was not flushed: {message}", code="busy", status=409)


async def server_info(request: Request) -> Response:
    """Configuration, model and the worker's state; of a worker that answers, its constraints."""
    front = front_of(request)
    await _learn_constraints(front)
    stats = front.journal.stats
    return json_response(
        {
            **front.info,
            "model": _model_info(front),
            "tool_format": front.intake.tool_format,
            "status": "dead" if front.dead else "ready" if front.ready else "starting",
            "in_flight": len(front.journal),
            "stats": {
                name: getattr(stats, name)
                for name in stats.__struct_fields__
                if name not in ("queue_seconds", "step_seconds")
            },
        }
    )


async def model_info(request: Request) -> Response:
    """The served model."""
    return json_response(_model_info(front_of(request)))


async def health(request: Request) -> Response:
    """200 while the server's processes live."""
    front = front_of(request)
    if front.dead is not None:
        raise front.dead.error()
    return json_response({"status": "ok"})


async def ready(request: Request) -> Response:
    """200 once a token can be generated."""
    front_of(request).check_ready()
    return json_response({"status": "ready"})


async def metrics(request: Request) -> Response:
    """Figures for Prometheus."""
    text = front_of(request).metrics.render()
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


async def _asked(front: Front, op: str, seconds: float = CONTROL_SECONDS) -> ControlReply:
    """The worker's answer to an order. ``RequestError`` 504 where it does not come in time."""
    future: asyncio.Future[ControlReply] = asyncio.get_running_loop().create_future()

    def on_reply(reply: ControlReply) -> None:
        if not future.done():
            future.set_result(reply)

    front.journal.ask(op, on_reply)
    try:
        async with asyncio.timeout(seconds):
            return await future
    except TimeoutError:
        raise RequestError("the worker did not answer in time", status=504) from None


async def _learn_constraints(front: Front) -> None:
    """Notes what the worker says of constraints: engines, and what was compiled. What it said last
    stays where it does not answer soon."""
    if front.dead is not None or not front.ready:
        return
    with contextlib.suppress(RequestError):
        reply = await _asked(front, "info", INFO_SECONDS)
        if "constraints" in reply.detail:
            front.info["constraints"] = reply.detail["constraints"]


def _stats_in(reply: ControlReply) -> StepStats:
    """The state of the worker in its answer to ``info``, which tells more."""
    known = StepStats.__struct_fields__
    return StepStats(**{name: value for name, value in reply.detail.items() if name in known})


def _card(front: Front) -> ModelCard:
    model = front.intake.model
    return ModelCard(
        id=model.name, created=model.created, root=model.name, max_model_len=model.context_length
    )


def _model_info(front: Front) -> dict[str, object]:
    model = front.intake.model
    return {
        "served_model_name": model.name,
        "model_path": model.path,
        "is_generation": True,
        "architecture": model.architecture,
        "quantization": model.quantization,
        "context_length": model.context_length,
        "vocab_size": model.vocab_size,
        "generation_defaults": dict(model.defaults),
    }
