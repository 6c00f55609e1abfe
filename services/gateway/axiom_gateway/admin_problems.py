"""The admin API's errors: problem documents (RFC 9457), each with a stable code (`CODES`) and the
part of the request that it is about (`path`): a field of the body, dotted, a parameter or a header
by its name; else `url`, `method` or `body`, and `request` where no part of it is to blame."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, ClassVar

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.routing import Match

from axiom_common.errors import (
    AxiomError,
    ConflictError,
    InvalidInputError,
    NameTakenError,
    NotFoundError,
    PreconditionError,
    PreconditionRequiredError,
    UnavailableError,
)
from axiom_common.wire import headers, rest
from axiom_gateway.asgi import Scope
from axiom_gateway.watch import TooManyWatchersError

CODES: dict[int, tuple[str, ...]] = {
    400: ("invalid-input", "wrong-cursor"),
    401: ("unauthenticated",),
    403: ("forbidden",),
    404: ("not-found",),
    405: ("method-not-allowed",),
    408: ("request-timeout",),
    409: (
        "conflict",
        "name-taken",
        "too-many",
        "in-use",
        "last-admin-key",
        "last-engine",
        "order-replaced",
        "request-under-way",
    ),
    412: ("precondition-failed",),
    413: ("too-large",),
    415: ("unsupported-media-type",),
    422: ("idempotency-key-reused",),
    428: ("precondition-required",),
    429: ("too-many-watchers",),
    500: ("internal", "invalid-message"),
    503: ("unavailable", "not-everywhere"),
}
"""Of each status. `invalid-message`: a stored record does not parse."""
RETRY_AFTER_S = 2
CHALLENGE = 'Bearer realm="axiom"'
"""What a refusal for want of a key asks for."""
DETAIL_MAX, PATH_MAX = 500, 100
"""Characters of what a client sent that its problem says back."""
BODY, METHOD, REQUEST, URL = "body", "method", "request", "url"
"""As `path`: what is no field, no parameter and no header."""
_LATER = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS)
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


class AdminError(AxiomError):
    """An error that only this API has, with its status. `path`: which part of the request it is
    about."""

    status: ClassVar[HTTPStatus]

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path


class NotThereError(AdminError):
    """What the part of the request names is not there; NotFoundError: what its path names."""

    code = "not-found"
    status = HTTPStatus.NOT_FOUND


class UnauthenticatedError(AdminError):
    """No key, or one that is none here."""

    code = "unauthenticated"
    status = HTTPStatus.UNAUTHORIZED


class TooLargeError(AdminError):
    """A body above its bound."""

    code = "too-large"
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE


class UnsupportedError(AdminError):
    """A body of a kind that the route does not take."""

    code = "unsupported-media-type"
    status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE


class TooSlowError(AdminError):
    """A body that did not come in time."""

    code = "request-timeout"
    status = HTTPStatus.REQUEST_TIMEOUT


_STATUS: tuple[tuple[type[AxiomError], HTTPStatus], ...] = (
    (NameTakenError, HTTPStatus.CONFLICT),
    (InvalidInputError, HTTPStatus.BAD_REQUEST),
    (NotFoundError, HTTPStatus.NOT_FOUND),
    (ConflictError, HTTPStatus.CONFLICT),
    (PreconditionError, HTTPStatus.PRECONDITION_FAILED),
    (PreconditionRequiredError, HTTPStatus.PRECONDITION_REQUIRED),
    (TooManyWatchersError, HTTPStatus.TOO_MANY_REQUESTS),
    (UnavailableError, HTTPStatus.SERVICE_UNAVAILABLE),
)


def answer_errors_as_problems(app: FastAPI) -> None:
    """Make every error of `app` a problem document."""
    app.add_exception_handler(AxiomError, _on_axiom_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_parameter)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_defect)


def first_of(errors: list[Any]) -> InvalidInputError:
    """The first of pydantic's errors, and how many more there are."""
    found = errors[0]
    path = ".".join(str(part) for part in found["loc"])[:PATH_MAX] or BODY
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return InvalidInputError(f"{path}: {found['msg']}{more}", path=path)


def _problem(code: str, status: int, detail: str, *, path: str) -> Response:
    problem = rest.Problem(
        type=f"urn:axiom:problem:{code}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail[:DETAIL_MAX],
        code=code,
        path=path,
    )
    response = Response(problem.model_dump_json(), status, media_type=rest.PROBLEM_MEDIA_TYPE)
    if status in _LATER:
        response.headers[headers.RETRY_AFTER] = str(RETRY_AFTER_S)
    return response


def problem_of(error: AxiomError, scope: Scope) -> Response:
    """The answer to an error of a request."""
    path = _path_of(error, HTTPConnection(scope))
    response = _problem(error.code, _status_of(error), str(error), path=path)
    if isinstance(error, UnauthenticatedError):
        response.headers[headers.WWW_AUTHENTICATE] = CHALLENGE
    return response


def _status_of(error: AxiomError) -> HTTPStatus:
    if isinstance(error, AdminError):
        return error.status
    return next(
        (status for kind, status in _STATUS if isinstance(error, kind)),
        HTTPStatus.INTERNAL_SERVER_ERROR,
    )


def _path_of(error: AxiomError, request: HTTPConnection) -> str:
    """The part of a request that an error is about."""
    if isinstance(error, AdminError):
        return error.path
    if isinstance(error, InvalidInputError):
        return error.path or BODY
    if isinstance(error, PreconditionError | PreconditionRequiredError):
        only_none_match = (
            headers.IF_NONE_MATCH in request.headers and headers.IF_MATCH not in request.headers
        )
        return headers.IF_NONE_MATCH if only_none_match else headers.IF_MATCH
    if isinstance(error, NotFoundError | ConflictError):
        return next(iter(request.path_params), URL)
    return REQUEST


async def _on_axiom_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, AxiomError)
    return problem_of(error, request.scope)


async def _on_invalid_parameter(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    # The first part of the location says where the parameter stood: "query", "path".
    errors = [{**found, "loc": found["loc"][1:]} for found in error.errors()]
    return await _on_axiom_error(request, first_of(errors))


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = HTTPStatus(error.status_code).phrase.lower().replace(" ", "-")
    wrong_method = error.status_code == HTTPStatus.METHOD_NOT_ALLOWED
    path = METHOD if wrong_method else URL
    response = _problem(code, error.status_code, str(error.detail), path=path)
    if wrong_method:
        response.headers[headers.ALLOW] = ", ".join(_allowed(request))
    return response


def _allowed(request: Request) -> Iterable[str]:
    """The methods of a path: each is a route of its own. Of two that fit, as `/engines/{engine}`
    and `/engines/{engine}:drain` do, the longer one is meant."""
    found: dict[str, list[str]] = {}
    for method in _METHODS:
        scope = {**request.scope, "method": method}
        for route in request.app.routes:
            if isinstance(route, APIRoute) and route.matches(scope)[0] is Match.FULL:
                found.setdefault(route.path, []).append(method)
    return found[max(found, key=len)]


async def _on_defect(_: Request, error: Exception) -> Response:
    """Tells no more than that it is our fault; the server logs the exception."""
    del error
    told = "a defect of the gateway"
    return _problem("internal", HTTPStatus.INTERNAL_SERVER_ERROR, told, path=REQUEST)
