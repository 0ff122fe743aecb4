"""The HTTP application: its routes, and how errors are answered."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from ..errors import RequestError
from . import routes, service_routes
from .respond import error_response
from .state import Front


def make_app(front: Front) -> Starlette:
    """The ASGI application of a front."""
    app = Starlette(
        routes=[
            Route("/v1/chat/completions", routes.chat_completions, methods=["POST"]),
            Route("/v1/completions", routes.completions, methods=["POST"]),
            Route("/generate", routes.generate, methods=["POST", "PUT"]),
            *_both("/tokenize", service_routes.tokenize, "POST"),
            *_both("/detokenize", service_routes.detokenize, "POST"),
            Route("/v1/models", service_routes.models, methods=["GET"]),
            Route("/v1/models/{name:path}", service_routes.model, methods=["GET"]),
            Route("/abort_request", service_routes.abort_request, methods=["POST"]),
            Route("/flush_cache", service_routes.flush_cache, methods=["GET", "POST"]),
            Route("/server_info", service_routes.server_info, methods=["GET"]),
            Route("/get_server_info", service_routes.server_info, methods=["GET"]),
            Route("/model_info", service_routes.model_info, methods=["GET"]),
            Route("/get_model_info", service_routes.model_info, methods=["GET"]),
            Route("/health", service_routes.health, methods=["GET"]),
            Route("/ready", service_routes.ready, methods=["GET"]),
            Route("/metrics", service_routes.metrics, methods=["GET"]),
        ],
        exception_handlers={
            RequestError: _on_request_error,
            HTTPException: _on_http_exception,
            ClientDisconnect: _on_client_gone,
            Exception: _on_exception,
        },
    )
    app.state.front = front
    return app


def _both(path: str, endpoint: routes.Endpoint, method: str) -> list[Route]:
    return [Route(prefix + path, endpoint, methods=[method]) for prefix in ("", "/v1")]


async def _on_request_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return _counted(request, error)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """Unknown paths and methods."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    known = error.status_code == 405
    message = f"{request.method} is not allowed for {path}" if known else f"there is no {path}"
    code = "method_not_allowed" if known else "not_found"
    response = _counted(request, RequestError(message, code=code, status=error.status_code))
    response.headers.update(error.headers or {})
    return response


async def _on_client_gone(request: Request, error: Exception) -> Response:
    """The client left while it sent its body: nobody reads this."""
    return Response(status_code=400)


async def _on_exception(request: Request, error: Exception) -> Response:
    """A fault of ours: the client learns no more than that; the server's log has the rest."""
    return _counted(
        request, RequestError("internal server error", code="internal_error", status=500)
    )


def _counted(request: Request, error: RequestError) -> Response:
    front: Front = request.app.state.front
    if request.method != "GET":  # probes are no requests
        front.metrics.refused(error.code or ("invalid_request" if error.status < 500 else "failed"))
    return error_response(error)
